package metalog

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"path"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
)

// The log is several files, each named by the offset of its first batch, so that
// trimming is removing files. Each begins with a header that says what the batch
// before it was: a log whose beginning is trimmed still knows the epoch and term it
// continues.
const (
	logFileSuffix  = ".log"
	tmpSuffix      = ".tmp"     // of vfs.WriteFile, while a file is made
	deletedSuffix  = ".deleted" // a file while it is removed
	logFileVersion = 1
	logHeaderSize  = 48
)

var logFileMagic = [8]byte{'s', 'h', 'o', 'a', 'l', 'l', 'o', 'g'}

// logFile is what is kept in memory of one file: where its frames begin.
type logFile struct {
	name  string   // below the FS
	start Position // of its first batch
	pos   []int64  // byte position of each frame
	size  int64    // bytes that are good and synced
}

func (f *logFile) end() int64 { return f.start.Offset + int64(len(f.pos)) }

func logFileName(dir string, base int64) string {
	return path.Join(dir, fmt.Sprintf("%020d%s", base, logFileSuffix))
}

// parseLogFileName returns the base offset in a file name, without directory.
func parseLogFileName(name string) (base int64, ok bool) {
	digits, ok := strings.CutSuffix(name, logFileSuffix)
	if !ok || len(digits) != 20 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	return int64(n), err == nil
}

// createLogFile publishes an empty file for the batches after start.
// After an error there may be a file, without a batch in it.
func createLogFile(fs vfs.FS, dir string, start Position) (*logFile, error) {
	name := logFileName(dir, start.Offset)
	if err := vfs.WriteFile(fs, name, encodeLogHeader(start)); err != nil {
		return nil, fmt.Errorf("metalog: new log file: %w", err)
	}
	return &logFile{name: name, start: start, size: logHeaderSize}, nil
}

func encodeLogHeader(start Position) []byte {
	h := make([]byte, 0, logHeaderSize)
	h = append(h, logFileMagic[:]...)
	h = binary.LittleEndian.AppendUint32(h, logFileVersion)
	h = binary.LittleEndian.AppendUint64(h, uint64(start.Offset))
	h = binary.LittleEndian.AppendUint64(h, uint64(start.LastEpoch))
	h = append(h, start.LastTerm[:]...)
	return binary.LittleEndian.AppendUint32(h, crc32.Checksum(h, castagnoli))
}

// decodeLogHeader is the inverse of encodeLogHeader. The header was durable before
// the file had its name, so whatever is wrong with it is damage.
func decodeLogHeader(name string, b []byte) (Position, error) {
	damaged := func(at int64, reason string) (Position, error) {
		return Position{}, &CorruptionError{File: name, Offset: at, Reason: reason}
	}
	if len(b) < logHeaderSize {
		return damaged(int64(len(b)), "the file ends inside its header")
	}
	if !bytes.Equal(b[:8], logFileMagic[:]) {
		return damaged(0, "it does not begin as a log file does")
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v > logFileVersion {
		return Position{}, &FormatError{File: name, Version: v, Known: logFileVersion}
	}
	if crc32.Checksum(b[:44], castagnoli) != binary.LittleEndian.Uint32(b[44:]) {
		return damaged(0, "header checksum does not match")
	}
	return Position{
		Offset:    int64(binary.LittleEndian.Uint64(b[12:])),
		LastEpoch: int64(binary.LittleEndian.Uint64(b[20:])),
		LastTerm:  uuid.UUID(b[28:44]),
	}, nil
}

// scanned is what reading one file through gives.
type scanned struct {
	file   *logFile
	end    Position   // after its last good batch
	epochs []EpochEnd // of its batches
	torn   int64      // bytes after the last good frame, to be cut off
}

// scanMax is how many files are scanned at a time, each in memory.
const scanMax = 4

// scanLogFiles scans the files of a log, which are in order. How they fit together is the
// caller's to check.
func scanLogFiles(fs vfs.FS, dir string, bases []int64) ([]*scanned, []error) {
	scans, errs := make([]*scanned, len(bases)), make([]error, len(bases))
	var next atomic.Int64
	var work sync.WaitGroup
	for range min(len(bases), scanMax, runtime.GOMAXPROCS(0)) {
		work.Go(func() {
			var buf []byte
			for i := next.Add(1) - 1; i < int64(len(bases)); i = next.Add(1) - 1 {
				scans[i], errs[i] = scanLogFile(fs, logFileName(dir, bases[i]), i == int64(len(bases)-1), &buf)
			}
		})
	}
	work.Wait()
	return scans, errs
}

// scanLogFile reads a file and checks every frame and that each batch continues the
// one before. Only the last file of a log may have a torn tail. What the batches do is
// left to whoever applies them: most lie before a snapshot, and nobody does. buf is memory
// that one call leaves for the next.
func scanLogFile(fs vfs.FS, name string, last bool, buf *[]byte) (*scanned, error) {
	data, err := vfs.ReadFileInto(*buf, fs, name, math.MaxInt64)
	if err != nil {
		return nil, fmt.Errorf("metalog: %w", err)
	}
	*buf = data
	start, err := decodeLogHeader(name, data)
	if err != nil {
		return nil, err
	}
	s := &scanned{file: &logFile{name: name, start: start}, end: start}
	at := logHeaderSize
	for at < len(data) {
		payload, rest, err := NextFrame(data[at:])
		if err != nil {
			if last && tornTail(data, at) {
				s.torn = int64(len(data) - at)
				break
			}
			return nil, &CorruptionError{File: name, Offset: int64(at), Reason: "bad frame", Err: err}
		}
		b, err := meta.DecodeBatchHead(payload)
		if err != nil {
			return nil, &CorruptionError{File: name, Offset: int64(at), Reason: "the frame is whole, its batch is not", Err: err}
		}
		if err := continues(s.end, b); err != nil {
			return nil, &CorruptionError{File: name, Offset: int64(at), Reason: "the batch does not continue the log", Err: err}
		}
		s.file.pos = append(s.file.pos, int64(at))
		s.end = after(b)
		s.epochs = extendEpochs(s.epochs, s.end)
		at = len(data) - len(rest)
	}
	s.file.size = int64(at)
	return s, nil
}

// after is the position of the log once b is its last batch.
func after(b *meta.Batch) Position {
	return Position{Offset: b.Offset + 1, LastEpoch: b.Epoch, LastTerm: b.Term}
}

// continues checks that b may follow a log that ends at p: the next offset, an epoch
// that does not go back, one term per epoch.
func continues(p Position, b *meta.Batch) error {
	switch {
	case b.Offset != p.Offset:
		return fmt.Errorf("offset %d where %d comes next", b.Offset, p.Offset)
	case b.Epoch < p.LastEpoch || b.Epoch <= 0:
		return fmt.Errorf("epoch %d after epoch %d", b.Epoch, p.LastEpoch)
	case b.Epoch == p.LastEpoch && b.Term != p.LastTerm:
		return fmt.Errorf("two terms in epoch %d: %s and %s", b.Epoch, p.LastTerm, b.Term)
	case b.Term == uuid.Nil:
		return fmt.Errorf("batch %d has no term", b.Offset)
	}
	return nil
}

// extendEpochs takes into epochs that the log now ends at p.
func extendEpochs(epochs []EpochEnd, p Position) []EpochEnd {
	if n := len(epochs); n > 0 && epochs[n-1].Epoch == p.LastEpoch {
		epochs[n-1].End = p.Offset
		return epochs
	}
	return append(epochs, EpochEnd{Epoch: p.LastEpoch, Term: p.LastTerm, End: p.Offset})
}
