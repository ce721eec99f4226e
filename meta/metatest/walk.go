package metatest

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

// Walk makes up to steps random changes to a new log with four nodes and two
// tables, through the same functions as a leader: some are refused, some change
// nothing. check, if not nil, is called after each.
func Walk(t *rapid.T, steps int, check func(l *Log)) *Log {
	w := walk{Log: NewLog(t), t: t}
	for i, zone := range []string{"a", "a", "b", "b"} {
		w.AddNode(t, nodeNames[i], zone)
	}
	backed := Config("Backed")
	backed.DeepStore = &meta.DeepStoreConfig{URI: "file:///backups"}
	w.tables = []uuid.UUID{w.AddTable(t, Config("peers.only"), 2), w.AddTable(t, backed, 1)}
	for range rapid.IntRange(0, steps).Draw(t, "steps") {
		if err := w.step(); err != nil && !isRefusal(err) {
			t.Fatalf("neither accepted nor refused: %v", err)
		}
		w.tables = slices.DeleteFunc(w.tables, func(id uuid.UUID) bool { return w.Image.Table(id) == nil })
		if check != nil {
			check(w.Log)
		}
	}
	return w.Log
}

var nodeNames = []string{"n1", "n2", "n3", "n4"}

func isRefusal(err error) bool { _, ok := err.(*meta.Refusal); return ok }

type walk struct {
	*Log
	t      *rapid.T
	tables []uuid.UUID
	seqs   int64 // of reports
	made   int   // tables made anew
}

func (w *walk) step() error {
	kinds := []func() error{
		w.commit, w.commit, w.commit, w.report, w.report, w.report, w.deepStore, w.endOrPause, w.resume,
		w.empty, w.nodeState, w.register, w.replicas, w.trouble, w.config, w.takeOver, w.expire, w.forget,
		w.bulk, w.bulk, w.deleteTable,
	}
	return rapid.SampledFrom(kinds).Draw(w.t, "step")()
}

func (w *walk) node() string { return rapid.SampledFrom(nodeNames).Draw(w.t, "node") }

func (w *walk) table() uuid.UUID { return rapid.SampledFrom(w.tables).Draw(w.t, "table") }

func (w *walk) partition() meta.PartitionKey {
	all := slices.Collect(w.Image.Partitions(w.table()))
	if len(all) == 0 { // of a table that is going
		all = slices.Collect(w.Image.Partitions(w.tables[0]))
	}
	return rapid.SampledFrom(all).Draw(w.t, "partition").PartitionKey()
}

// segment picks one of the partition's, IN_PROGRESS or not.
func (w *walk) segment() *meta.Segment {
	k := w.partition()
	all := slices.Collect(w.Image.Segments(k.Table, k.Partition))
	if len(all) == 0 {
		return nil
	}
	return rapid.SampledFrom(all).Draw(w.t, "segment")
}

func (w *walk) commit() error {
	k := w.partition()
	s := w.Image.InProgress(k)
	if s == nil || len(s.Replicas) == 0 {
		return nil
	}
	c := w.Commit(w.t, k, rapid.Int64Range(0, 50).Draw(w.t, "rows"))
	c.EndOfPartition = rapid.IntRange(0, 19).Draw(w.t, "end") == 0
	return w.Try(w.t, meta.CommitSegment(c))
}

func (w *walk) report() error {
	n := w.Image.Node(w.node())
	w.seqs += rapid.Int64Range(0, 2).Draw(w.t, "advance")
	r := &meta.LocationReport{Node: n.ID, Incarnation: n.Incarnation, StoreID: n.StoreID, Sequence: w.seqs}
	for _, items := range []*[]meta.CopyRef{&r.Add, &r.Withdraw, &r.Release} {
		for range rapid.IntRange(0, 2).Draw(w.t, "items") {
			if s := w.segment(); s != nil {
				*items = append(*items, meta.CopyRef{Table: s.Table, Partition: s.Partition, Seq: s.Seq, Digest: s.Digest})
			}
		}
	}
	var verdicts meta.LocationVerdicts
	confirmed := func(meta.Location, meta.SegmentKey) bool { return rapid.Bool().Draw(w.t, "confirmed") }
	return w.Try(w.t, meta.Locations(r, confirmed, &verdicts))
}

func (w *walk) deepStore() error {
	s := w.segment()
	if s == nil {
		return nil
	}
	if rapid.IntRange(0, 4).Draw(w.t, "withdraw") == 0 {
		return w.Try(w.t, meta.WithdrawDeepStoreLocation(s.SegmentKey(), "file:///backups/"+s.Name))
	}
	return w.Try(w.t, meta.SetDeepStoreLocation(s.SegmentKey(), s.Digest, "file:///backups/"+s.Name,
		rapid.Bool().Draw(w.t, "verified")))
}

func (w *walk) endOrPause() error {
	id := w.table()
	if rapid.Bool().Draw(w.t, "pause") {
		return w.Try(w.t, meta.PauseTable(id, meta.Pause{Reason: "administrative", By: "walk"}))
	}
	return w.Try(w.t, meta.RequestEnd(id, nil, meta.EndForceCommit, uuid.UUID{}))
}

