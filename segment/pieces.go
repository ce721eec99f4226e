package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"sync"

	"lukechampine.com/blake3/guts"
)

// PieceSize is the unit of verification: a file is checked, sent, and resumed
// in pieces of this many bytes, the last of which may be short.
//
// It must stay a power of two of BLAKE3's chunks, because only then is every
// piece a whole subtree of the hash tree and the piece list an inner row of it.
const PieceSize = 4 << 20

// ErrBadSidecar says that bytes are not a piece list: wrong magic, version, or
// length. A list that is well-formed but belongs to another file is a
// *RootError instead.
var ErrBadSidecar = errors.New("segment: not a piece list")

var errEmptyFile = errors.New("segment: a file of 0 bytes has no pieces")

// Pieces is the piece list of a file: one BLAKE3 chaining value for each piece.
// Combined up to the root they give the file's Digest, so a list that came from
// anywhere is proven by Check, and then proves each piece by VerifyPiece. With a
// single piece, its entry is the digest itself.
//
// A Pieces is not changed once made and may be shared between goroutines.
type Pieces struct {
	// Size of the file in bytes, above 0.
	Size int64
	// Chaining holds Count(Size) values, in the order of the pieces.
	Chaining [][32]byte
}

// PieceCount is the number of pieces of a file of size bytes.
func PieceCount(size int64) int64 {
	if size <= 0 {
		return 0
	}
	return (size-1)/PieceSize + 1
}

// Count is the number of pieces.
func (p *Pieces) Count() int { return len(p.Chaining) }

// Range is where piece i lies in the file: its offset and its length in bytes.
// It panics when there is no such piece.
func (p *Pieces) Range(i int) (off, n int64) {
	if i < 0 || i >= len(p.Chaining) {
		panic(fmt.Sprintf("segment: piece %d of %d", i, len(p.Chaining)))
	}
	off = int64(i) * PieceSize
	return off, min(PieceSize, p.Size-off)
}

// Root combines the list to the digest of the whole file. It fails only for a
// list whose length does not fit its size.
func (p *Pieces) Root() (Digest, error) {
	switch n := PieceCount(p.Size); {
	case n == 0:
		return Digest{}, errEmptyFile
	case n != int64(len(p.Chaining)):
		return Digest{}, fmt.Errorf("%w: %d entries for a file of %d bytes, which has %d pieces", ErrBadSidecar, len(p.Chaining), p.Size, n)
	case n == 1:
		return p.Chaining[0], nil
	}
	root := parent(p.Chaining)
	root.Flags |= guts.FlagRoot
	return wordsToBytes(guts.ChainingValue(root)), nil
}

// Check proves the list against the digest of the file. A list that combines to
// another root is a *RootError.
func (p *Pieces) Check(want Digest) error {
	got, err := p.Root()
	if err != nil {
		return err
	}
	if got != want {
		return &RootError{Got: got, Want: want}
	}
	return nil
}

// VerifyPiece checks the bytes of piece i. Wrong bytes, or a wrong number of
// them, are a *PieceError.
func (p *Pieces) VerifyPiece(i int, data []byte) error {
	v := p.Verifier(i)
	// A Verifier remembers surplus bytes itself; its Write never fails.
	_, _ = v.Write(data)
	return v.Verify()
}

// parent is the node above two or more pieces. The left child takes the largest
// power of two of them that leaves something for the right one.
func parent(cvs [][32]byte) guts.Node {
	left := 1 << (bits.Len(uint(len(cvs)-1)) - 1)
	return guts.ParentNode(subtree(cvs[:left]), subtree(cvs[left:]), &guts.IV, 0)
}

func subtree(cvs [][32]byte) [8]uint32 {
	if len(cvs) == 1 {
		return bytesToWords(cvs[0])
	}
	return guts.ChainingValue(parent(cvs))
}

// RootError says that a piece list does not belong to the file it was offered for.
type RootError struct{ Got, Want Digest }

