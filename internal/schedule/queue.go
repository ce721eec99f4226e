// Package schedule keeps keys by the moment from which they are due, so that a
// machine finds what it may start at a cost that does not grow with all that
// waits. It decides nothing and knows no clock: the same calls give the same
// answers, which is what a replay needs.
package schedule

import (
	"cmp"
	"time"

	"github.com/tidwall/btree"
)

// Queue is a set of keys, each due from a moment on. Keys that are due at the
// same moment come in their own order. It is not safe for concurrent use.
type Queue[K comparable] struct {
	due     map[K]time.Duration
	entries *btree.BTreeG[entry[K]]
}

type entry[K comparable] struct {
	due time.Duration
	key K
}

// New returns an empty queue of keys that compare orders.
func New[K comparable](compare func(a, b K) int) *Queue[K] {
	less := func(a, b entry[K]) bool { return cmp.Or(cmp.Compare(a.due, b.due), compare(a.key, b.key)) < 0 }
	return &Queue[K]{
		due:     map[K]time.Duration{},
		entries: btree.NewBTreeGOptions(less, btree.Options{NoLocks: true}),
	}
}

// Set makes the key due from the moment on, whatever it was before.
func (q *Queue[K]) Set(k K, due time.Duration) {
	old, queued := q.due[k]
	if queued && old == due {
		return
	}
	if queued {
		q.entries.Delete(entry[K]{old, k})
	}
	q.due[k] = due
	q.entries.Set(entry[K]{due, k})
}

// Remove takes the key out, if it is in.
func (q *Queue[K]) Remove(k K) {
	if due, queued := q.due[k]; queued {
		delete(q.due, k)
		q.entries.Delete(entry[K]{due, k})
	}
}

// Due returns the key that has been due for longest, and leaves it in.
func (q *Queue[K]) Due(now time.Duration) (k K, ok bool) {
	first, any := q.entries.Min()
	if !any || first.due > now {
		return k, false
	}
	return first.key, true
}

// Has reports whether the key is in, due or not.
func (q *Queue[K]) Has(k K) bool {
	_, queued := q.due[k]
	return queued
}

// Is reports whether the key is in, and due from that moment on.
func (q *Queue[K]) Is(k K, due time.Duration) bool {
	at, queued := q.due[k]
	return queued && at == due
}

// Len is how many keys are in, due or not.
func (q *Queue[K]) Len() int { return len(q.due) }
