package zkmeta

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/zkmeta/zktest"
)

func TestConnCalls(t *testing.T) {
	s := startServer(t)
	c := dialTo(t, nil, s.Addr())
	ctx := t.Context()
	await(t, c, connected)

	wantErr := func(want error, op, path string, err error) {
		t.Helper()
		if !errors.Is(err, want) || !strings.Contains(fmt.Sprint(err), "zkmeta: "+op+" "+path+": ") || errors.Is(err, ErrNoAnswer) {
			t.Errorf("got %v, want %v of %s %s", err, want, op, path)
		}
	}
	wantErr(ErrNoNode, "create", "/shoal/a", c.Create(ctx, c.Path("a"), nil))
	try(t, func() error { return c.Create(ctx, c.Path(), nil) })
	try(t, func() error { return c.Create(ctx, c.Path("a"), []byte("one")) })
	wantErr(ErrNodeExists, "create", "/shoal/a", c.Create(ctx, c.Path("a"), nil))
	wantErr(ErrNotEmpty, "delete", "/shoal", c.Delete(ctx, c.Path(), -1))
	_, err := c.Set(ctx, c.Path("a"), []byte("x"), 7)
	wantErr(ErrBadVersion, "set", "/shoal/a", err)
	v, err := c.Set(ctx, c.Path("a"), []byte("two"), 0)
	if err != nil || v != 1 {
		t.Errorf("set: version %d, %v", v, err)
	}
	data, v, err := c.Get(ctx, c.Path("a"))
	if err != nil || v != 1 || string(data) != "two" {
		t.Errorf("get: %q, version %d, %v", data, v, err)
	}
	stat, there, err := c.Stat(ctx, c.Path("a"))
	if err != nil || !there || stat.Version != 1 || stat.DataLength != 3 || stat.EphemeralOwner != 0 || stat.Czxid == 0 || time.Since(stat.Ctime).Abs() > time.Hour {
		t.Errorf("stat: %+v, %v, %v", stat, there, err)
	}
	if _, there, err := c.Stat(ctx, c.Path("b")); there || err != nil {
		t.Errorf("stat of nothing: %v, %v", there, err)
	}
	try(t, func() error { return c.Create(ctx, c.Path("0"), nil) })
	if names, err := c.Children(ctx, c.Path()); err != nil || !slices.Equal(names, []string{"0", "a"}) {
		t.Errorf("children: %q, %v", names, err)
	}
	_, err = c.Children(ctx, c.Path("none"))
	wantErr(ErrNoNode, "children", "/shoal/none", err)
	wantErr(ErrBadVersion, "delete", "/shoal/a", c.Delete(ctx, c.Path("a"), 0))
	try(t, func() error { return c.Delete(ctx, c.Path("a"), 1) })
	_, _, err = c.Get(ctx, c.Path("a"))
	wantErr(ErrNoNode, "get", "/shoal/a", err)
	if _, _, err := c.Get(ctx, "/shoal//a"); !errors.Is(err, ErrBadPath) {
		t.Errorf("a bad path: %v", err)
	}
}

