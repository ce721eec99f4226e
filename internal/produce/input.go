package produce

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/gzip"
)

// Stdin is the name of standard input.
const Stdin = "-"

// Input is NDJSON to be produced: a file, a directory of files, or a stream
// that can be read only once. A file that is compressed with gzip is recognised
// by its first bytes; a last line without a newline is a row.
type Input struct {
	name  string
	files []inputFile
	live  *liveReader // of an input that cannot be read again
	// Ignored are the entries of a directory that are not called like NDJSON.
	Ignored []string
}

type inputFile struct {
	path string
	id   fileID
}

// OpenInput looks at what name says: a file, a directory (its files called
// *.ndjson, *.jsonl, *.json or *.gz, sorted by name, hidden ones left out), or
// Stdin, which is then read from stdin.
func OpenInput(name string, stdin io.Reader) (*Input, error) {
	if name == Stdin {
		return &Input{name: "standard input", live: newLiveReader(stdin)}, nil
	}
	in := &Input{name: name}
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("input: %w", err)
	}
	switch {
	case info.Mode().IsRegular():
		err = in.addFile(name)
	case info.IsDir():
		err = in.addDir(name)
	default: // a named pipe, a terminal
		f, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("input: %w", err)
		}
		in.live = newLiveReader(f)
		return in, nil
	}
	if err != nil {
		return nil, fmt.Errorf("input: %w", err)
	}
	return in, nil
}

func (in *Input) addDir(dir string) error {
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		info, err := os.Stat(path) // a link counts as what it leads to
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() || !calledNDJSON(e.Name()) {
			in.Ignored = append(in.Ignored, e.Name())
			continue
		}
		if err := in.addFile(path); err != nil {
			return err
		}
	}
	if len(in.files) == 0 {
		return fmt.Errorf("directory %s holds no file called *.ndjson, *.jsonl, *.json or *.gz", dir)
	}
	return nil
}

func calledNDJSON(name string) bool {
	switch filepath.Ext(name) {
	case ".ndjson", ".jsonl", ".json", ".gz":
		return true
	}
	return false
}

func (in *Input) addFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	head := make([]byte, headBytes)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%s: %w", path, err)
	}
	id := identify(filepath.Base(path), info.Size(), head[:n:n])
	in.files = append(in.files, inputFile{path: path, id: id})
	return nil
}

// String names the input for messages.
func (in *Input) String() string { return in.name }

// Live reports whether the input cannot be read again, so that its rows always
// follow what is there.
func (in *Input) Live() bool { return in.live != nil }

// SizeBytes is the size of the input's files, as they are, compressed or not;
// 0 if it is not known.
func (in *Input) SizeBytes() int64 {
	var n int64
	for _, f := range in.files {
		n += f.id.SizeBytes
	}
	return n
}

func (in *Input) ids() []fileID {
	ids := make([]fileID, len(in.files))
	for i, f := range in.files {
		ids[i] = f.id
	}
	return ids
}

// Close stops reading a live input. A read that the operating system does not
// end (a terminal's) goes on until the process ends; nobody waits for it.
func (in *Input) Close() error {
	if in.live != nil {
		in.live.stop()
	}
	return nil
}

// sampleBytes bounds a sample: a few large rows are enough, too.
const sampleBytes = 4 << 20

// Sample returns up to rows of the first rows, to infer columns from. Of a live
// input it waits for the first row, and then takes what comes without a pause;
// Run yields those rows as well.
func (in *Input) Sample(ctx context.Context, rows int) ([][]byte, error) {
	if in.live != nil {
		return in.sampleLive(ctx, rows)
	}
	var sample [][]byte
	size := 0
	for _, f := range in.files {
		src, err := f.open()
		if err != nil {
			return nil, err
		}
		for size < sampleBytes && len(sample) < rows {
			row, err := src.wholeRow(sampleBytes - size)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, errors.Join(fmt.Errorf("%s: %w", f.path, err), src.Close())
			}
			if row == nil {
				break // too large for a sample
			}
			sample = append(sample, row)
			size += len(row)
		}
		if err := src.Close(); err != nil {
			return nil, fmt.Errorf("%s: %w", f.path, err)
		}
	}
	return sample, nil
}

func (in *Input) sampleLive(ctx context.Context, rows int) ([][]byte, error) {
	text, err := in.live.peek(ctx, rows, sampleBytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", in.name, err)
	}
	src, err := newSource(bytes.NewReader(text), false)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", in.name, err)
	}
	var sample [][]byte
	for len(sample) < rows {
		row, err := src.wholeRow(sampleBytes)
		if err != nil || row == nil {
			break // the end of what is there, perhaps in mid-row or mid-member
		}
		sample = append(sample, row)
	}
	return sample, nil
}

// source yields the lines of one file or live input.
type source struct {
	file  io.Closer
	zip   *gzip.Reader
	lines *bufio.Reader
	mid   bool // in the middle of a row

	// read counts the bytes taken from the file, before decompression.
	read *countingReader
}

func (f inputFile) open() (*source, error) {
	file, err := os.Open(f.path)
	if err != nil {
		return nil, fmt.Errorf("input: %w", err)
	}
	src, err := newSource(file, filepath.Ext(f.path) == ".gz")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("input: %s: %w", f.path, err), file.Close())
	}
	src.file = file
	return src, nil
}

// partBytes is the largest part of a row that is handled at once.
const partBytes = 1 << 20

func newSource(r io.Reader, mustBeZip bool) (*source, error) {
	s := &source{read: &countingReader{r: r}}
	raw := bufio.NewReaderSize(s.read, 64<<10)
	magic, _ := raw.Peek(2)
	if !mustBeZip && !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		s.lines = bufio.NewReaderSize(raw, partBytes)
		return s, nil
	}
	zip, err := gzip.NewReader(raw)
	if errors.Is(err, io.EOF) {
		s.lines = bufio.NewReader(raw) // an empty file has no rows, whatever it is called
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("not gzip: %w", err)
	}
	s.zip = zip
	s.lines = bufio.NewReaderSize(zip, partBytes)
	return s, nil
}

// next returns the next part of a row, without the newline, valid until the next
// call; last is set on a row's last part. io.EOF comes after the last row.
func (s *source) next() (part []byte, last bool, err error) {
	part, err = s.lines.ReadSlice('\n')
	switch {
	case err == nil:
		s.mid = false
		return part[:len(part)-1], true, nil
	case errors.Is(err, bufio.ErrBufferFull):
		s.mid = true
		return part, false, nil
	case errors.Is(err, io.EOF) && (s.mid || len(part) > 0):
		s.mid = false
		return part, true, nil
	default:
		return nil, false, err
	}
}

// wholeRow returns the next row in memory of its own, or nil if it has more
// than most bytes.
func (s *source) wholeRow(most int) ([]byte, error) {
	row := []byte{}
	for {
		part, last, err := s.next()
		if err != nil {
			return nil, err
		}
		if len(row)+len(part) > most {
			return nil, nil
		}
		row = append(row, part...)
		if last {
			return row, nil
		}
	}
}

func (s *source) Close() error {
	var errs []error
	if s.zip != nil {
		errs = append(errs, s.zip.Close())
	}
	if s.file != nil {
		errs = append(errs, s.file.Close())
	}
	return errors.Join(errs...)
}

type countingReader struct {
	r io.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}
