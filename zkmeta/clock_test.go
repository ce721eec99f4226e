package zkmeta

import (
	"testing"
	"time"
)

func TestBootTimeGoesOn(t *testing.T) {
	before := BootTime() // first: what passes after it is seen by both clocks
	began := time.Now()
	for time.Since(began) < 5*time.Millisecond {
	}
	after, took := BootTime(), time.Since(began)
	if before <= 0 || after-before < 5*time.Millisecond || after-before > took+time.Second {
		t.Fatalf("BootTime went from %v to %v in %v", before, after, took)
	}
}
