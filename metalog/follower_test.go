package metalog

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
)

// world is the network of these tests: leaders by host name, over pipes, so that it
// works inside a synctest bubble.
type world struct {
	mu      sync.Mutex
	hosts   map[string]http.Handler
	leader  LeaderRef
	servers sync.WaitGroup
}

func newWorld() *world { return &world{hosts: map[string]http.Handler{}} }

// put makes h answer for a host; nil takes the host away.
func (w *world) put(host string, h http.Handler) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hosts[host] = h
}

func (w *world) lead(host string, epoch int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leader = LeaderRef{URL: "http://" + host, Epoch: epoch}
}

func (w *world) find(context.Context) (LeaderRef, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.leader.URL == "" {
		return LeaderRef{}, errors.New("nobody leads")
	}
	return w.leader, nil
}

// ServeHTTP answers with whoever has the host now.
func (w *world) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	h := w.hosts[r.Host]
	w.mu.Unlock()
	if h == nil {
		panic(http.ErrAbortHandler)
	}
	h.ServeHTTP(rw, r)
}

// dial makes one connection, served until it is closed.
func (w *world) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	closed := make(chan struct{})
	l := &oneConn{conn: &notifyingConn{Conn: server, closed: sync.OnceFunc(func() { close(closed) })}, closed: closed}
	w.servers.Go(func() { http.Serve(l, w) })
	return client, nil
}

// oneConn is a listener that accepts one connection and ends when that is closed.
type oneConn struct {
	conn   net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *oneConn) Accept() (conn net.Conn, err error) {
	l.once.Do(func() { conn = l.conn })
	if conn == nil {
		<-l.closed
		return nil, net.ErrClosed
	}
	return conn, nil
}
func (l *oneConn) Close() error   { return nil }
func (l *oneConn) Addr() net.Addr { return l.conn.LocalAddr() }

type notifyingConn struct {
	net.Conn
	closed func()
}

func (c *notifyingConn) Close() error { c.closed(); return c.Conn.Close() }

// running is a follower under test, with all that it delivered.
type running struct {
	*Follower
	stop func() error

	mu        sync.Mutex
	delivered []DeliverImage
}

func (w *world) config(disk vfs.FS) FollowerConfig {
	transport := &http.Transport{DialContext: w.dial}
	return FollowerConfig{
		FS: disk, Dir: "metadata", Find: w.find, FileBytes: 2000,
		Rand:   rand.New(rand.NewSource(1)),
		Client: &httpx.Client{HTTP: &http.Client{Transport: transport}},
	}
}

// follow starts a follower on disk. Its stop also closes it.
func (w *world) follow(t *testing.T, disk vfs.FS) *running {
	t.Helper()
	return w.followWith(t, disk, func(*FollowerConfig, **Follower) {})
}

// followWith is follow with a changed configuration; the follower is there when its
// functions are called.
func (w *world) followWith(t *testing.T, disk vfs.FS, change func(*FollowerConfig, **Follower)) *running {
	t.Helper()
	cfg := w.config(disk)
	r := &running{}
	change(&cfg, &r.Follower)
	cfg.Deliver = func(im *meta.Image, touched []meta.Key) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.delivered = append(r.delivered, DeliverImage{im, touched})
	}
	f, err := OpenFollower(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.Follower = f
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- f.Run(ctx) }()
	r.stop = sync.OnceValue(func() error {
		cancel()
		err := errors.Join(<-result, f.Close(), f.Close())
		cfg.Client.Close()
		w.servers.Wait()
		return err
	})
	t.Cleanup(func() { r.stop() }) // for a test that fails before
	return r
}

// deliveries checks the order of what was delivered and returns it.
func (r *running) deliveries(t *testing.T) []DeliverImage {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, d := range r.delivered {
		if (d.Touched == nil) != (i == 0) || i > 0 && d.Image.Next() <= r.delivered[i-1].Image.Next() {
			t.Fatalf("delivery %d is of image %d with %d keys", i, d.Image.Next(), len(d.Touched))
		}
	}
	return slices.Clone(r.delivered)
}

