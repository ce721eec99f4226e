package node

import (
	"cmp"
	"time"

	"github.com/google/uuid"
	"github.com/tidwall/btree"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/schedule"
	"github.com/shoalstore/shoal/meta"
)

// uploads is the queue of what this node has to put into deep stores. It is kept
// nowhere: what the image lacks is what waits. Of what is due the riskiest goes
// first, and one that the leader has asked for before that.
//
// A table whose store is away, or never answers, cannot take all the room: a table
// begins with one upload at a time, has all but one slot once one has succeeded, and
// has one again after one that failed, with a rest before it. All tables that fail
// leave one slot to the others.
type uploads struct {
	node    string // tells its waits from other nodes'
	most    int
	waiting *schedule.Queue[meta.SegmentKey] // for their next try
	entries map[meta.SegmentKey]uploadEntry
	byAge   *btree.BTreeG[aged] // all entries
	bytes   int64               // of all entries
	tables  map[uuid.UUID]*tableUploads
	running map[meta.SegmentKey]bool
	results *uploadResults
}

// uploadEntry is a segment in the queue.
type uploadEntry struct {
	risk  meta.Risk
	asked bool
	bytes int64
	ready bool // it is due, and among its table's
}

type aged struct {
	committed int64
	key       meta.SegmentKey
}

// readyUpload is one that is due.
type readyUpload struct {
	asked bool
	risk  meta.Risk
	key   meta.SegmentKey
}

func (a readyUpload) compare(b readyUpload) int {
	if a.asked != b.asked {
		if a.asked {
			return -1
		}
		return 1
	}
	return cmp.Or(a.risk.Compare(b.risk), a.key.Compare(b.key))
}

// tableUploads are those of one table.
type tableUploads struct {
	ready   *btree.BTreeG[readyUpload]
	queued  int // ready or not
	running int
	proven  bool // the last upload succeeded
	failing bool // it failed
	wait    time.Duration
	due     time.Duration // of the next one, while they fail
	tries   int64         // that failed, for the jitter
}

// tablePace is how long a table rests whose uploads fail: its store may be away, and
// each segment has its own back-off beside.
var tablePace = schedule.BackOff{Min: time.Second, Max: 30 * time.Second}

func newUploads(node string, most int) *uploads {
	return &uploads{
		node: node, most: most, waiting: schedule.New(meta.SegmentKey.Compare),
		entries: map[meta.SegmentKey]uploadEntry{}, tables: map[uuid.UUID]*tableUploads{}, running: map[meta.SegmentKey]bool{},
		byAge: btree.NewBTreeGOptions(func(a, b aged) bool {
			return cmp.Or(cmp.Compare(a.committed, b.committed), a.key.Compare(b.key)) < 0
		}, btree.Options{NoLocks: true}),
		results: newUploadResults(),
	}
}

func (u *uploads) table(id uuid.UUID) *tableUploads {
	t := u.tables[id]
	if t == nil {
		less := func(a, b readyUpload) bool { return a.compare(b) < 0 }
		t = &tableUploads{ready: btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})}
		u.tables[id] = t
	}
	return t
}

// set queues a segment, due from a moment on, or renews what is known of it.
func (u *uploads) set(now time.Duration, k meta.SegmentKey, due time.Duration, e uploadEntry) {
	e.ready = due <= now
	if old, queued := u.entries[k]; queued {
		if e == old && (e.ready || u.waiting.Is(k, due)) {
			return
		}
		u.remove(k)
	}
	u.entries[k] = e
	u.bytes += e.bytes
	u.table(k.Table).queued++
	u.byAge.Set(aged{e.risk.Committed, k})
	if e.ready {
		u.table(k.Table).ready.Set(readyUpload{e.asked, e.risk, k})
	} else {
		u.waiting.Set(k, due)
	}
}

// remove takes a segment out of the queue.
func (u *uploads) remove(k meta.SegmentKey) {
	e, queued := u.entries[k]
	if !queued {
		return
	}
	delete(u.entries, k)
	u.bytes -= e.bytes
	u.table(k.Table).queued--
	u.byAge.Delete(aged{e.risk.Committed, k})
	if e.ready {
		u.table(k.Table).ready.Delete(readyUpload{e.asked, e.risk, k})
	} else {
		u.waiting.Remove(k)
	}
}

// next is what is to be started now, if there is room, and leaves it in.
func (u *uploads) next(now time.Duration) (k meta.SegmentKey, ok bool) {
	for {
		due, ok := u.waiting.Due(now)
		if !ok {
			break
		}
		u.waiting.Remove(due)
		e := u.entries[due]
		e.ready = true
		u.entries[due] = e
		u.table(due.Table).ready.Set(readyUpload{e.asked, e.risk, due})
	}
	if len(u.running) >= u.most {
		return k, false
	}
	failing := 0
	for _, t := range u.tables {
		if t.failing {
			failing += t.running
		}
	}
	var best readyUpload
	for _, t := range u.tables { // the order does not matter: no two are equal
		first, any := t.ready.Min()
		if any && u.mayStart(now, t, failing) && (!ok || first.compare(best) < 0) {
			best, ok = first, true
		}
	}
	return best.key, ok
}

