package meta

import (
	"maps"
	"slices"
)

// Record is one of *Cluster, *Leader, *Table, *TableConfig, *Partition,
// *Segment, *Tombstone, *Node and *Job; no other package can add one.
type Record interface {
	// Key returns the name under which the image keeps the record.
	Key() Key
	// trim turns empty slices and maps into nil ones, so that a record that
	// went through either encoding equals itself, field by field.
	trim()
}

// newRecord returns an empty record of the kind, nil if there is no such kind.
func newRecord(k Kind) Record {
	switch k {
	case KindCluster:
		return new(Cluster)
	case KindLeader:
		return new(Leader)
	case KindTable:
		return new(Table)
	case KindTableConfig:
		return new(TableConfig)
	case KindPartition:
		return new(Partition)
	case KindSegment:
		return new(Segment)
	case KindTombstone:
		return new(Tombstone)
	case KindNode:
		return new(Node)
	case KindJob:
		return new(Job)
	default:
		return nil
	}
}

// The Clone methods return copies that share nothing that can be changed with
// the original.

// Clone returns a copy that may be changed.
func (c *Cluster) Clone() *Cluster { return shallow(c) }

// Clone returns a copy that may be changed.
func (l *Leader) Clone() *Leader { return shallow(l) }

// Clone returns a copy that may be changed.
func (t *Table) Clone() *Table {
	c := shallow(t)
	c.Pause = shallow(t.Pause)
	return c
}

// Clone returns a copy that may be changed.
func (c *TableConfig) Clone() *TableConfig {
	n := shallow(c)
	n.Config = *c.Config.Clone()
	return n
}

// Clone returns a copy that may be changed.
func (c *Config) Clone() *Config {
	n := shallow(c)
	n.Format.KeepValue = shallow(c.Format.KeepValue)
	n.Format.Columns = slices.Clone(c.Format.Columns)
	n.DeepStore = shallow(c.DeepStore)
	return n
}

// Clone returns a copy that may be changed.
func (p *Partition) Clone() *Partition {
	c := shallow(p)
	c.Replicas = slices.Clone(p.Replicas)
	c.Holes = slices.Clone(p.Holes)
	return c
}

// Clone returns a copy that may be changed.
func (s *Segment) Clone() *Segment {
	c := shallow(s)
	c.Replicas = slices.Clone(s.Replicas)
	c.Locations = slices.Clone(s.Locations)
	c.EndRequested = shallow(s.EndRequested)
	c.LastError = shallow(s.LastError)
	return c
}

// Clone returns a copy that may be changed.
func (t *Tombstone) Clone() *Tombstone {
	c := shallow(t)
	c.DeepStoreKeys = slices.Clone(t.DeepStoreKeys)
	return c
}

// Clone returns a copy that may be changed.
func (n *Node) Clone() *Node {
	c := shallow(n)
	c.Tags = slices.Clone(n.Tags)
	return c
}

// Clone returns a copy that may be changed.
func (j *Job) Clone() *Job {
	c := shallow(j)
	c.Args = maps.Clone(j.Args)
	c.Counts = maps.Clone(j.Counts)
	return c
}

func shallow[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}

func (*Cluster) trim() {}
func (*Leader) trim()  {}
func (*Table) trim()   {}

func (c *TableConfig) trim() { c.Config.Format.Columns = trimmed(c.Config.Format.Columns) }

func (p *Partition) trim() {
	p.Replicas = trimmed(p.Replicas)
	p.Holes = trimmed(p.Holes)
}

func (s *Segment) trim() {
	s.Replicas = trimmed(s.Replicas)
	s.Locations = trimmed(s.Locations)
}

func (t *Tombstone) trim() { t.DeepStoreKeys = trimmed(t.DeepStoreKeys) }
func (n *Node) trim()      { n.Tags = trimmed(n.Tags) }

func (j *Job) trim() {
	if len(j.Args) == 0 {
		j.Args = nil
	}
	if len(j.Counts) == 0 {
		j.Counts = nil
	}
}

func trimmed[T any](s []T) []T {
	if len(s) == 0 {
		return nil
	}
	return s
}
