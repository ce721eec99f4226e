package meta

import (
	"bytes"
	"cmp"
	"fmt"
	"strconv"

	"github.com/google/uuid"
)

// Kind says which type of record a key names. The numbers are on disk, and
// their order is the order of records in an image and in a snapshot.
type Kind uint8

// The kinds of records.
const (
	KindCluster     Kind = 1
	KindLeader      Kind = 2
	KindTable       Kind = 3
	KindTableConfig Kind = 4
	KindPartition   Kind = 5
	KindSegment     Kind = 6
	KindTombstone   Kind = 7
	KindNode        Kind = 8
	KindJob         Kind = 9
)

var kindNames = [...]string{
	KindCluster:     "cluster",
	KindLeader:      "leader",
	KindTable:       "table",
	KindTableConfig: "tableConfig",
	KindPartition:   "partition",
	KindSegment:     "segment",
	KindTombstone:   "tombstone",
	KindNode:        "node",
	KindJob:         "job",
}

// Valid reports whether the kind is one of the above.
func (k Kind) Valid() bool { return k >= KindCluster && k <= KindJob }

// String returns the kind in the words of the documentation.
func (k Kind) String() string {
	if !k.Valid() {
		return "kind " + strconv.Itoa(int(k))
	}
	return kindNames[k]
}

// Key names one record. It is comparable, and Compare orders keys by kind and
// then by the fields that the kind uses; the others are zero:
//
//	cluster, leader            –
//	table, node, job           Name (of a job: its id)
//	tableConfig                Table, Num (version)
//	partition                  Table, Partition
//	segment, tombstone         Table, Partition, Num (seq)
type Key struct {
	Kind      Kind
	Table     uuid.UUID
	Name      string
	Partition int32
	Num       int64
}

// Compare returns −1, 0 or +1 as k sorts before, with or after o.
func (k Key) Compare(o Key) int {
	return cmp.Or(
		cmp.Compare(k.Kind, o.Kind),
		bytes.Compare(k.Table[:], o.Table[:]),
		cmp.Compare(k.Name, o.Name),
		cmp.Compare(k.Partition, o.Partition),
		cmp.Compare(k.Num, o.Num),
	)
}

// String shows the key in messages, for example "segment <table id>/3/17".
func (k Key) String() string {
	switch k.Kind {
	case KindTable, KindNode, KindJob:
		return fmt.Sprintf("%s %s", k.Kind, k.Name)
	case KindTableConfig:
		return fmt.Sprintf("%s %s/%d", k.Kind, k.Table, k.Num)
	case KindPartition:
		return fmt.Sprintf("%s %s/%d", k.Kind, k.Table, k.Partition)
	case KindSegment, KindTombstone:
		return fmt.Sprintf("%s %s/%d/%d", k.Kind, k.Table, k.Partition, k.Num)
	default:
		return k.Kind.String()
	}
}

// PartitionKey names a partition of a table.
type PartitionKey struct {
	Table     uuid.UUID
	Partition int32
}

// Compare orders partitions by table, then number.
func (k PartitionKey) Compare(o PartitionKey) int {
	return cmp.Or(
		bytes.Compare(k.Table[:], o.Table[:]),
		cmp.Compare(k.Partition, o.Partition),
	)
}

// Key returns the key of the partition's record.
func (k PartitionKey) Key() Key {
	return Key{Kind: KindPartition, Table: k.Table, Partition: k.Partition}
}

// Segment returns the key of the partition's segment with that number.
func (k PartitionKey) Segment(seq int64) SegmentKey {
	return SegmentKey{Table: k.Table, Partition: k.Partition, Seq: seq}
}

// String shows the partition in messages.
func (k PartitionKey) String() string { return fmt.Sprintf("%s/%d", k.Table, k.Partition) }

// SegmentKey is the identity of a segment; its name is only a label.
type SegmentKey struct {
	Table     uuid.UUID
	Partition int32
	Seq       int64
}

// Compare orders segments by table, partition and sequence number.
func (k SegmentKey) Compare(o SegmentKey) int {
	return cmp.Or(
		bytes.Compare(k.Table[:], o.Table[:]),
		cmp.Compare(k.Partition, o.Partition),
		cmp.Compare(k.Seq, o.Seq),
	)
}

// Key returns the key of the segment's record.
func (k SegmentKey) Key() Key {
	return Key{Kind: KindSegment, Table: k.Table, Partition: k.Partition, Num: k.Seq}
}

// PartitionKey returns the partition that the segment is of.
func (k SegmentKey) PartitionKey() PartitionKey {
	return PartitionKey{Table: k.Table, Partition: k.Partition}
}

// String shows the segment in messages.
func (k SegmentKey) String() string {
	return fmt.Sprintf("%s/%d/%d", k.Table, k.Partition, k.Seq)
}

// Key returns the record's key.
func (*Cluster) Key() Key { return Key{Kind: KindCluster} }

// Key returns the record's key.
func (*Leader) Key() Key { return Key{Kind: KindLeader} }

// Key returns the record's key: a table is kept under its name, as written.
func (t *Table) Key() Key { return Key{Kind: KindTable, Name: t.Name} }

// Key returns the record's key.
func (c *TableConfig) Key() Key {
	return Key{Kind: KindTableConfig, Table: c.Table, Num: int64(c.Version)}
}

// Key returns the record's key.
func (p *Partition) Key() Key { return p.PartitionKey().Key() }

// PartitionKey returns which partition the record is of.
func (p *Partition) PartitionKey() PartitionKey {
	return PartitionKey{Table: p.Table, Partition: p.Partition}
}

// Key returns the record's key.
func (s *Segment) Key() Key { return s.SegmentKey().Key() }

// SegmentKey returns which segment the record is of.
func (s *Segment) SegmentKey() SegmentKey {
	return SegmentKey{Table: s.Table, Partition: s.Partition, Seq: s.Seq}
}

// Key returns the record's key.
func (t *Tombstone) Key() Key {
	return Key{Kind: KindTombstone, Table: t.Table, Partition: t.Partition, Num: t.Seq}
}

// SegmentKey returns which segment was deleted.
func (t *Tombstone) SegmentKey() SegmentKey {
	return SegmentKey{Table: t.Table, Partition: t.Partition, Seq: t.Seq}
}

// Key returns the record's key.
func (n *Node) Key() Key { return Key{Kind: KindNode, Name: n.ID} }

// Key returns the record's key.
func (j *Job) Key() Key { return Key{Kind: KindJob, Name: j.ID.String()} }
