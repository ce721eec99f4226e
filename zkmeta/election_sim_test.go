package zkmeta

import (
	"container/heap"
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"
)

// Three elections in one goroutine, against a model of ZooKeeper: sessions that
// expire, ephemeral candidates, watches that get lost, a head with a version.
// Links break, answers get lost, processes pause and die, writers are poisoned,
// images cannot be brought to the head. The model's client does what the real
// one does worst: what it could not send in one session it sends in the next.
//
// Phase 1, under faults: no two lead at one time; each epoch is written under one
// term, and led only by who wrote it; who was found not leading an epoch never
// leads it again. Phase 2, healed: one leads, soon, and goes on.

func TestOneLeads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := func(name string, most int) float64 { // drawn in thousandths
			return float64(rapid.IntRange(0, most).Draw(t, name)) / 1000
		}
		z := newZKModel(t, zkFaults{
			cut: rate("cut", 100), pause: rate("pause", 60), crash: rate("crash", 20), lose: rate("lost answers", 300),
			unwatch: rate("lost watches", 500), image: rate("image failures", 300), remove: rate("removed candidates", 15),
		}, rapid.Int64().Draw(t, "seed"))
		z.runUntil(20*simTimeout, func() bool { return false })
		z.heal()
		if !z.runUntil(z.now+10*simTimeout, func() bool { return z.leader() != nil }) {
			t.Fatalf("healed, and nobody leads in 10 session timeouts:\n%s", z.describe())
		}
		// What was queued before may still poison a writer.
		z.runUntil(z.now+5*simTimeout, func() bool { return false })
		c := z.leader()
		if c == nil {
			t.Fatalf("nobody leads any more:\n%s", z.describe())
		}
		epoch := c.e.Epoch()
		z.runUntil(z.now+5*simTimeout, func() bool { return false })
		if z.leader() != c || c.e.Epoch() != epoch {
			t.Fatalf("%s did not go on leading %d:\n%s", c.id, epoch, z.describe())
		}
	})
}

const simTimeout = 10 * time.Second

type zkFaults struct{ cut, pause, crash, lose, unwatch, image, remove float64 }

type zkModel struct {
	t      *rapid.T
	rnd    *rand.Rand
	faults zkFaults
	now    time.Duration
	queue  zkQueue
	serial int64
	log    []string

	heardOf  map[int64]time.Duration // live sessions
	children []zkChild
	head     Head
	version  int32
	terms    map[int64]uuid.UUID // which term wrote an epoch
	removed  bool                // somebody removed a candidate: then two may lead, in two epochs
	nodes    []*zkNode
}

type zkChild struct {
	name     string
	session  int64
	watchers []func()
}

type zkEvent struct {
	at     time.Duration
	serial int64
	do     func()
}

type zkQueue []zkEvent

