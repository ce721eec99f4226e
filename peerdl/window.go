package peerdl

import "time"

// WindowLimits are the numbers of a window.
type WindowLimits struct {
	Start int // requests at a time, to begin with
	Max   int
	// Probe is how many pieces must come before a window is judged, Helps how
	// many times faster than at half the size they must have come for it to stay.
	Probe int
	Helps float64
	// Rest is how many pieces come before growth is tried again, where it did not
	// help or the source was in trouble. It doubles with each growth in vain.
	Rest int
}

// window is how many requests a source is asked at a time. It starts small and
// doubles as long as that makes pieces come faster: over a long way they do,
// from a source that is as fast as it can be they do not, and then each request
// more is only a burden to it. It is halved when the source is busy, fails or
// falls silent.
type window struct {
	limits WindowLimits
	size   int

	judged int       // pieces since the judgement of this size began
	since  time.Time // when it began: at a piece, zero before that
	before float64   // pieces a second at half the size; 0: not grown just now
	rest   int       // pieces until growth may be tried
	vain   uint      // growths in vain
}

func newWindow(l WindowLimits) window { return window{limits: l, size: max(1, min(l.Start, l.Max))} }

// came takes note of a piece. The judgement goes from piece to piece: how long
// the first one took says more of the way than of the window.
func (w *window) came(now time.Time) {
	switch {
	case w.rest > 0:
		w.rest--
		return
	case w.since.IsZero():
		w.since = now
		return
	}
	if w.judged++; w.judged < w.limits.Probe {
		return
	}
	rate := float64(w.judged) / max(now.Sub(w.since), time.Microsecond).Seconds()
	switch {
	case w.before > 0 && rate < w.before*w.limits.Helps:
		w.size /= 2
		w.before, w.rest = 0, w.limits.Rest<<w.vain
		w.vain = min(w.vain+1, 6)
	case 2*w.size <= w.limits.Max:
		w.size *= 2
		w.before = rate
	default:
		w.before, w.rest = 0, w.limits.Rest
	}
	w.restart()
}

// shrink halves the window: its source is in trouble.
func (w *window) shrink() {
	w.size = max(1, w.size/2)
	w.before, w.rest = 0, w.limits.Rest
	w.restart()
}

func (w *window) restart() { w.judged, w.since = 0, time.Time{} }
