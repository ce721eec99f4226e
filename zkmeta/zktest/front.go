package zktest

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/shoalstore/shoal/internal/httpx/httpxtest"
)

// dialMax bounds one connection to the target, which is on this machine.
const dialMax = 10 * time.Second

// front is what the proxies share: it listens, connects each client to the
// target, and can cut and close. A port of its own outlives cuts, so that a
// client finds the proxy again where it was.
type front struct {
	t     testing.TB
	port  int
	serve func(client, server net.Conn) // relays until the link is over; the caller closes both
	// patience is how long a target that refuses is dialled again. The proxy has
	// accepted by then and cannot refuse in its name.
	patience time.Duration

	ctx  context.Context // ends at close
	stop context.CancelFunc
	wg   sync.WaitGroup // accepts and links

	mu     sync.Mutex
	target string
	ln     net.Listener          // nil: cut
	conns  map[net.Conn]struct{} // both ends of every link
}

// newFront lasts as long as the test. It does not accept before the first Heal,
// so that serve may be set.
func newFront(t testing.TB, target string) *front {
	t.Helper()
	port, err := httpxtest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	f := &front{t: t, port: port, target: target, conns: map[net.Conn]struct{}{}}
	f.ctx, f.stop = context.WithCancel(context.Background())
	t.Cleanup(f.close)
	return f
}

// Addr is where clients connect, as host:port.
func (f *front) Addr() string { return httpxtest.Loopback(f.port) }

// SetTarget sends new connections to another server. Present ones stay.
func (f *front) SetTarget(addr string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.target = addr
}

// Cut closes every connection, and refuses new ones until Heal.
func (f *front) Cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ln != nil {
		f.ln.Close()
		f.ln = nil
	}
	f.dropLocked()
}

// Drop closes every connection. Clients may come back at once.
func (f *front) Drop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dropLocked()
}

func (f *front) dropLocked() {
	for conn := range f.conns {
		conn.Close()
	}
	clear(f.conns)
}

// Heal ends a Cut. Clients have to connect anew.
func (f *front) Heal() {
	f.t.Helper()
	if err := f.listen(); err != nil {
		f.t.Error(err)
	}
}

func (f *front) listen() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ln != nil {
		return nil
	}
	if f.ctx.Err() != nil {
		return errors.New("the proxy is closed")
	}
	ln, err := net.Listen("tcp4", f.Addr())
	if err != nil {
		return err
	}
	f.ln = ln
	f.wg.Go(func() { f.accept(ln) })
	return nil
}

// close ends every connection and goroutine of the proxy, and waits for them.
func (f *front) close() {
	f.stop()
	f.Cut()
	f.wg.Wait()
	httpxtest.GiveBack(f.port)
}

func (f *front) accept(ln net.Listener) {
	for {
		client, err := ln.Accept()
		if err != nil {
			return // cut or closed
		}
		f.wg.Go(func() {
			defer client.Close()
			f.link(ln, client)
		})
	}
}

func (f *front) link(of net.Listener, client net.Conn) {
	server, err := f.dialPatiently(of)
	if err != nil {
		return // the client sees its connection closed, as from a server that is down
	}
	defer server.Close()
	if !f.enter(of, client, server) {
		return
	}
	defer f.leave(client, server)
	f.serve(client, server)
}

// dialPatiently gives up when its listener is cut.
func (f *front) dialPatiently(of net.Listener) (net.Conn, error) {
	for until := time.Now().Add(f.patience); ; {
		server, err := f.dial()
		if err == nil || time.Now().After(until) || !f.listens(of) {
			return server, err
		}
		select {
		case <-time.After(pollEvery):
		case <-f.ctx.Done():
			return nil, f.ctx.Err()
		}
	}
}

func (f *front) listens(ln net.Listener) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ln == ln
}

func (f *front) dial() (net.Conn, error) {
	f.mu.Lock()
	target := f.target
	f.mu.Unlock()
	d := net.Dialer{Timeout: dialMax}
	return d.DialContext(f.ctx, "tcp4", target)
}

// enter counts the link among those that a cut ends. A client that was accepted
// before a cut and connects its server after it is cut too.
func (f *front) enter(of net.Listener, conns ...net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ln != of {
		return false
	}
	for _, conn := range conns {
		f.conns[conn] = struct{}{}
	}
	return true
}

func (f *front) leave(conns ...net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, conn := range conns {
		delete(f.conns, conn)
	}
}
