package httpx

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

func TestListenIsLoopbackUnlessTold(t *testing.T) {
	for _, addr := range []string{":0", "127.0.0.1:0", "localhost:0", "127.0.0.2:0"} {
		ln, err := Listen(addr, false)
		if err != nil {
			t.Errorf("%s: %v", addr, err)
			continue
		}
		if ip := ln.Addr().(*net.TCPAddr).IP; !ip.IsLoopback() {
			t.Errorf("%s listens on %s", addr, ip)
		}
		ln.Close()
	}
	for _, addr := range []string{"0.0.0.0:0", "[::]:0", "192.0.2.1:0", "example.com:0", "10.0.0.1:0"} {
		ln, err := Listen(addr, false)
		if err == nil {
			ln.Close()
		}
		if !errors.Is(err, ErrNotLoopback) || !strings.Contains(err.Error(), addr) {
			t.Errorf("%s: %v", addr, err)
		}
	}
	for _, addr := range []string{"0.0.0.0:0", ":0"} {
		ln, err := Listen(addr, true)
		if err != nil {
			t.Errorf("%s, allowed: %v", addr, err)
			continue
		}
		if ip := ln.Addr().(*net.TCPAddr).IP; ip.IsLoopback() != (addr == ":0") {
			t.Errorf("%s, allowed, listens on %s", addr, ip)
		}
		ln.Close()
	}
	if _, err := Listen("no port", true); err == nil {
		t.Error("listens without a port")
	}
}

// serving is a server that runs until stop; Serve's result comes on done.
type serving struct {
	ln   net.Listener
	url  string
	stop context.CancelFunc
	done chan error
}

func start(t *testing.T, drain time.Duration, h http.HandlerFunc) *serving {
	t.Helper()
	ln, err := Listen(":0", false)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s := &serving{ln: ln, url: "http://" + ln.Addr().String(), stop: cancel, done: make(chan error, 1)}
	go func() { s.done <- serve(ctx, zerolog.Nop(), ln, h, drain) }()
	return s
}

func get(client *http.Client, url string) (string, error) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	return do(client, req)
}

func do(client *http.Client, req *http.Request) (string, error) {
	res, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return string(body), err
}

func TestServeDrainsRequestsInFlight(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	s := start(t, time.Hour, func(w http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-release
		io.WriteString(w, "whole")
	})
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	answer := make(chan string, 1)
	go func() { body, _ := get(client, s.url); answer <- body }()
	<-arrived
	s.stop()
	select {
	case err := <-s.done:
		t.Fatalf("Serve returned %v while a request was in flight", err)
	default:
	}
	close(release)
	if err := <-s.done; err != nil {
		t.Fatal(err)
	}
	if got := <-answer; got != "whole" {
		t.Fatalf("got %q", got)
	}
	// Not by asking at the address, which may be another's by now.
	if _, err := s.ln.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Fatalf("still listens: %v", err)
	}
}

func TestServeEndsRequestsThatDoNotEnd(t *testing.T) {
	arrived, returned := make(chan struct{}), make(chan struct{})
	s := start(t, time.Millisecond, func(w http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
		close(returned)
	})
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	failed := make(chan error, 1)
	go func() { _, err := get(client, s.url); failed <- err }()
	<-arrived
	s.stop()
	if err := <-s.done; err != nil {
		t.Fatal(err)
	}
	select {
	case <-returned:
	default:
		t.Fatal("Serve did not wait for the handler")
	}
	<-failed // an answer or a cut connection, but an end
}

func TestServeTellsThatItsListenerFailed(t *testing.T) {
	ln, err := Listen(":0", false)
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	if err := Serve(t.Context(), zerolog.Nop(), ln, http.NotFoundHandler()); !errors.Is(err, net.ErrClosed) {
		t.Fatalf("got %v", err)
	}
}

// TestDeadlineEndsWithItsRequest: a connection that is used again must not find
// the write deadline of its previous request.
func TestDeadlineEndsWithItsRequest(t *testing.T) {
	s := start(t, time.Hour, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "2")
		io.WriteString(w, "ok")
		http.NewResponseController(w).Flush()
		// What a RollingDeadline leaves behind, by now long past.
		http.NewResponseController(w).SetWriteDeadline(time.Now().Add(-time.Hour))
	})
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	reused := 0
	trace := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		if info.Reused {
			reused++
		}
	}})
	// On a busy machine net/http gives up a connection that it could use again.
	for reused < 2 {
		req, err := http.NewRequestWithContext(trace, http.MethodGet, s.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := do(client, req); got != "ok" || err != nil {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	client.CloseIdleConnections()
	s.stop()
	if err := <-s.done; err != nil {
		t.Fatal(err)
	}
}
