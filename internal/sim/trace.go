package sim

import (
	"fmt"
	"hash/fnv"
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
	h := fnv.New64a()
	var b [16]byte
	for i := range 8 {
		b[i], b[8+i] = byte(t.sum>>(8*i)), byte(uint64(now)>>(8*i))
	}
	h.Write(b[:])
	io.WriteString(h, who)
	io.WriteString(h, what)
	t.sum = h.Sum64()
	if t.out != nil {
		fmt.Fprintf(t.out, "%12.3fs  %-6s %s\n", now.Seconds(), who, what)
	}
}
