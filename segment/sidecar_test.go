package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
)

func sidecarOf(t testing.TB, size int) ([]byte, Digest) {
	t.Helper()
	p, d := hashBytes(randomBytes(size))
	b, err := p.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	return b, d
}

func TestSidecarRoundTrip(t *testing.T) {
	for _, size := range []int{1, PieceSize, PieceSize + 1, 3*PieceSize + 9} {
		b, d := sidecarOf(t, size)
		if int64(len(b)) != SidecarSize(int64(size)) {
			t.Errorf("%d bytes, want %d", len(b), SidecarSize(int64(size)))
		}
		p, err := ParsePieces(b, d)
		if err != nil {
			t.Fatal(err)
		}
		again, err := p.MarshalBinary()
		if err != nil || !bytes.Equal(again, b) {
			t.Errorf("size %d does not encode to what it was decoded from: %v", size, err)
		}
	}
}

// The format is on disks and in buckets: this test may only grow.
func TestSidecarGolden(t *testing.T) {
	p, d := hashBytes([]byte("a shoal is a school of fish"))
	got, err := p.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	want := append([]byte("SHOALP\x01\x00\x1b\x00\x00\x00\x00\x00\x00\x00"), d[:]...)
	if !bytes.Equal(got, want) {
		t.Fatalf("got  %x\nwant %x", got, want)
	}
}

func TestForgedSidecarIsRefused(t *testing.T) {
	good, d := sidecarOf(t, 3*PieceSize+9)
	other, _ := sidecarOf(t, 3*PieceSize+10)
	with := func(change func(b []byte) []byte) []byte { return change(bytes.Clone(good)) }
	var root *RootError
	for name, b := range map[string][]byte{
		"the list of another file": other,
		"one bit of an entry":      with(func(b []byte) []byte { b[sidecarHeaderSize+40] ^= 1; return b }),
		"two entries swapped": with(func(b []byte) []byte {
			copy(b[sidecarHeaderSize:], good[sidecarHeaderSize+32:sidecarHeaderSize+64])
			copy(b[sidecarHeaderSize+32:], good[sidecarHeaderSize:sidecarHeaderSize+32])
			return b
		}),
	} {
		if p, err := ParsePieces(b, d); !errors.As(err, &root) || p != nil {
			t.Errorf("%s: got %v", name, err)
		}
	}
	for name, b := range map[string][]byte{
		"nothing":            nil,
		"a part of a header": good[:10],
		"another magic":      with(func(b []byte) []byte { b[0] = 'X'; return b }),
		"another version":    with(func(b []byte) []byte { b[6] = 2; return b }),
		"one byte short":     good[:len(good)-1],
		"one byte more":      append(bytes.Clone(good), 0),
		"one entry short":    good[:len(good)-32],
		"size 0":             with(func(b []byte) []byte { binary.LittleEndian.PutUint64(b[8:], 0); return b[:sidecarHeaderSize] }),
		"size 2^63":          with(func(b []byte) []byte { binary.LittleEndian.PutUint64(b[8:], 1<<63); return b }),
		"size 2^63-1":        with(func(b []byte) []byte { binary.LittleEndian.PutUint64(b[8:], 1<<63-1); return b }),
	} {
		if p, err := ParsePieces(b, d); !errors.Is(err, ErrBadSidecar) || p != nil {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// The size of a file is in its sidecar but not in the hash. Within one piece
// count a forged size would pass the root; the last piece then fails, by length
// or because the bytes at hand are not its subtree.
func TestForgedSizeIsNoticedAtTheLastPiece(t *testing.T) {
	data := randomBytes(PieceSize + 100)
	p, d := hashBytes(data)
	forged := &Pieces{Size: p.Size + 1, Chaining: p.Chaining}
	if err := forged.Check(d); err != nil {
		t.Fatalf("the premise is gone: %v", err)
	}
	var pe *PieceError
	if err := forged.VerifyPiece(1, append(data[PieceSize:len(data):len(data)], 0)); !errors.As(err, &pe) || pe.Index != 1 {
		t.Fatalf("got %v", err)
	}
}

func FuzzSidecar(f *testing.F) {
	for _, size := range []int{1, PieceSize + 1} {
		b, _ := sidecarOf(f, size)
		f.Add(b)
	}
	f.Add([]byte("SHOALP\x01\x00\xff\xff\xff\xff\xff\xff\xff\x7f"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var p Pieces
		if err := p.UnmarshalBinary(b); err != nil {
			if !errors.Is(err, ErrBadSidecar) {
				t.Fatalf("unexpected kind of error: %v", err)
			}
			return
		}
		root, err := p.Root()
		if err != nil {
			t.Fatalf("decoded, but has no root: %v", err)
		}
		if err := p.Check(root); err != nil {
			t.Fatal(err)
		}
		again, err := p.MarshalBinary()
		if err != nil || !bytes.Equal(again, b) {
			t.Fatalf("decoded, but encodes to other bytes: %v", err)
		}
	})
}
