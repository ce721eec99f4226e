package meta

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/segment"
)

// CopyRef names a copy of a segment in the store of the node that reports it.
type CopyRef struct {
	Table     uuid.UUID      `json:"tableId"`
	Partition int32          `json:"partition"`
	Seq       int64          `json:"seq"`
	Digest    segment.Digest `json:"digest,omitzero"`
}

// SegmentKey returns which segment the copy is of.
func (c CopyRef) SegmentKey() SegmentKey { return SegmentKey{c.Table, c.Partition, c.Seq} }

// LocationReport is the body of POST /locations (DESIGN §4.1).
type LocationReport struct {
	Node        string    `json:"node"`
	Incarnation int64     `json:"incarnation"`
	StoreID     uuid.UUID `json:"storeId"`
	// Sequence rises with each report of an incarnation, from 1.
	Sequence int64     `json:"sequence"`
	Add      []CopyRef `json:"add,omitempty"`      // durable and verified
	Withdraw []CopyRef `json:"withdraw,omitempty"` // gone or damaged; a zero digest means whatever it was
	Release  []CopyRef `json:"release,omitempty"`  // may I delete it?
	// Confirm says what the node holds. It goes into the leader's memory and
	// not into the image: Locations does not look at it.
	Confirm []CopyRef `json:"confirm,omitempty"`
	// Uploaded says what the node has put into the deep store. The leader looks
	// for itself before that becomes a location: Locations does not look at it.
	Uploaded []UploadRef `json:"uploaded,omitempty"`
}

// UploadRef names an object that a node has uploaded.
type UploadRef struct {
	CopyRef
	URI string `json:"uri"`
}

// Verdict is the answer to one item of a report. Accepted means that the image
// now says what the item asked for: the location is there, or it is not; for a
// release, that the bytes may go. Otherwise Code says why not.
type Verdict struct {
	Accepted bool   `json:"accepted"`
	Code     string `json:"code,omitempty"`
}

// LocationVerdicts answer a report, item by item in its order.
type LocationVerdicts struct {
	// Ignored says that the sequence was not higher than the last one: nothing
	// was done, and the verdicts say what is so anyway.
	Ignored  bool      `json:"ignored,omitempty"`
	Add      []Verdict `json:"add,omitempty"`
	Withdraw []Verdict `json:"withdraw,omitempty"`
	Release  []Verdict `json:"release,omitempty"`
}

// Locations does what the report asks for, and moves the node's locationsSeq in
// the same batch. confirmed says whether a copy was confirmed in this epoch: by
// its holder, or by the leader's HEAD for one in the deep store; it is called
// only while the function is evaluated. The verdicts are stored in *out then,
// and are to be sent once the change is committed.
//
// A release is granted (DESIGN §4.5) if at least min(replication, 2) other
// counted and confirmed copies stay, or past the table's localAge a confirmed
// deep-store copy. It is judged in the same way when the location is not there,
// as after a lost answer: what was true then need not be true now.
func Locations(r *LocationReport, confirmed func(Location, SegmentKey) bool, out *LocationVerdicts) Func {
	return func(im *Image, now int64) (Change, error) {
		if refused := im.checkSender(r.Node, r.Incarnation, r.StoreID); refused != nil {
			return Change{}, refused
		}
		node := im.Node(r.Node)
		l := locator{
			im: im, report: r, confirmed: confirmed, now: now,
			ignored: r.Sequence <= node.LocationsSeq, changed: map[SegmentKey]*Segment{},
		}
		*out = LocationVerdicts{
			Ignored:  l.ignored,
			Add:      each(r.Add, l.add),
			Withdraw: each(r.Withdraw, l.withdraw),
			Release:  each(r.Release, l.release),
		}
		if l.ignored {
			return Change{}, nil
		}
		node = node.Clone()
		node.LocationsSeq = r.Sequence
		c := Change{Upserts: []Record{node}}
		for _, k := range l.order {
			s := l.changed[k]
			s.LeaderEpoch = im.leaderEpoch()
			s.Times.LastLocation = now
			noteCopies(im, s, now)
			c.Upserts = append(c.Upserts, s)
		}
		return c, nil
	}
}

func each(refs []CopyRef, judge func(CopyRef) Verdict) []Verdict {
	var vs []Verdict
	for _, ref := range refs {
		vs = append(vs, judge(ref))
	}
	return vs
}

