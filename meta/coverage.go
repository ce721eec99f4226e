package meta

import (
	"cmp"
	"maps"
	"slices"

	"github.com/google/uuid"
)

// Range is a range of offsets [From, To).
type Range struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// PartitionCoverage says which offsets of a partition are in committed
// segments.
type PartitionCoverage struct {
	Partition     int32 `json:"partition"`
	FirstRetained int64 `json:"firstRetained"`
	NextOffset    int64 `json:"nextOffset"`
	// StreamEnd is where the stream ended when it was asked; −1 if it was not,
	// or does not have the partition.
	StreamEnd int64 `json:"streamEnd"`
	Segments  int   `json:"segments"` // DONE
	Rows      int64 `json:"rows"`     // in them
	// Gaps are offsets in no segment and no hole, Overlaps are in more than
	// one, Lost are in segments whose bytes are gone.
	Gaps     []Range `json:"gaps"`
	Overlaps []Range `json:"overlaps"`
	Lost     []Range `json:"lost"`
	Holes    []Hole  `json:"holes"` // skipped on purpose
	// UnderReplicated counts the DONE segments with fewer counted node copies
	// than their replication, NotInDeepStore those that should be there,
	// verified, and are not.
	UnderReplicated int `json:"underReplicated"`
	NotInDeepStore  int `json:"notInDeepStore"`
}

// Complete reports whether each offset from FirstRetained to StreamEnd is in
// exactly one committed segment, recorded holes apart.
func (c *PartitionCoverage) Complete() bool {
	stands := Partition{NextOffset: c.NextOffset, Holes: c.Holes}
	return len(c.Gaps) == 0 && len(c.Overlaps) == 0 && len(c.Lost) == 0 && stands.Position() == c.StreamEnd
}

// TableCoverage is the coverage proof of a table: every partition that the
// image or the stream has.
type TableCoverage struct {
	Table      string              `json:"table"`
	Partitions []PartitionCoverage `json:"partitions"`
	// Complete: every partition is.
	Complete bool `json:"complete"`
	// Replicated: every DONE segment has its replication in counted copies
	// and, if the table has a deep store, a verified copy there.
	Replicated bool `json:"replicated"`
}

// Coverage proves from the records which offsets of the table are in segments.
// streamEnd maps each partition of the stream to the offset after its last row.
func Coverage(im *Image, table uuid.UUID, streamEnd map[int32]int64) TableCoverage {
	var c TableCoverage
	if t := im.Table(table); t != nil {
		c.Table = t.Name
	}
	numbers := maps.Clone(streamEnd)
	if numbers == nil {
		numbers = map[int32]int64{}
	}
	for p := range im.Partitions(table) {
		if _, ok := numbers[p.Partition]; !ok {
			numbers[p.Partition] = -1
		}
	}
	c.Partitions = []PartitionCoverage{}
	c.Complete, c.Replicated = true, true
	for _, p := range slices.Sorted(maps.Keys(numbers)) {
		pc := coverPartition(im, PartitionKey{table, p}, numbers[p])
		c.Partitions = append(c.Partitions, pc)
		c.Complete = c.Complete && pc.Complete()
		c.Replicated = c.Replicated && pc.UnderReplicated == 0 && pc.NotInDeepStore == 0
	}
	return c
}

func coverPartition(im *Image, k PartitionKey, streamEnd int64) PartitionCoverage {
	c := PartitionCoverage{
		Partition: k.Partition, StreamEnd: streamEnd,
		Gaps: []Range{}, Overlaps: []Range{}, Lost: []Range{}, Holes: []Hole{},
	}
	p := im.Partition(k.Table, k.Partition)
	if p == nil {
		c.NextOffset = -1 // in the stream, not in the table
		return c
	}
	c.FirstRetained, c.NextOffset = p.FirstRetained, p.NextOffset
	c.Holes = append(c.Holes, p.Holes...)
	var covered []Range
	for s := range im.Segments(k.Table, k.Partition) {
		switch {
		case s.Status == SegmentInProgress, s.StreamEpoch != p.StreamEpoch:
			continue
		case s.Status == SegmentLost:
			c.Lost = append(c.Lost, Range{s.Start, s.End})
		default:
			c.Segments++
			c.Rows += s.Rows
			if IsUnderReplicated(im, s) {
				c.UnderReplicated++
			}
			if IsNotInDeepStore(im, s) {
				c.NotInDeepStore++
			}
		}
		covered = append(covered, Range{s.Start, s.End})
	}
	c.tile(covered)
	return c
}

// tile finds the gaps and overlaps between FirstRetained and NextOffset. It
// trusts no order of the segments.
func (c *PartitionCoverage) tile(covered []Range) {
	slices.SortFunc(covered, func(a, b Range) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	at := c.FirstRetained
	for _, r := range append(covered, Range{c.NextOffset, c.NextOffset}) {
		if r.From < at && r.To > r.From {
			c.Overlaps = append(c.Overlaps, Range{r.From, min(at, r.To)})
		}
		if at < r.From {
			c.Gaps = append(c.Gaps, c.outsideHoles(Range{at, r.From})...)
		}
		at = max(at, r.To)
	}
	if at > c.NextOffset {
		c.Overlaps = append(c.Overlaps, Range{c.NextOffset, at}) // committed, and to be read again
	}
}

// outsideHoles returns what is left of r without the recorded holes.
func (c *PartitionCoverage) outsideHoles(r Range) []Range {
	var left []Range
	holes := slices.SortedFunc(slices.Values(c.Holes), func(a, b Hole) int { return cmp.Compare(a.From, b.From) })
	for _, h := range holes {
		if h.From >= r.To {
			break
		}
		if h.From > r.From {
			left = append(left, Range{r.From, h.From})
		}
		r.From = max(r.From, h.To)
	}
	if r.From < r.To {
		left = append(left, r)
	}
	return left
}
