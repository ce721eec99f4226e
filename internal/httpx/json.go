package httpx

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// ReadBody reads the whole body of a request, at most maxBytes; more is a 413.
func ReadBody(r *http.Request, maxBytes int64) ([]byte, error) {
	if r.ContentLength > maxBytes {
		return nil, tooLarge(maxBytes)
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBytes))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, tooLarge(maxBytes)
	}
	if err != nil {
		return nil, Errorf(http.StatusBadRequest, CodeInvalidRequest, "the body could not be read").With(err)
	}
	return body, nil
}

func tooLarge(maxBytes int64) *Error {
	return Errorf(http.StatusRequestEntityTooLarge, CodeBodyTooLarge, "the body is larger than %d bytes", maxBytes)
}

// ReadJSON reads the body of a request, one JSON value of at most maxBytes. A
// larger body is a 413, anything that does not fit into is a 400 that says
// where. Unknown fields are ignored, so that a newer client can talk to an
// older server.
func ReadJSON(r *http.Request, maxBytes int64, into any) error {
	body, err := ReadBody(r, maxBytes)
	if err != nil {
		return err
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return Errorf(http.StatusBadRequest, CodeInvalidRequest, "the body is empty; JSON is expected")
	}
	if err := json.Unmarshal(body, into); err != nil {
		return Errorf(http.StatusBadRequest, CodeInvalidRequest, "the body is not the JSON expected: %s", jsonProblem(err)).With(err)
	}
	return nil
}

// jsonProblem says what is wrong in the client's words: its field names and
// positions, not our Go types.
func jsonProblem(err error) string {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && e.Field != "" {
		return fmt.Sprintf("field %s cannot be %s", e.Field, e.Value)
	}
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Sprintf("%s (at byte %d)", e, e.Offset)
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

// WriteJSON answers with v. It encodes before it writes: an error means that
// nothing was sent.
func WriteJSON(w http.ResponseWriter, status int, v any) error {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("httpx: encode answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(body.Len()))
	w.WriteHeader(status)
	// A failed write is a client that went away: nothing to do, no one to tell.
	_, _ = w.Write(body.Bytes())
	return nil
}