// locator judges the items of one report.
type locator struct {
	im        *Image
	report    *LocationReport
	confirmed func(Location, SegmentKey) bool
	now       int64
	ignored   bool // judge, but change nothing
	changed   map[SegmentKey]*Segment
	order     []SegmentKey
}

// segment returns the record as the items before have left it, or nil.
func (l *locator) segment(k SegmentKey) *Segment {
	if s := l.changed[k]; s != nil {
		return s
	}
	return l.im.Segment(k)
}

// change returns the record for changing.
func (l *locator) change(s *Segment) *Segment {
	k := s.SegmentKey()
	if c := l.changed[k]; c != nil {
		return c
	}
	c := s.Clone()
	l.changed[k] = c
	l.order = append(l.order, k)
	return c
}

func (l *locator) add(ref CopyRef) Verdict {
	s := l.segment(ref.SegmentKey())
	if v := mismatch(s, ref); !v.Accepted {
		return v
	}
	if loc := s.NodeLocation(l.report.Node); loc != nil && loc.StoreID == l.report.StoreID {
		return Verdict{Accepted: true}
	}
	if l.ignored {
		return Verdict{Code: CodeStaleSequence}
	}
	s = l.change(s)
	s.drop(l.report.Node) // of a store that it had before
	s.Locations = append(s.Locations, Location{Node: l.report.Node, StoreID: l.report.StoreID, Since: l.now})
	return Verdict{Accepted: true}
}

func (l *locator) withdraw(ref CopyRef) Verdict {
	s := l.segment(ref.SegmentKey())
	switch {
	case s == nil || s.NodeLocation(l.report.Node) == nil:
		return Verdict{Accepted: true}
	case !ref.Digest.IsZero() && ref.Digest != s.Digest:
		return Verdict{Accepted: true} // of an earlier generation, not listed
	case l.ignored:
		return Verdict{Code: CodeStaleSequence}
	}
	l.change(s).drop(l.report.Node)
	return Verdict{Accepted: true}
}

func (l *locator) release(ref CopyRef) Verdict {
	s := l.segment(ref.SegmentKey())
	if v := mismatch(s, ref); !v.Accepted {
		return v
	}
	listed := s.NodeLocation(l.report.Node) != nil
	switch {
	case !l.expendable(s):
		return Verdict{Code: CodeTooFewCopies}
	case listed && l.ignored:
		return Verdict{Code: CodeStaleSequence}
	case listed:
		l.change(s).drop(l.report.Node)
	}
	return Verdict{Accepted: true}
}

// expendable reports whether enough other copies stay without the node's.
func (l *locator) expendable(s *Segment) bool {
	counted := CountedCopies(l.im, s)
	others := func(copies []Location) (n int) {
		for _, c := range copies {
			if (c.URI != "" || c.Node != l.report.Node) && l.confirmed(c, s.SegmentKey()) {
				n++
			}
		}
		return n
	}
	nodes, deep := others(counted.Nodes), others(counted.DeepStore)
	return nodes+deep >= min(Replication(l.im, s), 2) || deep > 0 && l.pastLocalAge(s)
}

// pastLocalAge reports whether the table lets nodes drop the segment by its age.
func (l *locator) pastLocalAge(s *Segment) bool {
	cfg := l.im.CurrentConfig(s.Table)
	if cfg == nil || cfg.Retention.LocalAge <= 0 || s.Times.Committed == 0 {
		return false
	}
	age := time.Duration(l.now-s.Times.Committed) * time.Millisecond
	return age > time.Duration(cfg.Retention.LocalAge)
}

// mismatch accepts a copy that is of a DONE segment and has its digest.
func mismatch(s *Segment, ref CopyRef) Verdict {
	switch {
	case s == nil:
		return Verdict{Code: CodeUnknownSegment}
	case s.Status != SegmentDone:
		return Verdict{Code: CodeNotDone}
	case s.Digest != ref.Digest:
		return Verdict{Code: CodeDigestDiffers}
	}
	return Verdict{Accepted: true}
}

// drop removes the node's locations.
func (s *Segment) drop(node string) {
	s.Locations = trimmed(slices.DeleteFunc(s.Locations, func(l Location) bool { return l.Node == node && l.URI == "" }))
}