func TestMultiIsAllOrNothing(t *testing.T) {
	s := startServer(t)
	c := dialTo(t, nil, s.Addr())
	ctx := t.Context()
	await(t, c, connected)
	try(t, func() error {
		return c.Multi(ctx, Op{Kind: OpCreate, Path: c.Path()}, Op{Kind: OpCreate, Path: c.Path("head"), Data: []byte("0")}, Op{Kind: OpCreate, Path: c.Path("gone")})
	})
	try(t, func() error {
		return c.Multi(ctx,
			Op{Kind: OpSet, Path: c.Path("head"), Data: []byte("1"), Version: 0},
			Op{Kind: OpCheck, Path: c.Path(), Version: 0},
			Op{Kind: OpDelete, Path: c.Path("gone"), Version: 0},
		)
	})
	refused := []struct {
		op    Op
		wants error
	}{
		{Op{Kind: OpSet, Path: c.Path("head"), Version: 0}, ErrBadVersion},
		{Op{Kind: OpCheck, Path: c.Path("head"), Version: 5}, ErrBadVersion},
		{Op{Kind: OpCreate, Path: c.Path("head")}, ErrNodeExists},
		{Op{Kind: OpDelete, Path: c.Path("gone")}, ErrNoNode},
		{Op{Kind: OpDelete, Path: c.Path(), Version: 0}, ErrNotEmpty},
	}
	for _, tt := range refused {
		err := c.Multi(ctx, Op{Kind: OpCreate, Path: c.Path("new")}, tt.op, Op{Kind: OpCreate, Path: c.Path("after")})
		var multi *MultiError
		if !errors.As(err, &multi) || multi.Index != 1 || multi.Path != tt.op.Path || multi.Err != tt.wants || errors.Is(err, ErrNoAnswer) {
			t.Errorf("%+v: %v", tt.op, err)
		}
	}
	if names, err := c.Children(ctx, c.Path()); err != nil || !slices.Equal(names, []string{"head"}) {
		t.Errorf("children: %q, %v", names, err)
	}
	if err := c.Multi(ctx); err == nil {
		t.Error("a multi of nothing is no error")
	}
	if err := c.Multi(ctx, Op{Path: c.Path()}); err == nil || errors.Is(err, ErrNoAnswer) {
		t.Errorf("an operation of no kind: %v", err)
	}
	if err := c.Multi(ctx, Op{Kind: OpSet, Path: "/a/"}); !errors.Is(err, ErrBadPath) {
		t.Errorf("a bad path: %v", err)
	}
}

