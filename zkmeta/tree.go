package zkmeta

import (
	"fmt"
	"iter"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
)

// TreeError says that a znode is not what the tree must have there. Nothing is
// changed because of it: a person has to look.
type TreeError struct {
	Path   string // below the root, or absolute
	Reason string
	Err    error // may be nil
}

func (e *TreeError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("zkmeta: znode %s: %s: %v", e.Path, e.Reason, e.Err)
	}
	return fmt.Sprintf("zkmeta: znode %s: %s", e.Path, e.Reason)
}

func (e *TreeError) Unwrap() error { return e.Err }

// recordOps says how the znodes of the records become those after the batch, base
// being the image before it: paths are below the root. What makes room comes first:
// removals, then the directories that are empty by them, then new directories, then
// the records.
func recordOps(base *meta.Image, b *meta.Batch) ([]Op, error) {
	written := make(map[meta.Key]bool, len(b.Upserts))
	for _, r := range b.Upserts {
		written[r.Key()] = true
	}
	removed := make(map[meta.Key]bool, len(b.Removals))
	var ops []Op
	for _, k := range b.Removals {
		if removed[k] = !written[k]; removed[k] {
			ops = append(ops, Op{Kind: OpDelete, Path: recordPath(k), Version: -1})
		}
	}
	born, gone := directoryChanges(base, written, removed)
	for _, d := range slices.Backward(gone) {
		ops = append(ops, Op{Kind: OpDelete, Path: d, Version: -1})
	}
	for _, d := range born {
		ops = append(ops, Op{Kind: OpCreate, Path: d})
	}
	for _, r := range b.Upserts {
		data, err := meta.EncodeRecordJSON(r)
		if err != nil {
			return nil, err
		}
		op := Op{Kind: OpCreate, Path: recordPath(r.Key()), Data: data}
		if base.Lookup(r.Key()) != nil {
			op.Kind, op.Version = OpSet, -1
		}
		ops = append(ops, op)
	}
	return ops, nil
}

// directoryChanges lists the directories that a batch makes and those it leaves
// empty, parents first.
func directoryChanges(base *meta.Image, written, removed map[meta.Key]bool) (born, gone []string) {
	filled, emptied := map[directory]bool{}, map[directory]bool{}
	for k := range written {
		for _, d := range dirsOf(k) {
			filled[d] = true
		}
	}
	for k, really := range removed {
		for _, d := range dirsOf(k) {
			emptied[d] = emptied[d] || really
		}
	}
	for d := range filled {
		if isEmpty(d.keys(base), nil) {
			born = append(born, d.path())
		}
	}
	for d, really := range emptied {
		if really && !filled[d] && isEmpty(d.keys(base), removed) {
			gone = append(gone, d.path())
		}
	}
	byDepth := func(a, b string) int {
		if n := strings.Count(a, "/") - strings.Count(b, "/"); n != 0 {
			return n
		}
		return strings.Compare(a, b)
	}
	slices.SortFunc(born, byDepth)
	slices.SortFunc(gone, byDepth)
	return born, gone
}

// isEmpty reports whether nothing is among keys but what is removed. It looks no
// further than the first that stays.
func isEmpty(keys iter.Seq[meta.Key], removed map[meta.Key]bool) bool {
	for k := range keys {
		if !removed[k] {
			return false
		}
	}
	return true
}

// keys yields the keys of the records below the directory.
func (d directory) keys(im *meta.Image) iter.Seq[meta.Key] {
	first := meta.PartitionKey{Table: d.table, Partition: d.partition}.Segment(d.bucket * bucketSeqs)
	switch d.depth {
	case 1:
		first.Partition, first.Seq = math.MinInt32, math.MinInt64
	case 2:
		first.Seq = math.MinInt64
	}
	switch d.kind {
	case meta.KindTableConfig:
		return keysOf(im.TableConfigs(d.table))
	case meta.KindPartition:
		return keysOf(im.Partitions(d.table))
	case meta.KindSegment:
		switch d.depth {
		case 1:
			return keysOf(im.TableSegments(d.table))
		default:
			return while(keysOf(im.SegmentsFrom(d.table, d.partition, first.Seq)), d.holds)
		}
	case meta.KindTombstone:
		return while(keysOf(im.TombstonesFrom(first)), d.holds)
	default:
		return while(keysOf(im.JobsFrom(uuid.UUID{byte(d.bucket)})), d.holds)
	}
}

// holds reports whether a record of the directory's kind is below it.
func (d directory) holds(k meta.Key) bool { return slices.Contains(dirsOf(k), d) }

func keysOf[R meta.Record](records iter.Seq[R]) iter.Seq[meta.Key] {
	return func(yield func(meta.Key) bool) {
		for r := range records {
			if !yield(r.Key()) {
				return
			}
		}
	}
}

func while(keys iter.Seq[meta.Key], in func(meta.Key) bool) iter.Seq[meta.Key] {
	return func(yield func(meta.Key) bool) {
		for k := range keys {
			if !in(k) || !yield(k) {
				return
			}
		}
	}
}

// decodeRecord reads the znode of a record and checks that it is that record's.
func decodeRecord(kind meta.Kind, rel string, data []byte) (meta.Record, error) {
	k, err := parsePath(kind, rel)
	if err != nil {
		return nil, err
	}
	r, err := meta.DecodeRecordJSON(kind, data)
	if err != nil {
		return nil, &TreeError{Path: rel, Reason: "it does not decode", Err: err}
	}
	if r.Key() != k {
		return nil, &TreeError{Path: rel, Reason: fmt.Sprintf("it holds the %s", r.Key())}
	}
	if _, err := meta.EncodeRecord(r); err != nil {
		return nil, &TreeError{Path: rel, Reason: "it cannot be a record", Err: err}
	}
	return r, nil
}

// under makes the paths of ops absolute.
func under(root string, ops []Op) []Op {
	for i := range ops {
		ops[i].Path = path.Join(root, ops[i].Path)
	}
	return ops
}
