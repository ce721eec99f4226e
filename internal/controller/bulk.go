package controller

import (
	"cmp"
	"fmt"
	"time"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/internal/schedule"
	"github.com/shoalstore/shoal/meta"
)

const (
	// bulkMax bounds the steps that are being written at once, of all bulk changes.
	bulkMax = 8
	// A step that came to nothing is tried again after a while that doubles.
	bulkRetryMin = time.Second
	bulkRetryMax = time.Minute
	// bulkEvery is how often something that stays (a table that is PAUSED, a node that
	// is DRAINING) is looked at again although nothing said that there is more to do.
	bulkEvery = time.Minute
)

// bulk are the tables and nodes whose state asks for changes of many records: a
// pause and a resume (pauses.go), a deletion (deletions.go), a drain (drains.go).
// Each takes one step at a time, and the one that has waited for longest comes first.
//
// A step is found by evaluating its function on the newest image: nothing is kept
// here that the image does not say, so that a new leader goes on where the last one
// was.
type bulk struct {
	work    map[bulkKey]*bulkWork
	due     *schedule.Queue[bulkKey] // those without a step under way
	writing int
}

// bulkKey is the table or the node that it is about.
type bulkKey struct {
	table tableID
	node  string
}

func (k bulkKey) compare(o bulkKey) int {
	return cmp.Or(compareIDs(k.table, o.table), cmp.Compare(k.node, o.node))
}

type bulkWork struct {
	wait       time.Duration // before the last try that was put off
	starts     *starts       // of a resume
	shortSince time.Duration // since when a drain has waited for nodes, 0: not so
}

// bulkStep is what comes next. Without a function the state asks for nothing.
type bulkStep struct {
	what  string
	next  meta.Func
	later bool // it has to wait a little
	stays bool // the state, when nothing is left to do
}

func newBulk() bulk {
	return bulk{work: map[bulkKey]*bulkWork{}, due: schedule.New(bulkKey.compare)}
}

func (b *bulk) forget(k bulkKey) {
	delete(b.work, k)
	b.due.Remove(k)
}

// takeUp has a table or node looked at now. One with a step under way is looked at
// after that anyway.
func (m *Machine) takeUp(k bulkKey) {
	b := &m.bulk
	switch w := b.work[k]; {
	case w == nil:
		b.work[k] = &bulkWork{}
	case !b.due.Has(k) || w.wait > 0:
		return
	}
	b.due.Set(k, m.now.Mono)
}

// startBulk takes the steps that are due, while there is room.
func (m *Machine) startBulk() {
	for m.bulk.writing < bulkMax {
		k, ok := m.bulk.due.Due(m.now.Mono)
		if !ok {
			return
		}
		m.bulk.due.Remove(k)
		m.stepBulk(k, m.bulk.work[k])
	}
}

func (m *Machine) stepBulk(k bulkKey, w *bulkWork) {
	s := m.nextStep(k)
	if s.next == nil {
		m.bulk.forget(k)
		return
	}
	if s.later {
		m.bulk.due.Set(k, m.now.Mono+bulkRetryMin)
		return
	}
	c, err := s.next(m.image, m.now.Wall)
	switch {
	case err == nil && c.Empty() && s.stays:
		w.wait = 0
		m.bulk.due.Set(k, m.now.Mono+bulkEvery)
	case err == nil && c.Empty():
		m.bulk.forget(k)
	case k.node == "" && m.needsStarts(k, w):
		m.listStarts(k, w)
	default:
		m.writeBulk(k, fmt.Sprintf("%s: %d records", s.what, len(c.Upserts)+len(c.Removals)), s.next)
	}
}

// nextStep goes by the state of the table or the node.
func (m *Machine) nextStep(k bulkKey) bulkStep {
	if k.node != "" {
		return m.drainStep(m.image.Node(k.node))
	}
	switch t := m.image.Table(k.table); {
	case t == nil:
		return bulkStep{}
	case t.State == meta.TablePaused:
		return pauseStep(t)
	case t.State == meta.TableActive:
		return m.resumeStep(t)
	case t.State == meta.TableDeleting:
		return deletionStep(t)
	}
	return bulkStep{}
}

func (m *Machine) writeBulk(k bulkKey, what string, fn meta.Func) {
	m.bulk.writing++
	m.write(effect{purpose: forBulk, bulk: k}, what, fn)
}

// bulkWrote goes on at once if the step got somewhere.
func (m *Machine) bulkWrote(e effect, ev Wrote) {
	m.bulk.writing--
	w := m.bulk.work[e.bulk]
	if ev.Outcome != commit.Written {
		m.retryBulk(e.bulk, w)
		return
	}
	w.wait = 0
	m.bulk.due.Set(e.bulk, m.now.Mono)
}

func (m *Machine) retryBulk(k bulkKey, w *bulkWork) {
	w.wait = min(max(2*w.wait, bulkRetryMin), bulkRetryMax)
	m.bulk.due.Set(k, m.now.Mono+w.wait)
}
