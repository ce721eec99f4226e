package zktest

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Direction of bytes through a proxy.
type Direction int

const (
	ToServer Direction = 1 << iota
	ToClient
	Both = ToServer | ToClient
)

// Proxy relays bytes between clients and one server, and fails as a network
// does. Its methods may be called from any goroutine.
type Proxy struct {
	*front

	state struct {
		sync.Mutex
		delay   time.Duration
		stalled Direction
		changed chan struct{} // closed and replaced when stalled changes
	}
}

// NewProxy relays to target (host:port) until the test ends.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	p := makeProxy(t, target)
	p.Heal()
	return p
}

// makeProxy returns a proxy that does not accept before the first Heal.
func makeProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	p := &Proxy{front: newFront(t, target)}
	p.state.changed = make(chan struct{})
	p.serve = p.relay
	return p
}

// Stall is a black hole: the proxy goes on accepting connections and bytes, and
// passes none on in the given direction. Nobody is told; the ends of connections
// do not pass either. What was held goes on its way at Unstall.
func (p *Proxy) Stall(d Direction) {
	p.state.Lock()
	defer p.state.Unlock()
	p.setStalled(p.state.stalled | d)
}

// Unstall ends a Stall, in both directions.
func (p *Proxy) Unstall() {
	p.state.Lock()
	defer p.state.Unlock()
	p.setStalled(0)
}

func (p *Proxy) setStalled(d Direction) {
	p.state.stalled = d
	close(p.state.changed)
	p.state.changed = make(chan struct{})
}

// Delay holds every byte that is read from now on for d, in each direction: a
// round trip takes 2d longer. It is latency and does not limit the rate.
func (p *Proxy) Delay(d time.Duration) {
	p.state.Lock()
	defer p.state.Unlock()
	p.state.delay = d
}

func (p *Proxy) delay() time.Duration {
	p.state.Lock()
	defer p.state.Unlock()
	return p.state.delay
}

// pass waits until bytes may go in direction d. It returns false if the proxy
// closes before.
func (p *Proxy) pass(d Direction) bool {
	for {
		p.state.Lock()
		stalled, changed := p.state.stalled&d != 0, p.state.changed
		p.state.Unlock()
		if !stalled {
			return true
		}
		select {
		case <-changed:
		case <-p.ctx.Done():
			return false
		}
	}
}

// relay copies both ways until both have ended. When one side closes its
// connection, the other is told once the bytes before it have gone.
func (p *Proxy) relay(client, server net.Conn) {
	var wg sync.WaitGroup
	wg.Go(func() { p.pump(ToServer, client, server) })
	wg.Go(func() { p.pump(ToClient, server, client) })
	wg.Wait()
}

// chunk is bytes on their way; due is when they arrive.
type chunk struct {
	bytes []byte
	due   time.Time
}

const (
	chunkMax = 32 << 10
	queueMax = 64 // chunks; a full queue slows the sender, as a full pipe does
)

func (p *Proxy) pump(d Direction, from, to net.Conn) {
	queue := make(chan chunk, queueMax)
	over := make(chan struct{}) // the writing half has ended
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(queue)
		for {
			b := make([]byte, chunkMax)
			n, err := from.Read(b)
			if err != nil {
				return
			}
			select {
			case queue <- chunk{b[:n], time.Now().Add(p.delay())}:
			case <-over:
				return
			}
		}
	})
	for c := range queue {
		if !p.wait(c.due) || !p.pass(d) {
			break
		}
		if _, err := to.Write(c.bytes); err != nil {
			break
		}
	}
	close(over)
	if p.pass(d) {
		closeWrite(to)
	}
	closeRead(from) // wakes the reader
	wg.Wait()
}

// wait returns false if the proxy closes before due.
func (p *Proxy) wait(due time.Time) bool {
	left := time.Until(due)
	if left <= 0 {
		return true
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.ctx.Done():
		return false
	}
}

func closeWrite(conn net.Conn) { conn.(interface{ CloseWrite() error }).CloseWrite() }
func closeRead(conn net.Conn)  { conn.(interface{ CloseRead() error }).CloseRead() }
