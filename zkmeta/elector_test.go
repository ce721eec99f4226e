package zkmeta

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/zkmeta/zktest"
)

// roleEvent is a call of a fakeRole.
type roleEvent struct {
	what  string // catchUp, start, stepDown, follow
	epoch int64
	why   string
}

// fakeRole takes over as a controller does, with an image and a device, and holds an
// Elector to its contract.
type fakeRole struct {
	t      *testing.T
	c      *Conn
	events chan roleEvent
	busy   atomic.Bool
	leads  atomic.Int64 // the epoch that it was told to lead; 0 without

	// Of the calls that come one at a time:
	leader *leader
	opened int64
}

// enter checks that the calls with a context come one at a time.
func (r *fakeRole) enter(ctx context.Context) (leave func()) {
	if r.busy.Swap(true) {
		r.t.Error("two calls of the role at the same time")
	}
	if ctx.Err() != nil {
		r.t.Error("a call of the role that nobody waits for")
	}
	return func() { r.busy.Store(false) }
}

func (r *fakeRole) CatchUp(ctx context.Context, to TailHead, version int32) (Head, error) {
	defer r.enter(ctx)()
	r.events <- roleEvent{what: "catchUp"}
	im, err := Rebuild(ctx, r.c)
	if err != nil {
		return Head{}, err
	}
	l := &leader{image: im}
	l.Device = NewDevice(DeviceConfig{Conn: r.c, Head: to, Version: version, Base: func() *meta.Image { return l.image }})
	r.leader = l
	return Head{Offset: max(im.Next()-1, 0), Epoch: im.Epoch(), Term: im.LastTerm()}, nil
}

func (r *fakeRole) WriteLeader(ctx context.Context, epoch int64) error {
	defer r.enter(ctx)()
	b := r.leader.batch()
	b.Epoch, b.Term = epoch, uuid.New()
	if b.Offset == 0 {
		b.Upserts = append(b.Upserts, &meta.Cluster{ID: testCluster, FormatVersion: meta.FormatVersion})
	}
	b.Upserts = append(b.Upserts, &meta.Leader{Epoch: epoch, Term: b.Term, Controller: "c", URL: "http://c"})
	err := r.leader.Append(ctx, b)
	if err == nil {
		r.opened = epoch
	}
	return err
}

func (r *fakeRole) StartLeading(epoch int64) {
	if old := r.leads.Swap(epoch); old != 0 {
		r.t.Errorf("epoch %d begins during epoch %d", epoch, old)
	}
	r.events <- roleEvent{what: "start", epoch: epoch}
}

func (r *fakeRole) StepDown(epoch int64, why string) {
	if old := r.leads.Swap(0); old != epoch {
		r.t.Errorf("epoch %d ends, epoch %d was begun", epoch, old)
	}
	r.events <- roleEvent{"stepDown", epoch, why}
}

func (r *fakeRole) Follow(ctx context.Context) {
	defer r.enter(ctx)()
	if epoch := r.leads.Load(); epoch != 0 {
		r.t.Errorf("it follows and leads epoch %d", epoch)
	}
	r.events <- roleEvent{what: "follow"}
}

// elector is one that runs, with its role.
type elector struct {
	*Elector
	role *fakeRole
	c    *Conn
	stop func() // and wait
}

func startElector(t *testing.T, c *Conn, name string) elector {
	t.Helper()
	role := &fakeRole{t: t, c: c, events: make(chan roleEvent, 1000)}
	e := elector{role: role, c: c, Elector: NewElector(ElectorConfig{
		Conn: c, Controller: name, Role: role, Logger: zerolog.New(zerolog.NewTestWriter(t)),
	})}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	e.stop = func() {
		cancel()
		running.Wait()
	}
	running.Go(func() { e.Run(ctx) })
	running.Go(func() { e.guard(ctx) })
	t.Cleanup(e.stop)
	return e
}

// guard checks all the time that it does not lead when ZooKeeper has been silent for
// too long.
func (e elector) guard(ctx context.Context) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		epoch := e.role.leads.Load()
		now := e.c.Now()
		leads := e.Leading(epoch)
		if heard := e.c.LastHeard(); epoch != 0 && leads && now >= heard+e.c.SessionTimeout()*2/3 {
			e.role.t.Errorf("it leads at %s, and heard ZooKeeper last at %s", now, heard)
			return
		}
		<-tick.C
	}
}

// next waits for a call of the role.
func (e elector) next(t *testing.T, what string) roleEvent {
	t.Helper()
	for {
		select {
		case ev := <-e.role.events:
			if ev.what == what {
				return ev
			}
		case <-t.Context().Done():
			t.Fatalf("%s never came", what)
		}
	}
}

