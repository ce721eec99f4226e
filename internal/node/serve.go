package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/internal/snapshots"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/peerdl"
	"github.com/shoalstore/shoal/segment"
)

// routes are all of the node's. The bulk ones are bare: no middleware wraps the
// writer, so that the kernel sends the file (package peerdl).
func (n *Node) routes() http.Handler {
	r := chi.NewRouter()
	httpx.Unrouted(r, n.handle)
	r.Use(httpx.RequireToken(n.cfg.ClusterToken))
	r.Get("/segments", n.answer(n.inventory, httpx.PageParams...))
	r.Get("/segments/{table}/{segment}/events", n.answer(n.segmentEvents))
	r.Post("/segments/{table}/{segment}/verify", n.answer(n.verifySegment))
	r.Post("/segments/{table}/{segment}/upload", n.answer(n.askUpload))
	r.Get("/segments/{table}/{segment}/upload", n.answer(n.uploadState))
	r.Get("/partitions", n.answer(n.listPartitions))
	r.Get("/healthz", n.handle(func(w http.ResponseWriter, _ *http.Request) error {
		return httpx.WriteJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	}))
	r.Get("/readyz", n.handle(n.ready))
	r.Method(http.MethodGet, "/metrics", promhttp.HandlerFor(n.reg, promhttp.HandlerOpts{}))

	mux := http.NewServeMux()
	mux.Handle("GET /segments/{table}/{segment}", n.handle(n.sendSegment))
	mux.Handle("GET /segments/{table}/{segment}/pieces", n.handle(n.sendPieces))
	mux.Handle(snapshots.Path, n.keeper)
	mux.Handle(snapshots.Path+"/", n.keeper)
	mux.Handle("GET "+metalog.CopyPath, n.follower.CopyServer(n.root))
	mux.Handle("/", r)
	return mux
}

func (n *Node) handle(h httpx.HandlerFunc) http.HandlerFunc { return httpx.Handler(n.log, h).ServeHTTP }

// answer is handle for a route in whose query only the parameters named may be.
func (n *Node) answer(h httpx.HandlerFunc, params ...string) http.HandlerFunc {
	return n.handle(httpx.OnlyParams(h, params...))
}

// resource is a held copy as peerdl serves it.
type resource struct {
	n    *Node
	held segment.Held
}

func (r resource) Size() int64            { return r.held.SizeBytes }
func (r resource) Digest() segment.Digest { return r.held.Digest }

// Open pins the copy. One that proves damaged, is not as long as it was or not
// there at all is looked at in full: it may have to go, and be fetched again.
func (r resource) Open() (vfs.File, *segment.Pieces, func(), error) {
	f, pieces, release, err := r.n.store.Open(r.held)
	if err == nil {
		if err = checkLength(f, r.held); err != nil {
			release()
		}
	}
	var damage *segment.DamageError
	if errors.As(err, &damage) || errors.Is(err, fs.ErrNotExist) {
		r.n.suspect(r.held)
		err = httpx.Errorf(http.StatusServiceUnavailable, api.CodeNoSource, "the copy of %s here is damaged, ask another", r.held.Name).With(err)
	}
	return f, pieces, release, err
}

func checkLength(f vfs.File, h segment.Held) error {
	info, err := f.Stat()
	if err == nil && info.Size() != h.SizeBytes {
		err = &segment.DamageError{Held: h, Problem: fmt.Sprintf("data has %d bytes, not %d", info.Size(), h.SizeBytes)}
	}
	return err
}

