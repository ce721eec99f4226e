package controller

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
)

// job makes a force commit of a table beside the machine, as the API does.
func (r *rig) job(table uuid.UUID) uuid.UUID {
	id := uuid.New()
	r.do(meta.CreateJob(id, JobForceCommit, map[string]string{argTable: table.String()}))
	return id
}

func (r *rig) asked(table uuid.UUID) (asked []int32) {
	for p := range r.log.Image.Partitions(table) {
		if s := r.log.Image.InProgress(p.PartitionKey()); s != nil && s.EndRequested != nil {
			asked = append(asked, p.Partition)
		}
	}
	return asked
}

func TestForceCommitAsksEachSegmentOnceAndWaitsForAll(t *testing.T) {
	r := newRig(t)
	table := r.table("t", 450)
	batches := len(r.log.Batches)
	id := r.job(table)
	r.settle()
	if n := len(r.asked(table)); n != 450 {
		t.Fatalf("%d are asked", n)
	}
	if n := len(r.log.Batches) - batches; n != 1+450/endsPerBatch {
		t.Fatalf("%d batches", n)
	}
	j := r.log.Image.Job(id)
	if j.State != meta.JobRunning || j.Counts[askedSoFar] != 450 {
		t.Fatalf("%+v", j)
	}
	// Some end with rows, and their successors are not asked; some have none, and
	// go on without the request.
	for p := range int32(450) {
		if p%2 == 0 {
			r.log.Do(t, meta.CommitSegment(r.log.Commit(t, meta.PartitionKey{Table: table, Partition: p}, 10)))
		} else {
			r.log.Do(t, meta.ClearEndRequested(meta.SegmentKey{Table: table, Partition: p}, false))
		}
		if p == 448 {
			r.step(r.committed())
			r.alive(time.Second, "")
			r.settle()
			if got := r.log.Image.Job(id).State; got != meta.JobRunning {
				t.Fatalf("%s while one has not ended", got)
			}
		}
	}
	r.step(r.committed())
	r.alive(time.Second, "write force commit is done")
	r.settle()
	if got := r.log.Image.Job(id); got.State != meta.JobDone || len(r.asked(table)) != 0 {
		t.Fatalf("%+v, asked %v", got, r.asked(table))
	}
	if len(r.m.jobs) != 0 {
		t.Fatal("the job is kept")
	}
}

// Without a note of how far it got, segments that answered between two batches
// would be asked again, by the next batch or by the next leader.
func TestForceCommitGoesOnWhereItWas(t *testing.T) {
	r := newRig(t)
	table := r.table("t", 450)
	r.job(table)
	r.well() // the first batch
	for p := range int32(endsPerBatch) {
		r.log.Do(t, meta.ClearEndRequested(meta.SegmentKey{Table: table, Partition: p}, false))
	}
	old := r.land() // the second batch is lost with its leader
	r.step(Depose{})
	r.want("", failure(old))
	r.log.TakeOver(t)
	r.lead()
	r.settle()
	if got := r.asked(table); len(got) != 450-endsPerBatch || slices.Min(got) != endsPerBatch {
		t.Fatalf("%d are asked, from %d on", len(got), slices.Min(got))
	}
}

func TestForceCommitOfATableWithoutPartitionsIsDone(t *testing.T) {
	r := newRig(t)
	table := r.create("t", 2)
	id := r.job(table)
	r.settle()
	if got := r.log.Image.Job(id).State; got != meta.JobDone {
		t.Fatal(got)
	}
}

func TestForceCommitDoesNotAskPartitionsThatCameLater(t *testing.T) {
	r := newRig(t)
	table := r.table("t", 1)
	r.log.Now += 10_000
	id := r.job(table)
	r.do(meta.AddPartitions(table, []meta.PartitionInit{{Partition: 1, StreamEpoch: "0"}}))
	r.settle()
	if got := r.asked(table); !slices.Equal(got, []int32{0}) {
		t.Fatal(got)
	}
	r.do(meta.CommitSegment(r.log.Commit(t, meta.PartitionKey{Table: table}, 10)))
	r.alive(time.Second, "write force commit is done")
	r.settle()
	if got := r.log.Image.Job(id).State; got != meta.JobDone {
		t.Fatal(got)
	}
}

func TestSecondForceCommitWaitsForWhatTheFirstAsked(t *testing.T) {
	r := newRig(t)
	table := r.table("t", 1)
	r.job(table)
	r.settle()
	second := r.job(table)
	r.settle()
	if got := r.log.Image.Job(second).State; got != meta.JobRunning {
		t.Fatalf("%s before the segment has ended", got)
	}
	r.do(meta.CommitSegment(r.log.Commit(t, meta.PartitionKey{Table: table}, 10)))
	r.step(Tick{})
	r.settle()
	for j := range r.log.Image.Jobs() {
		if j.State != meta.JobDone {
			t.Fatalf("%+v", j)
		}
	}
}

func TestJobsThatCannotBeDoneFail(t *testing.T) {
	r := newRig(t)
	for _, j := range []struct {
		kind string
		args map[string]string
	}{
		{JobForceCommit, map[string]string{argTable: uuid.NewString()}},
		{JobForceCommit, map[string]string{argTable: "nonsense"}},
		{JobForceCommit, nil},
		{"of tomorrow", nil},
	} {
		id := uuid.New()
		r.do(meta.CreateJob(id, j.kind, j.args))
		r.settle()
		if got := r.log.Image.Job(id).State; got != meta.JobFailed {
			t.Fatalf("%+v: %s", j, got)
		}
	}
}

func TestJobStepThatFailsIsTakenAgainAtTheNextTick(t *testing.T) {
	r := newRig(t)
	table := r.table("t", 1)
	r.job(table)
	r.alive(time.Second, "") // it is under way
	if got := r.fail(); got != "" {
		t.Fatal(got)
	}
	r.alive(time.Second, "write end of 1 segments of t")
}
