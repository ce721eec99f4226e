package snapshots

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"pgregory.net/rapid"

	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/peerdl"
	"github.com/shoalstore/shoal/segment"
)

func TestScenario11NoSnapshot(t *testing.T) {
	h := hold(t)
	for _, query := range []string{"", "position=0", "position=0&maxBytes=1&leaderEpoch=1"} {
		h.chunk(t, metalog.SnapshotID{EndOffset: 3, Epoch: 1}, query).want(t, http.StatusNotFound, metalog.CodeSnapshotNotFound)
	}
	h.ask(t, http.MethodGet, "/"+metalog.SnapshotID{}.String()+"/pieces").want(t, http.StatusNotFound, metalog.CodeSnapshotNotFound)
	if len(h.used) > 0 {
		t.Error("something was used")
	}
}

func TestScenario12AllInOne(t *testing.T) {
	h := hold(t, imageOf(t, 3, small))
	ref := *h.Latest()
	data := fileOf(t, h.Snapshots, ref.SnapshotID)
	h.chunk(t, ref.SnapshotID, "position=0&maxBytes=9223372036854775807").wantChunk(t, data, 0, len(data))
	h.chunk(t, ref.SnapshotID, "maxBytes=2000000&leaderEpoch=1&clusterId="+testCluster.String()).wantChunk(t, data, 0, len(data))
}

func TestChunksHaveADefaultAndACap(t *testing.T) {
	h := hold(t, imageOf(t, 3, big))
	ref := *h.Latest()
	data := fileOf(t, h.Snapshots, ref.SnapshotID)
	h.chunk(t, ref.SnapshotID, "position=5").wantChunk(t, data, 5, peerdl.DefaultChunk)
	h.chunk(t, ref.SnapshotID, "position=5&maxBytes=9223372036854775807").wantChunk(t, data, 5, peerdl.MaxChunk)
	// Not so a plain GET.
	whole := h.chunk(t, ref.SnapshotID, "")
	whole.want(t, http.StatusOK, "")
	if !bytes.Equal(whole.body, data) {
		t.Errorf("%d bytes of %d", len(whole.body), len(data))
	}
}

func TestScenario13HalfThenTheRest(t *testing.T) {
	h := hold(t, imageOf(t, 3, small))
	ref := *h.Latest()
	data := fileOf(t, h.Snapshots, ref.SnapshotID)
	half := len(data) / 2
	h.chunk(t, ref.SnapshotID, fmt.Sprintf("position=0&maxBytes=%d", half)).wantChunk(t, data, 0, half)
	h.chunk(t, ref.SnapshotID, fmt.Sprintf("position=%d&maxBytes=%d", half, len(data))).wantChunk(t, data, half, len(data)-half)
}

func TestScenario14ChunksThatDoNotDivideTheSize(t *testing.T) {
	h := hold(t, imageOf(t, 3, small))
	ref := *h.Latest()
	data := fileOf(t, h.Snapshots, ref.SnapshotID)
	step := len(data)/7 + 1
	for at := 0; at < len(data); at += step {
		h.chunk(t, ref.SnapshotID, fmt.Sprintf("position=%d&maxBytes=%d", at, step)).wantChunk(t, data, at, min(step, len(data)-at))
	}
}

func TestScenario15PositionsOutsideTheFile(t *testing.T) {
	h := hold(t, imageOf(t, 3, small))
	ref := *h.Latest()
	for _, at := range []int64{-1, ref.SizeBytes, ref.SizeBytes + 1} {
		r := h.chunk(t, ref.SnapshotID, fmt.Sprintf("position=%d", at))
		r.want(t, http.StatusRequestedRangeNotSatisfiable, metalog.CodePositionOutOfRange)
		if got, want := r.Header.Get("Content-Range"), fmt.Sprintf("bytes */%d", ref.SizeBytes); got != want {
			t.Errorf("Content-Range %q, want %q", got, want)
		}
	}
	if len(h.used) > 0 {
		t.Error("what was refused counts as used")
	}
}

func TestScenario16AnotherEpoch(t *testing.T) {
	h := hold(t, imageOf(t, 3, small))
	id := h.Latest().SnapshotID
	for epoch, code := range map[int]string{0: metalog.CodeFencedLeaderEpoch, 2: metalog.CodeUnknownLeaderEpoch} {
		query := fmt.Sprintf("leaderEpoch=%d", epoch)
		h.chunk(t, id, query+"&position=0").want(t, http.StatusConflict, code)
		h.chunk(t, id, query).want(t, http.StatusConflict, code)
		h.ask(t, http.MethodGet, "/"+id.String()+"/pieces?"+query).want(t, http.StatusConflict, code)
	}
}

