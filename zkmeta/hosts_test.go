package zkmeta

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestHostsTakeTurns(t *testing.T) {
	servers := []string{"a:1", "b:1", "c:1"}
	h := newHosts(servers, 10*time.Second)
	first := []string{h.take(), h.take(), h.take()}
	if got := slices.Sorted(slices.Values(first)); !slices.Equal(got, servers) {
		t.Fatalf("a round was %q", first)
	}
	for i := range 6 {
		if got := h.take(); got != first[i%3] {
			t.Fatalf("turn %d: %s, want the order of the first round, %q", i, got, first)
		}
	}
}

// TestHostsPause: other servers are tried at once, and a round that failed is
// followed by a pause that differs between clients, grows, and has a limit.
func TestHostsPause(t *testing.T) {
	h := newHosts([]string{"a:1", "b:1"}, 10*time.Second)
	seen := map[time.Duration]bool{}
	for round := range 12 {
		pause, got := h.attempt()
		second, _ := h.attempt()
		limit := min(50*time.Millisecond<<round, 2*time.Second)
		if round == 0 {
			limit = 0
		}
		if got != round || second != 0 || pause < limit/2 || pause > limit {
			t.Fatalf("round %d (said %d): pauses %v and %v, want about %v and none", round, got, pause, second, limit)
		}
		seen[pause] = true
	}
	if len(seen) < 8 {
		t.Errorf("pauses without jitter: %v", seen)
	}
	h.good()
	if pause, round := h.attempt(); pause != 0 || round != 0 {
		t.Errorf("after success: round %d, pause %v", round, pause)
	}
}

func TestAttemptMax(t *testing.T) {
	tests := []struct {
		servers       int
		timeout, want time.Duration
	}{
		{1, 10 * time.Second, 10 * time.Second / 3},
		{1, 40 * time.Second, 5 * time.Second},
		{3, 9 * time.Second, 2 * time.Second},
		{5, 3 * time.Second, time.Second},
		{5, 1500 * time.Millisecond, 500 * time.Millisecond},
	}
	for _, tt := range tests {
		if got := attemptMax(tt.servers, tt.timeout); got != tt.want {
			t.Errorf("%d servers, %v: %v, want %v", tt.servers, tt.timeout, got, tt.want)
		}
	}
}

// listen accepts connections and hands them out.
func listen(t *testing.T) (addr string, accepted <-chan net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conns := make(chan net.Conn, 16)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			conns <- conn
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		<-done
		close(conns)
		for conn := range conns {
			conn.Close()
		}
	})
	return ln.Addr().String(), conns
}

// TestDialResolvesAnew: a name is looked up at each dial, all its addresses are
// tried, and each dial begins with another one.
func TestDialResolvesAnew(t *testing.T) {
	addr, accepted := listen(t)
	_, port, _ := net.SplitHostPort(addr)
	lookups := 0
	d := newDialer(nil, time.Minute)
	answer := []string{"127.0.0.2", "127.0.0.1"} // nobody listens at the first
	d.lookup = func(_ context.Context, host string) ([]string, error) {
		lookups++
		if host != "zk" {
			t.Errorf("looked up %q", host)
		}
		return answer, nil
	}
	for range 2 {
		w, err := d.dial(t.Context(), "zk:"+port)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		defer (<-accepted).Close()
	}
	answer = []string{"127.0.0.2", "127.0.0.3"} // it moved
	if _, err := d.dial(t.Context(), "zk:"+port); err == nil || strings.Count(err.Error(), "refused") != 2 {
		t.Errorf("two addresses that refuse: %v", err)
	}
	answer = nil
	if _, err := d.dial(t.Context(), "zk:"+port); err == nil || !strings.Contains(err.Error(), "no address") {
		t.Errorf("a name without addresses: %v", err)
	}
	if lookups != 4 {
		t.Errorf("%d look-ups for 4 dials", lookups)
	}
	if d.first("other") != 0 || d.first("other") != 1 {
		t.Error("addresses do not take turns")
	}
}

