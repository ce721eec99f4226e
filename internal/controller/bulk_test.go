package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
	"github.com/shoalstore/shoal/zkmeta"
)

// crash has another controller lead, which knows nothing but the image. What was
// under way is lost.
func (r *rig) crash() {
	r.Helper()
	r.flying = nil
	r.log.TakeOver(r)
	r.m = NewMachine()
	r.m.SetValidation(noValidation)
	r.lead()
	r.ready("n1", "n2", "n3")
	r.ready("n1", "n2", "n3") // they have applied what they were told before
}

// settleCrashing settles, with a crash at one in so many writes: by turns before it
// is made, or after it is and before anybody hears of it.
func (r *rig) settleCrashing(oneIn int) {
	r.Helper()
	for writes, crashes, n := 0, 0, 0; len(r.flying) > 0 || r.shown < len(r.log.Batches); n++ {
		if n == 10_000 {
			r.Fatalf("it does not come to rest: %s", describe(r.flying))
		}
		if len(r.flying) == 0 {
			r.step(r.committed())
			continue
		}
		a := r.land()
		if _, isWrite := a.(Write); isWrite {
			writes++
			if writes%oneIn == 0 {
				crashes++
				if crashes%2 == 0 {
					r.result(a)
				}
				r.crash()
				continue
			}
		}
		r.step(r.result(a))
	}
}

// states counts the partitions by what they are doing.
func (r *rig) states(id uuid.UUID) string {
	n := map[meta.PartitionState]int{}
	for p := range r.log.Image.Partitions(id) {
		n[p.State]++
	}
	return fmt.Sprint(n)
}

// end ends every segment that is asked to, with rows, or without at every tenth
// partition.
func (r *rig) end(id uuid.UUID) {
	r.Helper()
	for p := range r.log.Image.Partitions(id) {
		s := r.log.Image.InProgress(p.PartitionKey())
		switch {
		case s == nil || s.EndRequested == nil:
		case p.Partition%10 == 0:
			r.log.Do(r, meta.ClearEndRequested(s.SegmentKey(), false))
		default:
			r.log.Do(r, meta.CommitSegment(r.log.Commit(r, p.PartitionKey(), 10)))
		}
	}
	r.step(r.committed())
}

// life makes a table of so many partitions, pauses and resumes it, drains n1, and
// deletes it; settle is called where there is something to do in steps. It returns
// how many batches each took.
func life(r *rig, partitions int, settle func()) (took map[string]int) {
	r.Helper()
	took = map[string]int{}
	step := func(name string) {
		r.Helper()
		before := len(r.log.Batches)
		settle()
		took[name] = len(r.log.Batches) - before
	}
	check := func(what, got, want string) {
		r.Helper()
		if got != want {
			r.Fatalf("%s: %s, want %s", what, got, want)
		}
	}
	r.ready("n1", "n2", "n3")
	r.streams["t"] = partitions
	id := r.create("t", 2)
	r.step(r.committed())
	step("create")
	r.wantTable(id, meta.TableActive, partitions, "")

	r.do(meta.PauseTable(id, meta.Pause{Reason: meta.PauseAdministrative, By: "me"}))
	step("pause")
	if n := len(r.asked(id)); n != partitions {
		r.Fatalf("%d segments are asked to end", n)
	}
	r.end(id)
	check("paused", r.states(id), fmt.Sprintf("map[PAUSED:%d]", partitions))
	settle()

	r.do(meta.ResumeTable(id, meta.FromLastConsumed))
	step("resume")
	check("resumed", r.states(id), fmt.Sprintf("map[CONSUMING:%d]", partitions))

	on := 0
	for range r.log.Image.SegmentsConsuming("n1") {
		on++
	}
	r.do(meta.SetNodeState("n1", meta.AnyIncarnation, meta.NodeDraining))
	step("drain")
	if n := len(r.asked(id)); n != on || on == 0 {
		r.Fatalf("%d segments are asked to end, %d were on n1", n, on)
	}
	r.end(id)
	settle()
	for p := range r.log.Image.Partitions(id) {
		if s := r.log.Image.InProgress(p.PartitionKey()); slices.Contains(p.Replicas, "n1") || len(p.Replicas) != 2 || slices.Contains(s.Replicas, "n1") {
			r.Fatalf("%+v, %+v", p, s)
		}
	}

	r.do(meta.DeleteTable(id))
	step("delete")
	if t := r.log.Image.Table(id); t != nil || r.states(id) != "map[]" {
		r.Fatalf("%+v, %s", t, r.states(id))
	}
	return took
}

