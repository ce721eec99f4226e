package zktest

import (
	"errors"
	"net"
	"sync"
)

// wireLink is one client's connection through a WireProxy. Requests and replies
// have a goroutine each; both keep the order of what they relay, as the network
// would.
type wireLink struct {
	p              *WireProxy
	client, server net.Conn
	repliesOver    chan struct{} // closed when nothing more comes from the server

	auth []frame // how the client authenticated; only the goroutine of requests

	mu      sync.Mutex
	pending map[int32]call // requests without an answer, by xid
}

// call is a request that went to the server.
type call struct {
	op   int32
	trap *Trap // or nil
	sent frame // only of a held request, which may have to go again
}

var (
	errDropped = errors.New("it was dropped and has no answer")
	errLost    = errors.New("the connection to the server ended before its answer")
)

// authMax bounds how many authentications of one client are remembered.
const authMax = 8

func (p *WireProxy) relay(client, server net.Conn) {
	l := &wireLink{
		p: p, client: client, server: server,
		repliesOver: make(chan struct{}), pending: map[int32]call{},
	}
	var wg sync.WaitGroup
	wg.Go(l.replies)
	l.requests()
	l.drain()
	server.Close()
	wg.Wait()
	l.settleLost()
}

// requests relays from the client until its connection is over. What a trap
// holds is held here.
func (l *wireLink) requests() {
	for first := true; ; first = false {
		f, err := readFrame(l.client)
		if err != nil {
			return
		}
		xid, op := int32(0), OpConnect
		if !first {
			if xid, op, err = f.request(); err != nil {
				return
			}
		}
		if !l.request(xid, op, f) {
			return
		}
	}
}

// request deals with one frame, and returns false when the link is to end.
func (l *wireLink) request(xid, op int32, f frame) bool {
	c := call{op: op, trap: l.p.sawRequest(op, f)}
	if op == OpAuth && len(l.auth) < authMax {
		l.auth = append(l.auth, f)
	}
	if c.trap != nil {
		switch c.trap.action {
		case DropRequest:
			c.trap.settle(Answer{}, errDropped)
			l.client.Close()
			return false
		case HoldRequest:
			c.sent = f
			select {
			case <-c.trap.released:
			case <-l.p.ctx.Done():
				return false
			}
		}
	}
	if op != OpConnect {
		l.expect(xid, c)
	}
	return f.writeTo(l.server) == nil
}

// replies relays from the server until its connection is over. It reads on when
// the client has gone: a trap may be waiting for its answer.
func (l *wireLink) replies() {
	defer close(l.repliesOver)
	defer l.client.Close()
	gone := false
	for first := true; ; first = false {
		f, err := readFrame(l.server)
		if err != nil {
			return
		}
		c, ok := call{op: OpConnect}, true
		var a Answer
		if !first {
			if c, a, ok = l.answered(f); !ok {
				return
			}
		}
		if drop := l.p.sawReply(c.op, f); drop || gone {
			continue
		}
		if !l.reply(c, a, f) {
			l.client.Close()
			gone = true
		}
	}
}

// reply passes one frame to the client, and returns false when the client has
// heard the last of this connection.
func (l *wireLink) reply(c call, a Answer, f frame) bool {
	if c.trap != nil {
		switch c.trap.action {
		case DropReply:
			return false
		case HoldReply:
			select {
			case <-c.trap.released:
			case <-l.p.ctx.Done():
				return false
			}
		case CutAfter:
			f.writeTo(l.client)
			return false
		}
	}
	return f.writeTo(l.client) == nil
}

// answered finds the request of a reply and settles its trap. It returns false
// when the server refused a held request only because its session is over: that
// one goes again in a new session, and nothing else comes on this connection.
func (l *wireLink) answered(f frame) (call, Answer, bool) {
	xid, a, err := f.reply()
	if err != nil {
		return call{}, a, false
	}
	if xid == xidWatchEvent {
		return call{op: OpWatchEvent}, a, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.pending[xid]
	if c.sent != nil && a.sessionOver() {
		return c, a, false
	}
	delete(l.pending, xid)
	if c.trap != nil {
		a.addMultiErr(c.op, f)
		c.trap.settle(a, nil)
	}
	return c, a, true
}

func (l *wireLink) expect(xid int32, c call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending[xid] = c
}

// drain waits, when the client has gone, for the answers that traps want.
func (l *wireLink) drain() {
	for _, c := range l.trapped() {
		select {
		case <-c.trap.answered:
		case <-l.repliesOver:
		case <-l.p.ctx.Done():
		}
	}
}

// settleLost deals with trapped requests that the link took with it.
func (l *wireLink) settleLost() {
	for _, c := range l.trapped() {
		if c.sent == nil {
			c.trap.settle(Answer{}, errLost)
			continue
		}
		c.trap.settle(l.p.sendLate(l.auth, c.op, c.sent))
	}
}

func (l *wireLink) trapped() []call {
	l.mu.Lock()
	defer l.mu.Unlock()
	var calls []call
	for _, c := range l.pending {
		if c.trap != nil {
			calls = append(calls, c)
		}
	}
	return calls
}
