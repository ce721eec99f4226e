package zkmeta

import (
	"bytes"
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/shoalstore/shoal/zkmeta/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shortTimeout is for sessions that a test waits for the end of, or for calls that
// get no answer. A machine that is busy for two thirds of it loses the connection.
const shortTimeout = 3 * time.Second

func short(cfg *ConnConfig) { cfg.SessionTimeout = shortTimeout }

// dialTo connects to servers until the test ends.
func dialTo(t *testing.T, change func(*ConnConfig), servers ...string) *Conn {
	t.Helper()
	cfg := ConnConfig{
		Address:        Address{Servers: servers, Root: "/shoal"},
		SessionTimeout: treeTimeout,
		Logger:         zerolog.New(zerolog.NewTestWriter(t)),
	}
	if change != nil {
		change(&cfg)
	}
	c, err := Connect(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// await waits for a session that is what ok says. What never comes ends with the
// test's own time.
func await(t *testing.T, c *Conn, ok func(Session) bool) Session {
	t.Helper()
	for {
		s, changed := c.Watch()
		if ok(s) {
			return s
		}
		select {
		case <-changed:
		case <-t.Context().Done():
			t.Fatalf("the session stays %+v", s)
		}
	}
}

func connected(s Session) bool { return s.Connected }

// try calls again what had no answer that counts: the machine may be busy.
func try(t *testing.T, what func() error) {
	t.Helper()
	for {
		err := what()
		if err == nil {
			return
		}
		if !errors.Is(err, ErrNoAnswer) {
			t.Fatal(err)
		}
	}
}

// lines collects a log.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func TestConnConfigNamesEveryFault(t *testing.T) {
	_, err := Connect(ConnConfig{SessionTimeout: time.Hour, User: "a:b"})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"lacks the root", "no host", "session timeout", "both or none", "colon"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant %q in it", err, want)
		}
	}
}

func TestConnPath(t *testing.T) {
	c := &Conn{cfg: ConnConfig{Address: Address{Root: "/a/shoal"}}}
	for want, rel := range map[string][]string{
		"/a/shoal":          nil,
		"/a/shoal/log/head": {"log", "head"},
		"/a/shoal/log/x":    {"log/x"},
	} {
		if got := c.Path(rel...); got != want {
			t.Errorf("%q: %s", rel, got)
		}
	}
	if got := c.Path(""); got != "/a/shoal" {
		t.Errorf("Path(\"\"): %s", got)
	}
}

func TestConnGetsASession(t *testing.T) {
	s := startServer(t)
	c := dialTo(t, nil, s.Addr())
	got := await(t, c, connected)
	if got.ID == 0 || got.Connection != 1 || got.Timeout != treeTimeout {
		t.Errorf("session %+v", got)
	}
	if c.LastHeard() != 0 {
		t.Errorf("heard at %v, before any request", c.LastHeard())
	}
	before := c.Now()
	try(t, func() error { return c.Sync(t.Context(), "/zookeeper") })
	if h := c.LastHeard(); h < before || h > c.Now() {
		t.Errorf("heard at %v, asked after %v", h, before)
	}
}

// TestConnOutlivesItsServer: the session is the same after the server was killed
// and came back, and the connection is another.
func TestConnOutlivesItsServer(t *testing.T) {
	s := startServer(t)
	var log lines
	reg := prometheus.NewRegistry()
	c := dialTo(t, func(cfg *ConnConfig) { cfg.Logger, cfg.Metrics = zerolog.New(&log), NewMetrics(reg) }, s.Addr())
	first := await(t, c, connected)
	try(t, func() error { return ignore(c.Create(t.Context(), c.Path(), nil), ErrNodeExists) })
	s.Kill()
	lost := await(t, c, func(s Session) bool { return !s.Connected })
	if lost.ID != first.ID {
		t.Errorf("without a connection the session is %+v, was %+v", lost, first)
	}
	s.Restart()
	again := await(t, c, connected)
	if again.ID != first.ID || again.Connection <= first.Connection {
		t.Errorf("came back as %+v, was %+v", again, first)
	}
	try(t, func() error { return c.Sync(t.Context(), c.Path()) })
	if _, round := c.hosts.attempt(); round != 0 {
		t.Errorf("%d rounds of failures are remembered after an answer", round)
	}
	if n := value(t, reg, "shoal_zookeeper_reconnects_total", ""); n != float64(again.Connection-first.Connection) {
		t.Errorf("%v reconnects, %+v after %+v", n, again, first)
	}
	for _, want := range []string{"session opened", "lost the connection", "in the same session"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, log.String())
		}
	}
}

