package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/commit/commithttp"
	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
	"github.com/shoalstore/shoal/zkmeta/zktest"
)

// step is a moment in the commit of a segment at which its leader dies.
type step struct {
	name string
	// at is the message at which it happens, before it has reached the leader or when
	// the leader's answer to it is lost.
	at    commit.Kind
	after bool
	// multi, if set, is what happens to the commit's write: it happens then.
	multi zktest.Action
}

// steps are those of PROTOCOL §5, and the messages that lead there.
var steps = []step{
	{name: "before the first report", at: commit.SegmentConsumed},
	{name: "after it told the committer", at: commit.SegmentConsumed, after: true},
	{name: "before the seal is reported", at: commit.SegmentCommitStart},
	{name: "after the seal was reported", at: commit.SegmentCommitStart, after: true},
	{name: "before the commit is asked for", at: commit.SegmentCommitEnd},
	{name: "before the batch reached ZooKeeper", multi: zktest.DropRequest},
	{name: "while the batch is under way", multi: zktest.HoldRequest},
	{name: "after ZooKeeper has taken the batch", multi: zktest.HoldReply},
	{name: "before the committer hears of it", at: commit.SegmentCommitEnd, after: true},
}

// TestLeaderDiesInMidCommit: whatever was under way, another leader brings it to its
// end, once; and who asks again about what was committed is told so.
func TestLeaderDiesInMidCommit(t *testing.T) {
	t.Parallel()
	l := startLeague(t, leagueOptions{controllers: 3, nodes: 2, servers: 1, wired: true})
	p := newProducer(t, l.streamRoot(), "events", 1)
	l.createTable("events", nil)
	tap := l.tap()
	p.add(110)
	l.awaitCommitted("events", 100)
	for _, s := range steps {
		l.dies(s, p, tap)
	}
	l.prove("events", p)
	l.checkLeague()
}

// tap sees the messages of the nodes and the answers to them, and can stop one.
type tap struct {
	mu   sync.Mutex
	stop func(m commit.Message, before bool) bool // whether this is the moment; nil: never
	hit  chan struct{}                            // closed at the moment
	dead chan struct{}                            // closed when the leader is
	ends map[int64]commit.Message                 // the last commitEnd, by segment
}

func (l *league) tap() *tap {
	t := &tap{ends: map[int64]commit.Message{}}
	for _, gates := range l.gates {
		for _, g := range gates {
			g.onMessage(t.message)
		}
	}
	return t
}

func (t *tap) message(m commit.Message, forward func() commit.Reply) bool {
	if t.moment(m, true) {
		return false
	}
	reply := forward()
	if reply.Status == commit.NotLeader {
		return true
	}
	return !t.moment(m, false)
}

// moment waits for the leader's death if this is when it dies.
func (t *tap) moment(m commit.Message, before bool) bool {
	t.mu.Lock()
	if m.Kind == commit.SegmentCommitEnd {
		t.ends[m.Seq] = m
	}
	if t.stop == nil || !t.stop(m, before) {
		t.mu.Unlock()
		return false
	}
	t.stop = nil
	hit, dead := t.hit, t.dead
	t.mu.Unlock()
	close(hit)
	<-dead
	return true
}

// arm sets the moment at a message about a segment or a later one.
func (t *tap) arm(s step, seq int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hit, t.dead = make(chan struct{}), make(chan struct{})
	t.stop = func(m commit.Message, before bool) bool {
		return m.Kind == s.at && before == !s.after && m.Seq >= seq
	}
}

// dies has the leader die at a step of the next segment's commit.
func (l *league) dies(s step, p *producer, tap *tap) {
	l.t.Helper()
	l.t.Logf("the leader dies %s", s.name)
	var have int64
	l.led(func() (err error) {
		have, err = l.committed("events")
		return err
	})
	seq := have / 100 // a hundred rows each
	var leader *process
	var epoch int64
	if s.multi != 0 {
		trap, i := l.trap(s.multi, commits(seq), func() { p.add(100) })
		if s.multi == zktest.HoldReply {
			if a := trap.Answer(); a.Err != 0 {
				l.t.Fatalf("ZooKeeper did not take the batch: %+v", a)
			}
		}
		leader, epoch = l.controllers[i], l.leads(l.controllers[i])
		leader.kill()
		if s.multi == zktest.HoldRequest {
			defer l.arrivesTooLate(trap)
		}
	} else {
		tap.arm(s, seq)
		p.add(100)
		select {
		case <-tap.hit:
		case <-time.After(awaitMax):
			l.t.Fatalf("no %s came", s.at)
		}
		var i int
		i, epoch = l.leader(0)
		leader = l.controllers[i]
		leader.kill()
		close(tap.dead)
	}
	died := time.Now()

	_, next := l.leader(epoch)
	led := time.Since(died)
	l.awaitCommitted("events", have+100)
	l.t.Logf("session timeout %s: the first batch of epoch %d %s after the kill, the first commit %s after it",
		leagueTimeout, next, led.Round(time.Millisecond), time.Since(died).Round(time.Millisecond))
	l.checkAnswers(tap, seq)
	leader.start()
	l.await("the old leader to follow", func() (bool, string) {
		err := l.direct(leader, "/readyz", nil)
		return err == nil, asJSON(nil, err)
	})
}

