package peerdl

import (
	"errors"
	"io/fs"
	"math/rand"
	"slices"
	"testing"
	"time"
)

var (
	epoch   = time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)
	errDown = errors.New("connection refused")
	errLie  = &DeceptionError{What: "sent damaged bytes"}
)

func at(d time.Duration) time.Time { return epoch.Add(d) }

// planLimits are the default rules for windows that stay, and enough pieces in
// flight to see who is chosen.
func planLimits() PlanLimits {
	l := DefaultPlanLimits()
	l.Pieces, l.PiecesMax = 8, 8
	l.Window.Start, l.Window.Max = 4, 4
	return l
}

func planOf(pieces int, held []bool, sources []Source, zone string, rnd *rand.Rand) *Planner {
	return NewPlanner(PlannerConfig{
		Limits: planLimits(), Pieces: pieces, Held: held, Sources: planSources(sources, zone), Rand: rnd,
	})
}

func testPlan(pieces int, sources ...Source) *Planner {
	return planOf(pieces, nil, sources, "here", rand.New(rand.NewSource(1)))
}

// mustFetch takes the next step, which must be a fetch.
func mustFetch(t *testing.T, p *Planner, now time.Time) Assignment {
	t.Helper()
	s := p.Next(now)
	if s.Kind != PlanFetch {
		t.Fatalf("next is %+v, want a fetch", s)
	}
	return s.Assignment
}

func mustWait(t *testing.T, p *Planner, now time.Time) time.Duration {
	t.Helper()
	s := p.Next(now)
	if s.Kind != PlanWait {
		t.Fatalf("next is %+v, want a wait", s)
	}
	return s.Wait
}

func mustEnd(t *testing.T, p *Planner, now time.Time, kind PlanStepKind) {
	t.Helper()
	if s := p.Next(now); s.Kind != kind {
		t.Fatalf("next is %+v, want kind %d", s, kind)
	}
}

func TestPlanHandsOutPiecesInOrderAndEachOnce(t *testing.T) {
	p := planOf(5, []bool{false, true, false, false, true}, []Source{{}}, "", rand.New(rand.NewSource(1)))
	var got []int
	for range 3 {
		got = append(got, mustFetch(t, p, epoch).Piece)
	}
	if !slices.Equal(got, []int{0, 2, 3}) {
		t.Errorf("pieces %v, want 0, 2, 3", got)
	}
	mustWait(t, p, epoch)
	for _, piece := range got {
		if !p.Done(Assignment{piece, 0}, at(time.Second)) {
			t.Errorf("piece %d was not wanted", piece)
		}
	}
	mustEnd(t, p, at(time.Second), PlanComplete)
}

func TestPlanChoosesSources(t *testing.T) {
	far, near := Source{Zone: "there"}, Source{Zone: "here"}
	deep := Source{Rank: 1, Zone: "here"}
	for _, test := range []struct {
		name    string
		sources []Source
		down    []int // sources that have just failed
		want    []int // sources of the first fetches
	}{
		{"same zone first, then the others", []Source{far, near}, nil, []int{1, 1, 1, 1, 0, 0}},
		{"the least busy", []Source{far, far}, nil, []int{0, 1, 0, 1}},
		{"a lower rank before a nearer zone", []Source{deep, far}, nil, []int{1, 1, 1, 1}},
		{"the next rank when the first rests", []Source{deep, far}, []int{1}, []int{0, 0, 0, 0}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := testPlan(20, test.sources...)
			for _, s := range test.down {
				p.fault(s, errDown, epoch)
			}
			// Draws among equals are seeded; compare in pairs regardless of order.
			var got []int
			for range test.want {
				got = append(got, mustFetch(t, p, epoch).Source)
			}
			for i := 0; i+1 < len(got); i += 2 {
				g, w := got[i:i+2], test.want[i:i+2]
				if !slices.Equal(g, w) && !(g[0] == w[1] && g[1] == w[0]) {
					t.Fatalf("sources %v, want %v", got, test.want)
				}
			}
		})
	}
}

// A full rank is waited for; the next rank is for when it cannot be asked.
func TestPlanDoesNotSpillToAHigherRank(t *testing.T) {
	p := testPlan(20, Source{}, Source{Rank: 1})
	for range p.limits.Window.Start {
		if a := mustFetch(t, p, epoch); a.Source != 0 {
			t.Fatalf("source %d", a.Source)
		}
	}
	if wait := mustWait(t, p, epoch); wait != p.limits.Crawl {
		t.Errorf("waits %s, want until a fetch ends, or crawls", wait)
	}
}