// path finds the segment that a path names. Names are checked against the
// grammar before anything is looked up.
func (n *Node) path(table, name string) (*meta.Segment, error) {
	parsed, err := segment.ParseName(name)
	if err != nil {
		return nil, httpx.Errorf(http.StatusBadRequest, api.CodeInvalidRequest, "%q is not the name of a segment", httpx.OneLine(name))
	}
	im := n.currentImage()
	t := im.TableByName(table)
	if t == nil {
		return nil, httpx.Errorf(http.StatusNotFound, api.CodeTableNotFound, "no table %q", httpx.OneLine(table))
	}
	s := im.Segment(meta.SegmentKey{Table: t.ID, Partition: parsed.Partition, Seq: parsed.Seq})
	if s == nil || s.Name != name {
		return nil, httpx.Errorf(http.StatusNotFound, api.CodeSegmentNotFound, "table %q has no segment %q", t.Name, httpx.OneLine(name))
	}
	return s, nil
}

// held finds the committed copy of the segment that a path names.
func (n *Node) held(table, name string) (*meta.Segment, segment.Held, error) {
	s, err := n.path(table, name)
	if err != nil {
		return nil, segment.Held{}, err
	}
	if s.Status != meta.SegmentDone {
		return nil, segment.Held{}, httpx.Errorf(http.StatusNotFound, api.CodeSegmentNotFound, "segment %q is %s: it is served once it is committed", s.Name, s.Status)
	}
	h, ok := n.store.Get(s.Table, s.Partition, s.Name, s.Digest)
	if !ok {
		return nil, segment.Held{}, httpx.Errorf(http.StatusNotFound, api.CodeSegmentNotFound, "node %s has no copy of segment %q", n.cfg.ID, s.Name)
	}
	return s, h, nil
}

func (n *Node) options(s *meta.Segment) peerdl.Options {
	return peerdl.Options{
		SHA256: s.SHA256, ModTime: time.UnixMilli(s.Times.Committed), ContentType: "application/vnd.apache.parquet",
		Limiter: n.sends, Rate: n.sendRate, Metrics: n.transfers,
	}
}

func (n *Node) sendSegment(w http.ResponseWriter, r *http.Request) error {
	s, h, err := n.held(r.PathValue("table"), r.PathValue("segment"))
	if err != nil {
		return err
	}
	w.Header().Set("Content-Disposition", `attachment; filename="`+segment.FileName(h.Name, h.Digest)+`"`)
	return peerdl.Serve(w, r, resource{n, h}, n.options(s))
}

func (n *Node) sendPieces(w http.ResponseWriter, r *http.Request) error {
	s, h, err := n.held(r.PathValue("table"), r.PathValue("segment"))
	if err != nil {
		return err
	}
	return peerdl.ServePieces(w, r, resource{n, h}, n.options(s))
}

// inventory lists what the store holds.
func (n *Node) inventory(w http.ResponseWriter, r *http.Request) error {
	im := n.currentImage()
	page, err := httpx.Page(r, slices.Values(n.store.Held()), func(h segment.Held) string { return inventoryKey(h) })
	if err != nil {
		return err
	}
	out := httpx.List[api.InventoryItem]{Items: []api.InventoryItem{}, Next: page.Next}
	for _, h := range page.Items {
		item := api.InventoryItem{
			TableID: h.Table, Partition: h.Partition, Segment: h.Name, SizeBytes: h.SizeBytes,
			Digest: h.Digest, State: string(h.State), Verified: h.Verified,
		}
		if t := im.Table(h.Table); t != nil {
			item.Table = t.Name
		}
		out.Items = append(out.Items, item)
	}
	return httpx.WriteJSON(w, http.StatusOK, out)
}

// inventoryKey sorts as the store does.
func inventoryKey(h segment.Held) string {
	k, _ := heldKey(h)
	return h.Table.String() + padded(int64(h.Partition)) + padded(k.Seq) + h.File()
}

func padded(n int64) string {
	s := strconv.FormatInt(n, 10)
	return "/" + strings.Repeat("0", max(0, 19-len(s))) + s
}

func (n *Node) segmentEvents(w http.ResponseWriter, r *http.Request) error {
	s, err := n.path(chi.URLParam(r, "table"), chi.URLParam(r, "segment"))
	if err != nil {
		return err
	}
	return httpx.WriteJSON(w, http.StatusOK, n.events.of(s.SegmentKey()))
}

