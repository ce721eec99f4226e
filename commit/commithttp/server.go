// Package commithttp carries the messages of the completion protocol over HTTP.
package commithttp

import (
	"context"
	"net/http"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/commit"
)

// Answerer answers a well-formed message.
type Answerer func(ctx context.Context, m commit.Message) commit.Reply

// Handler serves POST /protocol/{message}. Mount it at exactly that pattern, or
// at the prefix /protocol/.
func Handler(log zerolog.Logger, answer Answerer) http.Handler { return http.NotFoundHandler() }
