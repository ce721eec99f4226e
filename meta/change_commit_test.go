package meta_test

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
	"github.com/shoalstore/shoal/segment"
)

// threeNodes is a cluster of n1, n2, n3 and a table of one partition that all
// three consume.
func threeNodes(t *testing.T) (*metatest.Log, meta.PartitionKey) {
	t.Helper()
	l := metatest.NewLog(t)
	for _, id := range []string{"n1", "n2", "n3"} {
		l.AddNode(t, id, "zone of "+id)
	}
	cfg := metatest.Config("flights")
	cfg.Replication = 3
	return l, meta.PartitionKey{Table: l.AddTable(t, cfg, 1)}
}

func wantRefusal(t *testing.T, name string, err error, code string) {
	t.Helper()
	var refusal *meta.Refusal
	if !errors.As(err, &refusal) || refusal.Code != code {
		t.Errorf("%s: got %v, not a refusal with %s", name, err, code)
	}
}

func TestACommitMakesTheSegmentDoneAndOpensItsSuccessor(t *testing.T) {
	l, k := threeNodes(t)
	c := l.Commit(t, k, 40)
	c.FirstConsumed, c.WinnerDecided, c.CommitStarted = 1, 2, 3
	c.DeepStoreURI = "file:///backups/x"
	change := l.Do(t, meta.CommitSegment(c))

	done := l.Image.Segment(k.Segment(0))
	n1 := l.Image.Node("n1")
	want := &meta.Segment{
		Table: k.Table, Name: done.Name, Status: meta.SegmentDone, End: 40, Rows: 40, SizeBytes: 4000,
		MinTimestamp: c.Info.MinTimestamp, MaxTimestamp: c.Info.MaxTimestamp,
		Digest: c.Info.Digest, SHA256: c.Info.SHA256, LastLeaderEpoch: segment.NoLeaderEpoch,
		ConfigVersion: 1, StreamEpoch: "0", LeaderEpoch: 1, Replicas: []string{"n1", "n2", "n3"}, Committer: "n1",
		Locations: []meta.Location{
			{Node: "n1", StoreID: n1.StoreID, Since: l.Now},
			{URI: "file:///backups/x", Since: l.Now},
		},
		Times: meta.Times{Created: done.Times.Created, FirstConsumed: 1, WinnerDecided: 2, CommitStarted: 3,
			Committed: l.Now, Uploaded: l.Now, LastLocation: l.Now},
	}
	if !reflect.DeepEqual(done, want) {
		t.Errorf("got  %+v\nwant %+v", done, want)
	}
	next := l.Image.Segment(k.Segment(1))
	wantNext := &meta.Segment{
		Table: k.Table, Seq: 1, Name: next.Name, Status: meta.SegmentInProgress, Start: 40,
		ConfigVersion: 1, StreamEpoch: "0", LeaderEpoch: 1, Replicas: []string{"n1", "n2", "n3"},
		Times: meta.Times{Created: l.Now},
	}
	if !reflect.DeepEqual(next, wantNext) {
		t.Errorf("got  %+v\nwant %+v", next, wantNext)
	}
	p := l.Image.Partition(k.Table, 0)
	if p.NextOffset != 40 || p.NextSeq != 2 || p.State != meta.PartitionConsuming {
		t.Errorf("got %+v", p)
	}
	if len(change.Upserts) != 3 || len(change.Removals) != 0 {
		t.Errorf("the batch has %d upserts, %d removals", len(change.Upserts), len(change.Removals))
	}
}

