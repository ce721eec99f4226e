package segment

import (
	"fmt"
	"path"
)

// removedSuffix marks data that is on its way out.
const removedSuffix = ".removed"

// Remove deletes a copy for good, sealed or quarantined. The caller knows that it
// may (DESIGN §4.5); the store only refuses, with ErrPinned, while it is read.
//
// A crash leaves: before the rename is durable, the copy as it was; after it, a
// .removed and a sidecar without data, both swept at open.
func (s *Store) Remove(h Held) error {
	defer s.takeTurn(h.file)()
	c, err := s.takeUnpinned(h)
	if err != nil {
		return err
	}
	h = c.held
	gone := trimExt(h.file) + removedSuffix
	if err := s.fs.Rename(h.file, gone); err != nil {
		s.putBack(c)
		return fmt.Errorf("segment: remove %s: %w", h.file, err)
	}
	if err := s.fs.SyncDir(path.Dir(h.file)); err != nil {
		return fmt.Errorf("segment: remove %s: %w", h.file, err)
	}
	if err := s.removeIfThere(gone, sidecarPath(h.file), reasonPath(h.file)); err != nil {
		s.logged(s.log.Warn(), h).Err(err).Msg("leftovers of a removed copy stay until the next start")
	}
	s.logged(s.log.Info(), h).Int64("size", h.SizeBytes).Str("state", string(h.State)).Msg("copy removed")
	return nil
}
