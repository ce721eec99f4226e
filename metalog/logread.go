package metalog

import (
	"errors"
	"fmt"
	"io"
	"sort"

	"github.com/shoalstore/shoal/meta"
)

// Entry is a batch together with the frame it travels in. Neither may be changed.
type Entry struct {
	Batch *meta.Batch
	Frame []byte
}

// NewEntry encodes b. A batch that does not fit into a frame is a *BatchTooLargeError.
func NewEntry(b *meta.Batch) (Entry, error) {
	payload, err := meta.EncodeBatch(b)
	if err != nil {
		return Entry{}, fmt.Errorf("metalog: batch %d: %w", b.Offset, err)
	}
	if len(payload) > MaxFramePayload {
		return Entry{}, &BatchTooLargeError{Size: len(payload), Max: MaxFramePayload}
	}
	return Entry{Batch: b, Frame: AppendFrame(nil, payload)}, nil
}

// DecodeEntries decodes whole frames, as Read returns them and a fetch carries
// them. It checks the frames and the codec; that the batches continue something is
// for the caller to check. The frames alias b.
func DecodeEntries(b []byte) ([]Entry, error) {
	var entries []Entry
	for len(b) > 0 {
		payload, rest, err := NextFrame(b)
		if err != nil {
			return nil, fmt.Errorf("metalog: frame %d: %w", len(entries), err)
		}
		batch, err := meta.DecodeBatch(payload)
		if err != nil {
			return nil, fmt.Errorf("metalog: frame %d: %w", len(entries), err)
		}
		n := len(b) - len(rest)
		entries = append(entries, Entry{Batch: batch, Frame: b[:n:n]})
		b = rest
	}
	return entries, nil
}

// Read implements Device. It reads from one file only, so it may return less than
// maxBytes although more follows, and checks every frame again before it leaves.
func (l *Log) Read(from int64, maxBytes int) ([]byte, error) {
	for {
		name, at, n, err := l.locate(from, int64(maxBytes))
		if err != nil || n == 0 {
			return nil, err
		}
		b, err := l.readAt(name, at, n)
		if err != nil && l.moved(from, int64(maxBytes), name, at) {
			continue // trimmed, truncated or reset since; locate says so
		}
		if damage := (*CorruptionError)(nil); errors.As(err, &damage) {
			l.noteDamage(name, damage.Offset)
		}
		return b, err
	}
}

// noteDamage remembers the batch at a byte of a file as damaged.
func (l *Log) noteDamage(name string, at int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.files {
		if f.name != name {
			continue
		}
		after := f.start.Offset + int64(sort.Search(len(f.pos), func(i int) bool { return f.pos[i] > at }))
		if after > l.damaged {
			l.damaged = after
			l.log.Error().Str("file", name).Int64("offset", after-1).
				Msg("a batch of the log is damaged; whoever has not read it yet waits for a snapshot that holds it")
		}
	}
}

// damagedFrom reports whether a batch from offset on was found damaged.
func (l *Log) damagedFrom(offset int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.damaged > offset
}

// locate finds the bytes of as many whole batches from offset on as fit in maxBytes, one
// at least.
func (l *Log) locate(from, maxBytes int64) (name string, at, n int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	start := l.files[0].start.Offset
	switch {
	case l.closed:
		return "", 0, 0, ErrClosed
	case from < start || from > l.end.Offset:
		return "", 0, 0, &OutOfRangeError{Offset: from, Start: start, End: l.end.Offset}
	case from == l.end.Offset:
		return "", 0, 0, nil
	}
	f := l.files[sort.Search(len(l.files), func(i int) bool { return l.files[i].end() > from })]
	i := int(from - f.start.Offset)
	limit := f.pos[i] + maxBytes
	// The first batch that would end past limit.
	j := i + sort.Search(len(f.pos)-i, func(k int) bool { return f.frameEnd(i+k) > limit })
	j = min(max(j, i+1), len(f.pos))
	return f.name, f.pos[i], f.frameEnd(j-1) - f.pos[i], nil
}

// moved tells whether the batch at offset from is no longer where locate found it.
func (l *Log) moved(from, maxBytes int64, name string, at int64) bool {
	nowName, nowAt, n, err := l.locate(from, maxBytes)
	return err != nil || n == 0 || nowName != name || nowAt != at
}

// frameEnd is the byte after the frame of the file's i-th batch.
func (f *logFile) frameEnd(i int) int64 {
	if i+1 < len(f.pos) {
		return f.pos[i+1]
	}
	return f.size
}

func (l *Log) readAt(name string, at, n int64) (b []byte, err error) {
	f, err := l.fs.Open(name)
	if err != nil {
		return nil, fmt.Errorf("metalog: read: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b = make([]byte, n)
	if got, err := f.ReadAt(b, at); got < len(b) {
		if errors.Is(err, io.EOF) {
			return nil, &CorruptionError{File: name, Offset: at + int64(got), Reason: "the file has become shorter"}
		}
		return nil, fmt.Errorf("metalog: read %s: %w", name, err)
	}
	for rest := b; len(rest) > 0; {
		_, next, err := NextFrame(rest)
		if err != nil {
			return nil, &CorruptionError{File: name, Offset: at + n - int64(len(rest)), Reason: "bad frame", Err: err}
		}
		rest = next
	}
	return b, nil
}

// replayBytes is how much of the log Replay reads at a time.
const replayBytes = 1 << 20

// Replay applies what dev holds from im's next offset on and returns the image at
// the device's end. A log that starts later is a *SnapshotMissingError.
func Replay(dev Device, im *meta.Image) (*meta.Image, error) {
	if start := dev.Start(); im.Next() < start {
		return nil, &SnapshotMissingError{Have: im.Next(), Start: start}
	}
	for {
		frames, err := dev.Read(im.Next(), replayBytes)
		if err != nil {
			return nil, err
		}
		if len(frames) == 0 {
			return im, nil
		}
		entries, err := DecodeEntries(frames)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if im, err = im.Apply(e.Batch); err != nil {
				return nil, fmt.Errorf("metalog: replay: %w", err)
			}
		}
	}
}