func (w *walk) resume() error {
	k := w.partition()
	if err := w.Try(w.t, meta.ResumeTable(k.Table, rapid.SampledFrom(places).Draw(w.t, "from"))); err != nil {
		return err
	}
	if rapid.Bool().Draw(w.t, "by itself") {
		return nil
	}
	from := w.Image.Partition(k.Table, k.Partition).NextOffset + rapid.Int64Range(-1, 10).Draw(w.t, "skip")
	return w.Try(w.t, meta.ResumePartition(k, from, "the walk skips"))
}

var places = []meta.ConsumeFrom{meta.FromLastConsumed, meta.FromSmallest, meta.FromLargest}

// bulk takes a step of whatever goes on in many steps.
func (w *walk) bulk() error {
	id, ready := w.table(), nodeNames[:rapid.IntRange(0, len(nodeNames)).Draw(w.t, "ready")]
	starts := map[int32]int64{0: rapid.Int64Range(0, 200).Draw(w.t, "start")}
	return w.Try(w.t, rapid.SampledFrom([]meta.Func{
		meta.PauseNext(id), meta.ResumeNext(id, starts, ready), meta.DeleteNext(id, ObjectKey), meta.DrainNext(w.node(), ready),
	}).Draw(w.t, "bulk"))
}

// deleteTable lets the second table go, or makes it anew when it has gone.
func (w *walk) deleteTable() error {
	if len(w.tables) == 1 {
		w.made++
		cfg := Config("Backed")
		cfg.DeepStore = &meta.DeepStoreConfig{URI: "file:///backups"}
		w.tables = append(w.tables, w.AddTableAs(w.t, ID(fmt.Sprint("made anew ", w.made)), cfg, 2))
		return nil
	}
	err := w.Try(w.t, meta.DeleteTable(w.tables[1]))
	if rapid.Bool().Draw(w.t, "at once") {
		for w.Image.Table(w.tables[1]) != nil {
			w.Do(w.t, meta.DeleteNext(w.tables[1], ObjectKey))
		}
	}
	return err
}

func (w *walk) empty() error {
	if s := w.segment(); s != nil {
		return w.Try(w.t, meta.ClearEndRequested(s.SegmentKey(), rapid.IntRange(0, 9).Draw(w.t, "end") == 0))
	}
	return nil
}

func (w *walk) nodeState() error {
	state := rapid.SampledFrom([]meta.NodeState{meta.NodeUp, meta.NodeDown, meta.NodeDraining}).Draw(w.t, "state")
	return w.Try(w.t, meta.SetNodeState(w.node(), rapid.Int64Range(0, 2).Draw(w.t, "incarnation"), state))
}

func (w *walk) register() error {
	id := w.node()
	r := meta.Registration{ID: id, URL: "http://" + id, StoreID: w.Image.Node(id).StoreID, BootID: UUID().Draw(w.t, "boot")}
	if rapid.Bool().Draw(w.t, "new disk") {
		r.StoreID = UUID().Draw(w.t, "store")
	}
	var incarnation int64
	return w.Try(w.t, meta.RegisterNode(r, &incarnation))
}

func (w *walk) replicas() error {
	k := w.partition()
	replicas := meta.NewPlacer(w.Image, nil).Place(w.Image.CurrentConfig(k.Table).Replication)
	return w.Try(w.t, meta.SetReplicas(k, replicas, []string{w.node()}))
}

func (w *walk) trouble() error {
	s := w.segment()
	if s == nil {
		return nil
	}
	if rapid.Bool().Draw(w.t, "raise") {
		return w.Try(w.t, meta.RaiseAttempt(s.SegmentKey(), s.Attempt))
	}
	return w.Try(w.t, meta.RecordError(s.SegmentKey(), w.node(), "the walk stumbles", rapid.Bool().Draw(w.t, "all")))
}

func (w *walk) config() error {
	id := w.table()
	cfg := w.Image.CurrentConfig(id).Clone()
	cfg.Replication = rapid.IntRange(2, 3).Draw(w.t, "replication")
	if err := w.Try(w.t, meta.UpdateTableConfig(id, cfg)); err != nil {
		return err
	}
	return w.Try(w.t, meta.PruneTableConfigs(id))
}

// expire has retention take segments: some are old enough, by a clock that may
// be ahead.
func (w *walk) expire() error {
	s := w.segment()
	if s == nil {
		return nil
	}
	age := time.Duration(w.Image.CurrentConfig(s.Table).Retention.Age).Milliseconds()
	wall := w.Now + rapid.Int64Range(-1, 1).Draw(w.t, "ahead")*age
	return w.Try(w.t, meta.ExpireSegments(s.SegmentKey().PartitionKey(), s.Seq, wall, ObjectKey))
}

// ObjectKey stands for the key of a segment's object in a deep store.
func ObjectKey(name string, d segment.Digest) (string, error) { return name + "-" + d.Short(), nil }

// forget ends the grace of a tombstone, or takes it away.
func (w *walk) forget() error {
	all := slices.Collect(w.Image.Tombstones())
	if len(all) == 0 {
		return nil
	}
	keys := []meta.SegmentKey{rapid.SampledFrom(all).Draw(w.t, "tombstone").SegmentKey()}
	if rapid.Bool().Draw(w.t, "expire") {
		return w.Try(w.t, meta.ExpireTombstones(keys))
	}
	return w.Try(w.t, meta.RemoveTombstones(keys))
}

func (w *walk) takeOver() error {
	w.TakeOver(w.t)
	return nil
}
