package snapshots

import (
	"context"
	"fmt"
	"io"
	"math/rand"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/peerdl"
)

// leader is a log with its writer and its keeper, served over HTTP as a controller does.
type leader struct {
	t      *testing.T
	log    *metalog.Log
	writer *metalog.Writer
	keeper *Keeper
	url    string
}

func lead(t *testing.T) *leader {
	t.Helper()
	disk := vfs.NewMem()
	log, err := metalog.OpenLog(disk, metalog.LogOptions{Dir: "log", FileBytes: 64 << 10, Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	l := &leader{t: t, log: log}
	standing := metalog.Standing{Cluster: testCluster, Epoch: 1, URL: leaderURL, Leading: true}
	l.keeper = NewKeeper(Shared{Logger: zerolog.Nop(), Standing: func() (metalog.Standing, bool) { return standing, false }}, log, open(t, disk), nil)
	l.writer = metalog.NewWriter(metalog.WriterConfig{
		Device: log, Image: meta.Empty(), Cluster: testCluster, Clock: func() int64 { return time.Now().UnixMilli() },
		Leader: meta.Leader{Epoch: 1, Term: testTerm, Controller: "c", URL: leaderURL},
	})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.writer.Run(ctx) }()
	<-l.writer.Ready()
	server := metalog.NewServer(metalog.ServerConfig{Log: log, Snapshots: l.keeper.Named, Logger: zerolog.Nop()})
	server.SetStanding(standing)
	mux := http.NewServeMux()
	mux.Handle(Path, l.keeper)
	mux.Handle(Path+"/", l.keeper)
	mux.Handle("/metadata/log", server)
	srv := httptest.NewServer(mux)
	l.url = srv.URL
	t.Cleanup(func() {
		server.Shutdown() // long polls end
		srv.Close()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		log.Close()
	})
	return l
}

// put writes a job with a number, of about so many bytes.
func (l *leader) put(n, size int) {
	l.t.Helper()
	_, err := l.writer.Submit(l.t.Context(), func(*meta.Image, int64) (meta.Change, error) {
		return meta.Change{Upserts: []meta.Record{&meta.Job{
			ID: uuid.MustParse(fmt.Sprintf("10000000-0000-4000-8000-%012d", n)), Kind: "test", State: meta.JobRunning, Created: 1,
			Args: map[string]string{"filler": strings.Repeat("x", size)},
		}}}, nil
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *leader) snapshot() metalog.SnapshotRef {
	l.t.Helper()
	return write(l.t, l.keeper.Snapshots, l.writer.Image())
}

// clean lets go of whatever may go.
func (l *leader) clean() {
	l.t.Helper()
	tiny := metalog.RetentionPolicy{BytesMax: 1, TrailingMin: 1}
	if _, err := metalog.Clean(l.t.Context(), l.log, l.keeper.Snapshots, tiny, l.log.End(), time.Now().UnixMilli()); err != nil {
		l.t.Fatal(err)
	}
}

// TestSlowLinkThatDropsAgainAndAgain: over a link of 200 KB/s that drops every 3 s, a node
// that begins with nothing gets a snapshot that has been superseded, and would have been
// cleaned, on the leader meanwhile, and the log after it.
func TestSlowLinkThatDropsAgainAndAgain(t *testing.T) {
	l := lead(t)
	for n := range 30 {
		l.put(n, 50<<10)
	}
	first := l.snapshot()
	link := newSlowLink(t, l.url, 200<<10, 3*time.Second)

	disk := vfs.NewMem()
	var keeper *Keeper
	over := make(chan struct{}) // the log grows no more
	superseded := sync.OnceFunc(func() {
		defer close(over)
		for n := range 4 {
			l.put(100+n, 1000)
			l.snapshot()
		}
		l.clean()
		if _, ok := l.keeper.Snapshots.Get(first.SnapshotID); !ok {
			t.Error("the snapshot that is being sent has gone")
		}
	})
	delivered := make(chan struct{}, 1)
	var asked []metalog.SnapshotID
	client := &httpx.Client{Timeout: -1}
	node, err := metalog.OpenFollower(metalog.FollowerConfig{
		FS: disk, Dir: "cache", SnapshotsDir: metalog.SnapshotsDir,
		Find: func(context.Context) (metalog.LeaderRef, error) {
			return metalog.LeaderRef{URL: link.url, Epoch: 1}, nil
		},
		FetchSnapshot: func(ctx context.Context, leader metalog.LeaderRef, ref metalog.SnapshotRef) (*meta.Image, error) {
			asked = append(asked, ref.SnapshotID)
			return keeper.Fetch(ctx, uuid.Nil, leader, ref, nil)
		},
		Deliver: func(*meta.Image, []meta.Key) {
			select {
			case delivered <- struct{}{}:
			default:
			}
		},
		Rand: rand.New(rand.NewSource(1)), Client: client, Logger: zerolog.Nop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	transport := peerdl.NewTransport()
	keeper = NewKeeper(Shared{
		Logger: zerolog.Nop(), Client: &httpx.Client{Timeout: -1, HTTP: &http.Client{Transport: transport}},
		Standing: func() (metalog.Standing, bool) { return metalog.Standing{}, false },
	}, node.Log(), node.Snapshots(), nil)
	link.after(first.SizeBytes/3, superseded)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- node.Run(ctx) }()
	<-over
	for node.Image().Next() < l.log.End() {
		<-delivered
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if len(asked) == 0 || asked[0] != first.SnapshotID || asked[len(asked)-1] != first.SnapshotID {
		t.Errorf("asked for %v", asked)
	}
	if link.drops() == 0 {
		t.Error("the link never dropped")
	}
	if wasted := (&follower{Fetcher: keeper.fetcher}).wasted(); wasted >= float64(first.SizeBytes) {
		t.Errorf("%v bytes came in vain, of %d", wasted, first.SizeBytes)
	}
	want := l.snapshot()
	if got := write(t, node.Snapshots(), node.Image()); got != want {
		t.Errorf("the node comes to %+v, the leader to %+v", got, want)
	}
	// What is not asked for any more goes.
	l.put(200, 10)
	l.snapshot()
	later := time.Now().Add(2 * time.Minute).UnixMilli()
	if _, err := metalog.Clean(t.Context(), l.log, l.keeper.Snapshots, metalog.RetentionPolicy{BytesMax: 1, TrailingMin: 1}, l.log.End(), later); err != nil {
		t.Fatal(err)
	}
	if _, ok := l.keeper.Snapshots.Get(first.SnapshotID); ok {
		t.Error("the snapshot stays although nobody asks for it")
	}
	if err := node.Close(); err != nil {
		t.Error(err)
	}
	client.Close()
	transport.CloseIdleConnections()
}

// slowLink is a way to a server that carries so many bytes a second in all, and breaks
// whatever it carries again and again.
type slowLink struct {
	url    string
	target string
	each   int // bytes that go every slowTick

	mu      sync.Mutex
	conns   map[net.Conn]bool
	dropped int
	sent    int64
	at      int64
	hook    func()
	budget  chan struct{}
}

const slowTick = 20 * time.Millisecond

func newSlowLink(t *testing.T, target string, bytesPerSecond int, dropEvery time.Duration) *slowLink {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &slowLink{
		url: "http://" + ln.Addr().String(), target: strings.TrimPrefix(target, "http://"),
		each: bytesPerSecond * int(slowTick) / int(time.Second), conns: map[net.Conn]bool{}, budget: make(chan struct{}),
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { s.tick(stop, dropEvery) })
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { s.carry(stop, conn) })
		}
	})
	t.Cleanup(func() {
		close(stop)
		ln.Close()
		s.drop()
		wg.Wait()
	})
	return s
}

// tick hands out what may go, and drops.
func (s *slowLink) tick(stop chan struct{}, dropEvery time.Duration) {
	every, drop := time.NewTicker(slowTick), time.NewTicker(dropEvery)
	defer every.Stop()
	defer drop.Stop()
	for {
		select {
		case <-stop:
			return
		case <-drop.C:
			s.drop()
		case <-every.C:
			select {
			case s.budget <- struct{}{}:
			default: // nobody sends
			}
		}
	}
}

func (s *slowLink) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.conns) > 0 {
		s.dropped++
	}
	for conn := range s.conns {
		conn.Close()
	}
	clear(s.conns)
}

