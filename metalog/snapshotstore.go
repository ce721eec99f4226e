package metalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

// SnapshotsDir is where the snapshots lie unless told otherwise, below the FS.
const SnapshotsDir = "snapshots"

// snapshotsKept is how many of the newest snapshots are never removed: should the
// newest turn out to be damaged, the one before it and the log lead to the same state.
const snapshotsKept = 2

// ErrSnapshotNotFound says that a snapshot is not there, or no longer.
var ErrSnapshotNotFound = errors.New("metalog: no such snapshot")

// ErrSnapshotKept refuses to remove one of the two newest snapshots.
var ErrSnapshotKept = errors.New("metalog: the two newest snapshots stay")

// Snapshots are the snapshots in one directory:
//
//	<id>.checkpoint           a snapshot, whole and durable
//	<id>.pieces               its piece list
//	<id>.checkpoint.part      one being written
//	<id>.checkpoint.*.part    one being downloaded, with its journal
//	<id>.checkpoint.deleted   one being removed
//	<id>.checkpoint.corrupt   one set aside, with <id>.pieces.corrupt
//
// Whatever has one of these names and is no regular file gets .corrupt after it. Other
// names are not touched. The directory is the truth; what a snapshot holds is
// proven only by Load. All methods are safe for concurrent use.
type Snapshots struct {
	fs  vfs.FS
	dir string
	log zerolog.Logger

	// write serialises whoever changes files, and is held across I/O.
	write   sync.Mutex
	deleted []deletedFile // guarded by write

	mu   sync.Mutex    // guards what follows
	refs []SnapshotRef // oldest first
	pins pins
}

// deletedFile is a snapshot's file that is renamed and not yet unlinked.
type deletedFile struct {
	name string
	due  int64 // when it may be unlinked, in milliseconds since the Unix epoch
}

// unlinkAfter is how long a removed snapshot's bytes stay, in milliseconds.
const unlinkAfter = int64(time.Minute / time.Millisecond)

// OpenSnapshots opens the snapshots in dir, SnapshotsDir if it is empty, and makes the
// directory if need be. It removes what was left half written, and makes the piece
// lists that are missing. What was being removed stays until Sweep: until another
// snapshot has been loaded, it may be the last that holds what the log no longer has.
func OpenSnapshots(fsys vfs.FS, dir string, logger zerolog.Logger) (*Snapshots, error) {
	s := &Snapshots{
		fs: fsys, dir: cmp.Or(dir, SnapshotsDir), pins: pins{},
		log: logger.With().Str("component", "snapshots").Logger(),
	}
	if err := s.open(); err != nil {
		return nil, fmt.Errorf("metalog: open snapshots in %s of %s: %w", s.dir, s.fs, err)
	}
	return s, nil
}

func (s *Snapshots) open() error {
	if err := s.fs.MkdirAll(s.dir, 0o755); err != nil {
		return err
	}
	entries, err := s.fs.ReadDir(s.dir)
	if err != nil {
		return err
	}
	if entries, err = s.setAsideNoFiles(entries); err != nil {
		return err
	}
	files := make(map[string]bool, len(entries))
	for _, e := range entries {
		files[e.Name()] = true
	}
	var sidecars []SnapshotID
	for _, e := range entries {
		name := e.Name()
		if id, ok := parseSnapshotName(name, snapshotSuffix); ok {
			s.refs = append(s.refs, SnapshotRef{SnapshotID: id})
		} else if id, ok := parseSnapshotName(name, sidecarSuffix); ok {
			sidecars = append(sidecars, id)
		} else if _, ok := parseSnapshotName(name, snapshotSuffix+deletedSuffix); ok {
			s.deleted = append(s.deleted, deletedFile{name: path.Join(s.dir, name)})
		} else if unfinished(name) || abandoned(name, files) {
			if err := removeIfThere(s.fs, path.Join(s.dir, name)); err != nil {
				return err
			}
		}
	}
	slices.SortFunc(s.refs, compareRefs)
	for _, id := range sidecars {
		if _, found := s.find(id); !found {
			if err := removeIfThere(s.fs, sidecarFile(s.dir, id)); err != nil {
				return err
			}
		}
	}
	for i, r := range s.refs {
		if s.refs[i], err = readSnapshotRef(s.fs, s.dir, r.SnapshotID); err != nil {
			return fmt.Errorf("%s: %w", r.SnapshotID, err)
		}
	}
	// A name that was found may be one that a killed process had not come to fsync.
	return s.fs.SyncDir(s.dir)
}

