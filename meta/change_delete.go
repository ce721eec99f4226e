package meta

import (
	"math"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/segment"
)

// DeleteTable begins the end of a table: no segment follows those that it has, and
// DeleteNext takes all that it is.
func DeleteTable(id uuid.UUID) Func {
	return func(im *Image, now int64) (Change, error) {
		t := im.Table(id)
		switch {
		case t == nil:
			return refuse(CodeUnknownTable, "no table %s", id)
		case t.State == TableDeleting:
			return Change{}, nil
		}
		t = t.Clone()
		t.State, t.Pause, t.ConsumeFrom, t.LastError = TableDeleting, nil, FromLastConsumed, ""
		return upserts(t)
	}
}

// DeleteNext is the next step of the deletion of a table that is DELETING: first what
// is consuming, then what is committed, which leaves tombstones, then partitions and
// configurations, and at last the table, with which its name is free. objectKey is
// that of ExpireSegments.
//
// Tombstones outlive the table, so they keep the URI of its deep store.
func DeleteNext(id uuid.UUID, objectKey func(name string, d segment.Digest) (string, error)) Func {
	return func(im *Image, now int64) (Change, error) {
		t := im.Table(id)
		if t == nil || t.State != TableDeleting {
			return Change{}, nil
		}
		d := deletion{im: im, table: t, now: now, objectKey: objectKey}
		if cfg := im.CurrentConfig(id); cfg != nil && cfg.DeepStore != nil {
			d.store = cfg.DeepStore.URI
		}
		for _, part := range []func() error{d.consuming, d.committed, d.tombstones, d.partitions, d.configs, d.rest} {
			if err := part(); err != nil || d.items > 0 {
				return d.result(err)
			}
		}
		return Change{}, nil
	}
}

// deletion is a step of one in the making.
type deletion struct {
	step
	im        *Image
	table     *Table
	now       int64
	store     string // URI of the deep store, "" if there is none
	objectKey func(name string, d segment.Digest) (string, error)
}

// remove takes records while there is room.
func (d *deletion) remove(r Record, instead ...Record) (added bool, err error) {
	return d.add(Change{Upserts: instead, Removals: []Key{r.Key()}})
}

// consuming takes the segments that are IN_PROGRESS, so that all nodes stop early.
func (d *deletion) consuming() error {
	for p := range d.im.Partitions(d.table.ID) {
		if !p.State.consumes() {
			continue
		}
		c := Change{Upserts: []Record{p.Clone()}}
		c.Upserts[0].(*Partition).State = PartitionEnded
		if s := d.im.InProgress(p.PartitionKey()); s != nil {
			c.Removals = []Key{s.Key()}
		}
		if added, err := d.add(c); err != nil || !added {
			return err
		}
	}
	return nil
}

func (d *deletion) committed() error {
	for s := range d.im.TableSegments(d.table.ID) {
		tomb := &Tombstone{Table: s.Table, Partition: s.Partition, Seq: s.Seq, DeletedAt: d.now}
		if key, err := d.objectKey(s.Name, s.Digest); err == nil && (d.store != "" || s.inDeepStore()) {
			tomb.DeepStoreKeys, tomb.Store = []string{key}, d.store
		}
		if added, err := d.remove(s, tomb); err != nil || !added {
			return err
		}
	}
	return nil
}

// tombstones gives those that retention has left where their objects are.
func (d *deletion) tombstones() error {
	first := PartitionKey{d.table.ID, math.MinInt32}.Segment(math.MinInt64)
	for t := range d.im.TombstonesFrom(first) {
		if t.Table != d.table.ID {
			break
		}
		if len(t.DeepStoreKeys) == 0 || t.Store != "" || d.store == "" {
			continue
		}
		t = t.Clone()
		t.Store = d.store
		if added, err := d.add(Change{Upserts: []Record{t}}); err != nil || !added {
			return err
		}
	}
	return nil
}

func (d *deletion) partitions() error {
	for p := range d.im.Partitions(d.table.ID) {
		if added, err := d.remove(p); err != nil || !added {
			return err
		}
	}
	return nil
}

// configs takes the configurations but for the current one, which the table needs.
func (d *deletion) configs() error {
	for c := range d.im.TableConfigs(d.table.ID) {
		if c.Version == d.table.ConfigVersion {
			continue
		}
		if added, err := d.remove(c); err != nil || !added {
			return err
		}
	}
	return nil
}

func (d *deletion) rest() error {
	c := Change{Removals: []Key{d.table.Key()}}
	if current := d.im.TableConfig(d.table.ID, d.table.ConfigVersion); current != nil {
		c.Removals = append(c.Removals, current.Key())
	}
	_, err := d.add(c)
	return err
}
