package main

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// table is one of those that docs/benchmarks.md shows.
type table struct {
	name    string
	machine machine
	rows    string // empty: it is about bytes, not rows
	smoke   bool
	took    time.Duration
	load    float64 // when the part that is measured began
	lines   []string
}

func (t *table) add(what, result, aim, how string) {
	t.lines = append(t.lines, fmt.Sprintf("| %s | %s | %s | %.1f | %s |", what, result, aim, t.load, how))
}

// aim says what was wanted and whether it was reached.
func aim(met bool, want string) string {
	if met {
		return want + ": met"
	}
	return want + ": **missed**"
}

func (t *table) write(w io.Writer) {
	m := t.machine
	if t.smoke {
		fmt.Fprint(w, "**A smoke run: tiny sizes, figures that mean nothing.**\n\n")
	}
	fmt.Fprintf(w, "Measured at commit %s, %s, in %s.\n\n", m.commit, m.when, t.took.Round(time.Second))
	fmt.Fprintln(w, "| machine | |\n|---|---|")
	for _, l := range [][2]string{
		{"processor", m.processor}, {"memory", m.memory}, {"kernel", m.kernel}, {"file system", m.fileSystem},
		{"disk, by itself", m.disk}, {"Go", runtime.Version()}, {"load at the start", m.load}, {"rows", t.rows},
	} {
		if l[1] != "" {
			fmt.Fprintf(w, "| %s | %s |\n", l[0], l[1])
		}
	}
	fmt.Fprintf(w, "\n| what | result | aim | load before | how |\n|---|---|---|---|---|\n%s\n", strings.Join(t.lines, "\n"))
}

// The tables: of the main job, and of moving segments.
const (
	jobTable    = "job"
	movingTable = "moving"
)

// A table stands between these lines of the document; everything else there is
// written by people.
func beginMark(table string) string {
	return "<!-- begin " + table + ": written by internal/bench/run.sh -->"
}

const endMark = "<!-- end -->"

func (t *table) writeInto(name string) error {
	doc, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	t.write(&text)
	if doc, err = replaceBetween(doc, t.name, text.Bytes()); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return os.WriteFile(name, doc, 0o644)
}

// replaceBetween puts text between a table's marks of doc.
func replaceBetween(doc []byte, table string, text []byte) ([]byte, error) {
	begin := beginMark(table)
	before, rest, ok := bytes.Cut(doc, []byte(begin))
	_, after, ok2 := bytes.Cut(rest, []byte(endMark))
	if !ok || !ok2 {
		return nil, fmt.Errorf("the lines %q and %q are not there, in this order", begin, endMark)
	}
	return slices.Concat(before, []byte(begin+"\n"), text, []byte(endMark), after), nil
}

// percentile is by nearest rank: always one of the samples. There is at least one.
func percentile(samples []float64, q float64) float64 {
	s := slices.Sorted(slices.Values(samples))
	rank := int(math.Ceil(q * float64(len(s))))
	return s[max(rank, 1)-1]
}

func median(samples []float64) float64 { return percentile(samples, 0.5) }
func least(samples []float64) float64  { return slices.Min(samples) }
func most(samples []float64) float64   { return slices.Max(samples) }
