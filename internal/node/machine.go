package node

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

// Machine decides what a node does about its copies, pure and level-triggered:
// for each segment it compares what is wanted (segments that name the node),
// held (its store) and listed (locations that name it), and closes the
// differences, for ever. A message that is lost costs a delay, never a state.
//
// It never removes a copy because an image does not name it (DESIGN §4.5). What
// a consumer's run is seeing to it leaves alone (Claimed).
//
// The cost of a step follows what changed; a slow pass over everything (fullEvery)
// catches whatever was missed.
type Machine struct {
	cfg      MachineConfig
	image    *meta.Image
	caughtUp bool

	incarnation int64 // 0: not registered
	epoch       int64

	held    map[meta.SegmentKey][]segment.Held
	claimed map[meta.SegmentKey]bool
	works   map[meta.SegmentKey]*work
	reports reports

	fetches, uploads int // under way
	fullAt           time.Duration

	now time.Duration
	out []Action
}

// fullEvery is how often everything is looked at.
const fullEvery = 30 * time.Second

// work is what is under way, or waits, for one segment.
type work struct {
	fetch   try
	upload  try
	rebuild try
	removal try
	// sourceless is since when nobody has had the bytes to give, 0: not so.
	sourceless time.Duration
	asked      bool // an operator asked for the upload
}

// try is an effort that is repeated with back-off.
type try struct {
	wanted  bool
	running bool
	due     time.Duration
	wait    time.Duration
}

const (
	tryMin = time.Second
	tryMax = time.Minute
)

// failed puts the next try off.
func (t *try) failed(now time.Duration) {
	t.running = false
	t.wait = min(max(2*t.wait, tryMin), tryMax)
	t.due = now + t.wait
}

// succeeded ends the effort; what it brought about is not looked at again before
// it can have shown.
func (t *try) succeeded(now time.Duration) {
	t.running, t.wait = false, 0
	t.due = now + fullEvery
}

// soon lets the next try be made at once: something changed.
func (t *try) soon() {
	if !t.running {
		t.due, t.wait = 0, 0
	}
}

func (t *try) startable(now time.Duration) bool { return t.wanted && !t.running && now >= t.due }

// NewMachine returns the machine of a node that knows nothing yet but what its
// store holds.
func NewMachine(cfg MachineConfig, held []segment.Held) *Machine {
	cfg.FetchesMax = cmp.Or(cfg.FetchesMax, 4)
	cfg.UploadsMax = cmp.Or(cfg.UploadsMax, 2)
	m := &Machine{
		cfg: cfg, image: meta.Empty(),
		held: map[meta.SegmentKey][]segment.Held{}, claimed: map[meta.SegmentKey]bool{},
		works: map[meta.SegmentKey]*work{}, reports: newReports(),
	}
	for _, h := range held {
		if k, ok := heldKey(h); ok {
			m.held[k] = append(m.held[k], h)
		}
	}
	return m
}

// heldKey is the segment that a copy's name says it is of.
func heldKey(h segment.Held) (meta.SegmentKey, bool) {
	n, err := segment.ParseName(h.Name)
	return meta.SegmentKey{Table: h.Table, Partition: h.Partition, Seq: n.Seq}, err == nil
}

// Step takes an event and returns what is to be done about it.
func (m *Machine) Step(now time.Duration, ev Event) []Action {
	m.now, m.out = now, nil
	switch ev := ev.(type) {
	case Registered:
		m.registered(ev)
	case ImageChanged:
		m.image, m.caughtUp = ev.Image, ev.CaughtUp
		m.reviewTouched(ev.Touched)
	case StoreChanged:
		m.storeChanged(ev)
	case Claimed:
		m.claimed[ev.Segment] = true
	case Unclaimed:
		delete(m.claimed, ev.Segment)
		m.review(ev.Segment)
	case UploadAsked:
		m.work(ev.Segment).asked = true
		m.work(ev.Segment).upload.soon()
		m.review(ev.Segment)
	case FetchDone:
		m.fetchDone(ev)
	case RebuildDone:
		m.settle(&m.work(ev.Segment).rebuild, ev.Err)
		m.review(ev.Segment)
	case UploadDone:
		m.uploadDone(ev)
	case RemoveDone:
		if k, ok := heldKey(ev.Held); ok {
			m.settle(&m.work(k).removal, ev.Err)
			m.review(k)
		}
	case ReportDone:
		m.reportDone(ev)
	case Tick:
		m.tick()
	}
	m.start()
	m.report()
	return m.out
}

func (m *Machine) do(a Action) { m.out = append(m.out, a) }

func (m *Machine) settle(t *try, err error) {
	if err != nil {
		t.failed(m.now)
	} else {
		t.succeeded(m.now)
	}
}

func (m *Machine) work(k meta.SegmentKey) *work {
	w := m.works[k]
	if w == nil {
		w = &work{}
		m.works[k] = w
	}
	return w
}