func TestATableOfTenThousandPartitionsChangesInSmallBatches(t *testing.T) {
	r := newRig(t)
	took := life(r, 10_000, r.settle)
	largest := 0
	for _, b := range r.log.Batches {
		data, err := meta.EncodeBatch(b)
		if err != nil {
			t.Fatal(err)
		}
		largest = max(largest, len(data))
	}
	t.Logf("batches %v, the largest of %d bytes", took, largest)
	if largest > 256<<10 {
		t.Fatalf("a batch of %d bytes", largest)
	}
	for name, most := range map[string]int{"create": 210, "pause": 60, "resume": 60, "drain": 60, "delete": 200} {
		if took[name] < 2 || took[name] > most {
			t.Errorf("%s took %d batches", name, took[name])
		}
	}
	if len(r.m.bulk.work) != 1 || r.m.bulk.writing != 0 { // n1 is DRAINING still
		t.Errorf("%+v", r.m.bulk)
	}
}

// With names and errors as long as they may be, each batch still fits into one request
// to ZooKeeper.
func TestTheLongestNamesFit(t *testing.T) {
	const partitions, replicas = 250, meta.MaxReplication
	r := newRig(t)
	var nodes []string
	for i := range replicas + 1 {
		nodes = append(nodes, fmt.Sprintf("%x%s", i, strings.Repeat("n", 127)))
		r.log.AddNode(t, nodes[i], strings.Repeat("z", 128))
	}
	for _, n := range []string{"n1", "n2", "n3"} {
		r.log.Do(t, meta.SetNodeState(n, meta.AnyIncarnation, meta.NodeDown))
	}
	r.lead()
	r.ready(nodes...)
	name := strings.Repeat("t", 128)
	r.streams[name] = partitions
	id := r.create(name, replicas)
	r.step(r.committed())
	r.settle()
	r.wantTable(id, meta.TableActive, partitions, "")
	for p := range int32(partitions) {
		k := meta.PartitionKey{Table: id, Partition: p}.Segment(0)
		r.log.Do(t, meta.RecordError(k, nodes[0], strings.Repeat(`"`, 2000), false))
	}
	r.step(r.committed())
	r.job(id)
	r.settle()
	if n := len(r.asked(id)); n != partitions {
		t.Fatalf("%d segments are asked to end", n)
	}
	for p := range int32(partitions) {
		r.log.Do(t, meta.ClearEndRequested(meta.PartitionKey{Table: id, Partition: p}.Segment(0), false))
	}
	r.do(meta.PauseTable(id, meta.Pause{Reason: meta.PauseAdministrative}))
	r.settle()
	if n := len(r.asked(id)); n != partitions {
		t.Fatalf("%d segments are asked to end", n)
	}
	r.do(meta.DeleteTable(id))
	r.settle()
	if r.log.Image.Table(id) != nil {
		t.Fatal("the table is there")
	}
	largest := 0
	for _, b := range r.log.Batches {
		size, err := zkmeta.BatchSize(b)
		if err != nil {
			t.Fatal(err)
		}
		largest = max(largest, size)
	}
	if t.Logf("the largest batch takes %d of %d bytes", largest, zkmeta.BatchBytesMax); largest > zkmeta.BatchBytesMax {
		t.Error("that is too large")
	}
}

func TestACrashBetweenAnyTwoBatchesOfABulkChangeResumes(t *testing.T) {
	for oneIn := 1; oneIn <= 3; oneIn++ {
		r := newRig(t)
		life(r, 500, func() { r.settleCrashing(oneIn) })
	}
}

// A table whose steps fail does not hold up the others, and is tried again later and
// later.
func TestTablesTakeTurnsAndOneThatFailsWaits(t *testing.T) {
	r := newRig(t)
	r.ready("n1", "n2", "n3")
	for i := range 12 {
		r.table(fmt.Sprintf("t%02d", i), 300)
	}
	for table := range r.log.Image.Tables() {
		r.log.Do(t, meta.PauseTable(table.ID, meta.Pause{Reason: meta.PauseAdministrative}))
	}
	r.step(r.committed())
	if len(r.flying) != bulkMax {
		t.Fatalf("%d steps are under way", len(r.flying))
	}
	failed := r.land().(Write)
	if !strings.Contains(failed.What, "t") {
		t.Fatal(failed.What)
	}
	if got := r.step(failure(failed)); strings.Contains(got, failed.What) {
		t.Fatalf("tried again at once: %s", got)
	}
	var order []string
	for len(r.flying) > 0 {
		w := r.land().(Write)
		order = append(order, strings.Fields(w.What)[2])
		r.now += time.Millisecond
		r.step(r.result(w))
	}
	// Eleven tables: the first step of each before the second of any that came later.
	first := slices.Compact(slices.Sorted(slices.Values(order[:11])))
	if len(first) != 11 || len(order) != 22 {
		t.Fatalf("%v", order)
	}
	r.now += bulkRetryMin
	r.step(Tick{})
	r.settle()
	for table := range r.log.Image.Tables() {
		if n := len(r.asked(table.ID)); n != 300 {
			t.Fatalf("%d segments of %s are asked", n, table.Name)
		}
	}
}

