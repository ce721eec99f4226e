package restore

import (
	"context"
	"fmt"
	"math/rand"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/internal/snapshots"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	testCluster  = uuid.MustParse("00000000-0000-4000-8000-0000000000c1")
	otherCluster = uuid.MustParse("00000000-0000-4000-8000-0000000000c2")
)

// run is how many batches one epoch has, and what its term is made of.
type run struct {
	epoch, batches int64
	term           string
}

// history makes the batches of a log, of about so many KiB each.
func history(cluster uuid.UUID, kib int, runs ...run) (all []*meta.Batch) {
	for _, r := range runs {
		term := uuid.NewSHA1(uuid.NameSpaceOID, fmt.Appendf(nil, "%d %s", r.epoch, r.term))
		for i := range r.batches {
			n := int64(len(all))
			b := &meta.Batch{Offset: n, Epoch: r.epoch, Term: term, Time: 1_790_000_000_000 + n*1000}
			if n == 0 {
				b.Upserts = append(b.Upserts, &meta.Cluster{ID: cluster, FormatVersion: meta.FormatVersion})
			}
			if i == 0 {
				b.Upserts = append(b.Upserts, &meta.Leader{Epoch: r.epoch, Term: term, Controller: "c", URL: "http://c"})
			}
			for k := 0; k <= kib; k += 40 {
				b.Upserts = append(b.Upserts, &meta.Job{
					ID: uuid.MustParse(fmt.Sprintf("10000000-0000-4000-8000-%08d%04d", n, k)), Kind: "test", State: meta.JobRunning, Created: n + 1,
					Args: map[string]string{"filler": strings.Repeat(string(rune('a'+n%26)), min(kib, 40)<<10)},
				})
			}
			all = append(all, b)
		}
	}
	return all
}

func imageAfter(t testing.TB, batches []*meta.Batch) *meta.Image {
	t.Helper()
	im := meta.Empty()
	for _, b := range batches {
		next, err := im.Apply(b)
		if err != nil {
			t.Fatal(err)
		}
		im = next
	}
	return im
}

// wantImage checks that an image is the one after the batches.
func wantImage(t testing.TB, got *meta.Image, batches []*meta.Batch) {
	t.Helper()
	write := func(im *meta.Image) metalog.SnapshotRef {
		ref, err := metalog.WriteSnapshot(context.Background(), vfs.NewMem(), "s", im)
		if err != nil {
			t.Fatal(err)
		}
		return ref
	}
	if g, w := write(got), write(imageAfter(t, batches)); g != w {
		t.Fatalf("the image is that of snapshot %+v, want %+v", g, w)
	}
}

// server is a server of the metadata.
type server struct {
	*httptest.Server
	disk  vfs.FS // of a node
	snaps *metalog.Snapshots

	mu     sync.Mutex
	asked  []string                         // paths with their queries
	before func(w http.ResponseWriter) bool // of each chunk of a snapshot: false ends it here
}

// requests are those since the last call whose URL has part in it.
func (s *server) requests(part string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.asked {
		if strings.Contains(a, part) {
			n++
		}
	}
	s.asked = nil
	return n
}

// has is what a server has: the log from start on and the snapshots that end there.
type has struct {
	batches   []*meta.Batch
	start     int
	snapshots []int
	future    []*meta.Batch // of which there are snapshots too
	standing  metalog.Standing
}

func (h has) write(t testing.TB, disk vfs.FS, dir string) (*metalog.Log, *metalog.Snapshots) {
	t.Helper()
	log, err := metalog.OpenLog(disk, metalog.LogOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if h.start > 0 {
		if err := log.Reset(metalog.After(h.batches[h.start-1])); err != nil {
			t.Fatal(err)
		}
	}
	for _, b := range h.batches[h.start:] {
		if err := log.Append(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	snaps, err := metalog.OpenSnapshots(disk, "", zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	all := h.batches
	if h.future != nil {
		all = h.future
	}
	for _, end := range h.snapshots {
		if _, err := snaps.Write(t.Context(), imageAfter(t, all[:end])); err != nil {
			t.Fatal(err)
		}
	}
	return log, snaps
}

// node serves what it has as a node does: by the routes that a node has.
func (h has) node(t testing.TB) *server {
	t.Helper()
	disk := vfs.NewMem()
	log, _ := h.write(t, disk, "cache")
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := metalog.OpenFollower(metalog.FollowerConfig{
		FS: disk, Dir: "cache", SnapshotsDir: metalog.SnapshotsDir, Rand: rand.New(rand.NewSource(1)), Client: &httpx.Client{}, Logger: zerolog.Nop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	mux := http.NewServeMux()
	mux.Handle("GET "+metalog.CopyPath, f.CopyServer(zerolog.Nop()))
	s := serve(t, mux, f.Snapshots(), h.standing)
	s.disk = disk
	return s
}

// leader serves what it has as the controller that leads.
func (h has) leader(t testing.TB) *server {
	t.Helper()
	log, snaps := h.write(t, vfs.NewMem(), "log")
	t.Cleanup(func() { log.Close() })
	srv := metalog.NewServer(metalog.ServerConfig{Log: log, Logger: zerolog.Nop(), Snapshots: func() (earliest, latest *metalog.SnapshotRef) {
		return snaps.Earliest(), snaps.Latest()
	}})
	h.standing.Leading = true
	srv.SetStanding(h.standing)
	mux := http.NewServeMux()
	mux.Handle("GET /metadata/log", srv)
	mux.HandleFunc("GET /leader", func(w http.ResponseWriter, _ *http.Request) {
		_ = httpx.WriteJSON(w, http.StatusOK, api.LeaderView{ClusterID: h.standing.Cluster, Leader: h.standing.URL, Epoch: h.standing.Epoch, HighWatermark: log.End()})
	})
	return serve(t, mux, snaps, h.standing)
}

func serve(t testing.TB, mux *http.ServeMux, snaps *metalog.Snapshots, standing metalog.Standing) *server {
	s := &server{snaps: snaps}
	files := snapshots.NewServer(snapshots.ServerConfig{Snapshots: snaps, Logger: zerolog.Nop(), Standing: func() (metalog.Standing, bool) { return standing, false }})
	mux.Handle(snapshots.Path, files)
	mux.Handle(snapshots.Path+"/", files)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked = append(s.asked, r.URL.RequestURI())
		s.mu.Unlock()
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func testClient(t testing.TB) *httpx.Client {
	c := &httpx.Client{}
	t.Cleanup(c.Close)
	return c
}

// into restores from the servers.
func into(t testing.TB, disk vfs.FS, servers ...*server) (*Restored, error) {
	t.Helper()
	cfg := Config{FS: disk, Client: testClient(t), Logger: zerolog.Nop()}
	for _, s := range servers {
		cfg.Nodes = append(cfg.Nodes, s.URL)
	}
	return Restore(context.Background(), cfg)
}

// recovered is the image that a controller finds in a directory.
func recovered(t testing.TB, disk vfs.FS) *meta.Image {
	t.Helper()
	log, err := metalog.OpenLog(disk, metalog.LogOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	snaps, err := metalog.OpenSnapshots(disk, "", zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	im, err := metalog.Recover(log, snaps, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	return im
}