// mayStart reports whether a table may have one more under way.
func (u *uploads) mayStart(now time.Duration, t *tableUploads, failing int) bool {
	allButOne := max(1, u.most-1)
	switch {
	case t.failing:
		return t.running == 0 && now >= t.due && failing < allButOne
	case t.proven:
		return t.running < allButOne
	}
	return t.running == 0
}

func (u *uploads) began(k meta.SegmentKey) {
	u.running[k] = true
	u.table(k.Table).running++
}

// ended takes the result of an upload. That there are other bytes under a segment's
// key is no word against the store: else a few such segments, which are tried again
// for ever and are older than others, would keep those from ever being tried.
func (u *uploads) ended(now time.Duration, ev UploadDone) {
	k, err := ev.Segment, ev.Err
	delete(u.running, k)
	t := u.table(k.Table)
	t.running--
	if err != nil {
		u.results.failed(now, ev)
	}
	if err == nil || ev.Different {
		t.proven, t.failing, t.wait = true, false, 0
		return
	}
	t.proven, t.failing = false, true
	t.tries++
	t.wait = tablePace.Next(t.wait)
	t.due = now + schedule.Jitter(t.wait, schedule.Seed([]byte(u.node+string(k.Table[:])), t.tries))
}

// jitter shortens the wait of a segment's next try.
func (u *uploads) jitter(now time.Duration, k meta.SegmentKey, wait time.Duration) time.Duration {
	return schedule.Jitter(wait, schedule.Seed([]byte(u.node+string(k.Table[:])), int64(k.Partition), k.Seq, int64(now)))
}

// tidy drops what is remembered of tables that are gone.
func (u *uploads) tidy(im *meta.Image) {
	for id, t := range u.tables {
		if im.Table(id) == nil && t.running == 0 && t.queued == 0 {
			delete(u.tables, id)
		}
	}
}

// UploadQueue is how much a node has to upload, and how that goes.
type UploadQueue struct {
	Waiting, Running int
	WaitingBytes     int64
	// Oldest is when the first of those that wait was committed, ms, 0 without any.
	Oldest int64
	// FailingTables are those whose last upload failed and that have more to upload. Of
	// one that has not, others may have uploaded what this node could not: it would
	// look as if its store were away for as long as this node commits nothing of it.
	FailingTables int
}

func (u *uploads) stats() UploadQueue {
	q := UploadQueue{Waiting: len(u.entries), Running: len(u.running), WaitingBytes: u.bytes}
	if first, any := u.byAge.Min(); any {
		q.Oldest = first.committed
	}
	for _, t := range u.tables {
		if t.failing && t.queued+t.running > 0 {
			q.FailingTables++
		}
	}
	return q
}

// uploadResults are the failures of the segments that failed last, bounded.
type uploadResults struct {
	of    map[meta.SegmentKey]*uploadResult
	order []meta.SegmentKey // by first failure
}

type uploadResult struct {
	failures int
	err      string
	at       time.Duration

	different bool
}

// uploadResultsMax bounds the segments of which failures are remembered.
const uploadResultsMax = 4096

func newUploadResults() *uploadResults {
	return &uploadResults{of: map[meta.SegmentKey]*uploadResult{}}
}

func (r *uploadResults) failed(now time.Duration, ev UploadDone) {
	k := ev.Segment
	res := r.of[k]
	if res == nil {
		if len(r.order) == uploadResultsMax {
			delete(r.of, r.order[0])
			r.order = r.order[1:]
		}
		res = &uploadResult{}
		r.of[k] = res
		r.order = append(r.order, k)
	}
	res.failures, res.err, res.at, res.different = res.failures+1, ev.Err.Error(), now, ev.Different
}

// get returns what failed of a segment, nothing if nothing did.
func (r *uploadResults) get(k meta.SegmentKey) uploadResult {
	if res := r.of[k]; res != nil {
		return *res
	}
	return uploadResult{}
}

// uploadAsked has a segment uploaded by this node, whoever else does. What was asked
// before is asked once.
func (m *Machine) uploadAsked(ev UploadAsked) {
	if ev.Poll {
		return
	}
	w := m.work(ev.Segment)
	if !w.asked {
		w.asked = true
		w.tries[upload].soon()
	}
	m.review(ev.Segment)
}

// uploadTold is how far the upload of a segment is.
func (m *Machine) uploadTold(ev UploadAsked) UploadTold {
	told := UploadTold{Ticket: ev.Ticket, State: api.UploadNone}
	_, reporting := m.reports.uploads[ev.Segment]
	for _, up := range m.reports.sent.Uploaded {
		reporting = reporting || up.SegmentKey() == ev.Segment
	}
	_, queued := m.uploads.entries[ev.Segment]
	switch {
	case m.uploads.running[ev.Segment]:
		told.State = api.UploadRunning
	case m.inDeepStore(ev.Segment):
		told.State = api.UploadDone
	case reporting:
		told.State = api.UploadReported
	case queued:
		told.State = api.UploadWaiting
	}
	res := m.uploads.results.get(ev.Segment)
	told.Failures, told.LastError, told.LastAt, told.Different = res.failures, res.err, res.at, res.different
	return told
}

// inDeepStore reports whether the leader has verified a deep-store copy of a segment.
func (m *Machine) inDeepStore(k meta.SegmentKey) bool {
	if m.image == nil {
		return false
	}
	s := m.image.Segment(k)
	return s != nil && s.DeepStoreVerified()
}
