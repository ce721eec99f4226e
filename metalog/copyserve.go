package metalog

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/httpx"
)

// CopyPath is where a node serves its own copy of the log: for a controller that has lost
// the original (METALOG §2). Followers fetch from the leader.
const CopyPath = "/metadata/log/copy"

// CopyServer returns the handler of CopyPath. Its parameters are offset and maxBytes, as
// those of a fetch; the answer is frames of what is committed, none at the end, and names
// the end as the high watermark. An offset before the copy, or after it, is refused with
// POSITION_OUT_OF_RANGE.
func (f *Follower) CopyServer(logger zerolog.Logger) http.Handler {
	return httpx.Handler(logger.With().Str("component", "metalog").Logger(), func(w http.ResponseWriter, r *http.Request) error {
		q := parseFetch(r.URL.Query())
		if q.malformed == nil && (q.Offset < 0 || q.MaxBytes <= 0) {
			q.malformed = errors.New("offset must not be negative, maxBytes must be positive")
		}
		if q.malformed != nil {
			return Refusal(CodeInvalidRequest, q.malformed)
		}
		frames, end, err := f.Read(q.Offset, q.MaxBytes)
		if out := (*OutOfRangeError)(nil); errors.As(err, &out) || err == nil && q.Offset > end {
			return Refusal(CodePositionOutOfRange, &OutOfRangeError{Offset: q.Offset, Start: f.cache.Start(), End: end})
		}
		if err != nil {
			return err
		}
		writeFrames(w, frames, end)
		return nil
	})
}

// writeFrames answers with frames, none of them at or beyond the high watermark.
func writeFrames(w http.ResponseWriter, frames []byte, highWatermark int64) {
	h := w.Header()
	h.Set(HeaderHighWatermark, strconv.FormatInt(highWatermark, 10))
	h.Set("Content-Type", ContentTypeFrames)
	h.Set("Content-Length", strconv.Itoa(len(frames)))
	w.WriteHeader(http.StatusOK)
	// A failed write is a reader that went away; it comes back with its offset.
	_, _ = w.Write(frames)
}
