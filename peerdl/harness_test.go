package peerdl

import (
	"bytes"
	"errors"
	"math/rand"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/segment"
)

const piece = segment.PieceSize

// blob is a resource of random bytes in some file system.
type blob struct {
	data   []byte
	pieces *segment.Pieces
	digest segment.Digest
	fs     vfs.FS
	name   string
	pins   atomic.Int64
	// released, if set, hears of each release.
	released chan struct{}
}

func newBlob(tb testing.TB, fsys vfs.FS, size int) *blob {
	tb.Helper()
	b, err := makeBlob(fsys, size)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func makeBlob(fsys vfs.FS, size int) (b *blob, err error) {
	b = &blob{data: make([]byte, size), fs: fsys, name: "blob"}
	rand.New(rand.NewSource(int64(size))).Read(b.data)
	if b.pieces, b.digest, err = segment.HashFile(bytes.NewReader(b.data), int64(size)); err != nil {
		return nil, err
	}
	return b, vfs.WriteFile(fsys, b.name, b.data)
}

func (b *blob) Size() int64            { return int64(len(b.data)) }
func (b *blob) Digest() segment.Digest { return b.digest }

func (b *blob) Open() (vfs.File, *segment.Pieces, func(), error) {
	f, err := b.fs.Open(b.name)
	if err != nil {
		return nil, nil, nil, err
	}
	b.pins.Add(1)
	return f, b.pieces, func() {
		b.pins.Add(-1)
		if b.released != nil {
			b.released <- struct{}{}
		}
	}, nil
}

// handler serves the blob at /blob and its sidecar at /blob/pieces.
func (b *blob) handler(opts Options) http.Handler { return serving(b, opts) }

func serving(res Resource, opts Options) http.Handler {
	mux := http.NewServeMux()
	log := zerolog.Nop()
	mux.Handle("/blob", httpx.Handler(log, func(w http.ResponseWriter, r *http.Request) error {
		return Serve(w, r, res, opts)
	}))
	mux.Handle("/blob/pieces", httpx.Handler(log, func(w http.ResponseWriter, r *http.Request) error {
		return ServePieces(w, r, res, opts)
	}))
	return mux
}

// peer starts a server of the blob and returns it as a source. wrap, if not
// nil, stands before the handler and does the evil.
func (b *blob) peer(tb testing.TB, name string, wrap func(http.Handler) http.Handler) Source {
	tb.Helper()
	h := b.handler(Options{})
	if wrap != nil {
		h = wrap(h)
	}
	srv := httptest.NewServer(h)
	tb.Cleanup(srv.Close)
	return Source{Name: name, URL: srv.URL + "/blob"}
}

func (b *blob) request(fsys vfs.FS, sources ...Source) Request {
	return Request{Digest: b.digest, Size: b.Size(), Sources: sources, FS: fsys, Part: "x.part"}
}

// fastLimits are the default rules at a pace for tests, without an endgame, which
// a slow machine would begin by itself.
func fastLimits() *PlanLimits {
	l := DefaultPlanLimits()
	l.BackoffMin, l.BackoffMax, l.Blame = time.Millisecond, 10*time.Millisecond, 20*time.Millisecond
	l.SlowMin = time.Hour
	return &l
}

func testConfig(tb testing.TB) Config {
	transport := NewTransport()
	tb.Cleanup(transport.CloseIdleConnections)
	return Config{Client: &http.Client{Transport: transport}, limits: fastLimits(), Log: zerolog.Nop()}
}

// mustHold fails unless the result is the blob, byte for byte.
func (b *blob) mustHold(tb testing.TB, res *Result) {
	tb.Helper()
	got := make([]byte, b.Size())
	if _, err := res.File.ReadAt(got, 0); err != nil {
		tb.Fatal(err)
	}
	info, err := res.File.Stat()
	if err != nil || info.Size() != b.Size() || !bytes.Equal(got, b.data) {
		tb.Fatalf("downloaded file differs: %d of %d bytes, %v", info.Size(), b.Size(), err)
	}
	if root, err := res.Pieces.Root(); err != nil || root != b.digest {
		tb.Fatalf("piece list combines to %s, %v", root, err)
	}
}

func isPieces(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/pieces") }

func mustOS(tb testing.TB) vfs.FS {
	tb.Helper()
	fsys, err := vfs.OS(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	return fsys
}

func exists(fsys vfs.FS, name string) bool {
	_, err := fsys.Stat(name)
	return !errors.Is(err, os.ErrNotExist)
}
