package controller

import (
	"maps"
	"slices"
	"time"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/meta"
)

// Now is a moment: Mono is what decides, monotonic since the process began;
// Wall, in milliseconds since the Unix epoch, is for show.
type Now struct {
	Mono time.Duration
	Wall int64
}

// Machine is everything that the leader decides, pure: Step takes an event and
// returns what is to be done about it. It has no clock, I/O, goroutine or
// chance of its own, and nothing of it is persisted: a new leader begins with
// the image and what it is told from then on.
//
// Its parts are kept apart by subject: the completion protocol
// (completion.go), the nodes' liveness (liveness.go), reports of copies
// (locations.go), the checks of the deep store (checks.go), tables on their way
// to ACTIVE (tables.go), and jobs (jobs.go).
//
// The image that it decides on holds everything whose Wrote it was given, and
// only what is committed.
type Machine struct {
	leading bool
	url     string // ours
	leader  string // the leader's, as far as known
	image   *meta.Image

	completion *commit.Controller
	rounds     map[meta.SegmentKey]*roundTimes
	live       liveness
	confirmed  confirmations
	checks     checks
	tables     map[tableID]*tableWork
	jobs       map[tableID]*jobWork

	writes    map[uint64]writing
	lastWrite uint64

	now Now
	out []Action
}

// writing is what a Write in flight is for.
type writing struct {
	purpose purpose
	segment meta.SegmentKey
	ticket  Ticket
	node    string
	uri     string
	id      tableID // of a table or a job
	// verdicts are filled in when the function is evaluated.
	verdicts *meta.LocationVerdicts
	report   *meta.LocationReport
}

// purpose says who waits for a Wrote.
type purpose uint8

const (
	forNobody purpose = iota
	forCommit
	forEmpty
	forAttempt
	forNode
	forLocations
	forCheck
	forTable
	forJob
)

// NewMachine returns the machine of a controller that does not lead.
func NewMachine() *Machine {
	m := &Machine{}
	m.reset()
	return m
}

// reset forgets what only a leader knows.
func (m *Machine) reset() {
	m.completion = commit.NewController()
	m.rounds = map[meta.SegmentKey]*roundTimes{}
	m.live = newLiveness()
	m.confirmed = newConfirmations()
	m.checks = newChecks()
	m.tables = map[tableID]*tableWork{}
	m.jobs = map[tableID]*jobWork{}
	m.writes = map[uint64]writing{}
}

// Step takes an event and returns the actions that it calls for, in their
// order. Results of a leadership that is over are dropped.
func (m *Machine) Step(now Now, ev Event) []Action {
	m.now, m.out = now, nil
	switch ev := ev.(type) {
	case Lead:
		m.lead(ev)
	case Depose:
		m.depose(ev)
	case Message:
		m.message(ev)
	case Heartbeat:
		m.heartbeat(ev)
	case Located:
		m.located(ev)
	case Look:
		m.look(ev)
	default:
		if m.leading {
			m.stepLeading(ev)
		}
	}
	return m.out
}

func (m *Machine) stepLeading(ev Event) {
	switch ev := ev.(type) {
	case Committed:
		m.advance(ev.Image)
		m.review(ev.Touched)
	case Wrote:
		m.wrote(ev)
	case Listed:
		m.listed(ev)
	case Checked:
		m.checked(ev)
	case Tick:
		m.completed(m.completion.Step(m.now.Mono, commit.Tick{}))
		m.markSilentNodes()
		m.startChecks()
		m.listDueTables()
		m.workJobs()
	}
}

// lead begins a leadership. Every node has one full time-out to be heard of.
func (m *Machine) lead(ev Lead) {
	m.reset()
	m.leading, m.url, m.leader, m.image = true, ev.URL, ev.URL, ev.Image
	m.review(nil)
}

func (m *Machine) depose(ev Depose) {
	m.leader = ev.Leader
	m.leading = false
	for _, id := range slices.Sorted(maps.Keys(m.writes)) {
		if w := m.writes[id]; w.purpose == forLocations {
			m.do(AnswerLocations{Ticket: w.ticket, Refuse: RefuseUnknown})
		}
	}
	m.completed(m.completion.Step(m.now.Mono, commit.Deposed{Leader: ev.Leader}))
	m.reset()
}

// advance takes a newer image. One that is older than what a Wrote has brought
// already is no news.
func (m *Machine) advance(im *meta.Image) {
	if im.Next() > m.image.Next() {
		m.image = im
	}
}

