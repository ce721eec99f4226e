package segment

import (
	"cmp"
	"slices"

	"github.com/google/uuid"
)

// index is what a store holds, by data file and by segment. Store.mu guards it.
type index struct {
	byFile    map[string]*holding
	bySegment map[segmentID][]*holding
}

// segmentID is which segment a copy is of: its name is a label.
type segmentID struct {
	table     uuid.UUID
	partition int32
	seq       int64
}

func (c *holding) segment() segmentID { return segmentID{c.held.Table, c.held.Partition, c.seq} }

func newIndex() index {
	return index{byFile: map[string]*holding{}, bySegment: map[segmentID][]*holding{}}
}

func (x *index) put(c *holding) {
	x.drop(c.held.file)
	x.byFile[c.held.file] = c
	x.bySegment[c.segment()] = append(x.bySegment[c.segment()], c)
}

func (x *index) drop(file string) {
	c := x.byFile[file]
	if c == nil {
		return
	}
	delete(x.byFile, file)
	k := c.segment()
	if x.bySegment[k] = slices.DeleteFunc(x.bySegment[k], func(o *holding) bool { return o == c }); len(x.bySegment[k]) == 0 {
		delete(x.bySegment, k)
	}
}

// HeldOf lists the sealed and quarantined copies of one segment, by file. It
// costs as much as there are.
func (s *Store) HeldOf(table uuid.UUID, partition int32, seq int64) []Held {
	s.mu.Lock()
	defer s.mu.Unlock()
	var held []Held
	for _, c := range s.index.bySegment[segmentID{table, partition, seq}] {
		held = append(held, c.held)
	}
	slices.SortFunc(held, func(a, b Held) int { return cmp.Compare(a.file, b.file) })
	return held
}