func TestTheSuccessorGetsTodaysConfigAndReplicas(t *testing.T) {
	l, k := threeNodes(t)
	cfg := metatest.Config("flights")
	cfg.Segment.MaxRows = 7
	l.Do(t, meta.UpdateTableConfig(k.Table, cfg))
	l.Do(t, meta.SetReplicas(k, []string{"n2", "n3"}, nil))
	if s := l.Image.InProgress(k); s.ConfigVersion != 1 || !slices.Equal(s.Replicas, []string{"n1", "n2", "n3"}) {
		t.Fatalf("the segment that is being consumed changed: %+v", s)
	}
	l.Do(t, meta.CommitSegment(l.Commit(t, k, 10)))
	if s := l.Image.InProgress(k); s.ConfigVersion != 2 || !slices.Equal(s.Replicas, []string{"n2", "n3"}) {
		t.Errorf("got version %d, replicas %v", s.ConfigVersion, s.Replicas)
	}
	l.Do(t, meta.PruneTableConfigs(k.Table))
	if l.Image.TableConfig(k.Table, 1) != nil || l.Image.TableConfig(k.Table, 2) == nil {
		t.Error("version 1 should be gone and 2 be there")
	}
}

func TestARepeatedCommitIsASuccessAndAnotherOneIsRefused(t *testing.T) {
	l, k := threeNodes(t)
	c := l.Commit(t, k, 40)
	l.Do(t, meta.CommitSegment(c))
	l.TakeOver(t) // the answer was lost, and the leader with it
	before := l.Image
	c.Incarnation++ // and the committer has started anew
	if change := l.Do(t, meta.CommitSegment(c)); !change.Empty() || l.Image != before {
		t.Fatalf("the repeat changed something: %+v", change)
	}
	for name, change := range map[string]func(c *meta.Commit){
		"another digest":   func(c *meta.Commit) { c.Info.Digest[0]++ },
		"another end":      func(c *meta.Commit) { c.Info.End++ },
		"another instance": func(c *meta.Commit) { c.Instance = "n2" },
	} {
		other := c
		change(&other)
		wantRefusal(t, name, l.Try(t, meta.CommitSegment(other)), meta.CodeAlreadyCommitted)
	}
	if l.Image != before {
		t.Error("a refused commit changed the image")
	}
}

func TestACommitIsRefused(t *testing.T) {
	l, k := threeNodes(t)
	l.AddNode(t, "n4", "d")
	for name, c := range map[string]struct {
		code   string
		change func(c *meta.Commit)
	}{
		"of an unknown segment":    {meta.CodeUnknownSegment, func(c *meta.Commit) { c.Key.Seq++ }},
		"of an unknown table":      {meta.CodeUnknownSegment, func(c *meta.Commit) { c.Key.Table = uuid.UUID{9} }},
		"by an unknown node":       {meta.CodeUnknownNode, func(c *meta.Commit) { c.Instance = "n9" }},
		"by a later incarnation":   {meta.CodeStaleIncarnation, func(c *meta.Commit) { c.Incarnation++ }},
		"by an older incarnation":  {meta.CodeStaleIncarnation, func(c *meta.Commit) { c.Incarnation-- }},
		"in another store":         {meta.CodeWrongStore, func(c *meta.Commit) { c.StoreID[0]++ }},
		"of another stream":        {meta.CodeStreamEpoch, func(c *meta.Commit) { c.StreamEpoch = "1" }},
		"without rows":             {meta.CodeInvalidCommit, func(c *meta.Commit) { c.Info.Rows = 0 }},
		"of more rows than fit":    {meta.CodeInvalidCommit, func(c *meta.Commit) { c.Info.Rows = 41 }},
		"that ends where it began": {meta.CodeInvalidCommit, func(c *meta.Commit) { c.Info.End = 0 }},
		"without a digest":         {meta.CodeInvalidCommit, func(c *meta.Commit) { c.Info.Digest = segment.Digest{} }},
		"without a size":           {meta.CodeInvalidCommit, func(c *meta.Commit) { c.Info.SizeBytes = 0 }},
		"by somebody else": {meta.CodeNotAReplica, func(c *meta.Commit) {
			n := l.Image.Node("n4")
			c.Instance, c.Incarnation, c.StoreID = n.ID, n.Incarnation, n.StoreID
		}},
	} {
		commit := l.Commit(t, k, 40)
		c.change(&commit)
		wantRefusal(t, name, l.Try(t, meta.CommitSegment(commit)), c.code)
	}
	l.Do(t, meta.CommitSegment(l.Commit(t, k, 40)))
}

