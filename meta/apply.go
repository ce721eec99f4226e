package meta

import (
	"fmt"
	"maps"
	"slices"
)

// InvariantError says that a batch or change would break a rule that holds for
// every image. The leader refuses such a change before it is written, so a
// follower that meets one has a damaged log or a bug, and must stop.
type InvariantError struct {
	Violation
}

func (e *InvariantError) Error() string { return "meta: invariant broken: " + e.Violation.String() }

// Apply returns the image after the batch, or an *InvariantError and no image.
// It takes over the batch's records: they must not be modified afterwards. It
// costs O(log n) for each record.
func (im *Image) Apply(b *Batch) (*Image, error) {
	if err := im.checkHeader(b); err != nil {
		return nil, err
	}
	next, err := im.derive(b.Upserts, b.Removals)
	if err != nil {
		return nil, fmt.Errorf("batch %d: %w", b.Offset, err)
	}
	next.next = b.Offset + 1
	next.epoch, next.term, next.time = b.Epoch, b.Term, b.Time
	return next, nil
}

// With returns the image as it will be once the change is part of a batch. The
// log position, epoch and time stay: the batch does not exist yet. The leader's
// writer evaluates the next change on it (DESIGN §4.2).
func (im *Image) With(c Change) (*Image, error) {
	next, err := im.derive(c.Upserts, c.Removals)
	if err != nil {
		return nil, err
	}
	if err := next.checkGone(im, c.Removals); err != nil {
		return nil, err
	}
	return next, nil
}

// checkHeader checks that the batch continues the log that im is the image of.
func (im *Image) checkHeader(b *Batch) error {
	switch {
	case b.Offset != im.next:
		return broken("I5", Key{}, "batch %d does not follow: the next is %d", b.Offset, im.next)
	case b.Epoch < im.epoch:
		return broken("I5", Key{}, "batch %d goes back from epoch %d to %d", b.Offset, im.epoch, b.Epoch)
	case b.Epoch == im.epoch && b.Term != im.term:
		return broken("I4", Key{}, "batch %d has another term in epoch %d", b.Offset, b.Epoch)
	case b.Time < im.time:
		return broken("I5", Key{}, "batch %d goes back in time from %d to %d", b.Offset, im.time, b.Time)
	}
	var leader *Leader
	for _, r := range b.Upserts {
		if l, ok := r.(*Leader); ok {
			leader = l
		}
	}
	switch {
	case leader == nil && b.Epoch > im.epoch:
		return broken("I4", Key{}, "batch %d opens epoch %d without a leader record", b.Offset, b.Epoch)
	case leader != nil && (b.Epoch == im.epoch || leader.Epoch != b.Epoch || leader.Term != b.Term):
		return broken("I4", leader.Key(), "batch %d of epoch %d holds the leader of epoch %d", b.Offset, b.Epoch, leader.Epoch)
	}
	return nil
}

// derivation is an image in the making.
type derivation struct {
	im     *Image
	forked map[string]nodeSegments // of nodes whose index is this image's own
	// What has been touched so far.
	upserted, removed map[Key]struct{}
}

func newDerivation(im *Image, upserts int) derivation {
	return derivation{
		im: im, forked: map[string]nodeSegments{},
		upserted: make(map[Key]struct{}, upserts), removed: map[Key]struct{}{},
	}
}

func (im *Image) derive(upserts []Record, removals []Key) (*Image, error) {
	im.lineage.Lock()
	defer im.lineage.Unlock()
	d := newDerivation(im.fork(), len(upserts))
	for _, k := range removals {
		if err := d.remove(k); err != nil {
			return nil, err
		}
	}
	for _, r := range upserts {
		if err := d.upsert(r); err != nil {
			return nil, err
		}
	}
	if err := d.checkTouched(); err != nil {
		return nil, err
	}
	return d.im, nil
}

