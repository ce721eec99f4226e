package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/shoalstore/shoal/internal/vfs"
)

// sidecarPath is the sidecar beside a data file, whatever its directory calls data.
func sidecarPath(data string) string { return trimExt(data) + sidecarSuffix }

func trimExt(file string) string { return strings.TrimSuffix(file, path.Ext(file)) }

// smallFileMax bounds what is read whole: the sidecar of a file of 4 TiB fits.
const smallFileMax = 32 << 20

// readSmall reads a sidecar, reason or id.
func (s *Store) readSmall(name string) ([]byte, error) {
	return vfs.ReadFile(s.fs, name, smallFileMax)
}

// writeSmall publishes a whole small file. It is written in staging/, so that no
// other directory ever holds half of one.
func (s *Store) writeSmall(name string, data []byte) error {
	f, tmp, err := s.createStaged("small")
	if err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", tmp, err), f.Close(), s.removeIfThere(tmp))
	}
	if err := vfs.Publish(s.fs, f, tmp, name); err != nil {
		return errors.Join(err, s.removeIfThere(tmp))
	}
	return nil
}

func (s *Store) readSidecar(data string, digest Digest) (*Pieces, error) {
	b, err := s.readSmall(sidecarPath(data))
	if err != nil {
		return nil, err
	}
	return ParsePieces(b, digest)
}

func (s *Store) writeSidecar(data string, pieces *Pieces) error {
	b, err := pieces.MarshalBinary()
	if err != nil {
		return err
	}
	return s.writeSmall(sidecarPath(data), b)
}

func (s *Store) removeIfThere(names ...string) error {
	var errs []error
	for _, name := range names {
		if err := s.fs.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// moveDurably renames a file into another directory. A crash leaves it in one of
// the two places.
func (s *Store) moveDurably(from, to string) error {
	if err := s.fs.Rename(from, to); err != nil {
		return err
	}
	// The new place first: were only the old one's removal to last, the file
	// would be in neither.
	if err := s.fs.SyncDir(path.Dir(to)); err != nil {
		return err
	}
	return s.fs.SyncDir(path.Dir(from))
}
