package main

import "testing"

// leastProven is how many were caught once, and are to stay so.
const leastProven = 17

func TestListFitsTheCode(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	names, proven := map[string]bool{}, 0
	for _, m := range mutants {
		if m.unproven == "" {
			proven++
		}
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
	if proven < leastProven {
		t.Errorf("%d mutants are to be caught, want at least %d", proven, leastProven)
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
