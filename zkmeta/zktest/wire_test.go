package zktest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
)

// wired is a server with a client that goes through a WireProxy, and one that
// does not.
type wired struct {
	s               *Server
	p               *WireProxy
	through, direct *zk.Conn
}

func wire(t *testing.T) wired {
	t.Helper()
	t.Parallel()
	s := Start(t)
	p := NewWireProxy(t, s.Addr())
	w := wired{s, p, connect(t, sessionMax, p.Addr()), connect(t, sessionMax, s.Addr())}
	create(t, w.direct, "/head", "0")
	return w
}

// multi sets the head at version 0 and makes a znode, as a fenced write does.
func (w wired) multi(path string) error {
	_, err := w.through.Multi(
		&zk.SetDataRequest{Path: "/head", Data: []byte(path), Version: 0},
		&zk.CreateRequest{Path: path, Acl: zk.WorldACL(zk.PermAll)},
	)
	return err
}

// start runs the multi beside the test.
func (w wired) start(path string) <-chan error {
	done := make(chan error, 1)
	go func() { done <- w.multi(path) }()
	return done
}

func (w wired) wantThere(t *testing.T, path string, want bool) {
	t.Helper()
	if there, _, err := w.direct.Exists(path); err != nil || there != want {
		t.Fatalf("%s is there: %t, %v; want %t", path, there, err, want)
	}
}

// TestDropReply: the multi is applied and the client does not know.
func TestDropReply(t *testing.T) {
	w := wire(t)
	other := w.p.On(OpMulti, Mentions("/nobody"), DropRequest)
	trap := w.p.On(OpMulti, Mentions("/a"), DropReply)
	if err := w.multi("/a"); !errors.Is(err, zk.ErrConnectionClosed) {
		t.Fatalf("the client heard %v", err)
	}
	trap.WaitHit()
	if a := trap.Answer(); a.Err != 0 || a.Zxid == 0 {
		t.Fatalf("the server answered %+v", a)
	}
	w.wantThere(t, "/a", true)
	select {
	case <-other.Hit():
		t.Fatal("a trap for another path was hit")
	default:
	}
	other.Disarm()
	create(t, w.through, "/nobody", "") // the client comes back, and the trap is gone
}

// TestDropRequest: the multi is not applied and the client does not know.
func TestDropRequest(t *testing.T) {
	w := wire(t)
	trap := w.p.On(OpMulti, nil, DropRequest)
	if err := w.multi("/a"); !errors.Is(err, zk.ErrConnectionClosed) {
		t.Fatalf("the client heard %v", err)
	}
	trap.WaitHit()
	w.wantThere(t, "/a", false)
	if err := w.multi("/a"); err != nil { // one trap, one request
		t.Fatal(err)
	}
	w.wantThere(t, "/a", true)
}

