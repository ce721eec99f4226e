package peerdl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/segment"
)

// memSource gives the blob's bytes without a network, so that tests can run in
// a synctest bubble. fetch, if set, stands in for the real answer to a range.
type memSource struct {
	*blob
	fetch func(ctx context.Context, off, n int64) (io.ReadCloser, error)
	asked atomic.Int64 // ranges
}

func (m *memSource) Fetch(ctx context.Context, off, n int64) (io.ReadCloser, error) {
	m.asked.Add(1)
	if m.fetch != nil {
		return m.fetch(ctx, off, n)
	}
	return m.good(off, n), nil
}

func (m *memSource) good(off, n int64) io.ReadCloser {
	return io.NopCloser(bytes.NewReader(m.data[off : off+n]))
}

func (m *memSource) Pieces(context.Context) (io.ReadCloser, error) {
	data, err := m.pieces.MarshalBinary()
	return io.NopCloser(bytes.NewReader(data)), err
}

// hang is a body that never brings a byte.
type hang struct{ ctx context.Context }

func (h hang) Read([]byte) (int, error) { <-h.ctx.Done(); return 0, h.ctx.Err() }
func (h hang) Close() error             { return nil }

func download(t *testing.T, d *Downloader, b *blob, req Request) *Result {
	t.Helper()
	res, err := d.Download(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.File.Close() })
	b.mustHold(t, res)
	return res
}

func TestDownload(t *testing.T) {
	for _, size := range []int{1, 1000, piece - 1, piece, piece + 1, 3*piece + 12345} {
		for _, peers := range []int{1, 3} {
			t.Run(fmt.Sprintf("%d bytes from %d", size, peers), func(t *testing.T) {
				b := newBlob(t, vfs.NewMem(), size)
				var sources []Source
				for i := range peers {
					sources = append(sources, b.peer(t, fmt.Sprint(i), nil))
				}
				fsys := mustOS(t)
				req := b.request(fsys, sources...)
				var progress []int64
				req.Progress = func(p Progress) { progress = append(progress, p.HeldBytes) }
				reserved, released := int64(0), false
				req.Reserve = func(n int64) (func(), error) {
					reserved = n
					return func() { released = true }, nil
				}
				res := download(t, NewDownloader(testConfig(t)), b, req)
				if s := res.Stats; s.FetchedBytes != b.Size() || s.WastedBytes != 0 || s.ResumedBytes != 0 {
					t.Errorf("stats %+v", s)
				}
				if n := len(progress); n != b.pieces.Count()+1 || progress[0] != 0 || progress[n-1] != b.Size() {
					t.Errorf("progress %v", progress)
				}
				if reserved != b.Size() || !released {
					t.Errorf("reserved %d, released %v", reserved, released)
				}
				if err := Forget(fsys, req.Part); err != nil || exists(fsys, req.Part) || exists(fsys, JournalName(req.Part)) {
					t.Errorf("Forget leaves something: %v", err)
				}
			})
		}
	}
}

func TestDownloadUsesAllSources(t *testing.T) {
	b := newBlob(t, vfs.NewMem(), 8*piece)
	req := b.request(vfs.NewMem(), b.peer(t, "a", nil), b.peer(t, "b", nil))
	res := download(t, NewDownloader(testConfig(t)), b, req)
	if by := res.Stats.BySource; by[0] == 0 || by[1] == 0 || by[0]+by[1] != b.Size() {
		t.Errorf("bytes by source: %v", by)
	}
}

