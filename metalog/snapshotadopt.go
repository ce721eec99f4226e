package metalog

import (
	"errors"
	"fmt"
	"io"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

// ErrNotTheSnapshot says that what came, or is to be had, is not the snapshot that was
// named.
var ErrNotTheSnapshot = errors.New("metalog: it is not the snapshot that was named")

// Adopt takes a snapshot that was downloaded to PartPath(ref) into the list and returns
// its image. The whole file is read first, and must be what ref says, a good snapshot as
// ReadSnapshot tells one, and of the cluster, unless that is zero: otherwise the error is
// ErrNotTheSnapshot, and nothing has changed. f is open for reading and is closed in
// every case; after an error the .part is where it was.
//
// A snapshot of that id which is here already is replaced: it has the same bytes, but they
// were proven some time ago. One with other bytes that are good is another history, and an
// error.
func (s *Snapshots) Adopt(f vfs.File, ref SnapshotRef, cluster uuid.UUID) (*meta.Image, error) {
	im, pieces, err := s.prove(f, ref, cluster)
	if err == nil {
		err = s.rule(ref)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	s.write.Lock()
	defer s.write.Unlock()
	if err := s.publish(f, ref, pieces); err != nil {
		return nil, err
	}
	s.put(ref)
	s.log.Info().Str("snapshot", ref.String()).Int64("bytes", ref.SizeBytes).Msg("snapshot downloaded")
	return im, nil
}

// prove reads a downloaded file through.
func (s *Snapshots) prove(f vfs.File, ref SnapshotRef, cluster uuid.UUID) (*meta.Image, *segment.Pieces, error) {
	_, part := s.PartPath(ref)
	info, err := f.Stat()
	if err != nil {
		return nil, nil, fmt.Errorf("metalog: %w", err)
	}
	if info.Size() != ref.SizeBytes {
		return nil, nil, fmt.Errorf("%w: %s has %d bytes, not %d", ErrNotTheSnapshot, part, info.Size(), ref.SizeBytes)
	}
	defer easeCollector(ref.SizeBytes)()
	im, h, pieces, digest, err := readSnapshot(part, io.NewSectionReader(f, 0, ref.SizeBytes))
	if errors.As(err, new(*CorruptionError)) {
		err = fmt.Errorf("%w: %w", ErrNotTheSnapshot, err)
	}
	if err != nil {
		return nil, nil, err
	}
	switch {
	case digest != ref.Digest:
		err = fmt.Errorf("%w: %s has digest %s, not %s", ErrNotTheSnapshot, part, digest, ref.Digest)
	case h.ID() != ref.SnapshotID:
		err = fmt.Errorf("%w: the header of %s says that it is snapshot %s", ErrNotTheSnapshot, part, h.ID())
	case cluster != uuid.Nil && h.Cluster != cluster:
		err = fmt.Errorf("%w: %s is of cluster %s, not %s", ErrNotTheSnapshot, part, h.Cluster, cluster)
	}
	return im, pieces, err
}

// rule decides between ref and another snapshot of its id that is here: it has to be
// damaged, or to have a wrong piece list.
func (s *Snapshots) rule(ref SnapshotRef) error {
	if held, ok := s.Get(ref.SnapshotID); !ok || held.Digest == ref.Digest {
		return nil
	}
	_, err := s.Load(ref.SnapshotID)
	switch {
	case errors.As(err, new(*CorruptionError)):
		s.log.Error().Err(err).Str("snapshot", ref.String()).Msg("a damaged snapshot is set aside; a good one was downloaded")
		return s.SetAside(ref.SnapshotID)
	case errors.Is(err, ErrSnapshotNotFound):
		return nil // removed in between
	case err != nil:
		return err
	}
	if held, ok := s.Get(ref.SnapshotID); ok && held.Digest != ref.Digest {
		return fmt.Errorf("metalog: snapshot %s has digest %s here and %s elsewhere, and both are good: there are two histories",
			ref.SnapshotID, held.Digest, ref.Digest)
	}
	return nil
}

// publish moves a proven .part to its name: the piece list first, which says nothing
// alone, then the file, read-only. It closes f.
func (s *Snapshots) publish(f vfs.File, ref SnapshotRef, pieces *segment.Pieces) error {
	_, part := s.PartPath(ref)
	err := writeSidecar(s.fs, s.dir, ref.SnapshotID, pieces)
	if err == nil {
		err = s.fs.Chmod(part, 0o444)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	if err := vfs.Publish(s.fs, f, part, snapshotFile(s.dir, ref.SnapshotID)); err != nil {
		return fmt.Errorf("metalog: snapshot %s: %w", ref.SnapshotID, err)
	}
	if err := removeIfThere(s.fs, part+journalSuffix); err != nil {
		s.log.Warn().Err(err).Str("snapshot", ref.String()).Msg("the journal of a finished download stays until the next start")
	}
	return nil
}