// commits matches the write that commits a segment: it has the znode of the segment,
// which is done.
func commits(seq int64) zktest.Match {
	return func(payload []byte) bool {
		return zktest.Mentions(fmt.Sprintf("__%d__", seq))(payload) && zktest.Mentions(string(meta.SegmentDone))(payload)
	}
}

// trap waits for a write of a controller, and returns whose it is; whoever leads by then.
func (l *league) trap(action zktest.Action, write zktest.Match, produce func()) (*zktest.Trap, int) {
	l.t.Helper()
	var traps []*zktest.Trap
	hit := make(chan int, len(l.wires))
	for i, wires := range l.wires {
		t := wires[0].On(zktest.OpMulti, write, action)
		traps = append(traps, t)
		go func() {
			select {
			case <-t.Hit():
				hit <- i
			case <-l.t.Context().Done():
			}
		}()
	}
	produce()
	select {
	case i := <-hit:
		for j, t := range traps {
			if j != i {
				t.Disarm()
			}
		}
		return traps[i], i
	case <-time.After(awaitMax):
		l.t.Fatal("nobody writes it")
	}
	return nil, 0
}

// badVersion is ZooKeeper's error of a write whose condition does not hold.
const badVersion = -103

// arrivesTooLate lets a write through that was under way when its leader died: the
// successor has written since, so it must not be done.
func (l *league) arrivesTooLate(trap *zktest.Trap) {
	l.t.Helper()
	trap.Release()
	if a := trap.Answer(); a.Err != badVersion {
		l.t.Errorf("a deposed leader's write is answered %+v, want the error %d", a, badVersion)
	}
}

// checkAnswers asks the leader again about a segment that is committed: the committer
// hears of its success, another one that it may keep what it has, and who is wrong
// that it is.
func (l *league) checkAnswers(tap *tap, seq int64) {
	l.t.Helper()
	tap.mu.Lock()
	end, ok := tap.ends[seq]
	tap.mu.Unlock()
	if !ok {
		l.t.Errorf("no commitEnd of segment %d was seen", seq)
		return
	}
	var committed api.SegmentView
	for _, s := range l.committedSegments("events") {
		if s.Seq == seq {
			committed = s
		}
	}
	if committed.Committer == end.Instance {
		l.wantReply(end, commit.Reply{Status: commit.CommitSuccess})
	}
	wrong := end
	wrong.Digest[0] ^= 1
	l.wantReply(wrong, commit.Reply{Status: commit.Failed})
	consumed := end
	consumed.Kind, consumed.Reason = commit.SegmentConsumed, commit.RowLimit
	l.wantReply(consumed, commit.Reply{Status: commit.Keep, Offset: committed.End, Digest: committed.Digest})
}

func (l *league) wantReply(m commit.Message, want commit.Reply) {
	l.t.Helper()
	var got commit.Reply
	l.await("an answer of a leader", func() (bool, string) { // which may change
		i, _ := l.leader(0)
		c := commithttp.NewClient([]string{"http://" + l.controllers[i].role.Controller.Listen}, "")
		defer c.Close()
		var err error
		got, err = c.Send(l.t.Context(), m)
		return err == nil && got.Status != commit.NotLeader, asJSON(got, err)
	})
	if got != want {
		l.t.Errorf("%s of %s by %s at %d is answered %+v; want %+v", m.Kind, m.Segment, m.Instance, m.Offset, got, want)
	}
}

