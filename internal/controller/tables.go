package controller

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/stream"
)

// tableID is the id of a table, or of a job.
type tableID = uuid.UUID

const (
	// listEvery is how often an ACTIVE table's stream is asked for new
	// partitions; a table that is being made asks again after createRetry.
	listEvery   = time.Minute
	createRetry = time.Second
	// partitionsPerBatch bounds one batch of new partitions, so that a table of
	// ten thousand is made in many small steps, any of which may be the last
	// before a crash.
	partitionsPerBatch = 200
	// placeWait is how long a new table waits for nodes that are UP but have not
	// caught up, before it is placed without them.
	placeWait = 30 * time.Second
)

// tableWork is what is under way for a table.
type tableWork struct {
	due   time.Duration
	since time.Duration // when it was first worked on
	busy  bool          // its stream is being listed, or a change is being written
}

// reviewTable takes up a table. What is due is done at the next Tick.
func (m *Machine) reviewTable(t *meta.Table) {
	w := m.tables[t.ID]
	switch t.State {
	case meta.TableCreating, meta.TableActive:
		if w == nil {
			m.tables[t.ID] = &tableWork{due: m.now.Mono, since: m.now.Mono}
			m.listDueTables()
		}
	default:
		if w != nil && !w.busy {
			delete(m.tables, t.ID)
		}
	}
}

// listDueTables asks the streams of the tables that are due.
func (m *Machine) listDueTables() {
	for _, id := range slices.SortedFunc(maps.Keys(m.tables), compareIDs) {
		w := m.tables[id]
		if w.busy || w.due > m.now.Mono {
			continue
		}
		t, cfg := m.image.Table(id), m.image.CurrentConfig(id)
		if t == nil || cfg == nil || t.State != meta.TableCreating && t.State != meta.TableActive {
			delete(m.tables, id)
			continue
		}
		w.busy = true
		m.do(ListPartitions{Table: id, Stream: cfg.Stream})
	}
}

// listed takes the partitions of a table's stream: those that the table does
// not have are added, and a table that has them all becomes ACTIVE.
func (m *Machine) listed(ev Listed) {
	w, t := m.tables[ev.Table], m.image.Table(ev.Table)
	if w == nil || !w.busy {
		return // of an earlier leadership
	}
	switch {
	case t == nil:
		delete(m.tables, ev.Table)
	case ev.Err != nil:
		m.tableFailed(t, ev.Err.Error())
	case t.State == meta.TableCreating && len(ev.Partitions) == 0:
		m.tableFailed(t, "the stream has no partitions yet")
	default:
		m.growTable(t, ev.Partitions)
	}
}

// growTable takes the next step of a table whose stream has these partitions.
func (m *Machine) growTable(t *meta.Table, partitions []stream.Partition) {
	inits, shortOf := m.place(t, partitions)
	switch {
	case shortOf != "":
		m.tableFailed(t, shortOf)
	case len(inits) > 0:
		m.writeTable(t, fmt.Sprintf("%d partitions of %s", len(inits), t.Name), meta.AddPartitions(t.ID, inits))
	case t.State == meta.TableCreating:
		var all []int32
		for _, p := range partitions {
			all = append(all, p.Partition)
		}
		m.writeTable(t, "activate "+t.Name, meta.ActivateTable(t.ID, all))
	case t.LastError != "":
		m.writeTable(t, "", meta.SetTableError(t.ID, ""))
	default:
		m.topUp(t)
	}
}

// place chooses replicas for the first batch of partitions that the table does
// not have. If it cannot yet, it says what is missing.
func (m *Machine) place(t *meta.Table, partitions []stream.Partition) (inits []meta.PartitionInit, shortOf string) {
	var fresh []stream.Partition
	for _, p := range partitions {
		if m.image.Partition(t.ID, p.Partition) == nil && len(fresh) < partitionsPerBatch {
			fresh = append(fresh, p)
		}
	}
	if len(fresh) == 0 {
		return nil, ""
	}
	up, ready := 0, 0
	for n := range m.image.Nodes() {
		if n.State == meta.NodeUp {
			up++
			if m.live.caughtUp(n.ID) {
				ready++
			}
		}
	}
	replication := m.image.CurrentConfig(t.ID).Replication
	waited := m.now.Mono-m.tables[t.ID].since > placeWait
	switch {
	case ready == 0:
		return nil, fmt.Sprintf("no node is ready to consume: %d are UP, none has caught up with the metadata", up)
	case ready < min(up, replication) && !waited:
		return nil, fmt.Sprintf("%d of %d nodes that are UP are catching up with the metadata", up-ready, up)
	}
	placer := meta.NewPlacer(m.image, func(n *meta.Node) bool { return m.live.caughtUp(n.ID) })
	for _, p := range fresh {
		inits = append(inits, meta.PartitionInit{
			Partition: p.Partition, StreamEpoch: p.Epoch, Start: p.Earliest, Replicas: placer.Place(replication),
		})
	}
	return inits, ""
}

// topUp gives one partition that has fewer replicas than its table wants the
// nodes that came since. Its segments from the next one on have them too.
func (m *Machine) topUp(t *meta.Table) {
	replication := m.image.CurrentConfig(t.ID).Replication
	placer := meta.NewPlacer(m.image, func(n *meta.Node) bool { return m.live.caughtUp(n.ID) })
	for p := range m.image.Partitions(t.ID) {
		if len(p.Replicas) >= replication {
			continue
		}
		if replicas := placer.Place(replication, p.Replicas...); len(replicas) > len(p.Replicas) {
			m.writeTable(t, fmt.Sprintf("more replicas for partition %d of %s", p.Partition, t.Name),
				meta.SetReplicas(p.PartitionKey(), replicas, nil))
			return
		}
	}
	m.rest(t.ID, listEvery)
}

// tableFailed keeps the reason in the table's record, and tries again later.
func (m *Machine) tableFailed(t *meta.Table, why string) {
	if t.LastError != why {
		m.writeTable(t, "", meta.SetTableError(t.ID, why))
		return
	}
	m.rest(t.ID, createRetry)
}

func (m *Machine) writeTable(t *meta.Table, what string, fn meta.Func) {
	m.write(writing{purpose: forTable, id: t.ID}, what, fn)
}

// rest ends a table's step.
func (m *Machine) rest(id tableID, pause time.Duration) {
	w := m.tables[id]
	w.busy = false
	w.due = m.now.Mono + pause
}

// tableWrote goes on with the table at once if the step got somewhere.
func (m *Machine) tableWrote(w writing, ev Wrote) {
	if m.tables[w.id] == nil {
		return
	}
	pause := createRetry
	if t := m.image.Table(w.id); ev.Err == nil && t != nil && t.LastError == "" {
		pause = 0
	}
	m.rest(w.id, pause)
	m.listDueTables()
}
