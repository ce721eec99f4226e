package metalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
)

// LogOptions say where a Log is and how it is cut. The zero value of a field means
// its default.
type LogOptions struct {
	Dir       string // below the FS; "log"
	FileBytes int64  // a new file is begun past this size; 16 MiB
	Logger    zerolog.Logger
	Metrics   *Metrics
}

// Log is the log device on local files: the controller's own log, and every
// follower's cache of it. All methods are safe for concurrent use; appends and
// truncations take turns.
type Log struct {
	fs      vfs.FS
	opts    LogOptions
	log     zerolog.Logger
	metrics *Metrics

	// write serialises whoever changes files. It is the one lock that is held
	// across I/O; readers never take it.
	write  sync.Mutex
	active vfs.File // the last file, guarded by write
	failed error    // set by a failure that leaves the disk unknown, guarded by write

	mu      sync.Mutex // guards what follows: the log as readers see it, all of it synced
	files   []*logFile // in order, without a hole
	end     Position
	epochs  []EpochEnd
	changed chan struct{} // closed and replaced when end moves
	closed  bool
	damaged int64 // offset after the last batch that was found damaged when it was read back, 0: none was
}

var _ Device = (*Log)(nil)

// OpenLog opens the log in opts.Dir, or makes an empty one. It reads every frame:
// a torn tail is cut off, damage is a *CorruptionError and nothing is changed. What
// it found is fsynced before it returns, for it may come from a process that was
// killed before its own fsync.
func OpenLog(fsys vfs.FS, opts LogOptions) (*Log, error) {
	opts.Dir = cmp.Or(opts.Dir, "log")
	opts.FileBytes = cmp.Or(opts.FileBytes, 16<<20)
	if opts.Metrics == nil {
		opts.Metrics = NewMetrics(nil)
	}
	l := &Log{
		fs: fsys, opts: opts, metrics: opts.Metrics, changed: make(chan struct{}),
		log: opts.Logger.With().Str("component", "metalog").Logger(),
	}
	if _, err := fsys.Stat(opts.Dir); errors.Is(err, fs.ErrNotExist) {
		if err := l.isFirst(); err != nil {
			return nil, err
		}
	}
	if err := fsys.MkdirAll(opts.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("metalog: %w", err)
	}
	if err := l.resumeReset(); err != nil {
		return nil, err
	}
	bases, err := l.sweep()
	if err != nil {
		return nil, err
	}
	if err := l.load(bases); err != nil {
		return nil, err
	}
	if l.active, err = fsys.OpenFile(l.last().name, os.O_RDWR, 0); err != nil {
		return nil, fmt.Errorf("metalog: %w", err)
	}
	if err := l.settle(); err != nil {
		return nil, errors.Join(err, l.active.Close())
	}
	return l, nil
}

// sweep removes what a crash left half made or half removed, and lists the log's
// files in order. Other names are not ours.
func (l *Log) sweep() (bases []int64, err error) {
	entries, err := l.fs.ReadDir(l.opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("metalog: %w", err)
	}
	for _, e := range entries {
		if base, ok := parseLogFileName(e.Name()); ok {
			if err := notAFile(path.Join(l.opts.Dir, e.Name()), e); err != nil {
				return nil, err
			}
			bases = append(bases, base)
			continue
		}
		plain, half := strings.CutSuffix(e.Name(), tmpSuffix)
		if !half {
			plain, half = strings.CutSuffix(e.Name(), deletedSuffix)
		}
		if _, ours := parseLogFileName(plain); !half || !ours {
			continue
		}
		if err := l.fs.Remove(path.Join(l.opts.Dir, e.Name())); err != nil {
			return nil, fmt.Errorf("metalog: sweep: %w", err)
		}
	}
	slices.Sort(bases)
	return bases, nil
}

