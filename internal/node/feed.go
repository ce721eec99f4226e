package node

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/shoalstore/shoal/segment"
	"github.com/shoalstore/shoal/stream"
)

// What a feed holds of rows that were fetched and not taken, in bytes. While a
// segment takes rows a little is enough to keep reader and builder apart. While
// the segment changes nobody takes rows, and the reader goes on into the rest:
// at 100 MB/s, for a quarter of a second. Were it all used in normal times, a
// consumer with a backlog would meet each roll-over with a full buffer, and stop
// reading.
const (
	feedSteady   = 8 << 20
	feedRollOver = 32 << 20
)

// rowOverhead is what a waiting row costs beside its bytes, about.
const rowOverhead = 100

// feed reads a partition ahead of its consumer into a bounded buffer: one
// goroutine fills it, the consumer takes rows from its front. While the buffer
// is full the reader waits; how long it did is what a roll-over costs the
// stream.
type feed struct {
	cancel context.CancelFunc
	done   chan struct{}
	signal chan struct{} // of capacity 1: something changed
	room   chan struct{} // of capacity 1: rows were taken

	mu      sync.Mutex
	batches [][]segment.Row // waiting; the first may be partly taken
	bytes   int64
	next    int64  // the reader's next-fetch position
	end     int64  // of the stream, as far as known
	taken   int64  // everything below it is taken, or never was
	epoch   string // of the stream, as last read
	err     error  // why it ended
	limit   int64  // of bytes
	blocked time.Duration
	since   time.Time // when the reader began to wait for room; zero while it does not
}

// startFeed opens the partition at offset and begins to read. Errors, also of
// opening, come out of take.
func startFeed(ctx context.Context, src stream.Source, partition int32, offset int64) *feed {
	ctx, cancel := context.WithCancel(ctx)
	f := &feed{
		cancel: cancel, done: make(chan struct{}),
		signal: make(chan struct{}, 1), room: make(chan struct{}, 1),
		next: offset, end: offset, taken: offset, limit: feedSteady,
	}
	go func() {
		defer close(f.done)
		f.fail(f.run(ctx, src, partition, offset))
	}()
	return f
}

func (f *feed) run(ctx context.Context, src stream.Source, partition int32, offset int64) error {
	r, err := src.Open(ctx, partition, offset)
	if err != nil {
		return err
	}
	defer r.Close()
	for {
		b, err := r.Read(ctx)
		if err != nil {
			return err
		}
		f.add(b)
		if err := f.waitForRoom(ctx); err != nil {
			return err
		}
	}
}

func (f *feed) add(b stream.Batch) {
	f.mu.Lock()
	if len(b.Rows) > 0 {
		f.batches = append(f.batches, b.Rows)
		for i := range b.Rows {
			f.bytes += b.Rows[i].RawBytes() + rowOverhead
		}
	}
	f.next, f.end, f.epoch = b.Next, max(b.End, b.Next), b.Epoch
	f.mu.Unlock()
	notify(f.signal)
}

// waitForRoom waits while the buffer is full.
func (f *feed) waitForRoom(ctx context.Context) error {
	for f.stillFull() {
		select {
		case <-f.room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// allow says how much the feed may hold from now on.
func (f *feed) allow(bytes int64) {
	f.mu.Lock()
	more := bytes > f.limit
	f.limit = bytes
	f.mu.Unlock()
	if more {
		notify(f.room)
	}
}

// stillFull reports whether there is no room, and keeps the time of it.
func (f *feed) stillFull() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	full := f.bytes >= f.limit
	switch {
	case full && f.since.IsZero():
		f.since = time.Now()
	case !full && !f.since.IsZero():
		f.blocked += time.Since(f.since)
		f.since = time.Time{}
	}
	return full
}

func (f *feed) fail(err error) {
	f.mu.Lock()
	if !errors.Is(err, context.Canceled) {
		f.err = err
	}
	f.mu.Unlock()
	notify(f.signal)
}

// peek returns the rows at the front that lie in one piece, nil when none waits.
// They stay there until drop.
func (f *feed) peek() []segment.Row {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.batches) == 0 {
		return nil
	}
	return f.batches[0]
}

// drop takes the first n rows of what peek returned.
func (f *feed) drop(n int) {
	if n == 0 {
		return
	}
	f.mu.Lock()
	rows := f.batches[0]
	for i := range rows[:n] {
		f.bytes -= rows[i].RawBytes() + rowOverhead
	}
	f.taken = rows[n-1].Offset + 1
	if n == len(rows) {
		f.batches[0] = nil
		f.batches = f.batches[1:]
	} else {
		f.batches[0] = rows[n:]
	}
	f.mu.Unlock()
	notify(f.room)
}

// skipTo drops the waiting rows below offset.
func (f *feed) skipTo(offset int64) {
	for {
		rows := f.peek()
		n := 0
		for n < len(rows) && rows[n].Offset < offset {
			n++
		}
		f.drop(n)
		if n == 0 || n < len(rows) {
			return
		}
	}
}

// standing is how the feed stands, all of one moment.
func (f *feed) standing() FeedMoved {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := FeedMoved{Position: f.next, Fetched: f.next, Taken: f.taken, End: f.end, Epoch: f.epoch, Err: f.err}
	if len(f.batches) > 0 {
		at.Position, at.Waiting = f.batches[0][0].Offset, true
	}
	return at
}

// blockedFor is how long the reader has waited for room so far. A wait that is
// under way counts: one that a roll-over causes ends only after it, when the
// successor takes the first rows.
func (f *feed) blockedFor() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.since.IsZero() {
		return f.blocked
	}
	return f.blocked + time.Since(f.since)
}

// close ends the reader and waits for it.
func (f *feed) close() {
	f.cancel()
	<-f.done
}

// notify wakes whoever waits on a signal of capacity 1.
func notify(signal chan struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}
