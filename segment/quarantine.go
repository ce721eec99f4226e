package segment

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/shoalstore/shoal/internal/vfs"
)

// A damaged copy is set aside, not deleted: it may be the last one, and most of
// its pieces may be good. In quarantine/ it is
//
//	<base>.<n>.damaged   the data
//	<base>.<n>.pieces    its sidecar, if there was one
//	<base>.<n>.reason    why, as JSON
//
// where n keeps the first damaged copy when its replacement goes bad as well.
const (
	damagedSuffix = ".damaged"
	reasonSuffix  = ".reason"
)

// reason is the content of a reason file.
type reason struct {
	Why string    `json:"why"`
	At  time.Time `json:"at"`
	// Digest is what the data should hash to, if known.
	Digest Digest `json:"digest,omitzero"`
}

func reasonPath(data string) string { return trimExt(data) + reasonSuffix }

// Quarantine sets a sealed copy aside as damaged, also while it is being read:
// open files stay good for what they are. The copy that it returns can still be
// opened, and is gone only by Remove.
//
// If the data is missing there is nothing to set aside: the copy is forgotten and
// the error matches fs.ErrNotExist.
//
// A crash leaves: before the data's rename, the copy sealed as it was, and a
// sidecar and reason in quarantine/ that are swept; after it, the copy in
// quarantine/, and a sidecar in segments/ that is swept.
func (s *Store) Quarantine(h Held, why string) (Held, error) {
	defer s.takeTurn(h.file)()
	sealed, ok := s.lookup(h.file)
	if !ok {
		return Held{}, fmt.Errorf("%w: %s", ErrNotHeld, describe(h))
	}
	if sealed.State == StateQuarantined {
		return sealed, nil
	}
	to := sealed
	to.State, to.Reason, to.Verified = StateQuarantined, why, time.Time{}
	to.file = s.quarantineFile(sealed)
	if err := s.quarantine(sealed, to); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			s.forget(sealed.file)
		}
		return Held{}, fmt.Errorf("segment: quarantine %s: %w", sealed.file, err)
	}
	s.mu.Lock()
	// The same entry under its new path, so that readers' pins go with it.
	c := s.index.byFile[sealed.file]
	s.index.drop(sealed.file)
	c.held = to
	s.index.put(c)
	s.mu.Unlock()
	s.logged(s.log.Warn(), to).Str("reason", why).Msg("damaged copy quarantined, kept as a source of its good pieces")
	return to, nil
}

func (s *Store) quarantine(from, to Held) error {
	if err := s.fs.MkdirAll(path.Dir(to.file), 0o755); err != nil {
		return err
	}
	// What describes the damage must not keep it in place: a full disk is no
	// reason to go on serving bad bytes.
	if err := s.describeDamage(from, to); vfs.IsSyncError(err) {
		return err
	} else if err != nil {
		s.logged(s.log.Error(), to).Err(err).Msg("quarantined without reason or sidecar")
	}
	if err := s.moveDurably(from.file, to.file); err != nil {
		return err
	}
	if err := s.removeIfThere(sidecarPath(from.file)); err != nil {
		s.logged(s.log.Warn(), from).Err(err).Msg("sidecar of a quarantined copy stays until the next start")
	}
	return nil
}

func (s *Store) describeDamage(from, to Held) error {
	sidecar, err := s.readSmall(sidecarPath(from.file))
	if err == nil {
		err = s.writeSmall(sidecarPath(to.file), sidecar)
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	text, jsonErr := json.MarshalIndent(reason{Why: to.Reason, At: s.now().UTC(), Digest: to.Digest}, "", "  ")
	if jsonErr != nil {
		return errors.Join(err, jsonErr)
	}
	return errors.Join(err, s.writeSmall(reasonPath(to.file), append(text, '\n')))
}

// quarantineFile finds a free number for a damaged copy. The caller has the
// copy's turn, so nobody else looks for one of the same base name.
func (s *Store) quarantineFile(h Held) string {
	base := path.Join(copyDir(quarantineDir, h.Table, h.Partition), trimExt(path.Base(h.file)))
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := 1; ; n++ {
		file := fmt.Sprintf("%s.%d%s", base, n, damagedSuffix)
		if s.index.byFile[file] == nil {
			return file
		}
	}
}

func (s *Store) forget(file string) {
	s.mu.Lock()
	s.index.drop(file)
	s.mu.Unlock()
}

// scanQuarantine rebuilds the index of quarantine/, and sweeps what belongs to no
// data.
func (s *Store) scanQuarantine() error {
	return s.walk(quarantineDir, func(dir copyPlace, files []fs.DirEntry) error {
		present := make(map[string]bool, len(files))
		for _, e := range files {
			present[e.Name()] = true
		}
		for _, e := range files {
			file := path.Join(dir.path, e.Name())
			base, ext := trimExt(e.Name()), path.Ext(e.Name())
			name, short, err := ParseFileName(trimExt(base) + fileSuffix)
			switch {
			case err != nil || name.Partition != dir.partition:
				s.strange(file)
			case ext == damagedSuffix:
				info, err := e.Info()
				if err != nil {
					return err
				}
				h := Held{Table: dir.table, Partition: dir.partition, Name: name.String(), SizeBytes: info.Size(), State: StateQuarantined, file: file}
				s.recallDamage(&h, short)
				s.insert(h, name.Seq)
			case ext == removedSuffix, (ext == sidecarSuffix || ext == reasonSuffix) && !present[base+damagedSuffix]:
				if err := s.removeIfThere(file); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// recallDamage fills in what reason and sidecar still say.
func (s *Store) recallDamage(h *Held, short string) {
	h.Reason = "unknown: the reason file is missing or damaged"
	var r reason
	if text, err := s.readSmall(reasonPath(h.file)); err == nil && json.Unmarshal(text, &r) == nil {
		h.Reason = r.Why
		if strings.HasPrefix(r.Digest.String(), short) {
			h.Digest = r.Digest
		}
	}
	if p, err := s.sidecarOf(h.file, short); err == nil && h.Digest.IsZero() {
		h.Digest, _ = p.Root()
	}
}
