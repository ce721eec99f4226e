package httpx

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// spyListener hands out connections that tell what net/http gives them to send.
type spyListener struct {
	net.Listener
	conns chan *spyConn
}

func (l *spyListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	spy := &spyConn{Conn: c.(*net.TCPConn)}
	select {
	case l.conns <- spy:
	default:
	}
	return spy, nil
}

// spyConn counts what goes the kernel's way: a bare file under one limit is
// what the net package can hand to sendfile.
type spyConn struct {
	net.Conn
	files, others int64 // bytes by ReadFrom
	steps         int
	deadlines     []time.Time
}

func (c *spyConn) ReadFrom(src io.Reader) (int64, error) {
	n, err := c.Conn.(*net.TCPConn).ReadFrom(src)
	limit, ok := src.(*io.LimitedReader)
	if ok {
		_, ok = limit.R.(*os.File)
	}
	if ok {
		c.files += n
		c.steps++
	} else {
		c.others += n
	}
	return n, err
}

func (c *spyConn) SetWriteDeadline(t time.Time) error {
	c.deadlines = append(c.deadlines, t)
	return c.Conn.SetWriteDeadline(t)
}

// TestFilesGoOutBySendfile: through Handler and RollingDeadline, the whole file
// but the first bytes that net/http sniffs reaches the connection as a file.
func TestFilesGoOutBySendfile(t *testing.T) {
	const size = 5<<20 + 123
	name := filepath.Join(t.TempDir(), "f")
	content := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
	if err := os.WriteFile(name, content, 0o644); err != nil {
		t.Fatal(err)
	}
	handler := Handler(zerolog.Nop(), func(w http.ResponseWriter, r *http.Request) error {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		http.ServeContent(w, r, "", time.Time{}, f)
		return nil
	})
	server := httptest.NewUnstartedServer(handler)
	spies := &spyListener{Listener: server.Listener, conns: make(chan *spyConn, 2)} // one a request at most
	server.Listener = spies
	server.Start()
	client := server.Client()
	for _, span := range [][2]int{{0, size}, {1000, 2 << 20}} {
		req, _ := http.NewRequest("GET", server.URL, nil)
		req.Header.Set("Range", "bytes="+strconv.Itoa(span[0])+"-"+strconv.Itoa(span[1]-1))
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || !bytes.Equal(got, content[span[0]:span[1]]) {
			t.Fatalf("got %d bytes of %d, %v", len(got), span[1]-span[0], err)
		}
	}
	server.Close()
	var spy spyConn // of all connections: one, unless net/http gave it up on a busy machine
	for len(spies.conns) > 0 {
		c := <-spies.conns
		spy.files, spy.others, spy.steps = spy.files+c.files, spy.others+c.others, spy.steps+c.steps
		spy.deadlines = append(spy.deadlines, c.deadlines...)
	}
	want := int64(size + 2<<20 - 1000)
	if spy.others != 0 || spy.files < want-2*512 || spy.files > want {
		t.Fatalf("%d bytes as files, %d otherwise, of %d", spy.files, spy.others, want)
	}
	if steps := int(want / progressStep); spy.steps < steps || len(spy.deadlines) < steps {
		t.Fatalf("%d steps and %d deadlines for %d bytes", spy.steps, len(spy.deadlines), want)
	}
}

// fakeWriter is a connection's end that takes so much, then times out as one
// whose write deadline has passed does.
type fakeWriter struct {
	http.ResponseWriter
	room      int
	deadlines int
}

func (f *fakeWriter) SetWriteDeadline(t time.Time) error {
	f.deadlines++
	return nil
}

func (f *fakeWriter) Write(b []byte) (int, error) {
	if len(b) <= f.room {
		f.room -= len(b)
		return len(b), nil
	}
	n := f.room
	f.room = 0
	return n, os.ErrDeadlineExceeded
}

func TestDeadlineMovesWithEachStep(t *testing.T) {
	const size = 4*progressStep + 1
	for name, send := range map[string]func(*ProgressWriter) (int64, error){
		"write":     func(p *ProgressWriter) (int64, error) { n, err := p.Write(make([]byte, size)); return int64(n), err },
		"read from": func(p *ProgressWriter) (int64, error) { return p.ReadFrom(bytes.NewReader(make([]byte, size))) },
	} {
		fake := &fakeWriter{ResponseWriter: httptest.NewRecorder(), room: size}
		p := RollingDeadline(fake, time.Hour)
		if p.Started() {
			t.Errorf("%s: started before anything was written", name)
		}
		n, err := send(p)
		if n != size || err != nil || fake.deadlines < 5 || !p.Started() {
			t.Errorf("%s: sent %d, %v, with %d deadlines", name, n, err, fake.deadlines)
		}
		fake = &fakeWriter{ResponseWriter: httptest.NewRecorder(), room: progressStep + 10}
		n, err = send(RollingDeadline(fake, time.Hour))
		if n != progressStep+10 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s to one who stalls: sent %d, %v", name, n, err)
		}
	}
}

