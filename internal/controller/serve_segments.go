package controller

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

// filter is the query of GET /segments/{t}. Ranges are [from, to); a segment
// matches if it has any of them.
type filter struct {
	partition            *int32
	status               meta.SegmentStatus
	fromOffset, toOffset *int64
	fromTime, toTime     *int64 // ms
	problem              string
}

// The values of ?problem=.
const (
	problemAny             = "any"
	problemSingleCopy      = "singleCopy"
	problemUnderReplicated = "underReplicated"
	problemNotInDeepStore  = "notInDeepStore"
	problemError           = "error"
)

func parseFilter(q url.Values) (f filter, err error) {
	bad := func(name string) error {
		return httpx.Errorf(http.StatusBadRequest, api.CodeInvalidRequest, "%s=%s is not understood", name, httpx.OneLine(q.Get(name)))
	}
	if s := q.Get("partition"); s != "" {
		n, err := strconv.ParseInt(s, 10, 32)
		if err != nil || n < 0 {
			return f, bad("partition")
		}
		p := int32(n)
		f.partition = &p
	}
	switch f.status = meta.SegmentStatus(q.Get("status")); f.status {
	case "", meta.SegmentInProgress, meta.SegmentDone, meta.SegmentLost:
	default:
		return f, bad("status")
	}
	switch f.problem = q.Get("problem"); f.problem {
	case "", problemAny, problemSingleCopy, problemUnderReplicated, problemNotInDeepStore, problemError:
	default:
		return f, bad("problem")
	}
	for name, into := range map[string]**int64{"fromOffset": &f.fromOffset, "toOffset": &f.toOffset} {
		if s := q.Get(name); s != "" {
			n, err := strconv.ParseInt(s, 10, 64)
			if err != nil {
				return f, bad(name)
			}
			*into = &n
		}
	}
	for name, into := range map[string]**int64{"fromTime": &f.fromTime, "toTime": &f.toTime} {
		if s := q.Get(name); s != "" {
			t, err := time.Parse(time.RFC3339, s)
			if err != nil {
				return f, bad(name)
			}
			ms := t.UnixMilli()
			*into = &ms
		}
	}
	return f, nil
}

// matches reports whether the segment is asked for.
func (f *filter) matches(im *meta.Image, s *meta.Segment) bool {
	open := s.Status == meta.SegmentInProgress // its end is not known: it may have anything
	switch {
	case f.partition != nil && s.Partition != *f.partition,
		f.status != "" && s.Status != f.status,
		f.fromOffset != nil && !open && s.End <= *f.fromOffset,
		f.toOffset != nil && s.Start >= *f.toOffset,
		f.fromTime != nil && !open && (s.MaxTimestamp == segment.NoTimestamp || s.MaxTimestamp < *f.fromTime),
		f.toTime != nil && !open && (s.MinTimestamp == segment.NoTimestamp || s.MinTimestamp >= *f.toTime):
		return false
	}
	single := meta.IsSingleCopy(im, s)
	under := isUnderReplicated(im, s)
	failing := s.LastError != nil || s.Status == meta.SegmentLost
	away := false
	if cfg := im.CurrentConfig(s.Table); cfg != nil && cfg.DeepStore != nil {
		away = s.Status == meta.SegmentDone && !s.DeepStoreVerified()
	}
	switch f.problem {
	case problemAny:
		return single || under || failing || away
	case problemSingleCopy:
		return single
	case problemUnderReplicated:
		return under
	case problemNotInDeepStore:
		return away
	case problemError:
		return failing
	}
	return true
}

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

// of yields the table's segments that match, in order.
func (f *filter) of(im *meta.Image, t *meta.Table) iter.Seq[*meta.Segment] {
	all := im.TableSegments(t.ID)
	if f.partition != nil {
		all = im.Segments(t.ID, *f.partition)
	}
	return func(yield func(*meta.Segment) bool) {
		for s := range all {
			if f.matches(im, s) && !yield(s) {
				return
			}
		}
	}
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

// redirectToSegment sends a reader to the best live node.
func (c *Controller) redirectToSegment(w http.ResponseWriter, r *http.Request) error {
	im, t, s, err := c.segment(r)
	if err != nil {
		return err
	}
	if s.Status == meta.SegmentInProgress {
		return httpx.Errorf(http.StatusConflict, "NOT_SEALED", "segment %q is still consuming", s.Name)
	}
	for _, src := range meta.Sources(im, s, meta.PeersFirst, "") {
		if src.Node != "" {
			w.Header().Set("Cache-Control", "no-store")
			http.Redirect(w, r, src.URL+api.SegmentPath(t.Name, s.Name), http.StatusTemporaryRedirect)
			return nil
		}
	}
	return httpx.Errorf(http.StatusServiceUnavailable, api.CodeNoSource, "no node that is up has segment %q", s.Name).
		WithHeader("Retry-After", "5")
}

// segmentMetadata shows a segment's record with its life: what the nodes that
// have to do with it did to it.
func (c *Controller) segmentMetadata(w http.ResponseWriter, r *http.Request) error {
	im, t, s, err := c.segment(r)
	if err != nil {
		return err
	}
	return httpx.WriteJSON(w, http.StatusOK, struct {
		api.SegmentView
		Life []api.SegmentEvent `json:"life"`
	}{segmentView(im, t, s), c.life(r.Context(), im, t, s)})
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