// Busy counts what is under way.
func (m *Machine) Busy() int { return m.fetches + m.uploads }

// Waiting counts the fetches and the uploads that wait for their turn or their
// next try.
func (m *Machine) Waiting() (fetches, uploads int) {
	for _, w := range m.works {
		if w.fetch.wanted && !w.fetch.running {
			fetches++
		}
		if w.upload.wanted && !w.upload.running {
			uploads++
		}
	}
	return fetches, uploads
}

// registered begins a conversation with a leader: it is told of everything
// that is held.
func (m *Machine) registered(ev Registered) {
	if ev.Incarnation != m.incarnation {
		m.reports.begin()
	}
	if ev.Epoch != m.epoch || ev.Incarnation != m.incarnation {
		m.reports.confirmAll = true
	}
	m.incarnation, m.epoch = ev.Incarnation, ev.Epoch
	m.reviewAll()
}

func (m *Machine) tick() {
	if m.now >= m.fullAt {
		m.fullAt = m.now + fullEvery
		m.reviewAll()
	}
}

// reviewTouched looks at the segments that a change of the image concerns.
func (m *Machine) reviewTouched(touched []meta.Key) {
	if touched == nil {
		m.reviewAll()
		return
	}
	for _, k := range touched {
		switch k.Kind {
		case meta.KindSegment, meta.KindTombstone:
			key := meta.SegmentKey{Table: k.Table, Partition: k.Partition, Seq: k.Num}
			if w := m.works[key]; w != nil { // perhaps there is a source now
				w.fetch.soon()
			}
			m.review(key)
		case meta.KindNode:
			m.reviewNode(k.Name)
		}
	}
}

// reviewNode looks at what may have changed because a node came or went: its
// copies count, or no longer do.
func (m *Machine) reviewNode(node string) {
	for s := range m.image.SegmentsNaming(node) {
		if w := m.works[s.SegmentKey()]; w != nil {
			w.fetch.soon()
		}
		m.review(s.SegmentKey())
	}
}

// reviewAll looks at every segment that the node has to do with, in any way.
func (m *Machine) reviewAll() {
	keys := map[meta.SegmentKey]struct{}{}
	for s := range m.image.SegmentsNaming(m.cfg.Node) {
		keys[s.SegmentKey()] = struct{}{}
	}
	for k := range m.held {
		keys[k] = struct{}{}
	}
	for k := range m.works {
		keys[k] = struct{}{}
	}
	for _, k := range slices.SortedFunc(maps.Keys(keys), meta.SegmentKey.Compare) {
		m.review(k)
	}
}

// review compares wanted, held and listed for one segment.
func (m *Machine) review(k meta.SegmentKey) {
	s := m.image.Segment(k)
	switch {
	case s == nil:
		m.reviewUnknown(k)
	case s.Status == meta.SegmentDone:
		m.reviewDone(k, s)
	default:
		m.forget(k) // consuming: its files, if any, are the consumer's
	}
}

// forget drops what waits for a segment.
func (m *Machine) forget(k meta.SegmentKey) {
	if w := m.works[k]; w != nil && !w.fetch.running && !w.upload.running && !w.rebuild.running && !w.removal.running {
		delete(m.works, k)
	}
	m.reports.forget(k)
}

// reviewUnknown deals with copies of a segment that the image does not have. An
// image that has not caught up says nothing by that. A tombstone explains a
// copy, and lets it go once the leader has marked it expired.
func (m *Machine) reviewUnknown(k meta.SegmentKey) {
	m.forget(k)
	if !m.caughtUp || m.claimed[k] {
		return
	}
	tomb := m.image.Tombstone(k)
	for _, h := range m.held[k] {
		switch {
		case tomb == nil:
			m.remove(k, SetAside{Held: h})
		case tomb.Expired:
			m.remove(k, Remove{Held: h, Why: "its segment was deleted, and the grace is over"})
		}
	}
}

// reviewDone deals with a committed segment.
func (m *Machine) reviewDone(k meta.SegmentKey, s *meta.Segment) {
	_, held := m.copyOf(k, s.Digest)
	loc := s.NodeLocation(m.cfg.Node)
	listed := loc != nil && loc.StoreID == m.cfg.StoreID
	wanted := slices.Contains(s.Replicas, m.cfg.Node)

	m.reports.want(k, s.Digest, held && !listed, !held && loc != nil)
	w := m.work(k)
	w.fetch.wanted = wanted && !held && !m.claimed[k]
	w.upload.wanted = held && m.isUploader(s, w)
	if held {
		w.sourceless = 0
	}
	w.rebuild.wanted = w.fetch.wanted && w.sourceless > 0 && m.now-w.sourceless >= m.patience(s)
	if !m.claimed[k] {
		m.reviewOthers(k, s)
	}
	if *w == (work{}) || held && !w.upload.wanted && !w.upload.running && !w.fetch.running && !w.removal.running {
		delete(m.works, k)
	}
}