func TestAPauseThatIsLiftedInMidStepGoesNoFurther(t *testing.T) {
	r := newRig(t)
	r.ready("n1", "n2", "n3")
	id := r.table("t", 500)
	r.do(meta.PauseTable(id, meta.Pause{Reason: meta.PauseAdministrative}))
	r.well() // 200
	r.do(meta.ResumeTable(id, meta.FromLastConsumed))
	r.settle()
	if n := len(r.asked(id)); n != 200 {
		t.Fatalf("%d are asked", n)
	}
	r.end(id) // they go on, those without rows in the same segment
	r.settle()
	if got := r.states(id); got != "map[CONSUMING:500]" || len(r.m.bulk.work) != 0 {
		t.Fatalf("%s, %v", got, r.m.bulk.work)
	}
}

func TestAResumeFromTheStreamsEndAsksTheStreamAndWaitsForIt(t *testing.T) {
	r := newRig(t)
	r.ready("n1", "n2", "n3")
	id := r.table("t", 450)
	r.do(meta.PauseTable(id, meta.Pause{Reason: meta.PauseAdministrative}))
	r.settle()
	r.end(id)
	r.ends = map[int32]int64{0: 70, 1: 5, 2: 80}
	delete(r.streams, "t")
	r.do(meta.ResumeTable(id, meta.FromLargest))
	r.settle()
	if table := r.log.Image.Table(id); !strings.Contains(table.LastError, "no stream t") || r.states(id) != "map[PAUSED:450]" {
		t.Fatalf("%+v, %s", table, r.states(id))
	}
	r.streams["t"] = 450
	r.crash()
	r.settle()
	if got := r.states(id); got != "map[CONSUMING:450]" {
		t.Fatal(got)
	}
	// 0 ended without rows, so it has all of the hole; 1 stands past the end.
	for p, want := range map[int32]int64{0: 70, 1: 10, 2: 80, 3: 10} {
		part := r.log.Image.Partition(id, p)
		if s := r.log.Image.InProgress(part.PartitionKey()); s.Start != want || (len(part.Holes) == 0) != (want == 10) {
			t.Errorf("partition %d: %+v, %+v", p, part, s)
		}
	}
	r.alive(listEvery, "list t")
	r.settle()
	if e := r.log.Image.Table(id).LastError; e != "" {
		t.Error(e)
	}
}

func TestNewPartitionsOfAPausedTableWaitForTheResume(t *testing.T) {
	r := newRig(t)
	r.ready("n1", "n2", "n3")
	id := r.table("t", 1)
	r.do(meta.PauseTable(id, meta.Pause{Reason: meta.PauseAdministrative}))
	r.streams["t"] = 3
	r.settle()
	r.end(id)
	for range 3 {
		r.alive(listEvery, "")
	}
	r.do(meta.ResumeTable(id, meta.FromLastConsumed))
	r.settle()
	if got := r.states(id); got != "map[CONSUMING:3]" {
		t.Fatal(got)
	}
}

func TestADrainWaitsForANodeToMoveTo(t *testing.T) {
	r := newRig(t)
	r.ready("n1")
	id := r.table("t", 2)
	for p := range r.log.Image.Partitions(id) {
		r.log.Do(t, meta.SetReplicas(p.PartitionKey(), []string{"n1"}, nil))
		s := r.log.Image.InProgress(p.PartitionKey()).Clone()
		s.Replicas = []string{"n1"}
		r.log.Do(t, func(*meta.Image, int64) (meta.Change, error) { return meta.Change{Upserts: []meta.Record{s}}, nil })
	}
	r.step(r.committed())
	for _, n := range []string{"n2", "n3"} {
		r.do(meta.SetNodeState(n, meta.AnyIncarnation, meta.NodeDown))
	}
	if got := r.do(meta.SetNodeState("n1", meta.AnyIncarnation, meta.NodeDraining)); got != "" {
		t.Fatal(got)
	}
	r.step(r.beat("n2", 0)) // it is UP again
	r.settle()
	r.step(r.beat("n2", 0)) // and has caught up
	r.settle()
	if got := r.asked(id); len(got) != 2 {
		t.Fatalf("%v are asked", got)
	}
	for p := range r.log.Image.Partitions(id) {
		if slices.Contains(p.Replicas, "n1") {
			t.Fatalf("%+v", p)
		}
	}
}

