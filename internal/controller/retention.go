package controller

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/internal/schedule"
	"github.com/shoalstore/shoal/meta"
)

// RetentionTiming says how often retention looks for segments that are old
// enough, and what becomes of those that went. All of it is the leader's
// monotonic time, and begins anew with each leader.
type RetentionTiming struct {
	// Every is the time between two runs.
	Every time.Duration
	// Grace is how long after it learned of a tombstone the leader lets the
	// copies go: until then a segment that should not have gone can be saved.
	Grace time.Duration
	// Keep is how long an expired tombstone stays once its objects are deleted,
	// for nodes that were away. They delete their copies too; one that comes
	// back later sets them aside as orphans. At its end the objects are deleted
	// once more: an upload may have been late.
	Keep time.Duration
}

// DefaultRetention is the timing of a real leader.
var DefaultRetention = RetentionTiming{Every: time.Minute, Grace: 24 * time.Hour, Keep: 7 * 24 * time.Hour}

const (
	// expireShare: a run takes one in so many of a table's DONE segments, or one.
	expireShare = 10
	// expirePerBatch bounds the segments of one change.
	expirePerBatch = 100
	// clockSkewMax is how far the leader's wall clock may be from the median of the
	// nodes' when segments go by it.
	clockSkewMax = time.Minute
	// tombstonesPerBatch bounds the tombstones of one change.
	tombstonesPerBatch = 500
	// deletesMax bounds the tombstones whose objects are being deleted at once.
	deletesMax = 8
	// Objects that could not be deleted are tried again after a while that doubles.
	deleteRetryMin = time.Second
	deleteRetryMax = 10 * time.Minute
	// tombstoneRetry is when a change of tombstones that failed is tried again.
	tombstoneRetry = 10 * time.Second
)

// retention is what the leader knows of the runs under way and of tombstones.
type retention struct {
	timing  RetentionTiming
	next    time.Duration       // when the next run begins
	runs    map[tableID]*expiry // tables that the run is not done with
	blocked string              // why nothing goes

	// tombs are the tombstones of the image, each in one queue, unless it is busy.
	tombs    map[meta.SegmentKey]*tomb
	toExpire *schedule.Queue[meta.SegmentKey] // their grace is not over
	toDelete *schedule.Queue[meta.SegmentKey] // expired; their objects may be there, or again
	toRemove *schedule.Queue[meta.SegmentKey] // nothing is left to delete
	deletes  int                              // under way
	writing  bool                             // a change of tombstones is under way
}

// expiry is a table's part of a run. One change is under way at a time.
type expiry struct{ left int } // segments that it may still take

// tomb is a tombstone that the leader sees to the end.
type tomb struct {
	expired bool
	deleted bool          // its objects, once
	wait    time.Duration // before the last try that was put off
}

func newRetention(timing RetentionTiming) retention {
	queue := func() *schedule.Queue[meta.SegmentKey] { return schedule.New(meta.SegmentKey.Compare) }
	return retention{
		timing: timing, runs: map[tableID]*expiry{}, tombs: map[meta.SegmentKey]*tomb{},
		toExpire: queue(), toDelete: queue(), toRemove: queue(),
	}
}

// SetRetention gives the machine another timing than DefaultRetention, for tests
// and simulations. It is for a machine that does not lead.
func (m *Machine) SetRetention(t RetentionTiming) { m.retention = newRetention(t) }

// retain begins a run when one is due. A table whose last run is not over is left
// out of it.
func (m *Machine) retain() {
	r := &m.retention
	if m.now.Mono < r.next {
		return
	}
	r.next = m.now.Mono + r.timing.Every
	why := ""
	for t := range m.image.Tables() {
		if isRetained(t) {
			why = m.clockFault() // whether or not anything is old enough
			break
		}
	}
	m.block(why)
	for t := range m.image.Tables() {
		if r.blocked == "" && r.runs[t.ID] == nil {
			m.startExpiry(t)
		}
	}
}

// isRetained reports whether retention applies to the table: not to one that is
// being made, and not to one that goes as a whole.
func isRetained(t *meta.Table) bool {
	return t != nil && (t.State == meta.TableActive || t.State == meta.TablePaused)
}

// block says why nothing goes, or with an empty text that nothing is in the way.
func (m *Machine) block(why string) {
	if m.retention.blocked != why {
		m.retention.blocked = why
		m.do(RetentionBlocked{Why: why})
	}
}

