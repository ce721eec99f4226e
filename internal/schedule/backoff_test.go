package schedule

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestBackOffDoublesUpToItsMost(t *testing.T) {
	b := BackOff{Min: time.Second, Max: 10 * time.Second}
	var got []time.Duration
	for d := time.Duration(0); len(got) < 6; {
		d = b.Next(d)
		got = append(got, d/time.Second)
	}
	if want := []time.Duration{1, 2, 4, 8, 10, 10}; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}

func TestJitterIsBetweenHalfAndTheWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "wait"))
		seed := rapid.Uint64().Draw(t, "seed")
		got := Jitter(d, seed)
		if got > d || got < d/2 || got != Jitter(d, seed) {
			t.Fatalf("%s of %s", got, d)
		}
	})
}

// Tries that failed together are spread over the half in which they may fall.
func TestSeedsOfNeighboursSpreadTheirTries(t *testing.T) {
	const wait = time.Minute
	slots := map[time.Duration]int{}
	for n := range int64(1000) {
		slots[(wait-Jitter(wait, Seed([]byte("table"), 0, n)))/(3*time.Second)]++
	}
	for slot := range time.Duration(10) {
		if n := slots[slot]; n < 50 || n > 200 {
			t.Errorf("%d of 1,000 tries in slot %d of 10", n, slot)
		}
	}
}
