package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// OS returns the directory root of the operating system as an FS and creates it
// if needed. Everything goes through an os.Root, so no name and no symbolic
// link leads outside. The FS holds the directory open for as long as it is in
// use; it also has a Close, for those who want it closed at once.
func OS(root string) (FS, error) {
	abs, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("vfs: %w", err)
	}
	if err := makeRoot(abs); err != nil {
		return nil, fmt.Errorf("vfs: %w", err)
	}
	r, err := os.OpenRoot(abs)
	if err != nil {
		return nil, fmt.Errorf("vfs: %w", err)
	}
	return &osFS{root: r}, nil
}

// makeRoot makes dir and those above it that are missing, each durable in its
// parent before the next is made in it.
func makeRoot(dir string) error {
	if info, err := os.Stat(dir); err == nil {
		if !info.IsDir() {
			return &fs.PathError{Op: "mkdir", Path: dir, Err: unix.ENOTDIR}
		}
		return nil
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := makeRoot(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	f, err := os.Open(parent)
	if err != nil {
		return err
	}
	return syncAndClose(f, parent)
}

// syncAndClose fsyncs an open directory and closes it.
func syncAndClose(f *os.File, name string) error {
	err := f.Sync()
	if err != nil {
		err = &SyncError{Name: name, Dir: true, Err: err}
	}
	return errors.Join(err, f.Close())
}

type osFS struct{ root *os.Root }

func (o *osFS) String() string { return o.root.Name() }
func (o *osFS) Close() error   { return o.root.Close() }

func (o *osFS) Open(name string) (File, error) {
	return o.OpenFile(name, os.O_RDONLY, 0)
}

func (o *osFS) Create(name string) (File, error) {
	return o.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
}

func (o *osFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	if err := checkName("open", name); err != nil {
		return nil, err
	}
	f, err := o.root.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err // a nil *os.File must not become a non-nil File
	}
	return f, nil
}

func (o *osFS) Rename(oldName, newName string) error {
	for _, name := range []string{oldName, newName} {
		if err := checkNotRoot("rename", name); err != nil {
			return err
		}
	}
	return o.root.Rename(oldName, newName)
}

func (o *osFS) Remove(name string) error {
	if err := checkNotRoot("remove", name); err != nil {
		return err
	}
	return o.root.Remove(name)
}

func (o *osFS) RemoveAll(name string) error {
	if err := checkNotRoot("removeall", name); err != nil {
		return err
	}
	return o.root.RemoveAll(name)
}

// MkdirAll fsyncs the parents of directories that exist already, too: one may
// have been made a moment ago by a goroutine, or a process now dead, that had
// not come to its fsync.
func (o *osFS) MkdirAll(name string, perm fs.FileMode) error {
	if err := checkName("mkdir", name); err != nil {
		return err
	}
	for _, dir := range parents(name) {
		if err := o.mkdir(dir, perm); err != nil {
			return err
		}
		if err := o.SyncDir(path.Dir(dir)); err != nil {
			return err
		}
	}
	return nil
}

func (o *osFS) mkdir(dir string, perm fs.FileMode) error {
	err := o.root.Mkdir(dir, perm)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := o.root.Stat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return &fs.PathError{Op: "mkdir", Path: dir, Err: unix.ENOTDIR}
	}
	return nil
}

func (o *osFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := checkName("readdir", name); err != nil {
		return nil, err
	}
	f, err := o.root.Open(name)
	if err != nil {
		return nil, err
	}
	list, err := f.ReadDir(-1)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return list, nil
}

func (o *osFS) Stat(name string) (fs.FileInfo, error) {
	if err := checkName("stat", name); err != nil {
		return nil, err
	}
	return o.root.Stat(name)
}

func (o *osFS) Chmod(name string, mode fs.FileMode) error {
	if err := checkName("chmod", name); err != nil {
		return err
	}
	return o.root.Chmod(name, mode)
}

func (o *osFS) SyncDir(name string) error {
	if err := checkName("syncdir", name); err != nil {
		return err
	}
	f, err := o.root.Open(name)
	if err != nil {
		return err
	}
	return syncAndClose(f, name)
}

// Lock uses flock, which the kernel gives up when the process ends in whatever
// way.
func (o *osFS) Lock(name string) (io.Closer, error) {
	if err := checkNotRoot("lock", name); err != nil {
		return nil, err
	}
	for {
		f, err := o.root.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return nil, err
		}
		if err := flock(f); err != nil {
			return nil, errors.Join(&fs.PathError{Op: "lock", Path: f.Name(), Err: err}, f.Close())
		}
		// Its last holder may have removed it between the two: the lock of a file
		// without a name keeps nobody out.
		same, err := o.isNamed(f, name)
		if same && err == nil {
			return f, nil
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
	}
}

func flock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}

// isNamed reports whether name is the file f still.
func (o *osFS) isNamed(f *os.File, name string) (bool, error) {
	opened, err := f.Stat()
	if err != nil {
		return false, err
	}
	named, err := o.root.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(opened, named), err
}

func (o *osFS) Free() (int64, error) {
	f, err := o.root.Open(".")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: o.String(), Err: err}
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}
