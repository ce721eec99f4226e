package meta

import (
	"iter"
	"math"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/tidwall/btree"
)

// index is what an image keeps beside its records to answer, without looking
// at every segment, the questions that are asked again and again. It holds
// pointers to the same records, about 12 bytes for each answer.
type index struct {
	tableIDs keyed[uuid.UUID, *Table]
	folded   keyed[string, *Table] // by name in lower case
	byNode   keyed[string, nodeSegments]
	// awaiting holds the DONE segments without a verified deep-store copy.
	awaiting segmentSet
}

// nodeSegments are the segments that a node has to do with.
type nodeSegments struct {
	naming    segmentSet // as replica or in a location, whatever the status
	consuming segmentSet // as replica, IN_PROGRESS
}

// segmentSet is a set of segment records by key, shared like keyed.
type segmentSet struct{ tree *btree.BTreeG[*Segment] }

func newSegmentSet() segmentSet {
	less := func(a, b *Segment) bool { return a.SegmentKey().Compare(b.SegmentKey()) < 0 }
	return segmentSet{btree.NewBTreeGOptions(less, btree.Options{Degree: treeDegree, NoLocks: true})}
}

func (s segmentSet) fork() segmentSet { return segmentSet{s.tree.Copy()} }

// keep makes the set hold seg's key, with its newest record, or not hold it.
func (s segmentSet) keep(seg *Segment, in bool) {
	if in {
		s.tree.Set(seg)
	} else {
		s.tree.Delete(seg)
	}
}

func (s segmentSet) all() iter.Seq[*Segment] {
	return func(yield func(*Segment) bool) {
		if s.tree != nil {
			s.tree.Scan(yield)
		}
	}
}

func newIndex() index {
	return index{
		tableIDs: newKeyed[uuid.UUID, *Table](compareUUIDs),
		folded:   newKeyed[string, *Table](strings.Compare),
		byNode:   newKeyed[string, nodeSegments](strings.Compare),
		awaiting: newSegmentSet(),
	}
}

func (x index) fork() index {
	return index{
		tableIDs: x.tableIDs.fork(),
		folded:   x.folded.fork(),
		byNode:   x.byNode.fork(),
		awaiting: x.awaiting.fork(),
	}
}

// SegmentsNaming yields the segments that name the node among their replicas
// or locations, by key: what it should hold, and what it is listed to hold.
func (im *Image) SegmentsNaming(node string) iter.Seq[*Segment] {
	return im.byNode.get(node).naming.all()
}

// SegmentsConsuming yields the IN_PROGRESS segments that name the node as a
// replica, by key.
func (im *Image) SegmentsConsuming(node string) iter.Seq[*Segment] {
	return im.byNode.get(node).consuming.all()
}

// SegmentsListed yields the segments that have a location on the node, in
// whichever store, by key. It costs as much as SegmentsNaming.
func (im *Image) SegmentsListed(node string) iter.Seq[*Segment] {
	return func(yield func(*Segment) bool) {
		for s := range im.SegmentsNaming(node) {
			if s.NodeLocation(node) != nil && !yield(s) {
				return
			}
		}
	}
}

// SegmentsAwaitingDeepStore yields the DONE segments that have no verified
// deep-store copy, by key. Those of tables without a deep store are among them.
func (im *Image) SegmentsAwaitingDeepStore() iter.Seq[*Segment] { return im.awaiting.all() }

// TableSegmentsAwaitingDeepStore is SegmentsAwaitingDeepStore of one table; it does
// not cost what other tables have.
func (im *Image) TableSegmentsAwaitingDeepStore(id uuid.UUID) iter.Seq[*Segment] {
	return func(yield func(*Segment) bool) {
		first := &Segment{Table: id, Partition: math.MinInt32, Seq: math.MinInt64}
		im.awaiting.tree.Ascend(first, func(s *Segment) bool { return s.Table == id && yield(s) })
	}
}

// NodeLocation returns the segment's location on the node, or nil.
func (s *Segment) NodeLocation(node string) *Location {
	for i := range s.Locations {
		if l := &s.Locations[i]; l.Node == node && l.URI == "" {
			return l
		}
	}
	return nil
}

// DeepStoreVerified reports whether a deep-store copy has been verified.
func (s *Segment) DeepStoreVerified() bool {
	return slices.ContainsFunc(s.Locations, func(l Location) bool { return l.URI != "" && l.Verified })
}

// appendNames appends the nodes among the segment's replicas and locations that are not
// in names already.
func (s *Segment) appendNames(names []string) []string {
	add := func(node string) {
		if !slices.Contains(names, node) {
			names = append(names, node)
		}
	}
	for _, n := range s.Replicas {
		add(n)
	}
	for _, l := range s.Locations {
		if l.URI == "" {
			add(l.Node)
		}
	}
	return names
}

// reindexSegment replaces old by new in the index; either is nil when the
// segment is created or removed.
func (d *derivation) reindexSegment(old, new *Segment) {
	either := old
	var buf [namesUsual]string
	all := buf[:0]
	if new != nil {
		either = new
		all = new.appendNames(all)
	}
	named := len(all) // by new
	if old != nil {
		all = old.appendNames(all)
	}
	for i, node := range all {
		sets := d.nodeSets(node)
		sets.naming.keep(either, i < named)
		sets.consuming.keep(either, new != nil && new.isConsuming(node))
	}
	d.im.awaiting.keep(either, new != nil && new.isAwaiting())
}

// namesUsual is how many nodes a segment names without an allocation.
const namesUsual = 2 * MaxReplication

// indexSegment takes a segment into the index that is not in it. It costs little if no
// later one is.
func (d *derivation) indexSegment(s *Segment) {
	var buf [namesUsual]string
	for _, node := range s.appendNames(buf[:0]) {
		sets := d.nodeSets(node)
		sets.naming.tree.Load(s)
		if s.isConsuming(node) {
			sets.consuming.tree.Load(s)
		}
	}
	if s.isAwaiting() {
		d.im.awaiting.tree.Load(s)
	}
}

func (s *Segment) isConsuming(node string) bool {
	return s.Status == SegmentInProgress && slices.Contains(s.Replicas, node)
}

func (s *Segment) isAwaiting() bool { return s.Status == SegmentDone && !s.DeepStoreVerified() }

// nodeSets returns the node's sets for writing: copies, made once per
// derivation.
func (d *derivation) nodeSets(node string) nodeSegments {
	if sets, ok := d.forked[node]; ok {
		return sets
	}
	sets := d.im.byNode.get(node)
	if sets.naming.tree == nil {
		sets = nodeSegments{naming: newSegmentSet(), consuming: newSegmentSet()}
	} else {
		sets = nodeSegments{naming: sets.naming.fork(), consuming: sets.consuming.fork()}
	}
	d.forked[node] = sets
	d.im.byNode.set(node, sets)
	return sets
}

func fold(name string) string { return strings.ToLower(name) }
