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
// how busy it is; how much it is asked at a time follows what helps
// (window.go). What a source does wrong is kept apart by kind: one that is
// busy is asked later, one that fails is backed off from and dropped after a
// few tries, one that lies is blamed at once and dropped when it does so again,
// one that stalls comes after all others whatever its rank: a deep store that
// takes connections and says nothing would hold up each piece for as long as that
// takes to find out.
// When nothing is left to hand out, a piece that takes far too long is asked of
// a second source too, and the first good answer wins (the endgame). So is, at any
// time, a piece over which its source crawls (relieve): the best by rank may be so slow
// that it is none. If the second is faster, the first counts as one that stalled.

// PlanLimits are the planner's numbers.
type PlanLimits struct {
	// Pieces is how many pieces are in flight at a time, and so what a killed
	// process has to fetch again. More sources than that give one each, up to
	// PiecesMax.
	Pieces, PiecesMax int
	Window            WindowLimits

	BackoffMin   time.Duration // after the first failure, doubling
	BackoffMax   time.Duration
	Blame        time.Duration // how long a liar is not asked
	Lies         int           // lies until a source is dropped
	Failures     int           // failures in a row until a source is dropped
	BusyPatience time.Duration // busy for this long without giving one piece: dropped
	SlowMin      time.Duration // endgame: a piece in flight for less is never slow
	SlowFactor   int           // endgame: slow is this many times the mean
	Crawl        time.Duration // a piece in flight for so long gets a second source; 0: only in the endgame
}

// DefaultPlanLimits are the numbers that a Downloader plans with.
func DefaultPlanLimits() PlanLimits {
	return PlanLimits{
		Pieces:       2,
		PiecesMax:    4,
		Window:       WindowLimits{Start: 2, Max: 8, Probe: 8, Helps: 1.3, Rest: 16},
		BackoffMin:   200 * time.Millisecond,
		BackoffMax:   10 * time.Second,
		Blame:        30 * time.Second,
		Lies:         2,
		Failures:     4,
		BusyPatience: 10 * time.Minute,
		SlowMin:      2 * time.Second,
		SlowFactor:   4,
		Crawl:        time.Minute,
	}
}

// PlannerConfig is what there is to plan.
type PlannerConfig struct {
	Limits  PlanLimits
	Pieces  int
	Held    []bool // the pieces that are there; may be shorter
	Sources []PlanSource
	Rand    *rand.Rand // of the jitter, and the draw among equal sources
}

// PlanSource is a source as the planner sees it.
type PlanSource struct {
	Rank     int // as Source.Rank
	SameZone bool
	Name     string // for messages
}

// Assignment is one piece to fetch from one source, both by index.
type Assignment struct{ Piece, Source int }

// PlanStep is the planner's answer to "what now?".
type PlanStep struct {
	Kind PlanStepKind
	Assignment
	// Requests is, with PlanFetch, how many ranges of the piece are to be asked
	// for at once.
	Requests int
	// Wait is, with PlanWait, how long until it is worth asking again; 0 means
	// until a fetch in flight ends.
	Wait time.Duration
}

// PlanStepKind says which of the fields of a PlanStep counts.
type PlanStepKind int

// The kinds of step.
const (
	PlanFetch    PlanStepKind = iota // fetch the assignment
	PlanWait                         // ask again later
	PlanStuck                        // pieces are missing and no source is left for them
	PlanComplete                     // every piece is held
)

type plannedSource struct {
	PlanSource

	window    window
	inflight  int // pieces
	requests  int // under way, over the pieces in flight
	failures  int // in a row
	lies      int
	busySince time.Time // zero unless its last answer was "busy"
	notBefore time.Time
	dropped   bool
	stalled   bool         // since its last piece
	last      error        // what it said last, nil once a piece came
	lied      map[int]bool // the pieces it lied about
}

type plannedPiece struct {
	held    bool
	fetches []plannedFetch // under way
	since   time.Time      // when the first of them began
}

