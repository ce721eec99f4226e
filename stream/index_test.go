package stream

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// manyLines draws lines such that files have several points, lines across
// chunk boundaries, and lines longer than a chunk or a batch.
func manyLines(t *rapid.T) []string {
	line := rapid.Custom(func(t *rapid.T) string {
		size := rapid.OneOf(
			rapid.IntRange(0, 3),
			rapid.IntRange(0, 300),
			rapid.IntRange(10_000, 100_000),
			rapid.SampledFrom([]int{scanBytes - 1, scanBytes, scanBytes + 1, batchBytes - 1, batchBytes, batchBytes + 1, 3 * scanBytes}),
		).Draw(t, "size")
		return strings.Repeat(string(rapid.ByteRange('a', 'z').Draw(t, "letter")), size)
	})
	return rapid.SliceOfN(line, 0, 40).Draw(t, "lines")
}

func TestEveryOffsetCanBeReadFrom(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := newDir(t)
		defer os.RemoveAll(d.root)
		lines := manyLines(rt)
		d.write(0, "")
		for _, l := range lines {
			d.write(0, l+"\n")
		}
		d.write(0, rapid.SampledFrom([]string{"", "torn", strings.Repeat("t", scanBytes)}).Draw(rt, "tail"))
		// The index is empty at the first and grows in whatever order the
		// offsets come in.
		offsets := make([]int, len(lines)+1)
		for i := range offsets {
			offsets[i] = i
		}
		for _, offset := range rapid.Permutation(offsets).Draw(rt, "offsets") {
			r, err := d.src.Open(rt.Context(), 0, int64(offset))
			if err != nil {
				rt.Fatal(err)
			}
			if offset < len(lines) {
				b, err := r.Read(rt.Context())
				if err != nil {
					rt.Fatal(err)
				}
				if err := check(b, int64(offset), lines[offset:]); err != nil {
					rt.Fatal(err)
				}
			}
			r.Close()
		}
		if got, err := d.src.Partitions(rt.Context()); err != nil || got[0].End != int64(len(lines)) {
			rt.Fatalf("%v, %v; want %d lines", got, err, len(lines))
		}
	})
}

func TestCountLinesFindsTheTornLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := []byte(strings.Join(manyLines(t), "\n"))
		lines, end, err := CountLines(t.Context(), bytes.NewReader(data), int64(len(data)))
		if err != nil || lines != int64(bytes.Count(data, newline)) || end != int64(bytes.LastIndexByte(data, '\n')+1) {
			t.Fatalf("%d lines ending at %d, %v", lines, end, err)
		}
	})
}

func TestReadersOfAFileShareItsIndex(t *testing.T) {
	d := newDir(t)
	d.write(0, "a\nb\n")
	other, err := OpenFiles(d.root+"/../"+filepath.Base(d.root), "s")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	r1 := d.open(0, 0)
	r2, err := other.Open(t.Context(), 0, 2)
	if err != nil {
		t.Fatal(err)
	}
	if r1.(*tail).index != r2.(*tail).index {
		t.Error("two readers of one file do not share its index")
	}
	if end := r1.(*tail).index.known(); end != (point{line: 2, byte: 4}) {
		t.Errorf("what one reader learnt the other does not know: %v", end)
	}
	r2.Close()
}

func TestAnIndexThatNobodyHoldsIsForgotten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, _, err := sharedIndex(path, func() (fs.FileInfo, error) { return os.Stat(path) }); err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	indexes.Lock()
	defer indexes.Unlock()
	if indexes.byPath[path].Value() != nil {
		t.Error("an index that nobody holds is kept")
	}
}

func TestCountingTogetherCountsRight(t *testing.T) {
	data := []byte(strings.Repeat("0123456789\n", 400_000))
	x := newIndex(nil)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			end, err := x.extend(t.Context(), bytes.NewReader(data), int64(len(data)), int64(len(data)))
			if err != nil || end != (point{line: 400_000, byte: int64(len(data))}) {
				t.Errorf("%v, %v", end, err)
			}
		})
	}
	wg.Wait()
	for _, p := range x.points {
		if p.byte != p.line*11 {
			t.Fatalf("point %v is not where line %d begins", p, p.line)
		}
	}
}
