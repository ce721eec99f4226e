package metalog

import (
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

// ReadSnapshot reads a snapshot through and returns its image, verified: header
// first, footer last, every frame whole, counts and state hash right, records in
// order and an image that breaks no invariant. Bytes that are not so are a
// *CorruptionError, those of a newer program a *FormatError; name is for these
// messages. Whatever the bytes say, it holds a few frames of them besides the image.
func ReadSnapshot(name string, r io.Reader) (*meta.Image, SnapshotHeader, error) {
	s := &snapshotReader{name: name, r: r}
	return s.read()
}

// readSnapshot is ReadSnapshot, and returns the piece list and the digest of the file too.
func readSnapshot(name string, r io.Reader) (im *meta.Image, h SnapshotHeader, list *segment.Pieces, digest segment.Digest, err error) {
	s := &snapshotReader{name: name, r: r}
	if im, h, err = s.read(); err == nil {
		list, digest = s.file.Sum()
	}
	return im, h, list, digest, err
}

func (s *snapshotReader) read() (*meta.Image, SnapshotHeader, error) {
	h, err := s.header()
	if err != nil {
		return nil, SnapshotHeader{}, err
	}
	im, err := meta.Restore(meta.Position{Next: h.Offset, Epoch: h.LastEpoch, Time: h.Time}, s.records())
	if s.err != nil { // then what Restore made is of a part of the records
		return nil, SnapshotHeader{}, s.err
	}
	if err == nil {
		err = belongs(h, im)
	}
	if err != nil {
		return nil, SnapshotHeader{}, s.damaged("its frames are whole, its image is not", err)
	}
	return im, h, nil
}

// snapshotReader reads the frames of one snapshot.
type snapshotReader struct {
	name string
	r    io.Reader

	buf    []byte              // the last frame
	file   segment.PieceHasher // of the frames before, and with it once it was looked at
	at     int64               // bytes read before it
	next   int64               // bytes read with it
	key    meta.Key            // of the last record
	footer snapshotFooter      // as counted
	err    error               // what ended records early
}

func (s *snapshotReader) damaged(reason string, err error) error {
	return s.damagedAt(s.at, reason, err)
}

func (s *snapshotReader) damagedAt(at int64, reason string, err error) error {
	return &CorruptionError{File: s.name, Offset: at, Reason: reason, Err: err}
}

func (s *snapshotReader) header() (SnapshotHeader, error) {
	payload, err := s.frame()
	if err != nil {
		return SnapshotHeader{}, err
	}
	h, err := decodeSnapshotHeader(s.name, payload)
	var newer *FormatError
	if errors.As(err, &newer) {
		return SnapshotHeader{}, err
	}
	if err != nil {
		return SnapshotHeader{}, s.damaged("bad header", err)
	}
	s.hash()
	return h, nil
}

// frame reads the next frame and returns its payload, which is good until the next
// call. Every frame is asked for because one must follow, so the end of the file is
// damage wherever it comes.
func (s *snapshotReader) frame() ([]byte, error) {
	s.at = s.next
	if err := s.fill(0, frameHeaderSize); err != nil {
		return nil, err
	}
	n, err := frameLength(s.buf)
	if err != nil {
		return nil, s.damaged("bad frame", err)
	}
	if err := s.fill(frameHeaderSize, frameOverhead+n); err != nil {
		return nil, err
	}
	payload, _, err := NextFrame(s.buf)
	if err != nil {
		return nil, s.damaged("bad frame", err)
	}
	s.next += int64(len(s.buf))
	return payload, nil
}

// hash takes the last frame into what is known of the file.
func (s *snapshotReader) hash() { _, _ = s.file.Write(s.buf) } // a hash; it never fails

// fill makes buf n bytes long, reading those from have on.
func (s *snapshotReader) fill(have, n int) error {
	if cap(s.buf) < n {
		s.buf = append(make([]byte, 0, n), s.buf[:have]...)
	}
	s.buf = s.buf[:n]
	_, err := io.ReadFull(s.r, s.buf[have:])
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return s.damaged("the file ends before its footer", nil)
	}
	return fmt.Errorf("metalog: read %s: %w", s.name, err)
}

// records yields the records up to the footer, and checks that nothing follows it.
// They count only if err is nil afterwards.
func (s *snapshotReader) records() iter.Seq[meta.Record] {
	return func(yield func(meta.Record) bool) {
		p := s.begin()
		defer p.stop()
		for f := range p.frames {
			if !s.yieldFrame(f, yield) {
				return
			}
			p.release(f)
		}
		s.err = s.last(p.last, p.err)
	}
}

// last judges what ends the frames of records.
func (s *snapshotReader) last(payload []byte, err error) error {
	switch {
	case err != nil:
		return err
	case payload[0] == frameOfFooter:
		return s.end(payload)
	case payload[0] == frameOfRecords:
		return s.damaged("a frame of no record", nil)
	}
	return s.damaged(fmt.Sprintf("a frame of unknown type %02x", payload[0]), nil)
}

// end compares the footer with what was counted.
func (s *snapshotReader) end(payload []byte) error {
	said, err := decodeSnapshotFooter(payload)
	if err != nil {
		return s.damaged("bad footer", err)
	}
	s.footer.bytes = uint64(s.at)
	_, s.footer.state = s.file.Sum()
	s.hash()
	if said != s.footer {
		return s.damaged("bad footer", fmt.Errorf("it says %d records in %d bytes with state %s; there are %d in %d with state %s",
			said.records, said.bytes, said.state, s.footer.records, s.footer.bytes, s.footer.state))
	}
	s.at = s.next
	switch n, err := io.ReadFull(s.r, make([]byte, 1)); {
	case n > 0:
		return s.damaged("something follows the footer", nil)
	case !errors.Is(err, io.EOF):
		return fmt.Errorf("metalog: read %s: %w", s.name, err)
	}
	return nil
}

// readSnapshotHeader reads no more of a snapshot than says what it is of.
func readSnapshotHeader(fsys vfs.FS, name string) (h SnapshotHeader, err error) {
	f, err := fsys.Open(name)
	if err != nil {
		return SnapshotHeader{}, fmt.Errorf("metalog: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return (&snapshotReader{name: name, r: f}).header()
}