func (s *slowLink) drops() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropped
}

// after has hook called once so many bytes have gone.
func (s *slowLink) after(bytes int64, hook func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at, s.hook = bytes, hook
}

func (s *slowLink) carry(stop chan struct{}, client net.Conn) {
	server, err := net.Dial("tcp", s.target)
	if err != nil {
		client.Close()
		return
	}
	s.mu.Lock()
	s.conns[client], s.conns[server] = true, true
	s.mu.Unlock()
	up := make(chan struct{})
	go func() {
		defer close(up)
		_, _ = io.Copy(server, client)
		server.Close()
	}()
	buf := make([]byte, s.each)
	for {
		n, err := server.Read(buf)
		if n > 0 {
			select {
			case <-s.budget:
			case <-stop:
			}
			if _, err := client.Write(buf[:n]); err != nil {
				break
			}
			s.count(int64(n))
		}
		if err != nil {
			break
		}
	}
	client.Close()
	server.Close()
	<-up
	s.mu.Lock()
	delete(s.conns, client)
	delete(s.conns, server)
	s.mu.Unlock()
}

func (s *slowLink) count(n int64) {
	s.mu.Lock()
	s.sent += n
	var hook func()
	if s.hook != nil && s.sent >= s.at {
		hook, s.hook = s.hook, nil
	}
	s.mu.Unlock()
	if hook != nil {
		hook()
	}
}
