// Package httpx is what all of Shoal's HTTP has in common: errors with a stable
// code (problem+json), JSON in and out with bounds, paged lists, the server's
// and the client's limits, the cluster token, and the write deadline that
// follows the progress of long sends.
//
// It owns no route and knows no resource. Start reading at Error (here) and
// Handler (handler.go); the calling side is Client (client.go).
package httpx

import (
	"fmt"
	"net/http"
)

// The codes that this package answers with itself; others belong to whoever
// answers with them. A code never changes its meaning.
const (
	CodeInternal       = "INTERNAL"
	CodeInvalidRequest = "INVALID_REQUEST"
	CodeBodyTooLarge   = "BODY_TOO_LARGE"
	CodeUnauthorized   = "UNAUTHORIZED"
	CodeRangeNotThere  = "RANGE_NOT_SATISFIABLE" // 416: none of the Range is there, or it is malformed
)

// Error is an answer that is not a success. A handler returns it to answer so;
// a Client returns it when it got such an answer. Status, Code and Message are
// for the other side; Cause is for the log of this side only.
type Error struct {
	Status int
	// Code is stable and what programs branch on: NOT_LEADER.
	Code string
	// Message is for people: one sentence that names the thing.
	Message string
	// Cause is what happened, never sent. Nil on the calling side.
	Cause error
	// Header is added to the answer (Retry-After), or was the answer's.
	Header http.Header
}

// Errorf makes an Error with a message for the client.
func Errorf(status int, code, format string, args ...any) *Error {
	return &Error{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

// With returns a copy of e with a cause, for the log.
func (e *Error) With(cause error) *Error {
	c := *e
	c.Cause = cause
	return &c
}

// WithHeader returns a copy of e whose answer carries one more header.
func (e *Error) WithHeader(key, value string) *Error {
	c := *e
	c.Header = e.Header.Clone()
	if c.Header == nil {
		c.Header = http.Header{}
	}
	c.Header.Set(key, value)
	return &c
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%d %s: %s", e.Status, e.Code, e.Message)
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

func (e *Error) Unwrap() error { return e.Cause }
