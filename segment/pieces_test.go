package segment

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"lukechampine.com/blake3"
	"lukechampine.com/blake3/guts"
	"pgregory.net/rapid"
)

// randomBytes is reproducible, and no two pieces of it are alike.
func randomBytes(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1, byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)})
	_, _ = r.Read(b)
	return b
}

func hashBytes(b []byte) (*Pieces, Digest) {
	var h PieceHasher
	_, _ = h.Write(b)
	return h.Sum()
}

var pieceSizes = []int{
	1, 63, 64, 65, 1023, 1024, 1025, 2047, 2048, 2049, 16383, 16384, 16385, 16384 + 1024, 3*16384 + 5,
	PieceSize - 16384, PieceSize - 1, PieceSize, PieceSize + 1, PieceSize + 16384,
	2*PieceSize - 1, 2 * PieceSize, 2*PieceSize + 1, 3 * PieceSize, 3*PieceSize + 77777,
	4 * PieceSize, 5*PieceSize + 1024, 7*PieceSize - 3,
}

func TestPiecesCombineToTheDigestOfTheFile(t *testing.T) {
	for _, size := range pieceSizes {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			data := randomBytes(size)
			p, d := hashBytes(data)
			if want := Digest(blake3.Sum256(data)); d != want {
				t.Fatalf("digest is %s, want %s", d, want)
			}
			if p.Size != int64(size) || p.Count() != (size+PieceSize-1)/PieceSize {
				t.Fatalf("%d pieces of %d bytes", p.Count(), p.Size)
			}
			if err := p.Check(d); err != nil {
				t.Fatal(err)
			}
			for i := range p.Count() {
				off, n := p.Range(i)
				if err := p.VerifyPiece(i, data[off:off+n]); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// The definition in words of guts, against the streaming implementation.
func TestPieceIsItsSubtreeWithoutRoot(t *testing.T) {
	data := randomBytes(3 * PieceSize)
	p, _ := hashBytes(data)
	for i := range p.Count() {
		off, n := p.Range(i)
		node := guts.CompressEigentree(data[off:off+n:off+n], &guts.IV, 4096*uint64(i), 0)
		if got := wordsToBytes(guts.ChainingValue(node)); got != p.Chaining[i] {
			t.Fatalf("piece %d is %x, want %x", i, p.Chaining[i], got)
		}
	}
}

func TestSolePieceIsTheDigest(t *testing.T) {
	p, d := hashBytes(randomBytes(12345))
	if Digest(p.Chaining[0]) != d {
		t.Fatalf("entry %x, digest %s", p.Chaining[0], d)
	}
}

func TestPieceHasherDoesNotCareHowBytesArrive(t *testing.T) {
	data := randomBytes(2*PieceSize + 300_000)
	_, want := hashBytes(data)
	rapid.Check(t, func(t *rapid.T) {
		var h PieceHasher
		top := rapid.SampledFrom([]int{2000, 40_000, 700_000, 9_000_000}).Draw(t, "largest write")
		for rest := data; len(rest) > 0; {
			n := min(len(rest), rapid.IntRange(top/4, top).Draw(t, "write"))
			_, _ = h.Write(rest[:n])
			rest = rest[n:]
		}
		if _, d := h.Sum(); d != want {
			t.Fatalf("digest is %s, want %s", d, want)
		}
	})
}

func TestPieceHasherGoesOnAfterSum(t *testing.T) {
	data := randomBytes(2*PieceSize + 5)
	var h PieceHasher
	for _, cut := range [][2]int{{0, 100}, {100, PieceSize}, {PieceSize, 2 * PieceSize}, {2 * PieceSize, len(data)}} {
		_, _ = h.Write(data[cut[0]:cut[1]])
		if _, d := h.Sum(); d != Digest(blake3.Sum256(data[:cut[1]])) {
			t.Fatalf("wrong digest after %d bytes", cut[1])
		}
	}
}

func TestNothingHasNoPieces(t *testing.T) {
	p, d := hashBytes(nil)
	if !d.IsZero() || p.Count() != 0 {
		t.Fatalf("digest %s, %d pieces", d, p.Count())
	}
	if _, err := p.Root(); err == nil {
		t.Fatal("an empty list has a root")
	}
	if _, err := p.MarshalBinary(); err == nil {
		t.Fatal("an empty list was encoded")
	}
	if _, _, err := HashFile(bytes.NewReader(nil), 0); err == nil {
		t.Fatal("an empty file was hashed")
	}
}

func TestHashFileNoticesAShortFile(t *testing.T) {
	data := randomBytes(100_000)
	p, d, err := HashFile(bytes.NewReader(data), int64(len(data)))
	if err != nil || d != Digest(blake3.Sum256(data)) || p.Size != int64(len(data)) {
		t.Fatalf("%v %s %v", p, d, err)
	}
	if _, _, err := HashFile(bytes.NewReader(data), int64(len(data))+1); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("got %v", err)
	}
}

func TestVerifyPieceNamesThePiece(t *testing.T) {
	data := randomBytes(2*PieceSize + 1000)
	p, _ := hashBytes(data)
	piece := func(i int) []byte {
		off, n := p.Range(i)
		return bytes.Clone(data[off : off+n])
	}
	flipped := piece(1)
	flipped[PieceSize/2] ^= 4
	for _, c := range []struct {
		why  string
		i    int
		data []byte
	}{
		{"one bit flipped", 1, flipped},
		{"another piece of the file", 1, piece(0)},
		{"short", 0, piece(0)[:PieceSize-1]},
		{"long", 2, append(piece(2), 0)},
		{"empty", 2, nil},
	} {
		var pe *PieceError
		if err := p.VerifyPiece(c.i, c.data); !errors.As(err, &pe) || pe.Index != c.i {
			t.Errorf("%s: got %v", c.why, err)
		}
	}
}

func TestRangePanicsOutsideTheList(t *testing.T) {
	p, _ := hashBytes(randomBytes(10))
	for _, i := range []int{-1, 1} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Range(%d) did not panic", i)
				}
			}()
			p.Range(i)
		}()
	}
}

func BenchmarkPieceHasher(b *testing.B) {
	data := randomBytes(8 * PieceSize)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		hashBytes(data)
	}
}
