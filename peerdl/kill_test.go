package peerdl

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/segment"
)

// dying kills its process in the middle of the nth request for bytes.
func dying(h http.Handler, nth int) http.Handler {
	var asked atomic.Int64
	return onBytes(h, func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) != int64(nth) {
			h.ServeHTTP(w, r)
			return
		}
		half(h).ServeHTTP(w, r)
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	})
}

// half sends the first half of what it is asked for, and leaves it at that.
func half(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tamper(func(_ http.Header, body []byte) []byte { return body[:len(body)/2] })(h).ServeHTTP(w, r)
		w.(http.Flusher).Flush()
	})
}

// The process of a source is killed while it sends a piece. The others give the
// rest.
func TestSourceIsKilledInMidPiece(t *testing.T) {
	fsys := mustOS(t)
	b := newBlob(t, fsys, 6*piece+100)
	c := newChild(t, childJob{Serve: &serveJob{Dir: fsys.String(), DieIn: 2}})
	c.start(t)
	var url string
	if err := c.hear(&url); err != nil {
		t.Fatal(err)
	}
	doomed, other := Source{Name: "doomed", URL: url}, b.peer(t, "other", nil)
	other.Rank = 1 // so that the doomed one is asked first
	res := download(t, NewDownloader(testConfig(t)), b, b.request(mustOS(t), doomed, other))
	if by := res.Stats.BySource; by[1] < piece || by[0]+by[1] != b.Size() {
		t.Errorf("bytes by source: %v", by)
	}
	if err := c.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the source ended with %v", err)
	}
}

// downloadJob downloads, in a process that can be killed or measured.
type downloadJob struct {
	URL    string
	Digest segment.Digest
	Size   int64
	Dir    string
	// Times is how often, all at once, each into a file of its own that is removed
	// when it has come. 0: once, and it stays.
	Times int
}

// run says after each piece how many bytes are held, or at the end how much
// memory it took.
func (j *downloadJob) run() {
	fsys, err := vfs.OS(j.Dir)
	if err != nil {
		panic(err)
	}
	d := NewDownloader(Config{Log: zerolog.Nop()})
	get := func(req Request) {
		req.Digest, req.Size, req.FS = j.Digest, j.Size, fsys
		req.Sources = []Source{{URL: j.URL}}
		res, err := d.Download(context.Background(), req)
		if err != nil {
			panic(err)
		}
		if err := res.File.Close(); err != nil {
			panic(err)
		}
	}
	if j.Times == 0 {
		get(Request{Part: "x.part", Progress: func(p Progress) { say(p.HeldBytes) }})
		return
	}
	var all sync.WaitGroup
	for i := range j.Times {
		all.Go(func() {
			part := fmt.Sprintf("%d.part", i)
			get(Request{Part: part})
			if err := Forget(fsys, part); err != nil {
				panic(err)
			}
		})
	}
	all.Wait()
	say(peakMemory())
}

// peakMemory is the most that this process had in memory, in bytes; 0: not known.
func peakMemory() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	return 0
}

// A process is killed (SIGKILL) in mid-download. The next one asks again only for
// what was in flight, two pieces at most, and no byte of what had come in full.
func TestKilledDownloadFetchesTwoPiecesAgainAtMost(t *testing.T) {
	const whole = 5 // pieces that come before the sources fall silent
	b := newBlob(t, vfs.NewMem(), 9*piece+100)
	dir := mustOS(t)

	var mu sync.Mutex
	asked := map[int64]int{} // by position
	var sent atomic.Int64    // bytes
	silent := true
	stuck := make(chan struct{}, 100)
	src := b.peer(t, "one", func(h http.Handler) http.Handler {
		return onBytes(h, func(w http.ResponseWriter, r *http.Request) {
			var from, to int64
			if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to); err != nil {
				t.Errorf("Range %q", r.Header.Get("Range"))
			}
			mu.Lock()
			asked[from]++
			hold := silent && len(asked) > whole
			mu.Unlock()
			if !hold {
				sent.Add(to - from + 1)
				h.ServeHTTP(w, r)
				return
			}
			sent.Add((to - from + 1) / 2)
			half(h).ServeHTTP(w, r)
			stuck <- struct{}{}
			<-r.Context().Done()
		})
	})

	c := newChild(t, childJob{Download: &downloadJob{URL: src.URL, Digest: b.digest, Size: b.Size(), Dir: dir.String()}})
	c.start(t)
	for held := int64(0); held < whole*piece; {
		if err := c.hear(&held); err != nil {
			t.Fatal(err)
		}
	}
	<-stuck
	<-stuck // two are under way, and no more is asked for before one of them ends
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the download ended with %v", err)
	}

	mu.Lock()
	silent = false
	first := len(asked)
	mu.Unlock()
	res := download(t, NewDownloader(testConfig(t)), b, b.request(dir, src))
	again := 0
	mu.Lock()
	defer mu.Unlock()
	for from, n := range asked {
		if n > 1 {
			again++
			t.Logf("asked for %d times: byte %d", n, from)
		}
	}
	t.Logf("%d pieces asked for, killed, %d asked for again; %d bytes sent for %d", first, again, sent.Load(), b.Size())
	if again > 2 || sent.Load()-b.Size() > 2*piece || res.Stats.ResumedBytes != whole*piece {
		t.Errorf("%d pieces are fetched again, stats %+v", again, res.Stats)
	}
}

// The memory of a whole process with fifty downloads at once.
func TestFiftyDownloadsInAProcessAreSmall(t *testing.T) {
	if testing.Short() {
		t.Skip("short: the race detector's memory says nothing, and `make test` measures it")
	}
	const most = 256 << 20
	fsys := mustOS(t)
	b := newBlob(t, fsys, 4*piece+100)
	c := newChild(t, childJob{Download: &downloadJob{URL: b.peer(t, "one", nil).URL, Digest: b.digest, Size: b.Size(), Dir: t.TempDir(), Times: 50}})
	c.start(t)
	var peak int64
	if err := c.hear(&peak); err != nil {
		t.Fatal(err)
	}
	if peak == 0 {
		t.Skip("this system does not say how much memory a process had at most (VmHWM)")
	}
	t.Logf("50 downloads of %d bytes: %d MiB at most", b.Size(), peak>>20)
	if peak >= most {
		t.Errorf("%d MiB, want less than %d", peak>>20, most>>20)
	}
}
