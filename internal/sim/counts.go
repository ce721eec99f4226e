package sim

import (
	"fmt"
	"io"
	"maps"
	"slices"
)

// counts say what a run exercised, so that a fault that never falls and an edge
// that is never taken are noticed.
type counts struct {
	events   int64
	faults   map[string]int64
	messages map[string]int64
	edges    map[string]int64 // changes of state, "machine: from → to"
	outcomes map[string]int64 // what came of it: commits, downloads, releases, …
}

func newCounts() *counts {
	return &counts{faults: map[string]int64{}, messages: map[string]int64{}, edges: map[string]int64{}, outcomes: map[string]int64{}}
}

func (c *counts) add(o *counts) {
	c.events += o.events
	for _, pair := range [][2]map[string]int64{{c.faults, o.faults}, {c.messages, o.messages}, {c.edges, o.edges}, {c.outcomes, o.outcomes}} {
		for k, n := range pair[1] {
			pair[0][k] += n
		}
	}
}

func (c *counts) print(out io.Writer) {
	for _, part := range []struct {
		name string
		of   map[string]int64
	}{{"faults", c.faults}, {"messages", c.messages}, {"edges", c.edges}, {"outcomes", c.outcomes}} {
		fmt.Fprintf(out, "%s\n", part.name)
		for _, k := range slices.Sorted(maps.Keys(part.of)) {
			fmt.Fprintf(out, "  %10d  %s\n", part.of[k], k)
		}
	}
}