// review looks at what changed, or at everything, and takes up the work that
// it finds: the image is the list of what is to be done.
func (m *Machine) review(touched []meta.Key) {
	if touched == nil {
		for n := range m.image.Nodes() {
			m.live.wait(m.now.Mono, n)
		}
		for t := range m.image.Tables() {
			m.reviewTable(t)
		}
		for s := range m.image.SegmentsAwaitingDeepStore() {
			m.reviewSegment(s)
		}
		for j := range m.image.Jobs() {
			m.reviewJob(j)
		}
		return
	}
	for _, k := range touched {
		switch r := m.image.Lookup(k).(type) {
		case *meta.Node:
			m.live.wait(m.now.Mono, r)
		case *meta.Table:
			m.reviewTable(r)
		case *meta.Segment:
			m.reviewSegment(r)
		case *meta.Job:
			m.reviewJob(r)
		case nil:
			m.reviewGone(k)
		}
	}
}

// reviewGone forgets what is remembered of a record that was removed.
func (m *Machine) reviewGone(k meta.Key) {
	switch k.Kind {
	case meta.KindNode:
		m.live.forget(k.Name)
		m.confirmed.forgetNode(k.Name)
	case meta.KindSegment:
		key := meta.SegmentKey{Table: k.Table, Partition: k.Partition, Seq: k.Num}
		m.completed(m.completion.Step(m.now.Mono, commit.SegmentGone{Key: commitKey(key)}))
		m.forgetSegment(key)
	}
}

// forgetSegment drops what is remembered of a segment that no longer concerns
// the machine.
func (m *Machine) forgetSegment(k meta.SegmentKey) {
	delete(m.rounds, k)
	m.checks.forget(k)
	m.confirmed.forgetSegment(k)
}

// do adds an action.
func (m *Machine) do(a Action) { m.out = append(m.out, a) }

// write submits a function of the image and remembers what for.
func (m *Machine) write(w writing, what string, fn meta.Func) {
	m.lastWrite++
	m.writes[m.lastWrite] = w
	m.do(Write{ID: m.lastWrite, What: what, Func: fn})
}

// wrote takes the result of a write to whoever waits for it.
func (m *Machine) wrote(ev Wrote) {
	w, ok := m.writes[ev.ID]
	if !ok {
		return // of an earlier leadership
	}
	delete(m.writes, ev.ID)
	if ev.Image != nil {
		m.advance(ev.Image)
	}
	switch w.purpose {
	case forCommit, forEmpty, forAttempt:
		m.completionWrote(w, ev)
	case forNode:
		m.live.settled(w.node)
	case forLocations:
		m.locationsWrote(w, ev)
	case forCheck:
		m.checkWrote(w, ev)
	case forTable:
		m.tableWrote(w, ev)
	case forJob:
		m.jobWrote(w, ev)
	}
}

// heartbeat takes a sign of life. One of a node that was taken for DOWN brings
// it back.
func (m *Machine) heartbeat(ev Heartbeat) {
	answer := AnswerHeartbeat{Ticket: ev.Ticket}
	if !m.leading {
		answer.Refuse, answer.Answer.Leader = RefuseNotLeader, m.leader
		m.do(answer)
		return
	}
	n := m.image.Node(ev.Node)
	if n == nil || n.Incarnation != ev.Incarnation {
		answer.Refuse = RefuseStaleIncarnation
		m.do(answer)
		return
	}
	m.live.beat(m.now.Mono, ev.Heartbeat, m.image.Next())
	if n.State == meta.NodeDown {
		m.setNodeState(n, meta.NodeUp)
	}
	answer.Answer = api.HeartbeatAnswer{Leader: m.url, Epoch: m.image.Epoch(), HighWatermark: m.image.Next()}
	m.do(answer)
}

// markSilentNodes takes nodes that were silent for too long for DOWN. One that
// is DRAINING stays so: its copies do not count as it is, and it must not come
// back as UP.
func (m *Machine) markSilentNodes() {
	for _, id := range m.live.silent(m.now.Mono) {
		if n := m.image.Node(id); n != nil && n.State == meta.NodeUp {
			m.setNodeState(n, meta.NodeDown)
		}
	}
}

// setNodeState changes the record of a node, one change at a time.
func (m *Machine) setNodeState(n *meta.Node, state meta.NodeState) {
	if m.live.unsettled(n.ID) {
		m.write(writing{purpose: forNode, node: n.ID}, "node "+n.ID+" is "+string(state),
			meta.SetNodeState(n.ID, n.Incarnation, state))
	}
}
