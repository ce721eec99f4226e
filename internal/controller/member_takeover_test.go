package controller

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/zkmeta/zktest"
)

// remote is a member that ZooKeeper and the others reach through proxies.
type remote struct {
	*running
	zk   *zktest.WireProxy
	http *zktest.Proxy
}

func (m *members) startRemote(dir string) remote {
	m.t.Helper()
	r := m.prepareRemote(dir, mortalTimeout)
	r.launch()
	return r
}

// prepareRemote opens a member, which launch runs.
func (m *members) prepareRemote(dir string, sessionTimeout time.Duration) remote {
	m.t.Helper()
	r := remote{zk: zktest.NewWireProxy(m.t, m.server.Addr()), http: zktest.NewProxy(m.t, "127.0.0.1:1")}
	cfg := memberConfig(dir, at(r.zk.Addr()))
	cfg.Advertise, cfg.ZooKeeper.SessionTimeout = "http://"+r.http.Addr(), sessionTimeout
	r.running = m.open(cfg)
	r.http.SetTarget(r.ln.Addr().String())
	return r
}

// die cuts the member off from ZooKeeper and ends it: its candidate goes with its
// session, as that of a process that was killed.
func (r remote) die() {
	r.t.Helper()
	r.zk.Cut()
	r.end()
}

// TestTakeOverFromTheTail: the leader dies after a batch was acknowledged that no
// standby has fetched. It is in ZooKeeper.
func TestTakeOverFromTheTail(t *testing.T) {
	m := found(t)
	a := m.startRemote(t.TempDir())
	first := a.leads()
	b := m.start(t.TempDir())
	b.follows(a.running)

	a.http.Cut()
	a.write(addNode("n1"))
	a.write(addNode("n2"))
	if have := b.applied(); have >= m.head().Next() {
		t.Fatalf("the standby has %d batches through a connection that is cut", have)
	}
	a.die()
	if second := b.leads(); second <= first {
		t.Errorf("after epoch %d comes epoch %d", first, second)
	}
	b.wantNodes("n1", "n2")
	if b.said.has("rebuilding the image") {
		t.Error("the image was rebuilt although the tail was there")
	}
	b.write(addNode("n3"))
}

// TestTakeOverByRebuild: a controller that has nothing takes over when the beginning
// of the log is not in ZooKeeper any more.
func TestTakeOverByRebuild(t *testing.T) {
	m := found(t)
	a := m.start(t.TempDir())
	a.leads()
	for i := range 20 {
		a.write(addNode(fmt.Sprintf("n%d", i)))
	}
	a.end()
	m.dropTail(m.head().Next() - 3)

	dir := t.TempDir()
	b := m.start(dir)
	b.leads()
	b.says("image rebuilt from the record znodes")
	b.wantNodes("n0", "n19")
	b.write(addNode("more"))
	b.end()

	// What it has begun anew is a log like any other.
	c := m.start(dir)
	c.leads()
	c.wantNodes("n0", "n19", "more")
	if c.said.has("rebuilding") {
		t.Error("the log that began with a rebuilt image was not used")
	}
	// And the first one's is only short of its end.
	d := m.start(a.cfg.Data)
	d.follows(c)
}

// TestDamagedLogIsSetAside: a member's log can be had again.
func TestDamagedLogIsSetAside(t *testing.T) {
	m := found(t)
	a := m.start(t.TempDir())
	a.leads()
	for i := range 5 {
		a.write(addNode(fmt.Sprintf("n%d", i)))
	}
	a.end()
	flipBit(t, filepath.Join(a.cfg.Data, localLogDir))

	b := m.start(a.cfg.Data)
	b.leads()
	b.says("it is set aside and begun anew from ZooKeeper")
	b.wantNodes("n0", "n4")
	if _, err := os.Stat(filepath.Join(a.cfg.Data, localLogDir+".corrupt")); err != nil {
		t.Error(err)
	}
}

