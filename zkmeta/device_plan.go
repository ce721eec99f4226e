package zkmeta

import (
	"context"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/metalog"
)

// How much of the log stays in ZooKeeper. The record znodes are the state; the tail
// spares a controller that was away from reading all of them. Its directory is
// bounded by number too: a list of its children has to stay below what a client
// takes.
const (
	tailBytesMax   = 64 << 20
	tailEntriesMax = 16 << 10
	// trimMax is how many entries one append drops, so that a tail over the limit
	// shrinks and no multi grows by it.
	trimMax = 4
	// headVersionsMax is when the head is made anew: versions are int32, and -1
	// means any.
	headVersionsMax = 1 << 30
)

// limits are a device's; tests have others.
type limits struct {
	tailBytes, tailEntries int64
	headVersions           int32
}

var defaultLimits = limits{tailBytes: tailBytesMax, tailEntries: tailEntriesMax, headVersions: headVersionsMax}

// plan is the multi that appends an entry, and the head that it leaves. The head
// comes first: whether its version is the expected one is the answer to whether this
// device may still write.
func (d *Device) plan(ctx context.Context, e metalog.Entry) (headRecord, []Op, error) {
	records, err := recordOps(d.cfg.Base(), e.Batch)
	if err != nil {
		return headRecord{}, nil, err
	}
	head := d.head
	trim := d.outgrown(ctx, &head, int64(len(e.Frame)))
	head.Epoch, head.Term, head.Offset = e.Batch.Epoch, e.Batch.Term, e.Batch.Offset
	head.Time, head.Operation = e.Batch.Time, uuid.New()
	head.TailBytes += int64(len(e.Frame))

	var ops []Op
	if d.version < d.limits.headVersions {
		ops = append(ops, Op{Kind: OpSet, Path: headName, Data: head.encode(), Version: d.version})
	} else {
		ops = append(ops, Op{Kind: OpDelete, Path: headName, Version: d.version}, Op{Kind: OpCreate, Path: headName, Data: head.encode()})
	}
	ops = append(ops, Op{Kind: OpCreate, Path: entryName(e.Batch.Offset), Data: e.Frame})
	ops = append(ops, trim...)
	return head, under(d.cfg.Conn.Path(), append(ops, records...)), nil
}

// outgrown moves the start of the tail in head past the entries that go when one of
// size is added, a few at a time, and removes them. One whose size cannot be found
// out stays until the next append. One that somebody has removed by hand is passed
// over: a tail that ended there would never be trimmed again.
func (d *Device) outgrown(ctx context.Context, head *headRecord, size int64) (trim []Op) {
	for range trimMax {
		entries, bytes := head.next()-head.LogStart, head.TailBytes+size
		if entries == 0 || entries < d.limits.tailEntries && bytes <= d.limits.tailBytes {
			break
		}
		first, found, err := d.sizeOf(ctx, head.LogStart)
		if err != nil {
			break
		}
		if found {
			trim = append(trim, Op{Kind: OpDelete, Path: entryName(head.LogStart), Version: -1})
		}
		head.LogStart++
		head.TailBytes = max(head.TailBytes-first, 0)
		if head.LogStart == head.next() {
			head.TailBytes = 0
		}
	}
	return trim
}

// sizeOf returns how large an entry is: those of this device it knows.
func (d *Device) sizeOf(ctx context.Context, offset int64) (size int64, found bool, err error) {
	if size, ok := d.sizes[offset]; ok {
		return size, true, nil
	}
	stat, found, err := d.cfg.Conn.Stat(ctx, d.cfg.Conn.Path(entryName(offset)))
	return int64(stat.DataLength), found, err
}
