package segment

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/vfs"
)

var (
	// ErrNotHeld says that the store has no such copy, or no longer.
	ErrNotHeld = errors.New("segment: copy is not held")
	// ErrPinned says that a copy is being read, so it cannot go now.
	ErrPinned = errors.New("segment: copy is in use")
)

// Store is a node's copies of sealed segments, as files below one directory:
//
//	store.id                             the store's identity, a UUID
//	segments/<table-id>/<partition>/     sealed copies: <base>.parquet and <base>.pieces
//	staging/builds/, staging/downloads/  not sealed yet (store_stage.go)
//	quarantine/<table-id>/<partition>/   damaged copies (quarantine.go)
//	orphans/<table-id>/<partition>/      copies that no record explains (orphan.go)
//
// where base is <name>-<first 16 hex digits of the digest>.
//
// The directory is the truth and the index in memory is rebuilt from it at every
// open (store_scan.go); what a crash can leave at each step is told where the
// step is taken. The store decides nothing: whether a copy may be removed is the
// caller's to know.
//
// All methods are safe for concurrent use. Changes to one copy take turns; the
// mutex is never held across I/O.
type Store struct {
	fs  vfs.FS
	log zerolog.Logger
	id  uuid.UUID
	now func() time.Time

	stages  atomic.Int64
	reserve atomic.Int64

	mu    sync.Mutex
	index index // of what is held (store_index.go)
	// turns are the copies being changed, by path in segments/; the channel is
	// closed when the change is over.
	turns map[string]chan struct{}
	// reserved is the sum of the reservations, in bytes.
	reserved int64
}

// State is what a held copy is good for.
type State string

// The states of a held copy.
const (
	// StateSealed: complete, served, and reported as a location.
	StateSealed State = "SEALED"
	// StateQuarantined: found damaged; a source for its good pieces only.
	StateQuarantined State = "QUARANTINED"
)

// Held is one copy in the store, as it was when the store was asked. It comes
// from the store and is the handle for everything done to the copy.
type Held struct {
	Table     uuid.UUID `json:"table"`
	Partition int32     `json:"partition"`
	Name      string    `json:"name"`
	// Digest is what the content should hash to. It is zero for a quarantined
	// copy of which only the 16 digits in its file name are known.
	Digest    Digest `json:"digest,omitzero"`
	SizeBytes int64  `json:"sizeBytes"`
	State     State  `json:"state"`
	// Verified is when the bytes were last proven to be the digest's: by Verify,
	// or by whoever published them. Zero: not since the store was opened.
	Verified time.Time `json:"verified,omitzero"`
	// Reason says why a copy is quarantined.
	Reason string `json:"reason,omitempty"`

	file string
}

// File is the path of the copy's data below the store's root.
func (h Held) File() string { return h.file }

// holding is an entry of the index. Its fields are guarded by Store.mu.
type holding struct {
	held Held
	seq  int64
	pins int
}

const (
	segmentsDir   = "segments"
	quarantineDir = "quarantine"
	orphansDir    = "orphans"
	idFile        = "store.id"
)

// OpenStore opens the store below the root of fsys, making it if the root is
// empty. It sweeps what a crash left and sets damaged copies aside, but reads no
// segment in full unless its sidecar is missing or wrong. The caller makes sure
// that no other process has the directory (vfs.FS.Lock).
func OpenStore(fsys vfs.FS, log zerolog.Logger) (*Store, error) {
	s := &Store{
		fs:    fsys,
		log:   log,
		now:   time.Now,
		index: newIndex(),
		turns: make(map[string]chan struct{}),
	}
	s.reserve.Store(DefaultReserve)
	// The quarantine is known before the segments are scanned, because the scan
	// may add to it; downloads are judged by what is sealed.
	for _, step := range []func() error{s.makeDirs, s.sweepBuilds, s.openID, s.scanQuarantine, s.scanSegments, s.sweepDownloads} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("segment: open store in %s: %w", fsys, err)
		}
	}
	return s, nil
}

