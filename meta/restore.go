package meta

import "iter"

// Position says which log an image restored from elsewhere continues.
type Position struct {
	Next, Epoch int64
	Time        int64
}

// Restore returns the image that holds exactly the records, as if the batches
// before the position had been applied. It checks all invariants. Records that come
// sorted by key, as those of a snapshot do, are taken in faster than others.
func Restore(at Position, records iter.Seq[Record]) (*Image, error) {
	d := newDerivation(Empty(), 0)
	inPassing := segmentCheck{im: d.im}
	for r := range records {
		if err := d.restore(r); err != nil {
			return nil, err
		}
		if s, ok := r.(*Segment); ok {
			inPassing.take(s)
		}
	}
	d.im.next, d.im.epoch, d.im.time = at.Next, at.Epoch, at.Time
	if d.im.leader != nil {
		d.im.term = d.im.leader.Term
	}
	if v := d.im.check(!inPassing.passed()); len(v) > 0 {
		return nil, &InvariantError{v[0]}
	}
	return d.im, nil
}

// restore takes a record into an image that is made from nothing. A segment, of which
// there may be a million, has nothing to replace or to succeed.
func (d *derivation) restore(r Record) error {
	s, ok := r.(*Segment)
	if ok {
		if d.im.segments.load(s.SegmentKey(), s) {
			return broken("structure", r.Key(), "occurs twice")
		}
		d.indexSegment(s)
		return nil
	}
	if d.im.Lookup(r.Key()) != nil {
		return broken("structure", r.Key(), "occurs twice")
	}
	clear(d.upserted) // the image itself tells
	return d.upsert(r)
}

// segmentCheck checks segments as they come, while they are at hand. It can do so if they
// come sorted, each after its partition; if not, or if one is not as it should be, all are
// looked at again in the end.
type segmentCheck struct {
	im     *Image
	p      *Partition // of the last one
	last   *Segment
	failed bool
}

func (c *segmentCheck) take(s *Segment) {
	if c.failed {
		return
	}
	k := s.SegmentKey()
	same := false
	if c.last != nil {
		before := c.last.SegmentKey()
		same = before.PartitionKey() == k.PartitionKey()
		c.failed = before.Compare(k) >= 0
	}
	if same {
		c.check(s)
	} else {
		c.check(nil)
		c.p = c.im.partitions.get(k.PartitionKey())
		c.failed = c.failed || c.p == nil
	}
	c.last = s
}

// check checks the last segment, which next follows.
func (c *segmentCheck) check(next *Segment) {
	if c.last != nil && !c.failed {
		c.failed = len(c.im.checkSegment(c.p, c.last, next)) > 0
	}
}

// passed is called after the last segment.
func (c *segmentCheck) passed() bool {
	c.check(nil)
	return !c.failed
}