// faulty answers of a peer, each a thing that was seen or must be feared.
var liars = []struct {
	name string
	wrap func(http.Handler) http.Handler
	says string // what NoSourceError tells
}{
	{"a flipped bit", tamper(func(_ http.Header, body []byte) []byte {
		body[len(body)/2] ^= 4
		return body
	}), "damaged bytes"},
	{"200 and the whole file", func(h http.Handler) http.Handler {
		return onBytes(h, func(w http.ResponseWriter, r *http.Request) {
			r.Header.Del("Range")
			h.ServeHTTP(w, r)
		})
	}, "200"},
	{"another ETag", tamper(func(h http.Header, body []byte) []byte {
		h.Set("ETag", `"b3-00"`)
		return body
	}), "ETag"},
	{"no ETag", tamper(func(h http.Header, body []byte) []byte {
		h.Del("ETag")
		return body
	}), "ETag"},
	{"another position", tamper(func(h http.Header, body []byte) []byte {
		h.Set("Content-Range", strings.Replace(h.Get("Content-Range"), "bytes ", "bytes 1", 1))
		return body
	}), "Content-Range"},
	{"another size", tamper(func(h http.Header, body []byte) []byte {
		h.Set("Content-Range", h.Get("Content-Range")+"0")
		return body
	}), "Content-Range"},
	{"more bytes than asked", tamper(func(h http.Header, body []byte) []byte {
		h.Del("Content-Length")
		return append(body, 0)
	}), "more than"},
	{"a longer Content-Length", tamper(func(h http.Header, body []byte) []byte {
		h.Set("Content-Length", fmt.Sprint(len(body)+1))
		return append(body, 0)
	}), "Content-Length"},
	{"fewer bytes, chunked", tamper(func(h http.Header, body []byte) []byte {
		h.Del("Content-Length")
		return body[:0]
	}), "broke off"},
	{"a forged sidecar", func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !isPieces(r) {
				h.ServeHTTP(w, r)
				return
			}
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, r)
			body := rec.Body.Bytes()
			body[len(body)-1] ^= 1
			w.Write(body)
		})
	}, "piece list"},
	{"a sidecar without end", func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !isPieces(r) {
				h.ServeHTTP(w, r)
				return
			}
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 4096)); err != nil {
					return
				}
			}
		})
	}, "piece list"},
	{"404", func(http.Handler) http.Handler { return http.NotFoundHandler() }, "404"},
	{"500", func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Error(w, "disk on fire", 500) })
	}, "disk on fire"},
	{"a cut in every body", func(h http.Handler) http.Handler {
		return onBytes(h, func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) })
	}, "EOF"},
}

// onBytes puts f in the place of h for everything but the sidecar.
func onBytes(h http.Handler, f http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isPieces(r) {
			h.ServeHTTP(w, r)
			return
		}
		f(w, r)
	})
}

// tamper changes headers and body of the ranges that a peer sends.
func tamper(change func(http.Header, []byte) []byte) func(http.Handler) http.Handler {
	return func(h http.Handler) http.Handler {
		return onBytes(h, func(w http.ResponseWriter, r *http.Request) {
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, r)
			body := change(rec.Header(), rec.Body.Bytes())
			for k, v := range rec.Header() {
				w.Header()[k] = v
			}
			w.WriteHeader(rec.Code)
			w.(http.Flusher).Flush()
			w.Write(body)
		})
	}
}

func TestDownloadFromALiarAndAnHonestPeer(t *testing.T) {
	b := newBlob(t, vfs.NewMem(), piece+100)
	for _, liar := range liars {
		t.Run(liar.name, func(t *testing.T) {
			// The liar is asked first: it is in the same zone.
			bad := b.peer(t, "liar", liar.wrap)
			bad.Zone = "here"
			req := b.request(vfs.NewMem(), bad, b.peer(t, "honest", nil))
			req.Zone = "here"
			res := download(t, NewDownloader(testConfig(t)), b, req)
			if !strings.Contains(liar.name, "sidecar") && res.Stats.BySource[0] != 0 {
				t.Errorf("%d bytes are from the liar", res.Stats.BySource[0])
			}
		})
	}
}

