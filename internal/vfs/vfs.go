// Package vfs is the file system as Shoal's durable code sees it: everything a
// node or a controller must find again after a power cut goes through an FS.
//
// It owns the one durable-write path of the project (Publish, in publish.go:
// temporary file, fsync, rename, fsync of the directory) and three
// implementations of FS: the operating system's below a root (os.go), one in
// memory that can be cloned as a power cut would leave it (mem.go), and one
// that injects faults into another (fault.go). It knows nothing of segments,
// logs or snapshots. Start reading here, then publish.go.
package vfs

import (
	"errors"
	"io"
	"io/fs"
)

// ErrLocked says that another process holds the lock that was asked for.
var ErrLocked = errors.New("vfs: locked by another process")

// FS is a tree of files below one root. Names are slash-separated, relative to
// that root and lexically local (no "..", no leading slash): any other name is
// refused with an *fs.PathError, so a name from outside cannot leave the root.
// All methods are safe for concurrent use. Errors match fs.ErrNotExist,
// fs.ErrExist and syscall.ENOSPC where that is what happened.
type FS interface {
	// Open opens a file for reading.
	Open(name string) (File, error)
	// Create opens a new or truncated file for reading and writing.
	Create(name string) (File, error)
	// OpenFile is the general form; flag is os.O_*.
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	// Rename replaces newName atomically. It is durable only after SyncDir of
	// both parents.
	Rename(oldName, newName string) error
	Remove(name string) error
	RemoveAll(name string) error
	// MkdirAll makes the directories of name and fsyncs the parents of those
	// it made, so that a later publish inside them is durable.
	MkdirAll(name string, perm fs.FileMode) error
	// ReadDir lists a directory sorted by name.
	ReadDir(name string) ([]fs.DirEntry, error)
	Stat(name string) (fs.FileInfo, error)
	Chmod(name string, mode fs.FileMode) error
	// SyncDir makes the creations, renames and removals in a directory durable.
	SyncDir(name string) error
	// Lock takes an exclusive lock on name, creating it if needed, until the
	// returned Closer is closed or the process ends. Held elsewhere: ErrLocked. The
	// file stays, unless its holder removes it before closing.
	Lock(name string) (io.Closer, error)
	// Free is the space in bytes that an unprivileged writer can still use.
	Free() (int64, error)
	// String names the root for messages.
	String() string
}

// File is an open file. On the operating system its dynamic type is *os.File,
// so that net/http can send it from the kernel (sendfile).
type File interface {
	io.Reader
	io.Writer
	io.Seeker
	io.ReaderAt
	io.WriterAt
	io.Closer
	Name() string
	Stat() (fs.FileInfo, error)
	// Sync makes the content durable (fsync). A failed Sync means the content
	// is unknown: the caller must not retry on the same file.
	Sync() error
	Truncate(size int64) error
}