// fork returns a copy whose trees can be changed without im noticing.
func (im *Image) fork() *Image {
	return &Image{
		lineage: im.lineage,
		next:    im.next, epoch: im.epoch, term: im.term, time: im.time,
		cluster: im.cluster, leader: im.leader,
		tables:     im.tables.fork(),
		configs:    im.configs.fork(),
		partitions: im.partitions.fork(),
		segments:   im.segments.fork(),
		tombstones: im.tombstones.fork(),
		nodes:      im.nodes.fork(),
		jobs:       im.jobs.fork(),
		index:      im.index.fork(),
	}
}

// touch notes the key, which must be new among those.
func touch(keys map[Key]struct{}, k Key) error {
	if _, dup := keys[k]; dup {
		return broken("batch", k, "occurs twice")
	}
	keys[k] = struct{}{}
	return nil
}

func (d *derivation) upsert(r Record) error {
	if err := touch(d.upserted, r.Key()); err != nil {
		return err
	}
	if err := d.im.checkSuccession(r); err != nil {
		return err
	}
	switch r := r.(type) {
	case *Cluster:
		d.im.cluster = r
	case *Leader:
		d.im.leader = r
	case *Table:
		d.im.tables.set(r.Name, r)
		d.im.tableIDs.set(r.ID, r)
		d.im.folded.set(fold(r.Name), r)
	case *TableConfig:
		d.im.configs.set(configKey{r.Table, r.Version}, r)
	case *Partition:
		d.im.partitions.set(r.PartitionKey(), r)
	case *Segment:
		old := d.im.segments.get(r.SegmentKey())
		d.im.segments.set(r.SegmentKey(), r)
		d.reindexSegment(old, r)
	case *Tombstone:
		d.im.tombstones.set(r.SegmentKey(), r)
	case *Node:
		d.im.nodes.set(r.ID, r)
	case *Job:
		d.im.jobs.set(r.ID, r)
	}
	return nil
}

func (d *derivation) remove(k Key) error {
	if err := touch(d.removed, k); err != nil {
		return err
	}
	switch r := d.im.Lookup(k).(type) {
	case *Table:
		d.im.tables.delete(r.Name)
		d.im.tableIDs.delete(r.ID)
		d.im.folded.delete(fold(r.Name))
	case *TableConfig:
		d.im.configs.delete(configKey{r.Table, r.Version})
	case *Partition:
		d.im.partitions.delete(r.PartitionKey())
	case *Segment:
		d.im.segments.delete(r.SegmentKey())
		d.reindexSegment(r, nil)
	case *Tombstone:
		d.im.tombstones.delete(r.SegmentKey())
	case *Node:
		d.im.nodes.delete(r.ID)
	case *Job:
		d.im.jobs.delete(r.ID)
	case nil:
		return broken("batch", k, "removed, but it does not exist")
	default:
		return broken("batch", k, "cannot be removed")
	}
	return nil
}

// checkTouched checks what has to hold between the touched records and their
// neighbours, once all of them are in place.
func (d *derivation) checkTouched() error {
	partitions := map[PartitionKey]struct{}{}
	var found []Violation
	touched := slices.AppendSeq(slices.Collect(maps.Keys(d.upserted)), maps.Keys(d.removed))
	slices.SortFunc(touched, Key.Compare)
	for _, k := range touched {
		pk := PartitionKey{k.Table, k.Partition}
		switch k.Kind {
		case KindPartition:
			partitions[pk] = struct{}{}
		case KindSegment:
			partitions[pk] = struct{}{}
			sk := pk.Segment(k.Num)
			for _, s := range []*Segment{d.im.before(sk), d.im.Segment(sk)} {
				if s != nil {
					found = append(found, d.im.checkSegment(d.im.Partition(s.Table, s.Partition), s, d.im.after(s.SegmentKey()))...)
				}
			}
		}
	}
	for _, pk := range slices.SortedFunc(maps.Keys(partitions), PartitionKey.Compare) {
		if p := d.im.partitions.get(pk); p != nil {
			found = append(found, d.im.checkPartition(p)...)
		}
	}
	if len(found) > 0 {
		return &InvariantError{found[0]}
	}
	return nil
}
