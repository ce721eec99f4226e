package controller

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/stream"
)

// starts is where the partitions of a table's stream begin or end, listed once for
// a resume that goes by it.
type starts struct {
	from meta.ConsumeFrom
	at   map[int32]int64
}

func pauseStep(t *meta.Table) bulkStep {
	return bulkStep{what: "pause of " + t.Name, next: meta.PauseNext(t.ID), stays: true}
}

func (m *Machine) resumeStep(t *meta.Table) bulkStep {
	var at map[int32]int64
	if w := m.bulk.work[bulkKey{table: t.ID}]; w.starts != nil && w.starts.from == t.ConsumeFrom {
		at = w.starts.at
	}
	return bulkStep{what: "resume of " + t.Name, next: meta.ResumeNext(t.ID, at, m.readyNodes())}
}

// readyNodes are those that get new work: UP, and caught up.
func (m *Machine) readyNodes() (ids []string) {
	for n := range m.image.Nodes() {
		if n.State == meta.NodeUp && m.live.caughtUp(n.ID) {
			ids = append(ids, n.ID)
		}
	}
	return ids
}

// needsStarts reports whether the table is resumed from where its stream begins or
// ends, and that has not been asked yet.
func (m *Machine) needsStarts(k bulkKey, w *bulkWork) bool {
	t := m.image.Table(k.table)
	return t.State == meta.TableActive && t.ConsumeFrom != meta.FromLastConsumed && (w.starts == nil || w.starts.from != t.ConsumeFrom)
}

// listStarts asks the stream of a table, when there is room.
func (m *Machine) listStarts(k bulkKey, w *bulkWork) {
	cfg := m.image.CurrentConfig(k.table)
	if m.tables.lists == listsMax || cfg == nil {
		m.retryBulk(k, w)
		return
	}
	m.tables.lists++
	e := effect{purpose: forStarts, bulk: k, from: m.image.Table(k.table).ConsumeFrom}
	m.do(ListPartitions{ID: m.begin(e), Table: k.table, Stream: cfg.Stream})
}

// startsListed takes what the stream says. A partition of another stream than the
// table has consumed, and one that is not there, goes on where it was: what the
// stream says of it means nothing, and whoever consumes it finds out.
func (m *Machine) startsListed(e effect, ev Listed) {
	m.tables.lists--
	k, w := e.bulk, m.bulk.work[e.bulk]
	if ev.Err != nil {
		m.startsFailed(k, w, fmt.Sprintf("resume from the %s offset: %v", e.from, ev.Err))
		return
	}
	w.starts = &starts{from: e.from, at: startsOf(m.image, k.table, e.from, ev.Partitions)}
	w.wait = 0
	m.bulk.due.Set(k, m.now.Mono)
}

func startsOf(im *meta.Image, table uuid.UUID, from meta.ConsumeFrom, listed []stream.Partition) map[int32]int64 {
	at := map[int32]int64{}
	for _, l := range listed {
		switch p := im.Partition(table, l.Partition); {
		case p == nil || p.StreamEpoch != l.Epoch:
		case from == meta.FromSmallest:
			at[l.Partition] = l.Earliest
		case from == meta.FromLargest:
			at[l.Partition] = l.End
		}
	}
	return at
}

// startsFailed shows why in the table's record, and tries again later. The error
// goes when the stream is listed for new partitions.
func (m *Machine) startsFailed(k bulkKey, w *bulkWork, why string) {
	m.retryBulk(k, w)
	if t := m.image.Table(k.table); t != nil && t.LastError != why {
		m.write(effect{purpose: forNobody}, "", meta.SetTableError(k.table, why))
	}
}
