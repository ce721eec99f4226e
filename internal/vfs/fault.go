package vfs

import (
	"io"
	"io/fs"
	"os"
)

// Kind is what an operation does.
type Kind string

// The kinds of operations. A file's operations carry the name it was opened
// with, whatever it has been renamed to since.
const (
	OpOpen      Kind = "open"   // Open, and OpenFile without os.O_CREATE
	OpCreate    Kind = "create" // Create, and OpenFile with os.O_CREATE
	OpRead      Kind = "read"   // Read, ReadAt
	OpWrite     Kind = "write"  // Write, WriteAt
	OpTruncate  Kind = "truncate"
	OpSync      Kind = "sync"
	OpClose     Kind = "close"
	OpRename    Kind = "rename" // Name is the old name, To the new one
	OpRemove    Kind = "remove"
	OpRemoveAll Kind = "removeall"
	OpMkdirAll  Kind = "mkdirall"
	OpReadDir   Kind = "readdir"
	OpStat      Kind = "stat"
	OpChmod     Kind = "chmod"
	OpSyncDir   Kind = "syncdir"
	OpLock      Kind = "lock"
	OpFree      Kind = "free"
)

// Durable reports whether operations of this kind make earlier ones survive a
// power cut.
func (k Kind) Durable() bool { return k == OpSync || k == OpSyncDir || k == OpMkdirAll }

// Mutates reports whether operations of this kind change the tree or a file.
func (k Kind) Mutates() bool {
	switch k {
	case OpCreate, OpWrite, OpTruncate, OpRename, OpRemove, OpRemoveAll, OpMkdirAll, OpChmod:
		return true
	}
	return false
}

// Op is one operation about to be done. To is set for a rename, Size (bytes)
// for a write.
type Op struct {
	Kind Kind
	Name string
	To   string
	Size int
}

func (o Op) String() string {
	if o.To != "" {
		return string(o.Kind) + " " + o.Name + " to " + o.To
	}
	return string(o.Kind) + " " + o.Name
}

// WithFaults returns fs with f called before each operation, from the
// goroutine that does it. An error from f is the operation's result, and
// nothing reaches fs (a Close still closes). An injected failure of SyncDir
// surfaces as *SyncError, as a real one does.
func WithFaults(fs FS, f func(Op) error) FS { return &faultFS{fs: fs, fault: f} }

type faultFS struct {
	fs    FS
	fault func(Op) error
}

func (x *faultFS) String() string { return x.fs.String() }

func (x *faultFS) Open(name string) (File, error) {
	return x.OpenFile(name, os.O_RDONLY, 0)
}

func (x *faultFS) Create(name string) (File, error) {
	return x.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
}

func (x *faultFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	kind := OpOpen
	if flag&os.O_CREATE != 0 {
		kind = OpCreate
	}
	if err := x.fault(Op{Kind: kind, Name: name}); err != nil {
		return nil, err
	}
	f, err := x.fs.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &faultFile{File: f, name: name, fault: x.fault}, nil
}

func (x *faultFS) Rename(oldName, newName string) error {
	if err := x.fault(Op{Kind: OpRename, Name: oldName, To: newName}); err != nil {
		return err
	}
	return x.fs.Rename(oldName, newName)
}

func (x *faultFS) Remove(name string) error {
	if err := x.fault(Op{Kind: OpRemove, Name: name}); err != nil {
		return err
	}
	return x.fs.Remove(name)
}

func (x *faultFS) RemoveAll(name string) error {
	if err := x.fault(Op{Kind: OpRemoveAll, Name: name}); err != nil {
		return err
	}
	return x.fs.RemoveAll(name)
}

func (x *faultFS) MkdirAll(name string, perm fs.FileMode) error {
	if err := x.fault(Op{Kind: OpMkdirAll, Name: name}); err != nil {
		return err
	}
	return x.fs.MkdirAll(name, perm)
}

func (x *faultFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := x.fault(Op{Kind: OpReadDir, Name: name}); err != nil {
		return nil, err
	}
	return x.fs.ReadDir(name)
}

func (x *faultFS) Stat(name string) (fs.FileInfo, error) {
	if err := x.fault(Op{Kind: OpStat, Name: name}); err != nil {
		return nil, err
	}
	return x.fs.Stat(name)
}

func (x *faultFS) Chmod(name string, mode fs.FileMode) error {
	if err := x.fault(Op{Kind: OpChmod, Name: name}); err != nil {
		return err
	}
	return x.fs.Chmod(name, mode)
}

func (x *faultFS) SyncDir(name string) error {
	if err := x.fault(Op{Kind: OpSyncDir, Name: name}); err != nil {
		return &SyncError{Name: name, Dir: true, Err: err}
	}
	return x.fs.SyncDir(name)
}

func (x *faultFS) Lock(name string) (io.Closer, error) {
	if err := x.fault(Op{Kind: OpLock, Name: name}); err != nil {
		return nil, err
	}
	return x.fs.Lock(name)
}

func (x *faultFS) Free() (int64, error) {
	if err := x.fault(Op{Kind: OpFree, Name: "."}); err != nil {
		return 0, err
	}
	return x.fs.Free()
}

type faultFile struct {
	File
	name  string
	fault func(Op) error
}

func (x *faultFile) Read(b []byte) (int, error) {
	if err := x.fault(Op{Kind: OpRead, Name: x.name}); err != nil {
		return 0, err
	}
	return x.File.Read(b)
}

func (x *faultFile) ReadAt(b []byte, off int64) (int, error) {
	if err := x.fault(Op{Kind: OpRead, Name: x.name}); err != nil {
		return 0, err
	}
	return x.File.ReadAt(b, off)
}

func (x *faultFile) Write(b []byte) (int, error) {
	if err := x.fault(Op{Kind: OpWrite, Name: x.name, Size: len(b)}); err != nil {
		return 0, err
	}
	return x.File.Write(b)
}

func (x *faultFile) WriteAt(b []byte, off int64) (int, error) {
	if err := x.fault(Op{Kind: OpWrite, Name: x.name, Size: len(b)}); err != nil {
		return 0, err
	}
	return x.File.WriteAt(b, off)
}

func (x *faultFile) Truncate(size int64) error {
	if err := x.fault(Op{Kind: OpTruncate, Name: x.name}); err != nil {
		return err
	}
	return x.File.Truncate(size)
}

func (x *faultFile) Sync() error {
	if err := x.fault(Op{Kind: OpSync, Name: x.name}); err != nil {
		return err
	}
	return x.File.Sync()
}

func (x *faultFile) Close() error {
	if err := x.fault(Op{Kind: OpClose, Name: x.name}); err != nil {
		x.File.Close()
		return err
	}
	return x.File.Close()
}
