package peerdl

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/segment"
)

func serve(b *blob, opts Options, method, target string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	b.handler(opts).ServeHTTP(w, r)
	return w
}

func TestServe(t *testing.T) {
	b := newBlob(t, vfs.NewMem(), 10_000)
	sum := sha256.Sum256(b.data)
	opts := Options{SHA256: segment.SHA256(sum), ModTime: time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)}
	etag := b.digest.ETag()
	for _, test := range []struct {
		name          string
		method, query string
		header        []string
		status        int
		from, to      int // of the body
		contentRange  string
		more          string // Shoal-Continue
		code          string
	}{
		{name: "whole", status: 200, to: 10_000},
		{name: "head", method: "HEAD", status: 200},
		{name: "range", header: []string{"Range", "bytes=100-199"}, status: 206, from: 100, to: 200, contentRange: "bytes 100-199/10000"},
		{name: "open range", header: []string{"Range", "bytes=9000-"}, status: 206, from: 9000, to: 10_000, contentRange: "bytes 9000-9999/10000"},
		{name: "suffix", header: []string{"Range", "bytes=-10"}, status: 206, from: 9990, to: 10_000, contentRange: "bytes 9990-9999/10000"},
		{name: "range past the end", header: []string{"Range", "bytes=10000-"}, status: 416, from: -1, contentRange: "bytes */10000"},
		{name: "the last 0 bytes", header: []string{"Range", "bytes=-0"}, status: 416, from: -1, contentRange: "bytes */10000"},
		{name: "the last 0 bytes, written otherwise", header: []string{"Range", "bytes= -000"}, status: 416, from: -1, contentRange: "bytes */10000"},
		{name: "the last 0 bytes, and one that is there", header: []string{"Range", "bytes=-0,5-9"}, status: 206, from: 5, to: 10, contentRange: "bytes 5-9/10000"},
		{name: "the last 0 bytes of another build", header: []string{"Range", "bytes=-0", "If-Range", `"b3-00"`}, status: 200, to: 10_000},
		{name: "If-Range holds", header: []string{"Range", "bytes=0-9", "If-Range", etag}, status: 206, to: 10, contentRange: "bytes 0-9/10000"},
		{name: "If-Range of another build", header: []string{"Range", "bytes=0-9", "If-Range", `"b3-00"`}, status: 200, to: 10_000},
		{name: "If-Match of another build", header: []string{"If-Match", `"b3-00"`}, status: 412, from: -1},
		{name: "If-None-Match", header: []string{"If-None-Match", etag}, status: 304},
		{name: "chunk", query: "?position=100&maxBytes=50", status: 206, from: 100, to: 150, contentRange: "bytes 100-149/10000", more: "true"},
		{name: "chunk head", method: "HEAD", query: "?position=100&maxBytes=50", status: 206, contentRange: "bytes 100-149/10000", more: "true"},
		{name: "last chunk", query: "?position=9990&maxBytes=50", status: 206, from: 9990, to: 10_000, contentRange: "bytes 9990-9999/10000", more: "false"},
		{name: "default chunk", query: "?position=1", status: 206, from: 1, to: 10_000, contentRange: "bytes 1-9999/10000", more: "false"},
		{name: "chunk from the start", query: "?maxBytes=10000", status: 206, to: 10_000, contentRange: "bytes 0-9999/10000", more: "false"},
		{name: "position at the end", query: "?position=10000", status: 416, contentRange: "bytes */10000", code: "POSITION_OUT_OF_RANGE"},
		{name: "negative position", query: "?position=-1", status: 416, contentRange: "bytes */10000", code: "POSITION_OUT_OF_RANGE"},
		{name: "no bytes", query: "?position=0&maxBytes=0", status: 400, code: "INVALID_REQUEST"},
		{name: "malformed before out of range", query: "?position=99999&maxBytes=-1", status: 400, code: "INVALID_REQUEST"},
		{name: "no number", query: "?position=x", status: 400, code: "INVALID_REQUEST"},
		{name: "empty", query: "?position=", status: 400, code: "INVALID_REQUEST"},
		{name: "beyond 64 bits", query: "?position=9223372036854775808", status: 400, code: "INVALID_REQUEST"},
	} {
		t.Run(test.name, func(t *testing.T) {
			method := test.method
			if method == "" {
				method = "GET"
			}
			w := serve(b, opts, method, "/blob"+test.query, test.header...)
			if w.Code != test.status {
				t.Fatalf("status %d, want %d: %s", w.Code, test.status, w.Body)
			}
			h := w.Header()
			if got := h.Get("Content-Range"); got != test.contentRange {
				t.Errorf("Content-Range %q, want %q", got, test.contentRange)
			}
			if got := h.Get("Shoal-Continue"); got != test.more {
				t.Errorf("Shoal-Continue %q, want %q", got, test.more)
			}
			if test.code != "" {
				if !strings.Contains(w.Body.String(), `"`+test.code+`"`) || h.Get("Content-Type") != "application/problem+json" {
					t.Errorf("answer is %s %s, want code %s", h.Get("Content-Type"), w.Body, test.code)
				}
				return
			}
			if h.Get("ETag") != etag && test.status != 416 {
				t.Errorf("ETag %s", h.Get("ETag"))
			}
			if want := "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"; test.status < 300 && h.Get("Repr-Digest") != want {
				t.Errorf("Repr-Digest %q, want %q", h.Get("Repr-Digest"), want)
			}
			if test.from >= 0 && !bytes.Equal(w.Body.Bytes(), b.data[test.from:test.to]) {
				t.Errorf("%d other bytes in the body", w.Body.Len())
			}
			if test.to > 0 && h.Get("Content-Length") != fmt.Sprint(test.to-test.from) {
				t.Errorf("Content-Length %q for %d", h.Get("Content-Length"), test.to-test.from)
			}
		})
	}
	if n := b.pins.Load(); n != 0 {
		t.Errorf("%d pins are left", n)
	}
}

