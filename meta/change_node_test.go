package meta_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
)

func TestRegisteringANode(t *testing.T) {
	first := meta.Registration{ID: "n1", URL: "http://n1", Zone: "a", StoreID: uuid.UUID{1}, BootID: uuid.UUID{1}}
	rebooted, newDisk, moved := first, first, first
	rebooted.BootID = uuid.UUID{2}
	newDisk.BootID, newDisk.StoreID = uuid.UUID{3}, uuid.UUID{3}
	moved.URL = "http://elsewhere"
	for _, c := range []struct {
		name  string
		state meta.NodeState // of the node that is there
		again meta.Registration
		// what comes of it
		incarnation int64
		seq         int64
		want        meta.NodeState
		refused     string
	}{
		{"the same boot", meta.NodeUp, first, 1, 5, meta.NodeUp, ""},
		{"the same boot, after it seemed down", meta.NodeDown, first, 1, 5, meta.NodeUp, ""},
		{"the same boot at another address", meta.NodeUp, moved, 1, 5, meta.NodeUp, ""},
		{"another boot", meta.NodeUp, rebooted, 2, 0, meta.NodeUp, ""},
		{"another boot while it drains", meta.NodeDraining, rebooted, 2, 0, meta.NodeDraining, ""},
		{"another disk while it is up", meta.NodeUp, newDisk, 0, 0, "", meta.CodeNodeIDInUse},
		{"another disk while it drains", meta.NodeDraining, newDisk, 2, 0, meta.NodeDraining, ""},
		{"another disk once it is down", meta.NodeDown, newDisk, 2, 0, meta.NodeUp, ""},
	} {
		l := metatest.NewLog(t)
		var incarnation int64
		l.Do(t, meta.RegisterNode(first, &incarnation))
		l.Do(t, meta.Locations(&meta.LocationReport{Node: "n1", Incarnation: 1, StoreID: first.StoreID, Sequence: 5},
			nil, new(meta.LocationVerdicts)))
		l.Do(t, meta.SetNodeState("n1", 1, c.state))
		err := l.Try(t, meta.RegisterNode(c.again, &incarnation))
		if c.refused != "" {
			wantRefusal(t, c.name, err, c.refused)
			continue
		}
		n := l.Image.Node("n1")
		if err != nil || incarnation != c.incarnation || n.Incarnation != c.incarnation || n.LocationsSeq != c.seq ||
			n.State != c.want || n.StoreID != c.again.StoreID || n.URL != c.again.URL {
			t.Errorf("%s: got %d, %v, %+v", c.name, incarnation, err, n)
		}
	}
}

func TestARegistrationThatSaysNonsenseIsRefused(t *testing.T) {
	good := meta.Registration{ID: "n1", URL: "http://n1", StoreID: uuid.UUID{1}, BootID: uuid.UUID{1}}
	for name, c := range map[string]struct {
		code   string
		change func(r *meta.Registration)
	}{
		"no id":          {meta.CodeInvalidNode, func(r *meta.Registration) { r.ID = "" }},
		"a path":         {meta.CodeInvalidNode, func(r *meta.Registration) { r.ID = "../n1" }},
		"a long id":      {meta.CodeInvalidNode, func(r *meta.Registration) { r.ID = strings.Repeat("n", 129) }},
		"no URL":         {meta.CodeInvalidNode, func(r *meta.Registration) { r.URL = "" }},
		"no store":       {meta.CodeInvalidNode, func(r *meta.Registration) { r.StoreID = uuid.UUID{} }},
		"no boot":        {meta.CodeInvalidNode, func(r *meta.Registration) { r.BootID = uuid.UUID{} }},
		"zone not UTF-8": {meta.CodeInvalidRecord, func(r *meta.Registration) { r.Zone = "\xff" }},
		"endless tags":   {meta.CodeRecordTooLarge, func(r *meta.Registration) { r.Tags = []string{string(make([]byte, 70_000))} }},
	} {
		r := good
		c.change(&r)
		wantRefusal(t, name, metatest.NewLog(t).Try(t, meta.RegisterNode(r, new(int64))), c.code)
	}
}

