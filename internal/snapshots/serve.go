// Package snapshots moves snapshots of the metadata between servers, by the chunk path
// that moves segments too (DESIGN §8.1, METALOG §3 and §4).
//
// It owns the routes below /metadata/snapshots with the checks that come before a chunk
// (serve.go), the download of a snapshot from several holders (fetch.go; source.go asks
// one of them), and the judgement of what went wrong with it (failure.go). Bytes on the
// wire, pieces and journals are package peerdl's, the files and what a good snapshot is
// package metalog's. Which snapshot is wanted, and what is done with it, is the
// follower's to say.
//
// Start at Server to serve, at Fetcher to fetch.
package snapshots

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/peerdl"
	"github.com/shoalstore/shoal/segment"
)

// Path is where a server lists its snapshots; each is below it, by its id.
const Path = "/metadata/snapshots"

// ServerConfig is what a Server serves from.
type ServerConfig struct {
	Snapshots *metalog.Snapshots
	// Standing is who leads, as far as is known here, and whether this server is
	// shutting down.
	Standing func() (st metalog.Standing, down bool)
	// Use is called when something of a snapshot is about to be sent, every few seconds
	// while it is, and when it was, so that it stays while more is asked for; false says
	// that it is gone. Nil: nothing is kept for anybody.
	Use func(id metalog.SnapshotID) bool
	// Limiter caps the sends at a time; nil: no cap.
	Limiter *peerdl.Limiter
	Rate    *peerdl.Rate    // budget of what is sent; nil: no limit
	Metrics *peerdl.Metrics // nil: none
	Logger  zerolog.Logger

	useEvery time.Duration // tests shorten it
}

// Server answers GET and HEAD of Path and of what is below it. It keeps nothing of whoever
// asks. Register it bare, on both patterns: a middleware that wraps the writer costs the
// sendfile.
type Server struct {
	cfg ServerConfig
	mux *http.ServeMux
}

