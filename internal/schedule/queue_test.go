package schedule

import (
	"cmp"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestDueGivesTheLongestDueFirstAndLeavesItIn(t *testing.T) {
	q := New(cmp.Compare[string])
	if _, ok := q.Due(time.Hour); ok {
		t.Fatal("an empty queue has something due")
	}
	q.Set("late", 3)
	q.Set("b", 1)
	q.Set("a", 1)
	if _, ok := q.Due(0); ok {
		t.Fatal("something is due before its time")
	}
	for _, want := range []string{"a", "b"} {
		for range 2 {
			if k, ok := q.Due(2); !ok || k != want {
				t.Fatalf("due %q, %v, want %q", k, ok, want)
			}
		}
		q.Remove(want)
	}
	if _, ok := q.Due(2); ok || !q.Has("late") || q.Len() != 1 {
		t.Fatalf("%d left", q.Len())
	}
}

// A queue behaves as a map that is searched for its least entry.
func TestQueueIsAMapSearchedForItsLeast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q, model := New(cmp.Compare[int]), map[int]time.Duration{}
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			k := rapid.IntRange(0, 9).Draw(t, "key")
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				due := time.Duration(rapid.IntRange(0, 5).Draw(t, "due"))
				q.Set(k, due)
				model[k] = due
			case 1:
				q.Remove(k)
				delete(model, k)
			case 2:
				now := time.Duration(rapid.IntRange(0, 5).Draw(t, "now"))
				got, ok := q.Due(now)
				sorted := slices.SortedFunc(maps.Keys(model), func(a, b int) int {
					return cmp.Or(cmp.Compare(model[a], model[b]), cmp.Compare(a, b))
				})
				if want := len(sorted) > 0 && model[sorted[0]] <= now; ok != want || ok && got != sorted[0] {
					t.Fatalf("due at %d: %d, %v; the map has %v", now, got, ok, model)
				}
			}
			_, in := model[k]
			if at, queued := model[k]; q.Is(k, at) != queued || q.Is(k, at+1) {
				t.Fatalf("%d is due at %d, the queue says otherwise", k, at)
			}
			if q.Len() != len(model) || q.Has(k) != in || q.entries.Len() != len(model) {
				t.Fatalf("%d keys, %d entries, the map has %v", q.Len(), q.entries.Len(), model)
			}
		}
	})
}
