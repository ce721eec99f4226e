package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
	"github.com/shoalstore/shoal/zkmeta"
	"github.com/shoalstore/shoal/zkmeta/zktest"
)

// TestMain: nothing may be left of a controller that was closed.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memberTimeout is the session timeout of the members, the longest that a server at
// memberTick allows: on a machine that is busy nobody shall lose its session but by the
// test. Those that lose it have mortalTimeout, which the test waits for.
const (
	memberTick    = time.Second
	memberTimeout = 20 * memberTick
	mortalTimeout = 10 * time.Second
)

// members are controllers in this process, on one real ZooKeeper.
type members struct {
	t      *testing.T
	server *zktest.Server
	conn   *zkmeta.Conn // the test's own
}

// found starts a server and founds a cluster in it.
func found(t *testing.T) *members { return foundWith(t, memberTick) }

func foundWith(t *testing.T, tick time.Duration) *members {
	t.Helper()
	t.Parallel()
	m := &members{t: t, server: zktest.Start(t, zktest.WithTickTime(tick))}
	m.conn = m.dial()
	if err := zkmeta.Found(t.Context(), m.conn, uuid.New()); err != nil {
		t.Fatal(err)
	}
	return m
}

// at is the address of the metadata as seen through that server or proxy.
func at(addr string) string { return fmt.Sprintf("zookeeper://%s/shoal", addr) }

func (m *members) dial() *zkmeta.Conn {
	m.t.Helper()
	address, err := zkmeta.ParseAddress(at(m.server.Addr()))
	if err != nil {
		m.t.Fatal(err)
	}
	conn, err := zkmeta.Connect(zkmeta.Access{SessionTimeout: memberTimeout}.Conn(address, zerolog.Nop(), nil))
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { conn.Close() })
	return conn
}

// running is a member that runs, with what it says.
type running struct {
	*Controller
	t     *testing.T
	said  *lines
	stop  context.CancelFunc
	ended chan struct{}
	err   error // of Run; after ended
}

// lines is a log that is read while it is written.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) has(s string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), s)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func memberConfig(dir, metadata string) Config {
	return Config{
		Data: dir, Listen: "127.0.0.1:0", Metadata: metadata,
		ZooKeeper: zkmeta.Access{SessionTimeout: memberTimeout},
	}
}

// start runs a member on the server itself.
func (m *members) start(dir string) *running {
	m.t.Helper()
	r := m.open(memberConfig(dir, at(m.server.Addr())))
	r.launch()
	return r
}

// open opens a member, which launch runs.
func (m *members) open(cfg Config) *running {
	m.t.Helper()
	r := &running{t: m.t, said: &lines{}, ended: make(chan struct{})}
	c, err := Open(cfg, zerolog.New(r.said).Level(zerolog.InfoLevel).With().Timestamp().Logger())
	if err != nil {
		m.t.Fatal(err)
	}
	r.Controller = c
	return r
}

func (r *running) launch() {
	var ctx context.Context
	ctx, r.stop = context.WithCancel(context.Background())
	go func() {
		defer close(r.ended)
		r.err = errors.Join(r.Run(ctx), r.Close())
	}()
	r.t.Cleanup(func() {
		r.stop()
		<-r.ended
		if r.t.Failed() {
			r.t.Logf("%s said:\n%s", r.cfg.Data, r.said)
		}
	})
}

// end stops a member, which must end well.
func (r *running) end() {
	r.t.Helper()
	r.stop()
	<-r.ended
	if r.err != nil {
		r.t.Errorf("the member ended with %v", r.err)
	}
}

// await waits until ok says yes, for as long as the test may take but for what it takes to
// tell of it; the string is what it sees meanwhile.
func await(t *testing.T, what string, ok func() (bool, string)) {
	t.Helper()
	saw, end := "", time.Now().Add(24*time.Hour)
	if deadline, set := t.Deadline(); set {
		end = time.Now().Add(time.Until(deadline) * 9 / 10)
	}
	for ; time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		var done bool
		if done, saw = ok(); done {
			return
		}
	}
	t.Fatalf("waited for %s in vain; last seen: %s", what, saw)
}

// get asks the member itself, whatever is in front of it. leader is the header that
// names one.
func (r *running) get(path string) (status int, body, leader string) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get("http://" + r.ln.Addr().String() + path)
	if err != nil {
		return 0, err.Error(), ""
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error(), ""
	}
	return res.StatusCode, string(b), res.Header.Get(api.HeaderLeader)
}

