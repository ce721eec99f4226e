package controller

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

// The table has partition 0 with [0, 10) DONE on all nodes, [10, 20) DONE on its
// committer alone, [20, …) consuming, and partition 1 consuming with an error.
func TestFilterOfSegments(t *testing.T) {
	r := newRig(t)
	id := r.table("t", 2, withDeepStore)
	at := func(minute int) time.Time { return time.Date(2026, 11, 29, 12, minute, 0, 0, time.UTC) }
	for i, copies := range [][]string{{"n1", "n2", "n3"}, nil} {
		c := r.log.Commit(t, meta.PartitionKey{Table: id}, 10)
		c.Info.MinTimestamp, c.Info.MaxTimestamp = at(i).UnixMilli(), at(i).UnixMilli()+59_999
		r.do(meta.CommitSegment(c))
		s := r.log.Image.Segment(c.Key)
		if r.held(s, copies...); i == 0 {
			r.do(meta.SetDeepStoreLocation(c.Key, s.Digest, uri(s), true))
		}
	}
	r.do(meta.RecordError(meta.SegmentKey{Table: id, Partition: 1}, "n1", "disk full", false))
	for query, want := range map[string]string{
		"":                          "0/0 0/1 0/2 1/0",
		"partition=0":               "0/0 0/1 0/2",
		"partition=7":               "",
		"status=DONE":               "0/0 0/1",
		"status=IN_PROGRESS":        "0/2 1/0",
		"status=LOST":               "",
		"fromOffset=9&toOffset=10":  "0/0 1/0",
		"fromOffset=10&toOffset=20": "0/1 1/0",
		"fromOffset=10":             "0/1 0/2 1/0",
		"toOffset=20":               "0/0 0/1 1/0",
		"toOffset=0":                "",
		"status=DONE&fromTime=2026-11-29T12:00:59.999Z":                                "0/0 0/1",
		"status=DONE&fromTime=2026-11-29T12:00:59.9991Z":                               "0/1",
		"status=DONE&toTime=2026-11-29T12:01:00Z":                                      "0/0",
		"status=DONE&toTime=2026-11-29T12:01:00.0001Z":                                 "0/0 0/1",
		"status=DONE&fromTime=2026-11-29T14:01:00%2B02:00&toTime=2026-11-29T12:02:00Z": "0/1",
		"toTime=2020-01-01T00:00:00Z":                                                  "0/2 1/0", // nobody knows yet
		"problem=singleCopy":                                                           "0/1",
		"problem=underReplicated":                                                      "0/1",
		"problem=notInDeepStore":                                                       "0/1",
		"problem=error":                                                                "1/0",
		"problem=any":                                                                  "0/1 1/0",
		"problem=any&partition=1":                                                      "1/0",
		"problem=singleCopy&toOffset=5":                                                "",
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		f, err := parseFilter(q)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for s := range f.of(r.log.Image, r.log.Image.Table(id)) {
			got = append(got, strings.Join(strings.Split(s.SegmentKey().String(), "/")[1:], "/"))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", query, got, want)
		}
	}
	// Rows without a timestamp are of no time.
	s := r.log.Image.Segment(meta.SegmentKey{Table: id}).Clone()
	s.MinTimestamp, s.MaxTimestamp = segment.NoTimestamp, segment.NoTimestamp
	f := filter{offsets: everything, times: span{0, everything.to}}
	if f.matches(r.log.Image, s) {
		t.Error("a segment without timestamps is of some time")
	}
}

func TestFilterThatIsNotUnderstoodNamesWhatIsWrong(t *testing.T) {
	for _, query := range []string{
		"partition=-1", "partition=x", "partition=4294967296", "status=done", "problem=many",
		"fromOffset=1.5", "toOffset=99999999999999999999", "fromTime=yesterday", "toTime=2026-11-29",
	} {
		q, _ := url.ParseQuery(query)
		if _, err := parseFilter(q); err == nil || !strings.Contains(err.Error(), query+" is not understood") {
			t.Errorf("%s: %v", query, err)
		}
	}
	q := url.Values{"status": {strings.Repeat("x", 1<<20)}}
	if _, err := parseFilter(q); err == nil || len(err.Error()) > 1000 {
		t.Error("the error is as long as the query")
	}
}
