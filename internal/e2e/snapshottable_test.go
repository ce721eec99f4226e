package e2e

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// resultTable is what a measurement has found, as docs/benchmarks.md shows it.
type resultTable struct{ lines []string }

func (r *resultTable) add(what, result, aim string) {
	r.lines = append(r.lines, fmt.Sprintf("| %s | %s | %s |", what, result, aim))
}

func (r *resultTable) String() string {
	return "| what | result | aim |\n|---|---|---|\n" + strings.Join(r.lines, "\n")
}

func aimed(aim string, met bool) string {
	if met {
		return aim + ": met"
	}
	return aim + ": **missed**"
}

// span is how long something took by the clock, and of this process's processor time, in
// all threads and in the kernel too.
type span struct{ Took, CPU time.Duration }

func (s span) String() string {
	return fmt.Sprintf("%s, %s of processor", seconds(s.Took), seconds(s.CPU))
}

// watch measures a span from beginWatch on.
type watch struct {
	began time.Time
	cpu   time.Duration
}

func beginWatch() watch { return watch{time.Now(), processorTime()} }

func (w watch) span() span { return span{time.Since(w.began), processorTime() - w.cpu} }

func (w watch) String() string { return w.span().String() }

func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // only for a bad argument
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// heapHeld is what is reachable, in bytes.
func heapHeld() int64 {
	runtime.GC()
	runtime.GC() // what the first one has finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// loadNow are the load averages, where the system tells.
func loadNow() string {
	text, err := os.ReadFile("/proc/loadavg")
	if f := strings.Fields(string(text)); err == nil && len(f) > 3 {
		return strings.Join(f[:3], ", ")
	}
	return "unknown"
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

func mega(bytes int64) float64 { return float64(bytes) / 1e6 }
