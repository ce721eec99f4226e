//go:build !linux

package zkmeta

import "time"

var processStart = time.Now()

// BootTime returns the time since this process was started, on Go's monotonic
// clock. It may stand still while the machine is suspended.
func BootTime() time.Duration { return time.Since(processStart) }
