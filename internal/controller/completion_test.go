package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
	"github.com/shoalstore/shoal/segment"
)

// say is a message of a replica about the partition's consuming segment, as it
// is in the log.
func (r *rig) say(kind commit.Kind, table uuid.UUID, partition int32, node string, offset int64) Message {
	r.Helper()
	s := r.log.Image.InProgress(meta.PartitionKey{Table: table, Partition: partition})
	if s == nil {
		r.Fatalf("partition %d does not consume", partition)
	}
	return r.sayOf(kind, s, node, offset)
}

func (r *rig) sayOf(kind commit.Kind, s *meta.Segment, node string, offset int64) Message {
	n := r.log.Image.Node(node)
	digest := metatest.DigestOf(fmt.Sprint(s.Name, offset))
	m := Message{Ticket: r.next(), Message: commit.Message{
		Kind: kind, Table: s.Table, Partition: s.Partition, Seq: s.Seq, Segment: s.Name,
		Instance: node, StreamEpoch: s.StreamEpoch,
		Offset: offset, Reason: commit.TimeLimit, Rows: offset - s.Start,
		Digest: digest, SHA256: segment.SHA256(digest), SizeBytes: 1000,
	}}
	if n != nil {
		m.Message.Incarnation, m.Message.StoreID = n.Incarnation, n.StoreID
	}
	return m
}

func TestSegmentIsCommittedAndItsLifeIsInTheRecord(t *testing.T) {
	r := newRig(t)
	table := r.table("t", 1, func(c *meta.Config) { c.Replication = 3 })
	first := r.log.Image.InProgress(meta.PartitionKey{Table: table})
	r.want("1 HOLD", r.say(commit.SegmentConsumed, table, 0, "n1", 20))
	began := r.log.Now
	r.log.Now += 10_000
	r.want("2 HOLD", r.say(commit.SegmentConsumed, table, 0, "n2", 40))
	r.want("3 CATCH_UP", r.say(commit.SegmentConsumed, table, 0, "n3", 30))
	decided := r.log.Now
	r.want("4 COMMIT", r.say(commit.SegmentConsumed, table, 0, "n2", 40))
	r.log.Now += 10_000
	r.want("5 COMMIT_CONTINUE", r.say(commit.SegmentCommitStart, table, 0, "n2", 40))
	started := r.log.Now
	r.want("write commit of "+first.Name, r.say(commit.SegmentCommitEnd, table, 0, "n2", 40))
	r.want("7 HOLD", r.say(commit.SegmentConsumed, table, 0, "n3", 40))
	if got := r.well(); got != "6 COMMIT_SUCCESS" { // at once, without a word of the log's news
		t.Fatal(got)
	}
	s := r.log.Image.Segment(first.SegmentKey())
	if s.Status != meta.SegmentDone || s.Committer != "n2" || s.End != 40 ||
		s.Times.FirstConsumed != began || s.Times.WinnerDecided != decided || s.Times.CommitStarted != started {
		t.Fatalf("%+v", s)
	}
	r.want("8 KEEP", r.sayOf(commit.SegmentConsumed, s, "n3", 40))
	r.want("9 DISCARD", r.sayOf(commit.SegmentConsumed, s, "n1", 41))
	r.step(r.committed())
	if len(r.m.rounds) != 0 {
		t.Fatal("the round is remembered")
	}
	if next := r.log.Image.InProgress(meta.PartitionKey{Table: table}); next == nil || next.Start != 40 {
		t.Fatalf("%+v", next)
	}
}

// The next message after COMMIT_SUCCESS may be about the successor: the machine
// knows it by then, whether or not the log's news have come.
func TestSuccessorIsKnownWithItsCommit(t *testing.T) {
	r := newRig(t)
	table := r.table("t", 1)
	first := r.log.Image.InProgress(meta.PartitionKey{Table: table})
	a, b := first.Replicas[0], first.Replicas[1]
	for _, m := range []Message{
		r.say(commit.SegmentConsumed, table, 0, a, 20), r.say(commit.SegmentConsumed, table, 0, b, 20),
		r.say(commit.SegmentCommitStart, table, 0, b, 20), r.say(commit.SegmentCommitEnd, table, 0, b, 20),
	} {
		r.step(m)
	}
	r.well()
	r.want("5 HOLD", r.say(commit.SegmentConsumed, table, 0, a, 30))
}

