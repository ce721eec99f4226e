package validation

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/internal/schedule"
	"github.com/shoalstore/shoal/meta"
)

// Timing is when the Manager acts.
type Timing struct {
	// Patience is how long whoever uploads a segment by itself is left to it, from
	// when the leader has first seen it wait.
	Patience time.Duration
	// Poll is how often a node that was asked is asked what became of it.
	Poll time.Duration
	// Retry is how long a segment is let be that no holder could upload, jittered.
	Retry schedule.BackOff
	// Table is the same for a table, whose next segment is let be as well: its store
	// may be away.
	Table schedule.BackOff
	// An upload has Least of time, and what schedule.ForBytes gives, before another
	// holder is asked: as much as the node that was asked gives it.
	Least time.Duration
}

// Limits bound what the Manager does at once.
type Limits struct {
	Pool     int // uploads that are asked for at once
	PerTable int // of one table; of one whose last try failed it is 1
	Failing  int // of all tables whose last try failed
	Most     int // segments that are kept in mind
}

// The defaults of a real leader.
var (
	DefaultTiming = Timing{
		Patience: 30 * time.Second, Poll: 5 * time.Second, Least: time.Minute,
		Retry: schedule.BackOff{Min: 30 * time.Second, Max: 10 * time.Minute},
		Table: schedule.BackOff{Min: time.Second, Max: time.Minute},
	}
	DefaultLimits = Limits{Pool: 16, PerTable: 8, Failing: 8, Most: 4096}
)

// Event is something that happened.
type Event interface{ event() }

// Surveyed brings findings. At once: somebody wants now what would have its time.
type Surveyed struct {
	Findings *Findings
	AtOnce   bool
}

// Changed says that a segment's record changed, or went.
type Changed struct{ Segment meta.SegmentKey }

// Answered is what a node said to an Ask, or Err, why it said nothing.
type Answered struct {
	Segment meta.SegmentKey
	Node    string
	Answer  Answer
	Err     error
}

// Answer is how far a node is with the upload of a segment.
type Answer struct {
	// Failures counts what failed for the segment since the node's process began;
	// it only rises. LastError is the last of it.
	Failures int
	// Different says that it was other bytes under the segment's key, in a store that
	// answers: nothing that others of its table have to wait for.
	LastError string
	Different bool
}

// Tick lets deadlines be seen.
type Tick struct{}

func (Surveyed) event() {}
func (Changed) event()  {}
func (Answered) event() {}
func (Tick) event()     {}

// Ask has a node upload its copy of a segment, or, with Poll, only asks how far it
// is. One Answered follows.
type Ask struct {
	Segment meta.SegmentKey
	Node    string
	Poll    bool
}

// Manager sees to it that what was found is put right: bounded at once, riskiest
// first, each segment by one node at a time and by another one after a failure, for
// ever. A table whose uploads fail does not hold up the others: it has one upload
// under way, and what all such tables have together is bounded too.
//
// It is pure, and it keeps no truth: the image says what is wrong still.
type Manager struct {
	timing Timing
	limits Limits
	works  map[meta.SegmentKey]*work
	tables map[uuid.UUID]*table
	counts Counts
}

// Counts only rise.
type Counts struct{ Asked, Failed, Done int64 }

// work is a segment that should be in the deep store.
type work struct {
	risk  meta.Risk
	bytes int64
	since time.Duration // when it was first seen
	due   time.Duration // when somebody is asked next
	wait  time.Duration // before the last round of all holders
	// tried are the holders that failed in this round.
	tried []string

	// Of the node that is asked at the moment, "" when none is.
	node      string
	asking    bool // its answer is awaited
	known     bool // it has answered
	failures  int  // of the node, when it was asked
	pollAt    time.Duration
	deadline  time.Duration
	askedAt   time.Duration
	failed    int // tries, in all
	lastNode  string
	lastError string
	lastAt    time.Duration
}

// table is one with works under way or a failure.
type table struct {
	running int
	failing bool
	wait    time.Duration
	due     time.Duration
	tries   int64 // for the jitter
}

// NewManager returns a manager that knows of nothing.
func NewManager(t Timing, l Limits) *Manager {
	return &Manager{timing: t, limits: l, works: map[meta.SegmentKey]*work{}, tables: map[uuid.UUID]*table{}}
}

// Step takes an event, by the image that there is then, and returns who is asked.
func (m *Manager) Step(now time.Duration, im *meta.Image, ev Event) []Ask {
	switch ev := ev.(type) {
	case Surveyed:
		m.surveyed(now, im, ev)
	case Changed: // there are many, and a Tick comes soon
		m.look(now, im, ev.Segment)
		return nil
	case Answered:
		m.answered(now, im, ev)
	case Tick:
	}
	return append(m.poll(now), m.start(now, im)...)
}

