package commit

import (
	"testing"
	"time"
)

func TestTimingScalesWithTheTable(t *testing.T) {
	for _, c := range []struct {
		t                         Timing
		pick, notify, lease, cap_ time.Duration
		build, extension          int64
	}{
		{DefaultTiming, 3300 * time.Millisecond, 6600 * time.Millisecond, 126600 * time.Millisecond, 1800 * time.Second, 126, 120},
		{Timing{100 * time.Millisecond, 2 * time.Second}, 110 * time.Millisecond, 220 * time.Millisecond, 2220 * time.Millisecond, 30 * time.Second, 2, 2},
		{Timing{time.Millisecond, 10 * time.Millisecond}, 1100 * time.Microsecond, 2200 * time.Microsecond, 12200 * time.Microsecond, 150 * time.Millisecond, 1, 1},
	} {
		if got := c.t.pickAfter(); got != c.pick {
			t.Errorf("%v: pick deadline %v, want %v", c.t, got, c.pick)
		}
		if got := c.t.notifyAfter(); got != c.notify {
			t.Errorf("%v: notify deadline %v, want %v", c.t, got, c.notify)
		}
		if got := c.t.commitAfter(); got != c.lease {
			t.Errorf("%v: commit deadline %v, want %v", c.t, got, c.lease)
		}
		if got := c.t.hardCap(); got != c.cap_ {
			t.Errorf("%v: hard cap %v, want %v", c.t, got, c.cap_)
		}
		if b, e := c.t.buildTimeSec(), c.t.extensionSec(); b != c.build || e != c.extension {
			t.Errorf("%v: buildTimeSec %d, extension %d, want %d, %d", c.t, b, e, c.build, c.extension)
		}
	}
}
