package controller

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/zkmeta"
	"github.com/shoalstore/shoal/zkmeta/zktest"
)

// refused waits until the member ends by itself, with an error that says all of want.
func (r *running) refused(want ...string) {
	r.t.Helper()
	<-r.ended
	for _, w := range want {
		if r.err == nil || !strings.Contains(r.err.Error(), w) {
			r.t.Errorf("the member ended with %v, which should say %q", r.err, w)
		}
	}
}

// refuses opens a member that must not open, with an error that says all of want.
func refuses(t *testing.T, cfg Config, want ...string) {
	t.Helper()
	c, err := Open(cfg, zerolog.Nop())
	if err == nil {
		c.Close()
	}
	for _, w := range want {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("the member says %v, which should say %q", err, w)
		}
	}
}

// TestDirectoryOfAnotherCluster: neither history is touched.
func TestDirectoryOfAnotherCluster(t *testing.T) {
	m := found(t)
	a := m.start(t.TempDir())
	a.leads()
	a.end()
	first := frames(t, a.cfg.Data)

	address, err := zkmeta.ParseAddress("zookeeper://" + m.server.Addr() + "/other")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := zkmeta.Connect(zkmeta.Access{}.Conn(address, zerolog.Nop(), nil))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	other := uuid.New()
	if err := zkmeta.Found(t.Context(), conn, other); err != nil {
		t.Fatal(err)
	}
	cluster, err := zkmeta.ReadIdentity(t.Context(), m.conn)
	if err != nil {
		t.Fatal(err)
	}
	b := m.open(memberConfig(a.cfg.Data, address.String()))
	b.launch()
	b.refused(cluster.String(), other.String(), a.cfg.Data, address.String())
	if h, _, err := zkmeta.CurrentHead(t.Context(), conn); err != nil || h.Next() != 0 {
		t.Errorf("the other cluster's log is at %d, %v", h.Next(), err)
	}
	if now := frames(t, a.cfg.Data); len(now) != len(first) {
		t.Errorf("the log had %d batches and has %d", len(first), len(now))
	}

	mistyped := m.open(memberConfig(a.cfg.Data, "zookeeper://"+m.server.Addr()+"/shaol"))
	mistyped.launch()
	mistyped.refused("no cluster at /shaol")
	if found, err := readMode(a.fs); err != nil || found.Metadata != a.cfg.Metadata {
		t.Errorf("the directory says that its metadata is in %q, %v", found.Metadata, err)
	}

	// It still is the first one's.
	c := m.start(a.cfg.Data)
	c.leads()
}

