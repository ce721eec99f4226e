package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/zkmeta"
)

// sessionTimeout is how long ZooKeeper keeps a session that it hears nothing of.
const sessionTimeout = 10 * time.Second

// zookeeper is the model of an ensemble, as one process that loses nothing: sessions,
// the line of candidates, the head of the log with its version, and the entries. What
// it has acknowledged stays, so it is here that a batch becomes part of history.
type zookeeper struct {
	process
	c *cluster
	// down: there is no quorum. Requests are lost, and no session ends.
	down bool

	sessions    map[int64]*zkSession
	cutShort    map[int64]bool // sessions that lost their candidate, or ended, before their time
	lastSession int64
	candidates  []*zkCandidate // by sequence
	sequence    int
	head        zkmeta.Head
	version     int32
	entries     []*meta.Batch // by offset
	gone        int64         // how many of them the tail has no more
	leader      metalog.LeaderRef
}

// zkSession is a session of one life of a process.
type zkSession struct {
	id    int64
	owner *process
	life  int // of owner
	heard time.Duration

	// Of its connection, which is TCP over the network that there is: a request
	// that comes too early waits for those before it, and one that comes again is
	// answered as before.
	conn     int64
	next     int64
	early    map[int64]func()
	answered map[int64]any
}

// zkCandidate is an ephemeral sequential child of the election's directory.
type zkCandidate struct {
	name     string
	session  int64
	watchers []zkWatcher
}

// zkWatcher is told once, over the network.
type zkWatcher struct {
	session *zkSession
	fire    func()
}

func newZooKeeper(c *cluster) *zookeeper {
	z := &zookeeper{c: c, sessions: map[int64]*zkSession{}, cutShort: map[int64]bool{}}
	z.process = process{w: c.w, name: "zk", disk: newDisk(c.w), start: z.begin, stop: func() {}}
	z.boot()
	return z
}

func (z *zookeeper) proc() *process { return &z.process }

func (z *zookeeper) begin() { z.tick(false) }

const zkTick = 500 * time.Millisecond

func (z *zookeeper) tick(wasDown bool) {
	z.after(zkTick, "tick", func() {
		switch {
		case z.down:
		case wasDown:
			// Whoever leads the ensemble after an outage gives all sessions their
			// whole time again.
			for _, id := range z.sessionIDs() {
				z.sessions[id].heard = z.w.now
			}
		default:
			z.expireSilent()
			z.stall()
			z.part()
		}
		z.tick(z.down)
	})
}

// stall has everything wait for a while, now and then: what a client has given up by
// then is done all the same.
func (z *zookeeper) stall() {
	if z.c.healed || z.c.plan.Faults[ZooKeeperDown] == 0 || !z.w.chance(0.01) {
		return
	}
	z.w.count.faults["ZooKeeper stalls"]++
	z.resumesAt = z.w.now + z.w.between(time.Second, sessionTimeout)
}

// part cuts a controller off from ZooKeeper alone, for about as long as a session
// lives: it goes on hearing of nodes, and has things to write.
func (z *zookeeper) part() {
	if z.c.healed || z.c.plan.Faults[CutLink] == 0 || !z.w.chance(0.005) {
		return
	}
	p := z.c.anyController()
	if p == nil {
		return
	}
	z.w.count.faults["controller parted from ZooKeeper"]++
	links := []link{{p.name, z.name}, {z.name, p.name}}
	switch z.w.rnd.Intn(3) {
	case 0:
		links = links[:1]
	case 1:
		links = links[1:]
	}
	z.c.cutFor(z.w.between(sessionTimeout/5, 2*sessionTimeout), links...)
}

func (z *zookeeper) sessionIDs() []int64 { return slices.Sorted(maps.Keys(z.sessions)) }

func (z *zookeeper) expireSilent() {
	for _, id := range z.sessionIDs() {
		if s := z.sessions[id]; z.w.now-s.heard >= sessionTimeout {
			z.end(s)
		}
	}
}

// expire is the fault: the sessions of a process end although it was heard, or only
// their candidates go, by somebody's hand, and a leader that does not know it yet
// writes on.
func (z *zookeeper) expire(p *process) bool {
	byHand, found := z.w.chance(0.4), false
	for _, id := range z.sessionIDs() {
		s := z.sessions[id]
		if s.owner != p || s.life != p.life {
			continue
		}
		found = true
		z.cutShort[id] = true
		if byHand {
			z.w.count.faults["candidate removed by hand"]++
			z.removeAll(s)
		} else {
			z.end(s)
		}
	}
	return found
}

// end ends a session, and what is ephemeral goes with it. Its owner learns of that
// when it asks for something.
func (z *zookeeper) end(s *zkSession) {
	z.w.count.outcomes["ZooKeeper session over"]++
	z.w.trace.note(z.w.now, fmt.Sprintf("session %d of %s is over", s.id, s.owner.name))
	delete(z.sessions, s.id)
	z.removeAll(s)
}

func (z *zookeeper) removeAll(s *zkSession) {
	for _, c := range slices.Clone(z.candidates) {
		if c.session == s.id {
			z.remove(c.name)
		}
	}
}

