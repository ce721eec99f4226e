package stream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"sort"
	"sync"
	"weak"
)

// scanBytes is how much of a file is looked at in one go when lines are
// counted. It is also the distance of the index's points: a seek reads at most
// about that much, and a file of 10 GiB needs 640 KiB of index.
const scanBytes = 256 << 10

// point is a place where a line begins.
type point struct {
	line int64
	byte int64
}

// index knows where some of the lines of one file begin, and how many complete
// lines there are. All it holds are facts about bytes that do not change, found
// by whoever needed them first: it grows as the file is counted, is never
// written down, and is shared by all readers of a file in the process.
//
// What follows the last newline (a torn line, or one being written) is no fact:
// the producer may cut it off and write another. It is looked at again each
// time.
type index struct {
	file fs.FileInfo // which file this is about; for os.SameFile only

	// scanning is held while one chunk is read and counted, so that readers
	// that start together share the work instead of each doing it. It covers
	// one pread of scanBytes and never nests with anything but mu.
	scanning sync.Mutex

	mu     sync.Mutex
	points []point // sorted, the first is the file's beginning
	end    point   // after the last newline known
}

func newIndex(file fs.FileInfo) *index {
	return &index{file: file, points: []point{{}}}
}

// known returns the end of the complete lines counted so far.
func (x *index) known() point {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.end
}

// before returns the last point at or before a line.
func (x *index) before(line int64) point {
	x.mu.Lock()
	defer x.mu.Unlock()
	i := sort.Search(len(x.points), func(i int) bool { return x.points[i].line > line })
	return x.points[i-1]
}

func (x *index) advance(end point) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if end.byte <= x.end.byte {
		return
	}
	x.end = end
	if end.byte-x.points[len(x.points)-1].byte >= scanBytes {
		x.points = append(x.points, end)
	}
}

// extend counts lines until the known end is at byte upTo or further, or the
// file, of size bytes, has no more complete line. It returns the end.
func (x *index) extend(ctx context.Context, r io.ReaderAt, size, upTo int64) (point, error) {
	buf := scanBuffers.Get().(*[scanBytes]byte)
	defer scanBuffers.Put(buf)
	end := x.known()
	for at := end.byte; at < size && end.byte < upTo; {
		if err := ctx.Err(); err != nil {
			return end, err
		}
		next, err := x.scan(r, buf[:], &end, at, size)
		if err != nil {
			return end, err
		}
		if next == at {
			break // shorter than it was: for the caller to notice
		}
		at = next
	}
	return end, nil
}

// scan counts the lines of the chunk at byte at, or skips what others have
// counted meanwhile. It returns where to go on, and moves end.
func (x *index) scan(r io.ReaderAt, buf []byte, end *point, at, size int64) (int64, error) {
	x.scanning.Lock()
	defer x.scanning.Unlock()
	if known := x.known(); known.byte > at {
		*end = known
		return known.byte, nil
	}
	n, err := readAt(r, buf[:min(int64(len(buf)), size-at)], at)
	if err != nil {
		return at, err
	}
	chunk := buf[:n]
	if last := bytes.LastIndexByte(chunk, '\n'); last >= 0 {
		*end = point{
			line: end.line + int64(bytes.Count(chunk[:last+1], newline)),
			byte: at + int64(last) + 1,
		}
		x.advance(*end)
	}
	return at + int64(n), nil
}

// seek finds where a line begins. If the file has fewer lines it returns the
// end of the last.
func (x *index) seek(ctx context.Context, f *os.File, line int64) (point, error) {
	info, err := f.Stat()
	if err != nil {
		return point{}, err
	}
	end := x.known()
	for end.line < line {
		was := end
		if end, err = x.extend(ctx, f, info.Size(), was.byte+scanBytes); err != nil {
			return point{}, err
		}
		if end == was {
			break
		}
	}
	if end.line <= line {
		return end, nil
	}
	return skipLines(ctx, f, x.before(line), line)
}

// skipLines goes on from a point to the beginning of a line that is known to
// exist.
func skipLines(ctx context.Context, r io.ReaderAt, at point, line int64) (point, error) {
	buf := scanBuffers.Get().(*[scanBytes]byte)
	defer scanBuffers.Put(buf)
	for read := at.byte; at.line < line; {
		if err := ctx.Err(); err != nil {
			return at, err
		}
		n, err := readAt(r, buf[:], read)
		if err != nil {
			return at, err
		}
		if n == 0 {
			return at, nil // shorter than it was: fewer lines
		}
		for i := 0; at.line < line; {
			nl := bytes.IndexByte(buf[i:n], '\n')
			if nl < 0 {
				break
			}
			i += nl + 1
			at = point{line: at.line + 1, byte: read + int64(i)}
		}
		read += int64(n)
	}
	return at, nil
}

// CountLines counts the complete lines of the first size bytes of r, and says
// where the last of them ends: what follows is a torn line.
func CountLines(ctx context.Context, r io.ReaderAt, size int64) (lines, end int64, err error) {
	at, err := newIndex(nil).extend(ctx, r, size, size)
	return at.line, at.byte, err
}

// readAt is ReadAt without the error for having met the end.
func readAt(r io.ReaderAt, p []byte, at int64) (int, error) {
	n, err := r.ReadAt(p, at)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

var newline = []byte{'\n'}

var scanBuffers = sync.Pool{New: func() any { return new([scanBytes]byte) }}

// indexes are those in use in this process, by file path. Being global is what
// makes them shared: the nodes of one process open their streams separately,
// and each has an index only as long as somebody holds it.
var indexes = struct {
	sync.Mutex
	byPath map[string]weak.Pointer[index]
}{byPath: make(map[string]weak.Pointer[index])}

// sharedIndex returns the index of the file at path that stat describes; a new
// one if there is none, or if the one there is about a file that was replaced
// or cut short since. stat must look at the file when it is called: a size
// taken before another reader counted on would look like a truncation.
func sharedIndex(path string, stat func() (fs.FileInfo, error)) (*index, fs.FileInfo, error) {
	indexes.Lock()
	old := indexes.byPath[path].Value()
	indexes.Unlock()
	var end point
	if old != nil {
		end = old.known()
	}
	info, err := stat()
	if err != nil {
		return nil, nil, err
	}
	if old != nil && os.SameFile(old.file, info) && info.Size() >= end.byte {
		return old, info, nil
	}
	x := newIndex(info)
	indexes.Lock()
	defer indexes.Unlock()
	for p, w := range indexes.byPath {
		if w.Value() == nil {
			delete(indexes.byPath, p)
		}
	}
	indexes.byPath[path] = weak.Make(x)
	return x, info, nil
}

// forgetIndex stops x from being shared: its file was written anew in place, so
// what it says of lines is about bytes that are gone.
func forgetIndex(path string, x *index) {
	indexes.Lock()
	defer indexes.Unlock()
	if indexes.byPath[path].Value() == x {
		delete(indexes.byPath, path)
	}
}
