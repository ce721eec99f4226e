package metalog

import (
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// While a large snapshot becomes an image, nearly all that is allocated stays. Left to
// itself the collector marks the growing image each time it has doubled, which is a third
// of the work of a start; so for that time it waits until about as much has come as the
// image will take. GOGC=off and GOMEMLIMIT mean what they always do.

// easeFrom is how large a snapshot is, in bytes, for which that is worth it.
const easeFrom = 32 << 20

var easing struct {
	sync.Mutex
	loads   int // under way
	percent int // before the first of them
}

// easeCollector holds the collector back while a snapshot of that size is loaded: until
// the function is called that it returns.
func easeCollector(sizeBytes int64) (over func()) {
	if sizeBytes < easeFrom {
		return func() {}
	}
	easing.Lock()
	defer easing.Unlock()
	if easing.loads++; easing.loads == 1 {
		easing.percent = debug.SetGCPercent(percentFor(sizeBytes))
		if easing.percent < 0 {
			debug.SetGCPercent(easing.percent)
		}
	}
	return func() {
		easing.Lock()
		defer easing.Unlock()
		if easing.loads--; easing.loads == 0 {
			debug.SetGCPercent(easing.percent)
		}
	}
}

// percentFor is the GOGC with which the heap may grow by what a snapshot becomes before it
// is collected, and by what it may grow otherwise: an image takes twice the bytes, with
// what comes and goes while it is made.
func percentFor(sizeBytes int64) int {
	const heapMin = 4 << 20 // the runtime's
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	held := int64(heapMin)
	if live[0].Value.Kind() == metrics.KindUint64 {
		held = max(held, int64(live[0].Value.Uint64()))
	}
	return int(100 + min(100*2*sizeBytes/held, 1<<20))
}