func TestAStateFoundOutAboutAnIncarnationDoesNothingToALaterOne(t *testing.T) {
	l := metatest.NewLog(t)
	l.AddNode(t, "n1", "a")
	if c := l.Do(t, meta.SetNodeState("n1", 2, meta.NodeDown)); !c.Empty() {
		t.Error("another incarnation is marked DOWN")
	}
	l.Do(t, meta.SetNodeState("n1", meta.AnyIncarnation, meta.NodeDraining))
	if s := l.Image.Node("n1").State; s != meta.NodeDraining {
		t.Errorf("got %s", s)
	}
	wantRefusal(t, "unknown", l.Try(t, meta.SetNodeState("n9", 1, meta.NodeUp)), meta.CodeUnknownNode)
}

func TestANodeIsForgottenOnceNothingNamesIt(t *testing.T) {
	l, k := threeNodes(t)
	l.AddNode(t, "n4", "d")
	wantRefusal(t, "up", l.Try(t, meta.RemoveNode("n4")), meta.CodeNodeInUse)
	l.Do(t, meta.SetNodeState("n4", meta.AnyIncarnation, meta.NodeDown))
	l.Do(t, meta.RemoveNode("n4"))
	if l.Image.Node("n4") != nil {
		t.Error("still there")
	}
	l.Do(t, meta.SetNodeState("n1", meta.AnyIncarnation, meta.NodeDown))
	wantRefusal(t, "consumes", l.Try(t, meta.RemoveNode("n1")), meta.CodeNodeInUse)
	l.Do(t, meta.SetReplicas(k, []string{"n2", "n3"}, []string{"n1", "n2"}))
	if s := l.Image.InProgress(k); len(s.Replicas) != 2 || s.Replicas[0] != "n2" || s.Replicas[1] != "n3" {
		t.Errorf("n1, which is DOWN, is replaced, and n2, which is UP, is not: got %v", s.Replicas)
	}
	l.Do(t, meta.RemoveNode("n1"))
}

func TestPlacementSpreadsOverZonesAndNodes(t *testing.T) {
	l := metatest.NewLog(t)
	for id, zone := range map[string]string{"n1": "a", "n2": "a", "n3": "a", "n4": "b", "n5": "b", "n6": "c"} {
		l.AddNode(t, id, zone)
	}
	l.AddNode(t, "n7", "d")
	l.Do(t, meta.SetNodeState("n7", meta.AnyIncarnation, meta.NodeDown))
	l.AddNode(t, "n8", "e")
	l.Do(t, meta.SetNodeState("n8", meta.AnyIncarnation, meta.NodeDraining))
	cfg := metatest.Config("flights")
	cfg.Replication = 3
	id := l.AddTable(t, cfg, 6)
	load := map[string]int{}
	for p := range l.Image.Partitions(id) {
		zones := map[string]bool{}
		for _, r := range p.Replicas {
			zones[l.Image.Node(r).Zone] = true
			load[r]++
		}
		if len(p.Replicas) != 3 || len(zones) != 3 {
			t.Errorf("partition %d: %v", p.Partition, p.Replicas)
		}
	}
	want := map[string]int{"n1": 2, "n2": 2, "n3": 2, "n4": 3, "n5": 3, "n6": 6}
	for n, w := range want {
		if load[n] != w {
			t.Errorf("%s has %d partitions, not %d", n, load[n], w)
		}
	}
	placer := meta.NewPlacer(l.Image, func(n *meta.Node) bool { return n.ID != "n1" })
	if got := placer.Place(9, "n7"); len(got) != 6 || got[0] != "n7" {
		t.Errorf("got %v: what is kept, and every other node but n1", got)
	}
	if got := meta.NewPlacer(meta.Empty(), nil).Place(3); len(got) != 0 {
		t.Errorf("got %v without nodes", got)
	}
}
