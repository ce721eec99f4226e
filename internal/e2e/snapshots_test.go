package e2e

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/internal/snapshots"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/zkmeta"
)

// TestSnapshotsAreTheSameEverywhere: one history on three controllers and a node makes the
// same bytes of the same snapshot, whoever was killed, came late, began with nothing, or was
// rebuilt from the znodes meanwhile; and who begins with nothing gets one of them.
func TestSnapshotsAreTheSameEverywhere(t *testing.T) {
	t.Parallel()
	l := startLeague(t, leagueOptions{controllers: 3, nodes: 1, servers: 1})
	p := newProducer(t, l.streamRoot(), "events", 2)
	l.createTable("events", map[string]any{"deepStore": l.withDeepStore()})
	p.add(500)
	l.awaitCommitted("events", 400)
	all := append([]*process{l.nodes[0]}, l.controllers...)
	l.sameSnapshot(all)

	// One standby is away for a snapshot, and the other's directory is gone.
	leading, epoch := l.leader(0)
	away, emptied := l.controllers[(leading+1)%3], l.controllers[(leading+2)%3]
	away.kill()
	emptied.kill()
	removeAll(t, emptied.data())
	p.add(200)
	l.awaitCommitted("events", 600)
	second := l.sameSnapshot([]*process{l.nodes[0], l.controllers[leading]})
	away.start()
	emptied.start()
	fetched := l.awaitSnapshot(emptied, second) // the latest one: it has to be there before there is another
	p.add(200)
	l.awaitCommitted("events", 800)
	l.sameSnapshot(all)
	// It may have made the second one when it came back, or only the third if that was
	// asked for before its turn came.
	if made := l.snapshotAt(away, second); made != nil && made.SnapshotRef != fetched.SnapshotRef {
		t.Errorf("%s, which was away, has made snapshot %+v, %s has fetched %+v", away.name, made, emptied.name, fetched)
	}
	if n := l.metric(emptied, "shoal_snapshots_fetched_total"); n != 1 {
		t.Errorf("%s says that it has fetched %v snapshots", emptied.name, n)
	}

	// The node's cache is gone, and the leader is another by then.
	l.nodes[0].kill()
	removeAll(t, l.nodes[0].data()+"/cache")
	removeAll(t, l.nodes[0].data()+"/snapshots")
	l.controllers[leading].kill()
	_, epoch = l.leader(epoch)
	l.nodes[0].start()
	l.controllers[leading].start()
	p.add(200)
	l.awaitCommitted("events", 1000)
	l.sameSnapshot(all)

	// Nobody is left, and the tail in ZooKeeper does not go back to the beginning.
	for _, c := range l.controllers {
		c.kill()
	}
	l.dropTail()
	rebuilt := l.controllers[0]
	removeAll(t, rebuilt.data())
	rebuilt.start()
	if i, _ := l.leader(epoch); l.controllers[i] != rebuilt {
		t.Fatal("another one leads")
	}
	if said := rebuilt.tail(1000); !strings.Contains(said, "image rebuilt from the record znodes") {
		t.Error("it was not rebuilt")
	}
	for _, c := range l.controllers[1:] {
		c.start()
	}
	p.add(200)
	l.awaitCommitted("events", 1200)
	l.sameSnapshot(all)
	l.prove("events", p)
}

// TestNodeThatServesWhatItHas: what a node serves of the log and of snapshots is what the
// leader has, also when no controller is left.
func TestNodeThatServesWhatItHas(t *testing.T) {
	t.Parallel()
	began := time.Now()
	f, _ := startFleet(t, fleetOptions{nodes: 1})
	p := newProducer(t, f.streamRoot(), "events", 1)
	f.createTable("events", map[string]any{"deepStore": f.withDeepStore()})
	p.add(300)
	f.awaitCommitted("events", 200)
	id := f.askSnapshot()
	f.awaitSnapshot(f.controller, id)
	f.awaitSnapshot(f.nodes[0], id)
	for _, p := range []*process{f.controller, f.nodes[0]} {
		for name, want := range map[string]float64{
			"shoal_metalog_log_start_offset": 0, "shoal_metalog_snapshots": 1, "shoal_metalog_snapshots_pinned": 0,
		} {
			if got := f.metric(p, name); got != want {
				t.Errorf("%s shows %s %v, want %v", p.name, name, got, want)
			}
		}
		if end := f.metric(p, "shoal_metalog_high_watermark"); end < float64(id.EndOffset) || end > f.metric(p, "shoal_metalog_log_end_offset") {
			t.Errorf("%s shows a high watermark of %v", p.name, end)
		}
		if at := f.metric(p, "shoal_metalog_snapshot_timestamp_seconds"); at < float64(began.Unix()) {
			t.Errorf("%s shows a snapshot of %v", p.name, at)
		}
	}
	f.await("the controller shows how far the node is", func() (bool, string) {
		got := f.metric(f.controller, `shoal_follower_applied_offset{node="node-1"}`)
		return got >= float64(id.EndOffset), fmt.Sprint(got)
	})
	want := f.endController((*process).stop, f.nodes)
	n := int64(len(want))
	got, _, err := f.copyFrom(f.nodes[0], 0)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := metalog.DecodeEntries(got)
	if err != nil {
		t.Fatal(err)
	}
	compareLogs(t, "what the node serves", entries, want)
	for _, offset := range []int64{-1, n + 1} {
		var answer *httpx.Error
		if _, _, err := f.copyFrom(f.nodes[0], offset); !errors.As(err, &answer) ||
			answer.Code != metalog.CodeInvalidRequest && answer.Code != metalog.CodePositionOutOfRange {
			t.Errorf("offset %d: %v", offset, err)
		}
	}
}

