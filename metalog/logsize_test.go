package metalog

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/shoalstore/shoal/internal/vfs"
)

// The log knows its sizes as well as a table of its frames does, wherever its files end.
func TestLogSizesAreThoseOfItsFrames(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		batches := batchesOf(run{1, rapid.Int64Range(0, 40).Draw(rt, "batches")})
		for _, b := range batches {
			b.Upserts = append(b.Upserts, job(100+b.Offset, rapid.IntRange(0, 500).Draw(rt, "size")))
		}
		l := openLog(t, vfs.NewMem(), rapid.SampledFrom([]int64{onePerFile, 1000, 1 << 20}).Draw(rt, "file bytes"))
		defer l.Close()
		appendAll(t, l, batches...)
		if err := l.Trim(rapid.Int64Range(0, l.End()).Draw(rt, "trim")); err != nil {
			rt.Fatal(err)
		}
		want := tableLog{start: l.Start()}
		for _, b := range batches[l.Start():] {
			want.sizes = append(want.sizes, int64(len(entryOf(t, b).Frame)))
		}
		for offset := int64(0); offset <= l.End()+1; offset++ {
			n := want.bytesFrom(offset)
			if got := l.bytesFrom(offset); got != n {
				rt.Fatalf("%d bytes from %d on, want %d", got, offset, n)
			}
			for _, n := range []int64{n - 1, n, n + 1} {
				if got := l.offsetBefore(n); got != want.offsetBefore(n) {
					rt.Fatalf("%d bytes are after %d, want %d", n, got, want.offsetBefore(n))
				}
			}
		}
	})
}