// TestHoldReply: the multi is applied, and the client hears so at the release.
func TestHoldReply(t *testing.T) {
	w := wire(t)
	trap := w.p.On(OpMulti, nil, HoldReply)
	done := w.start("/a")
	trap.Answer()
	w.wantThere(t, "/a", true)
	select {
	case err := <-done:
		t.Fatalf("the answer was not held: %v", err)
	default:
	}
	trap.Release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// TestHoldRequest: the multi is applied at the release, and the client that
// waited hears so.
func TestHoldRequest(t *testing.T) {
	w := wire(t)
	trap := w.p.On(OpMulti, nil, HoldRequest)
	done := w.start("/a")
	trap.WaitHit()
	w.wantThere(t, "/a", false)
	trap.Release()
	trap.Release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if a := trap.Answer(); a.Err != 0 || a.NewSession {
		t.Fatalf("the server answered %+v", a)
	}
	w.wantThere(t, "/a", true)
}

// TestHeldRequestOutlivesItsClient: the client closes its connection; its request
// arrives on it afterwards.
func TestHeldRequestOutlivesItsClient(t *testing.T) {
	w := wire(t)
	trap := w.p.On(OpMulti, nil, HoldRequest)
	raw := newRawClient(t, w.p.Addr())
	raw.send(t, createMulti("/a"))
	trap.WaitHit()
	raw.Close()
	w.wantThere(t, "/a", false)
	trap.Release()
	if a := trap.Answer(); a.Err != 0 || a.NewSession {
		t.Fatalf("the server answered %+v", a)
	}
	w.wantThere(t, "/a", true)
}

// TestHeldRequestOutlivesItsSession: the write of a deposed leader arrives after
// its session has expired, and after another has written the head: it is
// refused, for the head's version and not for the session.
func TestHeldRequestOutlivesItsSession(t *testing.T) {
	for _, written := range []bool{false, true} {
		t.Run(fmt.Sprintf("head written by another %t", written), func(t *testing.T) { testLate(t, written) })
	}
}

func testLate(t *testing.T, written bool) {
	w := wire(t)
	w.through = connect(t, sessionMin, w.p.Addr())
	createEphemeral(t, w.through, "/leader")
	there, _, gone, err := w.direct.ExistsW("/leader")
	if err != nil || !there {
		t.Fatalf("the ephemeral znode: %t, %v", there, err)
	}
	trap := w.p.On(OpMulti, nil, HoldRequest)
	done := w.start("/a")
	trap.WaitHit()
	w.p.Cut()
	<-gone
	if err := <-done; !errors.Is(err, zk.ErrConnectionClosed) {
		t.Fatalf("the deposed leader heard %v", err)
	}
	var want int32
	if written {
		if _, err := w.direct.Set("/head", []byte("another's"), 0); err != nil {
			t.Fatal(err)
		}
		want = -103 // bad version
	}
	trap.Release()
	if a := trap.Answer(); a.Err != want || !a.NewSession {
		t.Fatalf("the server answered %+v; want error %d", a, want)
	}
	w.wantThere(t, "/a", !written)
}

// TestCutAfter: the client hears the answer and loses the connection.
func TestCutAfter(t *testing.T) {
	w := wire(t)
	w.p.On(OpMulti, nil, CutAfter)
	if err := w.multi("/a"); err != nil {
		t.Fatal(err)
	}
	create(t, w.through, "/b", "") // goes on once it has connected anew
	if got := w.p.Requests()[OpConnect]; got < 2 {
		t.Fatalf("the client connected %d times: nothing was cut", got)
	}
}

// TestSizes: what passed is counted by opcode, and the largest is known.
func TestSizes(t *testing.T) {
	w := wire(t)
	const big = 100_000
	create(t, w.through, "/big", strings.Repeat("x", big))
	wantData(t, w.through, "/big", strings.Repeat("x", big))
	if got := w.p.MaxRequest(); got.Op != OpCreate || got.Bytes < big || got.Bytes > big+200 {
		t.Errorf("largest request %+v", got)
	}
	if got := w.p.MaxReply(); got.Op != OpGetData || got.Bytes < big || got.Bytes > big+200 {
		t.Errorf("largest reply %+v", got)
	}
	requests, replies := w.p.Requests(), w.p.Replies()
	for _, op := range []int32{OpConnect, OpCreate, OpGetData} {
		if requests[op] != 1 || replies[op] != 1 {
			t.Errorf("opcode %d: %d requests, %d replies; want 1 and 1", op, requests[op], replies[op])
		}
	}
}

// TestDropEvents: the watch fires and the client never hears.
func TestDropEvents(t *testing.T) {
	w := wire(t)
	w.p.DropEvents(true)
	_, _, lost, err := w.through.GetW("/head")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.direct.Set("/head", []byte("1"), -1); err != nil {
		t.Fatal(err)
	}
	wantData(t, w.through, "/head", "1") // the event came before this answer
	if got := w.p.Replies()[OpWatchEvent]; got != 1 {
		t.Fatalf("%d events came from the server", got)
	}
	select {
	case e := <-lost:
		t.Fatalf("the client heard %v", e)
	default:
	}
}

// TestMultiErr: the error of a multi is that of the operation that failed.
func TestMultiErr(t *testing.T) {
	w := wire(t)
	create(t, w.direct, "/taken", "")
	trap := w.p.On(OpMulti, nil, DropReply)
	if err := w.multi("/taken"); !errors.Is(err, zk.ErrConnectionClosed) {
		t.Fatalf("the client heard %v", err)
	}
	if a := trap.Answer(); a.Err != -110 { // node exists
		t.Fatalf("the server answered %+v", a)
	}
}