// A partition that was placed on the node just before it is drained, by a change that
// is written after that, moves too.
func TestAPartitionThatIsPlacedOnADrainingNodeMovesAway(t *testing.T) {
	r := newRig(t)
	r.ready("n1", "n2", "n3")
	id := r.table("t", 1)
	r.do(meta.SetNodeState("n1", meta.AnyIncarnation, meta.NodeDraining))
	r.settle()
	r.do(meta.AddPartitions(id, []meta.PartitionInit{{Partition: 1, StreamEpoch: "0", Replicas: []string{"n1", "n2"}}}))
	r.settle()
	if p := r.log.Image.Partition(id, 1); slices.Contains(p.Replicas, "n1") || !slices.Contains(r.asked(id), 1) {
		t.Fatalf("%+v, asked %v", p, r.asked(id))
	}
}

func TestTombstonesOfADeletedTableLiveOutTheirGraceAndTakeTheirObjects(t *testing.T) {
	r := newRig(t)
	r.ready("n1", "n2", "n3")
	id := r.table("t", 1, withDeepStore)
	s := r.done(id, 0)
	r.deep[uri(s)] = true
	r.do(meta.DeleteTable(id))
	r.settle()
	if r.log.Image.Table(id) != nil || !r.deep[uri(s)] {
		t.Fatal("the table is there, or its object has gone already")
	}
	r.crash()
	r.alive(DefaultRetention.Grace-time.Second, "")
	r.alive(time.Second, "write 1 tombstones expire")
	r.settle()
	if r.deep[uri(s)] {
		t.Fatal("the object is there")
	}
	r.deep[uri(s)] = true // a late upload
	r.alive(DefaultRetention.Keep, "delete t__0__0")
	r.settle()
	if n := len(slices.Collect(r.log.Image.Tombstones())); n != 0 || r.deep[uri(s)] {
		t.Fatalf("%d tombstones; the object is there: %v", n, r.deep[uri(s)])
	}
}

// The clock goes back, and a table is made anew with a segment of the same name in it:
// the object is not the old one's to take if it is the new one's too, which is known
// once that is committed.
func TestAnObjectThatAnotherSegmentClaimsStays(t *testing.T) {
	for _, same := range []bool{true, false} {
		r := newRig(t)
		r.ready("n1", "n2", "n3")
		id := r.table("t", 1, withDeepStore)
		s := r.done(id, 0)
		r.deep[uri(s)] = true
		r.do(meta.DeleteTable(id))
		r.settle()
		again := uuid.New()
		r.log.Do(t, meta.CreateTable(walkConfig("t"), again))
		r.log.Do(t, meta.AddPartitions(again, []meta.PartitionInit{{Partition: 0, StreamEpoch: "0"}}))
		r.log.Do(t, func(im *meta.Image, _ int64) (meta.Change, error) {
			current := im.Segment(meta.SegmentKey{Table: again})
			twin := current.Clone()
			twin.Name = s.Name
			return meta.Change{Upserts: []meta.Record{twin}, Removals: []meta.Key{current.Key()}}, nil
		})
		r.step(r.committed())
		r.settle()
		r.alive(DefaultRetention.Grace, "write 1 tombstones expire")
		r.settle()
		if !r.deep[uri(s)] {
			t.Fatal("it has gone before anybody knows whose it is")
		}
		c := r.log.Commit(t, meta.PartitionKey{Table: again}, 10)
		if !same {
			c.Info.Digest = metatest.DigestOf("other rows")
		}
		r.do(meta.CommitSegment(c))
		r.settle()
		r.quiet(deleteRetryMax)
		r.settle()
		r.quiet(DefaultRetention.Keep)
		r.settle()
		if r.deep[uri(s)] != same {
			t.Errorf("the same digest: %v; the object is there: %v", same, r.deep[uri(s)])
		}
		if n := len(slices.Collect(r.log.Image.Tombstones())); n != 0 {
			t.Errorf("%d tombstones are left", n)
		}
	}
}
