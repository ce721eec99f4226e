package peerdl

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/segment"
)

// The journal lies beside the .part and says whose bytes it holds: the digest,
// and the piece list that was proven against it, so that a resume can judge
// every piece in the .part without asking anyone. It is written once, after the
// .part exists and before the first piece is written, and is not appended to:
// which pieces are there is found out by hashing them (openPart).
//
//	magic "SHOALJ" | version u16 LE | digest 32 bytes | sidecar
const (
	journalMagic      = "SHOALJ"
	journalVersion    = 1
	journalHeaderSize = len(journalMagic) + 2 + len(segment.Digest{})
)

var errBadJournal = errors.New("peerdl: not the journal of this download")

// JournalName is the name of the journal of a .part. The segment store goes by it
// when it decides at start which downloads to keep.
func JournalName(part string) string { return part + ".journal" }

func encodeJournal(digest segment.Digest, pieces *segment.Pieces) ([]byte, error) {
	sidecar, err := pieces.MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("peerdl: journal: %w", err)
	}
	b := append([]byte(nil), journalMagic...)
	b = binary.LittleEndian.AppendUint16(b, journalVersion)
	b = append(b, digest[:]...)
	return append(b, sidecar...), nil
}

func decodeJournal(b []byte) (digest segment.Digest, pieces *segment.Pieces, err error) {
	if len(b) < journalHeaderSize || string(b[:len(journalMagic)]) != journalMagic {
		return digest, nil, fmt.Errorf("%w: no magic", errBadJournal)
	}
	if v := binary.LittleEndian.Uint16(b[len(journalMagic):]); v != journalVersion {
		return digest, nil, fmt.Errorf("%w: version %d, this program reads %d", errBadJournal, v, journalVersion)
	}
	copy(digest[:], b[len(journalMagic)+2:])
	pieces, err = segment.ParsePieces(b[journalHeaderSize:], digest)
	if err != nil {
		return digest, nil, fmt.Errorf("%w: %w", errBadJournal, err)
	}
	return digest, pieces, nil
}

// readJournal returns the proven piece list of a download that was begun
// before. Any error means that there is none to continue.
func readJournal(fsys vfs.FS, part string, digest segment.Digest, size int64) (*segment.Pieces, error) {
	data, err := vfs.ReadFile(fsys, JournalName(part), int64(journalHeaderSize)+segment.SidecarSize(size))
	if err != nil {
		return nil, err
	}
	got, pieces, err := decodeJournal(data)
	if err != nil {
		return nil, err
	}
	if got != digest || pieces.Size != size {
		return nil, fmt.Errorf("%w: it is of %s, %d bytes", errBadJournal, got, pieces.Size)
	}
	return pieces, nil
}

func writeJournal(fsys vfs.FS, part string, digest segment.Digest, pieces *segment.Pieces) error {
	data, err := encodeJournal(digest, pieces)
	if err != nil {
		return err
	}
	return vfs.WriteFile(fsys, JournalName(part), data)
}