// TestHandshakeIsCapped: a server that accepts and says nothing, as one that is
// frozen, is left after the time of an attempt, whatever deadline the library sets.
func TestHandshakeIsCapped(t *testing.T) {
	addr, accepted := listen(t)
	d := newDialer(nil, 100*time.Millisecond)
	w, err := d.dial(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	defer (<-accepted).Close()
	for _, deadline := range []time.Time{{}, time.Now().Add(time.Hour)} {
		w.SetReadDeadline(deadline)
		_, err := w.Read(make([]byte, 4))
		var timeout net.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Fatalf("read with deadline %v: %v", deadline, err)
		}
	}
}

// TestHandshakeIsRead in pieces, as the library reads it, and refused when it is
// of another protocol: the library would make room for whatever length it says.
func TestHandshakeIsRead(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	w := newWire(near, "zk:2181", time.Now().Add(time.Minute))
	go far.Write(firstAnswer(0x1234, 6*time.Second))
	for _, n := range []int{4, 20, 17} {
		if w.shaken.Load() {
			t.Fatal("shaken too early")
		}
		if _, err := io.ReadFull(w, make([]byte, n)); err != nil {
			t.Fatal(err)
		}
	}
	if !w.shaken.Load() || w.session != 0x1234 || w.timeout != 6*time.Second {
		t.Fatalf("shaken %v, session %#x, timeout %v", w.shaken.Load(), w.session, w.timeout)
	}
	if later := time.Now().Add(time.Hour); !w.cap(later).Equal(later) {
		t.Error("the deadline of the handshake lives on")
	}

	other, http := net.Pipe()
	defer other.Close()
	defer http.Close()
	w = newWire(other, "zk:80", time.Now().Add(time.Minute))
	go http.Write([]byte("HTTP"))
	if _, err := io.ReadFull(w, make([]byte, 4)); !errors.Is(err, errNotZooKeeper) {
		t.Fatalf("a web server: %v", err)
	}
}

// TestDialNamesTheServer: TLS asks for the name of the server in the address, or
// for the one that is set; and a server that accepts and says nothing is left.
func TestDialNamesTheServer(t *testing.T) {
	addr, accepted := listen(t)
	_, port, _ := net.SplitHostPort(addr)
	for set, want := range map[string]string{"": "zk.example", "other.example": "other.example"} {
		d := newDialer(&tls.Config{ServerName: set}, time.Minute)
		d.lookup = func(context.Context, string) ([]string, error) { return []string{"127.0.0.1"}, nil }
		names := make(chan string, 1)
		done := make(chan struct{})
		go func() {
			defer close(done)
			conn := <-accepted
			defer conn.Close()
			tls.Server(conn, &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
				names <- hello.ServerName
				return nil, errors.New("seen enough")
			}}).Handshake()
		}()
		if _, err := d.dial(t.Context(), "zk.example:"+port); err == nil || !strings.Contains(err.Error(), "TLS with 127.0.0.1:"+port) {
			t.Errorf("dial: %v", err)
		}
		if got := <-names; got != want {
			t.Errorf("with ServerName %q: asked for %q, want %q", set, got, want)
		}
		<-done
	}
	d := newDialer(&tls.Config{ServerName: "zk"}, 100*time.Millisecond)
	if _, err := d.dial(t.Context(), addr); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a server that says nothing: %v", err)
	}
}

// FuzzHandshake: whatever comes first, in whatever pieces, is read as a first
// answer or refused.
func FuzzHandshake(f *testing.F) {
	f.Add(firstAnswer(0x1234, time.Second), 4)
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), 1)
	f.Add([]byte{0, 0, 0, 16, 0, 0, 0, 0}, 3)
	f.Fuzz(func(t *testing.T, b []byte, piece int) {
		w := &wire{}
		size := -1
		if len(b) >= 4 {
			size = int(binary.BigEndian.Uint32(b))
		}
		var err error
		for p := range slices.Chunk(b, max(1, piece)) {
			if err = w.shake(p); err != nil || w.shaken.Load() {
				break
			}
		}
		fits := size >= firstAnswerMin && size <= firstAnswerMax
		if shaken := fits && len(b) >= 4+size; w.shaken.Load() != shaken {
			t.Fatalf("shaken %v, want %v", w.shaken.Load(), shaken)
		}
		if refused := size >= 0 && !fits; (err != nil) != refused {
			t.Fatalf("refused %v, want %v", err, refused)
		}
	})
}