// verifySegment reads the copy in full and says what it found. A damaged copy is
// quarantined and fetched again.
func (n *Node) verifySegment(w http.ResponseWriter, r *http.Request) error {
	_, h, err := n.held(chi.URLParam(r, "table"), chi.URLParam(r, "segment"))
	if err != nil {
		return err
	}
	result := map[string]any{"segment": h.Name, "node": n.cfg.ID, "digest": h.Digest, "ok": true}
	if err := n.verifyHeld(r.Context(), h); errors.Is(err, context.Canceled) {
		return err
	} else if err != nil {
		result["ok"], result["problem"] = false, err.Error()
	}
	return httpx.WriteJSON(w, http.StatusOK, result)
}

// askUpload has the copy here uploaded, whoever else would. How far it is, and what
// came of it, GET says.
func (n *Node) askUpload(w http.ResponseWriter, r *http.Request) error {
	return n.tellUpload(w, r, http.StatusAccepted, false)
}

func (n *Node) uploadState(w http.ResponseWriter, r *http.Request) error {
	return n.tellUpload(w, r, http.StatusOK, true)
}

func (n *Node) tellUpload(w http.ResponseWriter, r *http.Request, status int, poll bool) error {
	s, _, err := n.held(chi.URLParam(r, "table"), chi.URLParam(r, "segment"))
	if err != nil {
		return err
	}
	told, err := n.copies.askUpload(r.Context(), s.SegmentKey(), poll)
	if err != nil {
		return err
	}
	v := api.UploadState{Segment: s.Name, State: told.State, Failures: told.Failures, LastError: told.LastError, Different: told.Different}
	if told.Failures > 0 {
		v.LastErrorAt = time.Now().Add(told.LastAt - n.now()).UTC()
	}
	return httpx.WriteJSON(w, status, v)
}

func (n *Node) listPartitions(w http.ResponseWriter, _ *http.Request) error {
	views := n.partitions.views()
	slices.SortFunc(views, func(a, b api.ConsumingView) int {
		return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Seq, b.Seq))
	})
	return httpx.WriteJSON(w, http.StatusOK, views)
}

// newestViews are those of the segments that consume, one for each partition.
func (n *Node) newestViews() []api.ConsumingView {
	newest := map[string]api.ConsumingView{}
	for _, v := range n.partitions.views() {
		k := v.Table + "/" + partitionLabel(v.Partition)
		if old, ok := newest[k]; !ok || v.Seq > old.Seq {
			newest[k] = v
		}
	}
	out := make([]api.ConsumingView, 0, len(newest))
	for _, v := range newest {
		out = append(out, v)
	}
	return out
}

func partitionLabel(p int32) string { return strconv.FormatInt(int64(p), 10) }

// ready is whether the node can do its work: it is registered, has heard of a
// leader within the time after which it is taken for DOWN, and its image has
// caught up.
func (n *Node) ready(w http.ResponseWriter, _ *http.Request) error {
	n.mu.Lock()
	silent := n.now() - n.standing.heard
	registered := n.standing.registered
	n.mu.Unlock()
	switch {
	case n.life.Err() != nil:
		return httpx.Errorf(http.StatusServiceUnavailable, api.CodeNotReady, "draining")
	case !registered:
		return httpx.Errorf(http.StatusServiceUnavailable, api.CodeNotReady, "not registered with a leader yet")
	case silent > readyMax:
		return httpx.Errorf(http.StatusServiceUnavailable, api.CodeNotReady, "no leader has answered for %s", silent.Round(time.Second))
	case !n.caughtUp():
		return httpx.Errorf(http.StatusServiceUnavailable, api.CodeNotReady, "catching up with the metadata")
	}
	return httpx.WriteJSON(w, http.StatusOK, map[string]string{"status": "ready"})
}

// readyMax is how long a node without an answer of a leader still calls itself
// ready: after that it is DOWN to the others.
const readyMax = 10 * time.Second