// setAsideNoFiles renames what has a name that is used here and is no file, and returns
// the rest.
func (s *Snapshots) setAsideNoFiles(entries []fs.DirEntry) (rest []fs.DirEntry, err error) {
	for _, e := range entries {
		name := path.Join(s.dir, e.Name())
		odd := notAFile(name, e)
		if odd == nil || !isSnapshotName(e.Name()) {
			rest = append(rest, e)
			continue
		}
		s.log.Error().Err(odd).Str("file", name+corruptSuffix).Msg("what is in the place of a snapshot's file is set aside")
		if err := s.fs.RemoveAll(name + corruptSuffix); err != nil {
			return nil, err
		}
		if err := s.fs.Rename(name, name+corruptSuffix); err != nil {
			return nil, err
		}
	}
	return rest, nil
}

// isSnapshotName tells the names that files have here, but for what was set aside.
func isSnapshotName(name string) bool {
	f, snapshot := snapshotFileOf(name)
	_, list := parseSnapshotName(strings.TrimSuffix(name, tmpSuffix), sidecarSuffix)
	_, download := downloadOf(name)
	return snapshot && f.State != SnapshotSetAside || list || download
}

// unfinished tells the names of what is in the making.
func unfinished(name string) bool {
	_, part := parseSnapshotName(name, snapshotSuffix+partSuffix)
	_, list := parseSnapshotName(name, sidecarSuffix+tmpSuffix)
	return part || list
}

func compareRefs(a, b SnapshotRef) int { return a.SnapshotID.Compare(b.SnapshotID) }

// find returns where the id is in refs, or would be, with mu held or before s is shared.
func (s *Snapshots) find(id SnapshotID) (int, bool) {
	return slices.BinarySearchFunc(s.refs, id, func(r SnapshotRef, id SnapshotID) int { return r.SnapshotID.Compare(id) })
}

// List returns the snapshots, the oldest first.
func (s *Snapshots) List() []SnapshotRef {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.refs)
}

// Earliest is the oldest snapshot, nil when there is none.
func (s *Snapshots) Earliest() *SnapshotRef { return s.at(func(int) int { return 0 }) }

// Latest is the newest snapshot, nil when there is none.
func (s *Snapshots) Latest() *SnapshotRef { return s.at(func(n int) int { return n - 1 }) }

func (s *Snapshots) at(index func(n int) int) *SnapshotRef {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.refs) == 0 {
		return nil
	}
	ref := s.refs[index(len(s.refs))]
	return &ref
}

// Get returns what is known of a snapshot.
func (s *Snapshots) Get(id SnapshotID) (SnapshotRef, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, found := s.find(id)
	if !found {
		return SnapshotRef{}, false
	}
	return s.refs[i], true
}

// Write is WriteSnapshot into this directory. The snapshot is in the list once it is
// durable, and one that is in it already is not written again.
func (s *Snapshots) Write(ctx context.Context, im *meta.Image) (SnapshotRef, error) {
	s.write.Lock()
	defer s.write.Unlock()
	if ref, ok := s.Get(headerOf(im).ID()); ok {
		return ref, nil
	}
	ref, err := WriteSnapshot(ctx, s.fs, s.dir, im)
	if err != nil {
		return SnapshotRef{}, err
	}
	s.put(ref)
	return ref, nil
}

// put takes ref into the list, in the place of one with its id.
func (s *Snapshots) put(ref SnapshotRef) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, found := s.find(ref.SnapshotID)
	if found {
		s.refs[i] = ref
	} else {
		s.refs = slices.Insert(s.refs, i, ref)
	}
}

func (s *Snapshots) drop(id SnapshotID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, found := s.find(id); found {
		s.refs = slices.Delete(s.refs, i, i+1)
	}
	delete(s.pins, id)
}

