package httpx

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"unicode"
)

// problemType is the media type of RFC 9457.
const problemType = "application/problem+json"

// problem is the body of an answer that is not a success.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail,omitempty"`
}

// asError is the Error in err's chain; any other error is nobody's to know: a
// 500 with err as its cause.
func asError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{
		Status:  http.StatusInternalServerError,
		Code:    CodeInternal,
		Message: "internal error; the server's log says more",
		Cause:   err,
	}
}

// WriteError answers with err as application/problem+json, for handlers that
// are not under Handler. Nothing may have been written before.
func WriteError(w http.ResponseWriter, err error) {
	e := asError(err)
	body, _ := json.Marshal(problem{ // strings and an int: cannot fail
		Type:   "about:blank",
		Title:  http.StatusText(e.Status),
		Status: e.Status,
		Code:   e.Code,
		Detail: e.Message,
	})
	h := w.Header()
	// What the handler had set for its success is not true of this answer.
	for _, key := range []string{"Content-Disposition", "Content-Encoding", "Content-Range", "Repr-Digest", "Etag", "Last-Modified", "Cache-Control"} {
		h.Del(key)
	}
	for key, values := range e.Header {
		h[key] = values
	}
	h.Set("Content-Type", problemType)
	h.Set("Content-Length", strconv.Itoa(len(body)+1))
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(e.Status)
	w.Write(append(body, '\n'))
}

// maxErrorBody bounds how much of an error's body a client reads, in bytes.
const maxErrorBody = 16 << 10

// readError makes the Error of an answer that is not a success. It reads the
// body, at most maxErrorBody, and does not close it. Whatever the other side
// sent, a proxy's HTML included, becomes some message.
func readError(res *http.Response) *Error {
	e := &Error{Status: res.StatusCode, Header: res.Header}
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBody))
	if t, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); t == problemType {
		var p problem
		if json.Unmarshal(body, &p) == nil {
			e.Code, e.Message = p.Code, p.Detail
			if e.Message == "" {
				e.Message = p.Title
			}
		}
	} else {
		e.Message = OneLine(string(body))
	}
	if e.Code == "" {
		e.Code = "HTTP_" + strconv.Itoa(e.Status)
	}
	if e.Message == "" {
		e.Message = http.StatusText(e.Status)
	}
	return e
}

// OneLine makes foreign text fit for a message: printable, short, one line.
func OneLine(s string) string {
	const most = 200
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r)
	}), " ")
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return s
}
