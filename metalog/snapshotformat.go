package metalog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

// A snapshot file holds the records of the image at one offset, in the log's own
// frames (docs/format/snapshot.md): a header, the records sorted by key, a footer.
// The same image gives the same bytes on every machine, so a download goes on from
// any holder.
const (
	snapshotVersion    = 1
	snapshotHeaderSize = 68 // bytes of payload
	snapshotFooterSize = 49
	recordOverhead     = 5 // of a record in a frame: its kind and its length

	// What the payload of a frame after the header begins with.
	frameOfRecords = 'r'
	frameOfFooter  = 'f'
)

const (
	snapshotSuffix = ".checkpoint"
	partSuffix     = ".part"    // while it is written or downloaded
	corruptSuffix  = ".corrupt" // once it is set aside
	sidecarSuffix  = ".pieces"  // its piece list, under the same base name
)

var snapshotMagic = [8]byte{'s', 'h', 'o', 'a', 'l', 's', 'n', 'p'}

// SnapshotHeader says what a snapshot is of. Its Position is where the log goes on:
// the offset after the last batch, with epoch and term of that batch.
type SnapshotHeader struct {
	Cluster uuid.UUID // zero before the first batch
	Position
	Time int64 // of the last batch, in milliseconds since the Unix epoch
}

// ID is the snapshot's identity.
func (h SnapshotHeader) ID() SnapshotID { return SnapshotID{EndOffset: h.Offset, Epoch: h.LastEpoch} }

// headerOf describes the image.
func headerOf(im *meta.Image) SnapshotHeader {
	h := SnapshotHeader{
		Position: Position{Offset: im.Next(), LastEpoch: im.Epoch(), LastTerm: im.LastTerm()},
		Time:     im.LastTime(),
	}
	if c := im.Cluster(); c != nil {
		h.Cluster = c.ID
	}
	return h
}

// check refuses a position that no log has: epochs begin at 1 and each has a term,
// so both are zero before the first batch and only there.
func (p Position) check() error {
	if p.Offset < 0 || p.LastEpoch < 0 {
		return fmt.Errorf("position (%d, %d) is negative", p.Offset, p.LastEpoch)
	}
	first := p.Offset == 0
	if first != (p.LastEpoch == 0) || first != (p.LastTerm == uuid.Nil) {
		return fmt.Errorf("offset %d cannot follow epoch %d, term %s", p.Offset, p.LastEpoch, p.LastTerm)
	}
	return nil
}

func encodeSnapshotHeader(h SnapshotHeader) []byte {
	b := make([]byte, 0, snapshotHeaderSize)
	b = append(b, snapshotMagic[:]...)
	b = binary.LittleEndian.AppendUint32(b, snapshotVersion)
	b = append(b, h.Cluster[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(h.Offset))
	b = binary.LittleEndian.AppendUint64(b, uint64(h.LastEpoch))
	b = append(b, h.LastTerm[:]...)
	return binary.LittleEndian.AppendUint64(b, uint64(h.Time))
}

// decodeSnapshotHeader is the inverse of encodeSnapshotHeader. A newer version is a
// *FormatError.
func decodeSnapshotHeader(name string, b []byte) (SnapshotHeader, error) {
	if len(b) < 12 || [8]byte(b[:8]) != snapshotMagic {
		return SnapshotHeader{}, errors.New("it does not begin as a snapshot does")
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v > snapshotVersion {
		return SnapshotHeader{}, &FormatError{File: name, Version: v, Known: snapshotVersion}
	} else if v == 0 || len(b) != snapshotHeaderSize {
		return SnapshotHeader{}, fmt.Errorf("a header of version %d and %d bytes", v, len(b))
	}
	h := SnapshotHeader{
		Cluster: uuid.UUID(b[12:28]),
		Position: Position{
			Offset:    int64(binary.LittleEndian.Uint64(b[28:])),
			LastEpoch: int64(binary.LittleEndian.Uint64(b[36:])),
			LastTerm:  uuid.UUID(b[44:60]),
		},
		Time: int64(binary.LittleEndian.Uint64(b[60:])),
	}
	return h, h.check()
}

// snapshotFooter is what a reader must have counted when it comes to the end.
type snapshotFooter struct {
	records, bytes uint64         // records, and bytes of the file before the footer's frame
	state          segment.Digest // of those bytes
}

func encodeSnapshotFooter(f snapshotFooter) []byte {
	b := make([]byte, 0, snapshotFooterSize)
	b = append(b, frameOfFooter)
	b = binary.LittleEndian.AppendUint64(b, f.records)
	b = binary.LittleEndian.AppendUint64(b, f.bytes)
	return append(b, f.state[:]...)
}

func decodeSnapshotFooter(b []byte) (f snapshotFooter, err error) {
	if len(b) != snapshotFooterSize {
		return f, fmt.Errorf("a footer of %d bytes", len(b))
	}
	f.records = binary.LittleEndian.Uint64(b[1:])
	f.bytes = binary.LittleEndian.Uint64(b[9:])
	copy(f.state[:], b[17:])
	return f, nil
}

// appendRecord appends a record as it stands in a frame.
func appendRecord(dst []byte, k meta.Kind, data []byte) []byte {
	dst = append(dst, byte(k))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(data)))
	return append(dst, data...)
}

// takeRecord takes the first record off b.
func takeRecord(b []byte) (r meta.Record, rest []byte, err error) {
	if len(b) < recordOverhead {
		return nil, nil, errors.New("the frame ends inside a record")
	}
	n := binary.LittleEndian.Uint32(b[1:])
	if n > meta.MaxRecordSize || int(n) > len(b)-recordOverhead {
		return nil, nil, fmt.Errorf("a record of %d bytes, %d are left in the frame", n, len(b)-recordOverhead)
	}
	end := recordOverhead + int(n)
	r, err = meta.DecodeRecord(meta.Kind(b[0]), b[recordOverhead:end])
	return r, b[end:], err
}

// snapshotFile is the path of a snapshot, sidecarFile that of its piece list.
func snapshotFile(dir string, id SnapshotID) string {
	return path.Join(dir, id.String()+snapshotSuffix)
}

func sidecarFile(dir string, id SnapshotID) string {
	return path.Join(dir, id.String()+sidecarSuffix)
}

// parseSnapshotName returns the id in a file name that ends in suffix.
func parseSnapshotName(name, suffix string) (SnapshotID, bool) {
	base, ok := strings.CutSuffix(name, suffix)
	if !ok {
		return SnapshotID{}, false
	}
	id, err := ParseSnapshotID(base)
	return id, err == nil
}
