package segment

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/internal/vfs"
)

// Publish makes a staged file a sealed copy: complete, durable and read-only,
// under its final name. Only when it has returned may the copy be reported.
//
// Pieces and digest are the caller's word on the bytes it wrote; the store checks
// that they fit each other and the file's size. Name comes from outside and is
// checked against the grammar. If the same content is already held, the staged
// file is dropped and the copy that is there returned.
//
// Publish closes staged in every case. When it fails, the bytes stay at
// stagedPath (unless only the last fsync failed) and are the caller's to publish
// again or Discard.
//
// A crash leaves: before the sidecar's rename, something in staging/, swept;
// between the two renames, a sidecar without data, swept; after the data's
// rename, the complete copy, because content and sidecar are durable by then.
func (s *Store) Publish(staged vfs.File, stagedPath string, table uuid.UUID, partition int32, name string, pieces *Pieces, digest Digest) (Held, error) {
	h, err := s.publish(staged, stagedPath, table, partition, name, pieces, digest)
	if err != nil {
		return Held{}, fmt.Errorf("segment: publish %s on %s: %w", abridge(name), s.fs, err)
	}
	return h, nil
}

func (s *Store) publish(staged vfs.File, stagedPath string, table uuid.UUID, partition int32, name string, pieces *Pieces, digest Digest) (Held, error) {
	if err := errors.Join(checkName(partition, name), pieces.Check(digest), checkSize(staged, pieces.Size)); err != nil {
		return Held{}, errors.Join(err, staged.Close())
	}
	parsed, _ := ParseName(name)
	h := Held{Table: table, Partition: partition, Name: name, Digest: digest, SizeBytes: pieces.Size, State: StateSealed,
		file: segmentFile(table, partition, name, digest)}
	defer s.takeTurn(h.file)()

	if held, ok := s.lookup(h.file); ok {
		return s.publishAgain(staged, stagedPath, held, digest)
	}
	if err := s.fs.MkdirAll(path.Dir(h.file), 0o755); err != nil {
		return Held{}, errors.Join(err, staged.Close())
	}
	if err := s.writeSidecar(h.file, pieces); err != nil {
		return Held{}, errors.Join(err, staged.Close())
	}
	if err := s.fs.Chmod(stagedPath, 0o444); err != nil {
		return Held{}, errors.Join(err, staged.Close())
	}
	if err := vfs.Publish(s.fs, staged, stagedPath, h.file); err != nil {
		return Held{}, err
	}
	h.Verified = s.now()
	s.insert(h, parsed.Seq)
	s.dropJournal(stagedPath)
	s.logged(s.log.Debug(), h).Stringer("digest", digest).Int64("size", h.SizeBytes).Msg("segment published")
	return h, nil
}

// publishAgain is a publish of what is already there.
func (s *Store) publishAgain(staged vfs.File, stagedPath string, held Held, digest Digest) (Held, error) {
	if err := staged.Close(); err != nil {
		return Held{}, err
	}
	if held.Digest != digest {
		// Half of the digests' bits agree: nobody meets this by chance.
		return Held{}, fmt.Errorf("%s already holds content with digest %s, not %s", held.file, held.Digest, digest)
	}
	return held, s.Discard(stagedPath)
}

// dropJournal removes the journal of a download that was published. One that
// stays, stays without its .part and is swept at the next open.
func (s *Store) dropJournal(stagedPath string) {
	if !strings.HasSuffix(stagedPath, downloadSuffix) {
		return
	}
	if err := s.removeIfThere(stagedPath + journalSuffix); err != nil {
		s.log.Warn().Err(err).Str("file", stagedPath+journalSuffix).Msg("journal of a finished download left behind until the next start")
	}
}

func (s *Store) lookup(file string) (Held, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.index.byFile[file]
	if !ok {
		return Held{}, false
	}
	return c.held, true
}

func checkSize(f vfs.File, want int64) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() != want {
		return fmt.Errorf("staged file has %d bytes, its piece list says %d", info.Size(), want)
	}
	return nil
}
