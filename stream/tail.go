package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/shoalstore/shoal/segment"
)

const (
	// batchRows and batchBytes bound a batch; a single row may be larger.
	batchRows  = 2000
	batchBytes = 512 << 10
	// countAhead is how far each Read may count beyond what is known, so that
	// a reader that is far behind learns the end of the file soon, and yet
	// never waits for a whole file to be counted.
	countAhead = 4 << 20

	// pollMin and pollMax are how long an idle reader waits before it looks
	// again, doubling in between. Polling works on every file system and costs
	// an fstat; a reader that finds rows never waits.
	pollMin = time.Millisecond
	pollMax = 100 * time.Millisecond
	// identityEvery is how often a reader looks whether its file is still the
	// one of that name, and the stream still the same.
	identityEvery = time.Second
)

// tail reads one partition's file from a line on, and waits at its end.
type tail struct {
	src       *Files
	partition int32
	epoch     string
	file      *os.File
	index     *index

	at    point  // the next row
	block []byte // complete lines at at, read and not yet yielded

	checked time.Time // when identity was last looked at
	failed  error     // the final error, once there is one

	closing sync.Once
	closed  chan struct{}
}

func newTail(src *Files, partition int32, epoch string, f *os.File, x *index, at point) *tail {
	return &tail{src: src, partition: partition, epoch: epoch, file: f, index: x, at: at,
		checked: time.Now(), closed: make(chan struct{})}
}

// Close implements Reader.
func (t *tail) Close() error {
	var err error
	t.closing.Do(func() {
		close(t.closed)
		err = t.file.Close()
	})
	return err
}

// Read implements Reader.
func (t *tail) Read(ctx context.Context) (Batch, error) {
	if t.failed != nil {
		return Batch{}, t.failed
	}
	end, err := t.fill(ctx)
	if err != nil {
		if ctx.Err() == nil {
			t.failed = err
		}
		return Batch{}, err
	}
	rows := t.cut()
	return Batch{Rows: rows, Next: t.at.line, End: max(end, t.at.line), Epoch: t.epoch}, nil
}

// fill waits until block holds a row, and returns the end known.
func (t *tail) fill(ctx context.Context) (end int64, err error) {
	wait := pollMin
	for {
		if err := t.alive(ctx); err != nil {
			return 0, err
		}
		if err := t.identify(ctx); err != nil {
			return 0, err
		}
		began := time.Now()
		end, err := t.complete(ctx)
		if err != nil {
			return 0, err
		}
		if len(t.block) > 0 {
			return end.line, nil
		}
		if end.byte > t.at.byte {
			return end.line, t.read(ctx, end.byte)
		}
		// A line of many megabytes that is being written is looked at from
		// its beginning each time: leave nine tenths of the time to others.
		if err := t.sleep(ctx, max(wait, 9*time.Since(began))); err != nil {
			return 0, err
		}
		wait = min(2*wait, pollMax)
	}
}

func (t *tail) alive(ctx context.Context) error {
	select {
	case <-t.closed:
		return fmt.Errorf("stream: %s: %w", t.name(), os.ErrClosed)
	default:
		return ctx.Err()
	}
}

func (t *tail) sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.closed:
	case <-ctx.Done():
	}
	return t.alive(ctx)
}

// complete finds out how far the file has complete lines.
func (t *tail) complete(ctx context.Context) (point, error) {
	// The end known is taken before the size: the other way round, what
	// another reader counts in between would make the size look too small.
	end := t.index.known()
	info, err := t.file.Stat()
	if err != nil {
		return end, fmt.Errorf("stream: %s: %w", t.name(), err)
	}
	size := info.Size()
	if size < end.byte || size < t.at.byte {
		return end, t.truncated(ctx, false)
	}
	upTo := max(t.at.byte+batchBytes, end.byte+countAhead)
	if end, err = t.index.extend(ctx, t.file, size, min(upTo, size)); err != nil {
		return end, t.wrap(ctx, err)
	}
	return end, nil
}