func (e *RootError) Error() string {
	return fmt.Sprintf("segment: piece list combines to %s, not to %s", e.Got, e.Want)
}

// PieceError says that the bytes offered for a piece are not that piece.
type PieceError struct {
	Index int
	// Off and Size say where the piece lies in the file, in bytes.
	Off, Size int64
	// GotSize differs from Size when the number of bytes is already wrong.
	GotSize   int64
	Got, Want [32]byte
}

func (e *PieceError) Error() string {
	if e.GotSize != e.Size {
		return fmt.Sprintf("segment: piece %d (bytes %d to %d): got %d bytes instead of %d", e.Index, e.Off, e.Off+e.Size, e.GotSize, e.Size)
	}
	return fmt.Sprintf("segment: piece %d (bytes %d to %d): hash is %x, not %x", e.Index, e.Off, e.Off+e.Size, e.Got, e.Want)
}

// Verifier checks one piece while its bytes arrive, without holding them.
type Verifier struct {
	pieces *Pieces
	index  int
	tree   tree
	got    int64
}

// Verifier returns an empty verifier of piece i. It panics when there is no
// such piece.
func (p *Pieces) Verifier(i int) *Verifier {
	p.Range(i)
	v := &Verifier{pieces: p, index: i}
	v.tree.reset(i)
	return v
}

// Write takes the next bytes of the piece. It never fails: bytes beyond the
// piece's length are counted, and Verify names them.
func (v *Verifier) Write(b []byte) (int, error) {
	_, size := v.pieces.Range(v.index)
	if room := size - v.got; room > 0 {
		v.tree.write(b[:min(int64(len(b)), room)])
	}
	v.got += int64(len(b))
	return len(b), nil
}

// Verify judges the bytes written so far as the whole piece: nil or a *PieceError.
func (v *Verifier) Verify() error {
	off, size := v.pieces.Range(v.index)
	e := &PieceError{Index: v.index, Off: off, Size: size, GotSize: v.got, Want: v.pieces.Chaining[v.index]}
	if v.got != size {
		return e
	}
	e.Got = v.tree.value(len(v.pieces.Chaining) == 1)
	if e.Got != e.Want {
		return e
	}
	return nil
}

// PieceHasher computes the piece list and the digest of a file in one pass over
// its bytes. The zero value is ready. It holds 16 KiB whatever the file's size,
// and hashes on the caller's goroutine.
type PieceHasher struct {
	tree     tree
	inPiece  int64
	chaining [][32]byte
	size     int64
}

// Write never fails.
func (h *PieceHasher) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		if h.inPiece == PieceSize {
			h.endPiece()
		}
		take := min(int64(len(b)), PieceSize-h.inPiece)
		h.tree.write(b[:take])
		h.inPiece += take
		b = b[take:]
	}
	h.size += int64(n)
	return n, nil
}

func (h *PieceHasher) endPiece() {
	h.chaining = append(h.chaining, h.tree.value(false))
	h.tree.reset(len(h.chaining))
	h.inPiece = 0
}

// Size is the number of bytes written so far.
func (h *PieceHasher) Size() int64 { return h.size }

// Sum returns the list and the digest of the bytes written so far. More may be
// written afterwards: the state is unchanged. Without any byte the list is
// empty, its Root fails, and the digest is zero.
func (h *PieceHasher) Sum() (*Pieces, Digest) {
	p := &Pieces{Size: h.size}
	if h.size == 0 {
		return p, Digest{}
	}
	only := len(h.chaining) == 0
	p.Chaining = append(append(make([][32]byte, 0, len(h.chaining)+1), h.chaining...), h.tree.value(only))
	d, err := p.Root()
	if err != nil {
		panic(err) // the count follows from the size by construction
	}
	return p, d
}

