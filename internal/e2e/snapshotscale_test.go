package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/snapshots"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta/metatest"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/zkmeta"
	"github.com/shoalstore/shoal/zkmeta/zktest"
)

// segmentsEnv says how many segments TestSnapshotScale makes: make snapshot-scale.
const segmentsEnv = "SHOAL_SEGMENTS"

// measurement is how large TestSnapshotScale is, and how often it measures.
type measurement struct {
	segments int
	rounds   int           // of appends, with a snapshot being written and without
	phaseMin time.Duration // of half a round
	runs     int           // of each process that begins with nothing, or with what it had
	znodeRun int           // of those that read the znodes: they take long
}

func measurementWanted(t *testing.T) measurement {
	n := os.Getenv(segmentsEnv)
	if n == "" {
		return measurement{segments: 5_000, rounds: 1, phaseMin: 200 * time.Millisecond, runs: 1, znodeRun: 1}
	}
	segments, err := strconv.Atoi(n)
	if err != nil || segments < 1000 {
		t.Fatalf("%s is %q; it must be a number, 1000 or more", segmentsEnv, n)
	}
	return measurement{segments: segments, rounds: 5, phaseMin: 3 * time.Second, runs: 3, znodeRun: 2}
}

// tailBatches is how much of the log follows the snapshot that is fetched.
const tailBatches = 100

// TestSnapshotScale: what snapshots of large metadata cost, and what they spare. A leader
// makes the metadata, and snapshots of them while it appends; processes of their own read
// those, begin with nothing over HTTP or with what they had, or read the same records out
// of ZooKeeper. Whichever way, the image must be the same.
func TestSnapshotScale(t *testing.T) {
	t.Parallel()
	zktest.Required(t)
	s := &snapshotScale{t: t, measurement: measurementWanted(t)}
	s.table.add("machine", fmt.Sprintf("GOMAXPROCS %d, load %s", runtime.GOMAXPROCS(0), loadNow()), "")
	s.build()
	s.writeInLeader()
	s.appends()
	s.cut()
	s.oneCore()
	s.coldStarts()
	s.restarts()
	s.znodes()
	s.table.add("machine", "load "+loadNow(), "")
	t.Logf("%d segments:\n%s", s.segments, &s.table)
}

// snapshotScale is the test as it goes on.
type snapshotScale struct {
	t *testing.T
	measurement
	table resultTable

	dir     string
	cluster uuid.UUID
	log     *metalog.Log
	snaps   *metalog.Snapshots
	writer  *byHand
	seeder  *seeder
	latest  metalog.SnapshotRef // tailBatches before the end
	want    metalog.SnapshotRef // at the end: whoever has the same image makes the same
	cold    time.Duration       // of the fastest cold start
}

// build makes the metadata through the writer, on a log on disk.
func (s *snapshotScale) build() {
	s.t.Helper()
	s.dir, s.cluster = s.t.TempDir(), uuid.New()
	disk := openDisk(s.t, s.dir, "leader")
	var err error
	if s.log, err = metalog.OpenLog(disk, metalog.LogOptions{Logger: zerolog.Nop()}); err != nil {
		s.t.Fatal(err)
	}
	if s.snaps, err = metalog.OpenSnapshots(disk, "", zerolog.Nop()); err != nil {
		s.t.Fatal(err)
	}
	before := heapHeld()
	s.writer = &byHand{t: s.t}
	s.writer.lead(metalog.WriterConfig{Device: s.log, Cluster: s.cluster})
	s.t.Cleanup(s.stopLeader)
	s.seeder = &seeder{t: s.t, writer: s.writer}
	w := beginWatch()
	s.seeder.seed(s.segments)
	im := s.writer.Image()
	s.table.add("build, through the writer", fmt.Sprintf("%d records in %d batches, %.1f MB of log, %s",
		im.Len(), im.Next(), mega(s.log.Bytes()), w), "")
	s.addImage("image as its leader has it", heapHeld()-before, im.Len())
	runtime.KeepAlive(im)
}

// stopLeader ends the writer and the log. It may be called again.
func (s *snapshotScale) stopLeader() {
	s.writer.cancel()
	<-s.writer.over
	if err := s.log.Close(); err != nil {
		s.t.Error(err)
	}
}

