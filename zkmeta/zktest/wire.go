package zktest

import (
	"maps"
	"sync"
	"testing"
)

// WireProxy relays ZooKeeper's frames between clients and one server, counts
// them, and does to a chosen request what its trap says. Its methods may be
// called from any goroutine. For the faults of a network put a Proxy behind it.
type WireProxy struct {
	*front

	state struct {
		sync.Mutex
		traps      []*Trap
		dropEvents bool
		requests   map[int32]int
		replies    map[int32]int
		maxRequest Size
		maxReply   Size
	}
}

// Size is the size of one frame without its 4-byte length, as jute.maxbuffer
// counts. Op is the opcode of the request, or of the request that it answers.
type Size struct {
	Op    int32
	Bytes int
}

// NewWireProxy relays to target (host:port) until the test ends.
func NewWireProxy(t testing.TB, target string) *WireProxy {
	t.Helper()
	p := &WireProxy{front: newFront(t, target)}
	p.state.requests = map[int32]int{}
	p.state.replies = map[int32]int{}
	p.serve = p.relay
	p.Heal()
	return p
}

// On sets a trap for the next request with the opcode that match (nil: any)
// accepts. Of several traps that a request could meet, it meets the oldest.
func (p *WireProxy) On(op int32, match Match, action Action) *Trap {
	t := newTrap(p, op, match, action)
	p.state.Lock()
	defer p.state.Unlock()
	p.state.traps = append(p.state.traps, t)
	return t
}

// DropEvents swallows watch events while it is on, as a client does whose own
// queue of events is full.
func (p *WireProxy) DropEvents(on bool) {
	p.state.Lock()
	defer p.state.Unlock()
	p.state.dropEvents = on
}

// Requests returns how many requests came from clients, by opcode, those that a
// trap swallowed included.
func (p *WireProxy) Requests() map[int32]int {
	p.state.Lock()
	defer p.state.Unlock()
	return maps.Clone(p.state.requests)
}

// Replies returns how many frames came from the server, by the opcode that they
// answer.
func (p *WireProxy) Replies() map[int32]int {
	p.state.Lock()
	defer p.state.Unlock()
	return maps.Clone(p.state.replies)
}

// MaxRequest is the largest request so far.
func (p *WireProxy) MaxRequest() Size {
	p.state.Lock()
	defer p.state.Unlock()
	return p.state.maxRequest
}

// MaxReply is the largest frame from the server so far.
func (p *WireProxy) MaxReply() Size {
	p.state.Lock()
	defer p.state.Unlock()
	return p.state.maxReply
}

// sawRequest counts a request and returns the trap that it met, or nil.
func (p *WireProxy) sawRequest(op int32, f frame) *Trap {
	p.state.Lock()
	defer p.state.Unlock()
	p.state.requests[op]++
	if len(f) > p.state.maxRequest.Bytes {
		p.state.maxRequest = Size{op, len(f)}
	}
	if len(p.state.traps) == 0 || len(f) < 8 || op == OpConnect {
		return nil
	}
	for i, t := range p.state.traps {
		if t.wants(op, f[8:]) {
			p.state.traps = append(p.state.traps[:i:i], p.state.traps[i+1:]...)
			close(t.hit)
			return t
		}
	}
	return nil
}

// sawReply counts a frame of the server's, and says whether it is an event to
// drop.
func (p *WireProxy) sawReply(op int32, f frame) (drop bool) {
	p.state.Lock()
	defer p.state.Unlock()
	p.state.replies[op]++
	if len(f) > p.state.maxReply.Bytes {
		p.state.maxReply = Size{op, len(f)}
	}
	return op == OpWatchEvent && p.state.dropEvents
}

func (p *WireProxy) disarm(t *Trap) {
	p.state.Lock()
	defer p.state.Unlock()
	for i, armed := range p.state.traps {
		if armed == t {
			p.state.traps = append(p.state.traps[:i:i], p.state.traps[i+1:]...)
			return
		}
	}
}
