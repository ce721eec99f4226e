package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/peerdl"
	"github.com/shoalstore/shoal/segment"
)

// serveJob serves the one segment in a store as a node does, on bare routes:
// /segment and /segment/pieces; and /cpu, the processor time of the process so
// far in nanoseconds.
type serveJob struct{ Store string }

func (j *serveJob) run() error {
	store, err := openStore(j.Store)
	if err != nil {
		return err
	}
	held := store.Held()
	if len(held) != 1 {
		return fmt.Errorf("%d segments in the store, want 1", len(held))
	}
	ln, err := httpx.Listen("127.0.0.1:0", false)
	if err != nil {
		return err
	}
	res := resource{store, held[0]}
	opts := peerdl.Options{ContentType: "application/vnd.apache.parquet", Limiter: peerdl.NewLimiter(32), Metrics: peerdl.NewMetrics(nil)}
	mux := http.NewServeMux()
	handle := func(path string, h httpx.HandlerFunc) { mux.Handle(path, httpx.Handler(zerolog.Nop(), h)) }
	handle("GET /segment", func(w http.ResponseWriter, r *http.Request) error { return peerdl.Serve(w, r, res, opts) })
	handle("GET /segment/pieces", func(w http.ResponseWriter, r *http.Request) error { return peerdl.ServePieces(w, r, res, opts) })
	handle("GET /cpu", func(w http.ResponseWriter, _ *http.Request) error {
		return httpx.WriteJSON(w, http.StatusOK, cpuTime())
	})
	if err := json.NewEncoder(os.Stdout).Encode("http://" + ln.Addr().String()); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() { // ends with the process, which ends when Serve does
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	return httpx.Serve(ctx, zerolog.Nop(), ln, mux)
}

func openStore(dir string) (*segment.Store, error) {
	fsys, err := vfs.OS(dir)
	if err != nil {
		return nil, err
	}
	return segment.OpenStore(fsys, zerolog.Nop())
}

// resource is a held copy.
type resource struct {
	store *segment.Store
	held  segment.Held
}

func (r resource) Size() int64            { return r.held.SizeBytes }
func (r resource) Digest() segment.Digest { return r.held.Digest }
func (r resource) Open() (vfs.File, *segment.Pieces, func(), error) {
	return r.store.Open(r.held)
}

// makeSegment publishes a segment of random bytes in a new store: to those who
// carry it, it is as good as one that can be read.
func makeSegment(dir string, size int64) (held segment.Held, err error) {
	store, err := openStore(dir)
	if err != nil {
		return held, err
	}
	table := uuid.UUID{1}
	name := segment.Name{Table: streamName, Created: time.Now()}.String()
	f, path, err := store.Stage(table, 0, name)
	if err != nil {
		return held, err
	}
	var hasher segment.PieceHasher
	if _, err := io.CopyN(io.MultiWriter(f, &hasher), rand.NewChaCha8([32]byte{1}), size); err != nil {
		return held, errors.Join(err, f.Close())
	}
	pieces, digest := hasher.Sum()
	return store.Publish(f, path, table, 0, name, pieces, digest)
}
