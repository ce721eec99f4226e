package node

import (
	"maps"
	"slices"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

// reportItems bounds one report.
const reportItems = 1000

// reports is what the leader is still to be told.
type reports struct {
	sequence int64 // of the last report in this incarnation
	running  bool
	retry    try
	// confirmAll: a new epoch; everything that is held is confirmed once.
	confirmAll bool

	add      map[meta.SegmentKey]segment.Digest
	withdraw map[meta.SegmentKey]segment.Digest
	confirm  map[meta.SegmentKey]segment.Digest
	upload   map[meta.SegmentKey]meta.UploadRef
	sent     meta.LocationReport // the one under way
}

func newReports() reports {
	return reports{
		add: map[meta.SegmentKey]segment.Digest{}, withdraw: map[meta.SegmentKey]segment.Digest{},
		confirm: map[meta.SegmentKey]segment.Digest{}, upload: map[meta.SegmentKey]meta.UploadRef{},
	}
}

// begin starts a new incarnation: its sequence counts from one.
func (r *reports) begin() { r.sequence = 0 }

// want says whether the segment is to be added, or withdrawn.
func (r *reports) want(k meta.SegmentKey, d segment.Digest, add, withdraw bool) {
	set(r.add, k, d, add)
	set(r.withdraw, k, d, withdraw)
}

func set[V any](in map[meta.SegmentKey]V, k meta.SegmentKey, v V, there bool) {
	if there {
		in[k] = v
	} else {
		delete(in, k)
	}
}

func (r *reports) uploaded(k meta.SegmentKey, d segment.Digest, uri string) {
	r.upload[k] = meta.UploadRef{CopyRef: copyRef(k, d), URI: uri}
}

func (r *reports) forget(k meta.SegmentKey) {
	delete(r.add, k)
	delete(r.withdraw, k)
	delete(r.confirm, k)
	delete(r.upload, k)
}

func copyRef(k meta.SegmentKey, d segment.Digest) meta.CopyRef {
	return meta.CopyRef{Table: k.Table, Partition: k.Partition, Seq: k.Seq, Digest: d}
}

// take moves up to most of the items of a set into a list, in order.
func take(from map[meta.SegmentKey]segment.Digest, most int) []meta.CopyRef {
	var refs []meta.CopyRef
	for _, k := range slices.SortedFunc(maps.Keys(from), meta.SegmentKey.Compare) {
		if len(refs) == most {
			break
		}
		refs = append(refs, copyRef(k, from[k]))
		delete(from, k)
	}
	return refs
}

// report sends the next report, if there is something to tell and none is under
// way. What it tells is taken out; what the leader does not take in comes back
// with the next review, because the image still shows the difference.
func (m *Machine) report() {
	r := &m.reports
	if m.incarnation == 0 || r.running || m.now < r.retry.due {
		return
	}
	if r.confirmAll {
		r.confirmAll = false
		for k := range m.held {
			if s := m.image.Segment(k); s != nil && s.Status == meta.SegmentDone {
				if _, held := m.copyOf(k, s.Digest); held {
					r.confirm[k] = s.Digest
				}
			}
		}
	}
	if len(r.add)+len(r.withdraw)+len(r.confirm)+len(r.upload) == 0 {
		return
	}
	r.sequence++
	r.sent = meta.LocationReport{
		Node: m.cfg.Node, Incarnation: m.incarnation, StoreID: m.cfg.StoreID, Sequence: r.sequence,
		Add: take(r.add, reportItems), Withdraw: take(r.withdraw, reportItems), Confirm: take(r.confirm, reportItems),
	}
	for _, k := range slices.SortedFunc(maps.Keys(r.upload), meta.SegmentKey.Compare) {
		if len(r.sent.Uploaded) < reportItems {
			r.sent.Uploaded = append(r.sent.Uploaded, r.upload[k])
			delete(r.upload, k)
		}
	}
	r.running = true
	m.do(Report{Report: r.sent})
}

// reportDone: a report that got no answer is said again, whatever became of the
// first: it is idempotent. A verdict that refuses an item is not argued with;
// the review that follows sees what the image says now.
func (m *Machine) reportDone(ev ReportDone) {
	r := &m.reports
	if !r.running || ev.Sequence != r.sent.Sequence {
		return
	}
	r.running = false
	if ev.Err == nil {
		r.retry.wait, r.retry.due = 0, 0
		r.sent = meta.LocationReport{}
		return
	}
	r.retry.failed(m.now)
	for _, ref := range r.sent.Confirm {
		r.confirm[ref.SegmentKey()] = ref.Digest
	}
	for _, up := range r.sent.Uploaded {
		r.upload[up.SegmentKey()] = up
	}
	for _, refs := range [][]meta.CopyRef{r.sent.Add, r.sent.Withdraw} {
		for _, ref := range refs {
			m.review(ref.SegmentKey())
		}
	}
	r.sent = meta.LocationReport{}
}
