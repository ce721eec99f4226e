package meta_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
)

// steps takes the steps of a bulk change until one changes nothing, and holds each
// result to the invariants. It returns how many there were, and how large the largest
// batch was, in bytes.
func steps(t *testing.T, l *metatest.Log, next meta.Func) (n, largest int) {
	t.Helper()
	for ; ; n++ {
		batches := len(l.Batches)
		l.Do(t, next)
		if len(l.Batches) == batches {
			return n, largest
		}
		data, err := meta.EncodeBatch(l.Batches[batches])
		if err != nil {
			t.Fatal(err)
		}
		largest = max(largest, len(data))
		if v := meta.CheckInvariants(l.Image); len(v) > 0 {
			t.Fatalf("after step %d: %v", n+1, v)
		}
	}
}

// bulkTable makes a table of 450 partitions on n1 and n2, n3 being there too.
func bulkTable(t *testing.T, change ...func(*meta.Config)) (*metatest.Log, uuid.UUID) {
	l := metatest.NewLog(t)
	l.AddNode(t, "n1", "a")
	l.AddNode(t, "n2", "b")
	cfg := metatest.Config("flights")
	for _, c := range change {
		c(cfg)
	}
	id := l.AddTable(t, cfg, 450)
	l.AddNode(t, "n3", "b")
	return l, id
}

var pausedByMe = meta.Pause{Reason: meta.PauseAdministrative, By: "me"}

func TestAPauseAsksEverySegmentOnceInSmallSteps(t *testing.T) {
	l, id := bulkTable(t)
	l.Do(t, meta.RequestEnd(id, []int32{3}, meta.EndForceCommit, metatest.ID("job")))
	if n, _ := steps(t, l, meta.PauseNext(id)); n != 0 {
		t.Fatalf("%d steps for a table that is ACTIVE", n)
	}
	l.Do(t, meta.PauseTable(id, pausedByMe))
	if n, _ := steps(t, l, meta.PauseNext(id)); n != 3 {
		t.Fatalf("%d steps", n)
	}
	for p := range l.Image.Partitions(id) {
		want := meta.EndPause
		if p.Partition == 3 {
			want = meta.EndForceCommit
		}
		if s := l.Image.InProgress(p.PartitionKey()); s.EndRequested == nil || s.EndRequested.Reason != want || s.Times.EndRequested == 0 {
			t.Fatalf("%+v", s)
		}
	}
}

func TestAStepIsBoundedInBytes(t *testing.T) {
	l, id := bulkTable(t)
	for p := range l.Image.Partitions(id) {
		l.Do(t, meta.RecordError(l.Image.InProgress(p.PartitionKey()).SegmentKey(), "n1", strings.Repeat("x", 1<<10), false))
	}
	l.Do(t, meta.PauseTable(id, pausedByMe))
	n, largest := steps(t, l, meta.PauseNext(id))
	if n < 4 || largest > 140<<10 {
		t.Fatalf("%d steps, the largest of %d bytes", n, largest)
	}
}

func TestAPauseByAPersonTakesThePlaceOfOneThatLiftsItself(t *testing.T) {
	l, id := bulkTable(t)
	l.Do(t, meta.PauseTable(id, meta.Pause{Reason: meta.PauseDiskFull, By: "n1"}))
	l.Do(t, meta.PauseTable(id, meta.Pause{Reason: meta.PauseQuota, By: "quota"}))
	if got := l.Image.Table(id).Pause.Reason; got != meta.PauseDiskFull {
		t.Fatal(got)
	}
	l.Do(t, meta.PauseTable(id, pausedByMe))
	l.Do(t, meta.PauseTable(id, meta.Pause{Reason: meta.PauseDiskFull, By: "n1"}))
	if got := *l.Image.Table(id).Pause; got != pausedByMe {
		t.Fatal(got)
	}
}

