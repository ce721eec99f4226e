// Package commithttp carries the messages of the completion protocol over HTTP:
// POST /protocol/{message}, JSON in and out (PROTOCOL §1).
//
// It owns the wire: bounds, what is malformed, finding the leader. What a
// message means is package commit's, who answers it the controller's. Start
// reading at Handler, then Client.
package commithttp

import (
	"context"
	"errors"
	"net/http"
	"path"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/segment"
)

// maxBody bounds a message: the longest well-formed one is a tenth of it.
const maxBody = 128 << 10

// Answerer answers a well-formed message; it has a status for everything. It
// returns when ctx ends, whatever it returns then.
type Answerer func(ctx context.Context, m commit.Message) commit.Reply

// Handler serves POST /protocol/{message}; the last element of the path is the
// message's kind, so it can be mounted at that pattern or at the prefix. A
// malformed message is a 400, a well-formed one always a 200 with a status.
// Unknown fields are ignored.
func Handler(log zerolog.Logger, answer Answerer) http.Handler {
	return httpx.Handler(log, func(w http.ResponseWriter, r *http.Request) error {
		if r.Method != http.MethodPost {
			return httpx.Errorf(http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED", "a protocol message is a POST").
				WithHeader("Allow", http.MethodPost)
		}
		m, err := decode(r)
		if err != nil {
			return err
		}
		return httpx.WriteJSON(w, http.StatusOK, answer(r.Context(), m))
	})
}

// decode reads a message; what a body leaves out is what "not known" is.
func decode(r *http.Request) (commit.Message, error) {
	m := commit.Message{MinTimestamp: segment.NoTimestamp, MaxTimestamp: segment.NoTimestamp}
	if err := httpx.ReadJSON(r, maxBody, &m); err != nil {
		return m, err
	}
	m.Kind = commit.Kind(path.Base(r.URL.Path))
	err := m.Validate()
	if bad, ok := errors.AsType[*commit.InvalidMessage](err); ok {
		return m, httpx.Errorf(http.StatusBadRequest, httpx.CodeInvalidRequest, "%s %s", bad.Field, bad.Problem)
	}
	return m, err
}