// TestPausedLeader: a leader that was frozen for longer than its session lasts says
// nothing as a leader any more, from the moment at which another one leads, and steps
// down by itself.
func TestPausedLeader(t *testing.T) {
	t.Parallel()
	l := startLeague(t, leagueOptions{controllers: 2, nodes: 2, servers: 1})
	p := newProducer(t, l.streamRoot(), "events", 1)
	l.createTable("events", nil)
	p.add(110)
	l.awaitCommitted("events", 100)
	i, epoch := l.leader(0)
	old, other := l.controllers[i], l.controllers[1-i]

	w := l.watch(old)
	l.await("an answer of the leader", func() (bool, string) { return w.asLeader() > 0, "" })
	old.signal(syscall.SIGSTOP)
	_, next := l.leader(epoch)
	deposed := time.Now()
	w.ask(20) // they wait in the kernel, and are answered when it wakes up
	p.add(100)
	l.awaitCommitted("events", 200) // without it
	old.signal(syscall.SIGCONT)
	l.await("the old leader to name the new one", func() (bool, string) {
		err := l.direct(old, "/nodes", nil)
		return isNotLeader(err, other.url), asJSON(nil, err)
	})
	// What was asked before the freeze may have passed the last look at the clock already:
	// no program can make that look and the sending one step.
	late := 0
	for _, a := range w.end() {
		if a.asked.Before(deposed) {
			continue
		}
		late++
		if !a.notLeader {
			t.Errorf("%s after epoch %d was opened, its leader of epoch %d was asked %s, and answered: %s", a.asked.Sub(deposed), next, epoch, a.path, a.body)
		}
	}
	if late == 0 {
		t.Error("nobody asked the deposed leader anything")
	}
	l.await("the old leader to step down", func() (bool, string) {
		return strings.Contains(old.tail(1000), "stepping down"), old.tail(3)
	})
	if err := l.http.PostJSON(t.Context(), "http://"+old.role.Controller.Listen+"/tables", l.tableConfig("more", nil), nil); !isNotLeader(err, other.url) {
		t.Errorf("the old leader says to a new table: %v", err)
	}
	l.await("the old leader to follow", func() (bool, string) {
		err := l.direct(old, "/readyz", nil)
		return err == nil, asJSON(nil, err)
	})
	l.prove("events", p)
	l.checkLeague()
}

// isNotLeader tells whether an answer was that another one leads, and which.
func isNotLeader(err error, leader string) bool {
	var answer *httpx.Error
	return errors.As(err, &answer) && answer.Status == http.StatusMisdirectedRequest && answer.Code == api.CodeNotLeader &&
		answer.Header.Get(api.HeaderLeader) == leader
}

// word is an answer of a controller.
type word struct {
	asked     time.Time
	path      string
	notLeader bool
	body      string
}

// watcher asks a controller all the time.
type watcher struct {
	base string
	seg  commit.Message

	mu    sync.Mutex
	words []word
	done  chan struct{}
	work  sync.WaitGroup
}

// watch asks a leader for things that only a leader knows.
func (l *league) watch(p *process) *watcher {
	l.t.Helper()
	s := l.committedSegments("events")[0]
	w := &watcher{base: "http://" + p.role.Controller.Listen, done: make(chan struct{})}
	w.seg = commit.Message{
		Table: s.Table, Partition: s.Partition, Seq: s.Seq, Segment: s.Name, Instance: "node-1",
		Incarnation: 1, StreamEpoch: "0", Offset: s.End, Reason: commit.RowLimit, Rows: s.Rows,
		MinTimestamp: segment.NoTimestamp, MaxTimestamp: segment.NoTimestamp,
	}
	w.ask(2)
	return w
}

// ask adds that many who ask.
func (w *watcher) ask(n int) {
	for i := range n {
		w.work.Go(func() {
			c := &http.Client{Transport: &http.Transport{}}
			defer c.CloseIdleConnections()
			for n := i; ; n++ {
				select {
				case <-w.done:
					return
				default:
				}
				w.once(c, n)
				time.Sleep(time.Millisecond)
			}
		})
	}
}

func (w *watcher) once(c *http.Client, n int) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	path, method, body := [...]string{"/protocol/segmentConsumed", "/leader", "/nodes"}[n%3], http.MethodGet, ""
	if n%3 == 0 {
		b, err := json.Marshal(w.seg)
		if err != nil {
			panic(err)
		}
		method, body = http.MethodPost, string(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, w.base+path, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	asked := time.Now()
	res, err := c.Do(req)
	if err != nil {
		return
	}
	defer res.Body.Close()
	said, err := io.ReadAll(res.Body)
	if err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.words = append(w.words, word{asked: asked, path: path, body: string(said), notLeader: strings.Contains(string(said), api.CodeNotLeader)})
}

// asLeader counts the answers of a leader.
func (w *watcher) asLeader() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.words {
		if !a.notLeader {
			n++
		}
	}
	return n
}

func (w *watcher) end() []word {
	close(w.done)
	w.work.Wait()
	return w.words
}
