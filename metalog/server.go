package metalog

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/httpx"
)

// The headers of every answer, refusals included.
const (
	HeaderLeader        = "Shoal-Leader"
	HeaderLeaderEpoch   = "Shoal-Leader-Epoch"
	HeaderHighWatermark = "Shoal-High-Watermark"
)

// refusalStatus is the HTTP status of each code.
var refusalStatus = map[string]int{
	CodeInconsistentClusterID: http.StatusPreconditionFailed,
	CodeInvalidRequest:        http.StatusBadRequest,
	CodeFencedLeaderEpoch:     http.StatusConflict,
	CodeUnknownLeaderEpoch:    http.StatusConflict,
	CodeNotLeader:             http.StatusMisdirectedRequest,
	CodeNotAvailable:          http.StatusServiceUnavailable,
	CodeSnapshotNotFound:      http.StatusNotFound,
	CodePositionOutOfRange:    http.StatusRequestedRangeNotSatisfiable,
}

// Refusal is the answer that refuses a query with a code, for err.
func Refusal(code string, err error) *httpx.Error {
	return httpx.Errorf(refusalStatus[code], code, "%s", httpx.OneLine(err.Error()))
}

// SetHeader names leader and epoch in an answer.
func (st Standing) SetHeader(h http.Header) {
	h.Set(HeaderLeader, st.URL)
	h.Set(HeaderLeaderEpoch, strconv.FormatInt(st.Epoch, 10))
}

// ContentTypeFrames is that of an answer which is frames; the others are JSON.
const ContentTypeFrames = "application/vnd.shoal.frames"

// ServerConfig is what a Server serves from.
type ServerConfig struct {
	Log *Log
	// Snapshots returns the earliest and the latest snapshot that can be fetched,
	// nil for none. A nil func means that there are none.
	Snapshots func() (earliest, latest *SnapshotRef)
	Logger    zerolog.Logger
}

// Server answers GET /metadata/log. It keeps nothing of a follower between two
// requests. Until SetStanding is called it refuses everybody.
type Server struct {
	cfg     ServerConfig
	handler http.Handler
	log     zerolog.Logger

	mu       sync.Mutex
	standing Standing
	down     bool
	changed  chan struct{} // closed and replaced when standing or down changes
}

// NewServer returns a handler for the fetches of followers.
func NewServer(cfg ServerConfig) *Server {
	s := &Server{cfg: cfg, changed: make(chan struct{}), log: cfg.Logger.With().Str("component", "metalog").Logger()}
	s.handler = httpx.Handler(s.log, s.fetch)
	return s
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// SetStanding says who leads from now on; long polls in progress are decided anew.
func (s *Server) SetStanding(st Standing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.standing = st
	s.wake()
}

// Standing is who leads as far as is known here, and whether Shutdown was called.
func (s *Server) Standing() (st Standing, down bool) {
	st, down, _ = s.watch()
	return st, down
}

// Shutdown answers everybody NOT_AVAILABLE from now on, long polls in progress too.
func (s *Server) Shutdown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = true
	s.wake()
}

func (s *Server) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Server) watch() (st Standing, down bool, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.standing, s.down, s.changed
}

// fetch answers one request. It decides anew whenever what it decided on changes.
func (s *Server) fetch(w http.ResponseWriter, r *http.Request) error {
	q := parseFetch(r.URL.Query())
	var timeout <-chan time.Time // never, until there is something to wait for
	for waited := q.MaxWait == 0; ; {
		standing, down, moved := s.watch()
		standing.SetHeader(w.Header())
		if code, err := q.Refuse(standing, down); code != "" {
			return Refusal(code, err)
		}
		_, appended := s.cfg.Log.Watch() // before the state that is decided on
		answer, frames, err := s.cfg.Log.Answer(q.Position, q.MaxBytes, s.state())
		if trimmed := (*OutOfRangeError)(nil); errors.As(err, &trimmed) {
			continue // trimmed in between: the next decision says where to
		}
		switch {
		case err != nil && answer.Kind != AnswerSnapshot:
			return err
		case err != nil:
			s.log.Error().Err(err).Int64("offset", q.Offset).Str("snapshot", answer.Snapshot.String()).
				Msg("the log is damaged; followers that need what is there get a snapshot")
		}
		if answer.Kind != AnswerFrames {
			return s.redirect(w, answer)
		}
		if len(frames) > 0 || waited {
			return s.sendFrames(w, frames)
		}
		if timeout == nil {
			timer := time.NewTimer(q.MaxWait)
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case <-appended:
		case <-moved:
		case <-timeout:
			waited = true
		case <-r.Context().Done():
			return fmt.Errorf("metalog: fetch: %w", r.Context().Err())
		}
	}
}

func (s *Server) state() FetchState {
	st := s.cfg.Log.State()
	if s.cfg.Snapshots != nil {
		st.Earliest, st.Latest = s.cfg.Snapshots()
	}
	return st
}

// sendFrames names the high watermark as of after the read, so that no frame is
// beyond it.
func (s *Server) sendFrames(w http.ResponseWriter, frames []byte) error {
	writeFrames(w, frames, s.cfg.Log.End())
	return nil
}

// fetchRedirect is the JSON of an answer without frames; one field is set.
type fetchRedirect struct {
	Snapshot  *SnapshotRef `json:"snapshot,omitempty"`
	Diverging *Diverging   `json:"diverging,omitempty"`
}

func (s *Server) redirect(w http.ResponseWriter, a Answer) error {
	w.Header().Set(HeaderHighWatermark, strconv.FormatInt(s.cfg.Log.End(), 10))
	switch a.Kind {
	case AnswerSnapshot:
		return httpx.WriteJSON(w, http.StatusOK, fetchRedirect{Snapshot: &a.Snapshot})
	case AnswerDiverging:
		return httpx.WriteJSON(w, http.StatusOK, fetchRedirect{Diverging: &a.Diverging})
	default:
		return httpx.Errorf(http.StatusServiceUnavailable, CodeNotAvailable,
			"the log starts at offset %d and there is no snapshot of what comes before", s.cfg.Log.Start())
	}
}
