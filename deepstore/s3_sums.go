package deepstore

import (
	"context"
	"crypto/sha256"
	"fmt"
	stdhash "hash"
	"io"
	"sync"

	"github.com/shoalstore/shoal/segment"
)

const (
	s3WholeMax = 16 << 20 // larger objects go up in parts
	s3PartMin  = 8 << 20
	s3PartsMax = 10_000
)

// s3Part is a part of an object and what S3 must find it to be.
type s3Part struct {
	off, size int64
	sha256    [32]byte
}

// s3PartSize is how large the parts of an object are: as small as they can be,
// because a part is what a broken connection costs, in steps of a MiB.
func s3PartSize(size int64) int64 {
	if size <= s3WholeMax {
		return size
	}
	const step = 1 << 20
	least := (size + s3PartsMax - 1) / s3PartsMax
	return max(s3PartMin, (least+step-1)/step*step)
}

// sumParts reads the source once and returns its parts. If its bytes are not those
// of the digest, it is ErrBadSource.
func sumParts(ctx context.Context, r io.ReaderAt, size int64, digest segment.Digest) ([]s3Part, error) {
	partSize := s3PartSize(size)
	sums := &partSums{partSize: partSize, sha: sha256.New()}
	if err := copyVerified(ctx, sums, r, size, digest); err != nil {
		return nil, err
	}
	sums.end()
	return sums.parts, nil
}

// partSums is a writer that hashes each part of what is written.
type partSums struct {
	partSize int64
	parts    []s3Part
	sha      stdhash.Hash
	off, n   int64 // of the part that is being written
}

func (p *partSums) Write(b []byte) (int, error) {
	written := len(b)
	for len(b) > 0 {
		n := min(int64(len(b)), p.partSize-p.n)
		p.sha.Write(b[:n]) // never fails
		b, p.n = b[n:], p.n+n
		if p.n == p.partSize {
			p.end()
		}
	}
	return written, nil
}

func (p *partSums) end() {
	if p.n == 0 {
		return
	}
	part := s3Part{off: p.off, size: p.n}
	p.sha.Sum(part.sha256[:0])
	p.parts = append(p.parts, part)
	p.off, p.n = p.off+p.n, 0
	p.sha.Reset()
}

// sumShown is the checksum that S3 shows of an object made of these parts.
func sumShown(parts []s3Part) string {
	if len(parts) == 1 {
		return base64Of(parts[0].sha256)
	}
	return sumOfParts(parts)
}

// sumOfParts is the same of one that went up in parts, if only in one.
func sumOfParts(parts []s3Part) string {
	of := sha256.New()
	for _, p := range parts {
		of.Write(p.sha256[:])
	}
	return fmt.Sprintf("%s-%d", base64Of([32]byte(of.Sum(nil))), len(parts))
}

// s3Body is a part of the source as the body of one request. The HTTP client may
// go on reading a body after the answer has come; close ends that, so that nobody
// reads the source once Put has returned. Safe for concurrent use.
type s3Body struct {
	mu      sync.Mutex
	section *io.SectionReader
	err     error // what the source said
	closed  bool
}

// sourceError says that the source could not be read, which is not S3's fault.
type sourceError struct{ err error }

func (e *sourceError) Error() string { return "reading the source: " + e.err.Error() }
func (e *sourceError) Unwrap() error { return e.err }

func newS3Body(r io.ReaderAt, p s3Part) *s3Body {
	return &s3Body{section: io.NewSectionReader(r, p.off, p.size)}
}

func (b *s3Body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, io.ErrClosedPipe
	}
	n, err := b.section.Read(p)
	if err != nil && err != io.EOF {
		b.err = &sourceError{err}
	}
	return n, err
}

func (b *s3Body) Seek(off int64, whence int) (int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.section.Seek(off, whence)
}

// close ends all reading. If the source failed, that is the error.
func (b *s3Body) close(err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	if err != nil && b.err != nil {
		return b.err
	}
	return err
}
