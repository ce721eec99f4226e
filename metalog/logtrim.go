package metalog

import (
	"fmt"
	"os"

	"github.com/shoalstore/shoal/internal/vfs"
)

// Trim implements Device: it removes the files whose every batch is below before,
// never the last one, and so may keep some batches that it could have dropped.
// That a good snapshot covers what goes is for the caller to know.
func (l *Log) Trim(before int64) error {
	l.write.Lock()
	defer l.write.Unlock()
	if l.failed != nil {
		return l.failed
	}
	// Oldest first, each durable before the next: a power cut in the middle leaves
	// a log that starts later, not one with a hole.
	for len(l.files) > 1 && l.files[0].end() <= before {
		old := l.files[0]
		l.mu.Lock()
		l.files = l.files[1:]
		for len(l.epochs) > 0 && l.epochs[0].End < l.files[0].start.Offset {
			l.epochs = l.epochs[1:]
		}
		l.mu.Unlock()
		if err := l.remove(old); err != nil {
			return l.fail(err)
		}
		l.log.Info().Str("file", old.name).Int64("offset", l.files[0].start.Offset).Msg("log start moved")
	}
	return nil
}

// Truncate removes the batches from offset to on. A follower does it when its leader
// says that they are not the leader's; a leader never does.
func (l *Log) Truncate(to int64) error {
	l.write.Lock()
	defer l.write.Unlock()
	if l.failed != nil {
		return l.failed
	}
	if start := l.files[0].start.Offset; to < start || to > l.end.Offset {
		return &OutOfRangeError{Offset: to, Start: start, End: l.end.Offset}
	}
	// Newest first, for the same reason as in Trim.
	for len(l.files) > 1 && l.last().start.Offset >= to {
		if err := l.dropLast(); err != nil {
			return l.fail(err)
		}
	}
	if err := l.cutLast(to); err != nil {
		return l.fail(err)
	}
	return nil
}

// dropLast removes the last file; the one before it becomes the active one.
func (l *Log) dropLast() error {
	old, now := l.last(), l.files[len(l.files)-2]
	active, err := l.fs.OpenFile(now.name, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("metalog: truncate: %w", err)
	}
	closing := l.active
	l.active = active
	l.mu.Lock()
	l.files = l.files[:len(l.files)-1]
	l.endAt(old.start)
	l.mu.Unlock()
	if err := closing.Close(); err != nil {
		l.log.Warn().Err(err).Str("file", old.name).Msg("close of a log file that is being removed failed")
	}
	return l.remove(old)
}

// cutLast shortens the last file to end at offset to.
func (l *Log) cutLast(to int64) error {
	f := l.last()
	keep := int(to - f.start.Offset)
	if keep >= len(f.pos) {
		return nil
	}
	end := f.start
	if keep > 0 {
		entries, err := l.entryAt(to - 1)
		if err != nil {
			return err
		}
		end = after(entries.Batch)
	}
	l.mu.Lock()
	size := f.pos[keep]
	f.pos, f.size = f.pos[:keep:keep], size
	l.endAt(end)
	l.mu.Unlock()
	if err := l.active.Truncate(size); err != nil {
		return fmt.Errorf("%w: truncate %s: %w", ErrPoisoned, f.name, err)
	}
	if err := vfs.Sync(l.active); err != nil {
		return fmt.Errorf("metalog: truncate: %w", err)
	}
	return nil
}

// entryAt reads one batch back.
func (l *Log) entryAt(offset int64) (Entry, error) {
	frame, err := l.Read(offset, 1)
	if err != nil {
		return Entry{}, err
	}
	entries, err := DecodeEntries(frame)
	if err != nil {
		return Entry{}, err
	}
	return entries[0], nil
}

// endAt moves the end back, with mu held.
func (l *Log) endAt(p Position) {
	l.end = p
	l.damaged = min(l.damaged, p.Offset)
	for n := len(l.epochs); n > 0 && l.epochs[n-1].Epoch > p.LastEpoch; n-- {
		l.epochs = l.epochs[:n-1]
	}
	if n := len(l.epochs); n > 0 {
		l.epochs[n-1].End = p.Offset
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// remove deletes a file that is no longer in the log: renamed first, so that the
// name it is known by goes at once and durably; the rest is swept on start.
func (l *Log) remove(f *logFile) error {
	gone := f.name + deletedSuffix
	if err := l.fs.Rename(f.name, gone); err != nil {
		return fmt.Errorf("%w: remove %s: %w", ErrPoisoned, f.name, err)
	}
	if err := l.fs.SyncDir(l.opts.Dir); err != nil {
		return fmt.Errorf("metalog: %w", err)
	}
	if err := l.fs.Remove(gone); err != nil {
		l.log.Warn().Err(err).Str("file", gone).Msg("a removed log file stays until the next start")
	}
	return nil
}
