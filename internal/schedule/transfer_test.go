package schedule

import (
	"math"
	"testing"
	"time"
)

func TestForBytes(t *testing.T) {
	for n, want := range map[int64]time.Duration{
		0: 0, 256<<10 - 1: 0, 256 << 10: time.Second, 1 << 30: 4096 * time.Second, 1 << 40: 24 * time.Hour, math.MaxInt64: 24 * time.Hour,
	} {
		if got := ForBytes(n); got != want {
			t.Errorf("%d bytes: %v, want %v", n, got, want)
		}
	}
}
