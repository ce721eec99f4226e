package snapshots

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/peerdl"
	"github.com/shoalstore/shoal/segment"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	testCluster  = uuid.MustParse("00000000-0000-4000-8000-0000000000c1")
	otherCluster = uuid.MustParse("00000000-0000-4000-8000-0000000000c2")
	testTerm     = uuid.MustParse("00000000-0000-4000-8000-000000000001")
)

const leaderURL = "http://leader"

// imageOf is the image at an offset in epoch 1, of about so many KiB.
func imageOf(t testing.TB, end int64, kib int) *meta.Image {
	t.Helper()
	const each = 50 // KiB
	im := meta.Empty()
	for offset := range end {
		b := &meta.Batch{Offset: offset, Epoch: 1, Term: testTerm, Time: 1000 + offset}
		if offset == 0 {
			b.Upserts = append(b.Upserts,
				&meta.Cluster{ID: testCluster, FormatVersion: meta.FormatVersion},
				&meta.Leader{Epoch: 1, Term: testTerm, Controller: "c", URL: leaderURL})
		}
		first, last := int(offset)*kib/each/int(end), (int(offset)+1)*kib/each/int(end)
		for i := first; i <= last; i++ {
			b.Upserts = append(b.Upserts, &meta.Job{
				ID: uuid.MustParse(fmt.Sprintf("10000000-0000-4000-8000-%012d", i)), Kind: "test", State: meta.JobRunning, Created: 1,
				Args: map[string]string{"filler": strings.Repeat(string(rune('a'+i%26)), each<<10)},
			})
		}
		var err error
		if im, err = im.Apply(b); err != nil {
			t.Fatal(err)
		}
	}
	return im
}

const (
	small = 900  // KiB, less than a chunk
	big   = 4500 // KiB, two pieces
)

func open(t testing.TB, fsys vfs.FS) *metalog.Snapshots {
	t.Helper()
	s, err := metalog.OpenSnapshots(fsys, "", zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func write(t testing.TB, s *metalog.Snapshots, im *meta.Image) metalog.SnapshotRef {
	t.Helper()
	ref, err := s.Write(t.Context(), im)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// fileOf is the file of a snapshot.
func fileOf(t testing.TB, s *metalog.Snapshots, id metalog.SnapshotID) []byte {
	t.Helper()
	f, err := s.OpenFile(id)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(f)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return data
}

// wantImage checks that an image is the one that a snapshot was made of: it makes the same.
func wantImage(t testing.TB, got *meta.Image, want metalog.SnapshotRef) {
	t.Helper()
	if ref := write(t, open(t, vfs.NewMem()), got); ref != want {
		t.Fatalf("its snapshot is %+v, want %+v", ref, want)
	}
}

// holder is a server of snapshots over HTTP.
type holder struct {
	*metalog.Snapshots
	url     string
	limiter *peerdl.Limiter // set before the first request

	mu       sync.Mutex
	standing metalog.Standing
	down     bool
	cleaned  bool                            // Use says that everything is gone
	used     []metalog.SnapshotID            // by Use
	asked    []string                        // the positions that chunks were asked from, "pieces", "list"
	evil     func(http.Handler) http.Handler // stands before the handler
}

// hold serves the snapshots of these images, as a holder that follows the leader of epoch 1.
func hold(t testing.TB, images ...*meta.Image) *holder {
	t.Helper()
	return holdIn(t, vfs.NewMem(), images...)
}

func holdIn(t testing.TB, disk vfs.FS, images ...*meta.Image) *holder {
	t.Helper()
	h := &holder{
		Snapshots: open(t, disk),
		standing:  metalog.Standing{Cluster: testCluster, Epoch: 1, URL: leaderURL},
		limiter:   peerdl.NewLimiter(100),
	}
	for _, im := range images {
		write(t, h.Snapshots, im)
	}
	srv := NewServer(ServerConfig{Snapshots: h.Snapshots, Limiter: h.limiter, Standing: h.stand, Use: h.use, useEvery: time.Hour})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		h.asked = append(h.asked, nameOf(r))
		handler, evil := http.Handler(srv), h.evil
		h.mu.Unlock()
		if evil != nil {
			handler = evil(handler)
		}
		handler.ServeHTTP(w, r)
	}))
	h.url = server.URL
	t.Cleanup(server.Close)
	return h
}

