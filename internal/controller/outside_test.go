package controller

import (
	"math"
	"testing"
	"time"
)

// A store that shows no checksums is read, by eight looks at a time. All of them end
// in time over a way that has two MiB a second for them together, however large the
// objects are.
func TestALookHasTheTimeToReadTheObject(t *testing.T) {
	const way = 2 << 20 // bytes a second
	for _, size := range []int64{1, 16 << 20, 1 << 30, 4 << 30} {
		if need := time.Duration(size*checksPerTable/way) * time.Second; checkTimeout(size) < need {
			t.Errorf("%d bytes have %v, and need %v", size, checkTimeout(size), need)
		}
	}
	if got := checkTimeout(math.MaxInt64); got < 24*time.Hour || got > 25*time.Hour {
		t.Errorf("%v for what nobody has", got)
	}
}