// load reads the files and checks that they form one log.
func (l *Log) load(bases []int64) error {
	if len(bases) == 0 {
		if err := l.isFirst(); err != nil {
			return err
		}
		f, err := createLogFile(l.fs, l.opts.Dir, Position{})
		if err != nil {
			return err
		}
		l.files = []*logFile{f}
		return nil
	}
	scans, errs := scanLogFiles(l.fs, l.opts.Dir, bases)
	for i, s := range scans {
		if errs[i] != nil {
			return errs[i]
		}
		base, name := bases[i], s.file.name
		if s.file.start.Offset != base {
			return &CorruptionError{File: name, Reason: fmt.Sprintf("its header says that it begins at offset %d", s.file.start.Offset)}
		}
		if i > 0 && s.file.start != l.end {
			return &CorruptionError{File: name, Reason: fmt.Sprintf("the file before it ends at %+v, this one continues %+v: one of the two is not what it was, or one between them is missing (before it: %s)",
				l.end, s.file.start, path.Base(logFileName(l.opts.Dir, bases[i-1])))}
		}
		if i == 0 && base > 0 {
			l.epochs = extendEpochs(nil, s.file.start)
		}
		l.files = append(l.files, s.file)
		l.end = s.end
		l.epochs = joinEpochs(l.epochs, s.epochs)
		if s.torn > 0 {
			l.log.Warn().Str("file", name).Int64("offset", s.end.Offset).Int64("bytes", s.torn).
				Msg("the log ends in a torn append; cutting it off")
		}
	}
	return nil
}

// isFirst refuses to begin a log where there was one: an epoch is claimed only
// after the log was made. An empty one in its place would be another cluster.
func (l *Log) isFirst() error {
	_, err := l.fs.Stat(EpochFile)
	switch {
	case err == nil:
		return &CorruptionError{File: l.opts.Dir, Reason: "it holds no log, and the file " + EpochFile + " beside it says that it did"}
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return fmt.Errorf("metalog: %w", err)
}

// settle makes what was found on disk durable and nothing more.
func (l *Log) settle() error {
	f := l.last()
	if err := l.active.Truncate(f.size); err != nil {
		return fmt.Errorf("metalog: cut %s: %w", f.name, err)
	}
	if err := vfs.Sync(l.active); err != nil {
		return fmt.Errorf("metalog: %w", err)
	}
	if err := l.fs.SyncDir(l.opts.Dir); err != nil {
		return fmt.Errorf("metalog: %w", err)
	}
	return nil
}

func (l *Log) last() *logFile { return l.files[len(l.files)-1] }

// Start is the first offset the log holds (LSO).
func (l *Log) Start() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.files[0].start.Offset
}

// End is the offset of the next batch (LEO). Everything below it is durable.
func (l *Log) End() int64 { return l.Position().Offset }

// Position is where the log ends.
func (l *Log) Position() Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end
}

// Watch returns End and a channel that is closed once End has moved.
func (l *Log) Watch() (end int64, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end.Offset, l.changed
}

// State is what a fetch is decided on, without the snapshots.
func (l *Log) State() FetchState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return FetchState{LogStart: l.files[0].start.Offset, HighWatermark: l.end.Offset, Epochs: slices.Clone(l.epochs)}
}

// Bytes is the size of the log's files.
func (l *Log) Bytes() (n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.files {
		n += f.size
	}
	return n
}

// Append implements Device: one frame, one fsync.
func (l *Log) Append(ctx context.Context, b *meta.Batch) error {
	e, err := NewEntry(b)
	if err != nil {
		return err
	}
	if err := l.inPlace(); err != nil {
		return err
	}
	return l.AppendEntries(ctx, []Entry{e})
}

// inPlace refuses to append to a file that has lost its name: somebody removed
// or replaced it under us, and what would go into it, fsync and all, would be
// gone with the process.
func (l *Log) inPlace() error {
	l.write.Lock()
	defer l.write.Unlock()
	if l.failed != nil {
		return l.failed
	}
	f := l.last()
	info, err := l.fs.Stat(f.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return l.fail(fmt.Errorf("%w: %s was removed: %w", ErrPoisoned, f.name, err))
	case err != nil:
		return fmt.Errorf("metalog: append to %s: %w", f.name, err)
	case info.Size() != f.size:
		return l.fail(fmt.Errorf("%w: %s was changed by another: it has %d bytes, not %d", ErrPoisoned, f.name, info.Size(), f.size))
	}
	return nil
}