func nameOf(r *http.Request) string {
	switch {
	case strings.HasSuffix(r.URL.Path, "/pieces"):
		return "pieces"
	case r.URL.Path == Path:
		return "list"
	}
	return r.URL.Query().Get("position")
}

func (h *holder) stand() (metalog.Standing, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.standing, h.down
}

func (h *holder) use(id metalog.SnapshotID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.used = append(h.used, id)
	return !h.cleaned
}

// change changes the holder under its lock.
func (h *holder) change(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

// positions are those that were asked from since the last call.
func (h *holder) positions() (out []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range h.asked {
		if a != "pieces" {
			out = append(out, a)
		}
	}
	h.asked = nil
	return out
}

// source is the holder as one that only follows, leader as the leader of an epoch.
func (h *holder) source() Source { return Source{Name: h.url, URL: h.url} }

func (h *holder) leader(epoch int64) Source { return Source{URL: h.url + "/", LeaderEpoch: epoch} }

// turn makes the holder do evil to the chunks that it sends from a position on; nil: none.
func (h *holder) turn(from int64, evil func(w *answer)) {
	h.change(func() {
		h.evil = func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				at, err := strconv.ParseInt(nameOf(r), 10, 64)
				if err != nil || at < from {
					next.ServeHTTP(w, r)
					return
				}
				rec := httptest.NewRecorder()
				next.ServeHTTP(rec, r)
				a := &answer{at: at, asked: r.URL.Query(), status: rec.Code, header: rec.Header(), body: rec.Body.Bytes()}
				evil(a)
				a.send(w)
			})
		}
	})
}

func (h *holder) behave() { h.change(func() { h.evil = nil }) }

// answer is a chunk that is tampered with before it is sent.
type answer struct {
	at     int64
	asked  url.Values
	status int
	header http.Header
	body   []byte
	cut    bool // the connection is cut after body, which is announced to be longer
}

func (a *answer) send(w http.ResponseWriter) {
	maps.Copy(w.Header(), a.header)
	if !a.cut {
		w.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
	}
	w.WriteHeader(a.status)
	w.Write(a.body)
	if a.cut {
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
}

// say sets what the answer says of itself: [first, first+n) of size.
func (a *answer) say(first, n, size int64) {
	a.header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, first+n-1, size))
}

// refuse makes it a problem.
func (a *answer) refuse(status int, code string) {
	a.status, a.body = status, []byte(`{"code": "`+code+`"}`)
	a.header.Set("Content-Type", "application/problem+json")
}

// follower fetches.
type follower struct {
	*Fetcher
	disk  vfs.FS
	snaps *metalog.Snapshots
}

func follow(t testing.TB, disk vfs.FS) *follower {
	t.Helper()
	transport := peerdl.NewTransport()
	t.Cleanup(transport.CloseIdleConnections)
	f := &follower{disk: disk, snaps: open(t, disk)}
	f.Fetcher = NewFetcher(FetcherConfig{
		Snapshots: f.snaps, Downloader: peerdl.NewDownloader(peerdl.Config{Workers: 1, Unsynced: 1}),
		Client: &httpx.Client{HTTP: &http.Client{Transport: transport}},
	})
	return f
}

// fetch fetches a snapshot of the test's cluster.
func (f *follower) fetch(t testing.TB, ref metalog.SnapshotRef, sources ...Source) (*meta.Image, error) {
	return f.Fetch(t.Context(), Request{Snapshot: ref, Cluster: testCluster, Sources: sources})
}

// mustFetch fetches it and checks its image, and that it is here to stay.
func (f *follower) mustFetch(t testing.TB, ref metalog.SnapshotRef, sources ...Source) {
	t.Helper()
	im, err := f.fetch(t, ref, sources...)
	if err != nil {
		t.Fatal(err)
	}
	wantImage(t, im, ref)
	again := open(t, f.disk)
	if got, ok := again.Get(ref.SnapshotID); !ok || got != ref {
		t.Fatalf("it is not here: %v", again.List())
	}
	if loaded, err := again.Load(ref.SnapshotID); err != nil || loaded.Len() != im.Len() {
		t.Fatal(err)
	}
	f.wantPartial(t, false)
}