func removeAll(t *testing.T, dir string) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
}

// base is a process's own address.
func (p *process) base() string {
	if p.role.Controller != nil {
		return "http://" + p.role.Controller.Listen
	}
	return p.url
}

// metrics reads all that a process shows.
func (o *observer) metrics(p *process) string {
	o.t.Helper()
	req, err := http.NewRequestWithContext(o.t.Context(), http.MethodGet, p.base()+"/metrics", nil)
	if err != nil {
		o.t.Fatal(err)
	}
	res, err := o.http.Do(req)
	if err != nil {
		o.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		o.t.Fatal(err)
	}
	return string(body)
}

// metric reads one of a process's metrics, by its name and labels; −1 if it shows no such.
func (o *observer) metric(p *process, name string) float64 {
	o.t.Helper()
	for line := range strings.Lines(o.metrics(p)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				o.t.Fatal(err)
			}
			return v
		}
	}
	return -1
}

// askSnapshot asks the leader for a snapshot and returns its id.
func (o *observer) askSnapshot() metalog.SnapshotID {
	o.t.Helper()
	var asked api.SnapshotAsked
	o.post(snapshots.Path, nil, &asked)
	return metalog.SnapshotID{EndOffset: asked.EndOffset, Epoch: asked.Epoch}
}

// snapshotAt returns what a process has under an id, nil for nothing.
func (o *observer) snapshotAt(p *process, id metalog.SnapshotID) *snapshots.Item {
	var list httpx.List[snapshots.Item]
	if err := o.http.GetJSON(o.t.Context(), p.base()+snapshots.Path, &list); err != nil {
		return nil
	}
	for _, it := range list.Items {
		if it.SnapshotID == id {
			return &it
		}
	}
	return nil
}

func (o *observer) awaitSnapshot(p *process, id metalog.SnapshotID) (item snapshots.Item) {
	o.t.Helper()
	o.await(fmt.Sprintf("%s has snapshot %s", p.name, id), func() (bool, string) {
		if found := o.snapshotAt(p, id); found != nil {
			item = *found
			return true, ""
		}
		return false, "it has not"
	})
	return item
}

// sameSnapshot asks for a snapshot and waits until all have it, the same one.
func (o *observer) sameSnapshot(all []*process) metalog.SnapshotID {
	o.t.Helper()
	id := o.askSnapshot()
	first := o.awaitSnapshot(all[0], id)
	for _, p := range all[1:] {
		if item := o.awaitSnapshot(p, id); item.SnapshotRef != first.SnapshotRef || !item.Time.Equal(first.Time) {
			o.t.Errorf("%s has snapshot %+v, %s has %+v", all[0].name, first, p.name, item)
		}
	}
	return id
}

// copyFrom reads the copy of the log that a node has, from an offset to its end.
func (o *observer) copyFrom(p *process, offset int64) (frames []byte, end int64, err error) {
	for {
		url := fmt.Sprintf("%s%s?offset=%d&maxBytes=1000", p.base(), metalog.CopyPath, offset)
		req, err := http.NewRequestWithContext(o.t.Context(), http.MethodGet, url, nil)
		if err != nil {
			return nil, 0, err
		}
		res, err := o.http.Do(req)
		if err != nil {
			return nil, 0, err
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil {
			return nil, 0, err
		}
		if _, err := fmt.Sscan(res.Header.Get(metalog.HeaderHighWatermark), &end); err != nil || len(body) == 0 {
			return frames, end, err
		}
		entries, err := metalog.DecodeEntries(body)
		if err != nil {
			return nil, 0, err
		}
		frames, offset = append(frames, body...), offset+int64(len(entries))
	}
}

// endController ends the controller, and returns its log, all of which the nodes have by
// then. What it has written last may not have come to them when it ends: then it starts
// once more.
func (f *fleet) endController(end func(*process), nodes []*process) []metalog.Entry {
	f.t.Helper()
	have := func(batches int) (bool, string) {
		for _, n := range nodes {
			if _, end, err := f.copyFrom(n, 0); err != nil || end < int64(batches) {
				return false, fmt.Sprint(n.name, " has ", end, " of ", batches, ", ", err)
			}
		}
		return true, ""
	}
	for {
		end(f.controller)
		all := readLog(f.t, f.controller.data(), "log")
		ok, why := have(len(all))
		if ok {
			return all
		}
		f.t.Log("ended too early: ", why)
		f.controller.start()
		f.await("the nodes to have the log up to the next epoch", func() (bool, string) { return have(len(all) + 1) })
	}
}

// dropTail removes the entries in ZooKeeper, as if the tail had outgrown its limit.
func (l *league) dropTail() {
	l.t.Helper()
	conn := l.dial(l.t)
	defer conn.Close()
	head, _, err := zkmeta.CurrentHead(l.t.Context(), conn)
	if err != nil {
		l.t.Fatal(err)
	}
	for offset := range head.Next() {
		err := conn.Delete(l.t.Context(), conn.Path(fmt.Sprintf("log/entries/%020d", offset)), -1)
		if err != nil && !errors.Is(err, zkmeta.ErrNoNode) {
			l.t.Fatal(err)
		}
	}
}