// leads waits until the member leads, and returns its epoch.
func (r *running) leads() int64 {
	r.t.Helper()
	var v api.LeaderView
	await(r.t, "the member to lead", func() (bool, string) {
		status, body, _ := r.get("/leader")
		return status == http.StatusOK && json.Unmarshal([]byte(body), &v) == nil, body
	})
	return v.Epoch
}

// follows waits until the member is ready beside that leader, and has all of its log.
func (r *running) follows(leader *running) {
	r.t.Helper()
	await(r.t, "the standby to follow", func() (bool, string) { return r.isUpWith(leader) })
}

// isUpWith reports whether the member follows that leader now, and what it says itself.
func (r *running) isUpWith(leader *running) (bool, string) {
	end := leader.next()
	status, body, _ := r.get("/readyz")
	return status == http.StatusOK && strings.Contains(body, `"standby"`) && strings.Contains(body, leader.URL()) &&
		end >= 0 && r.applied() >= end, body
}

// applied is the offset after the last batch that a standby has.
func (r *running) applied() int64 {
	r.member.mu.Lock()
	f := r.member.following
	r.member.mu.Unlock()
	if f == nil {
		return -1
	}
	return f.follower.Image().Next()
}

// next is the offset of the next batch of a leader, -1 of one that does not lead now.
func (r *running) next() int64 {
	im, err := r.image()
	if err != nil {
		return -1
	}
	return im.Next()
}

// says waits until the member has said that.
func (r *running) says(what string) {
	r.t.Helper()
	await(r.t, what, func() (bool, string) { return r.said.has(what), r.said.String() })
}

// addNode is a change of the metadata: the node of that name registers.
func addNode(name string) meta.Func {
	var incarnation int64
	return meta.RegisterNode(meta.Registration{
		ID: name, URL: "http://" + name, StoreID: metatest.ID("store of " + name), BootID: metatest.ID("boot of " + name),
	}, &incarnation)
}

// write has a leader write. What has no known outcome is asked for again, as callers
// do.
func (r *running) write(fn meta.Func) {
	r.t.Helper()
	await(r.t, "a write", func() (bool, string) {
		_, err := r.submit(r.t.Context(), fn)
		return err == nil, fmt.Sprint(err)
	})
}

// wantNodes checks that the leader knows the nodes.
func (r *running) wantNodes(names ...string) {
	r.t.Helper()
	var im *meta.Image
	await(r.t, "the leader's image", func() (bool, string) {
		now, err := r.image()
		im = now
		return err == nil, fmt.Sprint(err)
	})
	knows(r.t, im, names...)
}

func knows(t *testing.T, im *meta.Image, names ...string) {
	t.Helper()
	for _, name := range names {
		if im.Node(name) == nil {
			t.Errorf("node %s is lost: it was acknowledged", name)
		}
	}
	if broken := meta.CheckInvariants(im); len(broken) > 0 {
		t.Error(broken)
	}
}

// head is what ZooKeeper has as the end of the log.
func (m *members) head() zkmeta.TailHead {
	m.t.Helper()
	h, _, err := zkmeta.CurrentHead(m.t.Context(), m.conn)
	if err != nil {
		m.t.Fatal(err)
	}
	return h
}

// dropTail removes the entries below an offset, as trimming does in time.
func (m *members) dropTail(below int64) {
	m.t.Helper()
	for offset := int64(0); offset < below; offset++ {
		path := m.conn.Path(fmt.Sprintf("log/entries/%020d", offset))
		if err := m.conn.Delete(m.t.Context(), path, -1); err != nil && !errors.Is(err, zkmeta.ErrNoNode) {
			m.t.Fatal(err)
		}
	}
}

func TestStandbyFollows(t *testing.T) {
	m := found(t)
	a := m.start(t.TempDir())
	first := a.leads()
	b := m.start(t.TempDir())
	b.follows(a)
	a.write(addNode("n1"))
	b.follows(a)
	status, body, leader := b.get("/nodes")
	if status != http.StatusMisdirectedRequest || leader != a.URL() || !strings.Contains(body, api.CodeNotLeader) {
		t.Errorf("a standby answers %d %s and names %q as the leader, which is %s", status, body, leader, a.URL())
	}

	// Laid down, not lost: nobody waits for a session to expire.
	a.end()
	if second := b.leads(); second <= first {
		t.Errorf("after epoch %d comes epoch %d", first, second)
	}
	b.wantNodes("n1")
	if status, body, _ := b.get("/readyz"); status != http.StatusOK || strings.Contains(body, "standby") {
		t.Errorf("a leader says it is %d %s", status, body)
	}
	again := m.start(a.cfg.Data)
	again.follows(b)
}
