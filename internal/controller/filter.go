package controller

import (
	"iter"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

// filter is the query of GET /segments/{t}. Ranges are [from, to); a segment
// matches if it has any of them. One that consumes may have anything past its
// start: its end and its timestamps are not known.
type filter struct {
	partition *int32
	status    meta.SegmentStatus
	offsets   span
	times     span // ms since the Unix epoch
	problem   string
}

// span is [from, to).
type span struct{ from, to int64 }

var everything = span{math.MinInt64, math.MaxInt64}

// The values of ?problem=.
const (
	problemAny             = "any"
	problemSingleCopy      = "singleCopy"
	problemUnderReplicated = "underReplicated"
	problemNotInDeepStore  = "notInDeepStore"
	problemError           = "error"
)

func parseFilter(q url.Values) (filter, error) {
	f := filter{offsets: everything, times: everything}
	for _, p := range f.params() {
		if s := q.Get(p.name); s != "" && !p.read(s) {
			return f, httpx.Errorf(http.StatusBadRequest, api.CodeInvalidRequest, "%s=%s is not understood", p.name, httpx.OneLine(s))
		}
	}
	return f, nil
}

// filterParam is a parameter of the query, and what takes its value in, if it is one.
type filterParam struct {
	name string
	read func(string) bool
}

func (f *filter) params() []filterParam {
	return []filterParam{
		{"partition", f.readPartition},
		{"status", f.readStatus},
		{"problem", f.readProblem},
		{"fromOffset", readOffset(&f.offsets.from)},
		{"toOffset", readOffset(&f.offsets.to)},
		{"fromTime", readTime(&f.times.from)},
		{"toTime", readTime(&f.times.to)},
	}
}

// filterParams are the names of the parameters.
func filterParams() (names []string) {
	for _, p := range new(filter).params() {
		names = append(names, p.name)
	}
	return names
}

func (f *filter) readPartition(s string) bool {
	n, err := strconv.ParseInt(s, 10, 32)
	p := int32(n)
	f.partition = &p
	return err == nil && n >= 0
}

func (f *filter) readStatus(s string) bool {
	f.status = meta.SegmentStatus(s)
	return f.status == meta.SegmentInProgress || f.status == meta.SegmentDone || f.status == meta.SegmentLost
}

func (f *filter) readProblem(s string) bool {
	f.problem = s
	switch s {
	case problemAny, problemSingleCopy, problemUnderReplicated, problemNotInDeepStore, problemError:
		return true
	}
	return false
}

func readOffset(into *int64) func(string) bool {
	return func(s string) (ok bool) {
		n, err := strconv.ParseInt(s, 10, 64)
		*into = n
		return err == nil
	}
}

// readTime reads a moment. Rows have whole milliseconds: those from a moment
// between two on are those from the second on.
func readTime(into *int64) func(string) bool {
	return func(s string) (ok bool) {
		t, err := time.Parse(time.RFC3339, s)
		*into = t.Add(time.Millisecond - time.Nanosecond).UnixMilli()
		return err == nil
	}
}

// of yields the table's segments that match, in order.
func (f *filter) of(im *meta.Image, t *meta.Table) iter.Seq[*meta.Segment] {
	all := im.TableSegments(t.ID)
	if f.partition != nil {
		all = im.Segments(t.ID, *f.partition)
	}
	return func(yield func(*meta.Segment) bool) {
		for s := range all {
			if f.matches(im, s) && !yield(s) {
				return
			}
		}
	}
}

// matches reports whether the segment is asked for.
func (f *filter) matches(im *meta.Image, s *meta.Segment) bool {
	switch {
	case f.partition != nil && s.Partition != *f.partition,
		f.status != "" && s.Status != f.status,
		s.Start >= f.offsets.to:
		return false
	case s.Status != meta.SegmentInProgress && !f.matchesRows(s):
		return false
	}
	return f.problem == "" || hasProblem(im, s, f.problem)
}

// matchesRows looks at what is known of the rows of a segment that has ended.
func (f *filter) matchesRows(s *meta.Segment) bool {
	if s.End <= f.offsets.from {
		return false
	}
	if f.times == everything {
		return true
	}
	return s.MaxTimestamp != segment.NoTimestamp && s.MaxTimestamp >= f.times.from && s.MinTimestamp < f.times.to
}

// hasProblem reports whether something is wrong with the segment, of one kind or
// of any.
func hasProblem(im *meta.Image, s *meta.Segment, kind string) bool {
	switch kind {
	case problemSingleCopy:
		return meta.IsSingleCopy(im, s)
	case problemUnderReplicated:
		return meta.IsUnderReplicated(im, s)
	case problemNotInDeepStore:
		return meta.IsNotInDeepStore(im, s)
	case problemError:
		return s.LastError != nil || s.Status == meta.SegmentLost
	}
	return hasProblem(im, s, problemSingleCopy) || hasProblem(im, s, problemUnderReplicated) ||
		hasProblem(im, s, problemNotInDeepStore) || hasProblem(im, s, problemError)
}
