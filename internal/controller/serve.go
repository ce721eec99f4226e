package controller

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/commit/commithttp"
	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/config"
	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/internal/snapshots"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
)

// maxBody bounds the JSON bodies of this server; that of a report of locations
// is larger.
const (
	maxBody       = 1 << 20
	maxReportBody = 8 << 20
)

// routes are all of the controller's. The bulk ones are bare: no middleware wraps the
// writer, so that the kernel sends the file (package peerdl).
func (c *Controller) routes() http.Handler {
	r := chi.NewRouter()
	httpx.Unrouted(r, c.handle)
	r.Use(httpx.RequireToken(c.cfg.ClusterToken))

	r.Method(http.MethodPost, "/protocol/{message}", commithttp.Handler(c.log, c.protocol)) // has its own fence
	r.Get("/healthz", c.handle(func(w http.ResponseWriter, _ *http.Request) error {
		return httpx.WriteJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	}))
	r.Get("/readyz", c.handle(c.ready))
	r.Method(http.MethodGet, "/metrics", promhttp.HandlerFor(c.reg, promhttp.HandlerOpts{}))
	r.Group(func(r chi.Router) {
		r.Use(c.fenced)
		c.leaderRoutes(r)
	})

	// The mux answers this one; here it is for the Allow header of what it does not.
	r.Get(snapshots.Path, c.snapshots)
	r.Head(snapshots.Path, c.snapshots)
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+snapshots.Path, c.snapshots)
	mux.HandleFunc(snapshots.Path+"/", c.snapshots)
	mux.Handle(snapshots.Path, r) // or the mux would send a POST to the line above
	mux.Handle("/", r)
	return mux
}

// leaderRoutes are what only the leader answers.
func (c *Controller) leaderRoutes(r chi.Router) {
	r.Post(api.PathRegister, c.answer(c.register))
	r.Post(api.PathHeartbeat, c.answer(c.heartbeat))
	r.Post(api.PathLocations, c.answer(c.locations))

	r.Get(api.PathLog, c.metadataLog)
	r.Post(snapshots.Path, c.answer(c.askSnapshot))
	r.Get("/leader", c.answer(c.leaderView))

	r.Get("/tables", c.answer(c.listTables, httpx.PageParams...))
	r.Post("/tables", c.answer(c.createTable))
	r.Post("/tables/validate", c.answer(c.validateTable))
	r.Get("/tables/{table}", c.answer(c.getTable))
	r.Get("/tables/{table}/partitions", c.answer(c.listTablePartitions, httpx.PageParams...))
	r.Get("/tables/{table}/coverage", c.answer(c.coverage))
	r.Post("/tables/{table}/forceCommit", c.answer(c.forceCommit))
	r.Get("/jobs/{job}", c.answer(c.getJob))
	c.adminRoutes(r)

	r.Get("/segments/{table}", c.answer(c.listSegments, slices.Concat(httpx.PageParams, filterParams())...))
	r.Get("/segments/{table}/{segment}", c.answer(c.redirectToSegment))
	r.Head("/segments/{table}/{segment}", c.answer(c.redirectToSegment))
	r.Get("/segments/{table}/{segment}/metadata", c.answer(c.segmentMetadata, "links"))

	r.Get("/nodes", c.answer(c.listNodes, httpx.PageParams...))
	r.Get(api.PathValidation, c.answer(c.getValidation, "limit"))
	r.Post(api.PathValidationRun, c.answer(c.runValidation, "limit", "dryRun"))
}

// answer is handle for a route in whose query only the parameters named may be.
func (c *Controller) answer(h httpx.HandlerFunc, params ...string) http.HandlerFunc {
	return c.handle(httpx.OnlyParams(h, params...))
}

func (c *Controller) handle(h httpx.HandlerFunc) http.HandlerFunc {
	return httpx.Handler(c.log, func(w http.ResponseWriter, r *http.Request) error {
		return c.toHTTP(h(w, r))
	}).ServeHTTP
}

// notLeader is the answer of a controller that does not lead, with who does.
func (c *Controller) notLeader() *httpx.Error {
	e := httpx.Errorf(http.StatusMisdirectedRequest, api.CodeNotLeader, "this controller does not lead at the moment")
	if leader := c.leaderHint(); leader != "" {
		e = e.WithHeader(api.HeaderLeader, leader)
	}
	return e
}

func (c *Controller) writeNotLeader(w http.ResponseWriter) { httpx.WriteError(w, c.notLeader()) }

