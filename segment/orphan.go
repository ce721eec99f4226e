package segment

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/google/uuid"
)

// A held file that no record explains is moved to orphans/ and stays there for
// days before anyone may remove it: the mistake may be the record's. There it is
//
//	<base>.<yyyyMMddTHHmmssZ>.orphan
//
// The time it was moved is in the name, so that the move and its time are one
// rename. It has no sidecar: Adopt hashes the data, and makes one.
const orphanSuffix = ".orphan"

// OrphanKeep is how long an orphan is kept.
const OrphanKeep = 7 * 24 * time.Hour

// Orphaned is a file in orphans/.
type Orphaned struct {
	Table     uuid.UUID
	Partition int32
	Name      string
	// Short is the first 16 hex digits of the digest (Digest.Short).
	Short     string
	SizeBytes int64
	// Since is when it was moved here.
	Since time.Time

	file string
}

// Orphan moves a sealed copy to orphans/. It refuses with ErrPinned while the
// copy is read. Now is the caller's time, to the second.
//
// A crash leaves the copy in one of the two places, and perhaps a sidecar without
// data, which is swept at open.
func (s *Store) Orphan(h Held, now time.Time) error {
	defer s.takeTurn(h.file)()
	c, err := s.takeUnpinned(h)
	if err != nil {
		return err
	}
	h = c.held
	if h.State != StateSealed {
		s.putBack(c)
		return fmt.Errorf("segment: orphan %s: it is %s", h.file, h.State)
	}
	dir := copyDir(orphansDir, h.Table, h.Partition)
	to := path.Join(dir, trimExt(path.Base(h.file))+"."+now.UTC().Format(nameTimeLayout)+orphanSuffix)
	if err := s.fs.MkdirAll(dir, 0o755); err != nil {
		s.putBack(c)
		return fmt.Errorf("segment: orphan %s on %s: %w", h.file, s.fs, err)
	}
	if err := s.moveDurably(h.file, to); err != nil {
		s.putBack(c)
		return fmt.Errorf("segment: orphan %s on %s: %w", h.file, s.fs, err)
	}
	if err := s.removeIfThere(sidecarPath(h.file)); err != nil {
		s.logged(s.log.Warn(), h).Err(err).Msg("sidecar of an orphan stays until the next start")
	}
	s.logged(s.log.Info(), h).Str("to", to).Msg("no record explains this copy, moved to orphans")
	return nil
}

// Orphans lists orphans/ by table, partition and file name.
func (s *Store) Orphans() ([]Orphaned, error) {
	var all []Orphaned
	err := s.walk(orphansDir, func(dir copyPlace, files []fs.DirEntry) error {
		for _, e := range files {
			o, ok := parseOrphan(dir, e.Name())
			if !ok {
				s.strange(path.Join(dir.path, e.Name()))
				continue
			}
			info, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) {
				continue // removed since the directory was read
			}
			if err != nil {
				return err
			}
			o.SizeBytes = info.Size()
			all = append(all, o)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("segment: list orphans: %w", err)
	}
	return all, nil
}

func parseOrphan(dir copyPlace, file string) (Orphaned, bool) {
	rest, ok := strings.CutSuffix(file, orphanSuffix)
	if !ok {
		return Orphaned{}, false
	}
	since, err := time.Parse("."+nameTimeLayout, path.Ext(rest))
	if err != nil {
		return Orphaned{}, false
	}
	name, short, err := ParseFileName(trimExt(rest) + fileSuffix)
	if err != nil || name.Partition != dir.partition {
		return Orphaned{}, false
	}
	return Orphaned{Table: dir.table, Partition: dir.partition, Name: name.String(), Short: short, Since: since, file: path.Join(dir.path, file)}, true
}

// ExpiredOrphans picks the orphans that have been there for longer than keep.
func ExpiredOrphans(orphans []Orphaned, now time.Time, keep time.Duration) []Orphaned {
	var expired []Orphaned
	for _, o := range orphans {
		if now.Sub(o.Since) > keep {
			expired = append(expired, o)
		}
	}
	return expired
}

// RemoveOrphan deletes an orphan for good. One that is already gone is no error.
func (s *Store) RemoveOrphan(o Orphaned) error {
	if err := s.removeIfThere(o.file); err != nil {
		return fmt.Errorf("segment: remove orphan: %w", err)
	}
	s.log.Info().Stringer("table", o.Table).Int32("partition", o.Partition).Str("segment", o.Name).Time("since", o.Since).Msg("orphan removed")
	return nil
}

// Adopt takes a copy back from orphans/, now that a record explains it, after
// proving its bytes. ErrNotHeld: there is none; download it. A *DamageError: there
// is one, and it stays where it is.
func (s *Store) Adopt(ctx context.Context, table uuid.UUID, partition int32, name string, digest Digest) (Held, error) {
	if err := checkName(partition, name); err != nil {
		return Held{}, err
	}
	parsed, _ := ParseName(name)
	h := Held{Table: table, Partition: partition, Name: name, Digest: digest, State: StateSealed, file: segmentFile(table, partition, name, digest)}
	defer s.takeTurn(h.file)()
	if held, ok := s.lookup(h.file); ok && held.Digest == digest {
		return held, nil
	}
	orphan, err := s.findOrphan(h)
	if err != nil {
		return Held{}, err
	}
	pieces, found, err := s.hashCopy(ctx, orphan.file)
	if err != nil {
		return Held{}, fmt.Errorf("segment: adopt %s: %w", orphan.file, err)
	}
	if found != digest {
		return Held{}, &DamageError{Held: h, Problem: fmt.Sprintf("%s hashes to %s", orphan.file, found)}
	}
	// As in Publish: the sidecar first.
	if err := errors.Join(s.fs.MkdirAll(path.Dir(h.file), 0o755), s.writeSidecar(h.file, pieces)); err != nil {
		return Held{}, fmt.Errorf("segment: adopt %s on %s: %w", orphan.file, s.fs, err)
	}
	if err := s.moveDurably(orphan.file, h.file); err != nil {
		return Held{}, fmt.Errorf("segment: adopt %s on %s: %w", orphan.file, s.fs, err)
	}
	h.SizeBytes, h.Verified = pieces.Size, s.now()
	s.insert(h, parsed.Seq)
	s.logged(s.log.Info(), h).Msg("orphan adopted")
	return h, nil
}

func (s *Store) findOrphan(h Held) (Orphaned, error) {
	all, err := s.Orphans()
	if err != nil {
		return Orphaned{}, err
	}
	for _, o := range all {
		if o.Table == h.Table && o.Partition == h.Partition && o.Name == h.Name && o.Short == h.Digest.Short() {
			return o, nil
		}
	}
	return Orphaned{}, fmt.Errorf("%w: no orphan is %s", ErrNotHeld, path.Base(h.file))
}
