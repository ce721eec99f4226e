package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/google/uuid"
)

// IDFile is the file beside the partition files that holds the stream's epoch,
// a UUID. The producer makes it, before the first partition file.
const IDFile = "stream.id"

// NoEpoch is the epoch of a stream without an IDFile.
const NoEpoch = "0"

const (
	filePrefix = "partition-"
	fileSuffix = ".ndjson"
	fileDigits = 5
)

// FileName is the name of a partition's file, "partition-00007.ndjson".
func FileName(partition int32) string {
	return fmt.Sprintf("%s%0*d%s", filePrefix, fileDigits, partition, fileSuffix)
}

// ParseFileName reads what FileName wrote; ok is false for any other name.
func ParseFileName(name string) (partition int32, ok bool) {
	digits, found := strings.CutPrefix(name, filePrefix)
	if !found {
		return 0, false
	}
	digits, found = strings.CutSuffix(digits, fileSuffix)
	if !found || len(digits) != fileDigits {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 31)
	return int32(n), err == nil
}

// Files is a stream kept as a directory of append-only files:
// <root>/<path>/partition-<5 digits>.ndjson. The offset of a row is its line,
// counted from 0, and a line counts once its newline is there. The value is the
// line without the newline and otherwise as it is: a carriage return before the
// newline stays (JSON takes it for white space), and an empty line is a row with
// an empty value. Rows have no key, no timestamp and no headers.
//
// Nothing outside root is ever opened, whatever path and symbolic links say.
type Files struct {
	root *os.Root
	path string // of the stream, local, below root

	mu sync.Mutex
	// indexes keeps alive what Partitions learnt, for the next call.
	indexes map[int32]*index
}

var _ Source = (*Files)(nil)

// OpenFiles returns the stream at path below the directory root. The stream
// need not be there yet, the root must.
func OpenFiles(root, path string) (*Files, error) {
	local, err := filepath.Localize(path)
	if err != nil {
		return nil, fmt.Errorf("stream: path %q is no path of plain names below the stream root %s", path, root)
	}
	abs, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("stream: root %s: %w", root, err)
	}
	r, err := os.OpenRoot(abs)
	if err != nil {
		return nil, fmt.Errorf("stream: root: %w: %w", ErrNoStream, err)
	}
	return &Files{root: r, path: local, indexes: make(map[int32]*index)}, nil
}

// Close releases the root. Readers that are open stay usable, except that they
// fail when they next look whether their file was replaced; close them first.
func (s *Files) Close() error { return s.root.Close() }

// Dir is the stream's directory, for messages.
func (s *Files) Dir() string { return filepath.Join(s.root.Name(), s.path) }

// Partitions implements Source. It costs a stat for each file that did not grow
// since it was last looked at by anyone in the process, and else a count of the
// newlines in the part that is new.
func (s *Files) Partitions(ctx context.Context) ([]Partition, error) {
	epoch, err := s.epoch()
	if err != nil {
		return nil, err
	}
	numbers, err := s.list()
	if err != nil {
		return nil, err
	}
	parts := make([]Partition, 0, len(numbers))
	for _, n := range numbers {
		end, err := s.end(ctx, n)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since it was listed
		}
		if err != nil {
			return nil, err
		}
		parts = append(parts, Partition{Partition: n, End: end, Epoch: epoch})
	}
	return parts, nil
}

// Open implements Source.
func (s *Files) Open(ctx context.Context, partition int32, offset int64) (Reader, error) {
	if offset < 0 {
		return nil, fmt.Errorf("stream: %s: negative offset %d", s.file(partition), offset)
	}
	epoch, err := s.epoch()
	if err != nil {
		return nil, err
	}
	f, err := s.openFile(partition)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("stream: partition %d: %w: %s", partition, ErrNoStream, s.file(partition))
	}
	if err != nil {
		return nil, err
	}
	x, at, err := s.seek(ctx, f, partition, offset)
	if err != nil {
		f.Close()
		return nil, err
	}
	return newTail(s, partition, epoch, f, x, at), nil
}