// leaderHint is the URL of the controller that leads, as far as is known here.
func (c *Controller) leaderHint() string {
	if c.member == nil {
		return ""
	}
	return c.member.leaderURL()
}

// toHTTP gives the errors of the layers below their status. It is the one place
// that does.
func (c *Controller) toHTTP(err error) error {
	var refused *meta.Refusal
	var faults config.Faults
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return httpx.Errorf(refusalStatus(refused.Code), refused.Code, "%s", refused.Detail).With(err)
	case errors.As(err, &faults):
		return httpx.Errorf(http.StatusUnprocessableEntity, api.CodeInvalidConfig, "%s", faults.Error())
	case errors.Is(err, ErrNotLeading), errors.Is(err, metalog.ErrStopped), errors.Is(err, metalog.ErrPoisoned), errors.Is(err, errStopping):
		return c.notLeader().With(err)
	case errors.Is(err, metalog.ErrUnknown):
		return httpx.Errorf(http.StatusServiceUnavailable, "OUTCOME_UNKNOWN", "the change may or may not have been made; ask again").With(err)
	}
	return err
}

func refusalStatus(code string) int {
	switch code {
	case meta.CodeUnknownTable, meta.CodeUnknownPartition, meta.CodeUnknownSegment, meta.CodeUnknownJob:
		return http.StatusNotFound
	case meta.CodeInvalidConfig, meta.CodeInvalidNode, meta.CodeInvalidPartition, meta.CodeInvalidRecord, meta.CodeRecordTooLarge:
		return http.StatusUnprocessableEntity
	}
	return http.StatusConflict
}

// image is the committed state of the leader.
func (c *Controller) image() (*meta.Image, error) {
	s, err := c.leading()
	if err != nil {
		return nil, err
	}
	return s.writer.Image(), nil
}

// protocol answers a message of the completion protocol.
func (c *Controller) protocol(ctx context.Context, m commit.Message) commit.Reply {
	l, err := c.leading()
	if err != nil {
		return commit.Reply{Status: commit.NotLeader, Leader: c.leaderHint()}
	}
	reply := c.shell.message(ctx, m)
	// Between the machine's answer and this moment the process may have slept.
	if reply.Status == commit.NotLeader || !c.stillLeads(l) {
		return commit.Reply{Status: commit.NotLeader, Leader: c.leaderHint()}
	}
	return reply
}

// metadataLog serves the log, as long as this process leads.
func (c *Controller) metadataLog(w http.ResponseWriter, r *http.Request) {
	s, err := c.leading()
	if err != nil {
		httpx.WriteError(w, c.toHTTP(err))
		return
	}
	s.server.ServeHTTP(w, r)
}

func (c *Controller) leaderView(w http.ResponseWriter, _ *http.Request) error {
	im, err := c.image()
	if err != nil {
		return err
	}
	v := api.LeaderView{Epoch: im.Epoch(), HighWatermark: im.Next(), ClusterID: im.Cluster().ID}
	if l := im.Leader(); l != nil {
		v.Leader, v.Controller = l.URL, l.Controller
	}
	return httpx.WriteJSON(w, http.StatusOK, v)
}

func (c *Controller) ready(w http.ResponseWriter, _ *http.Request) error {
	if _, err := c.leading(); err != nil {
		if c.member != nil && c.member.follows() {
			return httpx.WriteJSON(w, http.StatusOK, map[string]string{"status": "ready", "role": "standby", "leader": c.leaderHint()})
		}
		return httpx.Errorf(http.StatusServiceUnavailable, api.CodeNotReady, "no leader: the log is being opened, or could not be written, or no controller leads that this one can follow")
	}
	return httpx.WriteJSON(w, http.StatusOK, map[string]string{"status": "ready", "role": "leader"})
}

// table finds the table of a path.
func (c *Controller) table(r *http.Request) (*meta.Image, *meta.Table, error) {
	im, err := c.image()
	if err != nil {
		return nil, nil, err
	}
	name := chi.URLParam(r, "table")
	t := im.TableByName(name)
	if t == nil {
		return nil, nil, httpx.Errorf(http.StatusNotFound, api.CodeTableNotFound, "no table %q", httpx.OneLine(name))
	}
	return im, t, nil
}

func parseID(r *http.Request, param string) (uuid.UUID, error) {
	id, err := uuid.Parse(chi.URLParam(r, param))
	if err != nil {
		return id, httpx.Errorf(http.StatusBadRequest, api.CodeInvalidRequest, "%q is not an id", httpx.OneLine(chi.URLParam(r, param)))
	}
	return id, nil
}
