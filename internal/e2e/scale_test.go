package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/stream"
	"github.com/shoalstore/shoal/zkmeta"
	"github.com/shoalstore/shoal/zkmeta/zktest"
)

// scale is how large the metadata of TestScale are. scaleEnv asks for the full one:
// make scale.
type scale struct{ segments, tables, partitions int }

const scaleEnv = "SHOAL_SCALE"

var (
	slice = scale{segments: 1_000, tables: 60, partitions: 1_000}
	full  = scale{segments: 50_000, tables: 2_000, partitions: 10_000}
)

// juteMax is jute.maxbuffer as ZooKeeper has it unless told otherwise: clients refuse
// an answer that is larger, and servers a request.
const juteMax = 1<<20 - 1

// TestScale: metadata that have grown large are written and read in small pieces; a
// leader that dies in the middle of a change of thousands of records leaves nothing
// that its successor does not end; and how long a start and a fail-over take is said.
// Nodes are stand-ins: it is about the controllers and ZooKeeper.
func TestScale(t *testing.T) {
	t.Parallel()
	size := slice
	if os.Getenv(scaleEnv) != "" {
		size = full
	}
	var started time.Time
	l := startLeague(t, leagueOptions{controllers: 2, servers: 1, wired: true, before: func(l *league, cluster uuid.UUID) {
		began := time.Now()
		seedMetadata(l, cluster, "big", 64, size.segments, standinCount)
		l.t.Logf("seeded %d segments in %s", size.segments, since(began))
		l.makeStreams("big", 64)
		started = time.Now()
	}})
	i, _ := l.leader(0)
	t.Logf("start of the first leader, by the tail in ZooKeeper: %s", since(started))
	l.awaitReady(l.controllers[1-i])
	s := &scaling{league: l, size: size, nodes: startStandins(t, standinCount, []string{l.front(0), l.front(1)})}
	s.makeProbe()
	s.failOver()
	s.manyTables()
	s.largeTable()
	s.deletes("big", size.segments)
	s.startsAnew()
	s.checkSizes()
}

const standinCount = 3

// scaling is the test as it goes on.
type scaling struct {
	*league
	size  scale
	nodes *standins
	probe meta.PartitionKey // which commits now and then
}

func since(began time.Time) time.Duration { return time.Since(began).Round(time.Millisecond) }

// makeStreams makes a stream with that many empty partitions.
func (l *league) makeStreams(name string, partitions int) {
	l.t.Helper()
	dir := filepath.Join(l.streamRoot(), name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		l.t.Fatal(err)
	}
	for p := range partitions {
		if err := os.WriteFile(filepath.Join(dir, stream.FileName(int32(p))), nil, 0o644); err != nil {
			l.t.Fatal(err)
		}
	}
}

func (l *league) awaitReady(p *process) {
	l.t.Helper()
	l.await(p.name+" to be ready", func() (bool, string) {
		err := l.direct(p, "/readyz", nil)
		return err == nil, asJSON(nil, err)
	})
}

// killLeader ends the leader by SIGKILL, and returns it with its epoch.
func (l *league) killLeader() (killed *process, epoch int64) {
	l.t.Helper()
	i, epoch := l.leader(0)
	l.controllers[i].kill()
	return l.controllers[i], epoch
}

// failOver kills the leader, and says how long it takes until there is another, and
// until that has committed a segment.
func (s *scaling) failOver() {
	s.t.Helper()
	im := s.nodes.follower.Image()
	seq := im.InProgress(s.probe).Seq
	killed, epoch := s.killLeader()
	died := time.Now()
	s.leader(epoch)
	led := since(died)
	s.nodes.commit(s.probe, 1000)
	s.t.Logf("fail-over with %d records, session timeout %s: SIGKILL to the first batch %s, to the first commit %s",
		im.Len(), leagueTimeout, led, since(died))
	began := time.Now()
	killed.start()
	s.awaitReady(killed)
	s.t.Logf("start as a standby, with what it had: ready after %s", since(began))
	s.awaitImage("the commit to be followed", func(im *meta.Image) bool { return im.InProgress(s.probe).Seq > seq })
}