func (s *Store) makeDirs() error {
	for _, dir := range []string{segmentsDir, quarantineDir, orphansDir, buildsDir, downloadsDir} {
		if err := s.fs.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// openID reads store.id, or makes it in a store that holds nothing. A store that
// lost its id but not its segments is not given a new one: the id is how the
// cluster knows whether the copies that it counts on this node are these.
func (s *Store) openID() error {
	text, err := s.readSmall(idFile)
	if err == nil {
		if s.id, err = uuid.ParseBytes(bytes.TrimSpace(text)); err != nil {
			return fmt.Errorf("%s does not hold a UUID: %w", idFile, err)
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, dir := range []string{segmentsDir, quarantineDir} {
		entries, err := s.fs.ReadDir(dir)
		if err != nil {
			return err
		}
		if len(entries) > 0 {
			return fmt.Errorf("%s is missing, but %s/ is not empty: restore the file, or move the directory away to begin an empty store", idFile, dir)
		}
	}
	s.id = uuid.New()
	return s.writeSmall(idFile, []byte(s.id.String()+"\n"))
}

// StoreID is the store's identity, made once with the empty store. A replaced
// disk has another.
func (s *Store) StoreID() uuid.UUID { return s.id }

// Held lists the sealed and quarantined copies by table, partition, sequence
// number and file.
func (s *Store) Held() []Held {
	s.mu.Lock()
	all := make([]holding, 0, len(s.index.byFile))
	for _, c := range s.index.byFile {
		all = append(all, *c)
	}
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b holding) int {
		return cmp.Or(
			bytes.Compare(a.held.Table[:], b.held.Table[:]),
			cmp.Compare(a.held.Partition, b.held.Partition),
			cmp.Compare(a.seq, b.seq),
			cmp.Compare(a.held.file, b.held.file),
		)
	})
	held := make([]Held, len(all))
	for i := range all {
		held[i] = all[i].held
	}
	return held
}

// Get finds the sealed copy of a segment with exactly this content.
func (s *Store) Get(table uuid.UUID, partition int32, name string, digest Digest) (Held, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.index.byFile[segmentFile(table, partition, name, digest)]
	if c == nil || c.held.Digest != digest {
		return Held{}, false
	}
	return c.held, true
}

// Open opens a copy for reading and pins it: until release is called, Remove and
// Orphan refuse it. Release also closes the file, and may be called repeatedly.
//
// The piece list is proven against the digest. If the sidecar of a sealed copy
// does not prove, Open fails with a *DamageError and RepairSidecar may help; a
// quarantined copy is opened nevertheless, with a nil list.
func (s *Store) Open(h Held) (f vfs.File, pieces *Pieces, release func(), err error) {
	c, unpin, err := s.pin(h)
	if err != nil {
		return nil, nil, nil, err
	}
	pieces, err = s.readSidecar(c.file, c.Digest)
	if err == nil && c.State == StateSealed && pieces.Size != c.SizeBytes {
		err = fmt.Errorf("it is of a file of %d bytes", pieces.Size)
	}
	if err != nil && c.State == StateSealed {
		unpin()
		return nil, nil, nil, &DamageError{Held: c, Sidecar: true, Problem: "sidecar cannot be used", Cause: err}
	}
	if f, err = s.fs.Open(c.file); err != nil {
		unpin()
		return nil, nil, nil, fmt.Errorf("segment: open %s: %w", c.file, err)
	}
	return f, pieces, sync.OnceFunc(func() { f.Close(); unpin() }), nil
}

// pin counts a reader of the copy and returns what the index says of it now.
func (s *Store) pin(h Held) (now Held, unpin func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.index.byFile[h.file]
	if c == nil {
		return Held{}, nil, fmt.Errorf("%w: %s", ErrNotHeld, describe(h))
	}
	c.pins++
	return c.held, func() {
		s.mu.Lock()
		c.pins--
		s.mu.Unlock()
	}, nil
}

// takeTurn waits until no one else changes the copy whose path in segments/ is
// file. The function it returns lets the next one in.
func (s *Store) takeTurn(file string) (done func()) {
	mine := make(chan struct{})
	for {
		s.mu.Lock()
		other, busy := s.turns[file]
		if !busy {
			s.turns[file] = mine
			s.mu.Unlock()
			return func() {
				s.mu.Lock()
				delete(s.turns, file)
				s.mu.Unlock()
				close(mine)
			}
		}
		s.mu.Unlock()
		<-other
	}
}

func (s *Store) insert(h Held, seq int64) {
	s.mu.Lock()
	s.index.put(&holding{held: h, seq: seq})
	s.mu.Unlock()
}

// takeUnpinned takes a copy out of the index, so that no reader can pin it any
// more. The caller holds its turn, and puts it back if the removal fails.
func (s *Store) takeUnpinned(h Held) (*holding, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.index.byFile[h.file]
	if c == nil {
		return nil, fmt.Errorf("%w: %s", ErrNotHeld, describe(h))
	}
	if c.pins > 0 {
		return nil, fmt.Errorf("%w: %s has %d readers", ErrPinned, describe(h), c.pins)
	}
	s.index.drop(h.file)
	return c, nil
}

func (s *Store) putBack(c *holding) {
	s.mu.Lock()
	s.index.put(c)
	s.mu.Unlock()
}

// copyDir is where the copies of a partition lie below one of the store's directories.
func copyDir(top string, table uuid.UUID, partition int32) string {
	return path.Join(top, table.String(), strconv.Itoa(int(partition)))
}

func segmentFile(table uuid.UUID, partition int32, name string, d Digest) string {
	return path.Join(copyDir(segmentsDir, table, partition), FileName(name, d))
}

// describe names a copy in messages, also one that the caller made up.
func describe(h Held) string {
	if h.file != "" {
		return h.file
	}
	return fmt.Sprintf("%s, partition %d, %s with digest %s", h.Table, h.Partition, abridge(h.Name), h.Digest)
}

// logged starts the fields that every line about a copy has.
func (s *Store) logged(e *zerolog.Event, h Held) *zerolog.Event {
	return e.Stringer("table", h.Table).Int32("partition", h.Partition).Str("segment", h.Name).Str("file", h.file)
}
