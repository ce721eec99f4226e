package controller

import (
	"maps"
	"slices"
	"time"

	"github.com/shoalstore/shoal/internal/schedule"
)

// checkQueue are the checks that wait, table by table: of two tables the one with
// fewer looks under way comes first, and a table has a bounded number of them, so that
// one whose store hangs does not hold up the others.
type checkQueue struct {
	tables map[tableID]*tableChecks
	n      int
}

type tableChecks struct {
	waiting *schedule.Queue[checkKey]
	running int // looks under way
}

func newCheckQueue() *checkQueue { return &checkQueue{tables: map[tableID]*tableChecks{}} }

// Len is how many wait.
func (q *checkQueue) Len() int { return q.n }

// of is how many wait of one table.
func (q *checkQueue) of(id tableID) int {
	if t := q.tables[id]; t != nil {
		return t.waiting.Len()
	}
	return 0
}

func (q *checkQueue) table(id tableID) *tableChecks {
	t := q.tables[id]
	if t == nil {
		t = &tableChecks{waiting: schedule.New(checkKey.compare)}
		q.tables[id] = t
	}
	return t
}

// change does something to a table's queue, and forgets a table of which nothing is left.
func (q *checkQueue) change(id tableID, do func(*tableChecks)) {
	t := q.table(id)
	before := t.waiting.Len()
	do(t)
	q.n += t.waiting.Len() - before
	if t.waiting.Len() == 0 && t.running == 0 {
		delete(q.tables, id)
	}
}

// Set has a check wait until it is due.
func (q *checkQueue) Set(k checkKey, due time.Duration) {
	q.change(k.segment.Table, func(t *tableChecks) { t.waiting.Set(k, due) })
}

// Remove takes a check out, if it is in.
func (q *checkQueue) Remove(k checkKey) {
	q.change(k.segment.Table, func(t *tableChecks) { t.waiting.Remove(k) })
}

// ran counts a look of a table that begins (1) or has ended (-1).
func (q *checkQueue) ran(id tableID, by int) {
	q.change(id, func(t *tableChecks) { t.running += by })
}

// Due returns the check that may start next.
func (q *checkQueue) Due(now time.Duration) (next checkKey, ok bool) {
	fewest := checksPerTable
	for _, id := range slices.SortedFunc(maps.Keys(q.tables), compareIDs) {
		t := q.tables[id]
		if t.running >= fewest {
			continue
		}
		if k, due := t.waiting.Due(now); due {
			next, ok, fewest = k, true, t.running
		}
	}
	return next, ok
}
