package metalog

import (
	"fmt"

	"github.com/shoalstore/shoal/meta"
)

// A snapshot is read by several goroutines: one reads the frames, in their order, and
// hashes them; each frame is decoded by one of its own, as its records have nothing to do
// with those of another; and the caller takes the records in, frame by frame.

// framesAhead is how many frames are decoded, or wait for their turn.
const framesAhead = 4

// decodedFrame is a frame of records.
type decodedFrame struct {
	at      int64  // where it begins in the file
	buf     []byte // its memory
	done    chan struct{}
	records []meta.Record // once done is closed
	err     error         // what comes after them instead of more
}

// framePipe carries the frames from who reads them to who takes them in.
type framePipe struct {
	frames chan *decodedFrame // closed after the last one
	free   chan *decodedFrame // whose memory can be used again
	ended  chan struct{}      // closed by who takes them in, if he wants no more

	// What came after the frames of records, once frames is closed.
	last []byte
	err  error
}

// begin has the frames of records read. Until the pipe's frames are closed the reader
// belongs to the goroutine that reads them.
func (s *snapshotReader) begin() *framePipe {
	p := &framePipe{
		frames: make(chan *decodedFrame, framesAhead), free: make(chan *decodedFrame, framesAhead+2),
		ended: make(chan struct{}),
	}
	go func() {
		defer close(p.frames)
		for {
			payload, err := s.frame()
			if err != nil || payload[0] != frameOfRecords || len(payload) == 1 {
				p.last, p.err = payload, err
				return
			}
			select {
			case p.frames <- s.decode(payload[1:], p.reuse()):
			case <-p.ended:
				return
			}
		}
	}()
	return p
}

// reuse returns a frame with memory, if there is one.
func (p *framePipe) reuse() *decodedFrame {
	select {
	case f := <-p.free:
		return f
	default:
		return new(decodedFrame)
	}
}

// release gives the memory of a frame back.
func (p *framePipe) release(f *decodedFrame) {
	select {
	case p.free <- f:
	default:
	}
}

// stop ends the reading, and waits for it and for what is still being decoded.
func (p *framePipe) stop() {
	close(p.ended)
	for f := range p.frames {
		<-f.done
	}
}

// decode has the records of the frame decoded that was read last.
func (s *snapshotReader) decode(b []byte, f *decodedFrame) *decodedFrame {
	s.hash()
	f.at, f.done = s.at, make(chan struct{})
	f.buf, s.buf = s.buf, f.buf // b is in it
	go func() {
		defer close(f.done)
		f.records, f.err = f.records[:0], nil
		for len(b) > 0 && f.err == nil {
			var r meta.Record
			if r, b, f.err = takeRecord(b); f.err == nil {
				f.records = append(f.records, r)
			}
		}
	}()
	return f
}

// yieldFrame yields the records of a frame, and reports whether to go on.
func (s *snapshotReader) yieldFrame(f *decodedFrame, yield func(meta.Record) bool) bool {
	<-f.done
	for _, r := range f.records {
		key := r.Key()
		if s.footer.records > 0 && key.Compare(s.key) <= 0 {
			s.err = s.damagedAt(f.at, "records out of order", fmt.Errorf("%s after %s", key, s.key))
			return false
		}
		s.footer.records++
		s.key = key
		if !yield(r) {
			return false
		}
	}
	if f.err != nil {
		s.err = s.damagedAt(f.at, "the frame is whole, its records are not", f.err)
		return false
	}
	return true
}
