package httpx

import (
	"context"
	"errors"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/rs/zerolog"
)

// HandlerFunc is a handler that returns its error instead of writing it.
type HandlerFunc func(w http.ResponseWriter, r *http.Request) error

// How long a client may make no progress, sending its body or taking the
// answer, before the connection is cut.
const stallMax = time.Minute

// Handler makes an http.Handler of h. An *Error is answered as it says; any
// other error is a 500 that tells the client nothing and the log all. When the
// answer has begun, an error can no longer be told: the connection is cut, so
// that a client never takes half an answer for the whole. So is that of a
// client that stalls, in either direction, for a minute.
func Handler(log zerolog.Logger, h HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := RollingDeadline(w, stallMax)
		if r.Body != nil && r.Body != http.NoBody {
			r.Body = &stallReader{ReadCloser: r.Body, rc: http.NewResponseController(w), idle: stallMax}
		}
		defer func() {
			if p := recover(); p != nil {
				afterPanic(log, out, r, p)
			}
		}()
		if err := h(out, r); err != nil {
			answerError(log, out, r, err)
		}
	})
}

func answerError(log zerolog.Logger, out *ProgressWriter, r *http.Request, err error) {
	e := asError(err)
	logError(log, r, e)
	if out.Started() {
		panic(http.ErrAbortHandler)
	}
	WriteError(out, e)
}

// logError logs what the client is not told, and what somebody must act on: an
// error that no handler foresaw.
func logError(log zerolog.Logger, r *http.Request, e *Error) {
	event := log.Debug()
	switch {
	case r.Context().Err() != nil && errors.Is(e, context.Canceled): // the client went away
	case e.Code == CodeInternal:
		event = log.Error()
	case e.Status >= 500 && e.Cause != nil:
		event = log.Warn()
	}
	event.Err(e).Str("method", r.Method).Str("path", r.URL.Path).Str("peer", r.RemoteAddr).Msg("request failed")
}

// afterPanic ends the request of a handler that panicked, which only a broken
// invariant makes it do. ErrAbortHandler is the way to cut the connection.
func afterPanic(log zerolog.Logger, out *ProgressWriter, r *http.Request, p any) {
	if p == http.ErrAbortHandler {
		panic(p)
	}
	log.Error().Interface("panic", p).Bytes("stack", debug.Stack()).
		Str("method", r.Method).Str("path", r.URL.Path).Msg("handler panicked")
	if out.Started() {
		panic(http.ErrAbortHandler)
	}
	WriteError(out, errors.New("panic"))
}