func (s *Files) seek(ctx context.Context, f *os.File, partition int32, offset int64) (*index, point, error) {
	x, _, err := sharedIndex(s.file(partition), f.Stat)
	if err != nil {
		return nil, point{}, fmt.Errorf("stream: %s: %w", s.file(partition), err)
	}
	at, err := x.seek(ctx, f, offset)
	if err != nil {
		return nil, point{}, fmt.Errorf("stream: %s: seeking line %d: %w", s.file(partition), offset, err)
	}
	if at.line < offset {
		return nil, point{}, &TruncatedError{File: s.file(partition), Lines: at.line, Offset: offset}
	}
	return x, at, nil
}

// end counts the complete lines of a partition's file.
func (s *Files) end(ctx context.Context, partition int32) (int64, error) {
	x, info, err := sharedIndex(s.file(partition), func() (fs.FileInfo, error) { return s.stat(partition) })
	if err != nil {
		return 0, err
	}
	s.keep(partition, x)
	if end := x.known(); end.byte == info.Size() {
		return end.line, nil
	}
	f, err := s.openFile(partition)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if x, info, err = sharedIndex(s.file(partition), f.Stat); err != nil {
		return 0, fmt.Errorf("stream: %s: %w", s.file(partition), err)
	}
	s.keep(partition, x)
	end, err := x.extend(ctx, f, info.Size(), info.Size())
	if err != nil {
		return 0, fmt.Errorf("stream: %s: counting lines: %w", s.file(partition), err)
	}
	return end.line, nil
}

func (s *Files) keep(partition int32, x *index) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.indexes[partition] = x
}

// list returns the numbers of the partition files, sorted.
func (s *Files) list() ([]int32, error) {
	dir, err := s.root.Open(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("stream: %w: directory %s does not exist", ErrNoStream, s.Dir())
	}
	if err != nil {
		return nil, fmt.Errorf("stream: %s: %w", s.Dir(), err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("stream: %s: %w", s.Dir(), err)
	}
	var numbers []int32
	for _, name := range names {
		if n, ok := ParseFileName(name); ok {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// epoch reads the stream's epoch.
func (s *Files) epoch() (string, error) {
	name := filepath.Join(s.Dir(), IDFile)
	f, err := s.root.Open(filepath.Join(s.path, IDFile))
	if errors.Is(err, fs.ErrNotExist) {
		return NoEpoch, nil
	}
	if err != nil {
		return "", fmt.Errorf("stream: %s: %w", name, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 256))
	if err != nil {
		return "", fmt.Errorf("stream: %s: %w", name, err)
	}
	id, err := uuid.ParseBytes(bytes.TrimSpace(text))
	if err != nil {
		return "", fmt.Errorf("stream: %s does not hold a UUID: %w", name, err)
	}
	return id.String(), nil
}

// stat looks at a partition's file by name, and refuses what is no plain file:
// opening a named pipe, say, would wait for a writer.
func (s *Files) stat(partition int32) (fs.FileInfo, error) {
	info, err := s.root.Stat(s.local(partition))
	if err != nil {
		return nil, fmt.Errorf("stream: %s: %w", s.file(partition), err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("stream: %s is not a regular file (%s)", s.file(partition), info.Mode().Type())
	}
	return info, nil
}

func (s *Files) openFile(partition int32) (*os.File, error) {
	if _, err := s.stat(partition); err != nil {
		return nil, err
	}
	f, err := s.root.Open(s.local(partition))
	if err != nil {
		return nil, fmt.Errorf("stream: %s: %w", s.file(partition), err)
	}
	return f, nil
}

// local is a partition's file below the root, file the same for messages.
func (s *Files) local(partition int32) string { return filepath.Join(s.path, FileName(partition)) }
func (s *Files) file(partition int32) string  { return filepath.Join(s.Dir(), FileName(partition)) }
