package meta

import (
	"fmt"
	"iter"

	"github.com/google/uuid"
)

// Violation is a rule that an image breaks.
type Violation struct {
	// Rule is the invariant of DESIGN §9 ("I1"), or "batch" or "structure".
	Rule   string
	Key    Key // of the record that shows it, zero if none does
	Detail string
}

func (v Violation) String() string {
	if v.Key == (Key{}) {
		return v.Rule + ": " + v.Detail
	}
	return v.Rule + ": " + v.Key.String() + ": " + v.Detail
}

func violation(rule string, k Key, format string, args ...any) Violation {
	return Violation{Rule: rule, Key: k, Detail: fmt.Sprintf(format, args...)}
}

func broken(rule string, k Key, format string, args ...any) *InvariantError {
	return &InvariantError{violation(rule, k, format, args...)}
}

// CheckInvariants returns every rule that the image breaks, in the order of its
// records: the tiling of each partition (I1), and what must hold between
// records of different kinds. What only two images in succession can break (I2,
// I5) is checked by Apply. It reads the whole image.
func CheckInvariants(im *Image) []Violation { return im.check(true) }

// check is CheckInvariants, without the segments if they are known to be as they should.
func (im *Image) check(segments bool) (found []Violation) {
	for t := range im.Tables() {
		found = append(found, im.checkTable(t)...)
	}
	for _, c := range im.configs.all() {
		if im.Table(c.Table) == nil {
			found = append(found, violation("structure", c.Key(), "of a table that does not exist"))
		}
	}
	for _, p := range im.partitions.all() {
		if im.Table(p.Table) == nil {
			found = append(found, violation("structure", p.Key(), "of a table that does not exist"))
		}
		found = append(found, im.checkPartition(p)...)
	}
	if segments {
		for s, next := range im.segmentPairs() {
			p := im.Partition(s.Table, s.Partition)
			if p == nil {
				found = append(found, violation("structure", s.Key(), "of a partition that does not exist"))
			}
			found = append(found, im.checkSegment(p, s, next)...)
		}
	}
	for t := range im.Tombstones() {
		if im.Segment(t.SegmentKey()) != nil {
			found = append(found, violation("structure", t.Key(), "the segment exists"))
		}
		if p := im.Partition(t.Table, t.Partition); p != nil && t.Seq >= p.NextSeq {
			found = append(found, violation("structure", t.Key(), "of a segment that never was: nextSeq is %d", p.NextSeq))
		}
	}
	return found
}

func (im *Image) checkTable(t *Table) (found []Violation) {
	if other := im.TableByName(t.Name); other != t {
		found = append(found, violation("structure", t.Key(), "its name, ignoring case, is also that of %q", other.Name))
	}
	if im.TableConfig(t.ID, t.ConfigVersion) == nil {
		found = append(found, violation("structure", t.Key(), "its config version %d does not exist", t.ConfigVersion))
	}
	return found
}

// checkPartition checks the partition's state against its last segments. A
// table that is being deleted is in pieces, and only that.
func (im *Image) checkPartition(p *Partition) (found []Violation) {
	if t := im.Table(p.Table); t != nil && t.State == TableDeleting {
		return nil
	}
	fault := func(format string, args ...any) {
		found = append(found, violation("I1", p.Key(), format, args...))
	}
	last := im.LastSegment(p.PartitionKey())
	if last != nil && last.Seq >= p.NextSeq {
		fault("segment %d exists, nextSeq is %d", last.Seq, p.NextSeq)
	}
	done := last
	switch current := im.InProgress(p.PartitionKey()); {
	case !p.State.consumes() && current != nil:
		fault("%s, but segment %d is IN_PROGRESS", p.State, current.Seq)
	case p.State.consumes() && current == nil:
		fault("%s without a segment IN_PROGRESS", p.State)
	case current != nil:
		done = im.before(current.SegmentKey())
		if current.StreamEpoch == p.StreamEpoch && !p.continues(p.NextOffset, current.Start) {
			fault("segment %d starts at %d, nextOffset is %d", current.Seq, current.Start, p.NextOffset)
		}
	}
	switch {
	case done == nil:
		if !p.continues(p.FirstRetained, p.NextOffset) {
			fault("no segment in [%d, %d)", p.FirstRetained, p.NextOffset)
		}
	case done.StreamEpoch == p.StreamEpoch && done.Status != SegmentInProgress && !p.continues(done.End, p.NextOffset):
		fault("segment %d ends at %d, nextOffset is %d", done.Seq, done.End, p.NextOffset)
	}
	if first := im.after(p.PartitionKey().Segment(-1)); first != nil && first.StreamEpoch == p.StreamEpoch &&
		!p.continues(p.FirstRetained, first.Start) {
		fault("segment %d starts at %d, firstRetained is %d", first.Seq, first.Start, p.FirstRetained)
	}
	return found
}