// leadsNow waits until it leads, and returns the epoch. It may lose a leadership on a
// machine that is too busy for it.
func (e elector) leadsNow(t *testing.T) int64 {
	t.Helper()
	for {
		if ev := e.next(t, "start"); e.Leading(ev.epoch) {
			return ev.epoch
		}
	}
}

// dialElector connects with a session that a test can wait for the end of.
func dialElector(t *testing.T, servers ...string) *Conn {
	t.Helper()
	return dialTo(t, func(cfg *ConnConfig) { cfg.SessionTimeout = treeTimeout / 10 }, servers...)
}

// fence opens one more epoch. What an elector that was stopped still has on its way is
// refused from then on, and the tree can be looked at.
func fence(t *testing.T, c *Conn) {
	t.Helper()
	for {
		l := newLeader(t, c, nil)
		if l.image.Next() != l.End() {
			continue // something came between the two
		}
		err := l.open(t)
		if err == nil {
			return
		}
		if !errors.Is(err, ErrFenced) {
			t.Fatal(err)
		}
	}
}

// removeCandidates removes all there are, of which there is one at least, and the
// directory with them if dir says so: at once, as candidates come back.
func removeCandidates(t *testing.T, c *Conn, dir bool) {
	t.Helper()
	for {
		var ops []Op
		for _, name := range candidates(t, c) {
			ops = append(ops, Op{Kind: OpDelete, Path: c.Path(electionDir, name), Version: -1})
		}
		if len(ops) == 0 {
			continue
		}
		if dir {
			ops = append(ops, Op{Kind: OpDelete, Path: c.Path(electionDir), Version: -1})
		}
		err := c.Multi(t.Context(), ops...)
		if err == nil {
			return
		}
		if !errors.As(err, new(*MultiError)) {
			t.Fatal(err)
		}
	}
}

func candidates(t *testing.T, c *Conn) []string {
	t.Helper()
	names, err := c.Children(t.Context(), c.Path(electionDir))
	if err != nil && ignore(err, ErrNoNode) != nil {
		t.Fatal(err)
	}
	return names
}

// TestElectorResignsAtOnce: the next one leads although the session of the first goes
// on.
func TestElectorResignsAtOnce(t *testing.T) {
	s := startServer(t)
	c := foundTree(t, "/shoal", s.Addr())
	a := startElector(t, c, "a")
	epoch := a.leadsNow(t)
	if a.Leading(epoch-1) || a.Leading(epoch+1) || a.Leading(0) {
		t.Error("it leads another epoch as well")
	}
	b := startElector(t, dialRoot(t, "/shoal", s.Addr()), "b")
	for len(candidates(t, c)) < 2 {
		time.Sleep(time.Millisecond) // only so as not to ask for nothing else
	}
	session := c.Session().ID
	a.Resign(t.Context(), epoch-1, "an epoch that is over")
	a.stop()
	if ev := a.next(t, "stepDown"); ev.epoch != epoch || a.Leading(epoch) {
		t.Errorf("stopped: %+v, leading %t", ev, a.Leading(epoch))
	}
	if next := b.leadsNow(t); next <= epoch {
		t.Errorf("epoch %d after %d", next, epoch)
	}
	if got := c.Session().ID; got != session {
		t.Errorf("the session was %x, and is %x", session, got)
	}
	im, _ := wantOneHistory(t, c)
	if im.Epoch() != b.role.leads.Load() {
		t.Errorf("epoch %d", im.Epoch())
	}
}

// TestElectorIsFencedByItsClock: a leader whose process did not run, or whose
// connection is dead without a word, leads no more, whatever has been told to whom.
func TestElectorIsFencedByItsClock(t *testing.T) {
	s := startServer(t)
	p := zktest.NewProxy(t, s.Addr())
	foundTree(t, "/shoal", s.Addr())
	var slept atomic.Int64
	c := dialTo(t, func(cfg *ConnConfig) {
		cfg.SessionTimeout = treeTimeout
		cfg.Clock = func() time.Duration { return BootTime() + time.Duration(slept.Load()) }
	}, p.Addr())
	a := startElector(t, c, "a")
	epoch := a.leadsNow(t)
	p.Stall(zktest.Both)
	if !a.Leading(epoch) {
		t.Error("it leads no more before its deadline")
	}
	slept.Add(int64(treeTimeout * 2 / 3))
	if a.Leading(epoch) { // no event has come to anybody
		t.Error("it leads past its deadline")
	}
	if ev := a.next(t, "stepDown"); ev.epoch != epoch {
		t.Errorf("stepped down from %d", ev.epoch)
	}
	a.next(t, "follow")
	p.Unstall()
	if again := a.leadsNow(t); again <= epoch || a.Leading(epoch) {
		t.Errorf("epoch %d after %d", again, epoch)
	}
}