func TestScenario17ClusterIds(t *testing.T) {
	h := hold(t, imageOf(t, 3, small))
	ref := *h.Latest()
	data := fileOf(t, h.Snapshots, ref.SnapshotID)
	h.chunk(t, ref.SnapshotID, "position=0&clusterId="+testCluster.String()).wantChunk(t, data, 0, len(data))
	h.chunk(t, ref.SnapshotID, "position=0").wantChunk(t, data, 0, len(data))
	for _, id := range []string{"", otherCluster.String()} {
		h.chunk(t, ref.SnapshotID, "position=0&clusterId="+id).want(t, http.StatusPreconditionFailed, metalog.CodeInconsistentClusterID)
	}
}

func TestMalformedRequestsAndAShutdown(t *testing.T) {
	h := hold(t, imageOf(t, 3, small))
	id := h.Latest().SnapshotID.String()
	for _, path := range []string{"/3-1", "/" + id + "0", "/" + id + "?position=x", "/" + id + "?maxBytes=0", "/" + id + "/pieces?leaderEpoch=one"} {
		h.ask(t, http.MethodGet, path).want(t, http.StatusBadRequest, metalog.CodeInvalidRequest)
	}
	h.change(func() { h.down = true })
	h.ask(t, http.MethodGet, "/"+id+"?position=0").want(t, http.StatusServiceUnavailable, metalog.CodeNotAvailable)
	h.ask(t, http.MethodGet, "/"+id+"?position=x").want(t, http.StatusBadRequest, metalog.CodeInvalidRequest)
	for path, status := range map[string]int{"/": http.StatusNotFound, "/" + id + "/x": http.StatusNotFound} {
		if r := h.ask(t, http.MethodGet, path); r.StatusCode != status {
			t.Errorf("%s: %s", path, r.Status)
		}
	}
	if r := h.ask(t, http.MethodPut, "/"+id); r.StatusCode != http.StatusMethodNotAllowed || r.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("PUT: %s", r.Status)
	}
}

func TestPlainRequests(t *testing.T) {
	h := hold(t, imageOf(t, 3, small))
	ref := *h.Latest()
	data, id := fileOf(t, h.Snapshots, ref.SnapshotID), "/"+ref.SnapshotID.String()
	part := h.ask(t, http.MethodGet, id, "Range", "bytes=10-19", "If-Match", ref.Digest.ETag())
	part.want(t, http.StatusPartialContent, "")
	if !bytes.Equal(part.body, data[10:20]) || part.Header.Get("ETag") != ref.Digest.ETag() {
		t.Errorf("%q with %v", part.body, part.Header)
	}
	for _, past := range []string{"bytes=" + strconv.Itoa(len(data)) + "-", "bytes=x"} {
		for _, path := range []string{id, id + "/pieces"} {
			h.ask(t, http.MethodGet, path, "Range", past).want(t, http.StatusRequestedRangeNotSatisfiable, httpx.CodeRangeNotThere)
		}
	}
	if r := h.ask(t, http.MethodGet, id, "Range", "bytes=999999-"); r.Header.Get("Content-Range") != fmt.Sprintf("bytes */%d", len(data)) {
		t.Errorf("a Range past the end: %v", r.Header)
	}
	head := h.ask(t, http.MethodHead, id)
	head.want(t, http.StatusOK, "")
	if head.Header.Get("Content-Length") != strconv.Itoa(len(data)) || len(head.body) > 0 {
		t.Errorf("HEAD: %v", head.Header)
	}
	if r := h.ask(t, http.MethodGet, id, "If-Match", `"b3-00"`); r.StatusCode != http.StatusPreconditionFailed {
		t.Errorf("another version: %s", r.Status)
	}
	list := h.ask(t, http.MethodGet, id+"/pieces")
	list.want(t, http.StatusOK, "")
	if p, err := segment.ParsePieces(list.body, ref.Digest); err != nil || p.Size != ref.SizeBytes {
		t.Errorf("piece list: %v", err)
	}
}

