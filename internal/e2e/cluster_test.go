package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/controller"
	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/internal/node"
	"github.com/shoalstore/shoal/meta"
)

// cluster is a controller and nodes in this process, with real HTTP between
// them, below one temporary directory.
type cluster struct {
	t      *testing.T
	dir    string
	client *api.Client
	url    string
	stop   context.CancelFunc
	done   sync.WaitGroup
}

func startCluster(t *testing.T, nodes int) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: t.TempDir()}
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	log := zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.InfoLevel).With().Timestamp().Logger()
	if err := os.MkdirAll(filepath.Join(c.dir, "stream"), 0o755); err != nil {
		t.Fatal(err)
	}
	deep := filepath.Join(c.dir, "deepstore")
	ctl, err := controller.Open(controller.Config{
		Data: filepath.Join(c.dir, "controller"), Listen: "127.0.0.1:0",
		StreamRoot: filepath.Join(c.dir, "stream"), DeepStoreRoots: []string{deep},
	}, log)
	if err != nil {
		t.Fatal(err)
	}
	c.url = ctl.URL()
	c.run(ctx, "controller", ctl.Run, ctl.Close)
	for i := range nodes {
		n, err := node.Open(node.Config{
			Controllers: []string{c.url}, Data: filepath.Join(c.dir, fmt.Sprintf("node-%d", i+1)), ID: fmt.Sprintf("node-%d", i+1),
			Listen: "127.0.0.1:0", StreamRoot: filepath.Join(c.dir, "stream"), DeepStoreRoots: []string{deep},
		}, log)
		if err != nil {
			t.Fatal(err)
		}
		c.run(ctx, n.ID(), n.Run, n.Close)
	}
	c.client = api.NewClient(&httpx.Client{}, c.url)
	t.Cleanup(func() { stop(); c.done.Wait() })
	return c
}

func (c *cluster) run(ctx context.Context, what string, run func(context.Context) error, close func() error) {
	c.done.Go(func() {
		if err := run(ctx); err != nil {
			c.t.Errorf("%s: %v", what, err)
		}
		if err := close(); err != nil {
			c.t.Errorf("close %s: %v", what, err)
		}
	})
}

// await polls until ok says yes.
func (c *cluster) await(what string, ok func() (bool, string)) {
	c.t.Helper()
	last := ""
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		good, state := ok()
		if good {
			return
		}
		if state != last {
			c.t.Logf("waiting for %s: %s", what, state)
			last = state
		}
	}
	c.t.Fatalf("%s did not happen; last state: %s", what, last)
}

func (c *cluster) coverage(table string) (cov meta.TableCoverage, err error) {
	err = c.client.Get(context.Background(), "/tables/"+table+"/coverage", &cov)
	return cov, err
}

func TestMainJobInProcess(t *testing.T) {
	c := startCluster(t, 3)
	dir := filepath.Join(c.dir, "stream", "clicks")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	const rows = 2500
	for p := range 3 {
		f, err := os.Create(filepath.Join(dir, fmt.Sprintf("partition-%05d.ndjson", p)))
		if err != nil {
			t.Fatal(err)
		}
		for i := range rows {
			fmt.Fprintf(f, `{"id":%d,"name":"row %d of %d"}`+"\n", i, i, p)
		}
		f.Close()
	}
	deep, _ := deepstore.FileURI(filepath.Join(c.dir, "deepstore"))
	cfg := map[string]any{
		"name": "clicks", "stream": map[string]any{"type": "files", "path": "clicks"},
		"format":      map[string]any{"type": "json", "columns": []any{map[string]any{"name": "id", "type": "int64"}, map[string]any{"name": "name", "type": "string"}}},
		"replication": 3, "segment": map[string]any{"maxRows": 1000}, "deepStore": map[string]any{"uri": deep},
		"completion": map[string]any{"holdTime": "500ms"},
	}
	c.await("3 nodes UP", func() (bool, string) {
		var nodes httpx.List[api.NodeView]
		if err := c.client.Get(context.Background(), "/nodes", &nodes); err != nil {
			return false, err.Error()
		}
		return len(nodes.Items) == 3, fmt.Sprint(len(nodes.Items))
	})
	var made api.TableView
	if err := c.client.Post(context.Background(), "/tables", cfg, &made); err != nil {
		t.Fatal(err)
	}
	c.await("2 full segments of each partition", func() (bool, string) {
		cov, err := c.coverage("clicks")
		if err != nil {
			return false, err.Error()
		}
		segments := 0
		for _, p := range cov.Partitions {
			segments += p.Segments
		}
		return segments == 6, fmt.Sprint(segments)
	})
	var job api.ForceCommitted
	if err := c.client.Post(context.Background(), "/tables/clicks/forceCommit", nil, &job); err != nil {
		t.Fatal(err)
	}
	c.await("complete coverage", func() (bool, string) {
		cov, err := c.coverage("clicks")
		if err != nil {
			return false, err.Error()
		}
		b, _ := json.Marshal(cov)
		return cov.Complete && cov.Replicated, string(b)
	})
}