func TestDownloadFromLiarsAlone(t *testing.T) {
	b := newBlob(t, vfs.NewMem(), piece+100)
	for _, liar := range liars {
		t.Run(liar.name, func(t *testing.T) {
			fsys := vfs.NewMem()
			_, err := NewDownloader(testConfig(t)).Download(context.Background(),
				b.request(fsys, b.peer(t, "one", liar.wrap), b.peer(t, "two", liar.wrap)))
			var none *NoSourceError
			if !errors.As(err, &none) || len(none.Sources) != 2 {
				t.Fatalf("got %v, want a NoSourceError about both", err)
			}
			for _, name := range []string{"one: ", "two: ", liar.says} {
				if !strings.Contains(err.Error(), name) {
					t.Errorf("%v does not say %q", err, name)
				}
			}
			if data, err := vfs.ReadFile(fsys, "x.part", 1<<30); err == nil && len(bytes.Trim(data, "\x00")) != 0 {
				t.Error("unverified bytes were written")
			}
		})
	}
}

func TestDownloadWithoutSources(t *testing.T) {
	b := newBlob(t, vfs.NewMem(), 100)
	_, err := NewDownloader(testConfig(t)).Download(context.Background(), b.request(vfs.NewMem()))
	if !errors.As(err, new(*NoSourceError)) {
		t.Errorf("got %v", err)
	}
}

// A link that is cut again and again still makes progress: each try goes on at
// the byte where the last one broke, and nothing is fetched twice.
func TestDownloadContinuesInsideAPiece(t *testing.T) {
	b := newBlob(t, vfs.NewMem(), 2*piece)
	src := &memSource{blob: b}
	src.fetch = func(_ context.Context, off, n int64) (io.ReadCloser, error) {
		cut := min(n, 300_000)
		return io.NopCloser(io.MultiReader(src.good(off, cut), errReader{io.ErrUnexpectedEOF})), nil
	}
	res := download(t, NewDownloader(testConfig(t)), b, b.request(vfs.NewMem(), Source{Fetcher: src}))
	if res.Stats.WastedBytes != 0 {
		t.Errorf("%d bytes were wasted", res.Stats.WastedBytes)
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

// A source that sends nothing is left after the idle time-out, while one that
// sends a little now and then may take as long as it needs.
func TestDownloadTimesOutOnSilenceOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlob(t, vfs.NewMem(), 100)
		silent := &memSource{blob: b}
		silent.fetch = func(ctx context.Context, _, _ int64) (io.ReadCloser, error) { return hang{ctx}, nil }
		slow := &memSource{blob: b}
		slow.fetch = func(_ context.Context, off, n int64) (io.ReadCloser, error) {
			return io.NopCloser(&dripReader{r: slow.good(off, n), every: 20 * time.Second}), nil
		}
		begin := time.Now()
		res := download(t, NewDownloader(testConfig(t)), b, b.request(vfs.NewMem(),
			Source{Name: "silent", Fetcher: silent}, Source{Name: "slow", Fetcher: slow, Rank: 1}))
		if res.Stats.BySource[1] != 100 {
			t.Errorf("stats %+v", res.Stats)
		}
		if took := time.Since(begin); took < 100*20*time.Second {
			t.Errorf("took %s, less than the slow source needs", took)
		}
	})
}

// dripReader gives a byte at a time.
type dripReader struct {
	r     io.Reader
	every time.Duration
}

func (d *dripReader) Read(b []byte) (int, error) {
	time.Sleep(d.every)
	return d.r.Read(b[:1])
}

func TestDownloadSaysThatAllStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlob(t, vfs.NewMem(), 100)
		silent := &memSource{blob: b}
		silent.fetch = func(ctx context.Context, _, _ int64) (io.ReadCloser, error) { return hang{ctx}, nil }
		_, err := NewDownloader(testConfig(t)).Download(context.Background(), b.request(vfs.NewMem(), Source{Fetcher: silent}))
		if !errors.As(err, new(*NoSourceError)) || !errors.Is(err, ErrStalled) {
			t.Errorf("got %v", err)
		}
	})
}