func ignore(err, this error) error {
	if errors.Is(err, this) {
		return nil
	}
	return err
}

// TestConnExpires: cut off for longer than the session lives, it gets a new one,
// what was ephemeral is gone, and a call that was in flight has no answer. A
// request that the old session had queued is not sent in the new one.
func TestConnExpires(t *testing.T) {
	s := zktest.Start(t)
	p := zktest.NewProxy(t, s.Addr())
	reg := prometheus.NewRegistry()
	c := dialTo(t, func(cfg *ConnConfig) { cfg.SessionTimeout, cfg.Metrics = 2*shortTimeout, NewMetrics(reg) }, p.Addr())
	try(t, func() error { return ignore(c.Create(t.Context(), c.Path(), nil), ErrNodeExists) })
	var (
		first Session
		name  string
	)
	for before := int64(-1); before != first.ID; { // the candidate is of this session
		before = await(t, c, connected).ID
		try(t, func() (err error) {
			name, err = c.CreateEphemeralSequential(t.Context(), c.Path("candidate_"))
			return err
		})
		first = c.Session()
	}
	if matched, err := regexp.MatchString(`^candidate_\d{10}$`, name); err != nil || !matched {
		t.Errorf("the candidate is %q", name)
	}
	expiries := value(t, reg, "shoal_zookeeper_expiries_total", "")

	p.Stall(zktest.ToClient) // the answer does not come
	inFlight := make(chan error, 1)
	go func() { inFlight <- c.Sync(t.Context(), c.Path()) }()
	if err := <-inFlight; !errors.Is(err, ErrNoAnswer) || !strings.Contains(err.Error(), "sync /shoal") {
		t.Errorf("a call in flight: %v", err)
	}
	p.Cut()
	witness := dialTo(t, nil, s.Addr())
	for there := true; there; {
		stat, found, err := witness.Stat(t.Context(), c.Path(name))
		if err != nil {
			continue
		}
		if there = found; found {
			if stat.EphemeralOwner != first.ID {
				t.Fatalf("owner %#x, session %#x", stat.EphemeralOwner, first.ID)
			}
			if g, err := witness.Gone(t.Context(), c.Path(name)); err == nil {
				<-g
			}
		}
	}
	if got := await(t, c, func(s Session) bool { return !s.Connected }); got.ID != first.ID {
		t.Errorf("cut off, it has the session %+v; it cannot know that %#x is over", got, first.ID)
	}
	p.Unstall()
	p.Heal()
	again := await(t, c, func(s Session) bool { return s.Connected && s.ID != first.ID })
	if again.ID == 0 || again.Connection <= first.Connection {
		t.Errorf("session %+v after %+v", again, first)
	}
	try(t, func() error { return c.Sync(t.Context(), c.Path()) })
	if n := value(t, reg, "shoal_zookeeper_expiries_total", "") - expiries; n != 1 {
		t.Errorf("%v expiries", n)
	}
}

// TestConnLeavesAFrozenServer: a call ends in its time, and the session goes to
// another server before it expires.
func TestConnLeavesAFrozenServer(t *testing.T) {
	e := zktest.StartEnsemble(t, 3, zktest.WithTickTime(time.Second))
	leader, frozen := e.Leader(), e.Followers()[0]
	// The first connection is with the server that will freeze.
	p := zktest.NewProxy(t, frozen.Addr())
	var log lines
	c := dialTo(t, func(cfg *ConnConfig) {
		cfg.SessionTimeout = 15 * time.Second
		cfg.Logger = zerolog.New(&log)
	}, p.Addr())
	first := await(t, c, connected)
	p.SetTarget(leader.Addr()) // for the next one
	// Nothing else between the pause and the call: the library counts from the last
	// word of the server, to twice what the call has.
	frozen.Pause()
	defer frozen.Resume()
	began := time.Now()
	if err := c.Sync(t.Context(), "/zookeeper"); !errors.Is(err, ErrNoAnswer) {
		t.Errorf("a frozen server: %v", err)
	}
	took := time.Since(began)
	again := await(t, c, func(s Session) bool { return s.Connected && s.Connection > first.Connection })
	if again.ID != first.ID {
		t.Errorf("session %+v, was %+v", again, first)
	}
	try(t, func() error { return c.Sync(t.Context(), "/zookeeper") })
	if !strings.Contains(log.String(), "is silent; leaving it") {
		t.Errorf("it waited for the library to notice:\n%s", log.String())
	}
	t.Logf("the call ended after %v, the connection was another after %v", took, time.Since(began))
}

