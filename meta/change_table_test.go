package meta_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
	"github.com/shoalstore/shoal/segment"
)

func TestTheLifeOfATable(t *testing.T) {
	l := metatest.NewLog(t)
	l.AddNode(t, "n1", "a")
	id := uuid.UUID{1}
	cfg := metatest.Config("flights")
	l.Do(t, meta.CreateTable(cfg, id))
	wantRefusal(t, "not there yet", l.Try(t, meta.ActivateTable(id, []int32{0, 1})), meta.CodeUnknownPartition)
	l.Do(t, meta.SetTableError(id, "the stream does not answer"))
	inits := []meta.PartitionInit{{Partition: 0, StreamEpoch: "e", Start: 5}}
	l.Do(t, meta.AddPartitions(id, inits))
	inits = append(inits, meta.PartitionInit{Partition: 1, StreamEpoch: "e", Replicas: []string{"n1"}})
	if c := l.Do(t, meta.AddPartitions(id, inits)); len(c.Upserts) != 2 {
		t.Errorf("%d upserts for one new partition and its segment", len(c.Upserts))
	}
	if c := l.Do(t, meta.AddPartitions(id, inits)); !c.Empty() {
		t.Errorf("nothing is new: got %+v", c)
	}
	l.Do(t, meta.ActivateTable(id, []int32{0, 1}))
	if table := l.Image.Table(id); table.State != meta.TableActive || table.LastError != "" || table.CreatedAt == 0 {
		t.Errorf("got %+v", table)
	}
	s := l.Image.InProgress(meta.PartitionKey{Table: id})
	if s.Seq != 0 || s.Start != 5 || s.StreamEpoch != "e" || len(s.Replicas) != 1 {
		t.Errorf("got %+v", s)
	}
	if name, err := segment.ParseName(s.Name); err != nil || name.Table != "flights" || name.Seq != 0 {
		t.Errorf("got %q: %v", s.Name, err)
	}
	l.Do(t, meta.PauseTable(id, meta.Pause{Reason: "administrative", By: "me"}))
	wantRefusal(t, "paused", l.Try(t, meta.AddPartitions(id, inits)), meta.CodeTableNotActive)
	if p := l.Image.Table(id).Pause; p == nil || p.By != "me" {
		t.Errorf("got %+v", p)
	}
	l.Do(t, meta.ResumeTable(id, meta.FromLastConsumed))
	if table := l.Image.Table(id); table.State != meta.TableActive || table.Pause != nil {
		t.Errorf("got %+v", table)
	}
}

func TestATableIsRefused(t *testing.T) {
	l := metatest.NewLog(t)
	l.Do(t, meta.CreateTable(metatest.Config("Flights"), uuid.UUID{1}))
	invalid, huge := metatest.Config("other"), metatest.Config("other")
	invalid.Replication = 0
	huge.Format.Type = segment.FormatJSON
	for i := range segment.MaxColumns {
		name := "column" + strconv.Itoa(i) + strings.Repeat("_", 100)
		huge.Format.Columns = append(huge.Format.Columns, segment.Column{Name: name, Path: name, Type: segment.TypeString})
	}
	for name, c := range map[string]struct {
		cfg  *meta.Config
		code string
	}{
		"a name that is taken, in another case": {metatest.Config("fLIGHTS"), meta.CodeTableExists},
		"an invalid configuration":              {invalid, meta.CodeInvalidConfig},
		"a configuration over 64 KiB":           {huge, meta.CodeRecordTooLarge},
	} {
		wantRefusal(t, name, l.Try(t, meta.CreateTable(c.cfg, uuid.UUID{2})), c.code)
	}
	renamed := metatest.Config("flights")
	wantRefusal(t, "a rename", l.Try(t, meta.UpdateTableConfig(uuid.UUID{1}, renamed)), meta.CodeInvalidConfig)
}

func TestJobs(t *testing.T) {
	l := metatest.NewLog(t)
	id := metatest.ID("job")
	l.Do(t, meta.CreateJob(id, "forceCommit", map[string]string{"table": "flights"}))
	if c := l.Do(t, meta.CreateJob(id, "forceCommit", nil)); !c.Empty() {
		t.Error("a job is created twice")
	}
	l.Do(t, meta.JobProgress(id, meta.JobRunning, map[string]int64{"done": 1}))
	l.Do(t, meta.JobProgress(id, meta.JobDone, map[string]int64{"done": 2}))
	if c := l.Do(t, meta.JobProgress(id, meta.JobRunning, nil)); !c.Empty() {
		t.Error("a job that is over goes on")
	}
	if j := l.Image.Job(id); j.State != meta.JobDone || j.Counts["done"] != 2 || j.Args["table"] != "flights" {
		t.Errorf("got %+v", j)
	}
	wantRefusal(t, "unknown", l.Try(t, meta.JobProgress(uuid.UUID{}, meta.JobDone, nil)), meta.CodeUnknownJob)
}

func TestTheClusterIsFoundedOnceAndEpochsRise(t *testing.T) {
	l := metatest.NewLog(t)
	if c := l.Do(t, meta.NewCluster(metatest.ID("cluster"))); !c.Empty() {
		t.Error("founded twice")
	}
	wantRefusal(t, "another", l.Try(t, meta.NewCluster(uuid.UUID{1})), meta.CodeClusterExists)
	wantRefusal(t, "the same epoch", l.Try(t, meta.NewLeader(meta.Leader{Epoch: 1})), meta.CodeStaleEpoch)
}