// TestDirectoryOfTheOtherMode: the truth of a directory is in one place.
func TestDirectoryOfTheOtherMode(t *testing.T) {
	m := found(t)
	embedded := Config{Data: t.TempDir(), Listen: "127.0.0.1:0"}
	a := m.open(embedded)
	a.launch()
	a.leads()
	a.end()
	cfg := memberConfig(embedded.Data, at(m.server.Addr()))
	refuses(t, cfg, embedded.Data, "embedded", cfg.Metadata, "shoal metadata migrate")
	if _, err := os.Stat(filepath.Join(embedded.Data, modeFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is there: %v", modeFile, err)
	}
	again := m.open(embedded)
	again.launch()
	again.leads()

	b := m.start(t.TempDir())
	b.leads()
	b.end()
	embedded.Data = b.cfg.Data
	refuses(t, embedded, b.cfg.Data, b.cfg.Metadata, "shoal metadata migrate")

	// A member that has never had a log is one all the same.
	c := m.open(memberConfig(t.TempDir(), at("127.0.0.1:1")))
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	embedded.Data = c.cfg.Data
	refuses(t, embedded, at("127.0.0.1:1"))
}

// TestUnreachableZooKeeper: it may come up later, so it is waited for.
func TestUnreachableZooKeeper(t *testing.T) {
	m := found(t)
	p := zktest.NewProxy(t, m.server.Addr())
	p.Cut()
	a := m.open(memberConfig(t.TempDir(), at(p.Addr())))
	a.launch()
	a.says("ZooKeeper does not answer, asked again after a pause")
	if !a.said.has(p.Addr()) {
		t.Errorf("it does not name the address: %s", a.said)
	}
	if status, body, _ := a.get("/readyz"); status != http.StatusServiceUnavailable {
		t.Errorf("without ZooKeeper it says that it is ready: %d %s", status, body)
	}
	if status, body, leader := a.get("/leader"); status != http.StatusMisdirectedRequest || leader != "" {
		t.Errorf("without ZooKeeper it answers %d %s, and names %q as the leader", status, body, leader)
	}
	p.Heal()
	a.leads()
}

// TestRootThatIsNotOurs: nothing, or somebody else's things, at the root.
func TestRootThatIsNotOurs(t *testing.T) {
	m := found(t)
	for _, path := range []string{"/foreign", "/foreign/data"} {
		if err := m.conn.Create(t.Context(), path, nil); err != nil {
			t.Fatal(err)
		}
	}
	for root, want := range map[string][]string{
		"/nothing": {"/nothing", "shoal metadata init"},
		"/foreign": {"/foreign", "data", "nothing was changed"},
	} {
		r := m.open(memberConfig(t.TempDir(), "zookeeper://"+m.server.Addr()+root))
		r.launch()
		r.refused(want...)
	}
	if names, err := m.conn.Children(t.Context(), "/foreign"); err != nil || len(names) != 1 {
		t.Errorf("in somebody else's tree there are %q, %v", names, err)
	}
	if _, err := m.conn.Children(t.Context(), "/nothing"); !errors.Is(err, zkmeta.ErrNoNode) {
		t.Errorf("/nothing: %v", err)
	}
}

// TestBrokenTree: a znode that is not as the log has left it is named, and nothing is
// written over it.
// TestPauseEndsWithASession: a ZooKeeper that comes back is not made to wait.
func TestPauseEndsWithASession(t *testing.T) {
	m := found(t)
	p := zktest.NewProxy(t, m.server.Addr())
	p.Cut()
	address, err := zkmeta.ParseAddress(at(p.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := zkmeta.Connect(zkmeta.Access{}.Conn(address, zerolog.Nop(), nil))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, changed := conn.Watch()
	p.Heal()
	waiting := &member{conn: conn}
	if !waiting.restFor(t.Context(), time.Hour, changed) || !conn.Session().Connected {
		t.Error("the pause ended without a session")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if waiting.restFor(ctx, time.Hour, nil) {
		t.Error("it waits on when it is to stop")
	}
}

// TestZooKeeperWasSetBack: what it had acknowledged and has no more is not given up in
// silence, and not written over.
func TestZooKeeperWasSetBack(t *testing.T) {
	m := found(t)
	a := m.start(t.TempDir())
	a.leads()
	old, _, err := m.conn.Get(t.Context(), m.conn.Path("log", "head"))
	if err != nil {
		t.Fatal(err)
	}
	a.write(addNode("n1"))
	a.end()
	now, _, err := m.conn.Get(t.Context(), m.conn.Path("log", "head"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.conn.Set(t.Context(), m.conn.Path("log", "head"), old, -1); err != nil {
		t.Fatal(err)
	}
	b := m.start(a.cfg.Data)
	b.says("ZooKeeper was set back")
	if got, _, err := m.conn.Get(t.Context(), m.conn.Path("log", "head")); err != nil || string(got) != string(old) {
		t.Errorf("the head is %s, %v", got, err)
	}
	if _, err := m.conn.Set(t.Context(), m.conn.Path("log", "head"), now, -1); err != nil {
		t.Fatal(err)
	}
	b.leads()
	b.wantNodes("n1")
}

// TestIDsAreShort: they are in each listing of the candidates.
func TestIDsAreShort(t *testing.T) {
	cfg := memberConfig("d", at("127.0.0.1:1"))
	cfg.ID = strings.Repeat("x", idBytesMax)
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
	cfg.ID += "x"
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "at most 128") {
		t.Errorf("%v", err)
	}
}

func TestBrokenTree(t *testing.T) {
	m := found(t)
	a := m.start(t.TempDir())
	a.leads()
	if err := m.conn.Create(t.Context(), m.conn.Path("nodes/n1"), []byte("what is this?")); err != nil {
		t.Fatal(err)
	}
	if _, err := a.submit(t.Context(), addNode("n1")); err == nil {
		t.Error("a node was written over what was there")
	}
	a.says(m.conn.Path("nodes/n1"))
	if data, _, err := m.conn.Get(t.Context(), m.conn.Path("nodes/n1")); err != nil || string(data) != "what is this?" {
		t.Errorf("there is %q now, %v", data, err)
	}
	if err := m.conn.Delete(t.Context(), m.conn.Path("nodes/n1"), -1); err != nil {
		t.Fatal(err)
	}
	await(t, "the write to go through once the tree is mended", func() (bool, string) {
		_, err := a.submit(t.Context(), addNode("n1"))
		return err == nil, "refused"
	})
}

// TestAnyControllerNamesTheLeader: who asks a standby finds the leader.
func TestAnyControllerNamesTheLeader(t *testing.T) {
	m := found(t)
	a := m.start(t.TempDir())
	a.leads()
	b, c := m.start(t.TempDir()), m.start(t.TempDir())
	b.follows(a)
	c.follows(a)
	for _, r := range []*running{b, c} {
		h := &httpx.Client{}
		defer h.Close()
		var v api.LeaderView
		if err := api.NewClient(h, r.URL()).Get(t.Context(), "/leader", &v); err != nil || v.Leader != a.URL() {
			t.Errorf("by %s the leader is %q, %v; it is %s", r.URL(), v.Leader, err, a.URL())
		}
	}
}

// TestFrozenController: who has the leader's address from a list finds it behind
// controllers that accept connections and say nothing.
func TestFrozenController(t *testing.T) {
	m := found(t)
	a := m.start(t.TempDir())
	a.leads()
	frozen, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, nobody answers
	if err != nil {
		t.Fatal(err)
	}
	defer frozen.Close()
	h := &httpx.Client{}
	defer h.Close()
	client := api.NewClient(h, "http://"+frozen.Addr().String(), a.URL())
	await(t, "the leader behind a frozen controller", func() (bool, string) {
		// As a heartbeat does: one time for all that it asks.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var v api.LeaderView
		err := client.Get(ctx, "/leader", &v)
		return err == nil && v.Leader == a.URL(), errors.Join(err, errors.New("no leader")).Error()
	})
}