// paused pauses the table, and ends the segments of all partitions at offset 10, but
// for the first, which ends without rows.
func paused(t *testing.T, l *metatest.Log, id uuid.UUID) {
	t.Helper()
	l.Do(t, meta.PauseTable(id, pausedByMe))
	steps(t, l, meta.PauseNext(id))
	for p := range l.Image.Partitions(id) {
		if p.Partition == 0 {
			l.Do(t, meta.ClearEndRequested(l.Image.InProgress(p.PartitionKey()).SegmentKey(), false))
		} else {
			l.Do(t, meta.CommitSegment(l.Commit(t, p.PartitionKey(), 10)))
		}
		if got := l.Image.Partition(id, p.Partition).State; got != meta.PartitionPaused {
			t.Fatalf("partition %d is %s", p.Partition, got)
		}
	}
}

func TestAResumeOpensSegmentsOnNodesThatAreUp(t *testing.T) {
	l, id := bulkTable(t)
	paused(t, l, id)
	l.Do(t, meta.SetNodeState("n1", meta.AnyIncarnation, meta.NodeDown))
	l.Do(t, meta.ResumeTable(id, meta.FromLastConsumed))
	if n, _ := steps(t, l, meta.ResumeNext(id, nil, []string{"n2", "n3"})); n != 3 {
		t.Fatalf("%d steps", n)
	}
	for p := range l.Image.Partitions(id) {
		s := l.Image.InProgress(p.PartitionKey())
		if s.Start != p.NextOffset || len(p.Holes) > 0 || s.Seq != 1 || slices.Contains(s.Replicas, "n1") || len(s.Replicas) != 2 {
			t.Fatalf("%+v, %+v", p, s)
		}
	}
	// Without another node the one that is DOWN is named again: it may come back.
	for p := range l.Image.Partitions(id) {
		l.Do(t, meta.SetReplicas(p.PartitionKey(), []string{"n1", "n2"}, nil))
	}
	l.Do(t, meta.PauseTable(id, pausedByMe))
	k := meta.PartitionKey{Table: id, Partition: 7}
	l.Do(t, meta.RequestEnd(id, []int32{7}, meta.EndPause, uuid.UUID{}))
	l.Do(t, meta.ClearEndRequested(l.Image.InProgress(k).SegmentKey(), false))
	l.Do(t, meta.ResumeTable(id, meta.FromLastConsumed))
	steps(t, l, meta.ResumeNext(id, nil, []string{"n2"}))
	if got := l.Image.InProgress(k).Replicas; !slices.Equal(got, []string{"n2", "n1"}) {
		t.Fatal(got)
	}
}

func TestAResumeElsewhereIsARecordedHoleAndNeverGoesBack(t *testing.T) {
	l, id := bulkTable(t)
	paused(t, l, id)
	starts := map[int32]int64{0: 5, 1: 4, 2: 30}
	l.Do(t, meta.ResumeTable(id, meta.FromLargest))
	steps(t, l, meta.ResumeNext(id, starts, nil))
	why := "consumption was resumed at the largest offset"
	for p, want := range map[int32][]meta.Hole{0: {{From: 0, To: 5, Why: why}}, 1: nil, 2: {{From: 10, To: 30, Why: why}}, 3: nil} {
		got := l.Image.Partition(id, p)
		if !slices.Equal(got.Holes, want) || l.Image.InProgress(got.PartitionKey()).Start != got.Position() {
			t.Errorf("partition %d: %+v", p, got)
		}
	}
	// Paused again before a row came: what was skipped stays so, and more of it is
	// one hole after the other.
	l.Do(t, meta.PauseTable(id, pausedByMe))
	steps(t, l, meta.PauseNext(id))
	k := meta.PartitionKey{Table: id, Partition: 2}
	l.Do(t, meta.ClearEndRequested(l.Image.InProgress(k).SegmentKey(), false))
	l.Do(t, meta.ResumeTable(id, meta.FromLargest))
	steps(t, l, meta.ResumeNext(id, map[int32]int64{2: 50}, nil))
	if got := l.Image.Partition(id, 2); len(got.Holes) != 2 || got.Holes[1] != (meta.Hole{From: 30, To: 50, Why: why}) {
		t.Fatalf("%+v", got)
	}
	// One partition by hand, below: what is read after all is no hole any more.
	l.Do(t, meta.PauseTable(id, pausedByMe))
	steps(t, l, meta.PauseNext(id))
	l.Do(t, meta.ClearEndRequested(l.Image.InProgress(k).SegmentKey(), false))
	l.Do(t, meta.ResumeTable(id, meta.FromLastConsumed))
	l.Do(t, meta.ResumePartition(k, 20, ""))
	if got := l.Image.Partition(id, 2); len(got.Holes) != 1 || got.Holes[0].To != 20 {
		t.Fatalf("%+v", got)
	}
	l.Do(t, meta.CommitSegment(l.Commit(t, k, 10)))
	c := meta.Coverage(l.Image, id, map[int32]int64{2: 30})
	if pc := c.Partitions[2]; !pc.Complete() || len(pc.Gaps) > 0 {
		t.Fatalf("%+v", pc)
	}
}