func TestWhatIsSentIsUsed(t *testing.T) {
	h := hold(t, imageOf(t, 3, small))
	id := h.Latest().SnapshotID
	h.chunk(t, id, "position=0").want(t, http.StatusPartialContent, "")
	h.ask(t, http.MethodGet, "/"+id.String()+"/pieces").want(t, http.StatusOK, "")
	if want := slices.Repeat([]metalog.SnapshotID{id}, 4); !slices.Equal(h.used, want) { // before and after
		t.Errorf("used %v", h.used)
	}
	h.change(func() { h.cleaned = true })
	h.chunk(t, id, "position=0").want(t, http.StatusNotFound, metalog.CodeSnapshotNotFound)
}

func TestWhatIsSentSlowlyStaysInUse(t *testing.T) {
	disk := vfs.NewMem()
	ref := write(t, open(t, disk), imageOf(t, 3, small))
	// The send is held at its first read until the snapshot was used three times more.
	var armed atomic.Bool
	used := make(chan metalog.SnapshotID, 4)
	s := NewServer(ServerConfig{
		Snapshots: open(t, vfs.WithFaults(disk, func(op vfs.Op) error {
			if op.Kind == vfs.OpRead && armed.CompareAndSwap(true, false) {
				for range 4 {
					if id := <-used; id != ref.SnapshotID {
						t.Errorf("%s was used", id)
					}
				}
			}
			return nil
		})),
		Standing: func() (st metalog.Standing, down bool) { return },
		Use: func(id metalog.SnapshotID) bool {
			select {
			case used <- id:
			default:
			}
			return true
		},
		useEvery: time.Millisecond,
	})
	armed.Store(true)
	if w := serve(s, Path+"/"+ref.SnapshotID.String()); w.Code != http.StatusOK || w.Body.Len() != int(ref.SizeBytes) {
		t.Errorf("answered %d with %d bytes", w.Code, w.Body.Len())
	}
}

func TestSnapshotThatGoesWhileItIsAskedFor(t *testing.T) {
	disk := vfs.NewMem()
	h := holdIn(t, disk, imageOf(t, 3, small))
	id := h.Latest().SnapshotID
	if err := disk.Remove(metalog.SnapshotsDir + "/" + id.String() + ".checkpoint"); err != nil {
		t.Fatal(err)
	}
	h.chunk(t, id, "position=0").want(t, http.StatusNotFound, metalog.CodeSnapshotNotFound)
	h.ask(t, http.MethodGet, "/"+id.String()+"/pieces").want(t, http.StatusNotFound, metalog.CodeSnapshotNotFound)
}

func TestSendsAreLimited(t *testing.T) {
	// One that is being sent is held at its first read.
	disk := vfs.NewMem()
	id := write(t, open(t, disk), imageOf(t, 3, small)).SnapshotID.String()
	var armed atomic.Bool
	sending, release := make(chan struct{}), make(chan struct{})
	s := NewServer(ServerConfig{Snapshots: open(t, vfs.WithFaults(disk, func(op vfs.Op) error {
		if op.Kind == vfs.OpRead && armed.CompareAndSwap(true, false) {
			close(sending)
			<-release
		}
		return nil
	})), Limiter: peerdl.NewLimiter(1), Standing: func() (st metalog.Standing, down bool) { return }})
	armed.Store(true)
	done := make(chan int)
	go func() { done <- serve(s, Path+"/"+id).Code }()
	<-sending
	busy := serve(s, Path+"/"+id+"?position=0")
	if busy.Code != http.StatusServiceUnavailable || busy.Header().Get("Retry-After") == "" {
		t.Errorf("answered %d, %v", busy.Code, busy.Header())
	}
	close(release)
	if code := <-done; code != http.StatusOK {
		t.Errorf("the first got %d", code)
	}
}

func TestList(t *testing.T) {
	h := hold(t, imageOf(t, 3, 1), imageOf(t, 5, 1), imageOf(t, 4, 1))
	page := func(query string, want ...metalog.SnapshotRef) (next string) {
		t.Helper()
		r := h.ask(t, http.MethodGet, query)
		r.want(t, http.StatusOK, "")
		var got httpx.List[Item]
		if err := json.Unmarshal(r.body, &got); err != nil {
			t.Fatal(err)
		}
		var refs []metalog.SnapshotRef
		for _, i := range got.Items {
			refs = append(refs, i.SnapshotRef)
			if i.ID != i.SnapshotID.String() || i.Time.UnixMilli() != 1000+i.EndOffset-1 {
				t.Errorf("%+v", i)
			}
		}
		if !slices.Equal(refs, want) {
			t.Errorf("%s lists %v", query, refs)
		}
		return got.Next
	}
	all := h.List()
	if next := page("", all...); next != "" {
		t.Errorf("next page %q", next)
	}
	page("?after="+page("?limit=2", all[:2]...), all[2])
	h.ask(t, http.MethodGet, "?limit=x").want(t, http.StatusBadRequest, httpx.CodeInvalidRequest)
	if r := hold(t).ask(t, http.MethodGet, ""); string(r.body) != "{\"items\":[]}\n" {
		t.Errorf("none are listed as %q", r.body)
	}
}

