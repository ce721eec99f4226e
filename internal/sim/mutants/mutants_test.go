package main

import (
	"testing"
	"time"
)

// TestListFitsTheCode finds the mutants that the code has grown away from.
func TestListFitsTheCode(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, m := range mutants {
		if names[m.name] {
			t.Errorf("two mutants are called %q", m.name)
		}
		names[m.name] = true
		if m.seeds < 1 || len(m.by) == 0 || len(m.edits) == 0 {
			t.Errorf("%s: says too little: %+v", m.name, m)
		}
		if _, err := m.apply(root); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
	if len(names) < 20 {
		t.Errorf("%d mutants, want at least 20", len(names))
	}
}

// TestSomeAreCaught is a slice of make mutants: of the disk, of the protocol and of
// the leader.
func TestSomeAreCaught(t *testing.T) {
	if testing.Short() {
		t.Skip("each is a build of its own; make mutants runs all")
	}
	chosen, err := choose("sealed file swept at start,DISCARD for an uncommitted segment,upload counted without the leader's look")
	if err != nil {
		t.Fatal(err)
	}
	survived, err := runAll(chosen, 10*time.Minute)
	if err != nil || survived > 0 {
		t.Errorf("%d of %d survived, %v", survived, len(chosen), err)
	}
}

func TestFirstViolationIsThatOfTheFirstSeed(t *testing.T) {
	out := []byte("seed 7: I3 at 1m2s: n1 has lost its copy\n  go run ./internal/sim/simulate -seed 7 -v\n" +
		"seed 5: panic at 3s: a table without a name\nwith a second line\n  go run …\nfaults\n   1  seed\n2 of 9 seeds failed\n")
	got := firstViolation(out)
	if got == nil || got.seed != 5 || got.invariant != "panic" || got.text != "3s: a table without a name" {
		t.Errorf("got %+v", got)
	}
	if got := firstViolation([]byte("9 seeds in 3s\n")); got != nil {
		t.Errorf("found %+v where nothing failed", got)
	}
}
