package peerdl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/shoalstore/shoal/internal/httpx/httpxtest"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/segment"
)

// What networks, disks and sources do to a download, on real servers. Sources
// that lie, forged sidecars among them, are in download_test.go (liars);
// processes that are killed in kill_test.go; a full disk here.

// A source that falls silent in the middle of a piece is left for another.
func TestSourceStallsInMidPiece(t *testing.T) {
	b := newBlob(t, vfs.NewMem(), 3*piece+100)
	var asked atomic.Int64
	stalls := b.peer(t, "stalls", func(h http.Handler) http.Handler {
		return onBytes(h, func(w http.ResponseWriter, r *http.Request) {
			if asked.Add(1) > 4 {
				http.NotFound(w, r) // or the test would take as long as its patience
				return
			}
			var from int64
			if fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from); from%piece == 0 {
				half(h).ServeHTTP(w, r)
			} // and when it is asked for the rest, nothing
			<-r.Context().Done()
		})
	})
	other := b.peer(t, "other", nil)
	other.Rank = 1
	cfg := testConfig(t)
	cfg.Metrics, cfg.IdleTimeout = NewMetrics(nil), time.Second
	cfg.limits.Failures = 1000 // on a slow machine the other falls silent, too, and is asked again
	res := download(t, NewDownloader(cfg), b, b.request(vfs.NewMem(), stalls, other))
	if res.Stats.BySource[0] != 0 || res.Stats.WastedBytes == 0 || faults(t, cfg.Metrics, "stall") == 0 {
		t.Errorf("stats %+v, %v stalls", res.Stats, faults(t, cfg.Metrics, "stall"))
	}
}

func faults(t *testing.T, m *Metrics, kind string) float64 {
	t.Helper()
	return counted(t, m.faults.WithLabelValues(kind))
}

// When every source has failed, each is named with what it did last; and the same
// request, made again when one of them is well, goes on from what there was.
func TestAllSourcesAreBadAndThenOneIsNot(t *testing.T) {
	b := newBlob(t, vfs.NewMem(), 3*piece+100)
	var well atomic.Bool
	cut := b.peer(t, "cut", func(h http.Handler) http.Handler {
		return onBytes(h, func(w http.ResponseWriter, r *http.Request) {
			if !well.Load() && !strings.HasPrefix(r.Header.Get("Range"), "bytes=0-") {
				panic(http.ErrAbortHandler)
			}
			h.ServeHTTP(w, r)
		})
	})
	sources := []Source{
		cut, b.peer(t, "empty", func(http.Handler) http.Handler { return http.NotFoundHandler() }),
		b.peer(t, "liar", liars[0].wrap), {Name: "gone", URL: httpxtest.Refusing(t)},
	}
	for i := range sources[1:] {
		sources[1+i].Rank = 1 // so that the first piece is asked of the one that gives it
	}
	fsys := vfs.NewMem()
	d := NewDownloader(testConfig(t))
	_, err := d.Download(context.Background(), b.request(fsys, sources...))
	var none *NoSourceError
	if !errors.As(err, &none) || len(none.Sources) != len(sources) || none.Missing == 0 {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"cut: ", "EOF", "empty: ", "404", "liar: ", "damaged bytes", "gone: ", "connection refused"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	well.Store(true)
	res := download(t, d, b, b.request(fsys, sources...))
	if res.Stats.ResumedBytes == 0 {
		t.Errorf("stats %+v", res.Stats)
	}
}

// A disk that is full in the middle of a download ends it with the reason, leaves
// what came, and with room again the same request ends well.
func TestDiskIsFullInMidDownload(t *testing.T) {
	b := newBlob(t, vfs.NewMem(), 5*piece)
	fsys, makeRoom := smallDisk(t, 3*piece)
	src := b.peer(t, "one", nil)
	d := NewDownloader(testConfig(t))
	_, err := d.Download(context.Background(), b.request(fsys, src))
	if !errors.Is(err, syscall.ENOSPC) || errors.As(err, new(*NoSourceError)) || !strings.Contains(err.Error(), "x.part") || !strings.Contains(err.Error(), fsys.String()) {
		t.Fatalf("got %v", err)
	}
	makeRoom(10 * piece)
	res := download(t, d, b, b.request(fsys, src))
	t.Logf("%v; then %+v", err, res.Stats)
	if res.Stats.ResumedBytes < piece {
		t.Errorf("only %d bytes were kept", res.Stats.ResumedBytes)
	}
}

// smallDisk is a real file system of so many bytes where it can be had.
func smallDisk(t *testing.T, size int64) (fsys vfs.FS, makeRoom func(int64)) {
	t.Helper()
	dir := t.TempDir()
	unmount, resize, err := mountSmall(dir, size)
	if err != nil {
		t.Logf("no real file system can be mounted here (%v): one in memory runs out of space instead", err)
		space := vfs.WithSpace(vfs.NewMem(), size)
		return space, space.Add
	}
	t.Log("on a tmpfs of its own")
	t.Cleanup(func() {
		if err := unmount(); err != nil {
			t.Error(err)
		}
	})
	if fsys, err = vfs.OS(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if c, ok := fsys.(io.Closer); ok {
			c.Close()
		}
	})
	return fsys, func(more int64) {
		if err := resize(size + more); err != nil {
			t.Fatal(err)
		}
	}
}

