package metalog

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/shoalstore/shoal/internal/httpx"
)

// The log over HTTP, as whoever reads it asks for it.

const (
	// fetchIdle is how long a server may send nothing beyond the poll it was
	// granted. Bytes that arrive start it anew, so a slow link makes progress.
	fetchIdle = 10 * time.Second
	// fetchPath is where a controller serves its log; a node serves its copy at CopyPath.
	fetchPath = "/metadata/log"
)

// Fetch asks a leader once, as a follower does. A refusal is an *httpx.Error.
func Fetch(ctx context.Context, client *httpx.Client, a FetchLog) (FetchAnswer, error) {
	h, body, err := getLog(ctx, client, a.URL, fetchPath, a.Query.values(), a.Query.MaxWait)
	if err != nil {
		return FetchAnswer{}, err
	}
	answer, err := parseAnswer(a.URL, h, body)
	if err != nil {
		return FetchAnswer{}, fmt.Errorf("metalog: fetch from %s: %w", a.URL, err)
	}
	return answer, nil
}

// FetchCopy asks a node for what its own copy of the log has from an offset on: whole
// frames, one at least and none at the end of the copy, which is end. An offset that the
// copy does not have is an *httpx.Error of CodePositionOutOfRange.
func FetchCopy(ctx context.Context, client *httpx.Client, node string, offset int64, maxBytes int) (frames []byte, end int64, err error) {
	h, body, err := getLog(ctx, client, node, CopyPath, url.Values{
		"offset": {strconv.FormatInt(offset, 10)}, "maxBytes": {strconv.Itoa(maxBytes)},
	}, 0)
	if err != nil {
		return nil, 0, err
	}
	if end, err = strconv.ParseInt(h.Get(HeaderHighWatermark), 10, 64); err != nil {
		return nil, 0, fmt.Errorf("metalog: fetch from %s: header %s: %w", node, HeaderHighWatermark, err)
	}
	if t := mediaType(h); t != ContentTypeFrames {
		return nil, 0, fmt.Errorf("metalog: fetch from %s: answer of unknown type %q", node, t)
	}
	return body, end, nil
}

// answerBytesMax is the most that a server may send: what is asked for at most, or
// one frame.
const answerBytesMax = fetchBytesMax + MaxFramePayload + frameOverhead

var errIdle = errors.New("nothing came for too long")

// getLog makes one request, and returns headers and body of a 200.
func getLog(ctx context.Context, client *httpx.Client, server, path string, query url.Values, wait time.Duration) (http.Header, []byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(wait+fetchIdle, func() { cancel(errIdle) })
	defer idle.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(server, "/")+path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, nil, fmt.Errorf("metalog: fetch: %w", err)
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, nil, fmt.Errorf("metalog: fetch from %s: %w", server, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(&progressReader{res.Body, idle}, answerBytesMax+1))
	if err != nil {
		return nil, nil, fmt.Errorf("metalog: fetch from %s: %w", server, cmp.Or(context.Cause(ctx), err))
	}
	if len(body) > answerBytesMax {
		return nil, nil, fmt.Errorf("metalog: fetch from %s: the answer is larger than %d bytes", server, answerBytesMax)
	}
	return res.Header, body, nil
}

// progressReader starts the idle timer anew with whatever arrives.
type progressReader struct {
	r    io.Reader
	idle *time.Timer
}

func (p *progressReader) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	if n > 0 {
		p.idle.Reset(fetchIdle)
	}
	return n, err
}

// parseAnswer reads headers and body of a leader's 200.
func parseAnswer(url string, h http.Header, body []byte) (FetchAnswer, error) {
	epoch, err := strconv.ParseInt(h.Get(HeaderLeaderEpoch), 10, 64)
	if err != nil {
		return FetchAnswer{}, fmt.Errorf("header %s: %w", HeaderLeaderEpoch, err)
	}
	hw, err := strconv.ParseInt(h.Get(HeaderHighWatermark), 10, 64)
	if err != nil {
		return FetchAnswer{}, fmt.Errorf("header %s: %w", HeaderHighWatermark, err)
	}
	a := FetchAnswer{Leader: LeaderRef{URL: cmp.Or(h.Get(HeaderLeader), url), Epoch: epoch}, HighWatermark: hw}
	switch t := mediaType(h); t {
	case ContentTypeFrames:
		a.Frames = body
		return a, nil
	case "application/json":
		var r fetchRedirect
		if err := json.Unmarshal(body, &r); err != nil {
			return FetchAnswer{}, fmt.Errorf("answer: %w", err)
		}
		if (r.Snapshot == nil) == (r.Diverging == nil) {
			return FetchAnswer{}, errors.New("answer: neither frames nor exactly one of snapshot and diverging")
		}
		a.Snapshot, a.Diverging = r.Snapshot, r.Diverging
		return a, nil
	default:
		return FetchAnswer{}, fmt.Errorf("answer of unknown type %q", t)
	}
}

func mediaType(h http.Header) string {
	t, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return t
}