// TestElectorOutlivesItsSession, which ends while it is cut off.
func TestElectorOutlivesItsSession(t *testing.T) {
	s := startServer(t)
	p := zktest.NewProxy(t, s.Addr())
	direct := foundTree(t, "/shoal", s.Addr())
	c := dialElector(t, p.Addr())
	a := startElector(t, c, "a")
	epoch := a.leadsNow(t)
	session := c.Session().ID
	p.Cut()
	if ev := a.next(t, "stepDown"); ev.epoch != epoch {
		t.Errorf("stepped down from %d", ev.epoch)
	}
	for len(candidates(t, direct)) > 0 {
		time.Sleep(10 * time.Millisecond) // until ZooKeeper has ended the session
	}
	p.Heal()
	if again := a.leadsNow(t); again <= epoch || c.Session().ID == session {
		t.Errorf("epoch %d after %d, in session %x after %x", again, epoch, c.Session().ID, session)
	}
}

// TestElectorWhoseCandidateIsRemoved steps down and joins again.
func TestElectorWhoseCandidateIsRemoved(t *testing.T) {
	s := startServer(t)
	direct := foundTree(t, "/shoal", s.Addr())
	a := startElector(t, dialElector(t, s.Addr()), "a")
	epoch := a.leadsNow(t)
	for _, remove := range []struct {
		what string
		dir  bool
	}{{"its candidate", false}, {"the directory", true}} {
		removeCandidates(t, direct, remove.dir)
		if ev := a.next(t, "stepDown"); ev.epoch != epoch {
			t.Errorf("%s removed: stepped down from %d, %s", remove.what, ev.epoch, ev.why)
		}
		again := a.leadsNow(t)
		if again <= epoch {
			t.Errorf("%s removed: epoch %d after %d", remove.what, again, epoch)
		}
		for len(candidates(t, direct)) != 1 { // it may have lost that leadership by itself
			time.Sleep(time.Millisecond)
		}
		epoch = again
	}
	a.stop()
	fence(t, direct)
	wantOneHistory(t, direct)
}

// TestOneElectorLeads: however leadership is lost, never two lead at one moment.
func TestOneElectorLeads(t *testing.T) {
	s := startServer(t)
	direct := foundTree(t, "/shoal", s.Addr())
	var (
		all     []elector
		proxies []*zktest.Proxy
	)
	for i := range 2 {
		p := zktest.NewProxy(t, s.Addr())
		proxies = append(proxies, p)
		all = append(all, startElector(t, dialElector(t, p.Addr()), fmt.Sprintf("controller%d", i)))
	}
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { wantOne(ctx, t, all[0], all[1]) })
	defer watching.Wait()
	defer cancel()

	// Who leads is found out each time: on a machine that is too busy for it a leader
	// may lose its leadership to the other one by itself.
	leads := func(after int64) (i int, epoch int64) {
		for t.Context().Err() == nil {
			for i, e := range all {
				if epoch := e.role.leads.Load(); epoch > after && e.Leading(epoch) {
					return i, epoch
				}
			}
			time.Sleep(time.Millisecond)
		}
		t.Fatalf("nobody leads after epoch %d", after)
		return 0, 0
	}
	last := int64(0)
	for _, lose := range []func(e elector, p *zktest.Proxy, epoch int64){
		func(e elector, _ *zktest.Proxy, epoch int64) { e.Resign(t.Context(), epoch, "the test says so") },
		func(_ elector, p *zktest.Proxy, _ int64) { p.Stall(zktest.Both) },
		func(e elector, _ *zktest.Proxy, epoch int64) { e.Resign(t.Context(), epoch, "the test says so") },
		func(_ elector, p *zktest.Proxy, _ int64) { p.Cut() },
	} {
		i, epoch := leads(last)
		lose(all[i], proxies[i], epoch)
		_, last = leads(epoch)
		if all[i].Leading(epoch) {
			t.Errorf("epoch %d is led after epoch %d has begun", epoch, last)
		}
		last-- // it may still be led in the next round
		proxies[i].Unstall()
		proxies[i].Heal()
	}
	cancel()
	for _, e := range all {
		e.stop() // the other one may take over meanwhile
	}
	fence(t, direct)
	wantOneHistory(t, direct)
}

// wantOne checks that two electors do not lead at the same time: the first one before
// and after the second one.
func wantOne(ctx context.Context, t *testing.T, a, b elector) {
	for ctx.Err() == nil {
		x, y := a.role.leads.Load(), b.role.leads.Load()
		if x != 0 && y != 0 && a.Leading(x) && b.Leading(y) && a.Leading(x) {
			t.Errorf("%d and %d are led at the same time", x, y)
			return
		}
		time.Sleep(time.Millisecond) // a sample, not a wait
	}
}
