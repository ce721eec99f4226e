package meta

import (
	"time"

	"github.com/shoalstore/shoal/segment"
)

// expireMax bounds the segments of one ExpireSegments, and the tombstones of
// one ExpireTombstones or RemoveTombstones.
const expireMax = 1000

// ExpireSegments removes the partition's oldest segments up to and including
// sequence number through: retention has done with them. Each leaves a
// tombstone, and firstRetained moves to where the last of them ended. It goes by
// what the table's configuration says when the change is made: each must have
// been committed longer than retention.age before wall, the leader's wall clock
// in milliseconds. objectKey names the object that a segment has in a deep store,
// if it has been uploaded, or will be by an upload that is still under way.
//
// It is refused as a whole if one of them may not go. Those that went before are
// no fault.
func ExpireSegments(k PartitionKey, through, wall int64, objectKey func(name string, d segment.Digest) (string, error)) Func {
	return func(im *Image, now int64) (Change, error) {
		t, p, cfg := im.Table(k.Table), im.Partition(k.Table, k.Partition), im.CurrentConfig(k.Table)
		switch {
		case t == nil || p == nil || cfg == nil:
			return refuse(CodeUnknownPartition, "no partition %s", k)
		case t.State == TableDeleting:
			return refuse(CodeTableDeleting, "table %q is being deleted", t.Name)
		case through >= p.NextSeq:
			return refuse(CodeUnknownSegment, "partition %d of %q has no segment %d yet", k.Partition, t.Name, through)
		}
		p = p.Clone()
		var c Change
		for s := range im.Segments(k.Table, k.Partition) {
			if s.Seq > through {
				break
			}
			if refused := mayExpire(s, cfg, wall); refused != nil {
				return Change{}, refused
			}
			if len(c.Removals) == expireMax {
				return refuse(CodeRetained, "more than %d segments of partition %d of %q at once", expireMax, k.Partition, t.Name)
			}
			tomb := &Tombstone{Table: s.Table, Partition: s.Partition, Seq: s.Seq, DeletedAt: now}
			if cfg.DeepStore != nil || s.inDeepStore() {
				key, err := objectKey(s.Name, s.Digest)
				if err != nil {
					return refuse(CodeInvalidRecord, "%s: %v", s.Name, err)
				}
				tomb.DeepStoreKeys = []string{key}
			}
			if s.StreamEpoch == p.StreamEpoch {
				p.FirstRetained = s.End
			}
			c.Removals = append(c.Removals, s.Key())
			c.Upserts = append(c.Upserts, tomb)
		}
		if c.Empty() {
			return c, nil
		}
		c.Upserts = append(c.Upserts, p)
		return c, nil
	}
}

// mayExpire returns why the segment has to stay, or nil.
func mayExpire(s *Segment, cfg *Config, wall int64) *Refusal {
	switch {
	case s.Status == SegmentInProgress:
		return refusal(CodeNotDone, "%s is %s", s.Name, s.Status)
	case !s.IsOlderThan(time.Duration(cfg.Retention.Age), wall):
		return refusal(CodeRetained, "%s was committed at %d, and is kept for %s", s.Name, s.Times.Committed, cfg.Retention.Age)
	}
	return nil
}

// IsOlderThan reports whether the segment was committed longer than age before
// wall, in milliseconds since the Unix epoch.
func (s *Segment) IsOlderThan(age time.Duration, wall int64) bool {
	return s.Times.Committed > 0 && wall-s.Times.Committed > age.Milliseconds()
}

func (s *Segment) inDeepStore() bool {
	for _, l := range s.Locations {
		if l.URI != "" {
			return true
		}
	}
	return false
}

// ExpireTombstones ends the grace of these tombstones: nodes delete their copies
// from now on, and the leader the objects. Those that are gone are no fault.
func ExpireTombstones(keys []SegmentKey) Func {
	return func(im *Image, now int64) (Change, error) {
		if len(keys) > expireMax {
			return refuse(CodeInvalidRecord, "%d tombstones at once, the most is %d", len(keys), expireMax)
		}
		var c Change
		for _, k := range keys {
			if t := im.Tombstone(k); t != nil && !t.Expired {
				t = t.Clone()
				t.Expired = true
				c.Upserts = append(c.Upserts, t)
			}
		}
		return c, nil
	}
}

// RemoveTombstones forgets these segments for good. The caller has seen to it
// that nothing is left to delete. It is refused if the grace of one is not over.
func RemoveTombstones(keys []SegmentKey) Func {
	return func(im *Image, now int64) (Change, error) {
		if len(keys) > expireMax {
			return refuse(CodeInvalidRecord, "%d tombstones at once, the most is %d", len(keys), expireMax)
		}
		var c Change
		for _, k := range keys {
			switch t := im.Tombstone(k); {
			case t == nil:
			case !t.Expired:
				return refuse(CodeNotExpired, "the tombstone of segment %s has not expired", k)
			default:
				c.Removals = append(c.Removals, t.Key())
			}
		}
		return c, nil
	}
}
