package node

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/shoalstore/shoal/internal/schedule"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

// Machine decides what a node does about its copies, pure and level-triggered:
// for each segment it compares what is wanted (segments that name the node),
// held (its store) and listed (locations that name it), and closes the
// differences, for ever. A message that is lost costs a delay, never a state.
//
// Its parts, by subject: what one segment calls for (judge.go), what is tried
// until it is so (efforts.go), which upload comes first (uploads.go), what the
// leader is told (reports.go), and which downloads are given up (downloads.go).
//
// It never removes a copy because an image does not name it (DESIGN §4.5), and
// what a consumer's run is seeing to it leaves alone (Claimed).
//
// The cost of a step follows what changed and what can be started; a slow pass
// over everything (fullEvery) catches whatever was missed.
type Machine struct {
	cfg   MachineConfig
	image *meta.Image

	incarnation int64 // 0: not registered
	epoch       int64
	// goal is the high watermark that the leader named when the node last met
	// it. The image has caught up once it is there, and stays so: absence from
	// it then means something.
	goal     int64
	caughtUp bool

	held    map[meta.SegmentKey][]segment.Held
	claimed map[meta.SegmentKey]bool

	works   map[meta.SegmentKey]*work
	queues  [efforts]*schedule.Queue[meta.SegmentKey] // but for uploads
	uploads *uploads
	running [efforts]int
	reports reports

	fullAt time.Duration
	now    time.Duration
	out    []Action
}

// fullEvery is how often everything is looked at.
const fullEvery = 30 * time.Second

// NewMachine returns the machine of a node that knows nothing yet but what its
// store holds.
func NewMachine(cfg MachineConfig, held []segment.Held) *Machine {
	cfg.FetchesMax = cmp.Or(cfg.FetchesMax, 4)
	cfg.RebuildsMax = cmp.Or(cfg.RebuildsMax, 1)
	cfg.UploadsMax = cmp.Or(cfg.UploadsMax, 4)
	m := &Machine{
		cfg: cfg, image: meta.Empty(),
		held: map[meta.SegmentKey][]segment.Held{}, claimed: map[meta.SegmentKey]bool{},
		works: map[meta.SegmentKey]*work{}, reports: newReports(),
	}
	m.uploads = newUploads(cfg.Node, cfg.UploadsMax)
	for e := range m.queues {
		m.queues[e] = schedule.New(meta.SegmentKey.Compare)
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
		m.imageChanged(ev)
	case StoreChanged:
		m.storeChanged(ev)
	case Claimed:
		m.claimed[ev.Segment] = true
		m.review(ev.Segment)
	case Unclaimed:
		delete(m.claimed, ev.Segment)
		m.review(ev.Segment)
	case UploadAsked:
		m.uploadAsked(ev)
	case FetchDone:
		m.fetchDone(ev)
	case RebuildDone:
		m.done(ev.Segment, rebuild, ev.Err)
	case UploadDone:
		m.uploadDone(ev)
	case RemoveDone:
		if k, ok := heldKey(ev.Held); ok {
			m.done(k, removal, ev.Err)
		}
	case ReportDone:
		m.reportDone(ev)
	case DownloadsFound:
		m.downloadsFound(ev.Downloads)
	case Tick:
		m.tick()
	}
	m.start()
	if ev, ok := ev.(UploadAsked); ok {
		m.do(m.uploadTold(ev))
	}
	m.report()
	return m.out
}

func (m *Machine) do(a Action) { m.out = append(m.out, a) }

// Busy counts what is under way.
func (m *Machine) Busy() int { return m.running[fetch] + m.running[rebuild] + m.running[upload] }

// Waiting counts the fetches and the uploads that wait for their turn or their
// next try.
func (m *Machine) Waiting() (fetches, uploads int) {
	return m.queues[fetch].Len(), len(m.uploads.entries)
}

// Uploads is how much there is to upload, and how that goes.
func (m *Machine) Uploads() UploadQueue { return m.uploads.stats() }

// registered begins a conversation with a leader: it is told again of everything
// that is held, and the image has to reach what it had written by then.
func (m *Machine) registered(ev Registered) {
	if ev.Incarnation != m.incarnation {
		m.reports.sequence = 0
	}
	if ev.Epoch != m.epoch || ev.Incarnation != m.incarnation {
		m.reports.begin()
		m.goal = ev.HighWatermark
	}
	m.incarnation, m.epoch = ev.Incarnation, ev.Epoch
	m.reports.retry.soon()
	m.lookWhetherCaughtUp()
	m.reviewAll()
}

// lookWhetherCaughtUp reports whether the image has just caught up.
func (m *Machine) lookWhetherCaughtUp() (now bool) {
	before := m.caughtUp
	m.caughtUp = m.incarnation != 0 && m.image.Next() >= m.goal && m.image.Epoch() >= m.epoch
	return m.caughtUp && !before
}

func (m *Machine) tick() {
	if m.now >= m.fullAt {
		m.fullAt = m.now + fullEvery
		m.reviewAll()
		m.uploads.tidy(m.image)
		if m.caughtUp {
			m.do(ListDownloads{})
		}
	}
}

func (m *Machine) imageChanged(ev ImageChanged) {
	before := m.image
	m.image = ev.Image
	for _, k := range ev.Touched {
		switch k.Kind {
		case meta.KindSegment, meta.KindTombstone:
			m.reviewChanged(meta.SegmentKey{Table: k.Table, Partition: k.Partition, Seq: k.Num})
		case meta.KindNode:
			if changedForCopies(before.Node(k.Name), m.image.Node(k.Name)) {
				m.reviewNode(k.Name)
			}
		}
	}
	if m.lookWhetherCaughtUp() || ev.Touched == nil {
		m.reviewAll()
	}
}

// changedForCopies tells the changes of a node's record by which its copies begin
// or cease to count, or to be found, from the many by which they do not: the
// record changes with every report.
func changedForCopies(before, after *meta.Node) bool {
	if before == nil || after == nil {
		return before != after
	}
	return before.State != after.State || before.StoreID != after.StoreID || before.URL != after.URL
}

// reviewNode looks at the segments whose copies on a node changed what they are
// worth.
func (m *Machine) reviewNode(node string) {
	for s := range m.image.SegmentsNaming(node) {
		m.reviewChanged(s.SegmentKey())
	}
}

// reviewChanged looks at a segment of which something changed elsewhere: perhaps
// there is a source now.
func (m *Machine) reviewChanged(k meta.SegmentKey) {
	if w := m.works[k]; w != nil {
		w.tries[fetch].soon()
	}
	m.review(k)
}

// reviewAll looks at every segment that the node has to do with, in any way: those
// that name it, in their order, and then, in theirs, whatever else is held, under
// way or to be told.
func (m *Machine) reviewAll() {
	for s := range m.image.SegmentsNaming(m.cfg.Node) {
		m.review(s.SegmentKey())
	}
	others := map[meta.SegmentKey]struct{}{}
	note := func(k meta.SegmentKey) {
		s := m.image.Segment(k)
		if s == nil || !slices.Contains(s.Replicas, m.cfg.Node) && s.NodeLocation(m.cfg.Node) == nil {
			others[k] = struct{}{}
		}
	}
	for k := range m.held {
		note(k)
	}
	for k := range m.works {
		note(k)
	}
	for k := range m.reports.all() {
		note(k)
	}
	for _, k := range slices.SortedFunc(maps.Keys(others), meta.SegmentKey.Compare) {
		m.review(k)
	}
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
