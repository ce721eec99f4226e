package restore

import (
	"context"
	"errors"
	"fmt"

	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/metalog"
)

// readBytes is how much of a log is asked for at a time.
const readBytes = 1 << 20

// errNoLog says that a server does not have the log from there on.
var errNoLog = errors.New("the log is not there from this offset on")

// tail is the log of a server.
type tail interface {
	// read returns batches from a position on, none at the end of the log, and that end.
	// Epoch and term of the position may be those of a later batch. errNoLog: the log does
	// not have what comes next.
	read(ctx context.Context, from metalog.Position) (entries []metalog.Entry, end int64, err error)
}

// nodeTail is a node's copy.
type nodeTail struct {
	client *httpx.Client
	url    string
}

func (t nodeTail) read(ctx context.Context, from metalog.Position) ([]metalog.Entry, int64, error) {
	frames, end, err := metalog.FetchCopy(ctx, t.client, t.url, from.Offset, readBytes)
	var answer *httpx.Error
	if errors.As(err, &answer) && answer.Code == metalog.CodePositionOutOfRange {
		return nil, 0, fmt.Errorf("%w: %s", errNoLog, answer.Message)
	}
	if err != nil {
		return nil, 0, err
	}
	entries, err := metalog.DecodeEntries(frames)
	return entries, end, err
}

// leaderTail is the log of the controller that leads.
type leaderTail struct {
	client *httpx.Client
	url    string
}

func (t leaderTail) read(ctx context.Context, from metalog.Position) ([]metalog.Entry, int64, error) {
	answer, err := metalog.Fetch(ctx, t.client, metalog.FetchLog{URL: t.url, Query: metalog.FetchQuery{Position: from, MaxBytes: readBytes}})
	switch {
	case err != nil:
		return nil, 0, err
	case answer.Snapshot != nil:
		return nil, 0, fmt.Errorf("%w: %s names snapshot %s instead", errNoLog, t.url, answer.Snapshot.SnapshotID)
	case answer.Diverging != nil:
		return nil, 0, fmt.Errorf("%w: %s has another batch before offset %d", errNoLog, t.url, from.Offset)
	}
	entries, err := metalog.DecodeEntries(answer.Frames)
	return entries, answer.HighWatermark, err
}