// flipBit damages a frame in the middle of a log.
func flipBit(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in %s: %v", dir, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)/2] ^= 1
	if err := os.WriteFile(files[0], text, 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestFullDiskOfTheLeader: a leader that cannot keep what ZooKeeper has acknowledged
// lets another lead, and comes back as a standby once there is room.
func TestFullDiskOfTheLeader(t *testing.T) {
	m := found(t)
	var full atomic.Bool
	cfg := memberConfig(t.TempDir(), at(m.server.Addr()))
	a := m.open(cfg)
	a.fs = vfs.WithFaults(a.fs, func(op vfs.Op) error {
		if full.Load() && (op.Kind == vfs.OpWrite || op.Kind == vfs.OpCreate) {
			return syscall.ENOSPC
		}
		return nil
	})
	a.launch()
	a.leads()
	b := m.start(t.TempDir())
	b.follows(a)

	full.Store(true)
	if _, err := a.submit(t.Context(), addNode("n1")); err == nil {
		t.Error("a leader that could not write its log says that all is well")
	}
	b.leads()
	b.wantNodes("n1") // it is in ZooKeeper, so it is
	await(t, "the old leader to say so", func() (bool, string) {
		status, body, leader := a.get("/nodes")
		return status == http.StatusMisdirectedRequest && leader == b.URL(), fmt.Sprint(status, body, leader)
	})
	full.Store(false)
	a.follows(b)
}

// TestFailedSyncEndsTheMember: after a failed fsync nobody knows what the disk holds.
func TestFailedSyncEndsTheMember(t *testing.T) {
	m := found(t)
	var fails atomic.Bool
	cfg := memberConfig(t.TempDir(), at(m.server.Addr()))
	a := m.open(cfg)
	a.fs = vfs.WithFaults(a.fs, func(op vfs.Op) error {
		if fails.Load() && op.Kind == vfs.OpSync && strings.HasPrefix(op.Name, localLogDir) {
			return syscall.EIO
		}
		return nil
	})
	a.launch()
	a.leads()
	b := m.start(t.TempDir())
	b.follows(a)
	fails.Store(true)
	if _, err := a.submit(t.Context(), addNode("n1")); err == nil {
		t.Error("a leader whose fsync failed says that all is well")
	}
	<-a.ended
	if a.err == nil || !strings.Contains(a.err.Error(), a.cfg.Data) {
		t.Errorf("the member ended with %v, which should name its directory", a.err)
	}
	b.leads()
	b.wantNodes("n1")
}

// TestInterruptedTakeOver: the first in line has brought its log to the head, and its
// session ends while it opens its epoch, before the write or after it. Another one
// leads meanwhile; it is a standby like any other then.
func TestInterruptedTakeOver(t *testing.T) {
	for action, least := range map[zktest.Action]int64{zktest.DropRequest: 1, zktest.HoldReply: 2} {
		t.Run(action.String(), func(t *testing.T) {
			m := found(t)
			a := m.prepareRemote(t.TempDir(), mortalTimeout)
			opening := a.zk.On(zktest.OpMulti, zktest.Mentions("log/head"), action)
			a.launch()
			opening.WaitHit()
			if action == zktest.HoldReply {
				opening.Answer()
			}
			a.zk.Cut()
			b := m.start(t.TempDir())
			if epoch := b.leads(); epoch < least {
				t.Errorf("the other one leads in epoch %d, want no less than %d", epoch, least)
			}
			a.zk.Heal()
			a.follows(b)
			b.write(addNode("n1"))
			a.follows(b)
		})
	}
}

// TestSessionsComeAndGo: leadership changes hands often, with writes all the time, and
// each member's log is the beginning of the one that ZooKeeper has.
func TestSessionsComeAndGo(t *testing.T) {
	const tick = 500 * time.Millisecond
	m := foundWith(t, tick)
	var all []remote
	for range 3 {
		r := m.prepareRemote(t.TempDir(), 4*tick)
		r.launch()
		all = append(all, r)
	}
	var acknowledged []string
	leader := func() (r remote) {
		await(t, "a leader", func() (bool, string) {
			for _, r = range all {
				if _, err := r.leading(); err == nil {
					return true, ""
				}
			}
			return false, "nobody leads"
		})
		return r
	}
	rounds := 6
	if testing.Short() {
		rounds = 3
	}
	for round := range rounds {
		r := leader()
		for i := range 3 {
			name := fmt.Sprintf("n%d-%d", round, i)
			if _, err := r.submit(t.Context(), addNode(name)); err == nil {
				acknowledged = append(acknowledged, name)
			}
		}
		r.zk.Cut()
		await(t, "the leader to stop", func() (bool, string) {
			_, err := r.leading()
			return err != nil, "it leads"
		})
		leader() // another one, or the same again when it is back
		r.zk.Heal()
	}
	if len(acknowledged) == 0 {
		t.Error("no write was acknowledged")
	}
	// Sessions are short: a busy machine may cost a leader its own still.
	var last remote
	var im *meta.Image
	await(t, "one to lead and the others to follow it", func() (bool, string) {
		var err error
		last = leader()
		if im, err = last.image(); err != nil {
			return false, err.Error()
		}
		for _, other := range all {
			if other.Controller == last.Controller {
				continue
			}
			if follows, says := other.isUpWith(last.running); !follows {
				return false, says
			}
		}
		return true, ""
	})
	knows(t, im, acknowledged...)
	for _, r := range all {
		r.end()
	}
	want := frames(t, last.cfg.Data)
	for _, r := range all {
		got := frames(t, r.cfg.Data)
		for i := range min(len(got), len(want)) {
			if got[i] != want[i] {
				t.Fatalf("%s and %s have two batches %d", r.cfg.Data, last.cfg.Data, i)
			}
		}
	}
}

// frames are those of a member's log that nobody has open.
func frames(t *testing.T, data string) (all []string) {
	t.Helper()
	fs, err := vfs.OS(data)
	if err != nil {
		t.Fatal(err)
	}
	l, err := metalog.OpenLog(fs, metalog.LogOptions{Dir: localLogDir})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for at := l.Start(); at < l.End(); {
		b, err := l.Read(at, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		some, err := metalog.DecodeEntries(b)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range some {
			all = append(all, string(e.Frame))
		}
		at += int64(len(some))
	}
	return all
}
