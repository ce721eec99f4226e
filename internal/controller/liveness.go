package controller

import (
	"maps"
	"slices"
	"time"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/meta"
)

// heartbeatTimeout is how long a node may be silent before it is DOWN. Nodes
// beat every 2 s (DESIGN §5).
const heartbeatTimeout = 10 * time.Second

// liveness is what the leader knows of the nodes from their heartbeats, the
// only sign of life there is. All of it is memory: a new leader gives every
// node one full time-out before it believes anything.
type liveness struct {
	heard map[string]beat
	// settling are the nodes whose state is being written.
	settling map[string]bool
}

// beat is the last sign of life of a node, or the moment from which one is
// waited for.
type beat struct {
	api.Heartbeat
	at       time.Duration
	received bool  // false: only waited for
	told     int64 // high watermark in the answer, or when the waiting began
	caughtUp bool  // it had applied what it was told before
}

func newLiveness() liveness {
	return liveness{heard: map[string]beat{}, settling: map[string]bool{}}
}

// wait begins to wait for a node, with a full time-out from now, unless this
// incarnation of it is known already. It has caught up once it has applied what
// is written by now.
func (l *liveness) wait(now time.Duration, n *meta.Node, highWatermark int64) {
	if b, ok := l.heard[n.ID]; ok && b.Incarnation == n.Incarnation {
		return
	}
	l.heard[n.ID] = beat{at: now, told: highWatermark, Heartbeat: api.Heartbeat{Node: n.ID, Incarnation: n.Incarnation}}
}

// beat takes a heartbeat of a node's current incarnation, which is answered
// with the high watermark. It reports whether the node has just caught up.
func (l *liveness) beat(now time.Duration, hb api.Heartbeat, highWatermark int64) (caughtUp bool) {
	before, known := l.heard[hb.Node]
	b := beat{
		Heartbeat: hb, at: now, received: true, told: highWatermark,
		caughtUp: known && hb.AppliedOffset >= before.told,
	}
	l.heard[hb.Node] = b
	return b.caughtUp && !before.caughtUp
}

// forget drops a node that is not registered any more.
func (l *liveness) forget(node string) {
	delete(l.heard, node)
	delete(l.settling, node)
}

// silent lists the nodes that were silent for longer than the time-out, sorted.
func (l *liveness) silent(now time.Duration) []string {
	var out []string
	for _, node := range slices.Sorted(maps.Keys(l.heard)) {
		if now-l.heard[node].at > heartbeatTimeout {
			out = append(out, node)
		}
	}
	return out
}

// caughtUp reports whether the node had applied, at its last heartbeat, what
// it had been told before: one that is catching up gets no new work.
func (l *liveness) caughtUp(node string) bool { return l.heard[node].caughtUp }

// unsettled reports whether no change of the node's state is being written, and
// notes that one is from now on.
func (l *liveness) unsettled(node string) bool {
	if l.settling[node] {
		return false
	}
	l.settling[node] = true
	return true
}

// settled says that a change of the node's state has been written, or has not.
func (l *liveness) settled(node string) { delete(l.settling, node) }