func TestADrainedNodeIsLeftForReadyNodes(t *testing.T) {
	l, id := bulkTable(t)
	ended := l.Commit(t, meta.PartitionKey{Table: id, Partition: 1}, 10)
	ended.EndOfPartition = true
	l.Do(t, meta.CommitSegment(ended))
	if n, _ := steps(t, l, meta.DrainNext("n1", []string{"n2", "n3"})); n != 0 {
		t.Fatalf("%d steps for a node that is UP", n)
	}
	l.Do(t, meta.SetNodeState("n1", meta.AnyIncarnation, meta.NodeDraining))
	// Two replicas are wanted, and n2 alone is left: that is what there is.
	if n, largest := steps(t, l, meta.DrainNext("n1", nil)); n != 3 || largest > 256<<10 {
		t.Fatalf("%d steps, the largest of %d bytes", n, largest)
	}
	for p := range l.Image.Partitions(id) {
		if s := l.Image.InProgress(p.PartitionKey()); !slices.Equal(p.Replicas, []string{"n2"}) ||
			s != nil && (s.EndRequested.Reason != meta.EndDrain || !slices.Contains(s.Replicas, "n1")) {
			t.Fatalf("%+v, %+v", p, s)
		}
	}
	l.Do(t, meta.CommitSegment(l.Commit(t, meta.PartitionKey{Table: id}, 10)))
	if got := l.Image.InProgress(meta.PartitionKey{Table: id}).Replicas; !slices.Equal(got, []string{"n2"}) {
		t.Fatal(got)
	}
	// n2 leaves too. While nobody is ready nothing moves: it consumes on.
	l.Do(t, meta.SetNodeState("n2", meta.AnyIncarnation, meta.NodeDraining))
	if n, _ := steps(t, l, meta.DrainNext("n2", nil)); n != 1 || len(l.Image.Partition(id, 1).Replicas) != 0 {
		t.Fatalf("%d steps: only the partition that has ended is let go", n)
	}
	if n, _ := steps(t, l, meta.DrainNext("n2", []string{"n3"})); n != 3 {
		t.Fatalf("%d steps", n)
	}
	for p := range l.Image.Partitions(id) {
		if p.Partition != 1 && !slices.Equal(p.Replicas, []string{"n3"}) {
			t.Fatalf("%+v", p)
		}
	}
}

