package meta

import (
	"iter"

	"github.com/tidwall/btree"
)

// treeDegree makes nodes of at most 31 entries: small enough that replacing
// one entry copies few bytes, large enough that the tree stays shallow.
const treeDegree = 16

// keyed is an ordered map whose copies share what neither has changed since.
// Copying a tree marks it, so copies of related images are made one at a time
// (Image.lineage); reading never writes and needs no lock.
type keyed[K, V any] struct {
	tree *btree.BTreeG[entry[K, V]]
}

type entry[K, V any] struct {
	key   K
	value V
}

func newKeyed[K, V any](compare func(a, b K) int) keyed[K, V] {
	less := func(a, b entry[K, V]) bool { return compare(a.key, b.key) < 0 }
	return keyed[K, V]{btree.NewBTreeGOptions(less, btree.Options{Degree: treeDegree, NoLocks: true})}
}

func (t keyed[K, V]) fork() keyed[K, V] { return keyed[K, V]{t.tree.Copy()} }

// get returns the zero value, a nil pointer for records, when k is not there.
func (t keyed[K, V]) get(k K) V {
	e, _ := t.tree.Get(entry[K, V]{key: k})
	return e.value
}

func (t keyed[K, V]) set(k K, v V) { t.tree.Set(entry[K, V]{key: k, value: v}) }

// load is set, faster if k comes after all keys that are there, and reports whether it has
// replaced a value.
func (t keyed[K, V]) load(k K, v V) (replaced bool) {
	_, replaced = t.tree.Load(entry[K, V]{key: k, value: v})
	return replaced
}

func (t keyed[K, V]) delete(k K) bool {
	_, ok := t.tree.Delete(entry[K, V]{key: k})
	return ok
}

func (t keyed[K, V]) all() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		t.tree.Scan(func(e entry[K, V]) bool { return yield(e.key, e.value) })
	}
}

// from yields the entries from k on, k included.
func (t keyed[K, V]) from(k K) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		t.tree.Ascend(entry[K, V]{key: k}, func(e entry[K, V]) bool { return yield(e.key, e.value) })
	}
}

// back yields the entries from k down, k included.
func (t keyed[K, V]) back(k K) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		t.tree.Descend(entry[K, V]{key: k}, func(e entry[K, V]) bool { return yield(e.key, e.value) })
	}
}

// values drops the keys of s.
func values[K, V any](s iter.Seq2[K, V]) iter.Seq[V] {
	return func(yield func(V) bool) {
		for _, v := range s {
			if !yield(v) {
				return
			}
		}
	}
}

// during yields the values of s as long as their keys satisfy in.
func during[K, V any](s iter.Seq2[K, V], in func(K) bool) iter.Seq[V] {
	return func(yield func(V) bool) {
		for k, v := range s {
			if !in(k) || !yield(v) {
				return
			}
		}
	}
}