// TestTooLargeIsNotSent: it is refused here, so that the connection and what else
// is in flight live; and what is just small enough is taken.
func TestTooLargeIsNotSent(t *testing.T) {
	s := startServer(t)
	c := dialTo(t, nil, s.Addr())
	ctx := t.Context()
	first := await(t, c, connected)
	data := make([]byte, MultiBytesMax)
	for name, err := range map[string]error{
		"create": c.Create(ctx, "/a", data),
		"multi":  c.Multi(ctx, Op{Kind: OpCreate, Path: "/a", Data: data[:MultiBytesMax/2]}, Op{Kind: OpCreate, Path: "/b", Data: data[:MultiBytesMax/2]}),
	} {
		if !errors.Is(err, ErrTooLarge) || errors.Is(err, ErrNoAnswer) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.Set(ctx, "/a", data, 0); !errors.Is(err, ErrTooLarge) {
		t.Errorf("set: %v", err)
	}
	op := Op{Kind: OpCreate, Path: "/a"}
	op.Data = data[:MultiBytesMax-MultiSize(op)]
	try(t, func() error { return c.Multi(ctx, op) })
	if got, _, err := c.Get(ctx, "/a"); err != nil || !bytes.Equal(got, op.Data) {
		t.Errorf("the largest: %d bytes, %v", len(got), err)
	}
	if got := c.Session(); got != first {
		t.Errorf("session %+v, was %+v", got, first)
	}
}

// TestMultiSizeIsExact, or more: what is counted is what goes over the wire.
func TestMultiSizeIsExact(t *testing.T) {
	for name, user := range map[string]string{"world": "", "user": "joe"} {
		f := startFake(t, &fakeServer{codes: map[int32]int32{14: -2}})
		c := dialTo(t, func(cfg *ConnConfig) { cfg.User, cfg.Password = user, user }, f.addr)
		ops := []Op{
			{Kind: OpCreate, Path: "/shoal/a", Data: []byte("data")}, {Kind: OpCreate, Path: "/b"},
			{Kind: OpSet, Path: "/shoal/c", Data: make([]byte, 1000)}, {Kind: OpDelete, Path: "/d"}, {Kind: OpCheck, Path: "/e"},
		}
		if err := c.Multi(t.Context(), ops...); !errors.Is(err, ErrNoAnswer) {
			t.Fatalf("an error that nobody knows: %v", err)
		}
		sent, said := int(f.longest.Load()), MultiSize(ops...)
		if sent > said || said > sent+len(ops)*20 || user == "" && said > sent+len(ops)*8 {
			t.Errorf("%s: %d bytes were sent, MultiSize says %d", name, sent, said)
		}
	}
}

func TestGone(t *testing.T) {
	s := startServer(t)
	p := zktest.NewProxy(t, s.Addr())
	c, other := dialTo(t, nil, p.Addr()), dialTo(t, nil, s.Addr())
	ctx := t.Context()
	if _, err := c.Gone(ctx, "/none"); !errors.Is(err, ErrNoNode) {
		t.Errorf("a watch on nothing: %v", err)
	}
	for _, path := range []string{"/a", "/b"} {
		try(t, func() error { return other.Create(ctx, path, nil) })
	}
	watch := func(path string) <-chan struct{} {
		t.Helper()
		var gone <-chan struct{}
		try(t, func() (err error) { gone, err = c.Gone(ctx, path); return err })
		return gone
	}
	a, b := watch("/a"), watch("/b")
	if watch("/a") != a {
		t.Error("a znode that is watched is watched twice")
	}
	select {
	case <-a:
		t.Error("gone, while the znode is there")
	default:
	}
	try(t, func() error { return other.Delete(ctx, "/a", 0) })
	<-a
	if _, err := c.Gone(ctx, "/a"); !errors.Is(err, ErrNoNode) {
		t.Errorf("a watch on what is gone: %v", err)
	}
	// The connection goes and comes back. Nothing tells the watch, so it ends.
	p.Drop()
	<-b
	if _, there, err := other.Stat(ctx, "/b"); err != nil || !there {
		t.Errorf("b: %v, %v", there, err)
	}
	b = watch("/b")
	try(t, func() error { return other.Delete(ctx, "/b", 0) })
	<-b
}

func TestEachReadsAll(t *testing.T) {
	s := startServer(t)
	c := dialTo(t, nil, s.Addr())
	ctx := t.Context()
	var paths []string
	var ops []Op
	for i := range 300 {
		paths = append(paths, fmt.Sprintf("/n%d", i))
		if i != 7 {
			ops = append(ops, Op{Kind: OpCreate, Path: paths[i], Data: []byte(paths[i])})
		}
	}
	try(t, func() error { return c.Multi(ctx, ops...) })
	seen := make([]int, len(paths))
	err := c.Each(ctx, paths, 0, func(i int, data []byte, version int32, err error) error {
		seen[i]++
		switch {
		case i == 7:
			if !errors.Is(err, ErrNoNode) {
				t.Errorf("%d: %v", i, err)
			}
		case err != nil || string(data) != paths[i] || version != 0:
			t.Errorf("%d: %q, version %d, %v", i, data, version, err)
		}
		return nil
	})
	if err != nil || slices.Min(seen) != 1 || slices.Max(seen) != 1 {
		t.Errorf("each: %v, seen %v", err, seen)
	}
	enough := errors.New("enough")
	calls := 0
	err = c.Each(ctx, paths, 3, func(int, []byte, int32, error) error { calls++; return enough })
	if err != enough || calls != 1 {
		t.Errorf("fn said %v after %d calls", err, calls)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if err := c.Each(gone, paths, 3, func(int, []byte, int32, error) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("ctx is over: %v", err)
	}
	if err := c.Each(ctx, nil, 3, nil); err != nil {
		t.Errorf("of nothing: %v", err)
	}
}

// TestDigest: what is created with a user is for that user alone, also after a
// reconnect, and its password is in no log.
func TestDigest(t *testing.T) {
	s := startServer(t)
	p := zktest.NewProxy(t, s.Addr())
	var log lines
	as := func(user, password string) func(*ConnConfig) {
		return func(cfg *ConnConfig) {
			cfg.User, cfg.Password, cfg.Logger = user, password, zerolog.New(&log)
		}
	}
	joe := dialTo(t, as("joe", "hunter2"), p.Addr())
	ctx := t.Context()
	try(t, func() error { return joe.Create(ctx, "/secret", []byte("s")) })
	try(t, func() error { return joe.Multi(ctx, Op{Kind: OpCreate, Path: "/too", Data: []byte("s")}) })
	for name, c := range map[string]*Conn{
		"nobody":         dialTo(t, nil, s.Addr()),
		"wrong password": dialTo(t, as("joe", "hunter3"), s.Addr()),
	} {
		await(t, c, connected)
		for _, path := range []string{"/secret", "/too"} {
			_, _, err := c.Get(ctx, path)
			if !errors.Is(err, ErrNoAuth) || errors.Is(err, ErrNoAnswer) {
				t.Errorf("%s reads %s: %v", name, path, err)
			}
		}
		err := c.Multi(ctx, Op{Kind: OpSet, Path: "/secret", Version: 0})
		if !errors.Is(err, ErrNoAuth) {
			t.Errorf("%s writes: %v", name, err)
		}
	}
	first := joe.Session()
	p.Drop()
	await(t, joe, func(s Session) bool { return s.Connected && s.Connection > first.Connection })
	try(t, func() error {
		_, _, err := joe.Get(ctx, "/secret")
		return err
	})
	for _, secret := range []string{"hunter", "digest joe"} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("%q is in the log:\n%s", secret, log.String())
		}
	}
}

