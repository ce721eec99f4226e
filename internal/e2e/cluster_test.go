package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/internal/controller"
	"github.com/shoalstore/shoal/internal/node"
)

// cluster is a controller and nodes in this process, with real HTTP between
// them, below one temporary directory: as shoal up runs them.
type cluster struct {
	observer
	dir  string
	done sync.WaitGroup
}

func startCluster(t *testing.T, nodes int) *cluster {
	t.Helper()
	c := &cluster{dir: t.TempDir()}
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(func() { stop(); c.done.Wait() })
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
	c.run(ctx, t, "controller", ctl)
	for i := range nodes {
		id := fmt.Sprintf("node-%d", i+1)
		n, err := node.Open(node.Config{
			Controllers: []string{ctl.URL()}, Data: filepath.Join(c.dir, id), ID: id, Listen: "127.0.0.1:0",
			StreamRoot: filepath.Join(c.dir, "stream"), DeepStoreRoots: []string{deep},
		}, log)
		if err != nil {
			t.Fatal(err)
		}
		c.run(ctx, t, id, n)
	}
	c.observer = newObserver(t, ctl.URL())
	return c
}

func (c *cluster) run(ctx context.Context, t *testing.T, what string, p part) {
	c.done.Go(func() {
		if err := p.Run(ctx); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if err := p.Close(); err != nil {
			t.Errorf("close %s: %v", what, err)
		}
	})
}

func TestMainJobInOneProcess(t *testing.T) {
	c := startCluster(t, 3)
	p := newProducer(t, filepath.Join(c.dir, "stream"), "clicks", 3)
	p.add(2500)
	deep, err := deepstore.FileURI(filepath.Join(c.dir, "deepstore"))
	if err != nil {
		t.Fatal(err)
	}
	c.awaitNodes(3)
	c.post("/tables", map[string]any{
		"name": "clicks", "stream": map[string]any{"type": "files", "path": "clicks"},
		"format":      map[string]any{"type": "json", "columns": []any{map[string]any{"name": "id", "type": "int64"}}},
		"replication": 3, "segment": map[string]any{"maxRows": 1000}, "deepStore": map[string]any{"uri": deep},
		"completion": map[string]any{"holdTime": "500ms"},
	}, nil)
	views, err := c.nodeViews()
	if err != nil {
		t.Fatal(err)
	}
	var urls []string
	for _, v := range views {
		urls = append(urls, v.URL)
	}
	c.awaitComplete("clicks", p.ends(), urls)
	if n := len(c.committedSegments("clicks")); n != 9 {
		t.Errorf("%d segments of three partitions of 2,500 rows at 1,000 rows each, want 9", n)
	}
}
