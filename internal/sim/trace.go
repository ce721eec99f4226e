package sim

import (
	"fmt"
	"io"
	"time"
)

// trace is the history of a run: a hash of every event, so that two runs can be
// compared, and the text of it for whoever wants to read.
type trace struct {
	sum uint64
	out io.Writer // nil: not wanted
}

func (t *trace) event(now time.Duration, p *process, label string) {
	name := ""
	if p != nil {
		name = p.name
	}
	t.add(now, name, label)
}

// note adds something that is not an event of the heap, but told for the reader.
func (t *trace) note(now time.Duration, text string) { t.add(now, "", text) }

// notef is note; its arguments are only formatted for a reader, so they must
// follow from the events.
func (t *trace) notef(now time.Duration, format string, args ...any) {
	if t.out != nil {
		fmt.Fprintf(t.out, "%12.3fs  %s\n", now.Seconds(), fmt.Sprintf(format, args...))
	}
}

func (t *trace) add(now time.Duration, who, what string) {
	t.mix(uint64(now))
	t.mixString(who)
	t.mixString(what)
	if t.out != nil {
		fmt.Fprintf(t.out, "%12.3fs  %-6s %s\n", now.Seconds(), who, what)
	}
}

// mix is a step of FNV-1a, a word at a time.
func (t *trace) mix(v uint64) { t.sum = (t.sum ^ v) * 1099511628211 }

func (t *trace) mixString(s string) {
	t.mix(uint64(len(s)))
	for i := range len(s) {
		t.mix(uint64(s[i]))
	}
}
