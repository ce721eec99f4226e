package meta

import (
	"bytes"
	"cmp"
	"iter"
	"math"
	"strings"
	"sync"

	"github.com/google/uuid"
)

// Image is the state that results from applying the batches [0, Next()) in
// order. It never changes: Apply returns another one, which shares all that the
// batch did not touch. Any number of goroutines may read any number of images
// while others are derived from them.
//
// The records that an image returns belong to it and must not be modified:
// Clone them.
type Image struct {
	// lineage is held while an image is derived from this one or from any
	// that shares trees with it: copying a tree writes a mark into it, which
	// readers never look at.
	lineage *sync.Mutex

	next  int64
	epoch int64
	term  uuid.UUID
	time  int64

	cluster    *Cluster
	leader     *Leader
	tables     keyed[string, *Table] // by name
	configs    keyed[configKey, *TableConfig]
	partitions keyed[PartitionKey, *Partition]
	segments   keyed[SegmentKey, *Segment]
	tombstones keyed[SegmentKey, *Tombstone]
	nodes      keyed[string, *Node]
	jobs       keyed[uuid.UUID, *Job]

	index
}

type configKey struct {
	table   uuid.UUID
	version int
}

func compareConfigKeys(a, b configKey) int {
	return cmp.Or(compareUUIDs(a.table, b.table), cmp.Compare(a.version, b.version))
}

func compareUUIDs(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }

// Empty returns the image before the first batch.
func Empty() *Image {
	return &Image{
		lineage:    new(sync.Mutex),
		tables:     newKeyed[string, *Table](strings.Compare),
		configs:    newKeyed[configKey, *TableConfig](compareConfigKeys),
		partitions: newKeyed[PartitionKey, *Partition](PartitionKey.Compare),
		segments:   newKeyed[SegmentKey, *Segment](SegmentKey.Compare),
		tombstones: newKeyed[SegmentKey, *Tombstone](SegmentKey.Compare),
		nodes:      newKeyed[string, *Node](strings.Compare),
		jobs:       newKeyed[uuid.UUID, *Job](compareUUIDs),
		index:      newIndex(),
	}
}

// Next returns the offset after the last batch applied.
func (im *Image) Next() int64 { return im.next }

// Epoch returns the epoch of the last batch, 0 before the first.
func (im *Image) Epoch() int64 { return im.epoch }

// LastTerm returns the term of the last batch.
func (im *Image) LastTerm() uuid.UUID { return im.term }

// LastTime returns the time of the last batch, in milliseconds since the epoch.
func (im *Image) LastTime() int64 { return im.time }

// Cluster returns the cluster's identity, nil before it is founded.
func (im *Image) Cluster() *Cluster { return im.cluster }

// Leader returns the latest leader, nil before the first.
func (im *Image) Leader() *Leader { return im.leader }

// Table returns the table with the id, or nil.
func (im *Image) Table(id uuid.UUID) *Table { return im.tableIDs.get(id) }

// TableByName returns the table with the name, whatever its case, or nil.
func (im *Image) TableByName(name string) *Table { return im.folded.get(fold(name)) }

// Tables yields the tables by name.
func (im *Image) Tables() iter.Seq[*Table] { return values(im.tables.all()) }

// TableConfig returns that version of the table's configuration, or nil.
func (im *Image) TableConfig(id uuid.UUID, version int) *TableConfig {
	return im.configs.get(configKey{id, version})
}

// CurrentConfig returns the configuration that the table's next segments get,
// or nil.
func (im *Image) CurrentConfig(id uuid.UUID) *Config {
	t := im.Table(id)
	if t == nil {
		return nil
	}
	c := im.TableConfig(id, t.ConfigVersion)
	if c == nil {
		return nil
	}
	return &c.Config
}

// TableConfigs yields the versions of the table's configuration that are kept.
func (im *Image) TableConfigs(id uuid.UUID) iter.Seq[*TableConfig] {
	return during(im.configs.from(configKey{table: id, version: math.MinInt}), func(k configKey) bool { return k.table == id })
}

// Partition returns the record of a partition, or nil.
func (im *Image) Partition(id uuid.UUID, partition int32) *Partition {
	return im.partitions.get(PartitionKey{id, partition})
}

// Partitions yields the table's partitions by number.
func (im *Image) Partitions(id uuid.UUID) iter.Seq[*Partition] {
	return during(im.partitions.from(PartitionKey{id, math.MinInt32}), func(k PartitionKey) bool { return k.Table == id })
}

// Segment returns the record of a segment, or nil.
func (im *Image) Segment(k SegmentKey) *Segment { return im.segments.get(k) }

// Segments yields the partition's segments by sequence number.
func (im *Image) Segments(id uuid.UUID, partition int32) iter.Seq[*Segment] {
	return im.SegmentsFrom(id, partition, math.MinInt64)
}

// SegmentsFrom is Segments from sequence number seq on, seq included.
func (im *Image) SegmentsFrom(id uuid.UUID, partition int32, seq int64) iter.Seq[*Segment] {
	pk := PartitionKey{id, partition}
	return during(im.segments.from(pk.Segment(seq)), func(k SegmentKey) bool { return k.PartitionKey() == pk })
}