func TestNothingFollowsTheLastSegment(t *testing.T) {
	for name, c := range map[string]struct {
		before func(l *metatest.Log, k meta.PartitionKey)
		end    bool
		want   meta.PartitionState
	}{
		"of a partition that has ended": {end: true, want: meta.PartitionEnded},
		"of a table that is paused": {want: meta.PartitionPaused, before: func(l *metatest.Log, k meta.PartitionKey) {
			l.Do(t, meta.PauseTable(k.Table, meta.Pause{Reason: "administrative", By: "me"}))
			l.Do(t, meta.RequestEnd(k.Table, nil, meta.EndPause, uuid.UUID{}))
		}},
		"of a paused table whose partition has ended": {end: true, want: meta.PartitionEnded,
			before: func(l *metatest.Log, k meta.PartitionKey) {
				l.Do(t, meta.PauseTable(k.Table, meta.Pause{Reason: "administrative", By: "me"}))
			}},
	} {
		l, k := threeNodes(t)
		if c.before != nil {
			c.before(l, k)
		}
		commit := l.Commit(t, k, 40)
		commit.EndOfPartition = c.end
		l.Do(t, meta.CommitSegment(commit))
		p := l.Image.Partition(k.Table, 0)
		if p.State != c.want || p.NextOffset != 40 || p.NextSeq != 1 || l.Image.InProgress(k) != nil {
			t.Errorf("%s: got %+v", name, p)
		}
		if s := l.Image.LastSegment(k); s.Status != meta.SegmentDone || s.EndRequested != nil {
			t.Errorf("%s: got %+v", name, s)
		}
		if v := meta.CheckInvariants(l.Image); len(v) > 0 {
			t.Errorf("%s: %v", name, v)
		}
	}
}

func TestAPausedPartitionResumesWhereItWasOrBehindAHole(t *testing.T) {
	for _, skip := range []int64{0, 60} {
		l, k := threeNodes(t)
		l.Do(t, meta.PauseTable(k.Table, meta.Pause{Reason: "administrative", By: "me"}))
		l.Do(t, meta.CommitSegment(l.Commit(t, k, 40)))
		wantRefusal(t, "table paused", l.Try(t, meta.ResumePartition(k, 40, "")), meta.CodeTableNotActive)
		l.Do(t, meta.ResumeTable(k.Table, meta.FromLastConsumed))
		wantRefusal(t, "below nextOffset", l.Try(t, meta.ResumePartition(k, 39, "")), meta.CodeInvalidPartition)
		l.Do(t, meta.ResumePartition(k, 40+skip, "consumeFrom=largest"))
		s := l.Image.InProgress(k)
		if s == nil || s.Seq != 1 || s.Start != 40+skip {
			t.Fatalf("got %+v", s)
		}
		var holes []meta.Hole
		if skip > 0 {
			holes = []meta.Hole{{From: 40, To: 100, Why: "consumeFrom=largest"}}
		}
		if p := l.Image.Partition(k.Table, 0); !reflect.DeepEqual(p.Holes, holes) || p.NextOffset != 40 {
			t.Errorf("got %+v", p)
		}
		l.Do(t, meta.CommitSegment(l.Commit(t, k, 10)))
		got := meta.Coverage(l.Image, k.Table, map[int32]int64{0: 50 + skip})
		if !got.Complete {
			t.Errorf("not complete: %+v", got)
		}
	}
}

