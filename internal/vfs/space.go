package vfs

import (
	"io/fs"
	"os"
	"sync"
	"syscall"
)

// Space is an FS with a budget of bytes that may still be written, to test
// what happens when the disk is full. Overwriting and removing give nothing
// back; Add does.
type Space struct {
	FS
	mu   sync.Mutex
	left int64
}

// WithSpace returns fs with room for n more bytes. The write that runs out of
// it is short, with syscall.ENOSPC, as on a real disk.
func WithSpace(fs FS, n int64) *Space { return &Space{FS: fs, left: n} }

// Add makes room for n more bytes (a negative n takes it away).
func (s *Space) Add(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = max(0, s.left+n)
}

// Free returns the rest of the budget.
func (s *Space) Free() (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left, nil
}

// take grants up to n bytes.
func (s *Space) take(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	granted := min(int64(n), s.left)
	s.left -= granted
	return int(granted)
}

func (s *Space) Open(name string) (File, error) {
	return s.OpenFile(name, os.O_RDONLY, 0)
}

func (s *Space) Create(name string) (File, error) {
	return s.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
}

func (s *Space) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := s.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &spaceFile{File: f, space: s}, nil
}

type spaceFile struct {
	File
	space *Space
}

func (f *spaceFile) Write(b []byte) (int, error) {
	return f.limited(b, f.File.Write)
}

func (f *spaceFile) WriteAt(b []byte, off int64) (int, error) {
	return f.limited(b, func(b []byte) (int, error) { return f.File.WriteAt(b, off) })
}

func (f *spaceFile) limited(b []byte, write func([]byte) (int, error)) (int, error) {
	granted := f.space.take(len(b))
	n, err := write(b[:granted])
	if err == nil && granted < len(b) {
		err = &fs.PathError{Op: "write", Path: f.Name(), Err: syscall.ENOSPC}
	}
	return n, err
}