// addImage adds how large an image is, nearly all of whose records are segments.
func (s *snapshotScale) addImage(what string, bytes int64, records int) {
	each := float64(bytes) / float64(records)
	s.table.add(what, fmt.Sprintf("%.1f MB of heap, %.0f bytes a segment", mega(bytes), each), aimed("≤ 1024 bytes a segment", each <= 1024))
}

// writeInLeader writes a snapshot in the process that has the metadata, on all cores.
func (s *snapshotScale) writeInLeader() {
	s.t.Helper()
	w := beginWatch()
	ref, err := s.snaps.Write(s.t.Context(), s.writer.Image())
	if err != nil {
		s.t.Fatal(err)
	}
	s.table.add("snapshot", fmt.Sprintf("%.1f MB, %.0f bytes a segment", mega(ref.SizeBytes), float64(ref.SizeBytes)/float64(s.segments)),
		aimed("≤ 400 MB", ref.SizeBytes <= 400_000_000))
	s.table.add("written by the leader", w.String(), "")
}

// cut makes the snapshot that others begin with, and a short tail after it.
func (s *snapshotScale) cut() {
	s.t.Helper()
	var err error
	if s.latest, err = s.snaps.Write(s.t.Context(), s.writer.Image()); err != nil {
		s.t.Fatal(err)
	}
	k := s.seeder.partitions()[0]
	for range tailBatches {
		s.writer.submit(s.seeder.commitOne(k))
	}
	elsewhere := openDisk(s.t, s.dir, "want")
	if s.want, err = metalog.WriteSnapshot(s.t.Context(), elsewhere, "wanted", s.writer.Image()); err != nil {
		s.t.Fatal(err)
	}
}

// measure runs a part in a process of its own, and checks the image that it comes to.
func (s *snapshotScale) measure(p measuredPart) partResult {
	s.t.Helper()
	p.Cluster, p.End = s.cluster, s.want.EndOffset
	r := runPart(s.t, p)
	if r.Snapshot != s.want {
		s.t.Fatalf("%s: the image makes snapshot %+v, want %+v", p.Do, r.Snapshot, s.want)
	}
	return r
}

// oneCore reads and writes a snapshot in a process that has one processor.
func (s *snapshotScale) oneCore() {
	s.t.Helper()
	w := runPart(s.t, measuredPart{Do: partOneCore, Dir: filepath.Join(s.dir, "leader"), Processors: 1})
	if w.Snapshot != s.latest {
		s.t.Fatalf("the image of %+v makes %+v", s.latest, w.Snapshot)
	}
	s.table.add("snapshot for what follows, with what the rounds have added", fmt.Sprintf("%d records, %.1f MB", w.Records, mega(s.latest.SizeBytes)), "")
	s.table.add("written on one core", w.Steps["write"].String(), aimed("≤ 5 s", w.Steps["write"].Took <= 5*time.Second))
	s.table.add("loaded and verified on one core", w.Steps["load"].String(), "")
	s.addImage("image as loaded", w.ImageBytes, w.Records)
}

// coldStarts has processes with empty directories follow the leader over HTTP.
func (s *snapshotScale) coldStarts() {
	s.t.Helper()
	leader := s.serve()
	var runs []partResult
	for i := range s.runs {
		runs = append(runs, s.measure(measuredPart{Do: partColdStart, Dir: s.nodeDir(i), Leader: leader}))
	}
	s.cold = s.addRuns("node that begins with nothing, over HTTP", runs, []string{"snapshot", "rest"}, 5*time.Second)
}

func (s *snapshotScale) nodeDir(i int) string { return filepath.Join(s.dir, fmt.Sprintf("node-%d", i)) }

// serve serves what followers fetch, as the leader does, until the test ends.
func (s *snapshotScale) serve() metalog.LeaderRef {
	server := metalog.NewServer(metalog.ServerConfig{Log: s.log, Snapshots: func() (earliest, latest *metalog.SnapshotRef) {
		return s.snaps.Earliest(), s.snaps.Latest()
	}, Logger: zerolog.Nop()})
	keeper := snapshots.NewKeeper(snapshots.Shared{Logger: zerolog.Nop(), Standing: server.Standing}, s.log, s.snaps, nil)
	mux := http.NewServeMux()
	mux.Handle("/metadata/log", server)
	mux.Handle(snapshots.Path, keeper)
	mux.Handle(snapshots.Path+"/", keeper)
	listening := httptest.NewServer(mux)
	s.t.Cleanup(listening.Close)
	s.t.Cleanup(server.Shutdown)
	leader := metalog.LeaderRef{URL: listening.URL, Epoch: s.writer.Image().Epoch()}
	server.SetStanding(metalog.Standing{Cluster: s.cluster, Epoch: leader.Epoch, URL: leader.URL, Leading: true})
	return leader
}

