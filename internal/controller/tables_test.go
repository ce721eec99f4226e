package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
)

// create makes a table beside the machine, as POST /tables does.
func (r *rig) create(name string, replication int) uuid.UUID {
	r.Helper()
	cfg := metatest.Config(name)
	cfg.Replication = replication
	id := metatest.ID("table " + name)
	r.log.Do(r, meta.CreateTable(cfg, id))
	return id
}

func (r *rig) wantTable(id uuid.UUID, state meta.TableState, partitions int, lastError string) {
	r.Helper()
	t, n := r.log.Image.Table(id), 0
	for range r.log.Image.Partitions(id) {
		n++
	}
	if t.State != state || n != partitions || (t.LastError == "") != (lastError == "") || !strings.Contains(t.LastError, lastError) {
		r.Fatalf("table is %s with %d partitions and error %q; want %s, %d, %q", t.State, n, t.LastError, state, partitions, lastError)
	}
}

func TestTableIsMadeInSmallStepsFromOneListing(t *testing.T) {
	r := newRig(t)
	r.ready("n1", "n2", "n3")
	r.streams["t"] = 120
	id := r.create("t", 3)
	r.want("list t", r.committed())
	for _, want := range []string{
		"write 50 partitions of t", "write 50 partitions of t", "write 20 partitions of t", "write activate t", "",
	} {
		if got := r.well(); got != want {
			t.Fatalf("got %s, want %s", quoted(got), quoted(want))
		}
	}
	r.wantTable(id, meta.TableActive, 120, "")
	for p := range r.log.Image.Partitions(id) {
		if len(p.Replicas) != 3 {
			t.Fatalf("partition %d is on %v", p.Partition, p.Replicas)
		}
	}
	r.streams["t"]++ // a new partition is seen within a minute
	r.alive(listEvery-1, "")
	r.alive(1, "list t")
	r.settle()
	r.wantTable(id, meta.TableActive, 121, "")
	if n := len(r.m.tables.work); n != 1 || r.m.tables.lists != 0 {
		t.Fatalf("%d tables, %d lists under way", n, r.m.tables.lists)
	}
}

func TestTableWhoseStreamIsNotThereSaysSoOnceAndTriesAgain(t *testing.T) {
	r := newRig(t)
	r.ready("n1", "n2", "n3")
	id := r.create("t", 2)
	r.want("list t", r.committed())
	r.well() // no stream; the error is written
	r.well()
	r.step(r.committed())
	r.wantTable(id, meta.TableCreating, 0, "no stream t")
	batches := len(r.log.Batches)
	for _, wait := range []time.Duration{1, 2, 4, 8, 10, 10} {
		r.alive(wait*time.Second-1, "")
		r.alive(1, "list t")
		r.well()
	}
	if len(r.log.Batches) != batches {
		t.Fatal("the same error is written again")
	}
	r.streams["t"] = 0
	r.alive(10*time.Second, "list t")
	r.settle()
	r.wantTable(id, meta.TableCreating, 0, "no partitions yet")
	r.streams["t"] = 1
	r.alive(10*time.Second, "list t")
	r.settle()
	r.wantTable(id, meta.TableActive, 1, "")
}

func TestActiveTableWhoseStreamIsAwayIsAskedEveryMinuteAtMost(t *testing.T) {
	r := newRig(t)
	id := r.table("t", 1)
	delete(r.streams, "t")
	for r.now < time.Hour {
		r.now += time.Second
		r.ready("n1", "n2", "n3")
		r.settle()
	}
	if r.lists < 55 || r.lists > 75 {
		t.Fatalf("asked %d times in an hour", r.lists)
	}
	r.wantTable(id, meta.TableActive, 1, "no stream t")
	r.streams["t"] = 1
	r.now += time.Minute
	r.step(Tick{})
	r.settle()
	r.wantTable(id, meta.TableActive, 1, "")
}

func TestTableWaitsForANodeAndTakesTheFirstAtOnce(t *testing.T) {
	r := newRig(t)
	r.streams["t"] = 2
	id := r.create("t", 2)
	r.want("list t", r.committed())
	r.settle()
	r.wantTable(id, meta.TableCreating, 0, "no node is ready")
	r.step(r.beat("n1", 1000))
	r.later(100*time.Millisecond, "")
	// n1 is ready and placed on only after a while, in case others come.
	if got := r.step(r.beat("n1", 0)); got != "2 beat; list t" {
		t.Fatal(got)
	}
	r.settle()
	r.wantTable(id, meta.TableCreating, 0, "2 of 3 nodes")
	r.step(r.beat("n2", 0))
	r.settle()
	r.wantTable(id, meta.TableActive, 2, "")
}

