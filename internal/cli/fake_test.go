package cli

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"math/rand"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/rs/zerolog"
	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/config"
	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/peerdl"
	"github.com/shoalstore/shoal/segment"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// moment is the time of everything in the fake cluster.
var moment = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

const segmentName = "flights__0__0__20261129T115900Z"

var (
	clusterID = uuid.MustParse("11111111-2222-3333-4444-555555555555")
	jobID     = uuid.MustParse("99999999-2222-3333-4444-555555555555")
)

// cluster is a controller and two nodes in one fake server; a real segment file
// is behind the nodes.
type cluster struct {
	*httptest.Server
	fs       vfs.FS
	file     string
	sealed   *segment.Sealed
	damaged  map[string]bool // nodes whose copy is
	coverage meta.TableCoverage
	sources  []api.SourceView // of the segment; nil: a deep store that is not here, and both nodes
	// withdrawn says that the deep store's copy of the segment is gone.
	withdrawn bool

	mu       sync.Mutex
	requests []string
	bodies   []string
}

// last is the last request.
func (c *cluster) last() (uri, body string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests[len(c.requests)-1], c.bodies[len(c.bodies)-1]
}

// newCluster builds a segment of a few incompressible pieces.
func newCluster(t *testing.T, sizeBytes int) *cluster {
	t.Helper()
	c := &cluster{fs: vfs.NewMem(), file: "a.parquet", damaged: map[string]bool{}}
	c.sealed = buildSegment(t, c.fs, c.file, sizeBytes)
	c.coverage = meta.TableCoverage{Table: "flights", Complete: true, Replicated: true,
		Partitions: []meta.PartitionCoverage{{NextOffset: c.sealed.End, StreamEnd: c.sealed.End, Segments: 1, Rows: c.sealed.Rows}}}
	c.Server = httptest.NewServer(c.routes())
	t.Cleanup(c.Close)
	return c
}

func buildSegment(t *testing.T, fs vfs.FS, name string, sizeBytes int) *segment.Sealed {
	t.Helper()
	f, err := fs.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	b, err := segment.NewBuilder(f, segment.BuilderConfig{Table: "flights", Format: segment.Format{Type: segment.FormatRaw}})
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewSource(1))
	for offset := int64(0); b.RawBytes() < int64(sizeBytes); offset++ {
		value := make([]byte, 64<<10)
		for i := 0; i < len(value); i += 8 {
			binary.LittleEndian.PutUint64(value[i:], random.Uint64())
		}
		row := segment.Row{Offset: offset, Timestamp: segment.NoTimestamp, Value: value, LeaderEpoch: segment.NoLeaderEpoch}
		if err := b.Append(&row); err != nil {
			t.Fatal(err)
		}
	}
	sealed, err := b.Seal(b.Position())
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return sealed
}

