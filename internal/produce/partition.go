package produce

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/stream"
)

const openFlags = os.O_RDWR | os.O_CREATE

// bufferBytes is what a partition gathers before it is written to its file.
const bufferBytes = 256 << 10

// mark is a place at the end of a line.
type mark struct {
	Lines int64 `json:"lines"`
	Bytes int64 `json:"bytes"`
}

// partition appends rows to one file. A row comes in parts, so that its size
// does not matter.
type partition struct {
	file    vfs.File
	name    string
	end     mark   // after the last complete row, buffered or written
	buf     []byte // what comes after written
	written int64  // bytes of the file
	dirty   bool   // the file has bytes that no sync covers
	broken  error  // a failed sync, which asking again would only hide

	// The replay of an input: rows that are in the file already.
	skip   int64
	replay *bufio.Reader
}

// openPartition opens or makes a partition's file, and cuts a torn last line.
func openPartition(fsys vfs.FS, name string) (*partition, error) {
	f, err := fsys.OpenFile(name, openFlags, 0o644)
	if err != nil {
		return nil, err
	}
	part, err := newPartition(f, path.Join(fsys.String(), name))
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return part, nil
}

func newPartition(f vfs.File, name string) (*partition, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	// What is there may never have been synced; the first sync settles it.
	p := &partition{file: f, name: name, written: info.Size(), dirty: true}
	return p, p.cut(info.Size())
}

// cut drops what follows the last newline in the first size bytes.
func (p *partition) cut(size int64) (err error) {
	p.end.Lines, p.end.Bytes, err = stream.CountLines(context.Background(), p.file, size)
	if err != nil {
		return fmt.Errorf("%s: counting lines: %w", p.name, err)
	}
	if p.end.Bytes < p.written {
		if err := p.file.Truncate(p.end.Bytes); err != nil {
			return fmt.Errorf("%s: cutting a torn line: %w", p.name, err)
		}
		p.written = p.end.Bytes
	}
	return nil
}

// cutAtZero cuts the line that has the first zero byte at or after from, and
// all that follow it.
func (p *partition) cutAtZero(from int64) error {
	buf := make([]byte, bufferBytes)
	for at := from; at < p.written; {
		n, err := p.file.ReadAt(buf[:min(bufferBytes, p.written-at)], at)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		if i := bytes.IndexByte(buf[:n], 0); i >= 0 {
			return p.cut(at + int64(i))
		}
		if n == 0 {
			return nil
		}
		at += int64(n)
	}
	return nil
}

// resume makes the next rows up to the file's end, counted from base, be
// compared with the file instead of being written.
func (p *partition) resume(base mark) error {
	p.skip, p.replay = 0, nil
	if p.end.Lines < base.Lines || p.end.Bytes < base.Bytes {
		return fmt.Errorf("%s has %d lines, of which %d were there before this input: it lost rows", p.name, p.end.Lines, base.Lines)
	}
	if p.skip = p.end.Lines - base.Lines; p.skip > 0 {
		p.replay = bufio.NewReaderSize(io.NewSectionReader(p.file, base.Bytes, p.end.Bytes-base.Bytes), bufferBytes)
	}
	return nil
}

// put takes a part of a row, the last with last set.
func (p *partition) put(part []byte, last bool) error {
	if p.skip > 0 {
		return p.compare(part, last)
	}
	if err := p.write(part); err != nil || !last {
		return err
	}
	if err := p.write(newline); err != nil {
		return err
	}
	p.end = mark{Lines: p.end.Lines + 1, Bytes: p.written + int64(len(p.buf))}
	return nil
}

func (p *partition) write(b []byte) error {
	if len(p.buf)+len(b) > bufferBytes {
		if err := p.flush(); err != nil {
			return err
		}
	}
	p.buf = append(p.buf, b...)
	return nil
}

// flush writes the buffer to the file. After an error the buffer is kept, and
// the next flush writes it to the same place.
func (p *partition) flush() error {
	if len(p.buf) == 0 {
		return nil
	}
	p.dirty = true
	if _, err := p.file.WriteAt(p.buf, p.written); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	p.written += int64(len(p.buf))
	if cap(p.buf) > 2*bufferBytes {
		p.buf = nil
	}
	p.buf = p.buf[:0]
	return nil
}

// abandon takes back the parts of a row whose last part does not come.
func (p *partition) abandon() error {
	if p.written <= p.end.Bytes {
		p.buf = p.buf[:p.end.Bytes-p.written]
		return nil
	}
	p.buf = p.buf[:0]
	if err := p.file.Truncate(p.end.Bytes); err != nil {
		return fmt.Errorf("%s: taking back half a row: %w", p.name, err)
	}
	p.written = p.end.Bytes
	return nil
}

func (p *partition) sync() error {
	if p.broken != nil {
		return p.broken
	}
	if err := p.flush(); err != nil {
		return err
	}
	if !p.dirty {
		return nil
	}
	if p.broken = vfs.Sync(p.file); p.broken != nil {
		return p.broken
	}
	p.dirty = false
	return nil
}

// compare reads a part of a row from the file and refuses if it is another.
func (p *partition) compare(part []byte, last bool) error {
	for len(part) > 0 {
		have, err := p.replay.Peek(min(len(part), bufferBytes))
		if len(have) == 0 || !bytes.HasPrefix(part, have) {
			return p.mismatch(err)
		}
		part = part[len(have):]
		p.replay.Discard(len(have))
	}
	if !last {
		return nil
	}
	if c, err := p.replay.ReadByte(); c != '\n' {
		return p.mismatch(err)
	}
	p.skip--
	return nil
}

func (p *partition) mismatch(err error) error {
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: reading back: %w", p.name, err)
	}
	return &MismatchError{File: p.name, Line: p.end.Lines - p.skip}
}

// MismatchError says that a row that should be in a partition's file already is
// another there: the input changed since, or the file was damaged.
type MismatchError struct {
	File string
	// Line counts from 0.
	Line int64
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("line %d (from 0) of %s is not the row that the input has in that place: the input or the file changed since it was written", e.Line, e.File)
}

var newline = []byte{'\n'}
