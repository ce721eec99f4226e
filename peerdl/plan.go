package peerdl

import (
	"errors"
	"io/fs"
	"math/rand"
	"slices"
	"time"
)

// The planner decides which piece is fetched from whom. It is pure: it is told
// the time, holds no lock and starts nothing, so that its rules are table tests.
//
// Pieces go out in rising order. A source is chosen by rank, then zone, then
// how busy it is. What a source does wrong is kept apart by kind: one that is
// busy is asked later, one that fails is backed off from and dropped after a
// few tries, one that lies is blamed at once and dropped when it does so again.
// When nothing is left to hand out, a piece that takes far too long is asked of
// a second source too, and the first good answer wins (the endgame).

// planLimits are the planner's numbers.
type planLimits struct {
	perSource    int           // pieces in flight from one source
	backoffMin   time.Duration // after the first failure, doubling
	backoffMax   time.Duration
	blame        time.Duration // how long a liar is not asked
	lies         int           // lies until a source is dropped
	failures     int           // failures in a row until a source is dropped
	busyPatience time.Duration // busy for this long without giving one piece: dropped
	slowMin      time.Duration // endgame: a piece in flight for less is never slow
	slowFactor   int           // endgame: slow is this many times the mean
}

func defaultLimits() planLimits {
	return planLimits{
		perSource:    4,
		backoffMin:   200 * time.Millisecond,
		backoffMax:   10 * time.Second,
		blame:        30 * time.Second,
		lies:         2,
		failures:     4,
		busyPatience: 10 * time.Minute,
		slowMin:      2 * time.Second,
		slowFactor:   4,
	}
}

// assignment is one piece to fetch from one source, both by index.
type assignment struct{ piece, source int }

// step is the planner's answer to "what now?".
type step struct {
	kind stepKind
	assignment
	// wait is, with stepWait, how long until it is worth asking again; 0 means
	// until a fetch in flight ends.
	wait time.Duration
}

type stepKind int

const (
	stepFetch    stepKind = iota // fetch the assignment
	stepWait                     // ask again later
	stepStuck                    // pieces are missing and no source is left for them
	stepComplete                 // every piece is held
)

type planSource struct {
	rank     int
	sameZone bool

	inflight  int
	failures  int // in a row
	lies      int
	busySince time.Time // zero unless its last answer was "busy"
	notBefore time.Time
	dropped   bool
	last      error        // what it said last, nil once a piece came
	lied      map[int]bool // the pieces it lied about
}

type planPiece struct {
	held    bool
	sources []int     // fetching it now
	since   time.Time // when the first of them began
}

type plan struct {
	limits  planLimits
	rnd     *rand.Rand // jitter, and the draw among equal sources
	sources []planSource
	pieces  []planPiece
	missing int // pieces not held
	first   int // every piece below is held or in flight

	fetched int
	took    time.Duration // in total, over fetched
}

// newPlan plans a resource of n pieces, of which those with held[i] are there.
func newPlan(limits planLimits, n int, held []bool, sources []Source, zone string, rnd *rand.Rand) *plan {
	p := &plan{limits: limits, rnd: rnd, pieces: make([]planPiece, n), missing: n}
	for _, s := range sources {
		p.sources = append(p.sources, planSource{rank: s.Rank, sameZone: zone != "" && s.Zone == zone})
	}
	for i, h := range held {
		if h {
			p.pieces[i].held = true
			p.missing--
		}
	}
	return p
}

// next says what to do now. A fetch that it hands out must come back through
// done, failed or cancelled.
func (p *plan) next(now time.Time) step {
	if p.missing == 0 {
		return step{kind: stepComplete}
	}
	unassigned := false
	for i := p.first; i < len(p.pieces); i++ {
		if p.pieces[i].held || len(p.pieces[i].sources) > 0 {
			continue
		}
		if !unassigned {
			unassigned, p.first = true, i
		}
		if s := p.choose(i, now); s >= 0 {
			return p.assign(i, s, now)
		}
		// Usually the next piece has no better luck, but one that its only free
		// source lied about must not hold up the others.
	}
	if !unassigned {
		p.first = len(p.pieces)
		return p.endgame(now)
	}
	wait, left := p.untilUsable(now)
	if !left && p.inflight() == 0 {
		return step{kind: stepStuck}
	}
	return step{kind: stepWait, wait: wait}
}

func (p *plan) inflight() (n int) {
	for i := range p.sources {
		n += p.sources[i].inflight
	}
	return n
}

// choose returns the best source for a piece now, or -1. The lowest rank of
// which any source is usable decides, even if all of it is fully loaded.
func (p *plan) choose(piece int, now time.Time) int {
	rank, found := 0, false
	for i := range p.sources {
		if s := &p.sources[i]; s.usable(piece, now) && (!found || s.rank < rank) {
			rank, found = s.rank, true
		}
	}
	best, equal := -1, 0
	for i := range p.sources {
		s := &p.sources[i]
		if !s.usable(piece, now) || s.rank != rank || s.inflight >= p.limits.perSource {
			continue
		}
		switch {
		case best < 0 || p.better(i, best):
			best, equal = i, 1
		case !p.better(best, i):
			// Draw among equals, so that many downloaders spread over the holders.
			if equal++; p.rnd.Intn(equal) == 0 {
				best = i
			}
		}
	}
	return best
}

// better reports whether source a comes before source b of the same rank.
func (p *plan) better(a, b int) bool {
	x, y := &p.sources[a], &p.sources[b]
	if x.sameZone != y.sameZone {
		return x.sameZone
	}
	if x.inflight != y.inflight {
		return x.inflight < y.inflight
	}
	return x.failures+x.lies < y.failures+y.lies
}