// wantPartial checks whether there is a download to go on with.
func (f *follower) wantPartial(t testing.TB, want bool) {
	t.Helper()
	entries, err := f.disk.ReadDir(metalog.SnapshotsDir)
	if err != nil {
		t.Fatal(err)
	}
	var parts []string
	for _, e := range entries {
		if strings.Contains(e.Name(), ".part") {
			parts = append(parts, e.Name())
		}
	}
	if want != (len(parts) == 2) || !want && len(parts) > 0 {
		t.Fatalf("partial files: %q", parts)
	}
}

// wantNothing checks that nothing was published.
func (f *follower) wantNothing(t testing.TB) {
	t.Helper()
	if got, there := f.snaps.List(), open(t, f.disk).List(); len(got) > 0 || len(there) > 0 {
		t.Fatalf("it lists %v and has %v", got, there)
	}
}

func (f *follower) restarts(c cause) float64 {
	return valueOf(f.cfg.Metrics.restarts.WithLabelValues(string(c)))
}

func (f *follower) wasted() float64 { return valueOf(f.cfg.Metrics.wastedBytes) }

func valueOf(c prometheus.Counter) float64 {
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		panic(err)
	}
	return m.GetCounter().GetValue()
}

// reply is what a server answered.
type reply struct {
	*http.Response
	body []byte
}

// ask makes a request for what is below Path.
func (h *holder) ask(t testing.TB, method, path string, header ...string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, h.url+Path+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return reply{resp, body}
}

// chunk asks for a chunk of a snapshot.
func (h *holder) chunk(t testing.TB, id metalog.SnapshotID, query string) reply {
	t.Helper()
	return h.ask(t, http.MethodGet, "/"+id.String()+"?"+query)
}

// want checks status and code, and that leader and epoch are named.
func (r reply) want(t testing.TB, status int, code string) {
	t.Helper()
	var problem struct{ Code string }
	if code != "" {
		if err := json.Unmarshal(r.body, &problem); err != nil || r.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%q is no problem: %v", r.body, err)
		}
	}
	if r.StatusCode != status || problem.Code != code {
		t.Errorf("answered %d %s, want %d %s", r.StatusCode, problem.Code, status, code)
	}
	if l, e := r.Header.Get(metalog.HeaderLeader), r.Header.Get(metalog.HeaderLeaderEpoch); l != leaderURL || e != "1" {
		t.Errorf("it names leader %q of epoch %q", l, e)
	}
}

// wantChunk checks a chunk of data that begins at off.
func (r reply) wantChunk(t testing.TB, data []byte, off, n int) {
	t.Helper()
	r.want(t, http.StatusPartialContent, "")
	if !bytes.Equal(r.body, data[off:off+n]) {
		t.Errorf("%d bytes that are not [%d, %d)", len(r.body), off, off+n)
	}
	for key, want := range map[string]string{
		"Content-Range":       fmt.Sprintf("bytes %d-%d/%d", off, off+n-1, len(data)),
		"Content-Length":      strconv.Itoa(n),
		peerdl.ContinueHeader: strconv.FormatBool(off+n < len(data)),
		"Content-Type":        ContentType,
	} {
		if got := r.Header.Get(key); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
}

// emptySnapshot is header and footer (docs/format/snapshot.md).
func emptySnapshot() []byte {
	header := make([]byte, 68)
	copy(header, "shoalsnp\x01")
	data := metalog.AppendFrame(nil, header)
	footer := make([]byte, 49)
	footer[0] = 'f'
	footer[9] = byte(len(data))
	var hash segment.PieceHasher
	_, _ = hash.Write(data)
	_, digest := hash.Sum()
	copy(footer[17:], digest[:])
	return metalog.AppendFrame(data, footer)
}

// holdBytes serves bytes as the snapshot of an id.
func holdBytes(t testing.TB, id metalog.SnapshotID, data []byte) *holder {
	t.Helper()
	disk := vfs.NewMem()
	open(t, disk)
	if err := vfs.WriteFile(disk, metalog.SnapshotsDir+"/"+id.String()+".checkpoint", data); err != nil {
		t.Fatal(err)
	}
	return holdIn(t, disk)
}

// serve makes a request without a network.
func serve(s *Server, url string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, url, nil))
	return w
}
