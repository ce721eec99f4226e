package zktest

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"
)

// Action is what happens to the request that a trap waits for.
type Action int

const (
	// DropReply lets the request through, swallows the answer and then closes the
	// client's connection: done, and the client does not know.
	DropReply Action = iota + 1
	// DropRequest swallows the request and closes the connection: not done, and the
	// client does not know.
	DropRequest
	// HoldReply lets the request through and holds the answer until Release, and
	// behind it all that the server says on that connection.
	HoldReply
	// HoldRequest holds the request until Release, and behind it all that the client
	// says on that connection, pings included, as the network keeps the order. The
	// request is sent at Release whatever has become of the client: on its own
	// connection while the server has it open, else in a new session (so would a
	// client's queue send it after a reconnect). If its own connection ends without
	// an answer after the Release, it goes again in a new session, and may then
	// arrive twice. An ephemeral znode made in the new session goes at once.
	HoldRequest
	// CutAfter passes the answer on and then closes the connection.
	CutAfter
)

var actionNames = [...]string{"", "DropReply", "DropRequest", "HoldReply", "HoldRequest", "CutAfter"}

func (a Action) String() string { return actionNames[a] }

// Match looks at a request after its opcode. Nil matches every request.
type Match func(payload []byte) bool

// Mentions matches a request that has s in its paths or data.
func Mentions(s string) Match {
	return func(payload []byte) bool { return bytes.Contains(payload, []byte(s)) }
}

// Answer is the server's word on a trapped request.
type Answer struct {
	Zxid int64
	// Err is ZooKeeper's error code, 0 for success: of a multi, the first error
	// among its operations.
	Err int32
	// NewSession says that a held request went in a session of the proxy's, as its
	// own connection was gone.
	NewSession bool
}

// Trap is one fault, for one request: the first that matches.
type Trap struct {
	p      *WireProxy
	op     int32
	match  Match
	action Action

	hit      chan struct{}
	released chan struct{}
	release  sync.Once

	answered chan struct{}
	once     sync.Once
	answer   Answer // after answered
	err      error
}

func newTrap(p *WireProxy, op int32, match Match, action Action) *Trap {
	return &Trap{
		p: p, op: op, match: match, action: action,
		hit: make(chan struct{}), released: make(chan struct{}), answered: make(chan struct{}),
	}
}

// Hit is closed when the request has come and the fault begins: for HoldReply
// and the drops of a reply, before the server has answered.
func (t *Trap) Hit() <-chan struct{} { return t.hit }

// WaitHit fails the test if the request does not come within a minute.
func (t *Trap) WaitHit() {
	t.p.t.Helper()
	timer := time.NewTimer(serveMax)
	defer timer.Stop()
	select {
	case <-t.hit:
	case <-timer.C:
		t.p.t.Fatalf("no request met the trap %v of opcode %d", t.action, t.op)
	}
}

// Release lets go what is held. It may come before the hit, and twice.
func (t *Trap) Release() { t.release.Do(func() { close(t.released) }) }

// Disarm takes back a trap that nothing has met; one that was met goes on.
func (t *Trap) Disarm() { t.p.disarm(t) }

// Answer waits until the server has answered the request, and returns the
// answer, whether or not the client ever sees it. It fails the test after a
// minute, and if the answer is lost with the server's end of the connection. Of
// a request that was dropped there is none.
func (t *Trap) Answer() Answer {
	t.p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), serveMax)
	defer cancel()
	select {
	case <-t.answered:
	case <-ctx.Done():
		t.p.t.Fatalf("no answer to the request in the trap %v of opcode %d", t.action, t.op)
	}
	if t.err != nil {
		t.p.t.Fatal(t.err)
	}
	return t.answer
}

// settle records the server's answer, or why there is none. The first counts.
func (t *Trap) settle(a Answer, err error) {
	t.once.Do(func() {
		if err != nil {
			t.err = fmt.Errorf("the request in the trap %v: %w", t.action, err)
		}
		t.answer = a
		close(t.answered)
	})
}

func (t *Trap) wants(op int32, payload []byte) bool {
	return t.op == op && (t.match == nil || t.match(payload))
}
