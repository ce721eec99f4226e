package controller

import (
	"testing"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
)

// A thousand readers of a segment do not all fall upon the same one of its nodes. One
// that is DRAINING is for when no other is there.
func TestReadersAreSpreadOverTheNodes(t *testing.T) {
	log := metatest.NewLog(t)
	for _, id := range []string{"a", "b", "c"} {
		log.AddNode(t, id, "zone-"+id)
	}
	cfg := metatest.Config("t")
	cfg.Replication = 3
	id := log.AddTable(t, cfg, 1)
	commit := log.Commit(t, meta.PartitionKey{Table: id, Partition: 0}, 10)
	log.Do(t, meta.CommitSegment(commit))
	hold := func(node string) {
		n, v := log.Image.Node(node), meta.LocationVerdicts{}
		log.Do(t, meta.Locations(&meta.LocationReport{
			Node: n.ID, Incarnation: n.Incarnation, StoreID: n.StoreID, Sequence: n.LocationsSeq + 1,
			Add: []meta.CopyRef{{Table: id, Digest: commit.Info.Digest}},
		}, func(meta.Location, meta.SegmentKey) bool { return true }, &v))
	}
	for _, node := range []string{"a", "b", "c"} {
		hold(node)
	}
	readers := func() map[string]int {
		to := map[string]int{}
		for range 1000 {
			to[liveSource(log.Image, log.Image.Segment(commit.Key)).Node]++
		}
		return to
	}
	if to := readers(); len(to) != 3 || min(to["a"], to["b"], to["c"]) < 100 {
		t.Errorf("%v", to)
	}
	log.Do(t, meta.SetNodeState("a", 1, meta.NodeDraining))
	if to := readers(); len(to) != 2 || min(to["b"], to["c"]) < 100 {
		t.Errorf("with a DRAINING: %v", to)
	}
	log.Do(t, meta.SetNodeState("b", 1, meta.NodeDraining))
	log.Do(t, meta.SetNodeState("c", 1, meta.NodeDraining))
	if to := readers(); to[""] > 0 || len(to) == 0 {
		t.Errorf("with all of them DRAINING: %v", to)
	}
}