// TestReaderThatStopsIsCutOff sends to a real connection that nobody reads.
func TestReaderThatStopsIsCutOff(t *testing.T) {
	result := make(chan error, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := RollingDeadline(w, 50*time.Millisecond)
		block := make([]byte, 1<<20)
		var err error
		for err == nil { // more than all buffers between hold
			_, err = p.Write(block)
		}
		result <- err
	}))
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := <-result; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the send ends with %v", err)
	}
	conn.Close()
	server.Close()
}

func TestShortFileEndsTheSend(t *testing.T) {
	rec := httptest.NewRecorder()
	n, err := RollingDeadline(rec, time.Hour).ReadFrom(io.LimitReader(bytes.NewReader(make([]byte, 10)), 100))
	if n != 10 || err != nil || rec.Body.Len() != 10 {
		t.Fatalf("sent %d, %v", n, err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err = RollingDeadline(w, time.Hour).ReadFrom(io.LimitReader(bytes.NewReader(make([]byte, progressStep*2)), 1<<40))
	}))
	res, getErr := server.Client().Get(server.URL)
	if getErr != nil {
		t.Fatal(getErr)
	}
	got, _ := io.ReadAll(res.Body)
	res.Body.Close()
	server.Close()
	if n != progressStep*2 || err != nil || len(got) != progressStep*2 {
		t.Fatalf("sent %d, %v, got %d", n, err, len(got))
	}
}

// posting serves one POST whose body has a read deadline of idle, sends it what
// the client sends, and returns what the handler does.
func posting(t *testing.T, idle time.Duration, sent string, handle func(*http.Request) error) error {
	t.Helper()
	result := make(chan error, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = &stallReader{ReadCloser: r.Body, rc: http.NewResponseController(w), idle: idle}
		result <- handle(r)
	}))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"+sent); err != nil {
		t.Fatal(err)
	}
	return <-result
}

func TestSenderThatStopsIsCutOff(t *testing.T) {
	err := posting(t, 20*time.Millisecond, "half", func(r *http.Request) error {
		_, err := ReadBody(r, 100)
		return err
	})
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
}

func TestSlowHandlerOutlivesTheReadDeadline(t *testing.T) {
	const idle = 20 * time.Millisecond
	err := posting(t, idle, "0123456789", func(r *http.Request) error {
		if _, err := ReadBody(r, 100); errors.Is(err, os.ErrDeadlineExceeded) {
			return nil // a machine too slow to send ten bytes tells nothing
		} else if err != nil {
			return err
		}
		// A parser may well look for more.
		if n, err := r.Body.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			return fmt.Errorf("after the end: %d, %v", n, err)
		}
		select {
		case <-r.Context().Done():
			return r.Context().Err()
		case <-time.After(3 * idle): // long enough for the deadline to strike
			return nil
		}
	})
	if err != nil {
		t.Fatalf("the request ended with %v", err)
	}
}

// What http.ServeContent refuses by itself is a problem as any other refusal is, whole and
// with nothing behind it.
func TestARangeThatIsNotThereIsAProblem(t *testing.T) {
	s := httptest.NewServer(Handler(zerolog.Nop(), func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("ETag", `"it"`)
		w.Header().Set("Content-Type", "application/x-it")
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader("0123456789"))
		return nil
	}))
	defer s.Close()
	for _, test := range []struct {
		asked, contentRange, says string
		status                    int
	}{
		{"bytes=10-", "bytes */10", "the size is 10 bytes", http.StatusRequestedRangeNotSatisfiable},
		{"bytes=x-y", "", "bytes=FIRST-LAST", http.StatusRequestedRangeNotSatisfiable},
		{"bytes=9-", "bytes 9-9/10", "", http.StatusPartialContent},
	} {
		req, err := http.NewRequest(http.MethodGet, s.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Range", test.asked)
		res, err := s.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != test.status || res.Header.Get("Content-Range") != test.contentRange {
			t.Errorf("%s: %s, Content-Range %q, %v", test.asked, res.Status, res.Header.Get("Content-Range"), err)
		}
		if test.says == "" {
			if string(body) != "9" || res.Header.Get("Content-Type") != "application/x-it" {
				t.Errorf("%s: %q, %v", test.asked, body, res.Header)
			}
			continue
		}
		var p problem
		if err := json.Unmarshal(body, &p); err != nil || p.Code != CodeRangeNotThere || p.Status != test.status || !strings.Contains(p.Detail, test.says) || res.Header.Get("Content-Type") != problemType {
			t.Errorf("%s: %q of %q, %v", test.asked, body, res.Header.Get("Content-Type"), err)
		}
	}
}
