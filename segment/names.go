package segment

import (
	"bytes"
	"hash/maphash"
)

// nameSet finds a name that occurs twice in one object of a JSON text. One
// table serves all objects of a text, so that a row costs no allocation. The
// hash has a random seed, which no answer depends on: it only spreads the names,
// against rows made to collide.
type nameSet struct {
	seed    maphash.Seed
	names   []objectName
	table   []int32 // 1 + index in names, or 0; open addressing
	objects int
}

type objectName struct {
	hash   uint64
	object int
	name   []byte
}

const (
	minNameTable = 256
	// maxNameTable is what a set keeps from one row to the next. A row with more
	// names than usual must not make every later one clear a huge table.
	maxNameTable = 8192
)

func (n *nameSet) reset() {
	if len(n.names) == 0 && len(n.table) != 0 {
		n.objects = 0
		return
	}
	switch {
	case len(n.table) == 0:
		n.seed = maphash.MakeSeed()
		n.table = make([]int32, minNameTable)
	case len(n.table) > maxNameTable:
		n.names = nil
		n.table = make([]int32, minNameTable)
	default:
		clear(n.table)
	}
	clear(n.names)
	n.names, n.objects = n.names[:0], 0
}

// object returns the number of a new object.
func (n *nameSet) object() int {
	n.objects++
	return n.objects
}

// add reports whether the name is new in the object. The set keeps the name.
func (n *nameSet) add(object int, name []byte) bool {
	if 2*len(n.names) >= len(n.table) {
		n.grow()
	}
	hash := maphash.Bytes(n.seed, name) ^ uint64(object)*0x9e3779b97f4a7c15
	for i := n.slot(hash); ; i = (i + 1) & (len(n.table) - 1) {
		if n.table[i] == 0 {
			n.names = append(n.names, objectName{hash, object, name})
			n.table[i] = int32(len(n.names))
			return true
		}
		e := &n.names[n.table[i]-1]
		if e.hash == hash && e.object == object && bytes.Equal(e.name, name) {
			return false
		}
	}
}

func (n *nameSet) slot(hash uint64) int { return int(hash) & (len(n.table) - 1) }

func (n *nameSet) grow() {
	n.table = make([]int32, 2*len(n.table))
	for k := range n.names {
		i := n.slot(n.names[k].hash)
		for n.table[i] != 0 {
			i = (i + 1) & (len(n.table) - 1)
		}
		n.table[i] = int32(k + 1)
	}
}