// HashFile reads size bytes of r and returns their piece list and digest. Fewer
// bytes than that is io.ErrUnexpectedEOF.
func HashFile(r io.ReaderAt, size int64) (*Pieces, Digest, error) {
	h := hashers.Get().(*PieceHasher)
	defer hashers.Put(h)
	*h = PieceHasher{}
	n, err := io.CopyBuffer(h, onlyReader{io.NewSectionReader(r, 0, size)}, make([]byte, min(hashBufferSize, max(size, 1))))
	if err == nil && n < size {
		err = io.ErrUnexpectedEOF
	}
	if err == nil && size <= 0 {
		err = errEmptyFile
	}
	if err != nil {
		return nil, Digest{}, err
	}
	p, d := h.Sum()
	return p, d, nil
}

// hashers are of 16 KiB, and many a file that is hashed is smaller.
var hashers = sync.Pool{New: func() any { return new(PieceHasher) }}

// onlyReader hides WriteTo, so that io.CopyBuffer uses the buffer it was given.
type onlyReader struct{ io.Reader }

// tree hashes the bytes of one piece. It works in blocks of the widest SIMD
// unit, merging equal subtrees as a binary counter carries, so that it needs one
// block of memory and no goroutine, where guts.CompressEigentree wants all the
// 4 MiB and starts 256. On one core it is no slower.
type tree struct {
	firstChunk uint64
	// stack[k] is a subtree of 2^k blocks, in use when bit k of blocks is set.
	stack  [8][8]uint32
	blocks uint64
	// block is the block being filled; a full one waits until it is known
	// whether another follows, because the last node of a file is special.
	block [blockSize]byte
	n     int
}

const blockSize = guts.MaxSIMD * guts.ChunkSize

// hashBufferSize is by how many bytes a file that is hashed is read.
const hashBufferSize = 256 << 10

func (t *tree) reset(piece int) {
	t.firstChunk = uint64(piece) * (PieceSize / guts.ChunkSize)
	t.blocks, t.n = 0, 0
}

// write takes bytes of the piece, which must not exceed PieceSize altogether.
func (t *tree) write(b []byte) {
	for len(b) > 0 {
		if t.n == blockSize {
			t.push(&t.block)
			t.n = 0
		}
		// Straight from the caller's bytes while whole blocks and more follow.
		for t.n == 0 && len(b) > blockSize {
			t.push((*[blockSize]byte)(b))
			b = b[blockSize:]
		}
		n := copy(t.block[t.n:], b)
		t.n += n
		b = b[n:]
	}
}

func (t *tree) push(block *[blockSize]byte) {
	cv := guts.ChainingValue(guts.CompressBuffer(block, blockSize, &guts.IV, t.nextChunk(), 0))
	k := 0
	for ; t.blocks&(1<<k) != 0; k++ {
		cv = guts.ChainingValue(guts.ParentNode(t.stack[k], cv, &guts.IV, 0))
	}
	t.stack[k] = cv
	t.blocks++
}

func (t *tree) nextChunk() uint64 { return t.firstChunk + t.blocks*guts.MaxSIMD }

// value is the chaining value of the bytes so far, or, as the root, the digest
// of a file that consists of them. It leaves the tree as it is.
func (t *tree) value(root bool) [32]byte {
	n := guts.CompressBuffer(&t.block, t.n, &guts.IV, t.nextChunk(), 0)
	for k := range t.stack {
		if t.blocks&(1<<k) != 0 {
			n = guts.ParentNode(t.stack[k], guts.ChainingValue(n), &guts.IV, 0)
		}
	}
	if root {
		n.Flags |= guts.FlagRoot
	}
	return wordsToBytes(guts.ChainingValue(n))
}

func wordsToBytes(w [8]uint32) (b [32]byte) {
	for i, x := range w {
		binary.LittleEndian.PutUint32(b[4*i:], x)
	}
	return b
}

func bytesToWords(b [32]byte) (w [8]uint32) {
	for i := range w {
		w[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return w
}