// clockFault says what speaks against going by the leader's wall clock, or
// nothing. It has to agree with the median of the clocks of the nodes that are UP
// and were heard of just now; of an even number, with both in the middle. What has
// passed since a heartbeat is added to the clock in it, so that a clock which was
// set meanwhile is seen.
func (m *Machine) clockFault() string {
	var skews []time.Duration
	for n := range m.image.Nodes() {
		b := m.live.heard[n.ID]
		if n.State != meta.NodeUp || !b.received || m.now.Mono-b.at > heartbeatTimeout {
			continue
		}
		skews = append(skews, milliseconds(m.now.Wall-b.WallClock-(m.now.Mono-b.at).Milliseconds()))
	}
	if len(skews) == 0 {
		return "no node that is UP was heard of: there is no clock to compare the leader's with"
	}
	slices.Sort(skews)
	for _, skew := range []time.Duration{skews[(len(skews)-1)/2], skews[len(skews)/2]} {
		if skew.Abs() > clockSkewMax {
			return fmt.Sprintf("the leader's clock is %s off the median of %d nodes' clocks", skew.Round(time.Second), len(skews))
		}
	}
	return ""
}

// milliseconds is a span of so many, a century at most: clocks of nodes may say
// anything.
func milliseconds(ms int64) time.Duration {
	const century = 100 * 365 * 24 * time.Hour
	most := century.Milliseconds()
	return time.Duration(min(max(ms, -most), most)) * time.Millisecond
}

// startExpiry begins a table's part of a run, if anything is old enough.
func (m *Machine) startExpiry(t *meta.Table) {
	if _, n := m.oldest(t, 1); n == 0 {
		return
	}
	done := 0
	for s := range m.image.TableSegments(t.ID) {
		if s.Status == meta.SegmentDone {
			done++
		}
	}
	m.retention.runs[t.ID] = &expiry{left: max(1, done/expireShare)}
	m.expireNext(t)
}

// expireNext has the next batch of a table's oldest segments removed, or ends its
// part of the run. The clock is looked at again each time.
func (m *Machine) expireNext(t *meta.Table) {
	run := m.retention.runs[t.ID]
	m.block(m.clockFault())
	through, n := m.oldest(t, min(run.left, expirePerBatch))
	if n == 0 || m.retention.blocked != "" {
		delete(m.retention.runs, t.ID)
		return
	}
	run.left -= n
	var changes []meta.Func
	for p := range m.image.Partitions(t.ID) {
		if seq, ok := through[p.Partition]; ok {
			changes = append(changes, meta.ExpireSegments(p.PartitionKey(), seq, m.now.Wall, deepstore.DataKey))
		}
	}
	e := effect{purpose: forExpiry, id: t.ID, gone: new(int)}
	m.write(e, fmt.Sprintf("retention takes %d segments of %s", n, t.Name), counted(together(changes), e.gone))
}

// oldest finds up to n segments of the table that are past its age, the longest
// committed first, and none that has an older one left before it: for each
// partition the last one to go, and how many there are.
func (m *Machine) oldest(t *meta.Table, n int) (through map[int32]int64, found int) {
	cfg := m.image.CurrentConfig(t.ID)
	if !isRetained(t) || cfg == nil || cfg.Retention.Age <= 0 {
		return nil, 0
	}
	heads := schedule.New(cmp.Compare[int32]) // by when the oldest that is left was committed
	seqs := map[int32]int64{}                 // of those
	next := func(partition int32, from int64) {
		for s := range m.image.SegmentsFrom(t.ID, partition, from) {
			if s.Status != meta.SegmentInProgress && s.IsOlderThan(time.Duration(cfg.Retention.Age), m.now.Wall) {
				seqs[partition] = s.Seq
				heads.Set(partition, time.Duration(s.Times.Committed))
			}
			return
		}
	}
	for p := range m.image.Partitions(t.ID) {
		next(p.Partition, math.MinInt64)
	}
	through = map[int32]int64{}
	for found < n {
		p, ok := heads.Due(math.MaxInt64)
		if !ok {
			break
		}
		heads.Remove(p)
		through[p] = seqs[p]
		found++
		next(p, seqs[p]+1)
	}
	return through, found
}

// counted notes how many records a change removes.
func counted(fn meta.Func, removed *int) meta.Func {
	return func(im *meta.Image, now int64) (meta.Change, error) {
		c, err := fn(im, now)
		*removed = len(c.Removals)
		return c, err
	}
}

// expiryWrote goes on with a table, or leaves it to the next run.
func (m *Machine) expiryWrote(e effect, ev Wrote) {
	t := m.image.Table(e.id)
	if ev.Outcome == commit.Written && t != nil && *e.gone > 0 {
		m.do(Expired{Table: t.Name, Segments: *e.gone})
	}
	if ev.Outcome == commit.Written && t != nil && m.retention.runs[e.id].left > 0 {
		m.expireNext(t)
		return
	}
	delete(m.retention.runs, e.id)
}

// reviewTombstone takes up a tombstone: its grace begins when the leader learns
// of it, and what follows when it learns that the grace is over.
func (m *Machine) reviewTombstone(t *meta.Tombstone) {
	r, k := &m.retention, t.SegmentKey()
	w := r.tombs[k]
	switch {
	case w == nil && !t.Expired:
		r.tombs[k] = &tomb{}
		r.toExpire.Set(k, m.now.Mono+r.timing.Grace)
	case w == nil:
		r.tombs[k] = &tomb{expired: true}
		r.toDelete.Set(k, m.now.Mono)
	case t.Expired && !w.expired:
		w.expired = true
		r.toExpire.Remove(k)
		r.toDelete.Set(k, m.now.Mono)
	}
}

