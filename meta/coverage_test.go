package meta

import (
	"reflect"
	"testing"

	"github.com/google/uuid"
)

func TestTilingFindsGapsAndOverlapsInAnyOrder(t *testing.T) {
	for _, c := range []struct {
		name     string
		first    int64
		next     int64
		holes    []Hole
		covered  []Range
		gaps     []Range
		overlaps []Range
	}{
		{name: "nothing at all"},
		{name: "two that meet", next: 9, covered: []Range{{4, 9}, {0, 4}}},
		{name: "a gap between", next: 9, covered: []Range{{0, 4}, {6, 9}}, gaps: []Range{{4, 6}}},
		{name: "a gap in front", first: 2, next: 9, covered: []Range{{4, 9}}, gaps: []Range{{2, 4}}},
		{name: "a gap at the end", next: 12, covered: []Range{{0, 9}}, gaps: []Range{{9, 12}}},
		{name: "a gap that is a hole", next: 9, covered: []Range{{0, 4}, {6, 9}}, holes: []Hole{{From: 4, To: 6}}},
		{name: "a gap larger than its hole", next: 9, covered: []Range{{0, 2}, {8, 9}}, holes: []Hole{{From: 4, To: 6}},
			gaps: []Range{{2, 4}, {6, 8}}},
		{name: "a gap with two holes, unsorted", next: 9, covered: []Range{{0, 2}}, gaps: []Range{{4, 5}, {6, 9}},
			holes: []Hole{{From: 5, To: 6}, {From: 2, To: 4}}},
		{name: "an overlap", next: 9, covered: []Range{{0, 5}, {4, 9}}, overlaps: []Range{{4, 5}}},
		{name: "one within another", next: 9, covered: []Range{{0, 9}, {2, 4}}, overlaps: []Range{{2, 4}}},
		{name: "the same twice", next: 9, covered: []Range{{0, 9}, {0, 9}}, overlaps: []Range{{0, 9}}},
		{name: "past nextOffset", next: 7, covered: []Range{{0, 9}}, overlaps: []Range{{7, 9}}},
		{name: "before what is retained", first: 2, next: 9, covered: []Range{{0, 9}}, overlaps: []Range{{0, 2}}},
	} {
		got := PartitionCoverage{FirstRetained: c.first, NextOffset: c.next, Holes: c.holes}
		got.tile(c.covered)
		if !reflect.DeepEqual(got.Gaps, c.gaps) || !reflect.DeepEqual(got.Overlaps, c.overlaps) {
			t.Errorf("%s: got gaps %v, overlaps %v", c.name, got.Gaps, got.Overlaps)
		}
	}
}

func TestCoverageIsCompleteOnlyUpToTheStreamsEnd(t *testing.T) {
	id := uuid.UUID{1}
	records := []Record{
		&Table{ID: id, Name: "flights", State: TableActive, ConfigVersion: 1},
		&TableConfig{Table: id, Version: 1, Config: Config{Name: "flights", Replication: 1}},
		&Partition{Table: id, NextSeq: 3, NextOffset: 8, State: PartitionEnded},
		&Segment{Table: id, Status: SegmentDone, End: 5, Rows: 5, Digest: [32]byte{1}},
		&Segment{Table: id, Seq: 1, Status: SegmentDone, Start: 5, End: 8, Rows: 3, Digest: [32]byte{1}},
		&Partition{Table: id, Partition: 1, State: PartitionConsuming, NextSeq: 1},
		&Segment{Table: id, Partition: 1, Status: SegmentInProgress},
	}
	im := image(t, records)
	for _, c := range []struct {
		name string
		end  map[int32]int64
		want bool
	}{
		{"everything, and an empty partition", map[int32]int64{0: 8, 1: 0}, true},
		{"a row is not in a segment yet", map[int32]int64{0: 9, 1: 0}, false},
		{"the stream has lost rows", map[int32]int64{0: 7, 1: 0}, false},
		{"rows in the empty partition", map[int32]int64{0: 8, 1: 1}, false},
		{"a partition that the table does not have", map[int32]int64{0: 8, 1: 0, 2: 0}, false},
		{"a partition that was not asked", map[int32]int64{0: 8}, false},
	} {
		got := Coverage(im, id, c.end)
		if got.Complete != c.want || got.Table != "flights" {
			t.Errorf("%s: got %+v", c.name, got)
		}
	}
	got := Coverage(im, id, map[int32]int64{0: 8, 1: 0}).Partitions[0]
	want := PartitionCoverage{NextOffset: 8, StreamEnd: 8, Segments: 2, Rows: 8, UnderReplicated: 2,
		Gaps: []Range{}, Overlaps: []Range{}, Lost: []Range{}, Holes: []Hole{}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	lost := records[4].(*Segment).Clone()
	lost.Status = SegmentLost
	records[4] = lost
	if got := Coverage(image(t, records), id, map[int32]int64{0: 8, 1: 0}); got.Complete || len(got.Partitions[0].Lost) != 1 {
		t.Errorf("lost rows: got %+v", got)
	}
}

func image(t *testing.T, records []Record) *Image {
	t.Helper()
	im, err := Restore(Position{}, func(yield func(Record) bool) {
		for _, r := range records {
			if !yield(r) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return im
}
