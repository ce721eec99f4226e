package meta

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/segment"
)

// PartitionInit is a partition that the stream has and the table should have.
type PartitionInit struct {
	Partition   int32
	StreamEpoch string
	// Start is the earliest offset: segment 0 starts there.
	Start int64
	// Replicas consume it; nil leaves the choice to a Placer.
	Replicas []string
}

// AddPartitions makes those of the partitions that the table does not have,
// each with its segment 0 IN_PROGRESS. The others are left as they are.
func AddPartitions(id uuid.UUID, inits []PartitionInit) Func {
	return func(im *Image, now int64) (Change, error) {
		t := im.Table(id)
		switch {
		case t == nil:
			return refuse(CodeUnknownTable, "no table %s", id)
		case t.State == TableDeleting:
			return refuse(CodeTableDeleting, "table %q is being deleted", t.Name)
		case t.State == TablePaused:
			return refuse(CodeTableNotActive, "table %q is paused: new partitions wait", t.Name)
		}
		placer := NewPlacer(im, nil)
		var c Change
		for _, init := range inits {
			if im.Partition(id, init.Partition) != nil {
				continue
			}
			if init.Partition < 0 || init.Start < 0 {
				return refuse(CodeInvalidPartition, "partition %d from offset %d", init.Partition, init.Start)
			}
			p := &Partition{
				Table: id, Partition: init.Partition, StreamEpoch: init.StreamEpoch,
				NextOffset: init.Start, FirstRetained: init.Start,
				State: PartitionConsuming, Replicas: slices.Clone(init.Replicas),
			}
			if init.Replicas == nil {
				p.Replicas = placer.Place(im.CurrentConfig(id).Replication)
			}
			c.Upserts = append(c.Upserts, p, im.open(t, p, init.Start, now))
		}
		return sized(c.Upserts...) // the stream epoch comes from outside
	}
}

// ResumePartition gives a PAUSED partition of an ACTIVE table a segment again.
// It starts at offset from, which is nextOffset or, to skip rows on purpose,
// later: then the range between is recorded as a hole, with the reason why. What
// was skipped before and is read after all is no hole any more. ResumeNext does
// it for a whole table.
func ResumePartition(k PartitionKey, from int64, why string) Func {
	return func(im *Image, now int64) (Change, error) {
		t, p := im.Table(k.Table), im.Partition(k.Table, k.Partition)
		switch {
		case t == nil || p == nil:
			return refuse(CodeUnknownPartition, "no partition %s", k)
		case t.State != TableActive:
			return refuse(CodeTableNotActive, "table %q is %s", t.Name, t.State)
		case p.State.consumes():
			return Change{}, nil
		case p.State == PartitionEnded:
			return refuse(CodePartitionEnded, "partition %d of %q has ended", k.Partition, t.Name)
		case from < p.NextOffset:
			return refuse(CodeInvalidPartition, "offset %d is below nextOffset %d", from, p.NextOffset)
		}
		p = p.Clone()
		p.skipTo(from, plain(why))
		p.State = PartitionConsuming
		return upserts(p, im.open(t, p, from, now))
	}
}

// Position is where consumption of the partition stands: nextOffset, or the end of
// what was skipped there on purpose.
func (p *Partition) Position() int64 {
	at := p.NextOffset
	for _, h := range p.Holes {
		if h.From <= at && at < h.To {
			at = h.To
		}
	}
	return at
}

// skipTo makes the holes past nextOffset those that there are if nothing below
// from is read. p must be a clone.
func (p *Partition) skipTo(from int64, why string) {
	p.Holes = slices.DeleteFunc(p.Holes, func(h Hole) bool { return h.From >= from })
	for i := range p.Holes {
		p.Holes[i].To = min(p.Holes[i].To, from)
	}
	if at := p.Position(); at < from {
		p.Holes = append(p.Holes, Hole{From: at, To: from, Why: why})
	}
}

// SetReplicas gives the partition's segments from the next one on these
// replicas. The one IN_PROGRESS keeps those it has, except the nodes in gone,
// and takes up to its replication of the new ones. The caller says who is gone:
// DOWN for so long that it is replaced, and not the last that reported rows. A
// node that the image does not show DOWN stays.
func SetReplicas(k PartitionKey, replicas, gone []string) Func {
	return func(im *Image, now int64) (Change, error) {
		p := im.Partition(k.Table, k.Partition)
		cfg := im.CurrentConfig(k.Table)
		if p == nil || cfg == nil {
			return refuse(CodeUnknownPartition, "no partition %s", k)
		}
		var c Change
		if !slices.Equal(p.Replicas, replicas) {
			p = p.Clone()
			p.Replicas = slices.Clone(replicas)
			c.Upserts = append(c.Upserts, p)
		}
		s := im.InProgress(k)
		if s == nil {
			return c, nil
		}
		keep := slices.DeleteFunc(slices.Clone(s.Replicas), func(id string) bool {
			n := im.Node(id)
			return slices.Contains(gone, id) && (n == nil || n.State == NodeDown)
		})
		for _, id := range replicas {
			if len(keep) < cfg.Replication && !slices.Contains(keep, id) {
				keep = append(keep, id)
			}
		}
		if !slices.Equal(keep, s.Replicas) {
			s = s.Clone()
			s.Replicas, s.LeaderEpoch = keep, im.leaderEpoch()
			c.Upserts = append(c.Upserts, s)
		}
		return c, nil
	}
}

// open returns the partition's next segment, IN_PROGRESS from start on, and
// moves p's nextSeq past it. p must be a clone.
func (im *Image) open(t *Table, p *Partition, start, now int64) *Segment {
	seq := p.NextSeq
	p.NextSeq++
	return &Segment{
		Table: p.Table, Partition: p.Partition, Seq: seq,
		Name:          segment.NewName(t.Name, p.Partition, seq, time.UnixMilli(now)).String(),
		Status:        SegmentInProgress,
		Start:         start,
		ConfigVersion: t.ConfigVersion,
		StreamEpoch:   p.StreamEpoch,
		LeaderEpoch:   im.leaderEpoch(),
		Replicas:      p.Replicas,
		Times:         Times{Created: now},
	}
}
