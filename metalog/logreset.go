package metalog

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"github.com/shoalstore/shoal/internal/vfs"
)

// resetSuffix names the first file of a log that is to replace the one that is there.
// Once it has that name the old log is over, whatever else is still to be done, and
// OpenLog does it.
const resetSuffix = ".reset"

// Reset drops every batch and begins an empty log at a position. Whoever calls it has
// made durable before what the batches were good for: a snapshot that ends at the
// position. A power cut leaves the old log or the new one. After an error that is not
// ErrPoisoned nothing has changed.
func (l *Log) Reset(at Position) error {
	if err := at.check(); err != nil {
		return fmt.Errorf("metalog: reset: %w", err)
	}
	l.write.Lock()
	defer l.write.Unlock()
	if l.failed != nil {
		return l.failed
	}
	if err := l.publishReset(at); err != nil {
		return l.fail(err)
	}
	// From here on an append to the old log would be lost, so no failure lets one in.
	if err := l.beginAt(at); err != nil {
		return l.fail(fmt.Errorf("%w: reset: %w", ErrPoisoned, err))
	}
	l.log.Info().Int64("offset", at.Offset).Int64("epoch", at.LastEpoch).Msg("log emptied")
	return nil
}

// publishReset makes the new log's first file durable under its name with
// resetSuffix. It is written under a name that every start sweeps.
func (l *Log) publishReset(at Position) error {
	name := logFileName(l.opts.Dir, at.Offset)
	tmp := name + tmpSuffix
	if err := removeIfThere(l.fs, tmp); err != nil {
		return fmt.Errorf("metalog: reset: %w", err)
	}
	f, err := l.fs.Create(tmp)
	if err != nil {
		return fmt.Errorf("metalog: reset: %w", err)
	}
	if _, err := f.Write(encodeLogHeader(at)); err != nil {
		return errors.Join(fmt.Errorf("metalog: reset: %w", err), f.Close(), removeIfThere(l.fs, tmp))
	}
	if err := vfs.Publish(l.fs, f, tmp, name+resetSuffix); err != nil {
		return fmt.Errorf("%w: reset: %w", ErrPoisoned, err)
	}
	return nil
}

// beginAt puts the new log in the place of the old one.
func (l *Log) beginAt(at Position) error {
	name := logFileName(l.opts.Dir, at.Offset)
	if err := replaceLog(l.fs, l.opts.Dir, name); err != nil {
		return err
	}
	active, err := l.fs.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	old := l.active
	l.active = active
	l.mu.Lock()
	l.files = []*logFile{{name: name, start: at, size: logHeaderSize}}
	l.end, l.epochs, l.damaged = at, nil, 0
	if at.Offset > 0 {
		l.epochs = extendEpochs(nil, at)
	}
	close(l.changed)
	l.changed = make(chan struct{})
	l.mu.Unlock()
	if err := old.Close(); err != nil {
		l.log.Warn().Err(err).Msg("close of a log file that was removed failed")
	}
	return nil
}

// replaceLog removes every file of the log and gives name its own name. It can be
// done again from the start wherever it ended.
func replaceLog(fsys vfs.FS, dir, name string) error {
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return err
	}
	var gone []string
	for _, e := range entries {
		if _, ours := parseLogFileName(e.Name()); !ours {
			continue
		}
		old := path.Join(dir, e.Name())
		// The two may be names of one file, after a power cut in an earlier try, and
		// then a rename does nothing.
		if err := removeIfThere(fsys, old+deletedSuffix); err != nil {
			return err
		}
		if err := fsys.Rename(old, old+deletedSuffix); err != nil {
			return err
		}
		gone = append(gone, old+deletedSuffix)
	}
	// Before the new file is one of the log's: a power cut must not leave it beside
	// an old one.
	if err := fsys.SyncDir(dir); err != nil {
		return err
	}
	if err := fsys.Rename(name+resetSuffix, name); err != nil {
		return err
	}
	if err := fsys.SyncDir(dir); err != nil {
		return err
	}
	for _, file := range gone {
		_ = fsys.Remove(file) // what stays is swept on start
	}
	return nil
}

// resumeReset finishes a Reset that a crash cut short.
func (l *Log) resumeReset() error {
	entries, err := l.fs.ReadDir(l.opts.Dir)
	if err != nil {
		return fmt.Errorf("metalog: %w", err)
	}
	var found []string
	for _, e := range entries {
		plain, reset := strings.CutSuffix(e.Name(), resetSuffix)
		if _, ours := parseLogFileName(plain); reset && ours {
			if err := notAFile(path.Join(l.opts.Dir, e.Name()), e); err != nil {
				return err
			}
			found = append(found, path.Join(l.opts.Dir, plain))
		}
	}
	switch len(found) {
	case 0:
		return nil
	case 1:
	default:
		return &CorruptionError{File: found[1] + resetSuffix, Reason: "a log begins anew at one position, and " + found[0] + resetSuffix + " names another"}
	}
	name := found[0]
	s, err := scanLogFile(l.fs, name+resetSuffix, false, new([]byte))
	if err != nil {
		return err
	}
	if logFileName(l.opts.Dir, s.file.start.Offset) != name || len(s.file.pos) > 0 {
		return &CorruptionError{File: name + resetSuffix, Reason: fmt.Sprintf("it is no empty log that begins at offset %d", s.file.start.Offset)}
	}
	l.log.Warn().Int64("offset", s.file.start.Offset).Msg("the log was being emptied; finishing that")
	if err := replaceLog(l.fs, l.opts.Dir, name); err != nil {
		return fmt.Errorf("metalog: reset: %w", err)
	}
	return nil
}
