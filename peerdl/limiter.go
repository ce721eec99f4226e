package peerdl

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/shoalstore/shoal/internal/httpx"
)

// Limiter caps how many resources a process sends at a time, so that many
// readers of one segment neither flatten its holder nor starve one another.
type Limiter struct {
	slots chan struct{}

	mu      sync.Mutex
	refused time.Time // somebody, the last time
}

// NewLimiter allows n sends at a time, n > 0.
func NewLimiter(n int) *Limiter { return &Limiter{slots: make(chan struct{}, n)} }

func (l *Limiter) acquire() (release func(), ok bool) {
	if l == nil {
		return func() {}, true
	}
	select {
	case l.slots <- struct{}{}:
		return func() { <-l.slots }, true
	default:
		l.mu.Lock()
		l.refused = time.Now()
		l.mu.Unlock()
		return nil, false
	}
}

// refusedSince reports whether somebody was turned away after t.
func (l *Limiter) refusedSince(t time.Time) bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refused.After(t)
}

func tooBusy() error {
	return httpx.Errorf(http.StatusServiceUnavailable, CodeTooManySends,
		"too many are being sent now, come again").WithHeader("Retry-After", "1")
}

// A reader that takes less than paceMin bytes a second over paceWindow loses its
// slot if others were refused one meanwhile; nobody else needs it otherwise, and
// it may take hours. Whoever is cut off continues at the byte, like after any
// other cut, as soon as it gets a slot again.
const (
	paceWindow = time.Minute
	paceMin    = 64 << 10
)

// errTooSlow ends a send whose slot somebody else can use better.
var errTooSlow = errors.New("peerdl: the reader is slow, and others wait")

// pace measures how fast a reader takes what it is sent. Only the time of the
// sending counts, not what the sender waits by itself.
type pace struct {
	since time.Time // of the window
	spent time.Duration
	bytes int64
}

// took takes note of n bytes that the reader took in d, up to now, and reports
// whether it has to go.
func (p *pace) took(l *Limiter, n int64, d time.Duration, now time.Time) bool {
	if p.since.IsZero() {
		p.since = now.Add(-d)
	}
	p.spent += d
	p.bytes += n
	if p.spent < paceWindow {
		return false
	}
	slow := float64(p.bytes) < paceMin*p.spent.Seconds() && l.refusedSince(p.since)
	*p = pace{since: now}
	return slow
}