func TestTableIsPlacedWithoutNodesThatDoNotCatchUp(t *testing.T) {
	r := newRig(t)
	r.streams["t"] = 300
	id := r.create("t", 3)
	r.step(r.committed())
	for r.now < placeWait+2*createRetryMax {
		r.now += time.Second
		for _, n := range []string{"n1", "n2"} {
			r.step(r.beat(n, 0))
		}
		r.step(r.beat("n3", 1000))
		r.step(Tick{})
		r.settle()
		if r.now < placeWait && r.log.Image.Table(id).State == meta.TableActive {
			t.Fatalf("placed after %s", r.now)
		}
	}
	r.wantTable(id, meta.TableActive, 300, "")
	wantReplicas := func(n int) {
		t.Helper()
		for p := range r.log.Image.Partitions(id) {
			if s := r.log.Image.InProgress(p.PartitionKey()); len(p.Replicas) != n || len(s.Replicas) != n {
				t.Fatalf("partition %d is on %v, its segment on %v", p.Partition, p.Replicas, s.Replicas)
			}
		}
	}
	wantReplicas(2)
	// The third catches up late: it is given its part at once, in few batches.
	if got := r.step(r.beat("n3", 0)); !strings.HasPrefix(got, "write more replicas for 50 partitions of t; ") {
		t.Fatal(got)
	}
	batches := len(r.log.Batches)
	r.settle()
	wantReplicas(3)
	if n := len(r.log.Batches) - batches; n > 300/partitionsPerBatch {
		t.Fatalf("%d batches", n)
	}
	r.want("", r.committed())
	r.want(fmt.Sprint(r.ticket+1, " beat"), r.beat("n3", 0))
}

func TestStepThatFailsIsTakenAgain(t *testing.T) {
	r := newRig(t)
	r.ready("n1", "n2", "n3")
	r.streams["t"] = 2
	id := r.create("t", 2)
	r.step(r.committed())
	for _, wait := range []time.Duration{1, 2} {
		r.well()
		r.fail()
		r.alive(wait*time.Second-1, "")
		r.alive(1, "list t")
	}
	r.well()
	r.well() // the partitions are there: from here on, failures begin anew
	r.fail()
	r.alive(tableRetryMin-1, "")
	r.alive(1, "list t")
	r.settle()
	r.wantTable(id, meta.TableActive, 2, "")
}

func TestTableWhoseRecordGoesInMidStepIsForgotten(t *testing.T) {
	for name, steps := range map[string]int{"while its stream is listed": 0, "while its step is written": 1} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.ready("n1", "n2", "n3")
			id := r.create("t", 2)
			r.step(r.committed())
			for range steps {
				r.well() // there is no stream: that is noted
			}
			table := r.log.Image.Table(id)
			r.do(func(*meta.Image, int64) (meta.Change, error) {
				return meta.Change{Removals: []meta.Key{table.Key(), (&meta.TableConfig{Table: id, Version: 1}).Key()}}, nil
			})
			r.settle()
			if len(r.m.tables.work) != 0 || r.m.tables.due.Len() != 0 || r.m.tables.lists != 0 {
				t.Fatalf("%+v", r.m.tables)
			}
			r.alive(time.Minute, "")
		})
	}
}

func TestTableThatRestsIsPausedAndResumedAtOnce(t *testing.T) {
	r := newRig(t)
	id := r.table("t", 1)
	r.do(meta.PauseTable(id, meta.Pause{}))
	if len(r.m.tables.work)+r.m.tables.due.Len() != 0 {
		t.Fatal("a paused table is kept")
	}
	if got := r.do(meta.ResumeTable(id, meta.FromLastConsumed)); got != "list t" {
		t.Fatal(got)
	}
}

func TestTableThatIsPausedOrGoneInMidStepIsDropped(t *testing.T) {
	r := newRig(t)
	r.ready("n1", "n2", "n3")
	id := r.table("t", 1)
	r.alive(listEvery, "list t")
	r.streams["t"] = 2
	r.do(meta.PauseTable(id, meta.Pause{}))
	if got := r.well(); got != "" || len(r.m.tables.work) != 0 || r.m.tables.lists != 0 {
		t.Fatalf("%s; %d tables, %d lists", got, len(r.m.tables.work), r.m.tables.lists)
	}
	if got := r.do(meta.ResumeTable(id, meta.FromLastConsumed)); got != "list t" {
		t.Fatal(got)
	}
	r.ready("n1", "n2", "n3")
	r.well() // two partitions; the step is written
	r.do(meta.PauseTable(id, meta.Pause{}))
	r.settle() // refused: it is paused
	r.later(time.Second, "")
	r.wantTable(id, meta.TablePaused, 1, "")
	if len(r.m.tables.work) != 0 {
		t.Fatal("it is kept")
	}
}

func TestStreamsAskedAtOnceAreBounded(t *testing.T) {
	r := newRig(t)
	r.ready("n1", "n2", "n3")
	for i := range 100 {
		name := fmt.Sprintf("t%d", i)
		r.streams[name] = 1
		r.create(name, 2)
	}
	r.step(r.committed())
	if len(r.flying) != listsMax {
		t.Fatalf("%d streams are asked at once", len(r.flying))
	}
	// One that hangs holds up nobody else but one lane.
	hung := r.land()
	r.settle()
	for i := range 100 {
		if table := r.log.Image.TableByName(fmt.Sprintf("t%d", i)); table.ID != hung.(ListPartitions).Table && table.State != meta.TableActive {
			t.Fatalf("%s is %s", table.Name, table.State)
		}
	}
}

// What is committed before Lead is handed in was seen by nobody: the table would
// never come to be.
func TestTableMadeJustBeforeLeadIsTakenUp(t *testing.T) {
	r := newRig(t)
	r.step(Depose{})
	r.log.TakeOver(t)
	lead := Lead{URL: testURL, Image: r.log.Image}
	r.create("t", 2)
	r.want("", r.committed())
	r.want("list t", lead)
}