// AppendEntries appends batches with the frames they came in, one fsync for all.
// After an error that is not ErrPoisoned nothing was appended.
func (l *Log) AppendEntries(ctx context.Context, entries []Entry) error {
	l.write.Lock()
	defer l.write.Unlock()
	if err := cmp.Or(l.failed, ctx.Err()); err != nil {
		return err
	}
	at := l.Position()
	for _, e := range entries {
		if err := continues(at, e.Batch); err != nil {
			return fmt.Errorf("metalog: append: %w", err)
		}
		at = after(e.Batch)
	}
	if len(entries) == 0 {
		return nil
	}
	began := time.Now()
	f, err := l.fileFor(entries)
	if err != nil {
		return l.fail(err)
	}
	written, pos, err := l.writeFrames(f, entries)
	if err != nil {
		return l.fail(err)
	}
	l.publish(f, pos, f.size+written, entries)
	l.metrics.appended(time.Since(began), written)
	return nil
}

// fileFor returns the file to append to, a new one if the last is full. Everything
// in the old one is synced.
func (l *Log) fileFor(entries []Entry) (*logFile, error) {
	f := l.last() // only holders of write change files
	if len(f.pos) == 0 || f.size+int64(len(entries[0].Frame)) <= l.opts.FileBytes {
		return f, nil
	}
	next, err := createLogFile(l.fs, l.opts.Dir, l.Position())
	if err != nil {
		return nil, err
	}
	active, err := l.fs.OpenFile(next.name, os.O_RDWR, 0)
	if err != nil {
		// The file is there: a smaller batch, appended to the old one after all, would
		// make the two overlap.
		return nil, fmt.Errorf("%w: %w", ErrPoisoned, err)
	}
	old := l.active
	l.active = active
	l.mu.Lock()
	l.files = append(l.files, next)
	l.mu.Unlock()
	if err := old.Close(); err != nil {
		l.log.Warn().Err(err).Str("file", f.name).Msg("close of a full log file failed; its content is synced")
	}
	return next, nil
}

// writeFrames writes and syncs the frames after f's good bytes. A write that fails,
// on a full disk for one, is undone; an fsync that fails cannot be.
func (l *Log) writeFrames(f *logFile, entries []Entry) (written int64, pos []int64, err error) {
	var buf []byte
	for _, e := range entries {
		pos = append(pos, f.size+int64(len(buf)))
		buf = append(buf, e.Frame...)
	}
	if _, err := l.active.WriteAt(buf, f.size); err != nil {
		err = fmt.Errorf("metalog: append to %s: %w", f.name, err)
		if undo := l.active.Truncate(f.size); undo != nil {
			err = fmt.Errorf("%w: %w; then cutting it off: %w", ErrPoisoned, err, undo)
		}
		return 0, nil, err
	}
	if err := vfs.Sync(l.active); err != nil {
		return 0, nil, fmt.Errorf("metalog: append to %s: %w", f.name, err)
	}
	return int64(len(buf)), pos, nil
}

// fail remembers an error after which the disk's state is unknown: the kernel may
// drop the pages of a failed fsync and report success on the next one, so an append
// that came after could be acknowledged and not be there.
func (l *Log) fail(err error) error {
	if vfs.IsSyncError(err) {
		err = fmt.Errorf("%w: %w", ErrPoisoned, err)
	}
	if errors.Is(err, ErrPoisoned) {
		l.failed = err
	}
	return err
}

// publish shows synced batches to readers.
func (l *Log) publish(f *logFile, pos []int64, size int64, entries []Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f.pos = append(f.pos, pos...)
	f.size = size
	for _, e := range entries {
		l.end = after(e.Batch)
		l.epochs = extendEpochs(l.epochs, l.end)
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// Close closes the files. It waits for an append that is under way.
func (l *Log) Close() error {
	l.write.Lock()
	defer l.write.Unlock()
	l.mu.Lock()
	closed := l.closed
	l.closed = true
	l.mu.Unlock()
	if closed {
		return nil
	}
	l.failed = ErrClosed
	if err := l.active.Close(); err != nil {
		return fmt.Errorf("metalog: close %s: %w", l.last().name, err)
	}
	return nil
}

// joinEpochs appends the epochs of the next file to those before it.
func joinEpochs(epochs, next []EpochEnd) []EpochEnd {
	for _, e := range next {
		epochs = extendEpochs(epochs, Position{Offset: e.End, LastEpoch: e.Epoch, LastTerm: e.Term})
	}
	return epochs
}