func (c *cluster) routes() http.Handler {
	mux := http.NewServeMux()
	answer := func(pattern string, v func(r *http.Request) any) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			c.mu.Lock()
			c.requests, c.bodies = append(c.requests, r.URL.RequestURI()), append(c.bodies, string(body))
			c.mu.Unlock()
			a := v(r)
			if err, ok := a.(error); ok {
				httpx.WriteError(w, err)
				return
			}
			_ = httpx.WriteJSON(w, http.StatusOK, a)
		})
	}
	fixed := func(v any) func(*http.Request) any { return func(*http.Request) any { return v } }
	answer("GET /leader", func(*http.Request) any {
		return api.LeaderView{ClusterID: clusterID, Leader: "http://leader:7070", Controller: "one", Epoch: 3, HighWatermark: 17}
	})
	// Two pages, so that a reader of the first one only is found out.
	answer("GET /nodes", func(r *http.Request) any {
		if r.URL.Query().Get("after") == "" {
			return httpx.List[api.NodeView]{Items: []api.NodeView{c.node("node-1", meta.NodeUp)}, Next: "node-1"}
		}
		return httpx.List[api.NodeView]{Items: []api.NodeView{c.node("node-2", meta.NodeUp), c.node("node-3", meta.NodeDown)}}
	})
	answer("GET /tables", fixed(httpx.List[api.TableView]{Items: []api.TableView{tableView()}}))
	answer("GET /tables/flights", fixed(tableView()))
	answer("POST /tables", fixed(tableView()))
	answer("POST /tables/validate", func(r *http.Request) any {
		if _, body := c.last(); strings.Contains(body, "elsewhere") {
			return httpx.Errorf(http.StatusUnprocessableEntity, api.CodeInvalidConfig, "deepStore.uri: not below an allowed root")
		}
		return tableView().Config
	})
	answer("GET /tables/flights/partitions", fixed(httpx.List[api.PartitionView]{Items: partitionViews()}))
	answer("GET /tables/flights/coverage", func(*http.Request) any { return c.coverage })
	answer("POST /tables/flights/forceCommit", fixed(api.ForceCommitted{Job: jobID, Segments: 2}))
	inState := func(state meta.TableState) any {
		v := tableView()
		v.State, v.Ending = state, 2
		return v
	}
	answer("PUT /tables/flights", fixed(tableView()))
	answer("DELETE /tables/flights", fixed(inState(meta.TableDeleting)))
	answer("POST /tables/flights/pauseConsumption", fixed(inState(meta.TablePaused)))
	answer("POST /tables/flights/resumeConsumption", fixed(inState(meta.TableActive)))
	answer("POST /nodes/{node}/{what}", func(r *http.Request) any {
		switch {
		case r.PathValue("node") == "node-9":
			return httpx.Errorf(http.StatusNotFound, api.CodeNodeNotFound, "no node is registered")
		case r.PathValue("what") == "drain":
			return c.node("node-1", meta.NodeDraining)
		}
		return c.node("node-1", meta.NodeUp)
	})
	answer("DELETE /nodes/{node}", func(r *http.Request) any {
		if r.PathValue("node") == "node-1" {
			return httpx.Errorf(http.StatusConflict, meta.CodeNodeInUse, "node node-1 is UP: drain and stop it first")
		}
		return nil
	})
	answer("GET /validation", fixed(validationView()))
	answer("POST /validation/run", func(r *http.Request) any {
		v := api.ValidationView{RanAt: moment, Took: 0.001, Pool: api.ValidationPool{Most: 16}}
		if q := r.URL.Query(); q.Get("dryRun") != "true" || q.Get("limit") != "7" {
			return httpx.Errorf(http.StatusBadRequest, api.CodeInvalidRequest, "not what was asked for")
		}
		v.Asks = []api.ValidationAsk{{Table: "flights", Segment: segmentName, Node: "node-1"}}
		return v
	})
	answer("GET /segments/flights", func(*http.Request) any {
		return httpx.List[api.SegmentView]{Items: []api.SegmentView{c.segment(), openSegment()}}
	})
	answer("GET /segments/flights/"+segmentName+"/metadata", func(*http.Request) any {
		return life{c.segment(), []api.SegmentEvent{
			{At: moment, Node: "node-1", What: "seal", Detail: "[0, 44)"},
			{At: moment.Add(time.Second), Node: "node-2", What: "upload", Error: "disk full"},
		}}
	})
	answer("GET /{node}/partitions", func(r *http.Request) any {
		v := api.ConsumingView{Table: "flights", Segment: "s", Seq: 1, State: "INITIAL_CONSUMING", Start: 3000, Offset: 3240, StreamEnd: 3249, LagRows: 9}
		if r.PathValue("node") == "node-2" {
			v.State, v.Offset, v.LagRows = "HOLDING", 3249, 0
		}
		return []api.ConsumingView{v}
	})
	answer("POST /{node}/segments/flights/"+segmentName+"/verify", func(r *http.Request) any {
		node := r.PathValue("node")
		v := copyVerdict{Node: node, OK: !c.damaged[node], Digest: c.sealed.Digest}
		if !v.OK {
			v.Problem = "piece 1 is damaged"
		}
		return v
	})
	bulk := func(serve func(http.ResponseWriter, *http.Request, peerdl.Resource, peerdl.Options) error) http.Handler {
		return httpx.Handler(zerolog.Nop(), func(w http.ResponseWriter, r *http.Request) error { return serve(w, r, c, peerdl.Options{}) })
	}
	mux.Handle("GET /{node}/segments/flights/"+segmentName, bulk(peerdl.Serve))
	mux.Handle("GET /{node}/segments/flights/"+segmentName+"/pieces", bulk(peerdl.ServePieces))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		httpx.WriteError(w, httpx.Errorf(http.StatusNotFound, api.CodeTableNotFound, "no table here"))
	})
	return mux
}

// The cluster is the resource that its nodes serve.

func (c *cluster) Size() int64            { return c.sealed.SizeBytes }
func (c *cluster) Digest() segment.Digest { return c.sealed.Digest }
func (c *cluster) Open() (vfs.File, *segment.Pieces, func(), error) {
	f, err := c.fs.Open(c.file)
	return f, c.sealed.Pieces, func() {}, err
}

func (c *cluster) node(id string, state meta.NodeState) api.NodeView {
	return api.NodeView{
		Node:          meta.Node{ID: id, URL: c.URL + "/" + id, Zone: "a", State: state, Incarnation: 2},
		LastHeartbeat: moment.Add(-2 * time.Second), Busy: 1, Partitions: 3, Consuming: 2, Segments: 4, SizeBytes: 5 << 20, AppliedOffset: 17,
	}
}

