package metalog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

// errFrozen refuses records after the footer, and everything after close.
var errFrozen = errors.New("the snapshot is frozen")

// WriteSnapshot writes the image to dir, as a file named by its id, with its piece
// list beside it. The image must be one of whole batches: Image.With gives none.
// Nothing is known of the snapshot before it is whole and durable, and after an
// error nothing is left of it; one that is there already is not written again. It
// holds two frames in memory, however many records there are, and ends early with
// ctx. It takes a while, and is for the background: appends to the log go on meanwhile
// at nearly the pace that they have otherwise.
func WriteSnapshot(ctx context.Context, fsys vfs.FS, dir string, im *meta.Image) (ref SnapshotRef, err error) {
	h := headerOf(im)
	if err := writable(h, im); err != nil {
		return SnapshotRef{}, fmt.Errorf("metalog: snapshot %s: %w", h.ID(), err)
	}
	if err := fsys.MkdirAll(dir, 0o755); err != nil {
		return SnapshotRef{}, fmt.Errorf("metalog: snapshot %s: %w", h.ID(), err)
	}
	ref, err = existingSnapshot(fsys, dir, h.ID())
	if !errors.Is(err, fs.ErrNotExist) {
		return ref, err
	}
	w, err := createSnapshot(fsys, dir, h)
	if err != nil {
		return SnapshotRef{}, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	for r := range im.Records() {
		if err := ctx.Err(); err != nil {
			return SnapshotRef{}, fmt.Errorf("metalog: snapshot %s: %w", w.id, err)
		}
		if err := w.append(r); err != nil {
			return SnapshotRef{}, err
		}
		if w.footer.records%paceEvery == 0 {
			w.pace.rest()
		}
	}
	return w.freeze()
}

// syncEvery is how many bytes are written before they are made durable. An append to the
// log waits for what the disk takes in meanwhile.
const syncEvery = 1 << 20

// pacer has who writes a snapshot rest now and then, so that the log does not feel it. To
// yield is not enough: with all processors busy the collector marks on behalf of those who
// append, and on two processors their p99 was five times as long.
type pacer struct{ since time.Time } // it has been at work

const (
	paceEvery = 64 // records
	workMax   = 2 * time.Millisecond
	restFor   = time.Millisecond // about what a timer is good for
)

func (p *pacer) rest() {
	if time.Since(p.since) >= workMax {
		time.Sleep(restFor)
		p.rested()
	}
}

func (p *pacer) rested() { p.since = time.Now() }

// writable refuses what could not be loaded again.
func writable(h SnapshotHeader, im *meta.Image) error {
	if err := h.check(); err != nil {
		return err
	}
	if h.Offset == 0 {
		return errors.New("an image without a batch has none")
	}
	if got, err := ParseSnapshotID(h.ID().String()); err != nil || got != h.ID() {
		return fmt.Errorf("epoch %d has no place in a file name", h.LastEpoch)
	}
	return belongs(h, im)
}

// belongs checks that the image is what the header says it is.
func belongs(h SnapshotHeader, im *meta.Image) error {
	if l := im.Leader(); l != nil && (l.Epoch != h.LastEpoch || l.Term != h.LastTerm) {
		return fmt.Errorf("the last batch is of epoch %d, term %s; the leader record is of epoch %d, term %s",
			h.LastEpoch, h.LastTerm, l.Epoch, l.Term)
	} else if l == nil && h.Offset > 0 {
		return fmt.Errorf("epoch %d without a leader record", h.LastEpoch)
	}
	if got := headerOf(im).Cluster; got != h.Cluster {
		return fmt.Errorf("the header is of cluster %s, the records of %s", h.Cluster, got)
	}
	return nil
}

// existingSnapshot describes a snapshot that is there, and makes its name durable: it
// may come from a process that was killed before its own fsync of the directory.
func existingSnapshot(fsys vfs.FS, dir string, id SnapshotID) (SnapshotRef, error) {
	if _, err := fsys.Stat(snapshotFile(dir, id)); err != nil {
		return SnapshotRef{}, fmt.Errorf("metalog: %w", err)
	}
	ref, err := readSnapshotRef(fsys, dir, id)
	if err == nil {
		err = fsys.SyncDir(dir)
	}
	if err != nil {
		return SnapshotRef{}, fmt.Errorf("metalog: snapshot %s: %w", id, err)
	}
	return ref, nil
}

// snapshotWriter writes one snapshot. It is used by one goroutine.
type snapshotWriter struct {
	fs   vfs.FS
	dir  string
	id   SnapshotID
	file vfs.File // nil once frozen or closed

	payload  []byte // of the frame being filled
	record   []byte // the last record, for its memory
	frame    []byte // the last frame written, for its memory
	unsynced int    // bytes written since the last fsync
	pace     pacer
	last     meta.Key
	footer   snapshotFooter
	pieces   segment.PieceHasher // of the file
}

// createSnapshot begins the file and writes its header.
func createSnapshot(fsys vfs.FS, dir string, h SnapshotHeader) (*snapshotWriter, error) {
	w := &snapshotWriter{fs: fsys, dir: dir, id: h.ID(), pace: pacer{since: time.Now()}}
	// One of a process that was killed may be read-only, or another name of a
	// snapshot whose rename a power cut left half done.
	if err := removeIfThere(fsys, w.part()); err != nil {
		return nil, w.failed(err)
	}
	f, err := fsys.Create(w.part())
	if err != nil {
		return nil, w.failed(err)
	}
	w.file = f
	if err := w.write(encodeSnapshotHeader(h)); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func (w *snapshotWriter) part() string { return snapshotFile(w.dir, w.id) + partSuffix }

func (w *snapshotWriter) failed(err error) error {
	return fmt.Errorf("metalog: snapshot %s: %w", w.id, err)
}

// append adds a record, which must come after the last one by its key.
func (w *snapshotWriter) append(r meta.Record) error {
	key := r.Key()
	switch {
	case w.file == nil:
		return w.failed(errFrozen)
	case w.footer.records > 0 && key.Compare(w.last) <= 0:
		return w.failed(fmt.Errorf("%s after %s", key, w.last))
	}
	data, err := meta.AppendRecord(w.record[:0], r)
	if err != nil {
		return w.failed(err)
	}
	w.record = data
	if len(w.payload)+recordOverhead+len(data) > MaxFramePayload {
		if err := w.flush(); err != nil {
			return err
		}
	}
	if len(w.payload) == 0 {
		w.payload = append(w.payload, frameOfRecords)
	}
	w.payload = appendRecord(w.payload, key.Kind, data)
	w.last = key
	w.footer.records++
	return nil
}

// flush writes the records gathered as one frame.
func (w *snapshotWriter) flush() error {
	if len(w.payload) == 0 {
		return nil
	}
	err := w.write(w.payload)
	w.payload = w.payload[:0]
	return err
}

func (w *snapshotWriter) write(payload []byte) error {
	w.frame = AppendFrame(w.frame[:0], payload)
	if _, err := w.file.Write(w.frame); err != nil {
		return w.failed(err)
	}
	_, _ = w.pieces.Write(w.frame)
	w.unsynced += len(w.frame)
	if w.unsynced < syncEvery {
		return nil
	}
	w.unsynced = 0
	if err := vfs.Sync(w.file); err != nil {
		return w.failed(err)
	}
	w.pace.rested()
	return nil
}

// freeze writes the footer and publishes the snapshot: the piece list first, which
// says nothing alone, then the file, read-only.
func (w *snapshotWriter) freeze() (SnapshotRef, error) {
	if w.file == nil {
		return SnapshotRef{}, w.failed(errFrozen)
	}
	if err := w.flush(); err != nil {
		return SnapshotRef{}, err
	}
	_, w.footer.state = w.pieces.Sum()
	w.footer.bytes = uint64(w.pieces.Size())
	if err := w.write(encodeSnapshotFooter(w.footer)); err != nil {
		return SnapshotRef{}, err
	}
	pieces, digest := w.pieces.Sum()
	if err := writeSidecar(w.fs, w.dir, w.id, pieces); err != nil {
		return SnapshotRef{}, err
	}
	if err := w.publish(); err != nil {
		return SnapshotRef{}, w.failed(err)
	}
	return SnapshotRef{SnapshotID: w.id, SizeBytes: pieces.Size, Digest: digest}, nil
}

func (w *snapshotWriter) publish() error {
	if err := w.fs.Chmod(w.part(), 0o444); err != nil {
		return err
	}
	f := w.file
	w.file = nil // Publish closes it
	err := vfs.Publish(w.fs, f, w.part(), snapshotFile(w.dir, w.id))
	if err != nil && !vfs.IsSyncError(err) {
		err = errors.Join(err, removeIfThere(w.fs, w.part()))
	}
	return err
}

// close gives an unfinished snapshot up, so that nothing is left of it but a piece
// list that the next start sweeps. It does nothing once the snapshot is frozen.
func (w *snapshotWriter) close() error {
	if w.file == nil {
		return nil
	}
	err := errors.Join(w.file.Close(), removeIfThere(w.fs, w.part()))
	w.file = nil
	if err != nil {
		return w.failed(err)
	}
	return nil
}

func writeSidecar(fsys vfs.FS, dir string, id SnapshotID, p *segment.Pieces) error {
	data, err := p.MarshalBinary()
	if err == nil {
		err = vfs.WriteFile(fsys, sidecarFile(dir, id), data)
	}
	if err != nil {
		return fmt.Errorf("metalog: piece list of snapshot %s: %w", id, err)
	}
	return nil
}

// readSnapshotRef describes a snapshot by its piece list. A list that is missing or
// cannot be this file's is made again, by reading the whole file.
func readSnapshotRef(fsys vfs.FS, dir string, id SnapshotID) (ref SnapshotRef, err error) {
	f, err := fsys.Open(snapshotFile(dir, id))
	if err != nil {
		return SnapshotRef{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return SnapshotRef{}, err
	}
	ref = SnapshotRef{SnapshotID: id, SizeBytes: info.Size()}
	if ref.Digest = readSidecar(fsys, dir, ref); !ref.Digest.IsZero() || ref.SizeBytes == 0 {
		return ref, nil
	}
	pieces, digest, err := segment.HashFile(f, ref.SizeBytes)
	if err != nil {
		return SnapshotRef{}, err
	}
	ref.Digest = digest
	return ref, writeSidecar(fsys, dir, id, pieces)
}

// readSidecar returns the digest that the piece list combines to, zero if there is no
// list that can be this file's.
func readSidecar(fsys vfs.FS, dir string, ref SnapshotRef) segment.Digest {
	data, err := vfs.ReadFile(fsys, sidecarFile(dir, ref.SnapshotID), segment.SidecarSize(ref.SizeBytes))
	var p segment.Pieces
	if err != nil || p.UnmarshalBinary(data) != nil || p.Size != ref.SizeBytes {
		return segment.Digest{}
	}
	digest, err := p.Root()
	if err != nil {
		return segment.Digest{}
	}
	return digest
}

func removeIfThere(fsys vfs.FS, name string) error {
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", path.Base(name), err)
	}
	return nil
}
