package zkmeta

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/zkmeta/zktest"
)

// writing is the writer of one leadership, on a device.
type writing struct {
	*metalog.Writer
	device *Device
	cancel context.CancelFunc
	over   chan struct{} // closed when Run has returned
	ended  error         // what it returned; after over
}

// takeOver opens the next epoch of the tree, and fails the test if it cannot.
func takeOver(t testing.TB, c *Conn) *writing {
	t.Helper()
	w := newWriting(t, c)
	w.run(t)
	select {
	case <-w.Ready():
	case <-w.over:
		t.Fatalf("the epoch could not be opened: %v", w.ended)
	}
	return w
}

// newWriting has read the tree and written nothing.
func newWriting(t testing.TB, c *Conn) *writing {
	t.Helper()
	im, err := Rebuild(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	head, version, err := readHead(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	w := &writing{}
	w.device = NewDevice(DeviceConfig{
		Conn: c, Head: TailHead{head}, Version: version,
		Base: func() *meta.Image { return w.Image() },
	})
	w.Writer = metalog.NewWriter(metalog.WriterConfig{
		Device: w.device, Image: im, Cluster: testCluster, BatchSize: BatchSize, BatchBytesMax: BatchBytesMax,
		Leader: meta.Leader{Epoch: im.Epoch() + 1, Term: uuid.New(), Controller: "c", URL: "http://c"},
		Clock:  func() int64 { return time.Now().UnixMilli() },
	})
	return w
}

// run runs the writer until stop, or the end of the test.
func (w *writing) run(t testing.TB) {
	var ctx context.Context
	ctx, w.cancel = context.WithCancel(context.Background())
	w.over = make(chan struct{})
	go func() {
		defer close(w.over)
		w.ended = w.Run(ctx)
	}()
	t.Cleanup(func() {
		w.cancel()
		<-w.over
	})
}

// stop ends the writer in good order.
func (w *writing) stop(t testing.TB) {
	t.Helper()
	w.cancel()
	<-w.over
}

func jobID(name string) uuid.UUID { return jobOf(name, "", 0).ID }

// makeJob is a caller's message: it may come again, and changes nothing then.
func (w *writing) makeJob(ctx context.Context, name string) error {
	_, err := w.Submit(ctx, meta.CreateJob(jobID(name), name, nil))
	return err
}

// wantJobs checks that each is in the history exactly once.
func wantJobs(t *testing.T, c *Conn, names ...string) {
	t.Helper()
	im, batches := wantOneHistory(t, c)
	times := map[uuid.UUID]int{}
	for _, b := range batches {
		for _, r := range b.Upserts {
			if j, ok := r.(*meta.Job); ok {
				times[j.ID]++
			}
		}
	}
	for _, name := range names {
		if im.Job(jobID(name)) == nil || times[jobID(name)] != 1 {
			t.Errorf("job %s is %v, and %d times in the log", name, im.Job(jobID(name)), times[jobID(name)])
		}
	}
	if len(times) != len(names) {
		t.Errorf("%d jobs, want %d", len(times), len(names))
	}
}

// outcome is a tree with a leader whose requests meet traps.
type outcome struct {
	p       *zktest.WireProxy
	timeout time.Duration
	old     *writing
	c       *Conn // not through the proxy: that of the successor, and of who looks
}

// heldTimeout is for what a test holds until it is given up: after a third of it.
const heldTimeout = treeTimeout / 2

// newOutcome makes one whose leader has sessions of that timeout.
func newOutcome(t *testing.T, timeout time.Duration) outcome {
	t.Helper()
	s := startServer(t)
	o := outcome{p: zktest.NewWireProxy(t, s.Addr()), timeout: timeout, c: foundTree(t, "/shoal", s.Addr())}
	o.old = takeOver(t, o.dial(t))
	if err := o.old.makeJob(t.Context(), "before"); err != nil {
		t.Fatal(err)
	}
	return o
}

// dial connects through the proxy.
func (o outcome) dial(t *testing.T) *Conn {
	t.Helper()
	return dialTo(t, func(cfg *ConnConfig) { cfg.SessionTimeout = o.timeout }, o.p.Addr())
}

// lose has the leader append under a trap, and checks that it knows that it does not
// know.
func (o outcome) lose(t *testing.T, name string) {
	t.Helper()
	if err := o.old.makeJob(t.Context(), name); !errors.Is(err, metalog.ErrUnknown) {
		t.Fatalf("the caller was told %v", err)
	}
	<-o.old.over
	if !errors.Is(o.old.ended, ErrNoAnswer) || OutcomeOf(o.old.ended) != Unknown {
		t.Fatalf("the writer ended with %v", o.old.ended)
	}
	if err := o.old.makeJob(t.Context(), "after"); !errors.Is(err, metalog.ErrPoisoned) {
		t.Fatalf("a poisoned writer says %v", err)
	}
}

// askAgain checks that whoever repeats a message is told the truth by the successor.
func askAgain(t *testing.T, next *writing, name string, wasThere bool) {
	t.Helper()
	if there := next.Image().Job(jobID(name)) != nil; there != wasThere {
		t.Errorf("for the successor job %s is there: %t, want %t", name, there, wasThere)
	}
	for range 2 {
		if err := next.makeJob(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnswerOfAMultiThatWasAppliedIsDropped(t *testing.T) {
	o := newOutcome(t, treeTimeout)
	trap := o.p.On(zktest.OpMulti, nil, zktest.DropReply)
	o.lose(t, "lost")
	if a := trap.Answer(); a.Err != 0 {
		t.Fatalf("the server answered %+v", a)
	}
	askAgain(t, takeOver(t, o.c), "lost", true)
	wantJobs(t, o.c, "before", "lost")
}

func TestAnswerOfAMultiThatWasNotAppliedIsDropped(t *testing.T) {
	o := newOutcome(t, treeTimeout)
	o.p.On(zktest.OpMulti, nil, zktest.DropRequest)
	o.lose(t, "lost")
	askAgain(t, takeOver(t, o.c), "lost", false)
	wantJobs(t, o.c, "before", "lost")
}

// TestMultiIsDelayedPastTheSuccessor: one that comes once somebody else has opened an
// epoch has no effect, on its own connection or, as a client's queue would send it, in
// a session of its own.
func TestMultiIsDelayedPastTheSuccessor(t *testing.T) {
	for name, cut := range map[string]bool{"on its own connection": false, "in another session": true} {
		t.Run(name, func(t *testing.T) {
			o := newOutcome(t, heldTimeout)
			trap := o.p.On(zktest.OpMulti, nil, zktest.HoldRequest)
			o.lose(t, "late")
			next := takeOver(t, o.c)
			askAgain(t, next, "by the successor", false)
			if cut {
				o.p.Drop()
			}
			trap.Release()
			a := trap.Answer()
			if a.Err != codeBadVersion || cut && !a.NewSession {
				t.Errorf("the server answered %+v", a)
			}
			wantJobs(t, o.c, "before", "by the successor")
			askAgain(t, next, "late", false)
			wantJobs(t, o.c, "before", "by the successor", "late")
		})
	}
}

const codeBadVersion = -103

// TestLeaderBatchIsDelayedPastTheSuccessor: a take-over whose write comes late is none.
func TestLeaderBatchIsDelayedPastTheSuccessor(t *testing.T) {
	o := newOutcome(t, heldTimeout)
	o.old.stop(t)
	slow := newWriting(t, o.dial(t))
	trap := o.p.On(zktest.OpMulti, nil, zktest.HoldRequest)
	slow.run(t)
	<-slow.over
	if !errors.Is(slow.ended, ErrNoAnswer) {
		t.Fatalf("the take-over ended with %v", slow.ended)
	}
	next := takeOver(t, o.c)
	trap.Release()
	if a := trap.Answer(); a.Err != codeBadVersion {
		t.Errorf("the server answered %+v", a)
	}
	askAgain(t, next, "after", false)
	im, _ := wantOneHistory(t, o.c)
	if im.Epoch() != 2 || im.LastTerm() != next.Image().LastTerm() {
		t.Errorf("epoch %d, term %s", im.Epoch(), im.LastTerm())
	}
}

// TestLeaderBatchThatWasAppliedIsDropped: the controller that does not know that it has
// opened the epoch takes over again, from itself.
func TestLeaderBatchThatWasAppliedIsDropped(t *testing.T) {
	o := newOutcome(t, treeTimeout)
	o.old.stop(t)
	c := o.dial(t)
	first := newWriting(t, c)
	o.p.On(zktest.OpMulti, nil, zktest.DropReply)
	first.run(t)
	<-first.over
	if OutcomeOf(first.ended) != Unknown {
		t.Fatalf("it ended with %v", first.ended)
	}
	again := takeOver(t, c)
	askAgain(t, again, "after", false)
	if im, _ := wantOneHistory(t, o.c); im.Epoch() != 3 {
		t.Errorf("epoch %d", im.Epoch())
	}
}

// TestQueueIsReplayedIntoANewSession: whatever earlier leaders and candidates had in
// their clients' queues is sent again, in another session, once somebody else leads.
func TestQueueIsReplayedIntoANewSession(t *testing.T) {
	s := startServer(t)
	c := foundTree(t, "/shoal", s.Addr())
	var queue [][]Op
	remember := func(l *leader, b *meta.Batch) {
		e, err := metalog.NewEntry(b)
		if err != nil {
			t.Fatal(err)
		}
		_, ops, err := l.plan(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		queue = append(queue, ops)
	}
	for range 3 {
		candidate := newLeader(t, c, nil)
		l := opened(t, c, nil)
		b := candidate.batch()
		b.Epoch, b.Term = b.Epoch+1, uuid.New()
		b.Upserts = append(b.Upserts, &meta.Leader{Epoch: b.Epoch, Term: b.Term, Controller: "late", URL: "http://late"})
		remember(candidate, b)
		l.put(t, jobOf("a", "set", 10))
		remember(l, l.batch(jobOf("a", "queued", 10)))
		remember(l, l.batch(jobOf("b", "queued", 10)))
	}
	opened(t, c, nil)
	other := dialRoot(t, "/shoal", s.Addr())
	wantUnchanged(t, c, func() {
		for i, ops := range queue {
			var refused *MultiError
			if err := other.Multi(t.Context(), ops...); !errors.As(err, &refused) || refused.Index != 0 || refused.Err != ErrBadVersion {
				t.Errorf("request %d: %v", i, err)
			}
		}
	})
	wantOneHistory(t, c)
}

// TestNothingAcknowledgedIsLost: leader after leader meets a fault while many callers
// write, and each caller goes to the next leader until it is told that its message
// took effect.
func TestNothingAcknowledgedIsLost(t *testing.T) {
	s := startServer(t)
	c := foundTree(t, "/shoal", s.Addr())
	faults := []zktest.Action{zktest.DropReply, zktest.DropRequest, zktest.DropReply, zktest.HoldRequest, zktest.DropRequest, zktest.DropReply}
	rand.New(rand.NewSource(1)).Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })

	const callers, messages = 12, 8
	leaders := make(chan *writing) // each caller takes the leader of the moment
	var (
		names []string
		wg    sync.WaitGroup
		acked = make(chan string, callers*messages)
	)
	for i := range callers {
		for m := range messages {
			names = append(names, fmt.Sprintf("job %d of caller %d", m, i))
		}
		mine := names[len(names)-messages:]
		wg.Go(func() {
			w := <-leaders
			for _, name := range mine {
				for w.makeJob(t.Context(), name) != nil {
					w = <-leaders
				}
				acked <- name
			}
		})
	}
	all := make(chan struct{})
	go func() { wg.Wait(); close(all) }()
	var held []*zktest.Trap
	for i := 0; ; i++ {
		p := zktest.NewWireProxy(t, s.Addr())
		w := takeOver(t, outcome{p: p, timeout: heldTimeout}.dial(t))
		if i < len(faults) {
			trap := p.On(zktest.OpMulti, nil, faults[i])
			if faults[i] == zktest.HoldRequest {
				held = append(held, trap)
			}
		}
	serve:
		for {
			select {
			case leaders <- w:
			case <-w.Done():
				break serve
			case <-all:
				for _, trap := range held {
					trap.Release()
					if a := trap.Answer(); a.Err != codeBadVersion {
						t.Errorf("a held request was answered %+v", a)
					}
				}
				if i < len(faults) {
					t.Errorf("only %d of %d leaders met their fault", i, len(faults))
				}
				if len(acked) != len(names) {
					t.Errorf("%d of %d messages were acknowledged", len(acked), len(names))
				}
				wantJobs(t, c, names...)
				return
			}
		}
	}
}
