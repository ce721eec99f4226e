package up

import (
	"bytes"
	"strings"
	"testing"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/produce"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

func TestJoin(t *testing.T) {
	node := func(id string, state meta.NodeState) api.NodeView {
		return api.NodeView{Node: meta.Node{ID: id, State: state}}
	}
	consuming := &api.SegmentView{Segment: meta.Segment{
		Replicas: []string{"a", "b", "c"}, Attempt: 2, LastError: &meta.LastError{Node: "b", Error: "disk full"},
	}}
	l := join(answers{
		coverage:   meta.TableCoverage{Partitions: []meta.PartitionCoverage{{Partition: 0, StreamEnd: 9}, {Partition: 1, NextOffset: -1}}},
		partitions: []api.PartitionView{{Partition: 0, State: meta.PartitionError, Replicas: []string{"x"}, Consuming: consuming}},
		nodes:      []api.NodeView{node("a", meta.NodeUp), node("b", meta.NodeDown), node("c", meta.NodeUp), node("x", meta.NodeUp)},
		consuming: map[string][]api.ConsumingView{"a": {
			{Table: "other", Partition: 0, Offset: 99},
			{Table: "t", Partition: 0, Offset: 5, State: "COMMITTED"},
			{Table: "t", Partition: 0, Offset: 7, State: "INITIAL_CONSUMING"},
		}},
	}, "t")
	p := l.partitions[0]
	if p.state != meta.PartitionError || p.attempt != 2 || p.lastError != "b: disk full" || p.StreamEnd != 9 {
		t.Errorf("partition 0: %+v", p)
	}
	// b is DOWN and x is no replica of the segment that consumes.
	want := []reader{{"a", 7, "INITIAL_CONSUMING"}, {"c", -1, "not consuming yet"}}
	if len(p.readers) != 2 || p.readers[0] != want[0] || p.readers[1] != want[1] || p.slowest() != -1 {
		t.Errorf("readers %+v, want %+v", p.readers, want)
	}
	if p := l.partitions[1]; p.state != "" || p.readers != nil || p.slowest() != -1 {
		t.Errorf("partition 1: %+v", p)
	}
}

func exampleView() view {
	p := at(0, 3000, 3100)
	p.StreamEnd, p.Segments, p.NotInDeepStore = 3249, 3, 1
	q := partitionLook{PartitionCoverage: meta.PartitionCoverage{Partition: 1, StreamEnd: 12, NextOffset: -1}}
	return view{look: lookAt(p, q), progress: produce.Progress{Rows: 9000, InputBytes: 1 << 20, InputSize: 2 << 20}}
}

func TestViewHasALineForEachPartition(t *testing.T) {
	v := exampleView()
	live := strings.Join(v.live("flights"), "\n")
	if want := `
  PARTITION      STATE  STREAM   READ  COMMITTED  SEGMENTS  COPIED  BACKED UP
  flights/0  CONSUMING   3,249  3,100      3,000         3       3          2
  flights/1        NEW      12      ?          ?         0       0          0
input: 9,000 rows, 1.0 MiB of 2.0 MiB`[1:]; live != want {
		t.Errorf("live view:\n%s\nwant:\n%s", live, want)
	}
	v.waiting = []string{"a", "b", "c", "d", "e"}
	v.look.partitions[1].lastError = "node-1: line 3 is too large"
	plain := strings.Join(v.plain("flights"), "\n")
	if want := `
flights/0 CONSUMING: 3,249 rows in the stream, 3,100 read, 3,000 committed in 3 segments (3 on all nodes, 2 backed up)
flights/1 NEW: 12 rows in the stream
partition 1: node-1: line 3 is too large
waiting for a; b; c; and 2 more`[1:]; plain != want {
		t.Errorf("plain lines:\n%s\nwant:\n%s", plain, want)
	}
}

func TestCoverageText(t *testing.T) {
	c := meta.TableCoverage{Table: "flights", Complete: true, Replicated: true, Partitions: []meta.PartitionCoverage{
		{Partition: 0, NextOffset: 3249, StreamEnd: 3249, Segments: 4, Rows: 3249},
		{Partition: 1},
	}}
	if got, want := CoverageText(&c), `
PARTITION  FIRST RETAINED  NEXT OFFSET  STREAM END  SEGMENTS  ROWS  GAPS  OVERLAPS  HOLES  LOST
0          0               3249         3249        4         3249  none  none      none   none
1          0               0            0           0         0     none  none      none   none
table flights: 3,249 rows in 4 segments of 2 partitions: complete, every offset is in exactly one segment; every segment has all its copies
`[1:]; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	c = meta.TableCoverage{Table: "t", Partitions: []meta.PartitionCoverage{{
		FirstRetained: 5, NextOffset: 100, StreamEnd: -1, Segments: 1, Rows: 50,
		Gaps: []meta.Range{{From: 5, To: 6}, {From: 8, To: 9}, {From: 10, To: 11}, {From: 12, To: 13}}, Holes: []meta.Hole{{From: 1, To: 2}},
		Overlaps: []meta.Range{{From: 7, To: 8}}, Lost: []meta.Range{{From: 90, To: 91}},
	}}}
	got := CoverageText(&c)
	for _, want := range []string{"[5,6) [8,9) [10,11) and 1 more", "[7,8)", "[1,2)", "[90,91)", " ? ", "not complete", "not every segment has all its copies", "1 segment of 1 partition:"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestScreenDrawsOverItsBlock(t *testing.T) {
	var out bytes.Buffer
	s := &Screen{out: &out, size: func() (int, int) { return 12, 5 }}
	s.Draw([]string{"one", "a line that is too long", "thr\x1b[2Jee"})
	s.Line("stays")
	s.Draw([]string{"1", "2", "3", "4", "5"})
	s.Draw([]string{"last"})
	const want = "one\na line tha…\nthr [2Jee\n" +
		"\x1b[3A\r\x1b[Jstays\n" +
		"1\n2\n… and 3 more lines\n"
	got := out.String()
	if !strings.HasPrefix(got, strings.ReplaceAll(want, "… and 3 more lines", "… and 3 mo…")) || !strings.HasSuffix(got, "\x1b[3A\r\x1b[Jlast\n") {
		t.Errorf("got %q", got)
	}
}

func TestPlainScreenOnlyWritesLines(t *testing.T) {
	var out bytes.Buffer
	s := PlainScreen(&out)
	s.Draw([]string{"a block"})
	s.Line("%d%%", 5)
	s.Clear()
	if got := out.String(); got != "5%\n" || s.Live() {
		t.Errorf("got %q", got)
	}
}

func TestWrapColumns(t *testing.T) {
	columns := []segment.Column{{Name: "a", Type: "int64"}, {Name: "bb", Type: "string"}, {Name: "c", Type: "json"}}
	got := strings.Join(wrapColumns(columns, 20), "|")
	if got != "a int64, bb string,|c json" {
		t.Errorf("got %q", got)
	}
	if wrapColumns(nil, 20) != nil {
		t.Error("no columns give lines")
	}
}
