package controller

import (
	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/meta"
)

// deletionStep takes the next records of a table that is DELETING. Nothing is left
// of it but tombstones when the last step is written; what becomes of those is
// retention's (retention.go), whose grace they live out.
func deletionStep(t *meta.Table) bulkStep {
	return bulkStep{what: "deletion of " + t.Name, next: meta.DeleteNext(t.ID, deepstore.DataKey)}
}

// claim says whether a segment that lives has an object.
type claim int

const (
	unclaimed claim = iota
	undecided       // the segment of that name is not committed: its object may be this one
	claimed
)

// claimOf says what the image knows of the object under a key. Keys have names in them,
// so a table that was made under the name of one that was deleted could have a segment
// of the same name, had its clock gone back by as much as the first one lived; the
// digest tells the objects apart, unless the rows are the same too.
func claimOf(im *meta.Image, key string) claim {
	k, err := deepstore.ParseKey(key)
	if err != nil {
		return unclaimed
	}
	t := im.TableByName(k.Name.Table)
	if t == nil {
		return unclaimed
	}
	s := im.Segment(meta.PartitionKey{Table: t.ID, Partition: k.Name.Partition}.Segment(k.Name.Seq))
	switch {
	case s == nil || s.Name != k.Name.String():
		return unclaimed
	case s.Status == meta.SegmentInProgress:
		return undecided
	case s.Digest.Short() != k.Short:
		return unclaimed
	}
	return claimed
}
