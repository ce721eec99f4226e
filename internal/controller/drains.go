package controller

import (
	"slices"

	"github.com/shoalstore/shoal/meta"
)

// drainStep moves partitions away from a node that is DRAINING, and has what it
// consumes end. That its sealed copies are made elsewhere too, and then released, is
// the validation manager's; until then they stay where they are, and do not count.
func (m *Machine) drainStep(n *meta.Node) bulkStep {
	if n == nil || n.State != meta.NodeDraining {
		return bulkStep{}
	}
	return bulkStep{
		what: "drain of " + n.ID, next: meta.DrainNext(n.ID, m.readyNodes()), stays: true,
		later: m.awaitsNodes(m.bulk.work[bulkKey{node: n.ID}]),
	}
}

// awaitsNodes reports whether a drain has to wait for nodes that are UP and have not
// caught up, as all have not when a leadership begins: without them partitions would
// be left with fewer replicas than there are nodes for. It waits for a while only.
func (m *Machine) awaitsNodes(w *bulkWork) bool {
	up := 0
	for n := range m.image.Nodes() {
		if n.State == meta.NodeUp {
			up++
		}
	}
	if len(m.readyNodes()) == up {
		w.shortSince = 0
		return false
	}
	if w.shortSince == 0 {
		w.shortSince = max(m.now.Mono, 1)
	}
	return m.now.Mono-w.shortSince <= placeWait
}

// reviewDrains takes up the nodes among these that are to have nothing more to do
// with a partition.
func (m *Machine) reviewDrains(replicas []string) {
	for _, id := range replicas {
		if n := m.image.Node(id); n != nil && n.State == meta.NodeDraining {
			m.takeUp(bulkKey{node: id})
		}
	}
}

// reviewReplicas is reviewDrains of a partition, or of a segment that consumes and
// was not asked to end.
func (m *Machine) reviewReplicas(r meta.Record) {
	switch r := r.(type) {
	case *meta.Partition:
		m.reviewDrains(r.Replicas)
	case *meta.Segment:
		if r.Status == meta.SegmentInProgress && r.EndRequested == nil {
			m.reviewDrains(r.Replicas)
		}
	}
}

// retryDrains has the nodes that wait for others looked at: one is ready now.
func (m *Machine) retryDrains() {
	var waiting []bulkKey
	for k := range m.bulk.work {
		if k.node != "" && m.bulk.due.Has(k) {
			waiting = append(waiting, k)
		}
	}
	slices.SortFunc(waiting, bulkKey.compare)
	for _, k := range waiting {
		m.takeUp(k)
	}
}
