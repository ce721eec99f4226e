package metalog

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

// SnapshotState is what the name of a snapshot's file says of it.
type SnapshotState string

// The states of a snapshot's file.
const (
	SnapshotWhole       SnapshotState = "whole"       // it was published; whether it is good shows in reading it
	SnapshotWriting     SnapshotState = "writing"     // .part
	SnapshotDownloading SnapshotState = "downloading" // .part with a digest in its name
	SnapshotRemoving    SnapshotState = "removing"    // .deleted
	SnapshotSetAside    SnapshotState = "setAside"    // .corrupt
	SnapshotNoFile      SnapshotState = "noFile"      // a directory or a link, whatever its name says
)

// SnapshotFile is a file of a snapshot.
type SnapshotFile struct {
	SnapshotRef        // without a digest unless it is whole
	Name        string // in the directory
	State       SnapshotState
	Time        int64 // of its last batch, in milliseconds since the Unix epoch; 0: it does not say
}

// ListSnapshotFiles lists the files of snapshots in dir by id, and changes nothing. The
// digest is that of the piece list, or of the file where there is no list that can be its.
// A directory that is not there has none.
func ListSnapshotFiles(fsys vfs.FS, dir string) (files []SnapshotFile, err error) {
	entries, err := fsys.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("metalog: %w", err)
	}
	for _, e := range entries {
		f, ok := snapshotFileOf(e.Name())
		if !ok {
			continue
		}
		if notAFile("", e) != nil {
			f.State = SnapshotNoFile
			files = append(files, f)
			continue
		}
		switch err := f.look(fsys, dir); {
		case errors.Is(err, fs.ErrNotExist): // gone, or renamed: whoever has the directory goes on
		case err != nil:
			return nil, fmt.Errorf("metalog: %s: %w", path.Join(dir, f.Name), err)
		default:
			files = append(files, f)
		}
	}
	slices.SortStableFunc(files, func(a, b SnapshotFile) int {
		return cmp.Or(a.SnapshotID.Compare(b.SnapshotID), cmp.Compare(a.Name, b.Name))
	})
	return files, nil
}

// snapshotFileOf tells from its name which snapshot a file is of.
func snapshotFileOf(name string) (f SnapshotFile, ok bool) {
	f.Name = name
	for suffix, state := range map[string]SnapshotState{
		"": SnapshotWhole, partSuffix: SnapshotWriting, deletedSuffix: SnapshotRemoving, corruptSuffix: SnapshotSetAside,
	} {
		if f.SnapshotID, ok = parseSnapshotName(name, snapshotSuffix+suffix); ok {
			f.State = state
			return f, true
		}
	}
	f.State = SnapshotDownloading
	f.SnapshotID, ok = parseDownloadName(name)
	return f, ok
}

// look reads what can be told of the file without reading all of it.
func (f *SnapshotFile) look(fsys vfs.FS, dir string) error {
	name := path.Join(dir, f.Name)
	info, err := fsys.Stat(name)
	if err != nil {
		return err
	}
	f.SizeBytes = info.Size()
	h, err := readSnapshotHeader(fsys, name)
	if err == nil {
		f.Time = h.Time
	} else if !saysDamage(err) {
		return err
	}
	if f.State != SnapshotWhole || f.SizeBytes == 0 {
		return nil
	}
	if f.Digest = readSidecar(fsys, dir, f.SnapshotRef); f.Digest.IsZero() {
		f.Digest, err = hashFile(fsys, name, f.SizeBytes)
		return err
	}
	return nil
}

// saysDamage tells bytes that are not what was written from a disk that cannot be read.
func saysDamage(err error) bool {
	return errors.As(err, new(*CorruptionError)) || errors.As(err, new(*FormatError))
}

func hashFile(fsys vfs.FS, name string, size int64) (d segment.Digest, err error) {
	f, err := fsys.Open(name)
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, d, err = segment.HashFile(f, size)
	return d, err
}

// ReadSnapshotHeader reads the beginning of a snapshot, SnapshotHeaderBytes at most; name
// is for messages. Bytes that are no header are a *CorruptionError.
func ReadSnapshotHeader(name string, r io.Reader) (SnapshotHeader, error) {
	return (&snapshotReader{name: name, r: r}).header()
}

// SnapshotHeaderBytes is how much of a snapshot its header takes.
const SnapshotHeaderBytes = frameOverhead + snapshotHeaderSize