func TestADrainSpreadsOverZones(t *testing.T) {
	l := metatest.NewLog(t)
	for id, zone := range map[string]string{"n1": "a", "n2": "b"} {
		l.AddNode(t, id, zone)
	}
	id := l.AddTable(t, metatest.Config("t"), 20)
	l.AddNode(t, "n3", "b")
	l.AddNode(t, "n4", "c")
	l.Do(t, meta.SetNodeState("n1", meta.AnyIncarnation, meta.NodeDraining))
	steps(t, l, meta.DrainNext("n1", []string{"n2", "n3", "n4"}))
	for p := range l.Image.Partitions(id) {
		if !slices.Equal(p.Replicas, []string{"n2", "n4"}) {
			t.Fatalf("partition %d is on %v", p.Partition, p.Replicas)
		}
	}
}

func TestUndrainingMakesANodeUpIfItIsAlive(t *testing.T) {
	l, _ := bulkTable(t)
	for alive, want := range map[bool]meta.NodeState{true: meta.NodeUp, false: meta.NodeDown} {
		l.Do(t, meta.SetNodeState("n1", meta.AnyIncarnation, meta.NodeDraining))
		l.Do(t, meta.UndrainNode("n1", alive))
		l.Do(t, meta.UndrainNode("n1", !alive)) // it is not draining any more
		if got := l.Image.Node("n1").State; got != want {
			t.Errorf("alive %v: %s", alive, got)
		}
	}
	wantRefusal(t, "unknown", l.Try(t, meta.UndrainNode("n9", true)), meta.CodeUnknownNode)
}

func TestADeletedTableLeavesTombstonesAndItsName(t *testing.T) {
	l, id := bulkTable(t, withStore)
	other := l.AddTable(t, metatest.Config("other"), 3)
	for p := range l.Image.Partitions(id) {
		l.Do(t, meta.CommitSegment(l.Commit(t, p.PartitionKey(), 10)))
	}
	old := l.Image.Segment(meta.PartitionKey{Table: id, Partition: 9}.Segment(0))
	wall := l.Now + 10*365*24*3600*1000
	l.Do(t, meta.ExpireSegments(old.SegmentKey().PartitionKey(), 0, wall, metatest.ObjectKey))
	cfg := l.Image.CurrentConfig(id).Clone()
	cfg.Segment.MaxRows++
	l.Do(t, meta.UpdateTableConfig(id, cfg))

	l.Do(t, meta.DeleteTable(id))
	if err := l.Try(t, meta.CreateTable(cfg, metatest.ID("again"))); err == nil || !strings.Contains(err.Error(), "being deleted") {
		t.Fatal(err)
	}
	wantRefusal(t, "pause", l.Try(t, meta.PauseTable(id, pausedByMe)), meta.CodeTableDeleting)
	wantRefusal(t, "resume", l.Try(t, meta.ResumeTable(id, "")), meta.CodeTableDeleting)
	// A segment that is committed meanwhile goes like the others, without successor.
	k := meta.PartitionKey{Table: id, Partition: 5}
	l.Do(t, meta.CommitSegment(l.Commit(t, k, 5)))
	if n, largest := steps(t, l, meta.DeleteNext(id, metatest.ObjectKey)); n != 3+3+1+3+1+1 || largest > 256<<10 {
		t.Fatalf("%d steps, the largest of %d bytes", n, largest)
	}
	for r := range l.Image.Records() {
		if k := r.Key(); k.Table == id && k.Kind != meta.KindTombstone || k.Kind == meta.KindTable && k.Name == "flights" {
			t.Fatalf("%s is left", k)
		}
	}
	tombs := 0
	for tomb := range l.Image.Tombstones() {
		tombs++
		if len(tomb.DeepStoreKeys) != 1 || tomb.Store != "file:///backups" {
			t.Fatalf("%+v", tomb)
		}
	}
	if tombs != 450+1 {
		t.Fatalf("%d tombstones", tombs)
	}
	if s := l.Image.InProgress(meta.PartitionKey{Table: other}); s == nil {
		t.Fatal("another table suffered")
	}
	l.Do(t, meta.CreateTable(cfg, metatest.ID("again")))
}