func TestChunksAreCapped(t *testing.T) {
	b := newBlob(t, vfs.NewMem(), MaxChunk+100)
	for query, want := range map[string]int{"?position=0&maxBytes=999999999999": MaxChunk, "?position=0": DefaultChunk} {
		w := serve(b, Options{}, "GET", "/blob"+query)
		if w.Body.Len() != want || w.Header().Get(ContinueHeader) != "true" {
			t.Errorf("%s: %d bytes, continue %s", query, w.Body.Len(), w.Header().Get(ContinueHeader))
		}
	}
	if w := serve(b, Options{}, "GET", "/blob", "Range", "bytes=0-"); w.Body.Len() != len(b.data) {
		t.Errorf("a plain range is capped at %d bytes", w.Body.Len())
	}
}

// A size that the chunks do not divide: they are exact, and together the file.
func TestChunksJoinToTheFile(t *testing.T) {
	b := newBlob(t, vfs.NewMem(), 10_000)
	var got []byte
	for more := "true"; more == "true"; {
		w := serve(b, Options{}, "GET", fmt.Sprintf("/blob?position=%d&maxBytes=999", len(got)))
		got = append(got, w.Body.Bytes()...)
		more = w.Header().Get(ContinueHeader)
	}
	if !bytes.Equal(got, b.data) {
		t.Errorf("the chunks join to %d bytes", len(got))
	}
}

func TestServePieces(t *testing.T) {
	b := newBlob(t, vfs.NewMem(), piece+5)
	w := serve(b, Options{}, "GET", "/blob/pieces")
	p, err := segment.ParsePieces(w.Body.Bytes(), b.digest)
	if err != nil || p.Size != b.Size() {
		t.Errorf("sidecar: %v", err)
	}
	if w.Header().Get("Repr-Digest") != "" {
		t.Error("the sidecar carries the file's Repr-Digest")
	}
	if n := b.pins.Load(); n != 0 {
		t.Errorf("%d pins are left", n)
	}
}

func TestServeNamesTheCallersErrors(t *testing.T) {
	b := newBlob(t, vfs.NewMem(), 100)
	b.name = "gone"
	err := Serve(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), b, Options{})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error of Open became %v", err)
	}
}

// A truncated file would otherwise be served as a good and shorter one.
func TestServeRefusesAFileOfAnotherSize(t *testing.T) {
	mem := vfs.NewMem()
	b := newBlob(t, mem, 1000)
	if err := vfs.WriteFile(mem, b.name, b.data[:999]); err != nil {
		t.Fatal(err)
	}
	if w := serve(b, Options{}, "GET", "/blob"); w.Code != 500 || w.Body.Len() > 500 {
		t.Errorf("answered %d with %d bytes", w.Code, w.Body.Len())
	}
}

// A file that ends early after the header must not look complete.
func TestServeCutsTheConnectionWhenTheFileEndsEarly(t *testing.T) {
	fsys := mustOS(t)
	b := newBlob(t, fsys, 3<<20)
	srv := httptest.NewServer(httpx.Handler(zerolog.Nop(), func(w http.ResponseWriter, r *http.Request) error {
		return Serve(w, r, truncating{b}, Options{})
	}))
	defer srv.Close()
	resp, err := http.Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err == nil {
		t.Error("a short body was read without an error")
	}
}

// truncating cuts its file after Serve has looked at its size.
type truncating struct{ *blob }