func (s *planSource) usable(piece int, now time.Time) bool {
	return !s.dropped && !now.Before(s.notBefore) && !s.lied[piece]
}

func (p *plan) assign(piece, source int, now time.Time) step {
	pc := &p.pieces[piece]
	if len(pc.sources) == 0 {
		pc.since = now
	}
	pc.sources = append(pc.sources, source)
	p.sources[source].inflight++
	return step{kind: stepFetch, assignment: assignment{piece, source}}
}

// endgame gives a slow piece to a second source, of whatever rank.
func (p *plan) endgame(now time.Time) step {
	wait := time.Duration(0)
	again := func(after time.Duration) {
		if after > 0 && (wait == 0 || after < wait) {
			wait = after
		}
	}
	slow := p.slow()
	for i := range p.pieces {
		piece := &p.pieces[i]
		if piece.held || len(piece.sources) != 1 {
			continue
		}
		if left := slow - now.Sub(piece.since); left > 0 {
			again(left)
			continue
		}
		for s := range p.sources {
			src := &p.sources[s]
			switch {
			case s == piece.sources[0] || src.dropped || src.lied[i] || src.inflight >= p.limits.perSource:
			case now.Before(src.notBefore):
				again(src.notBefore.Sub(now))
			default:
				return p.assign(i, s, now)
			}
		}
	}
	return step{kind: stepWait, wait: wait}
}

func (p *plan) slow() time.Duration {
	slow := p.limits.slowMin
	if p.fetched > 0 {
		slow = max(slow, time.Duration(p.limits.slowFactor)*p.took/time.Duration(p.fetched))
	}
	return slow
}

// untilUsable is the time until the first source that rests may be asked again;
// left is false when no source can give any missing piece any more.
func (p *plan) untilUsable(now time.Time) (wait time.Duration, left bool) {
	for i := range p.sources {
		s := &p.sources[i]
		if s.dropped || !p.canGive(s) {
			continue
		}
		rest := max(s.notBefore.Sub(now), 0)
		if !left || rest < wait {
			wait, left = rest, true
		}
	}
	return wait, left
}

// canGive reports whether some missing piece may still be asked of the source.
func (p *plan) canGive(s *planSource) bool {
	for i := range p.pieces {
		if !p.pieces[i].held && !s.lied[i] {
			return true
		}
	}
	return false
}

// done records that a piece arrived and was verified. It returns false for the
// loser of an endgame, whose bytes are to be thrown away.
func (p *plan) done(a assignment, now time.Time) bool {
	piece, source := &p.pieces[a.piece], &p.sources[a.source]
	p.release(a)
	source.failures, source.busySince, source.last = 0, time.Time{}, nil
	if piece.held {
		return false
	}
	piece.held = true
	p.missing--
	p.fetched++
	p.took += now.Sub(piece.since)
	return true
}

// cancelled records that a fetch was given up for no fault of its source.
func (p *plan) cancelled(a assignment) { p.release(a) }

// failed records what a source did instead of sending the piece.
func (p *plan) failed(a assignment, err error, now time.Time) {
	p.release(a)
	var lie *DeceptionError
	if errors.As(err, &lie) {
		s := &p.sources[a.source]
		if s.lied == nil {
			s.lied = make(map[int]bool)
		}
		s.lied[a.piece] = true
	}
	p.fault(a.source, err, now)
}

// fault is failed for a request that was not for a piece.
func (p *plan) fault(source int, err error, now time.Time) {
	s := &p.sources[source]
	s.last = err
	var busy *BusyError
	var lie *DeceptionError
	switch {
	case errors.As(err, &busy):
		if s.busySince.IsZero() {
			s.busySince = now
		}
		s.dropped = s.dropped || now.Sub(s.busySince) > p.limits.busyPatience
		s.rest(now.Add(p.jitter(max(busy.RetryAfter, p.limits.backoffMin))))
	case errors.Is(err, fs.ErrNotExist):
		s.dropped = true
	case errors.As(err, &lie):
		s.lies++
		s.dropped = s.dropped || lie.Lasting || s.lies >= p.limits.lies
		s.rest(now.Add(p.limits.blame))
	case now.Before(s.notBefore):
		// One of several fetches that were in flight when the source died: the
		// first of them was counted.
	default:
		s.failures++
		s.busySince = time.Time{}
		s.dropped = s.dropped || s.failures >= p.limits.failures
		s.rest(now.Add(p.jitter(min(p.limits.backoffMin<<(s.failures-1), p.limits.backoffMax))))
	}
}

// rest keeps the source from being asked before t; a longer rest stands.
func (s *planSource) rest(t time.Time) {
	if t.After(s.notBefore) {
		s.notBefore = t
	}
}

func (p *plan) release(a assignment) {
	piece := &p.pieces[a.piece]
	if i := slices.Index(piece.sources, a.source); i >= 0 {
		piece.sources = slices.Delete(piece.sources, i, i+1)
		p.sources[a.source].inflight--
	}
	if !piece.held && len(piece.sources) == 0 {
		p.first = min(p.first, a.piece)
	}
}

// jitter spreads a delay over [d, 1.5 d], so that those who were turned away
// together do not come back together.
func (p *plan) jitter(d time.Duration) time.Duration {
	return d + time.Duration(p.rnd.Int63n(int64(d)/2+1))
}

// faults is what each source said last.
func (p *plan) faults(sources []Source) []SourceFault {
	out := make([]SourceFault, len(sources))
	for i, s := range sources {
		out[i] = SourceFault{Source: s.name(), Err: p.sources[i].last}
	}
	return out
}
