package controller

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
)

// A leader that has just begun does not take a node for silent that it has not had the
// time to hear of.
func TestANodeMayBeAliveUntilItWasSilentForTheWholeTime(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration) NodeSeen { return NodeSeen{HeardAt: now.Add(-d).UnixMilli()} }
	for _, c := range []struct {
		seen NodeSeen
		want bool
	}{
		{NodeSeen{}, true},
		{ago(time.Second), true},
		{ago(heartbeatTimeout), true},
		{ago(heartbeatTimeout + time.Second), false},
	} {
		if got := c.seen.mayBeAlive(now); got != c.want {
			t.Errorf("%+v: %v", c.seen, got)
		}
	}
}

func TestSilentNodeIsDownAfterTheTimeoutAndUpAgainWhenHeardOf(t *testing.T) {
	r := newRig(t)
	r.later(heartbeatTimeout, "") // a new leader waits one full time-out
	r.want("1 beat", r.beat("n2", 0))
	r.later(1, "write node n1 is DOWN; write node n3 is DOWN")
	r.later(time.Second, "") // the writes are under way
	r.fail()
	r.later(time.Second, "write node n1 is DOWN")
	r.settle()
	if got := r.log.Image.Node("n1").State; got != meta.NodeDown {
		t.Fatal(got)
	}
	r.later(time.Second, "")
	r.want("write node n1 is UP; 2 beat", r.beat("n1", 0))
	r.want("3 beat", r.beat("n1", 0)) // once
	r.settle()
	if got := r.log.Image.Node("n1").State; got != meta.NodeUp {
		t.Fatal(got)
	}
}

func TestHeartbeatDuringTheWriteOfDownBringsTheNodeBack(t *testing.T) {
	r := newRig(t)
	r.now = heartbeatTimeout
	r.ready("n2", "n3")
	r.later(1, "write node n1 is DOWN")
	r.want("3 beat", r.beat("n1", 0)) // it is UP still, as far as anybody knows
	r.settle()
	r.want("write node n1 is UP; 4 beat", r.beat("n1", 0))
}

func TestNewLeaderGivesEveryNodeOneFullTimeout(t *testing.T) {
	r := newRig(t)
	r.now = time.Hour
	r.want("", Depose{})
	r.log.TakeOver(t)
	r.lead()
	r.later(heartbeatTimeout, "")
	r.later(1, "write node n1 is DOWN; write node n2 is DOWN; write node n3 is DOWN")
}

func TestNodeThatRegistersAgainHasOneFullTimeout(t *testing.T) {
	r := newRig(t)
	r.now = heartbeatTimeout - time.Second
	r.ready("n2", "n3")
	var incarnation int64
	r.do(meta.RegisterNode(meta.Registration{ID: "n1", URL: "http://n1", StoreID: metatest.ID("store of n1"), BootID: uuid.New()}, &incarnation))
	r.later(heartbeatTimeout, "")
	r.later(1, "write node n1 is DOWN; write node n2 is DOWN; write node n3 is DOWN")
}

func TestDrainingNodeStaysSo(t *testing.T) {
	r := newRig(t)
	r.do(meta.SetNodeState("n1", meta.AnyIncarnation, meta.NodeDraining))
	r.now = time.Hour
	r.ready("n2", "n3")
	r.later(0, "")
	r.want("3 beat", r.beat("n1", 0))
}

func TestStrangersMustRegister(t *testing.T) {
	r := newRig(t)
	r.want("1 beat STALE_INCARNATION", r.beat("who", 0))
	hb := r.beat("n1", 0)
	hb.Incarnation--
	r.want("2 beat STALE_INCARNATION", hb)
	r.later(heartbeatTimeout+1, "write node n1 is DOWN; write node n2 is DOWN; write node n3 is DOWN")
	r.want("", Depose{Leader: "http://other"})
	r.want("3 beat NOT_LEADER", r.beat("n1", 0))
}

func TestNodeHasCaughtUpOnceItAppliedWhatItWasTold(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		behind int64
		ready  bool
	}{{1, false}, {0, true}, {0, true}} {
		r.step(r.beat("n1", c.behind))
		if got := r.m.live.caughtUp("n1"); got != c.ready {
			t.Fatalf("%d behind: caught up %v", c.behind, got)
		}
	}
	// What was written since the answer it need not have.
	r.do(meta.SetNodeState("n2", meta.AnyIncarnation, meta.NodeDown))
	if r.step(r.beat("n1", 1)); !r.m.live.caughtUp("n1") {
		t.Fatal("one batch behind after one batch was written")
	}
	if r.step(r.beat("n1", 1)); r.m.live.caughtUp("n1") {
		t.Fatal("it stands still")
	}
	var incarnation int64
	r.do(meta.RegisterNode(meta.Registration{ID: "n1", URL: "http://n1", StoreID: metatest.ID("store of n1"), BootID: uuid.New()}, &incarnation))
	if r.m.live.caughtUp("n1") {
		t.Fatal("another incarnation begins as one that has not caught up")
	}
}

func TestRemovedNodeIsForgotten(t *testing.T) {
	r := newRig(t)
	r.do(meta.SetNodeState("n1", meta.AnyIncarnation, meta.NodeDown))
	r.m.confirmed.confirm(nodeStore{"n1", metatest.ID("store of n1")}, meta.SegmentKey{})
	r.do(meta.RemoveNode("n1"))
	if len(r.m.live.heard) != 2 || len(r.m.confirmed.nodes) != 0 {
		t.Fatalf("%v, %v", r.m.live.heard, r.m.confirmed.nodes)
	}
	r.now = heartbeatTimeout
	r.ready("n2", "n3")
	r.later(1, "")
}
