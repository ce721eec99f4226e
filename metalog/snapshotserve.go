package metalog

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/segment"
)

// What is needed to send a snapshot to somebody else.

// OpenFile opens the bytes of a snapshot for reading. They stay readable when the snapshot
// is removed meanwhile.
func (s *Snapshots) OpenFile(id SnapshotID) (vfs.File, error) {
	if _, ok := s.Get(id); !ok {
		return nil, fmt.Errorf("%w: %s", ErrSnapshotNotFound, id)
	}
	f, err := s.fs.Open(snapshotFile(s.dir, id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, s.vanished(id, err)
	}
	if err != nil {
		return nil, fmt.Errorf("metalog: %w", err)
	}
	return f, nil
}

// Pieces returns the piece list of a snapshot, proven against the digest that it is known
// by. One that is missing or damaged is made again from the file; a file of other bytes is
// a *CorruptionError.
func (s *Snapshots) Pieces(id SnapshotID) (*segment.Pieces, error) {
	ref, ok := s.Get(id)
	if !ok {
		return nil, fmt.Errorf("%w: %s", ErrSnapshotNotFound, id)
	}
	data, err := vfs.ReadFile(s.fs, sidecarFile(s.dir, id), segment.SidecarSize(ref.SizeBytes))
	if err == nil {
		p, err := segment.ParsePieces(data, ref.Digest)
		if err == nil && p.Size == ref.SizeBytes {
			return p, nil
		}
	}
	return s.listAgain(ref)
}

// listAgain makes the piece list of a snapshot from its bytes.
func (s *Snapshots) listAgain(ref SnapshotRef) (p *segment.Pieces, err error) {
	f, err := s.OpenFile(ref.SnapshotID)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	p, digest, err := segment.HashFile(f, ref.SizeBytes)
	if err != nil {
		return nil, fmt.Errorf("metalog: snapshot %s: %w", ref.SnapshotID, err)
	}
	if digest != ref.Digest {
		return nil, &CorruptionError{File: snapshotFile(s.dir, ref.SnapshotID), Reason: fmt.Sprintf("it has digest %s, not %s", digest, ref.Digest)}
	}
	s.mend(ref, p)
	return p, nil
}
