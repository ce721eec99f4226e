package segment

import (
	"fmt"
	"slices"
	"testing"

	"github.com/rs/zerolog"
	"pgregory.net/rapid"

	"github.com/shoalstore/shoal/internal/vfs"
)

// HeldOf says of each segment what Held says of all of them, whatever was done to
// the copies, also after the store was opened again.
func TestHeldOfIsTheSegmentsPartOfHeld(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fsys := vfs.NewMem()
		s, err := OpenStore(fsys, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		seqs := rapid.Int64Range(0, 2)
		check := func() {
			for seq := range int64(4) {
				var want []Held
				for _, h := range s.Held() {
					if n, err := ParseName(h.Name); err == nil && n.Seq == seq {
						want = append(want, h)
					}
				}
				if got := s.HeldOf(testTable, 3, seq); !slices.Equal(got, want) {
					t.Fatalf("segment %d: HeldOf has %v, Held has %v", seq, got, want)
				}
				if got := s.HeldOf(testTable, 4, seq); len(got) > 0 {
					t.Fatalf("copies of another partition: %v", got)
				}
			}
		}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			held := s.Held()
			switch what := rapid.IntRange(0, 5).Draw(t, "what"); {
			case what <= 1 || len(held) == 0:
				name := testName(seqs.Draw(t, "seq"))
				if _, err := publish(s, name, fmt.Appendf(nil, "build %d", rapid.IntRange(0, 2).Draw(t, "build"))); err != nil {
					t.Fatal(err)
				}
			case what == 2:
				_, err = s.Quarantine(rapid.SampledFrom(held).Draw(t, "damaged"), "found damaged")
			case what == 3:
				err = s.Remove(rapid.SampledFrom(held).Draw(t, "removed"))
			case what == 4:
				if h := rapid.SampledFrom(held).Draw(t, "orphan"); h.State == StateSealed {
					err = s.Orphan(h, testTime)
				}
			default:
				s, err = OpenStore(fsys, zerolog.Nop())
			}
			if err != nil {
				t.Fatal(err)
			}
			check()
		}
	})
}