// makeProbe makes a table with one partition.
func (s *scaling) makeProbe() {
	s.t.Helper()
	s.makeStreams("probe", 1)
	s.createTable("probe", map[string]any{"replication": 2})
	s.awaitImage("the probe to consume", func(im *meta.Image) bool {
		t := im.TableByName("probe")
		if t == nil {
			return false
		}
		s.probe = meta.PartitionKey{Table: t.ID}
		return im.InProgress(s.probe) != nil
	})
}

// awaitImage waits for an image of which ok says yes.
func (s *scaling) awaitImage(what string, ok func(*meta.Image) bool) {
	s.t.Helper()
	s.await(what, func() (bool, string) {
		im := s.nodes.follower.Image()
		return ok(im), fmt.Sprintf("an image of %d records, at %d", im.Len(), im.Next())
	})
}

// interrupted makes a change of so many parts; done counts those that an image shows.
// When the first of them are seen, the leader's next write is held until the leader is
// killed, and it must not have been all. It is the third write at the latest: whoever
// looks may see the first parts only when the leader has written the last, and every
// change takes three writes.
func (s *scaling) interrupted(what string, parts int, done func(*meta.Image) int, change func()) {
	s.t.Helper()
	var seen, writes atomic.Int64
	s.nodes.watch(func(im *meta.Image) { seen.Store(int64(done(im))) })
	began := time.Now()
	held, i := s.trap(zktest.HoldRequest, func([]byte) bool { return writes.Add(1) >= 3 || seen.Load() > 0 }, change)
	killed := s.controllers[i]
	killed.kill()
	at := int(seen.Load())
	held.Release()
	killed.start()
	if at >= parts {
		s.t.Errorf("%s: all %d were done before the leader was killed", what, parts)
	}
	s.await(fmt.Sprintf("%s of %d", what, parts), func() (bool, string) {
		n := int(seen.Load())
		return n == parts, fmt.Sprint(n)
	})
	s.nodes.watch(nil)
	s.t.Logf("%s of %d: leader killed at %d or later, done after %s, fail-over included", what, parts, at, since(began))
	s.awaitReady(killed)
}

// manyTables makes tables of a partition each.
func (s *scaling) manyTables() {
	s.t.Helper()
	name := func(i int) string { return fmt.Sprintf("table-%05d", i) }
	for i := range s.size.tables {
		s.makeStreams(name(i), 1)
	}
	active := func(im *meta.Image) (n int) {
		for t := range im.Tables() {
			if t.State == meta.TableActive && t.Name != "big" && t.Name != "probe" {
				n++
			}
		}
		return n
	}
	s.interrupted("making tables", s.size.tables, active, func() {
		var work sync.WaitGroup
		for w := range 16 {
			work.Go(func() {
				for i := w; i < s.size.tables; i += 16 {
					s.makeTable(name(i))
				}
			})
		}
		s.t.Cleanup(work.Wait)
	})
}

// makeTable makes a table, asking again until it is there: the leader may die at it.
func (s *scaling) makeTable(name string) {
	for deadline := time.Now().Add(awaitMax); time.Now().Before(deadline); time.Sleep(awaitPoll) {
		err := s.client.Post(context.Background(), "/tables", s.tableConfig(name, map[string]any{"replication": 2}), nil)
		if err == nil || hasCode(err, api.CodeTableExists) {
			return
		}
	}
	s.t.Errorf("table %s cannot be made", name)
}