// LoadSnapshot reads a snapshot in dir through and returns its image, verified as
// Snapshots.Load does, and what it is. It changes nothing.
func LoadSnapshot(fsys vfs.FS, dir string, id SnapshotID) (im *meta.Image, ref SnapshotRef, err error) {
	name := snapshotFile(dir, id)
	f, err := fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ref, fmt.Errorf("%w: %s in %s", ErrSnapshotNotFound, id, dir)
	}
	if err != nil {
		return nil, ref, fmt.Errorf("metalog: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	im, h, list, digest, err := readSnapshot(name, f)
	if err != nil {
		return nil, ref, err
	}
	if h.ID() != id {
		return nil, ref, &CorruptionError{File: name, Reason: fmt.Sprintf("its header says that it is snapshot %s", h.ID())}
	}
	return im, SnapshotRef{SnapshotID: id, SizeBytes: list.Size, Digest: digest}, nil
}

// FoundImage is an image and what it was read from.
type FoundImage struct {
	Image    *meta.Image
	Snapshot *SnapshotRef // nil: the whole log
	Batches  int64        // of the log, applied after it
	Skipped  []error      // newer snapshots that are damaged
}

// ReadImage returns the image that a start on the directory would find, as Recover does,
// and changes nothing. A snapshot that is damaged is passed over only where the log reaches
// past it. A log that ends in a frame which is not whole ends before it. Damage in the log
// before the snapshot, for which a start refuses, is not looked for.
func ReadImage(fsys vfs.FS, logDir, snapshotsDir string) (found FoundImage, err error) {
	err = undisturbed(func() (err error) {
		found, err = readImage(fsys, logDir, snapshotsDir)
		return err
	})
	return found, err
}

// undisturbed does again what a process that has the directory got in the way of.
func undisturbed(read func() error) (err error) {
	for range disturbedMax {
		err = read()
		if !errors.Is(err, ErrLogChanged) && !errors.Is(err, ErrSnapshotNotFound) {
			return err
		}
	}
	return err
}

// disturbedMax is how often a directory is read anew. What changes a log and does not
// append to it comes once a minute at most.
const disturbedMax = 5

func readImage(fsys vfs.FS, logDir, snapshotsDir string) (FoundImage, error) {
	var none FoundImage
	start, _, err := LogBounds(fsys, logDir)
	if err != nil {
		return none, err
	}
	end, err := logEndPosition(fsys, logDir)
	if err != nil {
		return none, err
	}
	first, err := OpenLogReader(fsys, logDir, start)
	if err != nil {
		return none, err
	}
	before := first.Position()
	files, err := ListSnapshotFiles(fsys, snapshotsDir)
	if err != nil {
		return none, err
	}
	found, have := FoundImage{Image: meta.Empty()}, int64(0)
	for _, f := range slices.Backward(files) {
		if f.State != SnapshotWhole {
			continue
		}
		if f.EndOffset < start {
			if f.Epoch > before.LastEpoch {
				return none, strangeSnapshot(path.Join(snapshotsDir, f.Name), fmt.Errorf("it has epoch %d before offset %d; the log has epoch %d before offset %d",
					f.Epoch, f.EndOffset, before.LastEpoch, start))
			}
			have = max(have, f.EndOffset)
			continue
		}
		im, ref, err := LoadSnapshot(fsys, snapshotsDir, f.SnapshotID)
		if errors.As(err, new(*CorruptionError)) && f.EndOffset <= end.Offset {
			found.Skipped = append(found.Skipped, err)
			continue
		}
		if err != nil {
			return none, err
		}
		found.Image, found.Snapshot = im, &ref
		return found, found.goOn(fsys, logDir, snapshotFile(snapshotsDir, f.SnapshotID), end)
	}
	if start > 0 {
		return none, errors.Join(append(found.Skipped, &SnapshotMissingError{Have: have, Start: start})...)
	}
	return found, found.goOn(fsys, logDir, "", end)
}

// goOn applies the log after the snapshot in a file.
func (f *FoundImage) goOn(fsys vfs.FS, logDir, file string, end Position) error {
	h := headerOf(f.Image)
	if f.Snapshot != nil && h.passes(end) {
		cluster, err := logCluster(fsys, logDir)
		if err == nil && cluster != uuid.Nil && cluster != h.Cluster {
			err = strangeSnapshot(file, fmt.Errorf("it is of cluster %s, the log of %s", h.Cluster, cluster))
		}
		return err // the log, all of it, goes when it is opened
	}
	r, err := OpenLogReader(fsys, logDir, min(h.Offset, end.Offset))
	if err != nil {
		return err
	}
	if at := r.Position(); at != h.Position {
		return strangeSnapshot(file, otherHistory(h.Position, at))
	}
	for {
		b, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		im, err := f.Image.Apply(b.Batch)
		if err != nil {
			return &CorruptionError{File: b.File, Offset: b.At, Reason: "the batch does not apply", Err: err}
		}
		f.Image, f.Batches = im, f.Batches+1
	}
}

// passes reports whether the snapshot is later than all of a log that ends there.
func (h SnapshotHeader) passes(end Position) bool {
	return h.Position != end && h.Offset >= end.Offset && h.LastEpoch >= end.LastEpoch &&
		(h.LastEpoch != end.LastEpoch || h.LastTerm == end.LastTerm)
}

// logCluster is the cluster that the first batch of the log names; zero if that is gone.
func logCluster(fsys vfs.FS, dir string) (uuid.UUID, error) {
	start, end, err := LogBounds(fsys, dir)
	if err != nil || start > 0 || end == 0 {
		return uuid.Nil, err
	}
	r, err := OpenLogReader(fsys, dir, 0)
	if err != nil {
		return uuid.Nil, err
	}
	first, err := r.Next()
	if err != nil {
		return uuid.Nil, err
	}
	return ClusterIn(first.Batch), nil
}

// ClusterIn is the cluster that a batch founds, zero if it does not.
func ClusterIn(b *meta.Batch) uuid.UUID {
	for _, rec := range b.Upserts {
		if c, ok := rec.(*meta.Cluster); ok {
			return c.ID
		}
	}
	return uuid.Nil
}

// strangeSnapshot refuses a snapshot that is not of the log's history.
func strangeSnapshot(file string, err error) error {
	return &CorruptionError{File: file, Reason: "it is not of the history that the log tells", Err: err}
}

// otherHistory says how a snapshot and the log differ at the snapshot's end.
func otherHistory(snapshot, log Position) error {
	return fmt.Errorf("it ends at offset %d with epoch %d, term %s; the log has epoch %d, term %s there",
		snapshot.Offset, snapshot.LastEpoch, snapshot.LastTerm, log.LastEpoch, log.LastTerm)
}
