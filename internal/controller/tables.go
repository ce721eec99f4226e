package controller

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/internal/schedule"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/stream"
)

type tableID = uuid.UUID

const (
	// listsMax bounds the streams that are asked for their partitions at once.
	listsMax = 16
	// listEvery is how often an ACTIVE table's stream is asked for new
	// partitions.
	listEvery = time.Minute
	// A step that fails is tried again after a while that doubles: up to
	// createRetryMax for a table that is being made, listEvery for another.
	tableRetryMin  = time.Second
	createRetryMax = 10 * time.Second
	// partitionsPerBatch bounds one batch of partitions, so that a table of ten
	// thousand is made in many small steps, any of which may be the last before a
	// crash, and that one request to ZooKeeper holds with the longest names.
	partitionsPerBatch = 50
	// placeWait is how long new partitions wait for nodes that are UP but have not
	// caught up, before they are placed without them.
	placeWait = 30 * time.Second
)

// tables are the steps of tables on their way to ACTIVE, and of those that may
// grow. Each table takes one step at a time; those that wait for their next one
// are in due.
type tables struct {
	work  map[tableID]*tableWork
	due   *schedule.Queue[tableID]
	lists int // under way
}

// tableWork is where a table is.
type tableWork struct {
	// partitions are what the stream has, as listed for the steps under way.
	partitions []stream.Partition
	wait       time.Duration // before the last try that was put off
	// shortSince is since when new partitions have waited for nodes, 0: not so.
	shortSince time.Duration
}

func newTables() tables {
	return tables{work: map[tableID]*tableWork{}, due: schedule.New(compareIDs)}
}

// isResting reports whether no step of the table is under way.
func (ts *tables) isResting(id tableID) bool { return ts.due.Has(id) }

func (ts *tables) forget(id tableID) {
	delete(ts.work, id)
	ts.due.Remove(id)
}

func isGrowing(t *meta.Table) bool {
	return t != nil && (t.State == meta.TableCreating || t.State == meta.TableActive)
}

// reviewTable takes up a table, or drops one that does not grow. A step that is
// under way comes to an end of itself.
func (m *Machine) reviewTable(t *meta.Table) {
	m.takeUp(bulkKey{table: t.ID})
	switch {
	case isGrowing(t) && m.tables.work[t.ID] == nil:
		m.tables.work[t.ID] = &tableWork{}
		m.tables.due.Set(t.ID, m.now.Mono)
	case !isGrowing(t) && m.tables.isResting(t.ID):
		m.tables.forget(t.ID)
	}
}

// startLists asks the streams of the tables that are due, while there is room.
func (m *Machine) startLists() {
	for m.tables.lists < listsMax {
		id, ok := m.tables.due.Due(m.now.Mono)
		if !ok {
			return
		}
		cfg := m.image.CurrentConfig(id)
		if cfg == nil || !isGrowing(m.image.Table(id)) {
			m.tables.forget(id)
			continue
		}
		m.tables.due.Remove(id)
		m.tables.lists++
		m.do(ListPartitions{ID: m.begin(effect{purpose: forList, id: id}), Table: id, Stream: cfg.Stream})
	}
}

// listed takes the partitions of a table's stream: those that the table does
// not have are added, and a table that has them all becomes ACTIVE.
func (m *Machine) listed(e effect, ev Listed) {
	m.tables.lists--
	switch t := m.image.Table(e.id); {
	case !isGrowing(t):
		m.tables.forget(e.id)
	case ev.Err != nil:
		m.tableFailed(t, ev.Err.Error())
	case t.State == meta.TableCreating && len(ev.Partitions) == 0:
		m.tableFailed(t, "the stream has no partitions yet")
	default:
		m.tables.work[e.id].partitions = ev.Partitions
		m.growTable(t)
	}
}

// growTable takes the next step of a table whose stream has been listed.
func (m *Machine) growTable(t *meta.Table) {
	inits, shortOf := m.place(t)
	switch {
	case shortOf != "":
		m.tableFailed(t, shortOf)
	case len(inits) > 0:
		m.stepTable(t, fmt.Sprintf("%d partitions of %s", len(inits), t.Name), meta.AddPartitions(t.ID, inits))
	case t.State == meta.TableCreating:
		var all []int32
		for _, p := range m.tables.work[t.ID].partitions {
			all = append(all, p.Partition)
		}
		m.stepTable(t, "activate "+t.Name, meta.ActivateTable(t.ID, all))
	case t.LastError != "":
		m.stepTable(t, "", meta.SetTableError(t.ID, ""))
	case !m.topUp(t):
		m.tables.work[t.ID].shortSince = 0
		m.rest(t.ID, listEvery)
	}
}