// read fills block from the complete lines in [at, end): as many as batchBytes
// holds, or one.
//
// The byte before is read along. It must be the newline that ends the row
// before; if it is not, then the file was cut and written anew to more than its
// old size between two looks, which its size alone would not tell.
func (t *tail) read(ctx context.Context, end int64) error {
	before := min(t.at.byte, 1)
	block, err := t.load(t.at.byte-before, min(end-t.at.byte, batchBytes)+before)
	if err != nil {
		return err
	}
	if block == nil || before == 1 && block[0] != '\n' {
		return t.truncated(ctx, block != nil)
	}
	block = block[before:]
	if last := bytes.LastIndexByte(block, '\n'); last >= 0 {
		t.block = block[:last+1]
		return nil
	}
	return t.readLong(ctx, end)
}

// readLong reads one row that is larger than a batch, after measuring it.
func (t *tail) readLong(ctx context.Context, end int64) error {
	next, err := skipLines(ctx, t.file, t.at, t.at.line+1)
	if err != nil {
		return t.wrap(ctx, err)
	}
	if next.byte == t.at.byte || next.byte > end {
		return t.truncated(ctx, true)
	}
	size := next.byte - t.at.byte
	if size-1 > MaxRowBytes {
		return &RowTooLargeError{File: t.name(), Line: t.at.line, Size: size - 1}
	}
	block, err := t.load(t.at.byte, size)
	if err != nil {
		return err
	}
	if block == nil || block[size-1] != '\n' {
		return t.truncated(ctx, block != nil)
	}
	t.block = block
	return nil
}

// load reads exactly n bytes into memory of their own; nil if the file no
// longer has them.
func (t *tail) load(at, n int64) ([]byte, error) {
	block := make([]byte, n)
	got, err := readAt(t.file, block, at)
	if err != nil {
		return nil, fmt.Errorf("stream: %s: %w", t.name(), err)
	}
	if int64(got) < n {
		return nil, nil
	}
	return block, nil
}

// cut takes the rows of a batch from block.
func (t *tail) cut() []segment.Row {
	rows := make([]segment.Row, 0, min(bytes.Count(t.block, newline), batchRows))
	block := t.block
	for len(rows) < cap(rows) {
		nl := bytes.IndexByte(block, '\n')
		rows = append(rows, segment.Row{
			Offset:      t.at.line + int64(len(rows)),
			Timestamp:   segment.NoTimestamp,
			LeaderEpoch: segment.NoLeaderEpoch,
			// The capacity ends with the value: an append to it must not
			// reach into the next row.
			Value: block[:nl:nl],
		})
		block = block[nl+1:]
	}
	t.at = point{line: t.at.line + int64(len(rows)), byte: t.at.byte + int64(len(t.block)-len(block))}
	t.block = block
	return rows
}

// identify notices, at most a second late, that the file or the whole stream
// was replaced.
func (t *tail) identify(ctx context.Context) error {
	now := time.Now()
	if now.Sub(t.checked) < identityEvery {
		return nil
	}
	t.checked = now
	epoch, err := t.src.epoch()
	if err != nil {
		return err
	}
	if epoch != t.epoch {
		return &EpochChangedError{Dir: t.src.Dir(), Was: t.epoch, Now: epoch}
	}
	named, err := t.src.stat(t.partition)
	if errors.Is(err, fs.ErrNotExist) {
		return t.truncated(ctx, true)
	}
	if err != nil {
		return err
	}
	if !os.SameFile(named, t.index.file) {
		return t.truncated(ctx, true)
	}
	return nil
}

// truncated makes the error, counting the lines of the file that is there now.
func (t *tail) truncated(ctx context.Context, rewritten bool) error {
	forgetIndex(t.name(), t.index)
	lines, err := t.src.end(ctx, t.partition)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return &TruncatedError{File: t.name(), Lines: lines, Offset: t.at.line, Rewritten: rewritten}
}

// wrap names the file, except when it was ctx that ended the work.
func (t *tail) wrap(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("stream: %s: %w", t.name(), err)
}

func (t *tail) name() string { return t.src.file(t.partition) }