// TestAuthRefused by a server that does not have the scheme: calls say so at once,
// and the log says what to do, once.
func TestAuthRefused(t *testing.T) {
	s := startServer(t, zktest.WithJava("-Dzookeeper.DigestAuthenticationProvider.enabled=false"))
	var log lines
	reg := prometheus.NewRegistry()
	c := dialTo(t, func(cfg *ConnConfig) {
		cfg.User, cfg.Password, cfg.Logger, cfg.Metrics = "joe", "hunter2", zerolog.New(&log), NewMetrics(reg)
	}, s.Addr())
	for {
		_, _, err := c.Get(t.Context(), c.Path())
		if errors.Is(err, ErrNoAuth) {
			if errors.Is(err, ErrNoAnswer) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("get: %v", err)
			}
			break
		}
		if !errors.Is(err, ErrNoAnswer) {
			t.Fatalf("get: %v", err)
		}
	}
	if c.Session().Connected {
		t.Error("connected, though it may do nothing")
	}
	if n := value(t, reg, "shoal_zookeeper_session_state", stateAuthFailed); n != 1 {
		t.Errorf("state auth_failed is %v", n)
	}
	if n := strings.Count(log.String(), "check the two settings"); n != 1 {
		t.Errorf("the log says %d times what to do:\n%s", n, log.String())
	}
}

// TestAuthRefusedLater: credentials that were good are refused after a reconnect,
// and taken again later.
func TestAuthRefusedLater(t *testing.T) {
	f := startFake(t, &fakeServer{})
	var log lines
	c := dialTo(t, func(cfg *ConnConfig) { cfg.User, cfg.Password, cfg.Logger = "joe", "x", zerolog.New(&log) }, f.addr)
	first := await(t, c, connected)
	if f.auths.Load() != 1 {
		t.Fatalf("%d credentials sent", f.auths.Load())
	}
	f.refuse.Store(true)
	c.mu.Lock()
	w := c.link.wire
	c.mu.Unlock()
	w.Close()
	for {
		_, err := c.Children(t.Context(), c.Path())
		if errors.Is(err, ErrNoAuth) {
			break
		}
	}
	f.refuse.Store(false)
	again := await(t, c, func(s Session) bool { return s.Connected && s.ID != first.ID })
	if again.Connection <= first.Connection {
		t.Errorf("session %+v, was %+v", again, first)
	}
}