// place chooses replicas for the first batch of the listed partitions that the
// table does not have. If it cannot yet, it says what is missing.
func (m *Machine) place(t *meta.Table) (inits []meta.PartitionInit, shortOf string) {
	w := m.tables.work[t.ID]
	var fresh []stream.Partition
	for _, p := range w.partitions {
		if m.image.Partition(t.ID, p.Partition) == nil && len(fresh) < partitionsPerBatch {
			fresh = append(fresh, p)
		}
	}
	if len(fresh) == 0 {
		return nil, ""
	}
	replication := m.image.CurrentConfig(t.ID).Replication
	if shortOf := m.shortOfNodes(w, replication); shortOf != "" {
		return nil, shortOf
	}
	placer := m.placer()
	for _, p := range fresh {
		inits = append(inits, meta.PartitionInit{
			Partition: p.Partition, StreamEpoch: p.Epoch, Start: p.Earliest, Replicas: placer.Place(replication),
		})
	}
	return inits, ""
}

// placer places on the nodes that are UP and have caught up.
func (m *Machine) placer() *meta.Placer {
	return meta.NewPlacer(m.image, func(n *meta.Node) bool { return m.live.caughtUp(n.ID) })
}

// shortOfNodes says what is missing if new partitions have to wait for nodes: for
// one at least, and for a while for all that are about to be there.
func (m *Machine) shortOfNodes(w *tableWork, replication int) string {
	up, ready := 0, 0
	for n := range m.image.Nodes() {
		if n.State == meta.NodeUp {
			up++
			if m.live.caughtUp(n.ID) {
				ready++
			}
		}
	}
	if ready >= min(up, replication) && ready > 0 {
		w.shortSince = 0
		return ""
	}
	if w.shortSince == 0 {
		w.shortSince = max(m.now.Mono, 1)
	}
	switch {
	case ready == 0:
		return fmt.Sprintf("no node is ready to consume: %d are UP, none has caught up with the metadata", up)
	case m.now.Mono-w.shortSince <= placeWait:
		return fmt.Sprintf("%d of %d nodes that are UP are catching up with the metadata", up-ready, up)
	}
	return "" // it has waited for long enough, for all of its new partitions
}

// nodeReady gives a node that was not ready before to the tables that have too few,
// or none yet, and to those that are drained.
func (m *Machine) nodeReady() {
	m.retryDrains()
	for _, id := range slices.SortedFunc(maps.Keys(m.tables.work), compareIDs) {
		switch t := m.image.Table(id); {
		case !isGrowing(t) || !m.tables.isResting(id):
		case m.tables.work[id].shortSince > 0:
			m.tables.due.Set(id, m.now.Mono)
		case t.State == meta.TableActive && m.topUp(t):
			m.tables.due.Remove(id)
		}
	}
}

// topUp gives partitions that have fewer replicas than their table wants the
// nodes that came since. It reports whether there are any.
func (m *Machine) topUp(t *meta.Table) bool {
	replication := m.image.CurrentConfig(t.ID).Replication
	placer := m.placer()
	var changes []meta.Func
	for p := range m.image.Partitions(t.ID) {
		if len(p.Replicas) >= replication || len(changes) == partitionsPerBatch {
			continue
		}
		if replicas := placer.Place(replication, p.Replicas...); len(replicas) > len(p.Replicas) {
			changes = append(changes, meta.SetReplicas(p.PartitionKey(), replicas, nil))
		}
	}
	if len(changes) == 0 {
		return false
	}
	m.stepTable(t, fmt.Sprintf("more replicas for %d partitions of %s", len(changes), t.Name), together(changes))
	return true
}

// together makes one change of several that touch different records.
func together(fns []meta.Func) meta.Func {
	return func(im *meta.Image, now int64) (all meta.Change, err error) {
		for _, fn := range fns {
			c, err := fn(im, now)
			if err != nil {
				return meta.Change{}, err
			}
			all.Upserts = append(all.Upserts, c.Upserts...)
			all.Removals = append(all.Removals, c.Removals...)
		}
		return all, nil
	}
}

// tableFailed keeps the reason in the table's record, and tries again later.
func (m *Machine) tableFailed(t *meta.Table, why string) {
	if t.LastError != why {
		m.write(effect{purpose: forTable, id: t.ID}, "", meta.SetTableError(t.ID, why))
		return
	}
	m.retryTable(t)
}

func (m *Machine) stepTable(t *meta.Table, what string, fn meta.Func) {
	m.write(effect{purpose: forTable, id: t.ID, step: true}, what, fn)
}

// rest ends a table's steps until its stream is asked again.
func (m *Machine) rest(id tableID, pause time.Duration) {
	m.tables.work[id].partitions = nil
	m.tables.due.Set(id, m.now.Mono+pause)
}

func (m *Machine) retryTable(t *meta.Table) {
	w, most := m.tables.work[t.ID], listEvery
	if t.State == meta.TableCreating {
		most = createRetryMax
	}
	w.wait = min(max(2*w.wait, tableRetryMin), most)
	m.rest(t.ID, w.wait)
}

// tableWrote goes on with the table at once if the step got somewhere.
func (m *Machine) tableWrote(e effect, ev Wrote) {
	switch t := m.image.Table(e.id); {
	case !isGrowing(t):
		m.tables.forget(e.id)
	case e.step && ev.Outcome == commit.Written:
		m.tables.work[e.id].wait = 0
		m.growTable(t)
	default:
		m.retryTable(t)
	}
}