// copyOf finds the sealed copy with the digest.
func (m *Machine) copyOf(k meta.SegmentKey, d segment.Digest) (segment.Held, bool) {
	for _, h := range m.held[k] {
		if h.State == segment.StateSealed && h.Digest == d {
			return h, true
		}
	}
	return segment.Held{}, false
}

// reviewOthers removes files of a committed segment that are not the committed
// one: builds that differ, and damaged copies. They may hold the only good
// bytes there are, so they stay until two other copies count, or a verified one
// in the deep store (DESIGN §4.5).
func (m *Machine) reviewOthers(k meta.SegmentKey, s *meta.Segment) {
	counted := meta.CountedCopies(m.image, s)
	others := 0
	for _, l := range counted.Nodes {
		if l.Node != m.cfg.Node {
			others++
		}
	}
	if others < 2 && len(counted.DeepStore) == 0 {
		return
	}
	for _, h := range m.held[k] {
		if h.Digest != s.Digest || h.State != segment.StateSealed {
			m.remove(k, Remove{Held: h, Why: "it is not the committed file, and enough copies of that exist"})
		}
	}
}

// remove starts a removal, one at a time for a segment.
func (m *Machine) remove(k meta.SegmentKey, a Action) {
	w := m.work(k)
	if w.removal.running || m.now < w.removal.due {
		return
	}
	w.removal.running = true
	m.do(a)
}

// isUploader reports whether the upload of a committed segment is this node's to
// do: it is the committer, if that is UP and has its copy, else the first whose
// copy counts.
func (m *Machine) isUploader(s *meta.Segment, w *work) bool {
	cfg := m.image.CurrentConfig(s.Table)
	if cfg == nil || cfg.DeepStore == nil || s.DeepStoreVerified() {
		return false
	}
	if w.asked {
		return true
	}
	counted := meta.CountedCopies(m.image, s).Nodes
	for _, l := range counted {
		if l.Node == s.Committer {
			return m.cfg.Node == s.Committer
		}
	}
	return len(counted) > 0 && counted[0].Node == m.cfg.Node
}

// patience is how long a committed segment without a source is waited for
// before it is built again from the stream: 10 H (PROTOCOL §5).
func (m *Machine) patience(s *meta.Segment) time.Duration {
	hold := commit.DefaultTiming.Hold
	if cfg := m.image.CurrentConfig(s.Table); cfg != nil {
		hold = time.Duration(cfg.Completion.HoldTime)
	}
	return 10 * hold
}

// storeChanged takes the news of the store.
func (m *Machine) storeChanged(ev StoreChanged) {
	if len(ev.Held) == 0 {
		delete(m.held, ev.Segment)
	} else {
		m.held[ev.Segment] = ev.Held
	}
	m.review(ev.Segment)
}

// start starts what is due, while there is room.
func (m *Machine) start() {
	if m.incarnation == 0 {
		return // nobody to report to, and the image may be of another time
	}
	for _, k := range slices.SortedFunc(maps.Keys(m.works), meta.SegmentKey.Compare) {
		w, s := m.works[k], m.image.Segment(k)
		if s == nil || s.Status != meta.SegmentDone {
			continue
		}
		if w.rebuild.startable(m.now) && !w.fetch.running && m.fetches < m.cfg.FetchesMax {
			w.rebuild.running = true
			m.do(Rebuild{Segment: k, End: s.End})
			continue
		}
		if w.fetch.startable(m.now) && !w.rebuild.running && m.fetches < m.cfg.FetchesMax {
			w.fetch.running = true
			m.fetches++
			m.do(Fetch{Segment: k, Digest: s.Digest})
		}
		if w.upload.startable(m.now) && m.uploads < m.cfg.UploadsMax {
			w.upload.running = true
			m.uploads++
			m.do(Upload{Segment: k, Digest: s.Digest})
		}
	}
}

func (m *Machine) fetchDone(ev FetchDone) {
	m.fetches--
	w := m.work(ev.Segment)
	m.settle(&w.fetch, ev.Err)
	switch {
	case !ev.NoSource:
		w.sourceless = 0
	case w.sourceless == 0:
		w.sourceless = max(m.now, 1)
	}
	m.review(ev.Segment)
}

// uploadDone: what was uploaded is reported until the image shows it verified.
func (m *Machine) uploadDone(ev UploadDone) {
	m.uploads--
	w := m.work(ev.Segment)
	m.settle(&w.upload, ev.Err)
	w.asked = false
	if s := m.image.Segment(ev.Segment); ev.Err == nil && s != nil {
		m.reports.uploaded(ev.Segment, s.Digest, ev.URI)
	}
	m.review(ev.Segment)
}
