package zkmeta

import (
	"time"

	"golang.org/x/sys/unix"
)

// BootTime returns the time since the machine was started, on a clock that goes
// on while it is suspended: Go's own monotonic clock stands still then, and a
// leader that slept would think that its time is not over.
func BootTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic("zkmeta: no CLOCK_BOOTTIME: " + err.Error()) // there since Linux 2.6.39
	}
	return time.Duration(t.Nano())
}