func (q zkQueue) Len() int { return len(q) }
func (q zkQueue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].serial < q[j].serial
}
func (q zkQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *zkQueue) Push(x any)   { *q = append(*q, x.(zkEvent)) }
func (q *zkQueue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

func newZKModel(t *rapid.T, f zkFaults, seed int64) *zkModel {
	z := &zkModel{
		t: t, rnd: rand.New(rand.NewSource(seed)), faults: f,
		heardOf: map[int64]time.Duration{}, terms: map[int64]uuid.UUID{},
	}
	for i := range 3 {
		n := &zkNode{z: z, id: fmt.Sprintf("c%d", i+1), linked: true}
		z.nodes = append(z.nodes, n)
		n.start()
		z.every(simTimeout/20, n.tick)
	}
	z.every(simTimeout/50, z.expire)
	z.every(simTimeout/5, z.misfortune)
	return z
}

func (z *zkModel) chance(p float64) bool { return z.rnd.Float64() < p }

func (z *zkModel) some(d time.Duration) time.Duration {
	return time.Duration(z.rnd.Int63n(int64(d))) + 1
}

func (z *zkModel) uuid() (u uuid.UUID) {
	z.rnd.Read(u[:])
	return u
}

func (z *zkModel) number() int64 {
	z.serial++
	return z.serial
}

func (z *zkModel) after(d time.Duration, do func()) {
	heap.Push(&z.queue, zkEvent{z.now + d, z.number(), do})
}

func (z *zkModel) every(d time.Duration, do func()) {
	z.after(z.some(d)+d/2, func() {
		do()
		z.every(d, do)
	})
}

func (z *zkModel) runUntil(end time.Duration, done func() bool) bool {
	for z.now < end {
		ev := heap.Pop(&z.queue).(zkEvent)
		z.now = ev.at
		ev.do()
		z.check()
		if done() {
			return true
		}
	}
	return false
}

func (z *zkModel) note(format string, args ...any) {
	z.log = append(z.log, fmt.Sprintf("%8.3f ", z.now.Seconds())+fmt.Sprintf(format, args...))
}

func (z *zkModel) describe() string {
	return strings.Join(z.log[max(0, len(z.log)-80):], "\n")
}

func (z *zkModel) leader() *zkNode {
	for _, n := range z.nodes {
		if n.e.Leading(z.now) {
			return n
		}
	}
	return nil
}

// check is made after every event.
func (z *zkModel) check() {
	var leaders []*zkNode
	for _, n := range z.nodes {
		leads := n.e.Leading(z.now)
		if leads {
			leaders = append(leaders, n)
		}
		switch epoch := n.e.Epoch(); {
		case epoch == 0:
		case !leads:
			n.fenced = epoch
		case n.fenced >= epoch:
			z.t.Fatalf("%s leads %d again:\n%s", n.id, epoch, z.describe())
		case z.terms[epoch] != n.term:
			z.t.Fatalf("%s leads %d, which it did not write:\n%s", n.id, epoch, z.describe())
		}
	}
	if len(leaders) > 1 && (!z.removed || leaders[0].e.Epoch() == leaders[1].e.Epoch()) {
		z.t.Fatalf("two lead, %s in %d and %s in %d:\n%s",
			leaders[0].id, leaders[0].e.Epoch(), leaders[1].id, leaders[1].e.Epoch(), z.describe())
	}
}

func (z *zkModel) heal() {
	z.note("healed")
	z.faults = zkFaults{}
	for _, n := range z.nodes {
		n.resume()
		n.link(true)
	}
}

// misfortune befalls one of them.
func (z *zkModel) misfortune() {
	n := z.nodes[z.rnd.Intn(len(z.nodes))]
	switch {
	case z.chance(z.faults.cut):
		n.link(false)
		z.after(z.some(3*simTimeout), func() { n.link(true) })
	case z.chance(z.faults.pause):
		n.paused = true
		z.note("%s is paused", n.id)
		z.after(z.some(2*simTimeout), n.resume)
	case z.chance(z.faults.crash):
		n.start()
	case z.chance(z.faults.remove) && len(z.children) > 0:
		z.removed = true
		z.note("somebody removes the first candidate")
		z.delete(z.children[0].name)
	}
}

// The server.

func (z *zkModel) expire() {
	for _, s := range slices.Sorted(maps.Keys(z.heardOf)) {
		if z.now-z.heardOf[s] < simTimeout {
			continue
		}
		z.note("session %d expires", s)
		delete(z.heardOf, s)
		for _, c := range slices.Clone(z.children) {
			if c.session == s {
				z.delete(c.name)
			}
		}
	}
}

func (z *zkModel) delete(name string) {
	i := slices.IndexFunc(z.children, func(c zkChild) bool { return c.name == name })
	if i < 0 {
		return
	}
	gone := z.children[i]
	z.children = slices.Delete(z.children, i, i+1)
	for _, fire := range gone.watchers {
		fire()
	}
}

// write is the conditional multi of an append.
func (z *zkModel) write(version int32, h Head) Outcome {
	if version != z.version {
		return BadVersion
	}
	if h.Offset != z.head.Offset+1 {
		z.t.Fatalf("an image at %d is written to a log at %d:\n%s", h.Offset-1, z.head.Offset, z.describe())
	}
	if h.Epoch != z.head.Epoch {
		if term, ok := z.terms[h.Epoch]; ok || h.Epoch != z.head.Epoch+1 {
			z.t.Fatalf("epoch %d is opened after %d (%v):\n%s", h.Epoch, z.head.Epoch, term, z.describe())
		}
		z.terms[h.Epoch] = h.Term
	} else if h.Term != z.head.Term {
		z.t.Fatalf("epoch %d has two terms:\n%s", h.Epoch, z.describe())
	}
	z.head = h
	z.version++
	return Written
}

// zkNode is one process: election, client, and a writer that appends while it
// leads.
type zkNode struct {
	z       *zkModel
	id      string
	life    int64 // of this process; what belongs to an earlier one is dropped
	e       *Election
	linked  bool
	paused  bool
	inbox   []ElectionEvent // while paused
	unsent  []func()        // while paused or without a link
	session int64           // as the client knows it
	told    bool            // the election was told that the link is gone

	image    int64                // the offset it stands at
	catching uint64               // the CatchUp under way
	terms    map[uint64]uuid.UUID // of each WriteLeader
	term     uuid.UUID            // of the leadership
	at       int32                // the version the writer expects
	busy     bool                 // an append is in flight
	fenced   int64                // the last epoch that it was found not leading
}

// start is a crash and a new process.
func (n *zkNode) start() {
	n.life = n.z.number()
	n.e = NewElection(ElectionConfig{Controller: n.id, BootID: n.z.uuid(), SessionTimeout: simTimeout})
	n.paused, n.inbox, n.unsent, n.session, n.told = false, nil, nil, 0, false
	n.terms, n.busy, n.fenced = map[uint64]uuid.UUID{}, false, 0
	n.z.note("%s starts", n.id)
}

func (n *zkNode) post(ev ElectionEvent) {
	if n.paused {
		n.inbox = append(n.inbox, ev)
		return
	}
	actions := n.e.Step(n.z.now, ev)
	if _, tick := ev.(ElectionTick); !tick || len(actions) > 0 {
		n.z.note("%s %T%+v → %s %+v", n.id, ev, ev, n.e.State(), actions)
	}
	for _, a := range actions {
		n.act(a)
	}
}

// tick is the process's clock: the client's own pings and its reconnecting, the
// writer's appends, and the election's ticks.
func (n *zkNode) tick() {
	if n.paused {
		return
	}
	if n.linked {
		n.reconnect()
	}
	if n.e.Leading(n.z.now) && !n.busy && n.z.chance(0.3) {
		n.append()
	}
	n.post(ElectionTick{})
}

func (n *zkNode) reconnect() {
	z := n.z
	_, alive := z.heardOf[n.session]
	if alive {
		z.heardOf[n.session] = z.now
	}
	switch {
	case n.session != 0 && alive && n.told:
		n.told = false
		n.post(SessionBack{n.session})
	case n.session == 0 || !alive:
		old := n.session
		n.session, n.told = z.number(), false
		z.heardOf[n.session] = z.now
		if old != 0 && z.chance(0.8) { // words get lost
			n.post(SessionExpired{old})
		}
		n.post(SessionOpened{n.session})
	}
	unsent := n.unsent
	n.unsent = nil
	for _, send := range unsent {
		send()
	}
}

func (n *zkNode) link(up bool) {
	if n.linked == up {
		return
	}
	n.linked = up
	n.z.note("%s linked: %v", n.id, up)
	life := n.life
	n.z.after(n.z.some(simTimeout/2), func() {
		if life == n.life && !n.linked && n.session != 0 {
			n.told = true
			n.post(SessionLost{n.session})
		}
	})
	n.told = n.told || up // it reconnects by itself even if it had not noticed
}

func (n *zkNode) resume() {
	if !n.paused {
		return
	}
	n.paused = false
	n.z.note("%s goes on", n.id)
	inbox := n.inbox
	n.inbox = nil
	for _, ev := range inbox {
		n.post(ev)
	}
}

// request carries out op in whatever session there is when it gets through, and
// says once whether it was certainly answered in the session of its issue.
func (n *zkNode) request(op func(session int64), done func(answered bool)) {
	z, life, session, over := n.z, n.life, n.session, false
	finish := func(answered bool) {
		if life == n.life && !over {
			over = true
			done(answered && n.session == session)
		}
	}
	var send func()
	send = func() {
		if life != n.life {
			return
		}
		if n.paused || !n.linked || n.session == 0 {
			n.unsent = append(n.unsent, send)
			return
		}
		in := n.session
		z.after(z.some(simTimeout/100), func() { // it is on the wire: even a crash does not call it back
			if _, alive := z.heardOf[in]; !alive {
				return
			}
			z.heardOf[in] = z.now
			op(in)
			if z.chance(z.faults.lose) {
				return
			}
			delay := simTimeout / 100
			if z.chance(z.faults.lose) {
				delay = simTimeout
			}
			z.after(z.some(delay), func() {
				if n.linked {
					finish(in == session)
				}
			})
		})
	}
	z.after(z.some(simTimeout/100), send)
	z.after(simTimeout/3+z.some(simTimeout), func() { finish(false) })
}

func (n *zkNode) act(a ElectionAction) {
	z := n.z
	switch a := a.(type) {
	case CreateCandidate:
		var name string
		n.request(func(s int64) {
			name = fmt.Sprintf("%s%010d", a.Prefix, z.number())
			z.children = append(z.children, zkChild{name: name, session: s})
		}, func(ok bool) { n.post(CandidateCreated{a.Try, name, failed(ok)}) })
	case DeleteCandidate:
		n.request(func(int64) { z.delete(a.Name) }, func(ok bool) { n.post(CandidateDeleted{a.Try, failed(ok)}) })
	case ListCandidates:
		var names []string
		n.request(func(int64) {
			names = nil
			for _, c := range z.children {
				names = append(names, c.name)
			}
		}, func(ok bool) { n.post(Candidates{a.Try, names, failed(ok)}) })
	case WatchCandidate:
		n.watch(a)
	case ReadHead:
		var h HeadRead
		n.request(func(int64) { h = HeadRead{Try: a.Try, Head: z.head, Version: z.version} },
			func(ok bool) { h.Try, h.Err = a.Try, failed(ok); n.post(h) })
	case CatchUp:
		n.catchUp(a)
	case WriteLeader:
		n.writeLeader(a)
	case StartLeading:
		if !n.e.Leading(z.now) {
			z.t.Fatalf("%s is to lead %d, and must not:\n%s", n.id, a.Epoch, z.describe())
		}
		n.term, n.at, n.image = n.terms[a.Try], n.e.version+1, n.image+1
		n.busy = false
	case Ping:
		sentAt := z.now
		n.request(func(int64) {}, func(ok bool) {
			if ok {
				n.post(Ponged{a.Session, sentAt})
			}
		})
	}
}

func (n *zkNode) watch(a WatchCandidate) {
	z, life := n.z, n.life
	there := false
	n.request(func(int64) {
		for i := range z.children {
			if z.children[i].name == a.Name {
				there = true
				z.children[i].watchers = append(z.children[i].watchers, func() {
					if z.chance(z.faults.unwatch) {
						return
					}
					z.after(z.some(simTimeout/100), func() {
						if life == n.life && n.linked {
							n.post(CandidateGone{Try: a.Try, Name: a.Name})
						}
					})
				})
			}
		}
	}, func(ok bool) {
		if !ok || !there {
			n.post(CandidateGone{a.Try, a.Name, failed(ok)})
		}
	})
}

// failed is the error of a request.
func failed(answered bool) error {
	if answered {
		return nil
	}
	return errTest
}

// catchUp may fail, fall short, or find that the head has moved on.
func (n *zkNode) catchUp(a CatchUp) {
	z, life := n.z, n.life
	n.catching = a.Try
	z.after(z.some(simTimeout/5), func() {
		if life != n.life {
			return
		}
		if n.catching != a.Try { // replaced by a newer one
			n.post(CaughtUp{Try: a.Try, Err: errTest})
			return
		}
		r := CaughtUp{Try: a.Try, Offset: a.To.Offset, Epoch: a.To.Epoch}
		switch {
		case z.chance(z.faults.image):
			r.Err = errTest
		case z.chance(z.faults.image):
			r.Offset--
		case z.chance(z.faults.image):
			r.Offset, r.Epoch = z.head.Offset, z.head.Epoch
		}
		n.image = r.Offset
		n.post(r)
	})
}

func (n *zkNode) writeLeader(a WriteLeader) {
	z := n.z
	h := Head{Epoch: a.Epoch, Offset: n.image + 1, Term: z.uuid()}
	n.terms[a.Try] = h.Term
	outcome := Unknown
	n.request(func(int64) { outcome = z.write(a.Version, h) }, func(ok bool) {
		if !ok {
			outcome = Unknown
		}
		n.post(LeaderWritten{Try: a.Try, Outcome: outcome})
	})
}

// append is the leader's writer: anything but Written poisons it.
func (n *zkNode) append() {
	z, epoch, sentAt, session := n.z, n.e.Epoch(), n.z.now, n.session
	h := Head{Epoch: epoch, Offset: n.image + 1, Term: n.term}
	version, outcome := n.at, Unknown
	n.busy = true
	n.request(func(int64) { outcome = z.write(version, h) }, func(ok bool) {
		if n.e.Epoch() == epoch {
			n.busy = false
		}
		if !ok || outcome != Written {
			n.post(Resign{Epoch: epoch, Why: "poisoned"})
			return
		}
		if n.e.Epoch() == epoch {
			n.at, n.image = version+1, h.Offset
		}
		n.post(Ponged{session, sentAt})
	})
}