// TableSegments yields all segments of the table, by partition and sequence
// number.
func (im *Image) TableSegments(id uuid.UUID) iter.Seq[*Segment] {
	first := PartitionKey{id, math.MinInt32}.Segment(math.MinInt64)
	return during(im.segments.from(first), func(k SegmentKey) bool { return k.Table == id })
}

// LastSegment returns the partition's segment with the highest sequence
// number, or nil. No other can be IN_PROGRESS.
func (im *Image) LastSegment(k PartitionKey) *Segment {
	return im.before(k.Segment(math.MaxInt64))
}

// InProgress returns the partition's segment that is IN_PROGRESS, or nil.
func (im *Image) InProgress(k PartitionKey) *Segment {
	if s := im.LastSegment(k); s != nil && s.Status == SegmentInProgress {
		return s
	}
	return nil
}

// before returns the partition's last segment below k, or nil.
func (im *Image) before(k SegmentKey) *Segment {
	for key, s := range im.segments.back(k) {
		switch {
		case key == k:
			continue
		case key.PartitionKey() == k.PartitionKey():
			return s
		default:
			return nil
		}
	}
	return nil
}

// after returns the partition's first segment above k, or nil.
func (im *Image) after(k SegmentKey) *Segment {
	for key, s := range im.segments.from(k) {
		switch {
		case key == k:
			continue
		case key.PartitionKey() == k.PartitionKey():
			return s
		default:
			return nil
		}
	}
	return nil
}

// Tombstone returns the record of a deleted segment, or nil.
func (im *Image) Tombstone(k SegmentKey) *Tombstone { return im.tombstones.get(k) }

// Tombstones yields all tombstones by key.
func (im *Image) Tombstones() iter.Seq[*Tombstone] { return values(im.tombstones.all()) }

// TombstonesFrom is Tombstones from a key on, the key included.
func (im *Image) TombstonesFrom(k SegmentKey) iter.Seq[*Tombstone] {
	return values(im.tombstones.from(k))
}

// Node returns the record of a node, or nil.
func (im *Image) Node(id string) *Node { return im.nodes.get(id) }

// Nodes yields the nodes by id.
func (im *Image) Nodes() iter.Seq[*Node] { return values(im.nodes.all()) }

// Job returns the record of a job, or nil.
func (im *Image) Job(id uuid.UUID) *Job { return im.jobs.get(id) }

// Jobs yields the jobs by id.
func (im *Image) Jobs() iter.Seq[*Job] { return values(im.jobs.all()) }

// JobsFrom is Jobs from an id on, the id included.
func (im *Image) JobsFrom(id uuid.UUID) iter.Seq[*Job] { return values(im.jobs.from(id)) }

// Lookup returns the record with the key, nil (and no typed nil) if there is
// none.
func (im *Image) Lookup(k Key) Record {
	sk := SegmentKey{k.Table, k.Partition, k.Num}
	switch k.Kind {
	case KindCluster:
		return present(im.cluster)
	case KindLeader:
		return present(im.leader)
	case KindTable:
		return present(im.tables.get(k.Name))
	case KindTableConfig:
		return present(im.configs.get(configKey{k.Table, int(k.Num)}))
	case KindPartition:
		return present(im.partitions.get(sk.PartitionKey()))
	case KindSegment:
		return present(im.segments.get(sk))
	case KindTombstone:
		return present(im.tombstones.get(sk))
	case KindNode:
		return present(im.nodes.get(k.Name))
	case KindJob:
		return present(im.jobs.get(jobID(k)))
	default:
		return nil
	}
}

// present keeps a nil pointer from becoming a Record that is not nil.
func present[T any, R interface {
	*T
	Record
}](r R) Record {
	if r == nil {
		return nil
	}
	return r
}

// jobID returns the id in a job's key; no job has the zero id.
func jobID(k Key) uuid.UUID {
	id, err := uuid.Parse(k.Name)
	if err != nil || id.String() != k.Name {
		return uuid.UUID{}
	}
	return id
}

// Len returns the number of records.
func (im *Image) Len() int {
	n := im.tables.tree.Len() + im.configs.tree.Len() + im.partitions.tree.Len() +
		im.segments.tree.Len() + im.tombstones.tree.Len() + im.nodes.tree.Len() + im.jobs.tree.Len()
	if im.cluster != nil {
		n++
	}
	if im.leader != nil {
		n++
	}
	return n
}

// Records yields every record, sorted by Key.
func (im *Image) Records() iter.Seq[Record] {
	return func(yield func(Record) bool) {
		if im.cluster != nil && !yield(im.cluster) {
			return
		}
		if im.leader != nil && !yield(im.leader) {
			return
		}
		_ = emit(im.tables, yield) && emit(im.configs, yield) && emit(im.partitions, yield) &&
			emit(im.segments, yield) && emit(im.tombstones, yield) && emit(im.nodes, yield) &&
			emit(im.jobs, yield)
	}
}

func emit[K any, V Record](t keyed[K, V], yield func(Record) bool) bool {
	for _, r := range t.all() {
		if !yield(r) {
			return false
		}
	}
	return true
}