// largeTable makes a table of many partitions, pauses and resumes it, drains a node of
// it, and deletes it.
func (s *scaling) largeTable() {
	s.t.Helper()
	const name = "large"
	parts := s.size.partitions
	s.makeStreams(name, parts)
	in := func(state meta.PartitionState) func(*meta.Image) int {
		return func(im *meta.Image) (n int) {
			if t := im.TableByName(name); t != nil {
				for p := range im.Partitions(t.ID) {
					if p.State == state {
						n++
					}
				}
			}
			return n
		}
	}
	s.interrupted("making partitions", parts, in(meta.PartitionConsuming), func() { s.makeTable(name) })
	s.awaitTable(name, "the large table to be ACTIVE", func(v api.TableView) bool { return v.State == meta.TableActive })
	s.interrupted("pausing partitions", parts, in(meta.PartitionPaused), func() {
		s.post("/tables/"+name+"/pauseConsumption", api.Pause{By: "e2e"}, nil)
	})
	s.interrupted("resuming partitions", parts, in(meta.PartitionConsuming), func() {
		s.post("/tables/"+name+"/resumeConsumption", nil, nil)
	})
	s.drains(name)
	s.failOver()
	s.deletes(name, parts)
}

// drains has every partition leave a node. It counts segments, too, as those that are
// asked to end are what takes longest.
func (s *scaling) drains(table string) {
	s.t.Helper()
	drained := standinRegistration(0).ID
	on := func(im *meta.Image) (n int) {
		for t := range im.Tables() {
			for p := range im.Partitions(t.ID) {
				for _, r := range p.Replicas {
					if r == drained {
						n++
					}
				}
			}
		}
		for range im.SegmentsConsuming(drained) {
			n++
		}
		return n
	}
	before := on(s.nodes.follower.Image())
	if before < s.size.partitions/2 {
		s.t.Fatalf("%s has only %d partitions and segments", drained, before)
	}
	s.interrupted("draining partitions and segments", before, func(im *meta.Image) int { return before - on(im) }, func() {
		s.post("/nodes/"+drained+"/drain", nil, nil)
	})
	s.post("/nodes/"+drained+"/undrain", nil, nil)
	var v api.TableView
	s.get("/tables/"+table, &v)
	if v.PartitionStates[meta.PartitionConsuming] != s.size.partitions {
		s.t.Errorf("after the drain: %+v", v.PartitionStates)
	}
}

// deletes deletes a table of at least so many segments.
func (s *scaling) deletes(table string, segments int) {
	s.t.Helper()
	id := s.nodes.follower.Image().TableByName(table).ID
	left := func(im *meta.Image) (n int) {
		for range im.TableSegments(id) {
			n++
		}
		return n
	}
	before := left(s.nodes.follower.Image())
	if before < segments {
		s.t.Fatalf("table %s has %d segments, want %d", table, before, segments)
	}
	s.interrupted("deleting segments of "+table, before, func(im *meta.Image) int { return before - left(im) }, func() {
		s.led(func() error {
			return s.client.Call(context.Background(), http.MethodDelete, "/tables/"+table, nil, nil)
		})
	})
	s.awaitImage("table "+table+" to be gone", func(im *meta.Image) bool { return im.Table(id) == nil })
}