// sameImage compares records and position.
func sameImage(a, b *meta.Image) bool {
	return a.Next() == b.Next() && a.Epoch() == b.Epoch() && a.LastTerm() == b.LastTerm() &&
		reflect.DeepEqual(slices.Collect(a.Records()), slices.Collect(b.Records()))
}

func imageOf(t *testing.T, l *Log) *meta.Image {
	t.Helper()
	im, err := Replay(l, meta.Empty())
	if err != nil {
		t.Fatal(err)
	}
	return im
}

func TestFollowerCatchesUpAndFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l, disk := newWorld(), logOf(t, run{1, 40}), vfs.NewMem()
		w.put("one", serverOf(l, nil, nil))
		w.lead("one", 1)
		f := w.follow(t, disk)
		synctest.Wait()
		if !sameImage(f.Image(), imageOf(t, l)) {
			t.Fatalf("the follower is at %d: %+v", f.Image().Next(), f.Status())
		}
		appendAll(t, l, batchAt(40, 1, false))
		synctest.Wait() // no time passes: the poll is answered at once
		got := f.deliveries(t)
		last := got[len(got)-1]
		if last.Image.Next() != 41 || len(last.Touched) != 1 || last.Touched[0] != job(40, 0).Key() {
			t.Fatalf("delivered %d, touching %v", last.Image.Next(), last.Touched)
		}
		if st := f.Status(); st.State != FollowFetching || st.Applied != 41 || st.LeaderHighWatermark != 41 || st.Err != nil || st.Leader.Epoch != 1 {
			t.Fatalf("status %+v", st)
		}
		if err := f.stop(); err != nil {
			t.Fatal(err)
		}
		// A restart begins where the cache ends, without a leader.
		w.put("one", nil)
		f = w.follow(t, disk)
		synctest.Wait()
		if got := f.deliveries(t); len(got) != 1 || !sameImage(got[0].Image, imageOf(t, l)) {
			t.Fatalf("%d deliveries from the cache", len(got))
		}
		if st := f.Status(); st.State != FollowWaiting || st.Err == nil {
			t.Fatalf("status %+v", st)
		}
		if err := f.stop(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestFollowerMovesToTheNextLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l := newWorld(), logOf(t, run{1, 3})
		one := serverOf(l, nil, nil)
		w.put("one", one)
		w.lead("one", 1)
		f := w.follow(t, vfs.NewMem())
		synctest.Wait()
		// Deposed in mid-poll; its successor has written more.
		next := logOf(t, run{1, 4}, run{2, 2})
		w.put("two", serverOf(next, nil, nil))
		w.lead("two", 2)
		one.SetStanding(Standing{Cluster: testCluster, Epoch: 2, URL: "http://two"})
		synctest.Wait()
		if !sameImage(f.Image(), imageOf(t, next)) {
			t.Fatalf("the follower is at %d: %+v", f.Image().Next(), f.Status())
		}
		if err := f.stop(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestFollowerOutlivesALeaderThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l := newWorld(), logOf(t, run{1, 3})
		f := w.follow(t, vfs.NewMem())
		time.Sleep(time.Hour)
		if st := f.Status(); st.State != FollowWaiting || st.Err == nil || !strings.Contains(st.Err.Error(), "nobody leads") {
			t.Fatalf("status %+v", st)
		}
		silent, wake := stalling()
		w.put("one", silent)
		w.lead("one", 1)
		time.Sleep(30 * time.Second)
		if st := f.Status(); st.Err == nil || !strings.Contains(st.Err.Error(), errIdle.Error()) {
			t.Fatalf("a leader that says nothing: %+v", st)
		}
		w.put("one", serverOf(l, nil, nil))
		wake()
		time.Sleep(30 * time.Second)
		if st := f.Status(); st.Applied != 3 || st.Err != nil {
			t.Fatalf("status %+v", st)
		}
		if err := f.stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// A leader that is frozen in mid-poll is left as soon as another is heard of, and so is
// the pause before the next try.
func TestFollowerLeavesAFrozenLeaderForOneThatIsHeardOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l := newWorld(), logOf(t, run{1, 3})
		w.put("one", serverOf(l, nil, nil))
		w.lead("one", 1)
		f := w.follow(t, vfs.NewMem())
		synctest.Wait()
		frozen, wake := stalling()
		defer wake()
		w.put("one", frozen)
		time.Sleep(fetchWaitMax) // the next poll meets it
		synctest.Wait()
		f.LeaderHeard(1) // as before: nothing happens
		synctest.Wait()
		if st := f.Status(); st.State != FollowFetching {
			t.Fatalf("status %+v", st)
		}
		next := logOf(t, run{1, 3}, run{2, 2})
		w.put("two", serverOf(next, nil, nil))
		w.lead("two", 2)
		f.LeaderHeard(2)
		synctest.Wait() // no time passes
		if !sameImage(f.Image(), imageOf(t, next)) {
			t.Fatalf("the follower is at %d: %+v", f.Image().Next(), f.Status())
		}

		w.put("two", nil)
		w.lead("gone", 2)
		time.Sleep(time.Minute)
		last := logOf(t, run{1, 3}, run{2, 2}, run{3, 2})
		w.put("three", serverOf(last, nil, nil))
		w.lead("three", 3)
		synctest.Wait()
		if st := f.Status(); st.State != FollowWaiting {
			t.Fatalf("status %+v", st)
		}
		f.LeaderHeard(3)
		synctest.Wait()
		if !sameImage(f.Image(), imageOf(t, last)) {
			t.Fatalf("the follower is at %d: %+v", f.Image().Next(), f.Status())
		}
		if err := f.stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// stalling is a leader that takes requests and never answers, until it is told to.
func stalling() (h http.Handler, wake func()) {
	woken := make(chan struct{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-woken:
		case <-r.Context().Done():
		}
		panic(http.ErrAbortHandler)
	}), sync.OnceFunc(func() { close(woken) })
}

func TestScenario25GarbageAsFrames(t *testing.T) { // METALOG §5, 25
	answer := func(header map[string]string, body string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(HeaderLeaderEpoch, "1")
			w.Header().Set(HeaderHighWatermark, "9")
			w.Header().Set("Content-Type", ContentTypeFrames)
			for k, v := range header {
				w.Header().Set(k, v)
			}
			w.Write([]byte(body))
		})
	}
	for name, h := range map[string]http.Handler{
		"frames":                  answer(nil, "garbage, not frames at all"),
		"a cut frame":             answer(nil, string(framesOf(t, batchAt(3, 1, false))[:40])),
		"JSON of nothing":         answer(map[string]string{"Content-Type": "application/json"}, "{}"),
		"JSON of both":            answer(map[string]string{"Content-Type": "application/json"}, `{"snapshot":{"endOffset":1},"diverging":{"epoch":1}}`),
		"no JSON":                 answer(map[string]string{"Content-Type": "application/json"}, "{"),
		"another type":            answer(map[string]string{"Content-Type": "text/html"}, "<html>"),
		"no epoch":                answer(map[string]string{HeaderLeaderEpoch: ""}, ""),
		"no high watermark":       answer(map[string]string{HeaderHighWatermark: "many"}, ""),
		"more bytes than a fetch": answer(nil, strings.Repeat("x", answerBytesMax+1)),
		"an error page":           http.NotFoundHandler(),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, l := newWorld(), logOf(t, run{1, 3})
				w.put("one", serverOf(l, nil, nil))
				w.lead("one", 1)
				f := w.follow(t, vfs.NewMem())
				synctest.Wait()
				w.put("one", h)
				time.Sleep(10 * time.Second)
				if st := f.Status(); st.Applied != 3 || st.Err == nil {
					t.Fatalf("status %+v", st)
				}
				appendAll(t, l, batchAt(3, 1, false))
				w.put("one", serverOf(l, nil, nil))
				time.Sleep(10 * time.Second)
				if st := f.Status(); st.Applied != 4 || st.Err != nil {
					t.Fatalf("not healed: %+v", st)
				}
				if err := f.stop(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

func TestFollowerSetsADamagedCacheAsideAndFetchesAgain(t *testing.T) {
	for name, damage := range map[string]func(*testing.T, vfs.FS){
		"a flipped bit": func(t *testing.T, fs vfs.FS) { patch(t, fs, "metadata/00000000000000000000.log", flip(300)) },
		"its beginning is gone": func(t *testing.T, fs vfs.FS) {
			l, err := OpenLog(fs, LogOptions{Dir: "metadata", FileBytes: onePerFile})
			if err != nil {
				t.Fatal(err)
			}
			appendAll(t, l, batchAt(l.End(), 1, false))
			if err := errors.Join(l.Trim(l.End()), l.Close()); err != nil {
				t.Fatal(err)
			}
		},
		"a newer format": func(t *testing.T, fs vfs.FS) {
			patch(t, fs, "metadata/00000000000000000000.log", func(b []byte) []byte { b[8] = 9; return b })
		},
		"batches that do not apply": func(t *testing.T, fs vfs.FS) {
			l, err := OpenLog(fs, LogOptions{Dir: "metadata"})
			if err != nil {
				t.Fatal(err)
			}
			b := batchAt(l.End(), 1, false)
			b.Removals = []meta.Key{job(99, 0).Key()}
			appendAll(t, l, b)
			l.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, l, disk := newWorld(), logOf(t, run{1, 30}), vfs.NewMem()
				w.put("one", serverOf(l, nil, nil))
				w.lead("one", 1)
				for range 2 { // the second time there is an older one aside
					f := w.follow(t, disk)
					synctest.Wait()
					if !sameImage(f.Image(), imageOf(t, l)) {
						t.Fatalf("the follower is at %d", f.Image().Next())
					}
					if err := f.stop(); err != nil {
						t.Fatal(err)
					}
					damage(t, disk)
				}
				f := w.follow(t, disk)
				synctest.Wait()
				if got := f.deliveries(t); got[0].Image.Next() != 0 || !sameImage(f.Image(), imageOf(t, l)) {
					t.Fatalf("it began at %d and is at %d", got[0].Image.Next(), f.Image().Next())
				}
				if err := f.stop(); err != nil {
					t.Fatal(err)
				}
				if _, err := disk.Stat("metadata.corrupt"); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

func TestFollowerRefusesACacheOfAnotherCluster(t *testing.T) {
	disk := vfs.NewMem()
	l, err := OpenLog(disk, LogOptions{Dir: "metadata"})
	if err != nil {
		t.Fatal(err)
	}
	appendAll(t, l, batchesOf(run{1, 2})...)
	l.Close()
	cfg := newWorld().config(disk)
	cfg.Cluster = uuid.New()
	if _, err := OpenFollower(cfg); err == nil || !strings.Contains(err.Error(), cfg.Cluster.String()) || !strings.Contains(err.Error(), testCluster.String()) {
		t.Fatalf("error %v", err)
	}
	if _, err := disk.Stat("metadata"); err != nil {
		t.Fatal("it was set aside")
	}
}

func TestFollowerEndsWhenItsCacheIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l := newWorld(), logOf(t, run{1, 3})
		w.put("one", serverOf(l, nil, nil))
		w.lead("one", 1)
		var broken bool
		var mu sync.Mutex
		f := w.follow(t, vfs.WithFaults(vfs.NewMem(), func(op vfs.Op) error {
			mu.Lock()
			defer mu.Unlock()
			if broken && op.Kind == vfs.OpSync {
				return syscall.EIO
			}
			return nil
		}))
		synctest.Wait()
		mu.Lock()
		broken = true
		mu.Unlock()
		appendAll(t, l, batchAt(3, 1, false))
		synctest.Wait()
		if f.Image().Next() != 3 {
			t.Fatal("it shows what is not durable")
		}
		if err := f.stop(); !errors.Is(err, ErrPoisoned) || !errors.Is(err, syscall.EIO) {
			t.Fatalf("run: %v", err)
		}
	})
}

func TestFollowerWaitsOutAFullDisk(t *testing.T) { // METALOG §5, 37
	synctest.Test(t, func(t *testing.T) {
		w, l := newWorld(), logOf(t, run{1, 30})
		w.put("one", serverOf(l, nil, nil))
		w.lead("one", 1)
		space := vfs.WithSpace(vfs.NewMem(), 300)
		f := w.follow(t, space)
		time.Sleep(10 * time.Second)
		if st := f.Status(); st.Applied != 0 || !errors.Is(st.Err, syscall.ENOSPC) {
			t.Fatalf("status %+v", st)
		}
		space.Add(1 << 20)
		time.Sleep(10 * time.Second)
		if st := f.Status(); st.Applied != 30 || st.Err != nil {
			t.Fatalf("status %+v", st)
		}
		if err := f.stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// METALOG §5, 36, of a cache: after a power cut at any moment it is a prefix of the
// leader's log, or is set aside, and then the follower is where the leader is.
func TestPowerCutUnderAFollower(t *testing.T) {
	l := logOf(t, run{1, 25}, run{2, 5})
	w := newWorld()
	w.put("one", serverOf(l, nil, nil))
	w.lead("one", 2)
	follow := func(fs vfs.FS, until int64) error {
		cfg := w.config(fs)
		// A failed fsync ends Run; other failures would be waited out for ever.
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		cfg.Deliver = func(im *meta.Image, _ []meta.Key) {
			if im.Next() >= until {
				cancel()
			}
		}
		cfg.BackOffMin, cfg.BackOffMax = time.Microsecond, time.Millisecond
		cfg.Find = func(ctx context.Context) (LeaderRef, error) {
			if _, err := fs.Stat("."); err != nil {
				cancel()
			}
			return w.find(ctx)
		}
		f, err := OpenFollower(cfg)
		if err != nil {
			return err
		}
		err = errors.Join(f.Run(ctx), f.Close())
		cfg.Client.Close()
		return err
	}
	for crash := range vfs.CrashPoints(vfs.NewMem(), func(fs vfs.FS) error { return follow(fs, 30) }) {
		t.Run(crash.String(), func(t *testing.T) {
			if err := follow(crash.Disk, 30); err != nil {
				t.Fatal(err)
			}
			again, err := OpenLog(crash.Disk, LogOptions{Dir: "metadata"})
			if err != nil {
				t.Fatal(err)
			}
			defer again.Close()
			if !sameImage(imageOf(t, again), imageOf(t, l)) {
				t.Fatal("the cache is not the leader's log")
			}
		})
	}
	w.servers.Wait()
}

// METALOG §5, 19 and 26, on disk: what a snapshot has replaced is gone, the log begins
// where it ends, and a restart finds both, also when the log is damaged by then.
func TestScenario26SnapshotReplacesTheImageAndTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l, disk := newWorld(), logOf(t, run{1, 40}), vfs.NewMem()
		im := imageOf(t, l)
		appendAll(t, l, batchAt(40, 1, false))
		ref := &SnapshotRef{SnapshotID: headerOf(im).ID(), SizeBytes: 1}
		w.put("one", serverOf(l, ref, ref))
		w.lead("one", 1)
		var fetched []SnapshotID
		f := w.followWith(t, disk, func(cfg *FollowerConfig, f **Follower) {
			cfg.SnapshotsDir = SnapshotsDir
			cfg.FetchSnapshot = func(ctx context.Context, _ LeaderRef, ref SnapshotRef) (*meta.Image, error) {
				fetched = append(fetched, ref.SnapshotID)
				_, err := (*f).Snapshots().Write(ctx, im)
				return im, err
			}
		})
		synctest.Wait()
		if !sameImage(f.Image(), imageOf(t, l)) || len(fetched) != 1 || f.cache.Start() != 40 {
			t.Fatalf("at %d with a log from %d on, %v fetched: %+v", f.Image().Next(), f.cache.Start(), fetched, f.Status())
		}
		if err := f.stop(); err != nil {
			t.Fatal(err)
		}
		w.put("one", nil)
		for _, damaged := range []bool{false, true} {
			if damaged {
				patch(t, disk, "metadata/00000000000000000040.log", func(b []byte) []byte { b[8] = 9; return b })
			}
			f = w.followWith(t, disk, func(cfg *FollowerConfig, _ **Follower) { cfg.SnapshotsDir = SnapshotsDir })
			synctest.Wait()
			if next := f.Image().Next(); damaged && next != 40 || !damaged && next != 41 {
				t.Errorf("damaged: %v; a restart is at %d", damaged, next)
			}
			if err := f.stop(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A disk that does not keep a snapshot ends the follower.
func TestFollowerEndsWhenASnapshotMayNotBeKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l := newWorld(), logOf(t, run{1, 4})
		ref := &SnapshotRef{SnapshotID: SnapshotID{EndOffset: 4, Epoch: 1}, SizeBytes: 1}
		w.put("one", serverOf(l, ref, ref))
		w.lead("one", 1)
		f := w.followWith(t, vfs.NewMem(), func(cfg *FollowerConfig, _ **Follower) {
			cfg.FetchSnapshot = func(context.Context, LeaderRef, SnapshotRef) (*meta.Image, error) {
				return nil, &vfs.SyncError{Err: syscall.EIO}
			}
		})
		synctest.Wait()
		if err := f.stop(); !vfs.IsSyncError(err) {
			t.Fatalf("it ended with %v", err)
		}
	})
}

// What is left of a download goes once the log goes on without it.
func TestFollowerDropsADownloadThatIsNotNeededAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l, disk := newWorld(), logOf(t, run{1, 4}), vfs.NewMem()
		s := openSnapshots(t, disk)
		_, part := s.PartPath(refOf(2, 1, 7))
		for _, name := range []string{part, part + ".journal"} {
			putFile(t, disk, name, []byte("bytes"))
		}
		f := w.followWith(t, disk, func(cfg *FollowerConfig, _ **Follower) { cfg.SnapshotsDir = SnapshotsDir })
		synctest.Wait()
		wantFiles(t, disk, SnapshotsDir, path.Base(part), path.Base(part)+".journal")
		w.put("one", serverOf(l, nil, nil))
		w.lead("one", 1)
		time.Sleep(time.Minute)
		synctest.Wait()
		if f.Image().Next() != 4 {
			t.Fatalf("at %d: %+v", f.Image().Next(), f.Status())
		}
		wantFiles(t, disk, SnapshotsDir)
		if err := f.stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// What a follower serves of its copy is what is committed, whatever more it has stored.
func TestFollowerServesItsCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l := newWorld(), logOf(t, run{1, 9})
		w.put("one", serverOf(l, nil, nil))
		w.lead("one", 1)
		f := w.followWith(t, vfs.NewMem(), func(*FollowerConfig, **Follower) {})
		synctest.Wait()
		get := func(query string) *httptest.ResponseRecorder {
			rec := httptest.NewRecorder()
			f.CopyServer(zerolog.Nop()).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, CopyPath+"?"+query, nil))
			return rec
		}
		for _, end := range []int64{9, 6} { // as if the last three were only stored
			f.mu.Lock()
			f.machine.image = imageOf(t, logOf(t, run{1, end}))
			f.mu.Unlock()
			for offset := range int64(11) {
				rec := get(fmt.Sprintf("offset=%d", offset))
				if offset > end {
					if rec.Code != http.StatusRequestedRangeNotSatisfiable || !strings.Contains(rec.Body.String(), CodePositionOutOfRange) {
						t.Errorf("offset %d of %d: %d %s", offset, end, rec.Code, rec.Body)
					}
					continue
				}
				entries, err := DecodeEntries(rec.Body.Bytes())
				if err != nil || rec.Code != http.StatusOK || rec.Header().Get(HeaderHighWatermark) != fmt.Sprint(end) {
					t.Fatalf("offset %d of %d: %d, %v, %v", offset, end, rec.Code, rec.Header(), err)
				}
				if int64(len(entries)) != end-offset || len(entries) > 0 && entries[0].Batch.Offset != offset {
					t.Errorf("offset %d of %d: %d batches", offset, end, len(entries))
				}
			}
		}
		if n, err := DecodeEntries(get("offset=2&maxBytes=1").Body.Bytes()); err != nil || len(n) != 1 {
			t.Errorf("%d batches, %v", len(n), err)
		}
		for _, query := range []string{"", "offset=x", "offset=-1", "offset=0&maxBytes=0"} {
			if rec := get(query); rec.Code != http.StatusBadRequest || !strings.Contains(rec.Body.String(), CodeInvalidRequest) {
				t.Errorf("%q: %d %s", query, rec.Code, rec.Body)
			}
		}
		if err := f.stop(); err != nil {
			t.Fatal(err)
		}
	})
}