// Preview is what Step would ask for after a Surveyed at once, of whom, riskiest
// first. Nothing changes.
func (m *Manager) Preview(now time.Duration, im *meta.Image, f *Findings) []Ask {
	c := NewManager(m.timing, m.limits)
	for k, w := range m.works {
		copied := *w
		copied.tried = slices.Clone(w.tried)
		c.works[k] = &copied
	}
	for id, t := range m.tables {
		copied := *t
		c.tables[id] = &copied
	}
	c.surveyed(now, im, Surveyed{Findings: f, AtOnce: true})
	return c.start(now, im)
}

// surveyed keeps in mind what was found, and of the rest only what is under way.
func (m *Manager) surveyed(now time.Duration, im *meta.Image, ev Surveyed) {
	found := map[meta.SegmentKey]bool{}
	for _, s := range ev.Findings.Awaiting[:min(len(ev.Findings.Awaiting), m.limits.Most)] {
		found[s.SegmentKey()] = true
	}
	for k, w := range m.works {
		if !found[k] && w.node == "" {
			delete(m.works, k)
		}
	}
	for _, s := range ev.Findings.Awaiting { // riskiest first: there may not be room for all
		k := s.SegmentKey()
		if !found[k] {
			break
		}
		m.look(now, im, k)
		if w := m.works[k]; w != nil && ev.AtOnce && w.node == "" {
			w.due = now
		}
	}
	if ev.AtOnce {
		for _, t := range m.tables {
			t.due = now
		}
	}
	waiting := map[uuid.UUID]bool{}
	for _, t := range ev.Findings.Tables {
		waiting[t.ID] = t.Awaiting.Segments > 0
	}
	// A table of which nothing waits any longer does not fail: its last segments may have
	// come into the deep store while there was no room to keep them in mind.
	for id, t := range m.tables {
		if t.running == 0 && (im.Table(id) == nil || !waiting[id]) {
			delete(m.tables, id)
		}
	}
}

// look takes a segment up that waits for its upload, or drops one that does not any
// longer.
func (m *Manager) look(now time.Duration, im *meta.Image, k meta.SegmentKey) {
	w, s := m.works[k], im.Segment(k)
	switch {
	case s == nil || !IsAwaiting(im, s):
		m.drop(k, s != nil && s.DeepStoreVerified())
		return
	case w == nil && len(m.works) >= m.limits.Most+m.limits.Pool:
		return // a survey brings it when its time has come
	case w == nil:
		w = &work{since: now, due: now + m.timing.Patience}
		m.works[k] = w
	}
	w.risk, w.bytes = meta.RiskOf(im, s), s.SizeBytes
}

// drop ends a work. Its table's store is there if a node that was asked has used it.
func (m *Manager) drop(k meta.SegmentKey, uploaded bool) {
	w := m.works[k]
	if w == nil {
		return
	}
	delete(m.works, k)
	if uploaded {
		m.well(k.Table)
	}
	if w.node != "" {
		if uploaded {
			m.counts.Done++
		}
		m.table(k.Table).running--
	}
}

func (m *Manager) table(id uuid.UUID) *table {
	t := m.tables[id]
	if t == nil {
		t = &table{}
		m.tables[id] = t
	}
	return t
}

// well says that an upload of the table has succeeded.
func (m *Manager) well(id uuid.UUID) {
	if t := m.tables[id]; t != nil {
		t.failing, t.wait, t.due = false, 0, 0
	}
}

// answered takes a node's answer. That it is done shows in the image; that it is at
// it still leaves it its time.
func (m *Manager) answered(now time.Duration, im *meta.Image, ev Answered) {
	w := m.works[ev.Segment]
	if w == nil || w.node != ev.Node || !w.asking {
		return
	}
	w.asking = false
	w.pollAt = now + m.timing.Poll
	switch {
	case ev.Err != nil:
		m.fail(now, im, ev.Segment, w, ev.Err.Error(), false)
	case !w.known:
		w.known, w.failures = true, ev.Answer.Failures
	case ev.Answer.Failures < w.failures: // another process: it forgot
		m.fail(now, im, ev.Segment, w, "the node began anew", false)
	case ev.Answer.Failures > w.failures:
		m.fail(now, im, ev.Segment, w, ev.Answer.LastError, !ev.Answer.Different)
	case now >= w.deadline:
		m.fail(now, im, ev.Segment, w, "the upload is not done in its time", true)
	}
}