func TestAnEmptySegmentThatIsAskedToEnd(t *testing.T) {
	t.Run("goes on after a force commit, with today's replicas", func(t *testing.T) {
		l, k := threeNodes(t)
		l.Do(t, meta.RequestEnd(k.Table, nil, meta.EndForceCommit, metatest.ID("job")))
		if s := l.Image.InProgress(k); s.EndRequested == nil || s.EndRequested.Job != metatest.ID("job") || s.Times.EndRequested == 0 {
			t.Fatalf("got %+v", s)
		}
		if c := l.Do(t, meta.RequestEnd(k.Table, []int32{0}, meta.EndDrain, uuid.UUID{})); !c.Empty() {
			t.Error("a second request replaces the first")
		}
		l.Do(t, meta.SetReplicas(k, []string{"n2", "n3"}, nil))
		l.Do(t, meta.ClearEndRequested(k.Segment(0), false))
		s := l.Image.InProgress(k)
		if s.EndRequested != nil || s.Seq != 0 || !slices.Equal(s.Replicas, []string{"n2", "n3"}) {
			t.Errorf("got %+v", s)
		}
		if c := l.Do(t, meta.ClearEndRequested(k.Segment(0), false)); !c.Empty() {
			t.Error("clearing twice changes something")
		}
	})
	for name, c := range map[string]struct {
		pause, end bool
		want       meta.PartitionState
	}{
		"goes when the table is paused":      {pause: true, want: meta.PartitionPaused},
		"goes at the end of the partition":   {end: true, want: meta.PartitionEnded},
		"goes for good if both are the case": {pause: true, end: true, want: meta.PartitionEnded},
	} {
		t.Run(name, func(t *testing.T) {
			l, k := threeNodes(t)
			l.Do(t, meta.CommitSegment(l.Commit(t, k, 40)))
			if c.pause {
				l.Do(t, meta.PauseTable(k.Table, meta.Pause{Reason: "diskFull", By: "n1"}))
				l.Do(t, meta.RequestEnd(k.Table, nil, meta.EndPause, uuid.UUID{}))
			}
			l.Do(t, meta.ClearEndRequested(k.Segment(1), c.end))
			p := l.Image.Partition(k.Table, 0)
			if l.Image.Segment(k.Segment(1)) != nil || p.State != c.want || p.NextOffset != 40 || p.NextSeq != 2 {
				t.Errorf("got %+v", p)
			}
			if v := meta.CheckInvariants(l.Image); len(v) > 0 {
				t.Error(v)
			}
		})
	}
}

func TestReplicasThatAllStoppedStartAfresh(t *testing.T) {
	l, k := threeNodes(t)
	l.Do(t, meta.RecordError(k.Segment(0), "n1", "one stumbles", false))
	if p := l.Image.Partition(k.Table, 0); p.State != meta.PartitionConsuming {
		t.Errorf("got %s with replicas left", p.State)
	}
	l.Do(t, meta.RecordError(k.Segment(0), "n2", "bad \xff byte", true))
	s := l.Image.InProgress(k)
	if s.LastError == nil || s.LastError.Node != "n2" || s.LastError.Error != "bad � byte" {
		t.Errorf("got %+v", s.LastError)
	}
	if p := l.Image.Partition(k.Table, 0); p.State != meta.PartitionError {
		t.Errorf("got %s", p.State)
	}
	l.Do(t, meta.RaiseAttempt(k.Segment(0), 0))
	if s, p := l.Image.InProgress(k), l.Image.Partition(k.Table, 0); s.Attempt != 1 || p.State != meta.PartitionConsuming {
		t.Errorf("got attempt %d, %s", s.Attempt, p.State)
	}
	if c := l.Do(t, meta.RaiseAttempt(k.Segment(0), 0)); !c.Empty() {
		t.Error("the same attempt is raised twice")
	}
	l.Do(t, meta.CommitSegment(l.Commit(t, k, 40)))
	for _, f := range []meta.Func{meta.RecordError(k.Segment(0), "n3", "late", true), meta.RaiseAttempt(k.Segment(0), 1)} {
		if c := l.Do(t, f); !c.Empty() {
			t.Error("a committed segment is not consumed any more")
		}
	}
}
