package peerdl

import (
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

// sender is the ResponseWriter that a resource is sent through. It notices what
// http.ServeContent does not tell: that the body ended early, and why. Its write
// deadline rolls with the progress, so that a reader that has stopped frees its
// slot and its pin while a slow one may take hours.
//
// It hands the *io.LimitedReader over the file on to the ReadFrom of the writer
// below, which is what makes net/http use sendfile.
type sender struct {
	*httpx.ProgressWriter
	metrics *Metrics
	err     error // the first error of the body
	short   bool  // the file ended early
}

func newSender(w http.ResponseWriter, m *Metrics) *sender {
	out, ok := w.(*httpx.ProgressWriter)
	if !ok {
		out = httpx.RollingDeadline(w, sendIdle)
	}
	return &sender{ProgressWriter: out, metrics: m}
}

func (s *sender) Write(b []byte) (int, error) {
	n, err := s.ProgressWriter.Write(b)
	s.count(int64(n), err)
	return n, err
}

func (s *sender) ReadFrom(src io.Reader) (int64, error) {
	want := int64(0)
	if limited, ok := src.(*io.LimitedReader); ok {
		want = limited.N
	}
	n, err := s.ProgressWriter.ReadFrom(src)
	s.count(n, err)
	s.short = s.short || err == nil && n < want
	return n, err
}

func (s *sender) count(n int64, err error) {
	if s.metrics != nil {
		s.metrics.sentBytes.Add(float64(n))
	}
	if s.err == nil {
		s.err = err
	}
}

// failure is what the handler has to report. That the reader left or stalled is
// nobody's failure here: net/http cuts the connection of a short body anyway.
func (s *sender) failure(r *http.Request) error {
	switch {
	case s.short:
		return errShort
	case s.err == nil, r.Context().Err() != nil, errors.Is(s.err, os.ErrDeadlineExceeded), errors.Is(s.err, http.ErrBodyNotAllowed),
		errors.Is(s.err, syscall.EPIPE), errors.Is(s.err, syscall.ECONNRESET): // seen before the context knows
		return nil
	}
	return s.err
}

// errShort says that a file gave fewer bytes than it had when it was opened.
var errShort = errors.New("peerdl: the file ended early while it was sent")
