package httpx

import (
	"io"
	"net/http"
	"strings"
	"time"
)

// progressStep is how many bytes must go out within the idle time. It is a
// compromise: a step costs the kernel's sendfile one more call, and a client
// slower than step ÷ idle (here 8 KiB/s at a minute) is taken for a dead one.
const progressStep = 512 << 10

// ProgressWriter is an http.ResponseWriter whose write deadline moves on with
// each step that went out, so that a long honest download is never cut and a
// reader that stopped is. See RollingDeadline.
type ProgressWriter struct {
	http.ResponseWriter
	rc      *http.ResponseController
	idle    time.Duration
	started bool
	instead bool // a problem was answered: the body that the handler writes is dropped
}

// RollingDeadline returns w with a write deadline of idle from now that moves on
// with progress. It keeps the kernel's send path (sendfile): what io.Copy and
// http.ServeContent pass to ReadFrom reaches net/http in steps, as a bare
// *os.File under a limit. The last deadline stays set for the final flush;
// net/http lifts it before the connection's next request.
func RollingDeadline(w http.ResponseWriter, idle time.Duration) *ProgressWriter {
	return &ProgressWriter{ResponseWriter: w, rc: http.NewResponseController(w), idle: idle}
}

// Started reports whether the header of the answer has been written.
func (p *ProgressWriter) Started() bool { return p.started }

// Unwrap is for http.ResponseController.
func (p *ProgressWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// move sets the deadline anew. A writer that has none (a recorder in a test)
// is as good without.
func (p *ProgressWriter) move() { _ = p.rc.SetWriteDeadline(time.Now().Add(p.idle)) }

// WriteHeader begins the answer. http.ServeContent refuses a Range by itself, in plain
// text: that becomes a problem, as every other refusal is one.
func (p *ProgressWriter) WriteHeader(status int) {
	if status == http.StatusRequestedRangeNotSatisfiable && p.Header().Get("Content-Type") != problemType {
		WriteError(p, rangeRefused(p.Header().Get("Content-Range")))
		p.instead = true
		return
	}
	if status >= 200 { // 1xx are no answer yet
		p.started = true
	}
	p.move()
	p.ResponseWriter.WriteHeader(status)
}

// rangeRefused is the answer to a Range. Its Content-Range is missing if the Range could
// not be read.
func rangeRefused(contentRange string) *Error {
	size, ok := strings.CutPrefix(contentRange, "bytes */")
	if !ok {
		return Errorf(http.StatusRequestedRangeNotSatisfiable, CodeRangeNotThere, "the Range header is none that is understood here: bytes=FIRST-LAST")
	}
	return Errorf(http.StatusRequestedRangeNotSatisfiable, CodeRangeNotThere, "none of the Range is there: the size is %s bytes", size).
		WithHeader("Content-Range", contentRange)
}

func (p *ProgressWriter) Write(b []byte) (n int, err error) {
	if p.instead {
		return len(b), nil
	}
	p.started = true
	for {
		p.move()
		step := b[n:min(len(b), n+progressStep)]
		m, err := p.ResponseWriter.Write(step)
		n += m
		if err != nil || n == len(b) {
			return n, err
		}
	}
}

// FlushError is for http.ResponseController.
func (p *ProgressWriter) FlushError() error {
	p.started = true
	p.move()
	return p.rc.Flush()
}

// ReadFrom sends src up to its end.
func (p *ProgressWriter) ReadFrom(src io.Reader) (n int64, err error) {
	p.started = true
	to, ok := p.ResponseWriter.(io.ReaderFrom)
	if !ok {
		return io.Copy(struct{ io.Writer }{p}, src)
	}
	limit, limited := src.(*io.LimitedReader)
	if !limited {
		limit = &io.LimitedReader{R: src, N: 1<<63 - 1}
	}
	for limit.N > 0 {
		p.move()
		// One limit directly over the file: sendfile looks no deeper.
		want := min(limit.N, progressStep)
		m, err := to.ReadFrom(&io.LimitedReader{R: limit.R, N: want})
		n += m
		limit.N -= m
		if err != nil || m < want {
			return n, err
		}
	}
	return n, nil
}

// stallReader is a request's body whose read deadline moves on with progress.
type stallReader struct {
	io.ReadCloser
	rc    *http.ResponseController
	idle  time.Duration
	ended bool
}

// Read sets no deadline once the body has ended: from then on the server reads
// the connection itself, to notice that the client went away, and a deadline
// that struck there would end the request of a handler that takes its time.
func (s *stallReader) Read(b []byte) (int, error) {
	if !s.ended {
		_ = s.rc.SetReadDeadline(time.Now().Add(s.idle))
	}
	n, err := s.ReadCloser.Read(b)
	s.ended = s.ended || err != nil
	return n, err
}
