package metalog

import (
	"fmt"

	"github.com/shoalstore/shoal/meta"
)

// Decoding is most of the work of reading a snapshot, and the records of one frame have
// nothing to do with those of another. So frames are decoded by goroutines, while the one
// that reads takes in the records of the frames before, in their order.

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

// decode has the records of the frame decoded that was read last.
func (s *snapshotReader) decode(b []byte) {
	f := new(decodedFrame)
	if n := len(s.free); n > 0 {
		f, s.free = s.free[n-1], s.free[:n-1]
	}
	f.at, f.done = s.at, make(chan struct{})
	f.buf, s.buf = s.buf, f.buf // b is in it
	_, _ = s.state.Write(b)     // a hash; it never fails
	s.ahead = append(s.ahead, f)
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
}

// yieldFrame yields the records of the oldest frame, and reports whether to go on.
func (s *snapshotReader) yieldFrame(yield func(meta.Record) bool) bool {
	f := s.ahead[0]
	<-f.done
	s.ahead = append(s.ahead[:0], s.ahead[1:]...)
	for _, r := range f.records {
		key := r.Key()
		if s.footer.records > 0 && key.Compare(s.last) <= 0 {
			s.err = s.damagedAt(f.at, "records out of order", fmt.Errorf("%s after %s", key, s.last))
			return false
		}
		s.footer.records++
		s.last = key
		if !yield(r) {
			return false
		}
	}
	if f.err != nil {
		s.err = s.damagedAt(f.at, "the frame is whole, its records are not", f.err)
		return false
	}
	s.free = append(s.free, f)
	return true
}

// await waits for whatever is still being decoded.
func (s *snapshotReader) await() {
	for _, f := range s.ahead {
		<-f.done
	}
}