type plannedFetch struct{ source, requests int }

// Planner plans the fetch of one resource. It is used by one goroutine.
type Planner struct {
	limits  PlanLimits
	rnd     *rand.Rand
	sources []plannedSource
	pieces  []plannedPiece
	missing int // pieces not held
	first   int // every piece below is held or in flight

	fetched int
	took    time.Duration // in total, over fetched
	crawl   time.Duration // limits.Crawl, twice as long after each second source in vain
}

// NewPlanner returns a planner that has handed out nothing yet.
func NewPlanner(cfg PlannerConfig) *Planner {
	p := &Planner{limits: cfg.Limits, rnd: cfg.Rand, pieces: make([]plannedPiece, cfg.Pieces), missing: cfg.Pieces, crawl: cfg.Limits.Crawl}
	for _, s := range cfg.Sources {
		p.sources = append(p.sources, plannedSource{PlanSource: s, window: newWindow(cfg.Limits.Window)})
	}
	for i, h := range cfg.Held {
		if h {
			p.pieces[i].held = true
			p.missing--
		}
	}
	return p
}

// Missing is how many pieces are not held.
func (p *Planner) Missing() int { return p.missing }

// Next says what to do now. A fetch that it hands out must come back through
// Done, Failed or Cancelled.
func (p *Planner) Next(now time.Time) PlanStep {
	if p.missing == 0 {
		return PlanStep{Kind: PlanComplete}
	}
	unassigned, room := false, p.inflight() < p.most(now)
	for i := p.first; i < len(p.pieces); i++ {
		if p.pieces[i].held || len(p.pieces[i].fetches) > 0 {
			continue
		}
		if !unassigned {
			unassigned, p.first = true, i
		}
		if !room {
			return p.relieve(now, 0) // until one of those in flight ends
		}
		if s := p.choose(i, now); s >= 0 {
			return p.assign(i, s, p.share(s), now)
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
		return PlanStep{Kind: PlanStuck}
	}
	return p.relieve(now, wait)
}

// relieve gives a piece over which its source crawls to a second one that might be
// faster. Else it waits, no longer than wait (0: until a fetch in flight ends).
func (p *Planner) relieve(now time.Time, wait time.Duration) PlanStep {
	for i := range p.pieces {
		piece := &p.pieces[i]
		if p.crawl <= 0 || piece.held || len(piece.fetches) != 1 {
			continue
		}
		best := -1
		for s := range p.sources {
			src := &p.sources[s]
			if s == piece.fetches[0].source || src.stalled || src.room() <= 0 || !src.usable(i, now) {
				continue
			}
			if best < 0 || src.Rank < p.sources[best].Rank || src.Rank == p.sources[best].Rank && p.better(s, best) {
				best = s
			}
		}
		if best < 0 {
			continue
		}
		left := p.crawl - now.Sub(piece.since)
		if left <= 0 {
			return p.assign(i, best, 1, now)
		}
		if wait == 0 || left < wait {
			wait = left
		}
	}
	return PlanStep{Kind: PlanWait, Wait: wait}
}

// asked are the sources that have not answered yet.
func (p *Planner) asked() (sources []int) {
	for i := range p.sources {
		if p.sources[i].inflight > 0 {
			sources = append(sources, i)
		}
	}
	return sources
}

func (p *Planner) inflight() (n int) {
	for i := range p.sources {
		n += p.sources[i].inflight
	}
	return n
}

// most is how many pieces may be in flight: where many sources can give, one of
// each.
func (p *Planner) most(now time.Time) int {
	usable := 0
	for i := range p.sources {
		if s := &p.sources[i]; !s.dropped && !now.Before(s.notBefore) {
			usable++
		}
	}
	return max(p.limits.Pieces, min(usable, p.limits.PiecesMax))
}

// share is how many requests a piece takes of its source's window, which is
// there for Pieces of them.
func (p *Planner) share(source int) int {
	s := &p.sources[source]
	return min(max(s.window.size/p.limits.Pieces, 1), s.room())
}

// room is how many requests more the source may be asked now.
func (s *plannedSource) room() int { return s.window.size - s.requests }

// stalledRank is added to the rank of a source that stalled.
const stalledRank = 1 << 16

// order is the rank that counts now.
func (s *plannedSource) order() int {
	if s.stalled {
		return s.Rank + stalledRank
	}
	return s.Rank
}

// choose returns the best source for a piece now, or -1. The lowest rank of
// which any source is usable decides, even if all of it is fully loaded.
func (p *Planner) choose(piece int, now time.Time) int {
	rank, found := 0, false
	for i := range p.sources {
		if s := &p.sources[i]; s.usable(piece, now) && (!found || s.order() < rank) {
			rank, found = s.order(), true
		}
	}
	best, equal := -1, 0
	for i := range p.sources {
		s := &p.sources[i]
		if !s.usable(piece, now) || s.order() != rank || s.room() <= 0 {
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
func (p *Planner) better(a, b int) bool {
	x, y := &p.sources[a], &p.sources[b]
	if x.SameZone != y.SameZone {
		return x.SameZone
	}
	if x.inflight != y.inflight {
		return x.inflight < y.inflight
	}
	return x.failures+x.lies < y.failures+y.lies
}

func (s *plannedSource) usable(piece int, now time.Time) bool {
	return !s.dropped && !now.Before(s.notBefore) && !s.lied[piece]
}

func (p *Planner) assign(piece, source, requests int, now time.Time) PlanStep {
	pc := &p.pieces[piece]
	if len(pc.fetches) == 0 {
		pc.since = now
	}
	pc.fetches = append(pc.fetches, plannedFetch{source, requests})
	p.sources[source].inflight++
	p.sources[source].requests += requests
	return PlanStep{Kind: PlanFetch, Assignment: Assignment{piece, source}, Requests: requests}
}

// endgame gives a slow piece to a second source, of whatever rank, however many
// are in flight.
func (p *Planner) endgame(now time.Time) PlanStep {
	wait := time.Duration(0)
	again := func(after time.Duration) {
		if after > 0 && (wait == 0 || after < wait) {
			wait = after
		}
	}
	slow := p.slow()
	for i := range p.pieces {
		piece := &p.pieces[i]
		if piece.held || len(piece.fetches) != 1 {
			continue
		}
		if left := slow - now.Sub(piece.since); left > 0 {
			again(left)
			continue
		}
		for s := range p.sources {
			src := &p.sources[s]
			switch {
			case s == piece.fetches[0].source || src.dropped || src.lied[i] || src.room() <= 0:
			case now.Before(src.notBefore):
				again(src.notBefore.Sub(now))
			default:
				return p.assign(i, s, 1, now)
			}
		}
	}
	return PlanStep{Kind: PlanWait, Wait: wait}
}

func (p *Planner) slow() time.Duration {
	slow := p.limits.SlowMin
	if p.fetched > 0 {
		slow = max(slow, time.Duration(p.limits.SlowFactor)*p.took/time.Duration(p.fetched))
	}
	return slow
}

// untilUsable is the time until the first source that rests may be asked again;
// left is false when no source can give any missing piece any more.
func (p *Planner) untilUsable(now time.Time) (wait time.Duration, left bool) {
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
func (p *Planner) canGive(s *plannedSource) bool {
	for i := range p.pieces {
		if !p.pieces[i].held && !s.lied[i] {
			return true
		}
	}
	return false
}

// Done records that a piece arrived and was verified. It returns false for the
// loser of an endgame, whose bytes are to be thrown away.
func (p *Planner) Done(a Assignment, now time.Time) bool {
	piece, source := &p.pieces[a.Piece], &p.sources[a.Source]
	isFirst := len(piece.fetches) > 0 && piece.fetches[0].source == a.Source
	p.release(a)
	source.failures, source.busySince, source.stalled, source.last = 0, time.Time{}, false, nil
	source.window.came(now)
	if piece.held {
		return false
	}
	if slower := piece.fetches; len(slower) > 0 && p.crawl > 0 && now.Sub(piece.since) >= p.crawl {
		if isFirst {
			p.crawl *= 2
		} else {
			p.Stalled(slower[0].source)
		}
	}
	piece.held = true
	p.missing--
	p.fetched++
	p.took += now.Sub(piece.since)
	return true
}

// Crowded records that a source had no slot for some range of a piece, though it
// gave others of it: it is asked less at a time.
func (p *Planner) Crowded(source int) { p.sources[source].window.shrink() }

// Stalled records that a source was silent while another gave what both were
// asked for.
func (p *Planner) Stalled(source int) { p.sources[source].stalled = true }

// Cancelled records that a fetch was given up for no fault of its source.
func (p *Planner) Cancelled(a Assignment) { p.release(a) }

// Failed records what a source did instead of sending the piece.
func (p *Planner) Failed(a Assignment, err error, now time.Time) {
	p.release(a)
	var lie *DeceptionError
	if errors.As(err, &lie) {
		s := &p.sources[a.Source]
		if s.lied == nil {
			s.lied = make(map[int]bool)
		}
		s.lied[a.Piece] = true
	}
	p.fault(a.Source, err, now)
}

// fault is Failed for a request that was not for a piece.
func (p *Planner) fault(source int, err error, now time.Time) {
	s := &p.sources[source]
	s.last = err
	s.stalled = s.stalled || errors.Is(err, ErrStalled)
	var busy *BusyError
	var lie *DeceptionError
	if !now.Before(s.notBefore) { // else it is of those that were told together
		s.window.shrink()
	}
	switch {
	case errors.As(err, &busy):
		if s.busySince.IsZero() {
			s.busySince = now
		}
		s.dropped = s.dropped || now.Sub(s.busySince) > p.limits.BusyPatience
		s.rest(now.Add(p.jitter(max(busy.RetryAfter, p.limits.BackoffMin))))
	case errors.Is(err, fs.ErrNotExist):
		s.dropped = true
	case errors.As(err, &lie):
		s.lies++
		s.dropped = s.dropped || lie.Lasting || s.lies >= p.limits.Lies
		s.rest(now.Add(p.limits.Blame))
	case now.Before(s.notBefore):
		// One of several fetches that were in flight when the source died: the
		// first of them was counted.
	default:
		s.failures++
		s.busySince = time.Time{}
		s.dropped = s.dropped || s.failures >= p.limits.Failures
		s.rest(now.Add(p.jitter(min(p.limits.BackoffMin<<(s.failures-1), p.limits.BackoffMax))))
	}
}

// rest keeps the source from being asked before t; a longer rest stands.
func (s *plannedSource) rest(t time.Time) {
	if t.After(s.notBefore) {
		s.notBefore = t
	}
}

func (p *Planner) release(a Assignment) {
	piece := &p.pieces[a.Piece]
	if i := slices.IndexFunc(piece.fetches, func(f plannedFetch) bool { return f.source == a.Source }); i >= 0 {
		p.sources[a.Source].inflight--
		p.sources[a.Source].requests -= piece.fetches[i].requests
		piece.fetches = slices.Delete(piece.fetches, i, i+1)
	}
	if !piece.held && len(piece.fetches) == 0 {
		p.first = min(p.first, a.Piece)
	}
}

// jitter spreads a delay over [d, 1.5 d], so that those who were turned away
// together do not come back together.
func (p *Planner) jitter(d time.Duration) time.Duration {
	return d + time.Duration(p.rnd.Int63n(int64(d)/2+1))
}

// faults is what each source said last.
func (p *Planner) faults() []SourceFault {
	out := make([]SourceFault, len(p.sources))
	for i, s := range p.sources {
		out[i] = SourceFault{Source: s.Name, Err: s.last}
	}
	return out
}
