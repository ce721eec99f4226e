package up

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"

	"github.com/shoalstore/shoal/internal/produce"
	"github.com/shoalstore/shoal/meta"
)

// view is what is shown at one moment. Its methods are pure.
type view struct {
	look      *tableLook
	progress  produce.Progress
	inputOver bool
	telemetry bool
	waiting   []string // what for, at the end of the input
}

// live is the view that is redrawn on a terminal: one line for each partition.
func (v *view) live(table string) []string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "PARTITION\tSTATE\tSTREAM\tREAD\tCOMMITTED\tSEGMENTS\tCOPIED\tBACKED UP\t")
	for i := range v.look.partitions {
		p := &v.look.partitions[i]
		fmt.Fprintf(w, "%s/%d\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t\n", table, p.Partition, state(p),
			known(p.StreamEnd), known(p.slowest()), known(p.NextOffset), p.Segments, p.Segments-p.UnderReplicated, p.Segments-p.NotInDeepStore)
	}
	w.Flush()
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	lines = append(lines, v.errors()...)
	if s := v.status(); s != "" {
		lines = append(lines, s)
	}
	return lines
}

// plain says the same in lines that stand for themselves.
func (v *view) plain(table string) []string {
	var lines []string
	for i := range v.look.partitions {
		p := &v.look.partitions[i]
		line := fmt.Sprintf("%s/%d %s: %s rows in the stream", table, p.Partition, state(p), known(p.StreamEnd))
		if p.state != "" {
			line += fmt.Sprintf(", %s read, %s committed in %s (%d on all nodes, %d backed up)",
				known(p.slowest()), known(p.NextOffset), plural(p.Segments, "segment"), p.Segments-p.UnderReplicated, p.Segments-p.NotInDeepStore)
		}
		lines = append(lines, line)
	}
	lines = append(lines, v.errors()...)
	if len(v.waiting) > 0 {
		lines = append(lines, v.waitingText())
	}
	return lines
}

// waitingText names the first few things that are waited for.
func (v *view) waitingText() string {
	const most = 3
	text := "waiting for " + strings.Join(v.waiting[:min(most, len(v.waiting))], "; ")
	if n := len(v.waiting) - most; n > 0 {
		text += fmt.Sprintf("; and %d more", n)
	}
	return text
}

func (v *view) errors() []string {
	var lines []string
	for _, p := range v.look.partitions {
		if p.lastError != "" {
			lines = append(lines, fmt.Sprintf("partition %d: %s", p.Partition, p.lastError))
		}
	}
	return lines
}

// status is the last line: how far the input is, or what is waited for.
func (v *view) status() string {
	switch {
	case len(v.waiting) > 0:
		return v.waitingText()
	case v.inputOver || v.telemetry:
		return ""
	}
	p := v.progress
	s := fmt.Sprintf("input: %s rows", count(p.Rows))
	if p.InputSize > 0 {
		s += fmt.Sprintf(", %s of %s", humanize.IBytes(uint64(p.InputBytes)), humanize.IBytes(uint64(p.InputSize)))
	}
	return s
}

func state(p *partitionLook) string {
	if p.state == "" {
		return "NEW"
	}
	return string(p.state)
}

// CoverageText is a coverage proof as a table for people.
func CoverageText(c *meta.TableCoverage) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PARTITION\tFIRST RETAINED\tNEXT OFFSET\tSTREAM END\tSEGMENTS\tROWS\tGAPS\tOVERLAPS\tHOLES\tLOST")
	var segments int
	var rows int64
	for _, p := range c.Partitions {
		fmt.Fprintf(w, "%d\t%d\t%d\t%s\t%d\t%d\t%s\t%s\t%s\t%s\n", p.Partition, p.FirstRetained, p.NextOffset, orUnknown(p.StreamEnd),
			p.Segments, p.Rows, ranges(p.Gaps), ranges(p.Overlaps), holes(p.Holes), ranges(p.Lost))
		segments += p.Segments
		rows += p.Rows
	}
	w.Flush()
	fmt.Fprintf(&b, "table %s: %s in %s of %s: ", c.Table, plural(rows, "row"), plural(segments, "segment"), plural(len(c.Partitions), "partition"))
	if c.Complete {
		b.WriteString("complete, every offset is in exactly one segment")
	} else {
		b.WriteString("not complete")
	}
	if c.Replicated {
		b.WriteString("; every segment has all its copies\n")
	} else {
		b.WriteString("; not every segment has all its copies\n")
	}
	return b.String()
}

func orUnknown(n int64) string {
	if n < 0 {
		return "?"
	}
	return fmt.Sprint(n)
}

func ranges(rs []meta.Range) string {
	const most = 3
	if len(rs) == 0 {
		return "none"
	}
	var parts []string
	for _, r := range rs[:min(most, len(rs))] {
		parts = append(parts, fmt.Sprintf("[%d,%d)", r.From, r.To))
	}
	if n := len(rs) - most; n > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(parts, " ")
}

func holes(hs []meta.Hole) string {
	rs := make([]meta.Range, len(hs))
	for i, h := range hs {
		rs[i] = meta.Range{From: h.From, To: h.To}
	}
	return ranges(rs)
}

// known prints an offset, which is −1 when it is not known yet.
func known(n int64) string {
	if n < 0 {
		return "?"
	}
	return count(n)
}

func count(n int64) string { return humanize.Comma(n) }

func plural[T int | int64](n T, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return count(int64(n)) + " " + what + "s"
}

func sum(ns []int64) (total int64) {
	for _, n := range ns {
		total += n
	}
	return total
}
