package peerdl

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/shoalstore/shoal/internal/httpx"
)

// sendIdle is how long a reader may take nothing before its connection is cut.
const sendIdle = time.Minute

// sendStep is how much is handed on at once. What is smaller costs the kernel's
// sendfile more calls.
const sendStep = 512 << 10

// sender is the ResponseWriter that a resource is sent through. It notices what
// http.ServeContent does not tell: that the body ended early, and why. Its write
// deadline rolls with the progress, so that a reader that has stopped frees its
// slot and its pin while a slow one may take hours, until somebody else needs
// the slot (Limiter).
//
// It hands a *io.LimitedReader over the file on to the ReadFrom of the writer
// below, which is what makes net/http use sendfile; so it keeps to a budget by
// waiting between such steps, not by wrapping the file.
type sender struct {
	*httpx.ProgressWriter
	ctx   context.Context
	opts  Options
	step  int64
	pace  pace
	err   error // the first error of the body
	short bool  // the file ended early
}

func newSender(w http.ResponseWriter, r *http.Request, opts Options) *sender {
	out, ok := w.(*httpx.ProgressWriter)
	if !ok {
		out = httpx.RollingDeadline(w, sendIdle)
	}
	return &sender{ProgressWriter: out, ctx: r.Context(), opts: opts, step: min(sendStep, int64(opts.Rate.step()))}
}

func (s *sender) Write(b []byte) (int, error) {
	n, err := s.ProgressWriter.Write(b)
	s.count(int64(n), err)
	return n, err
}

func (s *sender) ReadFrom(src io.Reader) (n int64, err error) {
	limit, limited := src.(*io.LimitedReader)
	if !limited {
		limit = &io.LimitedReader{R: src, N: 1<<63 - 1}
	}
	for limit.N > 0 {
		want := min(limit.N, s.step)
		m, err := s.send(limit.R, want, want == limit.N)
		n += m
		limit.N -= m
		s.count(m, err)
		if err != nil {
			return n, err
		}
		if m < want {
			s.short = s.short || limited
			return n, nil
		}
	}
	return n, nil
}

// send hands on n bytes, when they are within the budget. With the last of them
// it no longer matters how slow the reader is.
func (s *sender) send(src io.Reader, n int64, last bool) (int64, error) {
	if err := s.opts.Rate.wait(s.ctx, int(n)); err != nil {
		return 0, err
	}
	began := time.Now()
	m, err := s.ProgressWriter.ReadFrom(&io.LimitedReader{R: src, N: n})
	now := time.Now()
	if err == nil && s.pace.took(s.opts.Limiter, m, now.Sub(began), now) && !last {
		s.opts.Metrics.countCut()
		err = errTooSlow
	}
	return m, err
}

func (s *sender) count(n int64, err error) {
	s.opts.Metrics.countSent(n)
	if s.err == nil {
		s.err = err
	}
}

// failure is what the handler has to report. That the reader left, stalled or was
// too slow is nobody's failure here: net/http cuts the connection of a short body anyway.
func (s *sender) failure(r *http.Request) error {
	switch {
	case s.short:
		return errShort
	case s.err == nil, r.Context().Err() != nil, s.err == errTooSlow, errors.Is(s.err, os.ErrDeadlineExceeded), errors.Is(s.err, http.ErrBodyNotAllowed),
		errors.Is(s.err, syscall.EPIPE), errors.Is(s.err, syscall.ECONNRESET): // seen before the context knows
		return nil
	}
	return s.err
}

// errShort says that a file gave fewer bytes than it had when it was opened.
var errShort = errors.New("peerdl: the file ended early while it was sent")