// segmentPairs yields every segment with the one that follows in its partition, nil for
// the last.
func (im *Image) segmentPairs() iter.Seq2[*Segment, *Segment] {
	return func(yield func(s, next *Segment) bool) {
		var s *Segment
		for k, next := range im.segments.all() {
			following := next
			if s != nil && s.SegmentKey().PartitionKey() != k.PartitionKey() {
				following = nil
			}
			if s != nil && !yield(s, following) {
				return
			}
			s = next
		}
		if s != nil {
			yield(s, nil)
		}
	}
}

// checkSegment checks the segment of a partition, and that its successor, nil for none,
// continues it.
func (im *Image) checkSegment(p *Partition, s, next *Segment) (found []Violation) {
	fault := func(rule, format string, args ...any) {
		found = append(found, violation(rule, s.Key(), format, args...))
	}
	switch s.Status {
	case SegmentInProgress:
		if len(s.Locations) > 0 {
			fault("structure", "IN_PROGRESS with locations")
		}
	case SegmentDone, SegmentLost:
		if s.End <= s.Start {
			fault("I1", "covers nothing: [%d, %d)", s.Start, s.End)
		}
		if s.Digest.IsZero() {
			fault("structure", "%s without a digest", s.Status)
		}
	default:
		fault("structure", "unknown status %q", s.Status)
	}
	if im.Tombstone(s.SegmentKey()) != nil {
		fault("structure", "exists beside its tombstone")
	}
	if p == nil {
		return found
	}
	if gaps := checkTiling(p, s, next); len(gaps) > 0 && !im.deleting(s.Table) {
		found = append(found, gaps...)
	}
	return found
}

// checkTiling checks that the segment begins where the partition does or later, and that
// its successor goes on where it ends.
func checkTiling(p *Partition, s, next *Segment) (found []Violation) {
	fault := func(format string, args ...any) {
		found = append(found, violation("I1", s.Key(), format, args...))
	}
	if s.StreamEpoch == p.StreamEpoch && s.Start < p.FirstRetained {
		fault("starts at %d, firstRetained is %d", s.Start, p.FirstRetained)
	}
	if next != nil {
		switch {
		case s.Status == SegmentInProgress:
			fault("IN_PROGRESS, but segment %d follows", next.Seq)
		case s.StreamEpoch == next.StreamEpoch && !p.continues(s.End, next.Start):
			fault("ends at %d, segment %d starts at %d", s.End, next.Seq, next.Start)
		}
	}
	return found
}

// checkGone checks that a tombstone says where each committed segment of the image
// before went: without one its copies are orphans, which nobody asked to delete. It
// is a rule of changes, not of batches: one of several changes may have the segment
// go, and another the tombstone.
func (im *Image) checkGone(before *Image, removals []Key) error {
	for _, key := range removals {
		k := SegmentKey{key.Table, key.Partition, key.Num}
		if key.Kind != KindSegment || before.Segment(k).Status == SegmentInProgress {
			continue
		}
		if im.Segment(k) == nil && im.Tombstone(k) == nil && im.Partition(k.Table, k.Partition) != nil && !im.deleting(k.Table) {
			return broken("structure", key, "removed without a tombstone")
		}
	}
	return nil
}

func (im *Image) deleting(table uuid.UUID) bool {
	t := im.Table(table)
	return t != nil && t.State == TableDeleting
}

