package snapshots

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/peerdl"
)

// source asks one server for one snapshot, chunk by chunk (METALOG §3). It is the
// peerdl.Fetcher of that server: it carries bytes, and peerdl verifies them.
type source struct {
	client *httpx.Client
	url    string // of the snapshot
	ref    metalog.SnapshotRef
	query  metalog.SnapshotQuery // what does not change from chunk to chunk
	pace   pace
	got    *atomic.Int64 // counts the bytes that came
}

// Fetch returns the bytes [off, off+n), in as many chunks as it takes.
func (s *source) Fetch(ctx context.Context, off, n int64) (io.ReadCloser, error) {
	r := &chunks{s: s, ctx: ctx, at: off, end: off + n}
	if err := r.next(); err != nil {
		return nil, err
	}
	return r, nil
}

// Pieces returns the piece list.
func (s *source) Pieces(ctx context.Context) (io.ReadCloser, error) {
	q := s.query.Values()
	q.Del("position") // those of chunks
	q.Del("maxBytes")
	resp, err := s.get(ctx, s.url+"/pieces?"+q.Encode())
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, deceived(causePosition, "answered %s for the piece list", resp.Status)
	}
	return resp.Body, nil
}

func (s *source) get(ctx context.Context, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("snapshots: source address: %w", err)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, refused(err)
	}
	return resp, nil
}

// refused translates what a server answered instead of bytes.
func refused(err error) error {
	var e *httpx.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Code {
	case metalog.CodeSnapshotNotFound, metalog.CodeFencedLeaderEpoch, metalog.CodeNotLeader,
		metalog.CodeInconsistentClusterID, metalog.CodeInvalidRequest:
		return &final{e}
	case metalog.CodePositionOutOfRange:
		return deceived(causeSize, "has no such position: %s", e.Message)
	}
	if seconds, err := strconv.Atoi(e.Header.Get("Retry-After")); err == nil && seconds >= 0 {
		return &peerdl.BusyError{RetryAfter: time.Duration(min(seconds, 60)) * time.Second}
	}
	return e
}

// final is an answer that asking again does not change. To peerdl it is as if the source
// did not have the snapshot, which is true of one of these codes and as good for the
// others: a follower that has to find the leader first must not be kept waiting.
type final struct{ err *httpx.Error }

func (e *final) Error() string        { return e.err.Error() }
func (e *final) Unwrap() error        { return e.err }
func (e *final) Is(target error) bool { return target == fs.ErrNotExist }

// chunks reads a range as one chunk after another, each of about what a second carries:
// so a slow link gets an answer to each request, which keeps the snapshot pinned at the
// server, and loses little when it is cut.
type chunks struct {
	s       *source
	ctx     context.Context
	at, end int64

	body  io.ReadCloser // nil between two chunks
	left  int64         // bytes that are left of it
	asked int64         // bytes
	began time.Time
}

func (r *chunks) Read(b []byte) (int, error) {
	if r.at == r.end {
		return 0, io.EOF
	}
	if r.body == nil {
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	n, err := r.body.Read(b[:min(int64(len(b)), r.left)])
	r.at += int64(n)
	r.left -= int64(n)
	r.s.got.Add(int64(n))
	switch {
	case r.left == 0:
		r.close()
		err = nil
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	if err != nil && r.ctx.Err() == nil { // and not given up here
		r.s.pace.broke(r.asked-r.left, time.Since(r.began))
	}
	return n, err
}

// close ends a chunk that has come in full. The read past its end lets net/http see that
// it is one, and keep the connection.
func (r *chunks) close() {
	_, _ = r.body.Read(make([]byte, 1))
	r.body.Close()
	r.body = nil
	r.s.pace.came(r.asked, time.Since(r.began))
}

func (r *chunks) Close() error {
	if r.body == nil {
		return nil
	}
	return r.body.Close()
}

// next asks for the next chunk.
func (r *chunks) next() error {
	s := r.s
	r.began = time.Now()
	q := s.query
	q.Position, q.MaxBytes = r.at, min(r.end-r.at, s.pace.next())
	resp, err := s.get(r.ctx, s.url+"?"+q.Values().Encode())
	if err != nil {
		return err
	}
	if err := s.check(resp, q); err != nil {
		resp.Body.Close()
		return err
	}
	r.body, r.left, r.asked = resp.Body, resp.ContentLength, resp.ContentLength
	return nil
}

// check insists on the very chunk, of the very snapshot. A server may send less than was
// asked for, if it says that more follows.
func (s *source) check(resp *http.Response, q metalog.SnapshotQuery) error {
	n := resp.ContentLength
	if resp.StatusCode != http.StatusPartialContent {
		return deceived(causePosition, "answered %s to a request for a chunk", resp.Status)
	}
	if got, want := resp.Header.Get("ETag"), s.ref.Digest.ETag(); got != want {
		return deceived(causeDigest, "sent ETag %q, want %s", httpx.OneLine(got), want)
	}
	if n > q.MaxBytes {
		return deceived(causeExcess, "sent %d bytes, %d were asked for", n, q.MaxBytes)
	}
	if n <= 0 {
		return deceived(causeShort, "sent %d bytes at %d of %d", max(n, 0), q.Position, s.ref.SizeBytes)
	}
	end := q.Position + n
	got, want := resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-%d/%d", q.Position, end-1, s.ref.SizeBytes)
	if !strings.HasSuffix(got, fmt.Sprintf("/%d", s.ref.SizeBytes)) {
		return deceived(causeSize, "sent Content-Range %q, want %q", httpx.OneLine(got), want)
	}
	if got != want {
		return deceived(causePosition, "sent Content-Range %q, want %q", httpx.OneLine(got), want)
	}
	if got, want := resp.Header.Get(peerdl.ContinueHeader), strconv.FormatBool(end < s.ref.SizeBytes); got != want {
		return deceived(causeShort, "sent %s %q at %d of %d", peerdl.ContinueHeader, httpx.OneLine(got), end, s.ref.SizeBytes)
	}
	return nil
}

// pace is how much is asked for at once: what a second carried lately. The zero value
// begins with a default. It is safe for concurrent use; of two who change it one wins.
type pace struct{ bytes atomic.Int64 }

// The least, which a link of a few KB/s still brings before the pin of the snapshot ends.
const chunkMin = 16 << 10

func (p *pace) next() int64 {
	if n := p.bytes.Load(); n > 0 {
		return n
	}
	return peerdl.DefaultChunk
}

// came takes note of a chunk. One that was small because the rest was tells nothing.
func (p *pace) came(n int64, took time.Duration) {
	if n >= p.next() {
		p.set(n, took)
	}
}

// broke takes note of a chunk that was cut off after n bytes.
func (p *pace) broke(n int64, took time.Duration) { p.set(n, took) }

func (p *pace) set(n int64, took time.Duration) {
	perSecond := float64(n) / max(took, time.Microsecond).Seconds()
	p.bytes.Store(int64(min(max(perSecond, chunkMin), peerdl.MaxChunk)))
}
