package vfs

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
)

// SyncError is a failed fsync of a file or of a directory. Whether the bytes
// are on the disk is then unknown, and asking again proves nothing: the kernel
// may have dropped the dirty pages and report success next time. So callers
// treat it as fatal and stop the process; the next start reads what is there.
type SyncError struct {
	Name string
	Dir  bool
	Err  error
}

func (e *SyncError) Error() string {
	if e.Dir {
		return fmt.Sprintf("vfs: fsync directory %s: %v", e.Name, e.Err)
	}
	return fmt.Sprintf("vfs: fsync %s: %v", e.Name, e.Err)
}

func (e *SyncError) Unwrap() error { return e.Err }

// IsSyncError reports whether err says that an fsync failed: stop the process.
func IsSyncError(err error) bool {
	_, ok := errors.AsType[*SyncError](err)
	return ok
}

// Sync makes the content of f durable; a failure is a *SyncError. File.Sync
// itself cannot say so, because on the operating system it is *os.File's.
func Sync(f File) error {
	if err := f.Sync(); err != nil {
		return &SyncError{Name: f.Name(), Err: err}
	}
	return nil
}

// Publish makes a file that was written under the name tmp appear, complete
// and durable, under the name final: fsync the content, close, rename, fsync
// the directories. A power cut at any moment leaves under final either what was
// there before or the whole new file, and after a nil return always the new one.
//
// Publish takes ownership of staged and closes it in every case. It is the
// caller who makes the directories (MkdirAll) and, if wanted, the file
// read-only (Chmod of tmp) before. After an error the file may be under tmp or,
// if a directory's fsync failed, under final; the error names the step and is a
// *SyncError, fatal, if that step was an fsync.
func Publish(fs FS, staged File, tmp, final string) error {
	if err := publish(fs, staged, tmp, final); err != nil {
		return fmt.Errorf("publish %s: %w", final, err)
	}
	return nil
}

func publish(fs FS, staged File, tmp, final string) error {
	if err := Sync(staged); err != nil {
		return errors.Join(err, staged.Close())
	}
	if err := staged.Close(); err != nil {
		return fmt.Errorf("close %s: %w", tmp, err)
	}
	if err := fs.Rename(tmp, final); err != nil {
		return fmt.Errorf("rename %s: %w", tmp, err)
	}
	from, to := path.Dir(tmp), path.Dir(final)
	if err := fs.SyncDir(to); err != nil {
		return err
	}
	if from == to {
		return nil
	}
	// Without this the old name could come back beside the new one.
	return fs.SyncDir(from)
}

// WriteFile writes data as the whole content of name, by a temporary file
// beside it and Publish: readers and power cuts see the old content or the new,
// nothing between. Two writers of one name at a time are the caller's fault.
func WriteFile(fs FS, name string, data []byte) error {
	tmp := name + ".tmp"
	// A power cut in the middle of an earlier rename can leave the file under both
	// names. To truncate the one would be to truncate the other.
	if err := fs.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("write %s: %w", name, err)
	}
	f, err := fs.Create(tmp)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if _, err := f.Write(data); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", name, err), f.Close(), fs.Remove(tmp))
	}
	return Publish(fs, f, tmp, name)
}

// ReadFile reads a whole file of at most max bytes; a larger one is an error
// and is not read, so that a damaged or foreign file cannot fill the memory.
func ReadFile(fs FS, name string, max int64) ([]byte, error) {
	return ReadFileInto(nil, fs, name, max)
}

// ReadFileInto is ReadFile into the memory of buf, as far as that suffices.
func ReadFileInto(buf []byte, fs FS, name string, max int64) ([]byte, error) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	data, err := readAll(buf, f, max)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return data, nil
}

func readAll(buf []byte, f File, max int64) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > max {
		return nil, fmt.Errorf("%d bytes, at most %d expected", info.Size(), max)
	}
	data := slices.Grow(buf[:0], int(info.Size()))[:info.Size()]
	if n, err := f.ReadAt(data, 0); n < len(data) {
		return nil, err
	}
	return data, nil
}