// TestTooManyInFlight: a server that answers nothing leaves requests behind, and
// not without limit.
func TestTooManyInFlight(t *testing.T) {
	f := startFake(t, &fakeServer{timeout: time.Minute})
	reg := prometheus.NewRegistry()
	c := dialTo(t, func(cfg *ConnConfig) { cfg.SessionTimeout, cfg.Metrics = time.Minute, NewMetrics(reg) }, f.addr)
	await(t, c, connected)
	f.silent.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error)
	for range inFlightMax {
		go func() { errs <- c.Sync(ctx, c.Path()) }()
	}
	for len(c.slots) < inFlightMax || value(t, reg, "shoal_zookeeper_requests_in_flight", "") < inFlightMax {
		time.Sleep(time.Millisecond) // asked again until it is so
	}
	if err := c.Sync(t.Context(), c.Path()); !errors.Is(err, ErrNoAnswer) || !strings.Contains(err.Error(), "in flight") {
		t.Errorf("one more: %v", err)
	}
	if n := value(t, reg, "shoal_zookeeper_requests_in_flight", ""); n != inFlightMax {
		t.Errorf("%v in flight", n)
	}
	cancel()
	for range inFlightMax {
		if err := <-errs; !errors.Is(err, ErrNoAnswer) || !errors.Is(err, context.Canceled) {
			t.Errorf("called off: %v", err)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	for len(c.slots) > 0 {
		time.Sleep(time.Millisecond) // those that hang after Close do so for ever
	}
}

// TestQueueEndsWithItsSession: what the library had queued and could not send is
// not sent in the next session, where nobody waits for it.
func TestQueueEndsWithItsSession(t *testing.T) {
	f := startFake(t, &fakeServer{timeout: sessionTimeoutMax})
	c := dialTo(t, func(cfg *ConnConfig) { cfg.SessionTimeout = sessionTimeoutMax }, f.addr)
	first := await(t, c, connected)
	f.stuck.Store(true)
	data := make([]byte, MultiBytesMax/2)
	const calls = 100 // more than the buffers of the two sockets take
	errs := make(chan error, calls)
	var begun atomic.Int64
	for range calls {
		go func() {
			_, err := call(t.Context(), c, "create", c.Path("x"), func(conn *zk.Conn) (string, error) {
				begun.Add(1)
				return conn.Create(c.Path("x"), data, 0, c.acl)
			})
			errs <- err
		}()
	}
	<-f.held
	queue := reflect.ValueOf(c.link.zk).Elem().FieldByName("sendChan")
	// A call that begins later is one of the new session, and may succeed.
	for begun.Load() < calls || queue.Len() < queue.Cap() {
		time.Sleep(time.Millisecond) // asked again until it is so
	}
	f.expire.Store(true)
	close(f.unstick)
	again := await(t, c, func(s Session) bool { return s.Connected && s.ID != first.ID })
	answers := 0
	for range calls {
		if err := <-errs; err == nil {
			answers++
		} else if !errors.Is(err, ErrNoAnswer) {
			t.Errorf("a call of the old session: %v", err)
		}
	}
	if answers > 1 { // it may have read one when it got stuck
		t.Errorf("%d calls of the old session succeeded", answers)
	}
	if op, asked := f.asked.Load(again.ID); asked {
		t.Errorf("the new session was asked for what nobody asks: opcode %v", op)
	}
	try(t, func() error { return c.Delete(t.Context(), c.Path("x"), 0) })
	if _, asked := f.asked.Load(again.ID); !asked {
		t.Error("the new session was not asked for anything")
	}
}

// TestAnswerOfAnotherSession does not count, not even as a sign of life.
func TestAnswerOfAnotherSession(t *testing.T) {
	f := startFake(t, &fakeServer{})
	c := dialTo(t, nil, f.addr)
	await(t, c, connected)
	l, at := c.link, c.Now()
	if err := c.judge(l, at, nil); err != nil || c.LastHeard() != at {
		t.Errorf("in its session: %v, heard at %v of %v", err, c.LastHeard(), at)
	}
	l.expired()
	for _, err := range []error{nil, ErrBadVersion} {
		if err := c.judge(l, at+1, err); !errors.Is(err, ErrNoAnswer) || errors.Is(err, ErrBadVersion) {
			t.Errorf("after the end of its session: %v", err)
		}
	}
	if c.LastHeard() != at {
		t.Errorf("heard at %v, want %v", c.LastHeard(), at)
	}
}
