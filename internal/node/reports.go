package node

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/tidwall/btree"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

// tell is what the leader is to be told about the copy of a segment.
type tell uint8

const (
	tellNothing  tell = iota
	tellAdd           // it is held, durable and verified, and not listed
	tellWithdraw      // it is listed, and not held
	tellConfirm       // it is held and listed, and this leader has not heard it from us
)

// reportItems bounds one report. Each item changes a segment's record, and all of
// them are one batch of the leader's, which is bounded in bytes.
const reportItems = 500

// A report that got no answer is said again after tryMin, doubling up to this.
const reportRetryMax = 30 * time.Second

// reports is what the leader is still to be told, and what it was told.
type reports struct {
	sequence int64 // of the last report in this incarnation
	retry    try   // running: a report is under way
	most     int   // items in the next report: halved when one fails, in case it was too large

	// pending holds one item for each segment at most, by key.
	pending *btree.BTreeG[item]
	uploads map[meta.SegmentKey]meta.UploadRef
	// told are the copies that the leader of this epoch has heard of from this
	// incarnation, or is hearing of: it counts on no other when it grants a
	// release (DESIGN §4.5).
	told map[meta.SegmentKey]segment.Digest

	sent     meta.LocationReport // the one under way
	outdated bool                // it went to the leader before this one
}

type item struct {
	key    meta.SegmentKey
	tell   tell
	digest segment.Digest
}

func newReports() reports {
	less := func(a, b item) bool { return a.key.Compare(b.key) < 0 }
	return reports{
		most:    reportItems,
		pending: btree.NewBTreeGOptions(less, btree.Options{NoLocks: true}),
		uploads: map[meta.SegmentKey]meta.UploadRef{},
		told:    map[meta.SegmentKey]segment.Digest{},
	}
}

// begin starts a conversation with a leader that has heard nothing yet. What a
// report under way tells may have gone to the one before.
func (r *reports) begin() {
	clear(r.told)
	r.outdated = r.retry.running
}

// want says what is to be told about a segment from now on. A copy that comes back
// is another one than the leader was told of.
func (r *reports) want(k meta.SegmentKey, n need) {
	if !n.held {
		delete(r.told, k)
	}
	if n.tell == tellNothing {
		r.pending.Delete(item{key: k})
	} else {
		r.pending.Set(item{k, n.tell, n.digest})
	}
}

// all yields the segments of which something is to be told.
func (r *reports) all() iter.Seq[meta.SegmentKey] {
	return func(yield func(meta.SegmentKey) bool) {
		r.pending.Scan(func(it item) bool { return yield(it.key) })
	}
}

func copyRef(k meta.SegmentKey, d segment.Digest) meta.CopyRef {
	return meta.CopyRef{Table: k.Table, Partition: k.Partition, Seq: k.Seq, Digest: d}
}

// dropStaleUpload forgets an upload of which the leader needs to hear no more.
func (m *Machine) dropStaleUpload(k meta.SegmentKey) {
	up, ok := m.reports.uploads[k]
	if s := m.image.Segment(k); ok && (s == nil || s.Digest != up.Digest || s.DeepStoreVerified()) {
		delete(m.reports.uploads, k)
	}
}

// report sends the next report, if there is something to tell and none is under
// way. What it tells is taken out. What comes of it shows in the image; as long
// as that shows the difference, the next review puts it in again.
func (m *Machine) report() {
	r := &m.reports
	if m.incarnation == 0 || r.retry.running || m.now < r.retry.due || r.pending.Len()+len(r.uploads) == 0 {
		return
	}
	if n := m.image.Node(m.cfg.Node); n != nil && n.Incarnation == m.incarnation {
		r.sequence = max(r.sequence, n.LocationsSeq) // it would be ignored else
	}
	r.sequence++
	r.sent = meta.LocationReport{Node: m.cfg.Node, Incarnation: m.incarnation, StoreID: m.cfg.StoreID, Sequence: r.sequence}
	for range r.most {
		it, ok := r.pending.PopMin()
		if !ok {
			break
		}
		ref := copyRef(it.key, it.digest)
		switch it.tell {
		case tellAdd:
			r.sent.Add = append(r.sent.Add, ref)
			r.told[it.key] = it.digest
		case tellWithdraw:
			r.sent.Withdraw = append(r.sent.Withdraw, ref)
		case tellConfirm:
			r.sent.Confirm = append(r.sent.Confirm, ref)
			r.told[it.key] = it.digest
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(r.uploads), meta.SegmentKey.Compare) {
		if len(r.sent.Uploaded) == r.most {
			break
		}
		r.sent.Uploaded = append(r.sent.Uploaded, r.uploads[k])
		delete(r.uploads, k)
	}
	r.retry.running = true
	m.do(Report{Report: r.sent})
}

// reportDone: a report that got no answer is said again, whatever became of the
// first: it is idempotent, and what it said is judged anew, because a copy may
// have gone meanwhile. A verdict that refuses an item is not argued with; the
// next review sees what the image says then.
func (m *Machine) reportDone(ev ReportDone) {
	r := &m.reports
	if !r.retry.running || ev.Sequence != r.sent.Sequence {
		return
	}
	sent, heard := r.sent, ev.Err == nil && !ev.Verdicts.Ignored
	outdated := r.outdated
	r.sent, r.outdated, r.retry.running = meta.LocationReport{}, false, false
	switch {
	case heard:
		r.retry.soon()
		r.most = min(2*r.most, reportItems)
	case !outdated:
		r.retry.failed(m.now, reportRetryMax)
		r.most = max(r.most/2, 1)
	}
	if heard && !outdated {
		return
	}
	for _, up := range sent.Uploaded {
		if _, newer := r.uploads[up.SegmentKey()]; !newer {
			r.uploads[up.SegmentKey()] = up
		}
		m.review(up.SegmentKey())
	}
	for _, refs := range [][]meta.CopyRef{sent.Add, sent.Withdraw, sent.Confirm} {
		for _, ref := range refs {
			delete(r.told, ref.SegmentKey())
			m.review(ref.SegmentKey())
		}
	}
}
