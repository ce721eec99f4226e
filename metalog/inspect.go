package metalog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
)

// What follows, here and in inspectimage.go and verify.go, reads a data directory that is
// somebody else's: for the operator's commands. Nothing is changed and no lock is taken,
// so a process may have the directory open and go on writing to it.

// ErrLogChanged says that the log was trimmed, cut back or begun anew while it was being
// read. Reading it again from its start gives an answer.
var ErrLogChanged = errors.New("metalog: the log was changed while it was being read")

// After is the position of a log whose last batch is b.
func After(b *meta.Batch) Position { return after(b) }

// Precedes returns an error unless b may follow a log that ends at p.
func (p Position) Precedes(b *meta.Batch) error { return continues(p, b) }

// LoggedBatch is a batch and where its frame lies.
type LoggedBatch struct {
	Entry
	File string // below the FS
	At   int64  // byte position in File
}

// LogReader reads the batches of a log from its files, in order, and checks all that
// OpenLog checks. It is used by one goroutine and holds one file in memory.
type LogReader struct {
	fs  vfs.FS
	dir string

	file logFileRef // the one that is read; of no name before the first
	data []byte     // of it, as far as it was read
	pos  int        // of the next frame in data
	at   Position   // where the next batch belongs
	any  bool       // what comes next is not held to at: damage came before it
}

// logFileRef is a file of the log, known by its name only.
type logFileRef struct {
	base int64
	name string // below the FS
}

// OpenLogReader returns a reader of the log in dir from an offset on, LSO and LEO
// included. An offset outside is an *OutOfRangeError. A directory that is not there, or
// has no log in it, is a log without a batch.
func OpenLogReader(fsys vfs.FS, dir string, from int64) (*LogReader, error) {
	r := &LogReader{fs: fsys, dir: dir}
	files, err := listLog(fsys, dir)
	if err != nil {
		return nil, err
	}
	i := len(files) - 1
	for i > 0 && files[i].base > from {
		i--
	}
	switch {
	case i < 0 && from == 0:
		return r, nil
	case i < 0:
		return nil, &OutOfRangeError{Offset: from}
	}
	if err := r.open(files[i]); err != nil {
		return nil, err
	}
	for r.at.Offset < from && err == nil {
		_, err = r.Next()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if r.at.Offset == from {
		return r, nil
	}
	end := r.at.Offset
	if end > from {
		if end, err = logEnd(fsys, dir); err != nil {
			return nil, err
		}
	}
	return nil, &OutOfRangeError{Offset: from, Start: files[0].base, End: end}
}

// LogBounds returns LSO and LEO of the log in dir, reading its last file only.
func LogBounds(fsys vfs.FS, dir string) (start, end int64, err error) {
	files, err := listLog(fsys, dir)
	if err != nil || len(files) == 0 {
		return 0, 0, err
	}
	end, err = logEnd(fsys, dir)
	return files[0].base, end, err
}

func logEnd(fsys vfs.FS, dir string) (int64, error) {
	end, err := logEndPosition(fsys, dir)
	return end.Offset, err
}

// logEndPosition is where the log in dir ends.
func logEndPosition(fsys vfs.FS, dir string) (Position, error) {
	files, err := listLog(fsys, dir)
	if err != nil || len(files) == 0 {
		return Position{}, err
	}
	r := &LogReader{fs: fsys, dir: dir}
	if err := r.open(files[len(files)-1]); err != nil {
		return Position{}, err
	}
	for err == nil {
		_, err = r.Next()
	}
	if !errors.Is(err, io.EOF) {
		return Position{}, err
	}
	return r.at, nil
}

// listLog lists the files of the log in order, as OpenLog would have them: of a log that
// is being begun anew there is the new one only.
func listLog(fsys vfs.FS, dir string) (files []logFileRef, err error) {
	entries, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("metalog: %w", err)
	}
	var anew []logFileRef
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		plain, reset := strings.CutSuffix(e.Name(), resetSuffix)
		base, ours := parseLogFileName(plain)
		if !ours {
			continue
		}
		if err := notAFile(name, e); err != nil {
			return nil, err
		}
		if reset {
			anew = append(anew, logFileRef{base, name})
		} else {
			files = append(files, logFileRef{base, name})
		}
	}
	switch len(anew) {
	case 0:
		slices.SortFunc(files, func(a, b logFileRef) int { return strings.Compare(a.name, b.name) })
		return files, nil
	case 1:
		return anew, nil
	}
	return nil, &CorruptionError{File: anew[1].name, Reason: "a log begins anew at one position, and " + anew[0].name + " names another"}
}

// Position is where the next batch belongs: what is before it was read, or is before what
// the reader began with.
func (r *LogReader) Position() Position { return r.at }

// Torn says what is left at the end of the log, once Next has returned io.EOF: so many
// bytes of a frame that is not whole, none if size is 0. Where a process has the log open
// it is being written; where none has, an append was cut short and OpenLog cuts it off.
func (r *LogReader) Torn() (file string, at, size int64) {
	return r.file.name, int64(r.pos), int64(len(r.data) - r.pos)
}