func TestPlanSpreadsDownloadersOverEqualSources(t *testing.T) {
	first := map[int]int{}
	for seed := range int64(300) {
		p := planOf(1, nil, make([]Source, 3), "", rand.New(rand.NewSource(seed)))
		first[mustFetch(t, p, epoch).Source]++
	}
	for s := range 3 {
		if first[s] < 50 {
			t.Errorf("300 downloaders began at %v", first)
		}
	}
}

func TestPlanBacksOffAndDropsAFailingSource(t *testing.T) {
	p := testPlan(3, Source{Name: "x"})
	now, last := epoch, time.Duration(0)
	for i := range p.limits.Failures {
		p.Failed(mustFetch(t, p, now), errDown, now)
		if i == p.limits.Failures-1 {
			break
		}
		wait := mustWait(t, p, now)
		if wait < p.limits.BackoffMin<<i || wait > p.limits.BackoffMax*3/2 || wait <= last {
			t.Errorf("rests %s after failure %d (before: %s)", wait, i+1, last)
		}
		last = wait
		now = now.Add(wait)
	}
	mustEnd(t, p, now, PlanStuck)
	if f := p.faults(); len(f) != 1 || f[0].Source != "x" || f[0].Err != errDown {
		t.Errorf("faults %v", f)
	}
}

func TestPlanCountsFetchesThatDiedTogetherOnce(t *testing.T) {
	p := testPlan(9, Source{})
	var all []Assignment
	for range p.limits.Window.Start {
		all = append(all, mustFetch(t, p, epoch))
	}
	for _, a := range all {
		p.Failed(a, errDown, at(time.Millisecond))
	}
	if n := p.sources[0].failures; n != 1 {
		t.Errorf("one death counts as %d failures", n)
	}
	if a := mustFetch(t, p, at(time.Minute)); a.Piece != 0 {
		t.Errorf("goes on at piece %d", a.Piece)
	}
}

func TestPlanForgetsFailuresAfterAGoodPiece(t *testing.T) {
	p := testPlan(100, Source{})
	now := epoch
	for range 3 * p.limits.Failures {
		p.Failed(mustFetch(t, p, now), errDown, now)
		now = now.Add(time.Minute)
		p.Done(mustFetch(t, p, now), now)
	}
	if p.sources[0].dropped {
		t.Error("a source that also delivers was dropped")
	}
}

func TestPlanBlamesALiar(t *testing.T) {
	p := testPlan(4, Source{Name: "liar"}, Source{Name: "honest", Rank: 1})
	a := mustFetch(t, p, epoch)
	p.Failed(a, errLie, epoch)
	if b := mustFetch(t, p, epoch); b != (Assignment{a.Piece, 1}) {
		t.Errorf("after the lie: %+v, want the same piece from the other", b)
	}
	// After its rest it is asked again, for other pieces only.
	later := at(p.limits.Blame * 2)
	p.Failed(Assignment{a.Piece, 1}, errDown, later)
	b := mustFetch(t, p, later)
	if b.Source != 0 || b.Piece == a.Piece {
		t.Errorf("after its rest: %+v", b)
	}
	p.Failed(b, errLie, later)
	if !p.sources[0].dropped {
		t.Error("it lied twice and is still asked")
	}
}

func TestPlanDropsASourceOfSomethingElseAtOnce(t *testing.T) {
	for _, err := range []error{&DeceptionError{What: "ETag", Lasting: true}, fs.ErrNotExist} {
		p := testPlan(4, Source{})
		p.Failed(mustFetch(t, p, epoch), err, epoch)
		mustEnd(t, p, at(time.Hour), PlanStuck)
	}
}

func TestPlanIsStuckWhenTheOnlySourceLiedAboutAllThatIsMissing(t *testing.T) {
	p := testPlan(1, Source{})
	p.Failed(mustFetch(t, p, epoch), errLie, epoch)
	mustEnd(t, p, epoch, PlanStuck)
}

func TestPlanWaitsForABusySourceWithoutBlame(t *testing.T) {
	p := testPlan(4, Source{})
	now := epoch
	for now.Before(at(p.limits.BusyPatience)) {
		p.Failed(mustFetch(t, p, now), &BusyError{RetryAfter: 2 * time.Second}, now)
		wait := mustWait(t, p, now)
		if wait < 2*time.Second || wait > 3*time.Second {
			t.Fatalf("asked to come after 2 s, waits %s", wait)
		}
		now = now.Add(wait)
	}
	if p.sources[0].failures != 0 {
		t.Error("being busy counts as a failure")
	}
	// For ever is too long.
	p.Failed(mustFetch(t, p, now), &BusyError{}, now.Add(time.Minute))
	mustEnd(t, p, now.Add(time.Minute), PlanStuck)
}

