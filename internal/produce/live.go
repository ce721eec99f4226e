package produce

import (
	"bytes"
	"context"
	"io"
	"sync"
	"time"
)

// samplePause is how long a sample waits for more rows once it has one.
const samplePause = 200 * time.Millisecond

// liveReader reads what cannot be read twice, and makes two things of a blocking
// Read that it does not have: it can be left when a context ends, and it can be
// told what to do before it waits.
type liveReader struct {
	src    io.Reader
	start  sync.Once
	chunks chan []byte
	err    error // why chunks was closed
	ended  chan struct{}
	ending sync.Once

	ctx    context.Context // of the Run that reads
	idle   func() error    // called before waiting
	peeked []byte          // read for a sample
}

func newLiveReader(src io.Reader) *liveReader {
	return &liveReader{src: src, chunks: make(chan []byte), ended: make(chan struct{}), ctx: context.Background()}
}

// stop ends the reading goroutine, at the latest when the read it is in returns.
func (l *liveReader) stop() {
	l.ending.Do(func() {
		close(l.ended)
		if c, ok := l.src.(io.Closer); ok {
			c.Close()
		}
	})
}

func (l *liveReader) run() {
	defer close(l.chunks)
	for {
		chunk := make([]byte, 64<<10)
		n, err := l.src.Read(chunk)
		if n > 0 {
			select {
			case l.chunks <- chunk[:n]:
			case <-l.ended:
				l.err = io.EOF
				return
			}
		}
		if err != nil {
			l.err = err
			return
		}
	}
}

// Read implements io.Reader.
func (l *liveReader) Read(p []byte) (int, error) {
	if len(l.peeked) == 0 {
		chunk, err := l.chunk()
		if err != nil {
			return 0, err
		}
		l.peeked = chunk
	}
	n := copy(p, l.peeked)
	l.peeked = l.peeked[n:]
	return n, nil
}

func (l *liveReader) chunk() ([]byte, error) {
	if err := l.ctx.Err(); err != nil {
		return nil, err
	}
	l.start.Do(func() { go l.run() })
	select {
	case chunk, ok := <-l.chunks:
		return l.got(chunk, ok)
	default:
	}
	if l.idle != nil {
		if err := l.idle(); err != nil {
			return nil, err
		}
	}
	select {
	case chunk, ok := <-l.chunks:
		return l.got(chunk, ok)
	case <-l.ctx.Done():
		return nil, l.ctx.Err()
	}
}

func (l *liveReader) got(chunk []byte, ok bool) ([]byte, error) {
	if !ok {
		return nil, l.err
	}
	return chunk, nil
}

// peek reads without taking: up to a number of rows or bytes, at least one row
// unless the input ends, and no more once it pauses.
func (l *liveReader) peek(ctx context.Context, rows, most int) ([]byte, error) {
	l.start.Do(func() { go l.run() })
	pause := time.NewTimer(samplePause)
	defer pause.Stop()
	for have := bytes.Count(l.peeked, newline); have < rows && len(l.peeked) < most; {
		var paused <-chan time.Time
		if have > 0 {
			pause.Reset(samplePause)
			paused = pause.C
		}
		select {
		case chunk, ok := <-l.chunks:
			if !ok {
				if l.err == io.EOF {
					return l.peeked, nil
				}
				return nil, l.err
			}
			have += bytes.Count(chunk, newline)
			l.peeked = append(l.peeked, chunk...)
		case <-paused:
			return l.peeked, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return l.peeked, nil
}

// syncEvery is how often live rows are synced. They cannot be made again: after
// a power cut a file would hold fewer lines than a node has read of it.
const syncEvery = time.Second

// settle hands on what is buffered, and syncs it now and then.
func (p *Producer) settle() error {
	if err := p.flush(); err != nil {
		return err
	}
	if time.Since(p.synced) < syncEvery {
		return nil
	}
	p.synced = time.Now()
	return p.syncAll()
}
