package metalog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// A frame is the unit of the log and of snapshots: sixteen bytes of header, the
// payload, one end mark (docs/format/log.md). The header has a checksum of its own,
// because its length decides where the next frame begins: without it, one flipped
// bit in the length of the last frame would make it "run past the end", and a
// committed batch would be cut off as a torn tail. The mark is there because it is
// not zero: a frame begins and ends with a byte that is not zero, so a part of a
// sector that is all zeros was never written, however short it is.
const (
	frameHeaderSize = 16
	frameOverhead   = frameHeaderSize + 1
	frameEnd        = 0xa5
	// MaxFramePayload bounds a frame's payload, so that a reader can refuse a
	// length before it allocates anything.
	MaxFramePayload = 1 << 20

	sectorSize = 512 // what a disk writes whole or not at all
)

var (
	frameMagic = [4]byte{'s', 'h', 'f', 'r'}
	castagnoli = crc32.MakeTable(crc32.Castagnoli)

	// ErrFrameShort says that a frame runs past the end of the bytes given.
	ErrFrameShort = errors.New("frame runs past the end")
)

// FrameError says what is wrong with a whole frame.
type FrameError struct{ Reason string }

func (e *FrameError) Error() string { return e.Reason }

// AppendFrame appends payload to dst as one frame. It panics if the payload is
// empty or larger than MaxFramePayload: whoever builds payloads bounds them.
func AppendFrame(dst, payload []byte) []byte {
	if len(payload) == 0 || len(payload) > MaxFramePayload {
		panic(fmt.Sprintf("metalog: frame payload of %d bytes", len(payload)))
	}
	var h [frameHeaderSize]byte
	copy(h[:4], frameMagic[:])
	binary.LittleEndian.PutUint32(h[4:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(h[8:], crc32.Checksum(payload, castagnoli))
	binary.LittleEndian.PutUint32(h[12:], crc32.Checksum(h[:12], castagnoli))
	return append(append(append(dst, h[:]...), payload...), frameEnd)
}

// NextFrame takes the first frame off b and returns its payload, which aliases b,
// and the bytes after it. It returns ErrFrameShort when b ends first and a
// *FrameError when the frame is whole but not what was written.
func NextFrame(b []byte) (payload, rest []byte, err error) {
	n, err := frameLength(b)
	if err != nil {
		return nil, b, err
	}
	if len(b) < frameOverhead+n {
		return nil, b, ErrFrameShort
	}
	payload, rest = b[frameHeaderSize:frameHeaderSize+n], b[frameOverhead+n:]
	if mark := b[frameHeaderSize+n]; mark != frameEnd {
		return nil, b, &FrameError{fmt.Sprintf("ends with byte %02x", mark)}
	}
	if got, want := crc32.Checksum(payload, castagnoli), binary.LittleEndian.Uint32(b[8:]); got != want {
		return nil, b, &FrameError{fmt.Sprintf("payload checksum is %08x, the header says %08x", got, want)}
	}
	return payload, rest, nil
}

// frameLength reads the payload length out of a header, having checked it.
func frameLength(b []byte) (int, error) {
	if len(b) < frameHeaderSize {
		return 0, ErrFrameShort
	}
	if !bytes.Equal(b[:4], frameMagic[:]) {
		return 0, &FrameError{fmt.Sprintf("no frame begins here (found % x)", b[:4])}
	}
	if got, want := crc32.Checksum(b[:12], castagnoli), binary.LittleEndian.Uint32(b[12:]); got != want {
		return 0, &FrameError{fmt.Sprintf("header checksum is %08x, the header says %08x", got, want)}
	}
	n := binary.LittleEndian.Uint32(b[4:])
	if n == 0 || n > MaxFramePayload {
		return 0, &FrameError{fmt.Sprintf("payload length is %d", n)}
	}
	return int(n), nil
}

// tornTail tells whether data from pos on, where no good frame begins, is what a
// power cut leaves of an append that was never acknowledged: a frame that runs
// past the end, or one with zeros where sectors were never written. Anything else
// is damage to something durable, and so is a bad frame that a good one follows.
func tornTail(data []byte, pos int) bool {
	if holdsFrame(data[pos+1:]) {
		return false
	}
	bad := data[pos:]
	n, err := frameLength(bad)
	switch {
	case errors.Is(err, ErrFrameShort):
		return true
	case err != nil: // of a bad header only its own bytes are known to be its own
		return hasUnwritten(data, pos, pos+frameHeaderSize)
	case len(bad) < frameOverhead+n:
		return true
	default:
		return hasUnwritten(data, pos, pos+frameOverhead+n)
	}
}

// holdsFrame tells whether a good frame begins anywhere in b.
func holdsFrame(b []byte) bool {
	for {
		i := bytes.Index(b, frameMagic[:])
		if i < 0 {
			return false
		}
		if _, _, err := NextFrame(b[i:]); err == nil {
			return true
		}
		b = b[i+1:]
	}
}

// hasUnwritten tells whether a sector's part of data[from:to] is all zeros.
func hasUnwritten(data []byte, from, to int) bool {
	for from < to {
		end := min(to, (from/sectorSize+1)*sectorSize)
		if allZero(data[from:end]) {
			return true
		}
		from = end
	}
	return false
}

func allZero(b []byte) bool {
	return len(bytes.TrimLeft(b, "\x00")) == 0
}
