package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// pageSize is the unit in which a file's content is shared between what it is
// now, what it was at its last Sync, and clones.
const pageSize = 1024

// content is a file's bytes. Pages are copied before the first write after the
// content was shared; a nil page is a hole of zeros.
type content struct {
	size  int64
	pages [][]byte
	owned []bool // by page: no one else sees it, write in place
}

// share returns the same content; from now on both copy before they write.
func (c *content) share() content {
	clear(c.owned)
	return content{size: c.size, pages: append([][]byte(nil), c.pages...), owned: make([]bool, len(c.pages))}
}

func (c *content) readAt(b []byte, off int64) int {
	if off >= c.size {
		return 0
	}
	b = b[:min(int64(len(b)), c.size-off)]
	for done := 0; done < len(b); {
		i, in := int(off/pageSize), int(off%pageSize)
		n := min(len(b)-done, pageSize-in)
		if page := c.pages[i]; page == nil {
			clear(b[done : done+n])
		} else {
			copy(b[done:done+n], page[in:])
		}
		done += n
		off += int64(n)
	}
	return len(b)
}

func (c *content) writeAt(b []byte, off int64) {
	c.grow(off + int64(len(b)))
	for len(b) > 0 {
		n := copy(c.page(int(off / pageSize))[off%pageSize:], b)
		b = b[n:]
		off += int64(n)
	}
}

// page returns page i for writing.
func (c *content) page(i int) []byte {
	if !c.owned[i] {
		page := make([]byte, pageSize)
		copy(page, c.pages[i])
		c.pages[i], c.owned[i] = page, true
	}
	return c.pages[i]
}

// grow makes the content at least size bytes.
func (c *content) grow(size int64) {
	if size <= c.size {
		return
	}
	c.size = size
	for int64(len(c.pages))*pageSize < size {
		c.pages, c.owned = append(c.pages, nil), append(c.owned, false)
	}
}

func (c *content) truncate(size int64) {
	if size >= c.size {
		c.grow(size)
		return
	}
	c.size = size
	n := int((size + pageSize - 1) / pageSize)
	c.pages, c.owned = c.pages[:n:n], c.owned[:n:n]
	if in := size % pageSize; in > 0 {
		clear(c.page(n - 1)[in:]) // growing again must find zeros here
	}
}

// memFile is an open file of Mem.
type memFile struct {
	fs     *Mem
	inode  *inode
	name   string
	flag   int
	offset int64
	closed bool
}

// fail is an error of this file, in the words of *os.File.
func (f *memFile) fail(op string, err error) error {
	return &fs.PathError{Op: op, Path: f.name, Err: err}
}

// check refuses a closed file, and access that the open flags do not allow.
// The caller holds the lock.
func (f *memFile) check(op string, write bool) error {
	access := f.flag & (os.O_RDONLY | os.O_WRONLY | os.O_RDWR)
	switch {
	case f.closed:
		return f.fail(op, fs.ErrClosed)
	case f.inode.mode.IsDir():
		return f.fail(op, syscall.EISDIR)
	case write && access == os.O_RDONLY, !write && access == os.O_WRONLY:
		return f.fail(op, syscall.EBADF)
	}
	return nil
}

func (f *memFile) Name() string { return f.name }

func (f *memFile) Read(b []byte) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.check("read", false); err != nil {
		return 0, err
	}
	n := f.inode.now.readAt(b, f.offset)
	f.offset += int64(n)
	if n == 0 && len(b) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (f *memFile) ReadAt(b []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.check("read", false); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, f.fail("readat", errors.New("negative offset"))
	}
	n := f.inode.now.readAt(b, off)
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) Write(b []byte) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.check("write", true); err != nil {
		return 0, err
	}
	if f.flag&os.O_APPEND != 0 {
		f.offset = f.inode.now.size
	}
	f.inode.now.writeAt(b, f.offset)
	f.inode.modTime = time.Now()
	f.offset += int64(len(b))
	return len(b), nil
}

func (f *memFile) WriteAt(b []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.check("write", true); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, f.fail("writeat", errors.New("negative offset"))
	}
	if f.flag&os.O_APPEND != 0 {
		return 0, errors.New("os: invalid use of WriteAt on file opened with O_APPEND")
	}
	f.inode.now.writeAt(b, off)
	f.inode.modTime = time.Now()
	return len(b), nil
}

func (f *memFile) Seek(offset int64, whence int) (int64, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.closed {
		return 0, f.fail("seek", fs.ErrClosed)
	}
	switch whence {
	case io.SeekCurrent:
		offset += f.offset
	case io.SeekEnd:
		offset += f.inode.now.size
	}
	if offset < 0 || whence < io.SeekStart || whence > io.SeekEnd {
		return 0, f.fail("seek", syscall.EINVAL)
	}
	f.offset = offset
	return offset, nil
}

func (f *memFile) Truncate(size int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.check("truncate", true); err != nil {
		return err
	}
	if size < 0 {
		return f.fail("truncate", syscall.EINVAL)
	}
	f.inode.now.truncate(size)
	f.inode.modTime = time.Now()
	return nil
}

// Sync makes the content durable; of a directory, its entries.
func (f *memFile) Sync() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.closed {
		return f.fail("sync", fs.ErrClosed)
	}
	if f.inode.mode.IsDir() {
		f.fs.syncDir(f.inode)
		return nil
	}
	f.inode.durable = f.inode.now.share()
	return nil
}

func (f *memFile) Stat() (fs.FileInfo, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.closed {
		return nil, f.fail("stat", fs.ErrClosed)
	}
	return f.inode.info(f.name), nil
}

func (f *memFile) Close() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.closed {
		return f.fail("close", fs.ErrClosed)
	}
	f.closed = true
	return nil
}