func TestListShowsWhatCannotBeRead(t *testing.T) {
	id := metalog.SnapshotID{EndOffset: 3, Epoch: 1}
	r := holdBytes(t, id, []byte("no snapshot")).ask(t, http.MethodGet, "")
	var got httpx.List[map[string]any]
	if err := json.Unmarshal(r.body, &got); err != nil || len(got.Items) != 1 || got.Items[0]["id"] != id.String() || got.Items[0]["time"] != nil {
		t.Errorf("%s, %v", r.body, err)
	}
}

// Whatever is asked for at a time, the chunks make up the file.
func TestChunksMakeUpTheFile(t *testing.T) {
	h := hold(t, imageOf(t, 3, big))
	ref := *h.Latest()
	data := fileOf(t, h.Snapshots, ref.SnapshotID)
	srv := NewServer(ServerConfig{Snapshots: h.Snapshots, Standing: h.stand, Use: h.use})
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.OneOf(rapid.IntRange(len(data)/12, len(data)), rapid.IntRange(peerdl.MaxChunk-1, peerdl.MaxChunk+1))
		var got []byte
		for more := true; more; {
			n := size.Draw(t, "maxBytes")
			w := serve(srv, fmt.Sprintf("%s/%s?position=%d&maxBytes=%d", Path, ref.SnapshotID, len(got), n))
			if want := min(n, peerdl.MaxChunk, len(data)-len(got)); w.Code != http.StatusPartialContent || w.Body.Len() != want {
				t.Fatalf("%d with %d bytes, want %d", w.Code, w.Body.Len(), want)
			}
			got = append(got, w.Body.Bytes()...)
			more = w.Header().Get(peerdl.ContinueHeader) == "true"
		}
		if !bytes.Equal(got, data) {
			t.Fatalf("%d bytes that are not the file", len(got))
		}
	})
}

// dripping is a connection to a reader that takes 10 KiB a second.
type dripping struct {
	*httptest.ResponseRecorder
	took int64
}

func (d *dripping) ReadFrom(src io.Reader) (int64, error) {
	n, err := io.Copy(io.Discard, src)
	time.Sleep(time.Duration(n) * time.Second / (10 << 10))
	d.took += n
	return n, err
}

// The only slot is taken by a reader that drips: whoever asks again and again gets
// it all the same, and the other one does not have to be waited out.
func TestAReaderThatDripsGivesItsSlotToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		snaps := open(t, vfs.NewMem())
		ref := write(t, snaps, imageOf(t, 3, big))
		s := NewServer(ServerConfig{
			Snapshots: snaps, Limiter: peerdl.NewLimiter(1), Logger: zerolog.Nop(),
			Standing: func() (metalog.Standing, bool) {
				return metalog.Standing{Cluster: testCluster, Epoch: 1, URL: leaderURL}, false
			},
		})
		ask := func(w http.ResponseWriter) {
			s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, Path+"/"+ref.SnapshotID.String(), nil))
		}
		slow := &dripping{ResponseRecorder: httptest.NewRecorder()}
		var all sync.WaitGroup
		all.Go(func() { ask(slow) })
		synctest.Wait()
		began := time.Now()
		for refused := 0; ; refused++ {
			w := httptest.NewRecorder()
			if ask(w); w.Code == http.StatusOK {
				if waited := time.Since(began); refused == 0 || waited > 3*time.Minute {
					t.Errorf("served after %s and %d refusals", waited, refused)
				}
				break
			}
			time.Sleep(time.Second)
		}
		all.Wait()
		if slow.took == 0 || slow.took >= ref.SizeBytes {
			t.Errorf("the slow one took %d bytes of %d", slow.took, ref.SizeBytes)
		}
	})
}