func TestStrangersDoNotTouchARound(t *testing.T) {
	r := newRig(t)
	table := r.table("t", 1)
	s := r.log.Image.InProgress(meta.PartitionKey{Table: table})
	for _, change := range []func(*commit.Message){
		func(m *commit.Message) { m.Incarnation++ },
		func(m *commit.Message) { m.Instance = "nobody" },
		func(m *commit.Message) { m.StreamEpoch = "another" },
		func(m *commit.Message) { m.Seq++ },
		func(m *commit.Message) { m.Segment += "x" },
	} {
		m := r.sayOf(commit.SegmentConsumed, s, s.Replicas[0], 20)
		change(&m.Message)
		r.want(fmt.Sprint(r.ticket, " FAILED"), m)
	}
	if len(r.m.rounds) != 0 {
		t.Fatal("a round has begun")
	}
	r.want("", Depose{Leader: "http://other"})
	m := r.sayOf(commit.SegmentConsumed, s, s.Replicas[0], 20)
	r.want(fmt.Sprint(r.ticket, " NOT_LEADER"), m)
}

func TestLostSegmentIsNothingToAgreeOn(t *testing.T) {
	r := newRig(t)
	s := r.done(r.table("t", 1), 0)
	r.do(func(im *meta.Image, now int64) (meta.Change, error) {
		lost := im.Segment(s.SegmentKey()).Clone()
		lost.Status = meta.SegmentLost
		return meta.Change{Upserts: []meta.Record{lost}}, nil
	})
	r.want("1 FAILED", r.sayOf(commit.SegmentConsumed, s, s.Replicas[0], s.End))
}

func TestStoppedReplicasAreNotedAndStartedAfresh(t *testing.T) {
	r := newRig(t)
	table := r.table("t", 1)
	k := meta.PartitionKey{Table: table}
	s := r.log.Image.InProgress(k)
	for _, node := range s.Replicas {
		m := r.sayOf(commit.SegmentStoppedConsuming, s, node, 5)
		m.Message.Error = "the disk of " + node
		r.step(m)
	}
	r.settle()
	if p, s := r.log.Image.Partition(table, 0), r.log.Image.InProgress(k); p.State != meta.PartitionError || s.LastError == nil {
		t.Fatalf("%s, %v", p.State, s.LastError)
	}
	for r.now < 31*time.Second {
		r.now += 500 * time.Millisecond
		r.ready("n1", "n2", "n3")
		r.step(Tick{})
		r.settle()
	}
	if p, s := r.log.Image.Partition(table, 0), r.log.Image.InProgress(k); p.State != meta.PartitionConsuming || s.Attempt != 1 {
		t.Fatalf("%s, attempt %d", p.State, s.Attempt)
	}
}

func TestEmptySegmentEndsForAForceCommit(t *testing.T) {
	r := newRig(t)
	table := r.table("t", 1)
	id := r.job(table)
	r.settle()
	s := r.log.Image.InProgress(meta.PartitionKey{Table: table})
	for i, node := range s.Replicas {
		m := r.sayOf(commit.SegmentConsumed, s, node, s.Start)
		m.Message.Reason = commit.ForceCommit
		if got := r.step(m); i == 0 && !strings.HasSuffix(got, "HOLD") {
			t.Fatal(got)
		}
	}
	r.settle()
	r.alive(time.Second, "write force commit is done")
	r.settle()
	after := r.log.Image.InProgress(meta.PartitionKey{Table: table})
	if after.Seq != s.Seq || after.EndRequested != nil || r.log.Image.Job(id).State != meta.JobDone {
		t.Fatalf("%+v, job %s", after, r.log.Image.Job(id).State)
	}
}

func TestDeposedInMidCommitAnswersAndForgets(t *testing.T) {
	r := newRig(t)
	table := r.table("t", 1)
	s := r.log.Image.InProgress(meta.PartitionKey{Table: table})
	a, b := s.Replicas[0], s.Replicas[1]
	commitBy := func() {
		for _, m := range []Message{
			r.sayOf(commit.SegmentConsumed, s, a, 20), r.sayOf(commit.SegmentConsumed, s, b, 20),
			r.sayOf(commit.SegmentCommitStart, s, b, 20), r.sayOf(commit.SegmentCommitEnd, s, b, 20),
		} {
			r.step(m)
		}
	}
	commitBy()
	r.want("4 NOT_LEADER", Depose{Leader: "http://other"})
	old := r.land()
	r.log.TakeOver(t)
	r.lead()
	r.flying = nil
	commitBy()
	// The old write's result does not end the new one's wait, though it is of the
	// same segment.
	r.want("", Wrote{ID: old.(Write).ID, Outcome: commit.Written, Image: r.log.Image})
	if got := r.well(); got != "8 COMMIT_SUCCESS" {
		t.Fatal(got)
	}
}
