package peerdl

import (
	"math/rand"
	"slices"
	"testing"
	"time"
)

// feed lets n pieces come from a source that gives so many a second with so many
// requests at a time, and returns the sizes that the window had, in order and
// without repetition.
func feed(w *window, now *time.Time, n int, perSecond func(size int) float64) (sizes []int) {
	for range n {
		if len(sizes) == 0 || sizes[len(sizes)-1] != w.size {
			sizes = append(sizes, w.size)
		}
		*now = now.Add(time.Duration(float64(time.Second) / perSecond(w.size)))
		w.came(*now)
	}
	return sizes
}

func TestWindowFollowsWhatHelps(t *testing.T) {
	limits := DefaultPlanLimits().Window
	for _, test := range []struct {
		name      string
		perSecond func(size int) float64
		pieces    int
		want      []int // sizes, one after another
	}{
		{"each request more helps: it grows to the cap", func(size int) float64 { return float64(size) }, 300, []int{2, 4, 8}},
		{"none helps: it tries once, and then seldom", func(int) float64 { return 10 }, 60, []int{2, 4, 2, 4, 2}},
		{"four help, eight do not", func(size int) float64 { return float64(min(size, 4)) }, 45, []int{2, 4, 8, 4}},
		{"a little is too little", func(size int) float64 { return 10 + float64(size)/10 }, 20, []int{2, 4, 2}},
		{"more is slower", func(size int) float64 { return 10 / float64(size) }, 20, []int{2, 4, 2}},
		{"too few pieces to tell", func(size int) float64 { return float64(size) }, limits.Probe, []int{2}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w, now := newWindow(limits), epoch
			got := feed(&w, &now, test.pieces, test.perSecond)
			if !slices.Equal(got, test.want) {
				t.Errorf("sizes %v, want %v", got, test.want)
			}
		})
	}
}

func TestWindowTriesLessAndLessOftenInVain(t *testing.T) {
	w, now := newWindow(DefaultPlanLimits().Window), epoch
	grown := 0
	for range 1000 {
		before := w.size
		feed(&w, &now, 1, func(int) float64 { return 10 })
		if w.size > before {
			grown++
		}
	}
	if grown < 3 || grown > 8 {
		t.Errorf("1000 pieces from a source that is not faster: %d growths", grown)
	}
}

func TestWindowHalvesInTroubleAndComesBack(t *testing.T) {
	helps := func(size int) float64 { return float64(size) }
	w, now := newWindow(DefaultPlanLimits().Window), epoch
	feed(&w, &now, 100, helps)
	for _, want := range []int{4, 2, 1, 1} {
		if w.shrink(); w.size != want {
			t.Fatalf("size %d, want %d", w.size, want)
		}
	}
	if got := feed(&w, &now, 100, helps); !slices.Equal(got, []int{1, 2, 4, 8}) {
		t.Errorf("after the trouble: %v", got)
	}
}

// Whatever happens it stays between 1 and the cap.
func TestWindowStaysWithinItsLimits(t *testing.T) {
	for seed := range int64(200) {
		rnd := rand.New(rand.NewSource(seed))
		l := WindowLimits{Start: rnd.Intn(10), Max: 1 + rnd.Intn(9), Probe: 1 + rnd.Intn(4), Helps: 1.2, Rest: rnd.Intn(4)}
		w, now := newWindow(l), epoch
		for range 500 {
			if rnd.Intn(5) == 0 {
				w.shrink()
			} else {
				now = now.Add(time.Duration(rnd.Intn(1000)) * time.Millisecond) // none at all, too
				w.came(now)
			}
			if w.size < 1 || w.size > l.Max {
				t.Fatalf("seed %d, %+v: size %d", seed, l, w.size)
			}
		}
	}
}

// What a window is spent on: pieces first, then ranges of one piece.
func TestPlanSpendsTheWindow(t *testing.T) {
	type ask struct{ source, requests int }
	for _, test := range []struct {
		name    string
		sources int
		size    int // of the windows
		want    []ask
	}{
		{"one source, to begin with: two pieces, whole", 1, 2, []ask{{0, 1}, {0, 1}}},
		{"one source that was in trouble: one piece", 1, 1, []ask{{0, 1}}},
		{"one source that gains by it: two pieces in four ranges", 1, 8, []ask{{0, 4}, {0, 4}}},
		{"two sources: a piece of each", 2, 2, []ask{{0, 1}, {1, 1}}},
		{"two sources that gain by it", 2, 8, []ask{{0, 4}, {1, 4}}},
		{"three sources: a piece of each", 3, 2, []ask{{0, 1}, {1, 1}, {2, 1}}},
		{"many sources: four pieces", 9, 2, []ask{{0, 1}, {1, 1}, {2, 1}, {3, 1}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := NewPlanner(PlannerConfig{
				Limits: DefaultPlanLimits(), Pieces: 50, Sources: make([]PlanSource, test.sources), Rand: rand.New(rand.NewSource(1)),
			})
			for i := range p.sources {
				p.sources[i].window.size = test.size
			}
			var got []ask
			seen := map[int]bool{}
			for {
				s := p.Next(epoch)
				if s.Kind != PlanFetch {
					break
				}
				if !seen[s.Source] { // which of the equals came first is a draw
					seen[s.Source] = true
				}
				got = append(got, ask{len(seen) - 1, s.Requests})
			}
			if len(got) != len(test.want) {
				t.Fatalf("asked %v, want %v", got, test.want)
			}
			for i := range got {
				if got[i] != test.want[i] {
					t.Errorf("asked %v, want %v", got, test.want)
				}
			}
			if s := p.Next(epoch); s.Kind != PlanWait || s.Wait != 0 && s.Wait != p.limits.Crawl {
				t.Errorf("then %+v, want to wait until a fetch ends, or crawls", s)
			}
		})
	}
}

func TestPlanShrinksTheWindowOfASourceInTrouble(t *testing.T) {
	for name, err := range map[string]error{
		"busy": &BusyError{}, "down": errDown, "silent": ErrStalled, "a liar": errLie,
	} {
		p := NewPlanner(PlannerConfig{Limits: DefaultPlanLimits(), Pieces: 9, Sources: make([]PlanSource, 1), Rand: rand.New(rand.NewSource(1))})
		p.sources[0].window.size = 8
		a, b := mustFetch(t, p, epoch), mustFetch(t, p, epoch)
		p.Failed(a, err, epoch)
		p.Failed(b, err, epoch) // of those that were told together
		if s := p.sources[0]; s.window.size != 4 || s.requests != 0 || s.inflight != 0 {
			t.Errorf("%s: window of %d, %d requests and %d pieces in flight", name, s.window.size, s.requests, s.inflight)
		}
	}
}