// Header reads the header of a snapshot and no more.
func (s *Snapshots) Header(id SnapshotID) (SnapshotHeader, error) {
	if _, ok := s.Get(id); !ok {
		return SnapshotHeader{}, fmt.Errorf("%w: %s", ErrSnapshotNotFound, id)
	}
	h, err := readSnapshotHeader(s.fs, snapshotFile(s.dir, id))
	if errors.Is(err, fs.ErrNotExist) {
		return SnapshotHeader{}, s.vanished(id, err)
	}
	return h, err
}

// vanished is the error for a snapshot whose file is not there. One that is in the list
// all the same was removed by somebody else: it leaves the list, or it would be named to
// followers, and count as the newest, until the next start.
func (s *Snapshots) vanished(id SnapshotID, cause error) error {
	s.write.Lock()
	defer s.write.Unlock()
	if _, ok := s.Get(id); ok {
		if _, err := s.fs.Stat(snapshotFile(s.dir, id)); errors.Is(err, fs.ErrNotExist) {
			s.drop(id)
			s.log.Error().Err(err).Str("snapshot", id.String()).Msg("the file of a snapshot is gone, and it was not removed here; it does not count any more")
		}
	}
	return fmt.Errorf("%w: %s: %w", ErrSnapshotNotFound, id, cause)
}

// Load reads a snapshot through and returns its image, verified as ReadSnapshot does.
// A *CorruptionError says that the snapshot is worth nothing, a *FormatError that a
// newer program wrote it; any other error is that of the disk.
func (s *Snapshots) Load(id SnapshotID) (im *meta.Image, err error) {
	ref, ok := s.Get(id)
	if !ok {
		return nil, fmt.Errorf("%w: %s", ErrSnapshotNotFound, id)
	}
	name := snapshotFile(s.dir, id)
	f, err := s.OpenFile(id)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	defer easeCollector(ref.SizeBytes)()
	im, h, list, digest, err := readSnapshot(name, f)
	if err != nil {
		return nil, err
	}
	if h.ID() != id {
		return nil, &CorruptionError{File: name, Reason: fmt.Sprintf("its header says that it is snapshot %s", h.ID())}
	}
	if digest != ref.Digest {
		s.mend(SnapshotRef{SnapshotID: id, SizeBytes: list.Size, Digest: digest}, list)
	}
	return im, nil
}

// mend replaces the piece list of a snapshot that has just proven itself against it.
func (s *Snapshots) mend(ref SnapshotRef, pieces *segment.Pieces) {
	s.write.Lock()
	defer s.write.Unlock()
	if _, ok := s.Get(ref.SnapshotID); !ok {
		return
	}
	s.put(ref)
	err := writeSidecar(s.fs, s.dir, ref.SnapshotID, pieces)
	s.log.Warn().Err(err).Str("snapshot", ref.String()).Msg("the piece list was not of this snapshot; made it again")
}

// SetAsideOthers sets the snapshots aside whose header names another cluster: somebody has
// put them here, and the log that they do not fit is the good one.
func (s *Snapshots) SetAsideOthers(cluster uuid.UUID) error {
	for _, ref := range s.List() {
		h, err := s.Header(ref.SnapshotID)
		if err != nil || h.Cluster == cluster {
			continue // a damaged one is found by who needs it
		}
		s.log.Error().Str("snapshot", ref.SnapshotID.String()).Stringer("cluster", h.Cluster).Msg("a snapshot of another cluster is set aside")
		if err := s.SetAside(ref.SnapshotID); err != nil {
			return err
		}
	}
	return nil
}

// SetAside takes a snapshot out of the list and keeps its bytes as .corrupt.
func (s *Snapshots) SetAside(id SnapshotID) error {
	s.write.Lock()
	defer s.write.Unlock()
	if _, ok := s.Get(id); !ok {
		return fmt.Errorf("%w: %s", ErrSnapshotNotFound, id)
	}
	if _, err := s.takeOut(id, corruptSuffix); err != nil {
		return err
	}
	// The list tells its good pieces from the bad ones, for whoever wants to know.
	list := sidecarFile(s.dir, id)
	if err := s.fs.Rename(list, list+corruptSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn().Err(err).Str("file", list).Msg("the piece list of a snapshot that was set aside stays")
	}
	return nil
}