// Next returns the next batch, io.EOF at the end of what is there. It may be called again
// then: more may have been appended. Damage is a *CorruptionError.
func (r *LogReader) Next() (LoggedBatch, error) {
	for {
		if r.pos < len(r.data) {
			b, err := r.frame()
			if err == nil || !errors.Is(err, ErrFrameShort) {
				return b, err
			}
		}
		more, err := r.readOn()
		if err != nil {
			return LoggedBatch{}, err
		}
		if !more {
			return LoggedBatch{}, io.EOF
		}
	}
}

// frame takes the frame at pos. It is ErrFrameShort if that may be one that is not whole
// yet.
func (r *LogReader) frame() (LoggedBatch, error) {
	payload, rest, err := NextFrame(r.data[r.pos:])
	if err != nil {
		if tornTail(r.data, r.pos) {
			return LoggedBatch{}, ErrFrameShort
		}
		return LoggedBatch{}, r.damaged("bad frame", err)
	}
	b, err := meta.DecodeBatch(payload)
	if err != nil {
		return LoggedBatch{}, r.damaged("the frame is whole, its batch is not", err)
	}
	if !r.any {
		err = continues(r.at, b)
	}
	if err != nil {
		return LoggedBatch{}, r.damaged("the batch does not continue the log", err)
	}
	end := len(r.data) - len(rest)
	l := LoggedBatch{Entry: Entry{Batch: b, Frame: r.data[r.pos:end:end]}, File: r.file.name, At: int64(r.pos)}
	r.pos, r.at, r.any = end, after(b), false
	return l, nil
}

func (r *LogReader) damaged(reason string, err error) error {
	return &CorruptionError{File: r.file.name, Offset: int64(r.pos), Reason: reason, Err: err}
}

// readOn reads what has come since: in this file, or the next one. It looks for the next
// first, because this one is whole once that is there.
func (r *LogReader) readOn() (more bool, err error) {
	next, err := r.next()
	if err != nil {
		return false, err
	}
	if r.file.name == "" {
		if next == nil {
			return false, nil
		}
		return true, r.open(*next)
	}
	if more, err := r.reread(); more || err != nil {
		return more, err
	}
	switch {
	case next == nil:
		return false, nil
	case r.pos < len(r.data):
		_, _, err := NextFrame(r.data[r.pos:])
		return false, r.damaged("the file ends in a bad frame, and another one follows", err)
	}
	return true, r.open(*next)
}

// next is the file after the one that is read, nil if there is none.
func (r *LogReader) next() (*logFileRef, error) {
	files, err := listLog(r.fs, r.dir)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if r.file.name == "" || f.base > r.file.base {
			return &f, nil
		}
	}
	return nil, nil
}

// reread reads the file once more, and reports whether there is anything new.
func (r *LogReader) reread() (more bool, err error) {
	info, err := r.fs.Stat(r.file.name)
	if err == nil && r.pos == len(r.data) && info.Size() == int64(r.pos) {
		return false, nil
	}
	data, err := vfs.ReadFile(r.fs, r.file.name, math.MaxInt64)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(data) < r.pos {
		return false, fmt.Errorf("%w: %s", ErrLogChanged, r.file.name)
	}
	if err != nil {
		return false, fmt.Errorf("metalog: %w", err)
	}
	more = !bytes.Equal(data[r.pos:], r.data[r.pos:])
	r.data = data
	return more, nil
}

// open goes to a file, which has to begin where the one before it ended.
func (r *LogReader) open(f logFileRef) error {
	data, err := vfs.ReadFile(r.fs, f.name, math.MaxInt64)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s", ErrLogChanged, f.name)
	}
	if err != nil {
		return fmt.Errorf("metalog: %w", err)
	}
	first := r.file.name == ""
	r.file, r.data, r.pos = f, data, min(logHeaderSize, len(data))
	start, err := decodeLogHeader(f.name, data)
	switch {
	case err != nil:
		return err
	case start.Offset != f.base:
		return &CorruptionError{File: f.name, Reason: fmt.Sprintf("its header says that it begins at offset %d", start.Offset)}
	case !first && !r.any && start != r.at:
		err = &CorruptionError{File: f.name, Reason: fmt.Sprintf("the log before it ends at offset %d, epoch %d, term %s; it continues offset %d, epoch %d, term %s",
			r.at.Offset, r.at.LastEpoch, r.at.LastTerm, start.Offset, start.LastEpoch, start.LastTerm)}
	}
	r.at, r.any = start, false
	return err
}

// skip goes past the damage that Next has returned, to the next batch that can be read.
// It is not held to what came before.
func (r *LogReader) skip() {
	r.any = true
	if _, _, err := NextFrame(r.data[r.pos:]); err == nil && r.decodes(r.pos) {
		return // it is only its place that is wrong
	}
	for at := r.pos + 1; at < len(r.data); at++ {
		i := bytes.Index(r.data[at:], frameMagic[:])
		if i < 0 {
			break
		}
		if at += i; r.decodes(at) {
			r.pos = at
			return
		}
	}
	r.pos = len(r.data)
}

// decodes reports whether a good batch begins there.
func (r *LogReader) decodes(at int) bool {
	payload, _, err := NextFrame(r.data[at:])
	if err == nil {
		_, err = meta.DecodeBatch(payload)
	}
	return err == nil
}