// forgetTombstone drops one that the image does not have any more. Objects that
// are being deleted come back to nothing.
func (m *Machine) forgetTombstone(k meta.SegmentKey) {
	delete(m.retention.tombs, k)
	m.retention.toExpire.Remove(k)
	m.retention.toDelete.Remove(k)
	m.retention.toRemove.Remove(k)
}

// workTombstones takes the next step of those that are due, while there is room.
func (m *Machine) workTombstones() {
	r := &m.retention
	for r.deletes < deletesMax {
		k, ok := r.toDelete.Due(m.now.Mono)
		if !ok {
			break
		}
		m.startDelete(k)
	}
	if keys := r.takeDue(r.toExpire, m.now.Mono); len(keys) > 0 {
		m.writeTombstones(forGrace, fmt.Sprintf("%d tombstones expire", len(keys)), keys, meta.ExpireTombstones(keys))
	}
	if keys := r.takeDue(r.toRemove, m.now.Mono); len(keys) > 0 {
		m.writeTombstones(forRemoval, fmt.Sprintf("%d tombstones go", len(keys)), keys, meta.RemoveTombstones(keys))
	}
}

// takeDue takes the tombstones that are due out of a queue, a batch at most, and
// none while a change is under way.
func (r *retention) takeDue(q *schedule.Queue[meta.SegmentKey], now time.Duration) (keys []meta.SegmentKey) {
	for !r.writing && len(keys) < tombstonesPerBatch {
		k, ok := q.Due(now)
		if !ok {
			break
		}
		q.Remove(k)
		keys = append(keys, k)
	}
	return keys
}

func (m *Machine) writeTombstones(p purpose, what string, keys []meta.SegmentKey, fn meta.Func) {
	m.retention.writing = true
	m.write(effect{purpose: p, segments: keys}, what, fn)
}

// tombstonesWrote goes by what the image says now, which may be more than what is
// known of the write.
func (m *Machine) tombstonesWrote(e effect) {
	r := &m.retention
	r.writing = false
	for _, k := range e.segments {
		switch t := m.image.Tombstone(k); {
		case t == nil:
			m.forgetTombstone(k)
		case e.purpose == forRemoval:
			r.toRemove.Set(k, m.now.Mono+tombstoneRetry)
		case t.Expired:
			m.reviewTombstone(t)
		default:
			r.toExpire.Set(k, m.now.Mono+tombstoneRetry)
		}
	}
}

// startDelete has the objects of an expired tombstone deleted: those that it names,
// in the store that its table has now, or had when it was deleted. Objects in a store
// that the table had before are left alone: the leader does not know it any more.
func (m *Machine) startDelete(k meta.SegmentKey) {
	r := &m.retention
	r.toDelete.Remove(k)
	t := m.image.Tombstone(k)
	if t == nil {
		m.forgetTombstone(k)
		return
	}
	store := t.Store
	if cfg := m.image.CurrentConfig(k.Table); store == "" && cfg != nil && cfg.DeepStore != nil {
		store = cfg.DeepStore.URI
	}
	var keys []string
	for _, key := range t.DeepStoreKeys {
		switch claimOf(m.image, key) {
		case unclaimed:
			keys = append(keys, key)
		case undecided:
			r.toDelete.Set(k, m.now.Mono+deleteRetryMax)
			return
		}
	}
	if store == "" || len(keys) == 0 {
		r.nothingLeft(k, m.now.Mono)
		return
	}
	r.deletes++
	m.do(DeleteDeepStore{ID: m.begin(effect{purpose: forDelete, segment: k}), Store: store, Keys: keys})
}

// deleted takes the store's answer. One that is unclear is asked for again.
func (m *Machine) deleted(e effect, ev Deleted) {
	r := &m.retention
	r.deletes--
	w := r.tombs[e.segment]
	switch {
	case w == nil: // forgotten meanwhile
	case ev.Err != nil:
		w.wait = min(max(2*w.wait, deleteRetryMin), deleteRetryMax)
		r.toDelete.Set(e.segment, m.now.Mono+w.wait)
	default:
		w.wait = 0
		r.nothingLeft(e.segment, m.now.Mono)
	}
}

// nothingLeft says that a tombstone has nothing left to delete in the deep store:
// it stays for a while and is looked at once more, or goes.
func (r *retention) nothingLeft(k meta.SegmentKey, now time.Duration) {
	if w := r.tombs[k]; !w.deleted {
		w.deleted = true
		r.toDelete.Set(k, now+r.timing.Keep)
		return
	}
	r.toRemove.Set(k, now)
}
