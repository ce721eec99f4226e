package deepstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// idleMax is how long a body may give nothing while somebody reads it.
const idleMax = time.Minute

func (s *s3Store) Open(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if _, err := ParseKey(key); err != nil {
		return nil, err
	}
	if off < 0 || n > math.MaxInt64-off {
		return nil, s.leaves(key, off, n, -1)
	}
	if n == 0 {
		return s.nothing(ctx, key, off)
	}
	return s.open(ctx, key, off, n, nil)
}

func (s *s3Store) leaves(key string, off, n, size int64) error {
	if size < 0 {
		return fmt.Errorf("deepstore: open %s: %d bytes from %d on is no range", s.uri(key), n, off)
	}
	return fmt.Errorf("deepstore: open %s: bytes %d to %d of %d", s.uri(key), off, off+max(n, 0), size)
}

// nothing is an empty range, for which HTTP has no word.
func (s *s3Store) nothing(ctx context.Context, key string, off int64) (io.ReadCloser, error) {
	info, err := s.Head(ctx, key)
	if err != nil {
		return nil, err
	}
	if off > info.SizeBytes {
		return nil, s.leaves(key, off, 0, info.SizeBytes)
	}
	return http.NoBody, nil
}

// open reads n bytes from off on (n < 0: to the end, else above 0), of the object
// with that ETag only, if one is given.
func (s *s3Store) open(ctx context.Context, key string, off, n int64, etag *string) (io.ReadCloser, error) {
	bucket, name := s.names(key)
	in := &s3.GetObjectInput{Bucket: bucket, Key: name, IfMatch: etag}
	switch {
	case n >= 0:
		in.Range = aws.String(fmt.Sprintf("bytes=%d-%d", off, off+n-1))
	case off > 0:
		in.Range = aws.String(fmt.Sprintf("bytes=%d-", off))
	}
	b := &s3Reader{store: s, key: key}
	for try := 1; ; try++ {
		out, err := b.ask(ctx, in)
		if err == nil {
			if err := b.take(out, off, n, in.Range != nil); err != nil {
				return nil, errors.Join(err, b.Close())
			}
			return b, nil
		}
		status, _ := answerOf(err)
		switch {
		case status == http.StatusRequestedRangeNotSatisfiable && n < 0:
			return s.nothing(ctx, key, off) // the end, or beyond it
		case try == tries || !faultOf(err).worthARetry() || pause(ctx, try) != nil:
			return nil, s.wrap("open", s.uri(key), err)
		}
	}
}

// s3Reader is the body of a GET that is exactly as long as it must be, and that
// does not hang: a Read that gets nothing for idleMax fails.
type s3Reader struct {
	store  *s3Store
	key    string
	ctx    context.Context
	cancel context.CancelCauseFunc
	idle   *time.Timer
	body   io.ReadCloser
	left   int64
	closed sync.Once
}

// ask sends the request. Its time is that of the head of the answer.
func (b *s3Reader) ask(ctx context.Context, in *s3.GetObjectInput) (*s3.GetObjectOutput, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	idle := time.AfterFunc(timeFor(0), func() { cancel(errNoAnswer) })
	out, err := b.store.client.api.GetObject(ctx, in)
	if err != nil {
		idle.Stop()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		cancel(nil)
		return nil, err
	}
	idle.Stop() // if it came too late, Read says so
	b.ctx, b.cancel, b.idle, b.body = ctx, cancel, idle, out.Body
	return out, nil
}

// take checks that the answer is what was asked for.
func (b *s3Reader) take(out *s3.GetObjectOutput, off, n int64, ranged bool) error {
	length := aws.ToInt64(out.ContentLength)
	if out.ContentLength == nil || length < 0 {
		return fmt.Errorf("deepstore: open %s: the answer does not say how long it is", b.store.uri(b.key))
	}
	b.left = length
	if !ranged {
		return nil
	}
	var from, to, size int64
	got := aws.ToString(out.ContentRange)
	if k, err := fmt.Sscanf(got, "bytes %d-%d/%d", &from, &to, &size); k != 3 || err != nil {
		return fmt.Errorf("deepstore: open %s: a range was asked for, and the answer has %q for one", b.store.uri(b.key), clip(got))
	}
	if n < 0 {
		n = size - off
	}
	if off+n > size {
		return b.store.leaves(b.key, off, n, size)
	}
	if from != off || to != off+n-1 || length != n {
		return fmt.Errorf("deepstore: open %s: bytes %d to %d were asked for, and the answer has %s in %d bytes", b.store.uri(b.key), off, off+n-1, clip(got), length)
	}
	return nil
}

func (b *s3Reader) Read(p []byte) (int, error) {
	switch {
	case b.ctx.Err() != nil:
		return 0, b.ended()
	case b.left == 0:
		return 0, io.EOF
	}
	b.idle.Reset(idleMax)
	n, err := b.body.Read(p[:min(int64(len(p)), b.left)])
	b.idle.Stop()
	b.left -= int64(n)
	switch {
	case b.left == 0:
		return n, nil // what comes behind is nobody's business
	case err == nil:
		return n, nil
	case b.ctx.Err() != nil:
		return n, b.ended()
	case err == io.EOF:
		// To HTTP, and to the SDK, that may be a good end.
		err = io.ErrUnexpectedEOF
	}
	return n, fmt.Errorf("deepstore: read %s, %d bytes before its end: %w", b.store.uri(b.key), b.left, err)
}

func (b *s3Reader) ended() error {
	return fmt.Errorf("deepstore: read %s: %w", b.store.uri(b.key), context.Cause(b.ctx))
}

func (b *s3Reader) Close() error {
	b.closed.Do(func() {
		b.idle.Stop()
		b.cancel(nil)
		b.body.Close() // after the cancel it says nothing of interest
	})
	return nil
}