// The last piece is not held up by a source that has fallen asleep over it.
func TestDownloadEndgame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlob(t, vfs.NewMem(), 3*piece)
		asleep := &memSource{blob: b}
		asleep.fetch = func(ctx context.Context, _, _ int64) (io.ReadCloser, error) { return hang{ctx}, nil }
		awake := &memSource{blob: b}
		begin := time.Now()
		cfg := testConfig(t)
		cfg.limits.SlowMin = 2 * time.Second
		res := download(t, NewDownloader(cfg), b, b.request(vfs.NewMem(),
			Source{Fetcher: asleep, Zone: "here"}, Source{Fetcher: awake}))
		if took := time.Since(begin); took >= 30*time.Second {
			t.Errorf("took %s: waited for the idle time-out", took)
		}
		if res.Stats.BySource[1] != b.Size() {
			t.Errorf("stats %+v", res.Stats)
		}
	})
}

// A source that is only an address of the bytes, with an ETag of its own: what it
// sends is held to the piece list that a peer gave, and ranges to what was asked.
func TestDownloadByALink(t *testing.T) {
	b := newBlob(t, vfs.NewMem(), 2*piece+100)
	plain := func(wrap func(http.Handler) http.Handler) Source {
		h := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"not-ours"`)
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b.data))
		}))
		if wrap != nil {
			h = wrap(h)
		}
		srv := httptest.NewServer(h)
		t.Cleanup(srv.Close)
		return Source{Name: "link", DeepStore: true, Fetcher: NewLinkFetcher(srv.Client(), srv.URL+"/x?signature=secret", "", b.Size())}
	}
	list := func() Source { // gives the piece list, and no bytes
		return b.peer(t, "list", func(h http.Handler) http.Handler { return onBytes(h, http.NotFound) })
	}
	t.Run("good", func(t *testing.T) {
		res := download(t, NewDownloader(testConfig(t)), b, b.request(vfs.NewMem(), plain(nil), list()))
		if res.Stats.BySource[0] != b.Size() {
			t.Errorf("stats %+v", res.Stats)
		}
	})
	for _, liar := range liars {
		if strings.Contains(liar.name, "ETag") || strings.Contains(liar.name, "sidecar") {
			continue // these say nothing here
		}
		t.Run(liar.name, func(t *testing.T) {
			_, err := NewDownloader(testConfig(t)).Download(context.Background(), b.request(vfs.NewMem(), plain(liar.wrap), list()))
			if !errors.As(err, new(*NoSourceError)) || !strings.Contains(err.Error(), liar.says) || strings.Contains(err.Error(), "secret") {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("and nobody has the piece list", func(t *testing.T) {
		_, err := NewDownloader(testConfig(t)).Download(context.Background(), b.request(vfs.NewMem(), plain(nil)))
		if !errors.As(err, new(*NoSourceError)) || !strings.Contains(err.Error(), "no piece list") {
			t.Errorf("got %v", err)
		}
	})
}

// Many downloads through few slots and few buffers all end.
func TestDownloadsShareSlotsAndBuffers(t *testing.T) {
	b := newBlob(t, vfs.NewMem(), 2*piece+7)
	limiter, metrics := NewLimiter(1), NewMetrics(nil)
	srv := httptest.NewServer(b.handler(Options{Limiter: limiter, Metrics: metrics}))
	defer srv.Close()
	cfg := testConfig(t)
	cfg.Buffers = 2
	d := NewDownloader(cfg)
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			// The real Retry-After is a second; tests need not wait for it.
			hurried := hurried{NewHTTPFetcher(cfg.Client, srv.URL+"/blob", b.digest, b.Size())}
			res, err := d.Download(context.Background(), b.request(vfs.NewMem(), Source{Fetcher: hurried}))
			if err != nil {
				t.Error(err)
				return
			}
			b.mustHold(t, res)
		})
	}
	all.Wait()
	if len(d.buffers.free) != 2 {
		t.Errorf("%d of 2 buffers came back", len(d.buffers.free))
	}
}

type hurried struct{ Fetcher }

func (h hurried) Fetch(ctx context.Context, off, n int64) (io.ReadCloser, error) {
	r, err := h.Fetcher.Fetch(ctx, off, n)
	var busy *BusyError
	if errors.As(err, &busy) {
		return nil, &BusyError{}
	}
	return r, err
}

func TestBusyServersAreAskedLater(t *testing.T) {
	b := newBlob(t, vfs.NewMem(), 100)
	limiter := NewLimiter(1)
	release, _ := limiter.acquire()
	defer release()
	srv := httptest.NewServer(b.handler(Options{Limiter: limiter}))
	defer srv.Close()
	_, err := NewHTTPFetcher(testConfig(t).Client, srv.URL+"/blob", b.digest, 100).Fetch(context.Background(), 0, 100)
	var busy *BusyError
	if !errors.As(err, &busy) || busy.RetryAfter != time.Second {
		t.Errorf("got %v", err)
	}
	for v, want := range map[string]time.Duration{"0": 0, "7": 7 * time.Second, "99999": time.Minute, "-1": time.Second, "Fri, 31 Dec 1999 23:59:59 GMT": time.Second} {
		if got, ok := retryAfter(v); !ok || got != want {
			t.Errorf("Retry-After %q is %s, want %s", v, got, want)
		}
	}
}

func TestDownloadEndsCleanlyWithItsContext(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	b := newBlob(t, vfs.NewMem(), 4*piece)
	cause := errors.New("node stops")
	ctx, cancel := context.WithCancelCause(context.Background())
	src := &memSource{blob: b}
	src.fetch = func(ctx context.Context, off, n int64) (io.ReadCloser, error) {
		if off >= 2*piece {
			cancel(cause)
			return hang{ctx}, nil
		}
		return src.good(off, n), nil
	}
	d := NewDownloader(testConfig(t))
	fsys := vfs.NewMem()
	_, err := d.Download(ctx, b.request(fsys, Source{Fetcher: src}))
	if !errors.Is(err, cause) {
		t.Fatalf("got %v", err)
	}
	if len(d.buffers.free) != cap(d.buffers.free) {
		t.Errorf("%d of %d buffers came back", len(d.buffers.free), cap(d.buffers.free))
	}
	// What it had stays and is continued.
	src.fetch = nil
	src.asked.Store(0)
	res := download(t, d, b, b.request(fsys, Source{Fetcher: src}))
	if res.Stats.ResumedBytes != 2*piece || src.asked.Load() != 2 {
		t.Errorf("resumed %d bytes, asked for %d ranges", res.Stats.ResumedBytes, src.asked.Load())
	}
}

func TestDownloadFailsOnItsOwnDisk(t *testing.T) {
	b := newBlob(t, vfs.NewMem(), 4*piece)
	full := errors.New("over the reserve")
	src := &memSource{blob: b}

	t.Run("no room reserved", func(t *testing.T) {
		mem := vfs.NewMem()
		req := b.request(mem, Source{Fetcher: src})
		req.Reserve = func(int64) (func(), error) { return nil, full }
		if _, err := NewDownloader(testConfig(t)).Download(context.Background(), req); !errors.Is(err, full) || !strings.Contains(err.Error(), mem.String()) {
			t.Errorf("got %v", err)
		}
		if src.asked.Load() != 0 {
			t.Error("pieces were fetched all the same")
		}
	})
	t.Run("disk full in the middle", func(t *testing.T) {
		space := vfs.WithSpace(vfs.NewMem(), 2*piece)
		d := NewDownloader(testConfig(t))
		_, err := d.Download(context.Background(), b.request(space, Source{Fetcher: src}))
		if !errors.Is(err, syscall.ENOSPC) || errors.As(err, new(*NoSourceError)) || !strings.Contains(err.Error(), "x.part") {
			t.Fatalf("got %v", err)
		}
		space.Add(10 * piece)
		res := download(t, d, b, b.request(space, Source{Fetcher: src}))
		if res.Stats.ResumedBytes < piece-1 {
			t.Errorf("resumed only %d bytes", res.Stats.ResumedBytes)
		}
	})
	t.Run("fsync fails", func(t *testing.T) {
		// Then nobody knows what is on the disk: nothing may be resumed from it.
		broken := errors.New("EIO")
		mem := vfs.NewMem()
		fsys := vfs.WithFaults(mem, func(op vfs.Op) error {
			if op.Kind == vfs.OpSync && op.Name == "x.part" {
				return broken
			}
			return nil
		})
		_, err := NewDownloader(testConfig(t)).Download(context.Background(), b.request(fsys, Source{Fetcher: src}))
		if !errors.Is(err, broken) || !vfs.IsSyncError(err) {
			t.Errorf("got %v", err)
		}
		if exists(mem, "x.part") || exists(mem, JournalName("x.part")) {
			t.Error("the .part is still there")
		}
	})
}

func TestDownloadRefusesAnImpossibleRequest(t *testing.T) {
	d := NewDownloader(testConfig(t))
	for _, req := range []Request{{Size: 0, Digest: segment.Digest{1}}, {Size: -1, Digest: segment.Digest{1}}, {Size: 1}} {
		req.FS, req.Part = vfs.NewMem(), "x.part"
		if _, err := d.Download(context.Background(), req); err == nil {
			t.Errorf("took %+v", req)
		}
	}
}

func TestNoSourceErrorKeepsTheReasons(t *testing.T) {
	err := error(&NoSourceError{Missing: 2, Sources: []SourceFault{{Source: "n1", Err: fs.ErrNotExist}, {Source: "n2"}}})
	if !errors.Is(err, fs.ErrNotExist) || err.Error() != "peerdl: no source is left for 2 pieces: n1: file does not exist; n2 was not asked" {
		t.Error(err)
	}
}

// Where it helps a piece is asked for in several ranges at once, and is the same
// piece: verified as a whole, and its one source blamed for it.
func TestDownloadInSeveralRanges(t *testing.T) {
	b := newBlob(t, vfs.NewMem(), 2*piece+piece/2+77)
	wide := func() Config {
		cfg := testConfig(t)
		cfg.limits.Window.Start = 8
		return cfg
	}
	t.Run("each once", func(t *testing.T) {
		src := &memSource{blob: b}
		res := download(t, NewDownloader(wide()), b, b.request(vfs.NewMem(), Source{Fetcher: src}))
		if got := src.asked.Load(); got != 4+4+4 || res.Stats.FetchedBytes != b.Size() || res.Stats.WastedBytes != 0 {
			t.Errorf("%d requests, stats %+v", got, res.Stats)
		}
	})
	t.Run("one of them damaged", func(t *testing.T) {
		bad := &memSource{blob: b}
		bad.fetch = func(_ context.Context, off, n int64) (io.ReadCloser, error) {
			data := bytes.Clone(b.data[off : off+n])
			if off%piece == 3<<20 {
				data[n-1] ^= 1
			}
			return io.NopCloser(bytes.NewReader(data)), nil
		}
		req := b.request(vfs.NewMem(), Source{Name: "bad", Fetcher: bad}, Source{Fetcher: &memSource{blob: b}, Rank: 1})
		res := download(t, NewDownloader(wide()), b, req)
		if by := res.Stats.BySource; by[1] < 2*piece || res.Stats.WastedBytes == 0 {
			t.Errorf("stats %+v", res.Stats)
		}
	})
	t.Run("each is cut again and again", func(t *testing.T) {
		src := &memSource{blob: b}
		src.fetch = func(_ context.Context, off, n int64) (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(src.good(off, min(n, 300_000)), errReader{io.ErrUnexpectedEOF})), nil
		}
		res := download(t, NewDownloader(wide()), b, b.request(vfs.NewMem(), Source{Fetcher: src}))
		if res.Stats.WastedBytes != 0 {
			t.Errorf("stats %+v", res.Stats)
		}
	})
}

// A source that has fewer slots than are asked for at once gives all the same,
// without waste, and is asked less from then on.
func TestDownloadInMoreRangesThanThereAreSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlob(t, vfs.NewMem(), 6*piece)
		slots, refused := NewLimiter(3), atomic.Int64{}
		src := &memSource{blob: b}
		src.fetch = func(_ context.Context, off, n int64) (io.ReadCloser, error) {
			release, ok := slots.acquire()
			if !ok {
				refused.Add(1)
				time.Sleep(time.Millisecond) // by then the others have brought something
				return nil, &BusyError{RetryAfter: time.Second}
			}
			r := &paced{r: src.good(off, n), end: release}
			return r, nil
		}
		cfg := testConfig(t)
		cfg.limits.Window.Start = 8
		res := download(t, NewDownloader(cfg), b, b.request(vfs.NewMem(), Source{Fetcher: src}))
		if res.Stats.WastedBytes != 0 || refused.Load() == 0 || refused.Load() > 15 {
			t.Errorf("stats %+v, refused %d times", res.Stats, refused.Load())
		}
	})
}

// paced gives its first byte at once, and the rest after a while.
type paced struct {
	r    io.Reader
	read bool
	end  func()
}

func (p *paced) Read(b []byte) (int, error) {
	if !p.read {
		p.read = true
		return p.r.Read(b[:1])
	}
	time.Sleep(10 * time.Millisecond)
	return p.r.Read(b)
}

func (p *paced) Close() error { p.end(); return nil }

func TestRangeSizes(t *testing.T) {
	for _, test := range []struct {
		n        int64
		requests int
		want     int64
	}{
		{piece, 1, piece}, {piece, 4, 1 << 20}, {piece, 3, (piece + 2) / 3}, {piece, 100, rangeMin}, {1, 4, rangeMin}, {3 * rangeMin, 4, rangeMin},
	} {
		if got := rangeSize(test.n, test.requests); got != test.want {
			t.Errorf("%d bytes in %d: %d each, want %d", test.n, test.requests, got, test.want)
		}
	}
}

// A source that cuts a slow reader off because others wait, and then has no slot
// for it at once: what has come is kept, and continued as soon as there is one.
func TestDownloadContinuesWhenItsSlotComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlob(t, vfs.NewMem(), piece)
		src := &memSource{blob: b}
		src.fetch = func(_ context.Context, off, n int64) (io.ReadCloser, error) {
			if src.asked.Load()%4 != 1 {
				return nil, &BusyError{RetryAfter: time.Second}
			}
			return io.NopCloser(io.MultiReader(src.good(off, min(n, 1<<20)), errReader{io.ErrUnexpectedEOF})), nil
		}
		res := download(t, NewDownloader(testConfig(t)), b, b.request(vfs.NewMem(), Source{Fetcher: src}))
		if res.Stats.WastedBytes != 0 || src.asked.Load() != 13 {
			t.Errorf("stats %+v after %d requests", res.Stats, src.asked.Load())
		}
		// It is not waited for for ever.
		src.fetch = func(_ context.Context, off, n int64) (io.ReadCloser, error) {
			if off == 0 {
				return io.NopCloser(io.MultiReader(src.good(0, 1<<20), errReader{io.ErrUnexpectedEOF})), nil
			}
			return nil, &BusyError{RetryAfter: time.Second}
		}
		other := Source{Name: "other", Fetcher: &memSource{blob: b}, Rank: 1}
		res = download(t, NewDownloader(testConfig(t)), b, b.request(vfs.NewMem(), Source{Fetcher: src}, other))
		if res.Stats.BySource[1] != b.Size() || res.Stats.WastedBytes != 1<<20 {
			t.Errorf("stats %+v", res.Stats)
		}
	})
}