// TestConnPassesAMuteServer: one that accepts and says nothing, as one that is
// frozen, costs one attempt.
func TestConnPassesAMuteServer(t *testing.T) {
	mute, _ := listen(t)
	f := startFake(t, &fakeServer{timeout: shortTimeout})
	c := dialTo(t, short, mute, f.addr)
	for range 2 {
		// After the one that answers it is the other's turn.
		s := await(t, c, connected)
		c.mu.Lock()
		w := c.link.wire
		c.mu.Unlock()
		w.Close()
		if again := await(t, c, func(now Session) bool { return now.Connected && now.Connection > s.Connection }); again.ID != s.ID {
			t.Errorf("session %+v, was %+v", again, s)
		}
	}
}

func TestConnFindsAnotherServer(t *testing.T) {
	e := zktest.StartEnsemble(t, 3)
	c := dialTo(t, func(cfg *ConnConfig) { cfg.SessionTimeout = 10 * time.Second }, e.Addrs()...)
	first := await(t, c, connected)
	c.mu.Lock()
	server := c.link.wire.server
	c.mu.Unlock()
	for _, s := range e.Servers {
		if s.Addr() == server {
			s.Kill()
		}
	}
	again := await(t, c, func(s Session) bool { return s.Connected && s.Connection > first.Connection })
	if again.ID != first.ID {
		t.Errorf("session %+v, was %+v", again, first)
	}
	try(t, func() error { return c.Sync(t.Context(), "/zookeeper") })
}

// TestConnQueuesNothing while it has no connection: what was given up then is not
// carried out later.
func TestConnQueuesNothing(t *testing.T) {
	s := zktest.Start(t)
	p := zktest.NewProxy(t, s.Addr())
	c := dialTo(t, short, p.Addr())
	await(t, c, connected)
	p.Cut()
	await(t, c, func(s Session) bool { return !s.Connected })
	if err := c.Create(t.Context(), "/late", nil); !errors.Is(err, ErrNoAnswer) || !strings.Contains(err.Error(), "no session with "+p.Addr()) {
		t.Errorf("cut off: %v", err)
	}
	p.Heal()
	await(t, c, connected)
	try(t, func() error {
		_, there, err := c.Stat(t.Context(), "/late")
		if there {
			t.Error("it was created later")
		}
		return err
	})
}

func TestConnToNobody(t *testing.T) {
	var log lines
	c := dialTo(t, func(cfg *ConnConfig) {
		cfg.SessionTimeout = time.Second
		cfg.Logger = zerolog.New(&log)
	}, "127.0.0.1:1", "127.0.0.2:1")
	for told := false; !told || !strings.Contains(log.String(), "no ZooKeeper server can be reached"); {
		_, _, err := c.Get(t.Context(), c.Path())
		if !errors.Is(err, ErrNoAnswer) || !strings.Contains(err.Error(), "no session with 127.0.0.1:1,127.0.0.2:1") {
			t.Fatalf("want the servers: %v", err)
		}
		// A call may end before the first server has been tried.
		told = told || strings.Contains(err.Error(), "refused")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Delete(ctx, c.Path(), 0); !errors.Is(err, ErrNoAnswer) || !errors.Is(err, context.Canceled) {
		t.Errorf("a call that was called off: %v", err)
	}
}

func TestConnCloses(t *testing.T) {
	s := startServer(t)
	c, witness := dialTo(t, nil, s.Addr()), dialTo(t, nil, s.Addr())
	var name string
	try(t, func() (err error) {
		name, err = c.CreateEphemeralSequential(t.Context(), "/e")
		return err
	})
	var gone <-chan struct{}
	try(t, func() (err error) { gone, err = c.Gone(t.Context(), "/"+name); return err })
	session := sessionID(c.Session().ID)
	for range 2 {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	<-gone
	if err := c.Sync(t.Context(), "/zookeeper"); !errors.Is(err, ErrClosed) || errors.Is(err, ErrNoAnswer) {
		t.Errorf("a call after Close: %v", err)
	}
	if s := c.Session(); s.ID != 0 || s.Connected {
		t.Errorf("session %+v after Close", s)
	}
	// It said goodbye: its ephemeral znode goes, and not because the session expired. A
	// server that is busy takes it in when Close has returned.
	for there := true; there; {
		try(t, func() (err error) { _, there, err = witness.Stat(t.Context(), "/"+name); return err })
	}
	log, err := os.ReadFile(s.Log())
	if err != nil || strings.Contains(string(log), "Expiring session "+session) {
		t.Errorf("the session %s expired, %v", session, err)
	}
}