func tableView() api.TableView {
	cfg := meta.DefaultConfig()
	cfg.Name, cfg.Stream.Path = "flights", "flights"
	cfg.Segment.MaxAge = config.Duration(time.Hour)
	return api.TableView{
		Name: "flights", ID: clusterID, State: meta.TableActive, ConfigVersion: 1, Config: *cfg, CreatedAt: moment,
		Partitions: 2, PartitionStates: map[meta.PartitionState]int{meta.PartitionConsuming: 1, meta.PartitionPaused: 1}, Segments: 12, Rows: 9746, SizeBytes: 3 << 20, UnderReplicated: 1, SingleCopy: 0, NotInDeepStore: 2, LastError: "the stream has gone",
	}
}

func validationView() api.ValidationView {
	s := api.ValidationSegment{
		Table: "flights", Segment: segmentName, SizeBytes: 4 << 20, Committed: moment.Add(-time.Hour), SingleCopy: true, CountedCopies: 1, Replication: 3,
		Holders: []string{"node-1", "node-2"}, AskedOf: "node-2", Failures: 3, LastNode: "node-1", LastError: "503 Slow Down",
	}
	other := s
	other.Segment, other.SingleCopy, other.CountedCopies, other.AskedOf, other.LastNode, other.LastError = "flights__0__1__20261129T115930Z", false, 3, "", "", ""
	return api.ValidationView{
		RanAt: moment.Add(-20 * time.Second), Took: 0.0123, Image: 99,
		Tables: []api.ValidationTable{{
			Table:      "flights",
			SingleCopy: api.ValidationTotal{Segments: 1, Bytes: 4 << 20, Oldest: moment.Add(-time.Hour)},
			Awaiting:   api.ValidationTotal{Segments: 1002, Bytes: 8 << 30, Oldest: moment.Add(-2 * time.Hour)},
		}},
		SingleCopy: []api.ValidationSegment{s}, Awaiting: []api.ValidationSegment{s, other},
		NotConsuming:      []api.ValidationPartition{{Table: "flights", Partition: 3, Segment: "flights__3__0__20261129T115930Z", Why: "no replica of its segment is UP"}},
		NotConsumingTotal: 2, Stopped: []api.ValidationPartition{}, Asks: []api.ValidationAsk{},
		Pool:      api.ValidationPool{Running: 1, Most: 16, Waiting: 7, FailingTables: []string{"flights"}, Asked: 9, Failed: 3, Done: 5},
		DeepStore: api.ValidationDeepStore{PagesListed: 12, Lost: 1, Tables: []api.ValidationAudit{{Table: "flights", LastError: "503"}}},
	}
}

func partitionViews() []api.PartitionView {
	open := openSegment()
	open.LastError = &meta.LastError{Node: "node-3", At: moment.UnixMilli(), Error: "line 7 is too large"}
	return []api.PartitionView{
		{Partition: 0, State: meta.PartitionConsuming, Replicas: []string{"node-1", "node-2", "node-3"}, NextOffset: 3000, NextSeq: 2, Consuming: &open},
		{Partition: 1, State: meta.PartitionPaused, Replicas: []string{"node-1"}, NextOffset: 5, NextSeq: 1},
	}
}

func openSegment() api.SegmentView {
	return api.SegmentView{TableName: "flights", Sources: []api.SourceView{}, Segment: meta.Segment{
		Seq: 1, Name: "flights__0__1__20261129T120000Z", Status: meta.SegmentInProgress, Start: 3000,
		Replicas: []string{"node-1", "node-2", "node-3"},
	}}
}

func (c *cluster) segment() api.SegmentView {
	ms := moment.UnixMilli()
	v := api.SegmentView{
		TableName: "flights", CountedCopies: 2, InDeepStore: true,
		Segment: meta.Segment{
			Name: segmentName, Status: meta.SegmentDone, End: c.sealed.End, Rows: c.sealed.Rows, SizeBytes: c.sealed.SizeBytes,
			Digest: c.sealed.Digest, SHA256: c.sealed.SHA256, Replicas: []string{"node-1", "node-2"}, Committer: "node-1",
			Times:     meta.Times{Created: ms, Committed: ms + 1000, DeepStore: ms + 2000},
			LastError: &meta.LastError{Node: "node-2", At: ms, Error: "disk full"},
		},
		Sources: []api.SourceView{
			{URL: "file:///deepstore/x.parquet"},
			{Node: "node-1", URL: c.URL + "/node-1" + segmentPath("flights", segmentName)},
			{Node: "node-2", URL: c.URL + "/node-2" + segmentPath("flights", segmentName)},
		},
	}
	if c.withdrawn {
		v.InDeepStore, v.Sources = false, v.Sources[1:]
	}
	if c.sources != nil {
		v.Sources = c.sources
	}
	return v
}

// shoal runs a command line against the cluster.
func (c *cluster) shoal(t *testing.T, args ...string) (status int, out, errs string) {
	t.Helper()
	return shoalIn(t, "", append([]string{"--controller", c.URL}, args...)...)
}

func shoalIn(t *testing.T, stdin string, args ...string) (status int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	status = Main(context.Background(), args, IO{In: strings.NewReader(stdin), Out: &o, Err: &e, now: func() time.Time { return moment }})
	return status, o.String(), e.String()
}
