package controller

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

func (c *Controller) listSegments(w http.ResponseWriter, r *http.Request) error {
	im, t, err := c.table(r)
	if err != nil {
		return err
	}
	f, err := parseFilter(r.URL.Query())
	if err != nil {
		return err
	}
	page, err := httpx.Page(r, f.of(im, t), func(s *meta.Segment) string { return fmt.Sprintf("%010d-%019d", s.Partition, s.Seq) })
	if err != nil {
		return err
	}
	out := httpx.List[api.SegmentView]{Items: []api.SegmentView{}, Next: page.Next}
	for _, s := range page.Items {
		out.Items = append(out.Items, segmentView(im, t, s))
	}
	return httpx.WriteJSON(w, http.StatusOK, out)
}

// segment finds the segment of a path. Its name says where to look, and must be
// the record's.
func (c *Controller) segment(r *http.Request) (*meta.Image, *meta.Table, *meta.Segment, error) {
	im, t, err := c.table(r)
	if err != nil {
		return nil, nil, nil, err
	}
	raw := chi.URLParam(r, "segment")
	name, err := segment.ParseName(raw)
	if err != nil {
		return nil, nil, nil, httpx.Errorf(http.StatusBadRequest, api.CodeInvalidRequest, "%q is not the name of a segment", httpx.OneLine(raw))
	}
	s := im.Segment(meta.SegmentKey{Table: t.ID, Partition: name.Partition, Seq: name.Seq})
	if s == nil || s.Name != raw {
		return nil, nil, nil, httpx.Errorf(http.StatusNotFound, api.CodeSegmentNotFound, "table %q has no segment %q", t.Name, httpx.OneLine(raw))
	}
	return im, t, s, nil
}

// redirectToSegment sends a reader to the best live node, and to the deep store when
// there is none.
func (c *Controller) redirectToSegment(w http.ResponseWriter, r *http.Request) error {
	im, t, s, err := c.segment(r)
	if err != nil {
		return err
	}
	if s.Status == meta.SegmentInProgress {
		return httpx.Errorf(http.StatusConflict, "NOT_SEALED", "segment %q is still consuming", s.Name)
	}
	w.Header().Set("Cache-Control", "no-store")
	if src := liveSource(im, s); src.Node != "" {
		http.Redirect(w, r, src.URL+api.SegmentPath(t.Name, s.Name), http.StatusTemporaryRedirect)
		return nil
	}
	sent, err := c.redirectToDeepStore(w, r, im, s)
	if sent {
		return nil
	}
	return httpx.Errorf(http.StatusServiceUnavailable, api.CodeNoSource,
		"no node that is up has segment %q, and no link leads to a copy in the deep store", s.Name).
		With(err).WithHeader("Retry-After", "5")
}

// liveSource draws one of the nodes that have the segment, so that its readers spread
// over them; of those that are DRAINING only if there is no other. Without any its Node
// is empty.
func liveSource(im *meta.Image, s *meta.Segment) (drawn meta.Source) {
	up, n := false, 0
	for _, src := range meta.Sources(im, s, meta.PeersFirst, "") {
		if src.Node == "" {
			continue
		}
		switch isUp := im.Node(src.Node).State == meta.NodeUp; {
		case up && !isUp:
			continue
		case isUp && !up:
			up, n = true, 0
		}
		if n++; rand.N(n) == 0 {
			drawn = src
		}
	}
	return drawn
}

// segmentMetadata shows a segment's record with its life: what the nodes that
// have to do with it did to it. With ?links=true its deep-store copies come with
// addresses that anyone can read for a while.
func (c *Controller) segmentMetadata(w http.ResponseWriter, r *http.Request) error {
	im, t, s, err := c.segment(r)
	if err != nil {
		return err
	}
	links, err := httpx.BoolParam(r, "links")
	if err != nil {
		return err
	}
	view := segmentView(im, t, s)
	if links {
		w.Header().Set("Cache-Control", "no-store")
		c.linkSources(r.Context(), im, s, view.Sources)
	}
	return httpx.WriteJSON(w, http.StatusOK, struct {
		api.SegmentView
		Life []api.SegmentEvent `json:"life"`
	}{view, c.life(r.Context(), im, t, s)})
}

// lifeTimeout bounds how long a silent node holds up the answer.
const lifeTimeout = 2 * time.Second

// life joins the rings of the nodes, by time. A node that does not answer is an
// entry that says so.
func (c *Controller) life(ctx context.Context, im *meta.Image, t *meta.Table, s *meta.Segment) []api.SegmentEvent {
	ctx, cancel := context.WithTimeout(ctx, lifeTimeout)
	defer cancel()
	var (
		wg  sync.WaitGroup
		mu  sync.Mutex
		all = []api.SegmentEvent{}
	)
	for n := range im.Nodes() {
		if n.State == meta.NodeDown || !slices.Contains(s.Replicas, n.ID) && s.NodeLocation(n.ID) == nil {
			continue
		}
		wg.Go(func() {
			var events []api.SegmentEvent
			if err := c.nodes.GetJSON(ctx, n.URL+api.SegmentPath(t.Name, s.Name, "events"), &events); err != nil {
				events = []api.SegmentEvent{{At: time.Now().UTC(), Node: n.ID, What: "asked for its events", Error: err.Error()}}
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, events...)
		})
	}
	wg.Wait()
	slices.SortStableFunc(all, func(a, b api.SegmentEvent) int { return a.At.Compare(b.At) })
	return all
}