func (x truncating) Open() (vfs.File, *segment.Pieces, func(), error) {
	f, p, release, err := x.blob.Open()
	if err != nil {
		return nil, nil, nil, err
	}
	return &cutAfterStat{File: f, fs: x.fs, name: x.name}, p, release, nil
}

type cutAfterStat struct {
	vfs.File
	fs    vfs.FS
	name  string
	reads int
}

func (c *cutAfterStat) Read(b []byte) (int, error) {
	if c.reads++; c.reads > 8 {
		return 0, io.EOF
	}
	return c.File.Read(b[:min(len(b), 64<<10)])
}

// No Range is answered 206 without a byte, and what is sent is what it names.
func FuzzRange(f *testing.F) {
	b := newBlob(f, vfs.NewMem(), 1000)
	for _, r := range []string{"bytes=-0", "bytes=- 0", "bytes=-+0", "bytes=--0", "bytes=0-0,-0", "bytes=-,", "bytes=999-", "bytes=1000-", "bytes=-00000000000000000000", "bytes=5-4", "items=1", "bytes=\x00"} {
		f.Add(r)
	}
	f.Fuzz(func(t *testing.T, header string) {
		w := serve(b, Options{}, "GET", "/blob", "Range", header)
		switch w.Code {
		case http.StatusPartialContent:
			if w.Body.Len() == 0 {
				t.Errorf("%q: 206 without a byte", header)
			}
			var from, to int
			if n, _ := fmt.Sscanf(w.Header().Get("Content-Range"), "bytes %d-%d/1000", &from, &to); n == 2 && !bytes.Equal(w.Body.Bytes(), b.data[from:to+1]) {
				t.Errorf("%q: other bytes than Content-Range %s", header, w.Header().Get("Content-Range"))
			}
		case http.StatusOK:
			if !bytes.Equal(w.Body.Bytes(), b.data) {
				t.Errorf("%q: 200 with %d bytes", header, w.Body.Len())
			}
		case http.StatusRequestedRangeNotSatisfiable:
		default:
			t.Errorf("%q: %d", header, w.Code)
		}
	})
}

// The pin is held as long as bytes go out, and no longer.
func TestServePinsWhileSending(t *testing.T) {
	b := newBlob(t, mustOS(t), 32<<20) // more than any socket buffer takes
	b.released = make(chan struct{}, 1)
	src := b.peer(t, "a", nil)
	client := &http.Client{Transport: NewTransport()}
	resp, err := client.Get(src.URL)
	if err != nil {
		t.Fatal(err)
	}
	if n := b.pins.Load(); n != 1 {
		t.Errorf("%d pins while sending", n)
	}
	resp.Body.Close() // the reader leaves in the middle
	<-b.released
}

// net/http uses sendfile when the ReadFrom of a TCP connection is given a limit
// directly over a bare *os.File; any wrapper in between would cost the factor of
// three. The connection here looks at what it is given and hands it on, so this
// covers the handler, httpx, and net/http together.
func TestServeSendsBySendfile(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("what net/http hands to the kernel is checked on Linux")
	}
	b := newBlob(t, mustOS(t), 3<<20)
	spy := &spyListener{}
	handler := b.handler(Options{Limiter: NewLimiter(1), Metrics: NewMetrics(nil)})
	sent := make(chan struct{}, 1)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(w, r)
		sent <- struct{}{}
	}))
	spy.Listener = srv.Listener
	srv.Listener = spy
	srv.Start()
	defer srv.Close()
	for query, size := range map[string]int64{"": 3 << 20, "?position=5&maxBytes=2000000": 2_000_000} {
		spy.byFile.Store(0)
		resp, err := srv.Client().Get(srv.URL + "/blob" + query)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if err != nil || n != size {
			t.Fatalf("%q: read %d bytes, %v", query, n, err)
		}
		<-sent // the last bytes are counted after they have gone
		// net/http writes the first 512 bytes itself, with the header.
		if got := spy.byFile.Load(); got != size-512 {
			t.Errorf("%q: %d of %d bytes went from a bare file to the connection", query, got, size)
		}
	}
}

type spyListener struct {
	net.Listener
	byFile atomic.Int64 // bytes
}

func (l *spyListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &spyConn{TCPConn: c.(*net.TCPConn), listener: l}, nil
}

type spyConn struct {
	*net.TCPConn
	listener *spyListener
}

func (c *spyConn) ReadFrom(r io.Reader) (int64, error) {
	limited, _ := r.(*io.LimitedReader)
	bare := false
	if limited != nil {
		_, bare = limited.R.(*os.File)
	}
	n, err := c.TCPConn.ReadFrom(r)
	if bare {
		c.listener.byFile.Add(n)
	}
	return n, err
}