// consumes reports whether a partition in this state has a segment IN_PROGRESS.
func (s PartitionState) consumes() bool { return s == PartitionConsuming || s == PartitionError }

// continues reports whether what starts at to follows what ended at from: at
// once, or after nothing but recorded holes. Holes are sorted and apart.
func (p *Partition) continues(from, to int64) bool {
	for _, h := range p.Holes {
		if h.From <= from && from < h.To {
			from = min(h.To, max(from, to))
		}
	}
	return from == to
}

// checkSuccession checks the record against the version of it that the image
// holds: what two images in succession may not differ in.
func (im *Image) checkSuccession(r Record) error {
	switch r := r.(type) {
	case *Cluster:
		if old := im.cluster; old != nil && old.ID != r.ID {
			return broken("structure", r.Key(), "the cluster's id changes from %s to %s", old.ID, r.ID)
		}
	case *Leader:
		if old := im.leader; old != nil && r.Epoch <= old.Epoch {
			return broken("I5", r.Key(), "epoch %d follows epoch %d", r.Epoch, old.Epoch)
		}
	case *Table:
		return im.checkTableSuccession(r)
	case *Partition:
		if old := im.Partition(r.Table, r.Partition); old != nil {
			return checkPartitionSuccession(old, r)
		}
	case *Segment:
		if old := im.Segment(r.SegmentKey()); old != nil {
			return checkSegmentSuccession(old, r)
		}
	case *Node:
		if old := im.Node(r.ID); old != nil && (r.Incarnation < old.Incarnation ||
			r.Incarnation == old.Incarnation && r.LocationsSeq < old.LocationsSeq) {
			return broken("I4", r.Key(), "goes back from (%d, %d) to (%d, %d)",
				old.Incarnation, old.LocationsSeq, r.Incarnation, r.LocationsSeq)
		}
	}
	return nil
}

func (im *Image) checkTableSuccession(t *Table) error {
	if other := im.TableByName(t.Name); other != nil && other.ID != t.ID {
		return broken("structure", t.Key(), "its name, ignoring case, is that of table %s", other.ID)
	}
	old := im.Table(t.ID)
	switch {
	case old == nil:
		return nil
	case old.Name != t.Name:
		return broken("structure", t.Key(), "the name changes from %q", old.Name)
	case t.ConfigVersion < old.ConfigVersion:
		return broken("I5", t.Key(), "the config version goes back from %d to %d", old.ConfigVersion, t.ConfigVersion)
	}
	return nil
}

func checkPartitionSuccession(old, new *Partition) error {
	switch {
	case new.NextSeq < old.NextSeq:
		return broken("I5", new.Key(), "nextSeq goes back from %d to %d", old.NextSeq, new.NextSeq)
	case new.StreamEpoch != old.StreamEpoch:
		return nil // another stream: its offsets start anew
	case new.NextOffset < old.NextOffset:
		return broken("I5", new.Key(), "nextOffset goes back from %d to %d", old.NextOffset, new.NextOffset)
	case new.FirstRetained < old.FirstRetained:
		return broken("I5", new.Key(), "firstRetained goes back from %d to %d", old.FirstRetained, new.FirstRetained)
	}
	return nil
}

func checkSegmentSuccession(old, new *Segment) error {
	switch {
	case new.Name != old.Name, new.Start != old.Start, new.StreamEpoch != old.StreamEpoch:
		return broken("structure", new.Key(), "its name, start or stream epoch changes")
	case new.Generation < old.Generation:
		return broken("I2", new.Key(), "the generation goes back from %d to %d", old.Generation, new.Generation)
	case old.Status == SegmentInProgress:
		return nil
	case new.Status == SegmentInProgress:
		return broken("I2", new.Key(), "goes back from %s to IN_PROGRESS", old.Status)
	case new.End != old.End:
		return broken("I2", new.Key(), "the end changes from %d to %d", old.End, new.End)
	case new.Generation == old.Generation && new.Digest != old.Digest:
		return broken("I2", new.Key(), "the digest changes from %s to %s within generation %d", old.Digest, new.Digest, old.Generation)
	}
	return nil
}