// A hundred download one segment at once from two holders, each of which sends to
// four at a time: all of them end, and the memory of all together is bounded.
func TestAHundredDownloadsShareTwoHolders(t *testing.T) {
	const downloads = 100
	b := newBlob(t, mustOS(t), piece+100<<10)
	var sources []Source
	metrics := NewMetrics(nil)
	for _, name := range []string{"one", "two"} {
		// Their budget keeps the slots taken for long enough to be missed.
		srv := httptest.NewServer(b.handler(Options{Limiter: NewLimiter(4), Metrics: metrics, Rate: NewRate(80 << 20)}))
		t.Cleanup(srv.Close)
		sources = append(sources, Source{Name: name, URL: srv.URL + "/blob"})
	}
	fsys := mustOS(t)
	cfg := testConfig(t)
	cfg.Metrics, cfg.Buffers = NewMetrics(nil), 32
	d := NewDownloader(cfg)
	memory := watchMemory()
	began := time.Now()
	var all sync.WaitGroup
	var from [2]atomic.Int64
	for i := range downloads {
		all.Go(func() {
			req := b.request(fsys, sources...)
			req.Part = fmt.Sprintf("%d.part", i)
			req.Progress = func(Progress) { memory.look() }
			res, err := d.Download(context.Background(), req)
			if err != nil {
				t.Errorf("download %d: %v", i, err)
				return
			}
			if _, digest, err := segment.HashFile(res.File, b.Size()); err != nil || digest != b.digest {
				t.Errorf("download %d holds %s, %v", i, digest, err)
			}
			for s, n := range res.Stats.BySource {
				from[s].Add(n)
			}
			if err := errors.Join(res.File.Close(), Forget(fsys, req.Part)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	t.Logf("%d downloads took %s; refused %v times; bytes by holder %d, %d; %d MiB of heap at most",
		downloads, time.Since(began).Round(time.Millisecond), counted(t, metrics.refused), from[0].Load(), from[1].Load(), memory.grown()>>20)
	if from[0].Load() == 0 || from[1].Load() == 0 || from[0].Load()+from[1].Load() != downloads*b.Size() {
		t.Errorf("bytes by holder: %d and %d", from[0].Load(), from[1].Load())
	}
	if memory.grown() > 3*32*piece {
		t.Errorf("the heap grew by %d MiB", memory.grown()>>20)
	}
	if len(d.buffers.free) != cap(d.buffers.free) || len(d.buffers.idle) > cap(d.buffers.free) {
		t.Errorf("%d of %d places are free, %d buffers were made", len(d.buffers.free), cap(d.buffers.free), len(d.buffers.idle))
	}
}

// A proxy that cuts every few hundred KiB is only slow: every piece gets through,
// and what came in vain is told.
func TestProxyThatCutsAgainAndAgain(t *testing.T) {
	b := newBlob(t, mustOS(t), 3*piece+100)
	srv := httptest.NewServer(b.handler(Options{}))
	defer srv.Close()
	const every = 300 << 10
	proxy := cutting(t, srv.Listener.Addr().String(), every)
	res := download(t, NewDownloader(testConfig(t)), b, b.request(vfs.NewMem(), Source{URL: "http://" + proxy.addr + "/blob"}))
	cuts, passed := proxy.cuts.Load(), proxy.passed.Load()
	t.Logf("%d cuts; %d bytes passed the proxy for %d, %d of them were wasted", cuts, passed, b.Size(), res.Stats.WastedBytes)
	if cuts < b.Size()/every/2 {
		t.Errorf("only %d cuts", cuts)
	}
	if res.Stats.FetchedBytes != b.Size() || res.Stats.WastedBytes > passed-b.Size() {
		t.Errorf("stats %+v", res.Stats)
	}
}

// proxy passes TCP on.
type proxy struct {
	addr         string
	cuts, passed atomic.Int64
}

// counting counts what is passed on, before it is.
func (p *proxy) counting(to io.Writer) io.Writer {
	return writer(func(b []byte) (int, error) {
		p.passed.Add(int64(len(b)))
		return to.Write(b)
	})
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

// cutting is a proxy that ends each connection after so many bytes of an answer.
func cutting(t *testing.T, to string, every int64) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{addr: ln.Addr().String()}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer in.Close()
				out, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer out.Close()
				all.Go(func() { io.Copy(out, in) }) // ends with either of them
				if n, _ := io.CopyN(p.counting(in), out, every); n == every {
					p.cuts.Add(1)
				}
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		all.Wait()
	})
	return p
}

// The memory of a download does not grow with the segment. This one is of a
// gigabyte of zeros, from a sparse file to nowhere.
func TestDownloadOfAGigabyteIsBounded(t *testing.T) {
	size := int64(1<<30 + 12345)
	if testing.Short() {
		size = 128<<20 + 12345
		t.Logf("short: %d bytes only", size)
	}
	fsys := mustOS(t)
	f, err := fsys.Create("blob")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	pieces, digest, err := segment.HashFile(f, size)
	if err != nil {
		t.Fatal(err)
	}
	big := &sparse{fs: fsys, size: size, pieces: pieces, digest: digest}
	srv := httptest.NewServer(serving(big, Options{}))
	defer srv.Close()
	memory := watchMemory()
	req := Request{
		Digest: digest, Size: size, Sources: []Source{{URL: srv.URL + "/blob"}}, FS: sink{vfs.NewMem()}, Part: "x.part",
		Progress: func(Progress) { memory.look() },
	}
	res, err := NewDownloader(testConfig(t)).Download(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.File.Close()
	const most = 64 << 20 // two or three pieces in flight, and garbage
	t.Logf("%d bytes with %d MiB more of heap at most", size, memory.grown()>>20)
	if memory.grown() > most {
		t.Errorf("the heap grew by %d MiB", memory.grown()>>20)
	}
	if root, err := res.Pieces.Root(); err != nil || root != digest || res.Stats.FetchedBytes != size {
		t.Errorf("%+v, %v", res.Stats, err)
	}
}

// sparse is a resource of which nobody has the bytes in memory.
type sparse struct {
	fs     vfs.FS
	size   int64
	pieces *segment.Pieces
	digest segment.Digest
}

func (s *sparse) Size() int64            { return s.size }
func (s *sparse) Digest() segment.Digest { return s.digest }
func (s *sparse) Open() (vfs.File, *segment.Pieces, func(), error) {
	f, err := s.fs.Open("blob")
	return f, s.pieces, func() {}, err
}

// sink keeps nothing of what is written into a .part.
type sink struct{ vfs.FS }

func (s sink) OpenFile(name string, flag int, perm os.FileMode) (vfs.File, error) {
	f, err := s.FS.OpenFile(name, flag, perm)
	if err != nil || !strings.HasSuffix(name, ".part") {
		return f, err
	}
	return sinkFile{f}, nil
}

type sinkFile struct{ vfs.File }

func (sinkFile) WriteAt(b []byte, _ int64) (int, error) { return len(b), nil }
func (sinkFile) Truncate(int64) error                   { return nil }

// memory is how much of the heap is in use, garbage included.
type memory struct {
	before uint64
	most   atomic.Uint64
}

func watchMemory() *memory {
	runtime.GC()
	m := &memory{before: heapNow()}
	m.most.Store(m.before)
	return m
}

func heapNow() uint64 {
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

func (m *memory) look() {
	for now := heapNow(); ; {
		if most := m.most.Load(); now <= most || m.most.CompareAndSwap(most, now) {
			return
		}
	}
}

func (m *memory) grown() int64 { return int64(m.most.Load() - m.before) }