// restarts opens what the nodes have, and what the leader has once it has ended.
func (s *snapshotScale) restarts() {
	s.t.Helper()
	var nodes, leader []partResult
	for i := range s.runs {
		nodes = append(nodes, s.measure(measuredPart{Do: partRestart, Dir: s.nodeDir(i)}))
	}
	s.addRuns("restart of a node that has the snapshot", nodes, []string{"log", "snapshots", "recover"}, 3*time.Second)
	s.stopLeader()
	for range s.runs {
		leader = append(leader, s.measure(measuredPart{Do: partRestart, Dir: filepath.Join(s.dir, "leader")}))
	}
	s.addRuns(fmt.Sprintf("restart of the leader, whose log has %.0f MB besides", mega(s.log.Bytes())), leader,
		[]string{"log", "snapshots", "recover"}, 3*time.Second)
}

// znodes puts the same records into ZooKeeper, and has processes read them there.
func (s *snapshotScale) znodes() {
	s.t.Helper()
	heapMB := 256 + s.segments*4/1024
	zk := zktest.Start(s.t, zktest.WithJava(fmt.Sprintf("-Xmx%dm", heapMB)), zktest.WithTickTime(2*time.Second))
	conn := dialZooKeeper(s.t, zk.Addr())
	defer conn.Close()
	in := zkmeta.NewImport(zkmeta.ImportConfig{
		Conn: conn, Image: s.writer.Image(), Migration: metatest.ID("migration"), From: "the leader's directory",
	})
	w := beginWatch()
	for _, step := range []func() error{
		func() error { return in.Begin(s.t.Context()) },
		func() error { return in.Write(s.t.Context()) },
		func() error { return in.Finish(s.t.Context()) },
	} {
		if err := step(); err != nil {
			s.t.Fatal(err)
		}
	}
	s.table.add("the records written to ZooKeeper", fmt.Sprintf("%s; its heap is at most %d MiB", w, heapMB), "")
	var runs []partResult
	for range s.znodeRun {
		runs = append(runs, s.measure(measuredPart{Do: partZnodes, ZooKeeper: zk.Addr()}))
	}
	read := s.addRuns("the same out of ZooKeeper, znode by znode", runs, nil, 0)
	s.table.add("znode by znode ÷ snapshot over HTTP", fmt.Sprintf("%.1f, of the fastest of each", read.Seconds()/s.cold.Seconds()), "")
}

// addRuns adds a line of runs of a part, with the named steps of the fastest, and returns
// how long that took.
func (s *snapshotScale) addRuns(what string, runs []partResult, steps []string, max time.Duration) time.Duration {
	slices.SortFunc(runs, func(a, b partResult) int { return int(a.Total.Took - b.Total.Took) })
	best := runs[0]
	var all, split []string
	for _, r := range runs {
		all = append(all, seconds(r.Total.Took))
	}
	for _, name := range steps {
		split = append(split, name+" "+seconds(best.Steps[name].Took))
	}
	text := strings.Join(all, ", ")
	if len(split) > 0 {
		text += " (the first: " + strings.Join(split, ", ") + ")"
	}
	aim := ""
	if max > 0 {
		aim = aimed("≤ "+seconds(max), runs[(len(runs)-1)/2].Total.Took <= max)
	}
	s.table.add(what, fmt.Sprintf("%s; %s of processor", text, seconds(best.Total.CPU)), aim)
	return best.Total.Took
}

func openDisk(t *testing.T, parts ...string) vfs.FS {
	t.Helper()
	dir := filepath.Join(parts...)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	disk, err := vfs.OS(dir)
	if err != nil {
		t.Fatal(err)
	}
	return disk
}

func dialZooKeeper(t *testing.T, addr string) *zkmeta.Conn {
	t.Helper()
	conn, err := zkmeta.Connect(zooKeeperAt(addr))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// zooKeeperAt is how a server is reached whose collector may stop it for seconds.
func zooKeeperAt(addr string) zkmeta.ConnConfig {
	access := zkmeta.Access{SessionTimeout: 30 * time.Second}
	return access.Conn(zkmeta.Address{Servers: []string{addr}, Root: leagueRoot}, zerolog.Nop(), nil)
}