// A source that stalls comes after those of higher ranks, until it gives a piece.
func TestPlanAsksTheSilentLast(t *testing.T) {
	p := testPlan(8, Source{}, Source{Rank: 1})
	first := mustFetch(t, p, epoch)
	if first.Source != 0 {
		t.Fatalf("begins with %+v", first)
	}
	p.Failed(first, ErrStalled, epoch)
	now := at(p.limits.BackoffMax)
	for range 4 {
		if a := mustFetch(t, p, now); a.Source != 1 {
			t.Fatalf("asks the silent one: %+v", a)
		}
	}
	p.Failed(Assignment{0, 1}, errDown, now) // all others rest
	a := mustFetch(t, p, now)
	if a.Source != 0 {
		t.Fatalf("asks %+v, which rests", a)
	}
	p.Done(a, now)
	now = now.Add(p.limits.BackoffMax)
	if a := mustFetch(t, p, now); a.Source != 0 {
		t.Errorf("one that gives again stays behind: %+v", a)
	}
}

func TestPlanEndgame(t *testing.T) {
	p := testPlan(2, Source{}, Source{})
	a := mustFetch(t, p, epoch)
	b := mustFetch(t, p, epoch)
	p.Done(b, at(100*time.Millisecond))
	wait := mustWait(t, p, at(100*time.Millisecond))
	if want := p.limits.SlowMin - 100*time.Millisecond; wait != want {
		t.Errorf("waits %s, want %s", wait, want)
	}
	second := mustFetch(t, p, at(p.limits.SlowMin))
	if second.Piece != a.Piece || second.Source == a.Source {
		t.Fatalf("endgame gives %+v beside %+v", second, a)
	}
	mustWait(t, p, at(time.Minute)) // no third
	if !p.Done(second, at(time.Minute)) {
		t.Error("the winner's piece is refused")
	}
	if p.Done(a, at(time.Minute)) {
		t.Error("the loser's piece is taken, too")
	}
	mustEnd(t, p, at(time.Minute), PlanComplete)
	for i := range p.sources {
		if p.sources[i].inflight != 0 {
			t.Errorf("source %d has %d in flight", i, p.sources[i].inflight)
		}
	}
}

func TestPlanEndgameWaitsForTheOtherSourcesRest(t *testing.T) {
	p := testPlan(1, Source{}, Source{Rank: 1})
	mustFetch(t, p, epoch)
	p.fault(1, errLie, epoch)
	if wait := mustWait(t, p, at(10*time.Second)); wait != p.limits.Blame-10*time.Second {
		t.Errorf("waits %s, want until the other may be asked", wait)
	}
	if a := mustFetch(t, p, at(p.limits.Blame)); a.Source != 1 {
		t.Errorf("then asks source %d", a.Source)
	}
}

// Whatever the sources do, every piece is handed out until it is held, never
// from more than two sources at once, and a plan with a source that delivers in
// the end completes.
func TestPlanRandomRuns(t *testing.T) {
	for seed := range int64(500) {
		rnd := rand.New(rand.NewSource(seed))
		n := 1 + rnd.Intn(12)
		sources := make([]Source, 2+rnd.Intn(3))
		for i := range sources {
			sources[i].Rank = rnd.Intn(2)
		}
		p := planOf(n, nil, sources, "", rnd)
		now, open := epoch, []Assignment(nil)
		for steps := 0; ; steps++ {
			if steps > 10_000 {
				t.Fatalf("seed %d: no end", seed)
			}
			s := p.Next(now)
			if s.Kind == PlanComplete {
				break
			}
			if s.Kind == PlanFetch {
				open = append(open, s.Assignment)
				if k := len(p.pieces[s.Piece].fetches); k > 2 || p.pieces[s.Piece].held {
					t.Fatalf("seed %d: piece %d is asked of %d", seed, s.Piece, k)
				}
				if rnd.Intn(3) > 0 {
					continue
				}
			}
			if len(open) == 0 {
				if s.Kind == PlanStuck {
					t.Fatalf("seed %d: stuck, though source 0 never fails for good", seed)
				}
				now = now.Add(max(s.Wait, time.Millisecond))
				continue
			}
			i := rnd.Intn(len(open))
			a := open[i]
			open = slices.Delete(open, i, i+1)
			now = now.Add(time.Duration(rnd.Intn(1000)) * time.Millisecond)
			switch k := rnd.Intn(6); {
			case a.Source == 0 && k < 4, k == 0:
				p.Done(a, now)
			case a.Source == 0:
				p.Failed(a, &BusyError{RetryAfter: time.Second}, now)
			case k == 1:
				p.Failed(a, errLie, now)
			case k == 2:
				p.Failed(a, &BusyError{}, now)
			case k == 3:
				p.Cancelled(a)
			default:
				p.Failed(a, errDown, now)
			}
		}
	}
}