// connect opens a session, or takes one up again on a new connection; 0: that one is
// over.
func (z *zookeeper) connect(session, conn int64, owner *process, life int) int64 {
	s := z.sessions[session]
	switch {
	case session == 0:
		z.lastSession++
		s = &zkSession{id: z.lastSession, owner: owner, life: life}
		z.sessions[s.id] = s
	case s == nil:
		return 0
	case conn <= s.conn:
		return session // doubled, or late
	}
	s.heard = z.w.now
	s.conn, s.next, s.early, s.answered = conn, 1, map[int64]func(){}, map[int64]any{}
	for _, c := range z.candidates { // watches belong to a connection
		c.watchers = slices.DeleteFunc(c.watchers, func(w zkWatcher) bool { return w.session == s })
	}
	return s.id
}

// zkAnswersKept is how many answers are kept for who asks again: more than a client
// has in flight.
const zkAnswersKept = 64

type zkAnswer struct {
	body    any
	expired bool
}

// arrive takes in a request and has it answered.
func (z *zookeeper) arrive(session, conn, number int64, op func(*zkSession) any, reply func(zkAnswer)) {
	s := z.sessions[session]
	switch {
	case z.down:
		z.w.count.faults["request to ZooKeeper while it is away"]++
	case s == nil:
		z.w.count.outcomes["request refused: session over"]++
		reply(zkAnswer{expired: true})
	case conn != s.conn:
		z.w.count.outcomes["request refused: connection over"]++
	case number < s.next:
		s.heard = z.w.now
		if body, kept := s.answered[number]; kept {
			reply(zkAnswer{body: body})
		}
	default:
		s.early[number] = func() {
			body := op(s)
			s.answered[number] = body
			reply(zkAnswer{body: body})
		}
		for s.early[s.next] != nil {
			do := s.early[s.next]
			delete(s.early, s.next)
			delete(s.answered, s.next-zkAnswersKept)
			s.heard = z.w.now
			s.next++
			do()
		}
	}
}

// create adds a candidate at the end of the line.
func (z *zookeeper) create(s *zkSession, prefix string) string {
	name := fmt.Sprintf("%s%010d", prefix, z.sequence)
	z.sequence++
	z.candidates = append(z.candidates, &zkCandidate{name: name, session: s.id})
	delete(z.cutShort, s.id)
	return name
}

// remove takes a candidate away and tells those who watch it.
func (z *zookeeper) remove(name string) {
	i := z.place(name)
	if i < 0 {
		return
	}
	watchers := z.candidates[i].watchers
	z.candidates = slices.Delete(z.candidates, i, i+1)
	if z.down {
		return
	}
	for _, w := range watchers {
		z.c.net.post(&z.process, w.session.owner, "zk watch", w.fire)
	}
}

func (z *zookeeper) place(name string) int {
	return slices.IndexFunc(z.candidates, func(c *zkCandidate) bool { return c.name == name })
}

// list names the children in the order of their names, as ZooKeeper may: that is not
// the line.
func (z *zookeeper) list() (names []string) {
	for _, c := range z.candidates {
		names = append(names, c.name)
	}
	slices.SortFunc(names, strings.Compare)
	return names
}

// watch has fire called at the owner once the candidate goes; false: it is not there.
func (z *zookeeper) watch(s *zkSession, name string, fire func()) bool {
	i := z.place(name)
	if i < 0 {
		return false
	}
	z.candidates[i].watchers = append(z.candidates[i].watchers, zkWatcher{s, fire})
	return true
}

// multi appends a batch if the head still has the version.
func (z *zookeeper) multi(version int32, b *meta.Batch) zkmeta.Outcome {
	if version != z.version {
		z.w.count.outcomes["multi: bad version"]++
		return zkmeta.BadVersion
	}
	if b.Offset != int64(len(z.entries)) {
		z.w.fail("I4", "a multi at head version %d carries batch %d, and %d are there", version, b.Offset, len(z.entries))
		return zkmeta.Unknown
	}
	z.c.check.apply(b)
	z.entries = append(z.entries, b)
	z.head = zkmeta.Head{Epoch: b.Epoch, Offset: b.Offset, Term: b.Term}
	if most := z.c.plan.TailMax; most > 0 {
		z.gone = max(z.gone, int64(len(z.entries))-most)
	}
	for _, r := range b.Upserts {
		if l, ok := r.(*meta.Leader); ok {
			z.leader = metalog.LeaderRef{URL: l.URL, Epoch: l.Epoch}
		}
	}
	z.version++
	z.w.count.outcomes["multi: written"]++
	return zkmeta.Written
}

// zkReadMax is how many entries one read returns: few, so that catching up takes
// several.
const zkReadMax = 16

// read returns entries from an offset on.
func (z *zookeeper) read(from int64) []*meta.Batch {
	if from > int64(len(z.entries)) {
		return nil
	}
	return z.entries[from:min(int64(len(z.entries)), from+zkReadMax)]
}
