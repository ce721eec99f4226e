package segment

import (
	"encoding/binary"
	"fmt"
	"math"
)

// The sidecar is a piece list in a file of its own, beside the segment locally
// and in the deep store: docs/format/pieces.md draws it. It has no checksum,
// because the list combines to the digest of the segment or is refused.
const (
	sidecarMagic      = "SHOALP"
	sidecarVersion    = 1
	sidecarHeaderSize = len(sidecarMagic) + 2 + 8
)

// SidecarSize is the size in bytes of the sidecar of a file of size bytes.
func SidecarSize(size int64) int64 {
	return int64(sidecarHeaderSize) + 32*PieceCount(size)
}

// MarshalBinary encodes the sidecar.
func (p *Pieces) MarshalBinary() ([]byte, error) {
	if _, err := p.Root(); err != nil {
		return nil, err
	}
	b := make([]byte, 0, SidecarSize(p.Size))
	b = append(b, sidecarMagic...)
	b = binary.LittleEndian.AppendUint16(b, sidecarVersion)
	b = binary.LittleEndian.AppendUint64(b, uint64(p.Size))
	for i := range p.Chaining {
		b = append(b, p.Chaining[i][:]...)
	}
	return b, nil
}

// UnmarshalBinary decodes a sidecar; bytes that are none match ErrBadSidecar. It
// says nothing on whose list it is: call Check before trusting it, or use
// ParsePieces.
func (p *Pieces) UnmarshalBinary(b []byte) error {
	if len(b) < sidecarHeaderSize || string(b[:len(sidecarMagic)]) != sidecarMagic {
		return fmt.Errorf("%w: no magic in the first of %d bytes", ErrBadSidecar, len(b))
	}
	if v := binary.LittleEndian.Uint16(b[len(sidecarMagic):]); v != sidecarVersion {
		return fmt.Errorf("%w: version %d, this program reads %d", ErrBadSidecar, v, sidecarVersion)
	}
	size := binary.LittleEndian.Uint64(b[len(sidecarMagic)+2:])
	if size == 0 || size > math.MaxInt64 {
		return fmt.Errorf("%w: file size %d", ErrBadSidecar, size)
	}
	// Compared before anything is allocated, so a forged size costs nothing.
	if want := SidecarSize(int64(size)); int64(len(b)) != want {
		return fmt.Errorf("%w: %d bytes, but a file of %d bytes has a list of %d", ErrBadSidecar, len(b), size, want)
	}
	b = b[sidecarHeaderSize:]
	p.Size, p.Chaining = int64(size), make([][32]byte, len(b)/32)
	for i := range p.Chaining {
		copy(p.Chaining[i][:], b[32*i:])
	}
	return nil
}

// ParsePieces decodes a sidecar and proves it against the digest of the file it
// is for, so that its hashes can be trusted wherever the bytes came from. Its
// Size is proven only together with the bytes of the last piece: a caller that
// knows the size from the segment's record compares the two.
func ParsePieces(sidecar []byte, digest Digest) (*Pieces, error) {
	p := new(Pieces)
	if err := p.UnmarshalBinary(sidecar); err != nil {
		return nil, err
	}
	if err := p.Check(digest); err != nil {
		return nil, err
	}
	return p, nil
}