// fail ends a try. Another holder is asked next, if there is one that was not; all of
// them begin anew after a while. store says that it may be the table's store.
func (m *Manager) fail(now time.Duration, im *meta.Image, k meta.SegmentKey, w *work, why string, store bool) {
	m.counts.Failed++
	t := m.table(k.Table)
	t.running--
	w.tried = append(w.tried, w.node)
	w.lastNode, w.lastError, w.lastAt = w.node, why, now
	w.failed++
	w.node, w.known = "", false
	w.due = now
	if m.next(im, k, w) == "" {
		w.tried = nil
		w.wait = m.timing.Retry.Next(w.wait)
		w.due = now + schedule.Jitter(w.wait, schedule.Seed(k.Table[:], int64(k.Partition), k.Seq, int64(w.failed)))
	}
	if store {
		t.failing, t.tries = true, t.tries+1
		t.wait = m.timing.Table.Next(t.wait)
		t.due = now + schedule.Jitter(t.wait, schedule.Seed(k.Table[:], t.tries))
	}
}

// next is the holder that is to be asked, "" if there is none that was not.
func (m *Manager) next(im *meta.Image, k meta.SegmentKey, w *work) string {
	s := im.Segment(k)
	if s == nil {
		return ""
	}
	for _, n := range Holders(im, s) {
		if !slices.Contains(w.tried, n.ID) {
			return n.ID
		}
	}
	return ""
}

// poll asks nodes how far they are.
func (m *Manager) poll(now time.Duration) (asks []Ask) {
	for _, k := range m.sorted(func(w *work) bool { return w.node != "" && !w.asking && now >= w.pollAt }) {
		m.works[k].asking = true
		asks = append(asks, Ask{Segment: k, Node: m.works[k].node, Poll: true})
	}
	return asks
}

// start asks for what is due, riskiest first, while there is room.
func (m *Manager) start(now time.Duration, im *meta.Image) (asks []Ask) {
	running, failing := 0, 0
	for _, t := range m.tables {
		running += t.running
		if t.failing {
			failing += t.running
		}
	}
	if running >= m.limits.Pool {
		return nil
	}
	for _, k := range m.sorted(func(w *work) bool { return w.node == "" && now >= w.due }) {
		if running >= m.limits.Pool {
			break
		}
		t := m.table(k.Table)
		if t.failing && (t.running > 0 || now < t.due || failing >= m.limits.Failing) || t.running >= m.limits.PerTable {
			continue
		}
		w := m.works[k]
		node := m.next(im, k, w)
		if node == "" {
			// Nobody has it who could be asked, or all have been: a node that comes
			// back is asked with the next round.
			w.tried, w.lastNode, w.lastError, w.lastAt = nil, "", "no node that is up has a copy that counts", now
			w.due = now + m.timing.Patience
			continue
		}
		running++
		if t.running++; t.failing {
			failing++
		}
		w.node, w.asking, w.known = node, true, false
		w.askedAt = now
		w.deadline = now + m.timing.Least + schedule.ForBytes(w.bytes)
		m.counts.Asked++
		asks = append(asks, Ask{Segment: k, Node: node})
	}
	return asks
}

// sorted are the works that satisfy which, riskiest first.
func (m *Manager) sorted(which func(*work) bool) []meta.SegmentKey {
	var keys []meta.SegmentKey
	for k, w := range m.works {
		if which(w) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b meta.SegmentKey) int {
		return cmp.Or(m.works[a].risk.Compare(m.works[b].risk), a.Compare(b))
	})
	return keys
}

// Status is what has been done about a segment.
type Status struct {
	Since   time.Duration // when the leader first saw it wait
	Node    string        // that is asked at the moment, "" when none is
	AskedAt time.Duration
	Due     time.Duration // when a node is asked next, if none is
	Failed  int           // tries
	// LastNode and LastError are the last failure, LastAt is when it was heard of.
	LastNode  string
	LastError string
	LastAt    time.Duration
}

// Status returns what has been done about a segment, if it is kept in mind.
func (m *Manager) Status(k meta.SegmentKey) (Status, bool) {
	w := m.works[k]
	if w == nil {
		return Status{}, false
	}
	return Status{
		Since: w.since, Node: w.node, AskedAt: w.askedAt, Due: w.due, Failed: w.failed,
		LastNode: w.lastNode, LastError: w.lastError, LastAt: w.lastAt,
	}, true
}

// Pool is how busy the manager is.
type Pool struct {
	Running, Waiting int
	Failing          []uuid.UUID // tables whose last upload failed, sorted
}

// Pool returns how busy the manager is.
func (m *Manager) Pool() Pool {
	p := Pool{}
	for _, w := range m.works {
		if w.node != "" {
			p.Running++
		} else {
			p.Waiting++
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(m.tables), func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) }) {
		if m.tables[id].failing {
			p.Failing = append(p.Failing, id)
		}
	}
	return p
}

// Counts returns what was done since the manager was made.
func (m *Manager) Counts() Counts { return m.counts }