// Remove takes a snapshot out of the list and off its name, durably. Sweep unlinks
// it a minute later; until then whoever has it open can read on. The two newest are
// refused with ErrSnapshotKept, one that is being sent with ErrSnapshotPinned. Times
// are in milliseconds since the Unix epoch.
func (s *Snapshots) Remove(id SnapshotID, now int64) error {
	if _, err := s.withdraw(now, id); err != nil {
		return err
	}
	return s.discard(id, now)
}

// withdraw takes snapshots out of the list, all or none, so that nobody begins to use
// what is about to go.
func (s *Snapshots) withdraw(now int64, ids ...SnapshotID) (refs []SnapshotRef, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		i, found := s.find(id)
		switch {
		case !found:
			return nil, fmt.Errorf("%w: %s", ErrSnapshotNotFound, id)
		case i >= len(s.refs)-snapshotsKept:
			return nil, fmt.Errorf("%w: %s is one of them", ErrSnapshotKept, id)
		case s.pins.pinned(id, now):
			return nil, fmt.Errorf("%w: %s", ErrSnapshotPinned, id)
		}
		refs = append(refs, s.refs[i])
	}
	s.refs = slices.DeleteFunc(s.refs, func(r SnapshotRef) bool { return slices.Contains(refs, r) })
	for _, id := range ids {
		delete(s.pins, id)
	}
	return refs, nil
}

// putBack takes back what was withdrawn and not discarded.
func (s *Snapshots) putBack(refs []SnapshotRef) {
	for _, r := range refs {
		s.put(r)
	}
}

// discard takes a snapshot that was withdrawn off its name, durably.
func (s *Snapshots) discard(id SnapshotID, now int64) error {
	s.write.Lock()
	defer s.write.Unlock()
	gone, err := s.takeOut(id, deletedSuffix)
	if err != nil {
		return err
	}
	// A snapshot may be written again, and removed again within the minute.
	s.deleted = slices.DeleteFunc(s.deleted, func(f deletedFile) bool { return f.name == gone })
	s.deleted = append(s.deleted, deletedFile{name: gone, due: now + unlinkAfter})
	if err := removeIfThere(s.fs, sidecarFile(s.dir, id)); err != nil {
		s.log.Warn().Err(err).Str("snapshot", id.String()).Msg("the piece list of a removed snapshot stays until the next start")
	}
	return nil
}

// takeOut renames a snapshot, durably. Whatever fails, it is out of the list: its
// name may be gone.
func (s *Snapshots) takeOut(id SnapshotID, suffix string) (name string, err error) {
	s.drop(id)
	old := snapshotFile(s.dir, id)
	name = old + suffix
	// The two may be names of one file, after a power cut in an earlier rename, and
	// then a rename does nothing.
	if err := removeIfThere(s.fs, name); err != nil {
		return "", fmt.Errorf("metalog: %w", err)
	}
	if err := s.fs.Rename(old, name); err != nil {
		return "", fmt.Errorf("metalog: %w", err)
	}
	if err := s.fs.SyncDir(s.dir); err != nil {
		return "", fmt.Errorf("metalog: %w", err)
	}
	return name, nil
}

// Sweep unlinks what was removed a minute or more before now, and whatever was removed
// before this process: a now of 0 is for that alone. It must not come before Recover,
// which does it.
func (s *Snapshots) Sweep(now int64) error {
	s.write.Lock()
	defer s.write.Unlock()
	var stays []deletedFile
	var errs []error
	for _, f := range s.deleted {
		if f.due > now {
			stays = append(stays, f)
			continue
		}
		if err := removeIfThere(s.fs, f.name); err != nil {
			stays, errs = append(stays, f), append(errs, fmt.Errorf("metalog: sweep: %w", err))
			continue
		}
		s.log.Info().Str("file", strings.TrimSuffix(path.Base(f.name), deletedSuffix)).Msg("snapshot removed")
	}
	s.deleted = stays
	return errors.Join(errs...)
}

// settle makes a snapshot's bytes durable once more: it is about to be the only place
// that has them, and somebody may have copied it here.
func (s *Snapshots) settle(id SnapshotID) error {
	f, err := s.fs.Open(snapshotFile(s.dir, id))
	if err != nil {
		return fmt.Errorf("metalog: %w", err)
	}
	return errors.Join(vfs.Sync(f), f.Close(), s.fs.SyncDir(s.dir))
}
