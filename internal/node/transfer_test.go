package node

import (
	"math"
	"testing"
	"time"
)

// A thin line gets a large segment through: an upload has as long as the store gives
// the requests that it is made of.
func TestAnUploadHasTheTimeOfAThinLine(t *testing.T) {
	const line = 256 << 10 // bytes a second
	for _, size := range []int64{1, 16 << 20, 256 << 20, 4 << 30} {
		if need := time.Duration(size/line) * time.Second; uploadTimeout(size) < need {
			t.Errorf("%d bytes have %v, and need %v", size, uploadTimeout(size), need)
		}
	}
	if got := uploadTimeout(math.MaxInt64); got < 24*time.Hour || got > 25*time.Hour {
		t.Errorf("%v for what nobody has", got)
	}
}