// startsAnew stops the controllers and starts one that has nothing: from the tail, and
// when that is gone, from the record znodes. All three come to the same image.
func (s *scaling) startsAnew() {
	s.t.Helper()
	for _, c := range s.controllers {
		c.stop()
	}
	conn := s.dial(s.t)
	defer conn.Close()
	began := time.Now()
	want, err := zkmeta.Rebuild(s.t.Context(), conn)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Logf("%d records read from %d batches' znodes in %s", want.Len(), want.Next(), since(began))
	if broken := meta.CheckInvariants(want); len(broken) > 0 {
		s.t.Error(broken)
	}
	c := s.controllers[0]
	start := func(how string) {
		s.t.Helper()
		if err := os.RemoveAll(c.data()); err != nil {
			s.t.Fatal(err)
		}
		began := time.Now()
		c.start()
		s.leader(0)
		s.t.Logf("start of a leader that has nothing, %s: %s", how, since(began))
		c.stop()
	}
	start("by the tail or the znodes, as it says")
	compareLog(s.t, c, want)
	head, _, err := zkmeta.CurrentHead(s.t.Context(), conn)
	if err != nil {
		s.t.Fatal(err)
	}
	for offset := head.Next() - 4; offset >= 0; offset-- {
		err := conn.Delete(s.t.Context(), conn.Path(fmt.Sprintf("log/entries/%020d", offset)), -1)
		if errors.Is(err, zkmeta.ErrNoNode) {
			break
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
	start("by the record znodes")
}

// compareLog checks that a controller's log comes to the image, as far as that goes.
func compareLog(t *testing.T, c *process, want *meta.Image) {
	t.Helper()
	entries := readLog(t, c.data(), "log")
	if len(entries) == 0 || entries[0].Batch.Offset != 0 {
		return // it was rebuilt, or begins with a tail that was trimmed
	}
	im := meta.Empty()
	for _, e := range entries {
		if im.Next() == want.Next() {
			break
		}
		next, err := im.Apply(e.Batch)
		if err != nil {
			t.Fatal(err)
		}
		im = next
	}
	compareImages(t, want, im)
}

// checkSizes checks what has gone over the wire.
func (s *scaling) checkSizes() {
	s.t.Helper()
	var request, reply zktest.Size
	for _, wires := range s.wires {
		for _, w := range wires {
			if r := w.MaxRequest(); r.Bytes > request.Bytes {
				request = r
			}
			if r := w.MaxReply(); r.Bytes > reply.Bytes {
				reply = r
			}
		}
	}
	s.t.Logf("the largest request had %d bytes (operation %d), the largest answer %d (operation %d)", request.Bytes, request.Op, reply.Bytes, reply.Op)
	if request.Bytes > zkmeta.MultiBytesMax || reply.Bytes > juteMax {
		s.t.Errorf("the limits are %d and %d", zkmeta.MultiBytesMax, juteMax)
	}
}

// byHand is a writer of the metadata that is no controller.
type byHand struct {
	t *testing.T
	*metalog.Writer
	cancel context.CancelFunc
	over   chan struct{}
}

// leadByHand opens the first epoch of a cluster in ZooKeeper.
func leadByHand(t *testing.T, conn *zkmeta.Conn, cluster uuid.UUID) *byHand {
	t.Helper()
	head, version, err := zkmeta.CurrentHead(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	w := &byHand{t: t}
	w.lead(metalog.WriterConfig{
		Device: zkmeta.NewDevice(zkmeta.DeviceConfig{
			Conn: conn, Head: head, Version: version, Base: func() *meta.Image { return w.Image() },
		}),
		Cluster: cluster, BatchSize: zkmeta.BatchSize, BatchBytesMax: zkmeta.BatchBytesMax,
	})
	return w
}

// lead begins to write an empty log, of which cfg says where it is.
func (w *byHand) lead(cfg metalog.WriterConfig) {
	cfg.Image, cfg.Logger = meta.Empty(), zerolog.Nop()
	cfg.Leader = meta.Leader{Epoch: 1, Term: uuid.New(), Controller: "by-hand", URL: "http://127.0.0.1:1"}
	cfg.Clock = func() int64 { return time.Now().UnixMilli() }
	w.Writer, w.over = metalog.NewWriter(cfg), make(chan struct{})
	var ctx context.Context
	ctx, w.cancel = context.WithCancel(context.Background())
	go func() {
		defer close(w.over)
		if err := w.Run(ctx); err != nil {
			w.t.Errorf("writing by hand: %v", err)
		}
	}()
}

func (w *byHand) submit(fn meta.Func) {
	if _, err := w.Submit(w.t.Context(), fn); err != nil {
		w.t.Error(err)
	}
}

func (w *byHand) stop() { w.cancel(); <-w.over }
