package sim

import (
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/meta"
)

// The rules of what operators do to whole tables: pauses that skip, and deletions.

// isDeleting reports whether a table is being deleted in an image, by a batch before
// the one that is looked at.
func (k *checker) isDeleting(im *meta.Image, table uuid.UUID) bool {
	t := im.Table(table)
	return t != nil && t.State == meta.TableDeleting
}

// tableChanged: a table goes only if somebody said so, and for good.
func (k *checker) tableChanged(before *meta.Image, name string) {
	was, is := before.TableByName(name), k.image.TableByName(name)
	switch {
	case was == nil:
		return
	case is == nil || is.ID != was.ID:
		k.c.w.count.outcomes["table deleted"]++
		if was.State != meta.TableDeleting {
			k.fail("I2", "table %s was %s, and is gone", name, was.State)
		}
	case was.State == meta.TableDeleting && is.State != meta.TableDeleting:
		k.fail("I2", "table %s was DELETING, and is %s", name, is.State)
	case is.State == meta.TableDeleting && !k.mayGo[is.ID]:
		k.fail("I2", "table %s is DELETING, and nobody wants it to", name)
	}
}

// partitionChanged: offsets are skipped only where a resume said so.
func (k *checker) partitionChanged(before *meta.Image, key meta.PartitionKey) {
	was, is := before.Partition(key.Table, key.Partition), k.image.Partition(key.Table, key.Partition)
	if was == nil || is == nil || slices.Equal(was.Holes, is.Holes) {
		return
	}
	k.c.w.count.outcomes["offsets skipped by a resume"]++
	t := before.Table(key.Table)
	if t == nil || t.State == meta.TableActive && t.ConsumeFrom == meta.FromLastConsumed {
		k.fail("I1", "partition %d has holes %v, it had %v, and nobody wanted to skip", key.Partition, is.Holes, was.Holes)
	}
}

// uploaded notes an object that comes when its segment has gone and the grace is over:
// whoever uploads it began before, and was away. It may come after the last look of
// the leader; collecting such orphans is validation's.
func (k *checker) uploaded(key string) {
	parsed, err := deepstore.ParseKey(key)
	if err != nil || parsed.Name.Table != otherName {
		return
	}
	for _, id := range k.c.others {
		sk := meta.PartitionKey{Table: id, Partition: parsed.Name.Partition}.Segment(parsed.Name.Seq)
		d, committed := k.digests[sk]
		if k.c.names[sk] != parsed.Name.String() || committed && d.Short() != parsed.Short {
			continue // of a table of this name that came before, or after: a clock that jumps makes even names alike
		}
		if t := k.image.Tombstone(sk); k.image.Segment(sk) != nil || t != nil && !t.Expired {
			return
		}
	}
	k.late[key] = true
}

// leftOfOthers says what is left of the tables that were deleted: in the end nothing,
// on no node (simNode.unrest) and not in the deep store.
func (c *cluster) leftOfOthers() string {
	for _, id := range c.others {
		if !c.isGone(id) {
			return fmt.Sprintf("table %s is to be made and deleted", id)
		}
		for t := range c.check.image.Tombstones() {
			if t.Table == id {
				return fmt.Sprintf("there is a tombstone of segment %s of a table that is gone", t.SegmentKey())
			}
		}
	}
	if len(c.others) == 0 {
		return ""
	}
	for _, sk := range slices.SortedFunc(maps.Keys(c.check.digests), meta.SegmentKey.Compare) {
		if !slices.Contains(c.others, sk.Table) {
			continue
		}
		key, err := deepstore.DataKey(c.names[sk], c.check.digests[sk])
		if err != nil {
			return err.Error()
		}
		for _, key := range []string{key, deepstore.PiecesKey(key)} {
			if c.objects.of[key] != nil && !c.check.late[key] {
				return fmt.Sprintf("%s is in the deep store, and its table is gone", key)
			}
		}
	}
	return ""
}
