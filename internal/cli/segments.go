package cli

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/meta"
)

type segmentsCommand struct {
	Ls     segmentsLs     `cmd:"" help:"List a table's segments."`
	Show   segmentsShow   `cmd:"" help:"Show a segment's record, where its copies are, and what was done to it."`
	Get    segmentsGet    `cmd:"" help:"Download a segment, verified while it arrives; an interrupted download goes on."`
	Verify segmentsVerify `cmd:"" help:"Read a file, or every node's copy of a segment, in full and check it against its digest."`
}

type segmentsLs struct {
	Table      string    `arg:"" help:"Name of the table."`
	Partition  *int32    `help:"Of this partition only." placeholder:"N"`
	Status     string    `help:"Of this status only: IN_PROGRESS, DONE or LOST." enum:",IN_PROGRESS,DONE,LOST" default:"" placeholder:"S"`
	FromOffset *int64    `help:"That hold offsets from this one on." placeholder:"N"`
	ToOffset   *int64    `help:"That hold offsets below this one." placeholder:"N"`
	FromTime   time.Time `help:"That hold rows from this time on (RFC 3339)." placeholder:"T" format:"2006-01-02T15:04:05Z07:00"`
	ToTime     time.Time `help:"That hold rows from before this time (RFC 3339)." placeholder:"T" format:"2006-01-02T15:04:05Z07:00"`
	Problem    string    `help:"With this problem only: any, singleCopy, underReplicated, notInDeepStore or error." enum:",any,singleCopy,underReplicated,notInDeepStore,error" default:"" placeholder:"P"`
}

// query is the filter as the API has it.
func (c segmentsLs) query() string {
	q := url.Values{}
	set := func(key, value string) {
		if value != "" {
			q.Set(key, value)
		}
	}
	set("status", c.Status)
	set("problem", c.Problem)
	if c.Partition != nil {
		set("partition", strconv.Itoa(int(*c.Partition)))
	}
	for key, n := range map[string]*int64{"fromOffset": c.FromOffset, "toOffset": c.ToOffset} {
		if n != nil {
			set(key, strconv.FormatInt(*n, 10))
		}
	}
	for key, t := range map[string]time.Time{"fromTime": c.FromTime, "toTime": c.ToTime} {
		if !t.IsZero() {
			set(key, t.Format(time.RFC3339))
		}
	}
	if len(q) == 0 {
		return ""
	}
	return "?" + q.Encode()
}

func (c segmentsLs) Run(ctx context.Context, a *app) error {
	segments, err := api.List[api.SegmentView](ctx, a.control, api.SegmentPath(c.Table)+c.query())
	if err != nil {
		return err
	}
	if a.json {
		return a.writeJSON(segments)
	}
	if len(segments) == 0 {
		_, err := fmt.Fprintln(a.Out, "no segments")
		return err
	}
	t := newTable(a.Out, "PARTITION", "SEQ", "STATUS", "START", "END", "ROWS", "SIZE", "COPIES", "BACKED UP", "COMMITTED", "SEGMENT")
	for i := range segments {
		s := &segments[i]
		if s.Status == meta.SegmentInProgress {
			t.row(s.Partition, s.Seq, s.Status, s.Start, "", "", "", "", "", "", s.Name)
			continue
		}
		t.row(s.Partition, s.Seq, s.Status, s.Start, s.End, count(s.Rows), size(s.SizeBytes), s.CountedCopies, yes(s.InDeepStore), at(s.Times.Committed), s.Name)
	}
	return t.flush()
}

type segmentsShow struct {
	Table   string `arg:"" help:"Name of the table."`
	Segment string `arg:"" help:"Name of the segment."`
}

// life is a segment with what was done to it.
type life struct {
	api.SegmentView
	Life []api.SegmentEvent `json:"life"`
}

func (c segmentsShow) Run(ctx context.Context, a *app) error {
	var l life
	if err := a.control.Get(ctx, segmentPath(c.Table, c.Segment, "metadata"), &l); err != nil {
		return err
	}
	if a.json {
		return a.writeJSON(l)
	}
	return a.printSegment(&l)
}

func (a *app) printSegment(l *life) error {
	t := newTable(a.Out, "segment", l.Name)
	t.row("status", l.status())
	t.row("offsets", l.offsets())
	if l.Status != meta.SegmentInProgress {
		t.row("rows", count(l.Rows))
		t.row("size", fmt.Sprintf("%s (%d bytes)", size(l.SizeBytes), l.SizeBytes))
		t.row("blake3", l.Digest)
		t.row("sha256", l.SHA256)
		t.row("committer", l.Committer)
	}
	t.row("replicas", join(l.Replicas))
	for _, m := range []struct {
		what string
		at   int64
	}{
		{"created", l.Times.Created}, {"first report", l.Times.FirstConsumed}, {"winner decided", l.Times.WinnerDecided},
		{"commit started", l.Times.CommitStarted}, {"committed", l.Times.Committed}, {"second copy", l.Times.SecondCopy},
		{"replicated", l.Times.Replicated}, {"uploaded", l.Times.Uploaded},
	} {
		if m.at != 0 {
			t.row(m.what, at(m.at))
		}
	}
	if since := l.Times.DeepStore; since != 0 && l.InDeepStore {
		t.row("in deep store", at(since))
	} else if since != 0 { // that it was there stays in the record
		t.row("in deep store", fmt.Sprintf("no, not any more (first verified %s)", at(since)))
	}
	for _, s := range l.Sources {
		t.row("copy", strings.TrimSpace(s.Node+" "+s.URL))
	}
	if e := l.LastError; e != nil {
		t.row("last error", fmt.Sprintf("%s at %s: %s", e.Node, at(e.At), e.Error))
	}
	if err := t.flush(); err != nil || len(l.Life) == 0 {
		return err
	}
	fmt.Fprintln(a.Out)
	t = newTable(a.Out, "AT", "NODE", "WHAT", "DETAIL")
	for _, e := range l.Life {
		detail := e.Detail
		if e.Error != "" {
			detail = strings.TrimSpace(detail + " failed: " + e.Error)
		}
		t.row(e.At.UTC().Format("2006-01-02 15:04:05.000Z"), e.Node, e.What, detail)
	}
	return t.flush()
}

func (l *life) status() string {
	s := string(l.Status)
	if l.Status != meta.SegmentDone {
		return s
	}
	s += fmt.Sprintf(", %d copies on nodes", l.CountedCopies)
	if l.InDeepStore {
		s += ", verified in the deep store"
	}
	if l.SingleCopy {
		s += ", AT RISK"
	}
	return s
}

func (l *life) offsets() string {
	if l.Status == meta.SegmentInProgress {
		return fmt.Sprintf("from %d on", l.Start)
	}
	return fmt.Sprintf("[%d, %d)", l.Start, l.End)
}