// NewServer returns a handler for the snapshots of a directory.
func NewServer(cfg ServerConfig) *Server {
	cfg.useEvery = cmp.Or(cfg.useEvery, 15*time.Second)
	s := &Server{cfg: cfg, mux: http.NewServeMux()}
	log := cfg.Logger.With().Str("component", "snapshots").Logger()
	s.mux.Handle("GET "+Path, httpx.Handler(log, s.list))
	s.mux.Handle("GET "+Path+"/{id}", httpx.Handler(log, s.send))
	s.mux.Handle("GET "+Path+"/{id}/pieces", httpx.Handler(log, s.sendPieces))
	s.mux.Handle("/", httpx.Handler(log, func(_ http.ResponseWriter, r *http.Request) error {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			return httpx.Errorf(http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED", "snapshots are only read").WithHeader("Allow", "GET, HEAD")
		}
		return httpx.Errorf(http.StatusNotFound, "NOT_FOUND", "no such path")
	}))
	return s
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Item is a snapshot in the list.
type Item struct {
	ID string `json:"id"` // as paths have it
	metalog.SnapshotRef
	// Time is that of its last batch; left out if the file cannot be read.
	Time time.Time `json:"time,omitzero"`
}

// list tells what there is to fetch, by id.
func (s *Server) list(w http.ResponseWriter, r *http.Request) error {
	st, _ := s.cfg.Standing()
	st.SetHeader(w.Header())
	refs := s.cfg.Snapshots.List()
	key := func(r metalog.SnapshotRef) string { return r.SnapshotID.String() }
	slices.SortFunc(refs, func(a, b metalog.SnapshotRef) int { return cmp.Compare(key(a), key(b)) })
	page, err := httpx.Page(r, slices.Values(refs), key)
	if err != nil {
		return err
	}
	out := httpx.List[Item]{Items: []Item{}, Next: page.Next}
	for _, ref := range page.Items {
		item := Item{ID: key(ref), SnapshotRef: ref}
		h, err := s.cfg.Snapshots.Header(ref.SnapshotID)
		if errors.Is(err, metalog.ErrSnapshotNotFound) {
			continue // it has just gone
		}
		if err == nil {
			item.Time = time.UnixMilli(h.Time).UTC()
		}
		out.Items = append(out.Items, item)
	}
	return httpx.WriteJSON(w, http.StatusOK, out)
}

func (s *Server) send(w http.ResponseWriter, r *http.Request) error {
	ref, err := s.admit(w, r)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Disposition", `attachment; filename="`+ref.SnapshotID.String()+`.checkpoint"`)
	return peerdl.Serve(w, r, resource{s: s, ref: ref}, s.options())
}

func (s *Server) sendPieces(w http.ResponseWriter, r *http.Request) error {
	ref, err := s.admit(w, r)
	if err != nil {
		return err
	}
	return peerdl.ServePieces(w, r, resource{s: s, ref: ref, list: true}, s.options())
}

func (s *Server) options() peerdl.Options {
	return peerdl.Options{ContentType: ContentType, Limiter: s.cfg.Limiter, Rate: s.cfg.Rate, Metrics: s.cfg.Metrics}
}

// ContentType is that of a snapshot's bytes.
const ContentType = "application/vnd.shoal.snapshot"

// admit does the checks of METALOG §3, for whatever is asked of a snapshot.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) (metalog.SnapshotRef, error) {
	st, down := s.cfg.Standing()
	st.SetHeader(w.Header())
	q := metalog.ParseSnapshotQuery(r.PathValue("id"), r.URL.Query())
	ref, ok := s.cfg.Snapshots.Get(q.ID)
	held := &ref
	if !ok {
		held = nil
	}
	code, err := q.Refuse(st, down, held)
	switch {
	case code == metalog.CodePositionOutOfRange:
		return ref, metalog.Refusal(code, err).WithHeader("Content-Range", fmt.Sprintf("bytes */%d", ref.SizeBytes))
	case code != "":
		return ref, metalog.Refusal(code, err)
	case !s.use(q.ID):
		return ref, gone(q.ID, metalog.ErrSnapshotNotFound)
	}
	return ref, nil
}

func gone(id metalog.SnapshotID, cause error) error {
	return metalog.Refusal(metalog.CodeSnapshotNotFound, fmt.Errorf("snapshot %s is not here any more", id)).With(cause)
}

func (s *Server) use(id metalog.SnapshotID) bool { return s.cfg.Use == nil || s.cfg.Use(id) }

// resource is a snapshot as peerdl serves it.
type resource struct {
	s    *Server
	ref  metalog.SnapshotRef
	list bool // the piece list is wanted
}

func (r resource) Size() int64            { return r.ref.SizeBytes }
func (r resource) Digest() segment.Digest { return r.ref.Digest }

// Open opens the snapshot, and uses it until it is released: a slow reader may take longer
// for what it asked for than one waits for the next chunk.
func (r resource) Open() (f vfs.File, pieces *segment.Pieces, release func(), err error) {
	if f, err = r.s.cfg.Snapshots.OpenFile(r.ref.SnapshotID); err == nil && r.list {
		if pieces, err = r.s.cfg.Snapshots.Pieces(r.ref.SnapshotID); err != nil {
			err = errors.Join(err, f.Close())
		}
	}
	if errors.Is(err, metalog.ErrSnapshotNotFound) {
		err = gone(r.ref.SnapshotID, err)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	return f, pieces, r.s.keepUsing(r.ref.SnapshotID), nil
}

// keepUsing uses a snapshot again and again until end is called, and then once more.
func (s *Server) keepUsing(id metalog.SnapshotID) (end func()) {
	if s.cfg.Use == nil {
		return func() {}
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		every := time.NewTicker(s.cfg.useEvery)
		defer every.Stop()
		for {
			select {
			case <-every.C:
				s.use(id)
			case <-stop:
				s.use(id)
				return
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
	}
}
