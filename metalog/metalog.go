// Package metalog keeps the metadata log: the ordered, durable record of every
// change to the image, and the way it reaches everybody else.
//
// It owns the frames of the log and their damage rules (frame.go), the log on
// local files (log.go and logfile.go), the epoch file (epoch.go), the one writer
// of the acting leader (writer_machine.go decides, writer.go acts), the decision
// what a follower is answered (fetchquery.go and fetch.go, pure functions) with its
// HTTP handler (server.go), the follower that keeps a cache of the log on disk
// (follower_machine.go and follower_snapshot.go decide, follower.go acts), and the
// files of snapshots: when and how they are made (snapshotdue.go, snapshotter.go), the
// recovery from them (snapshotstore.go, snapshotrecover.go, logreset.go), and what of
// them and of the log may go (snapshotclean.go decides, clean.go acts). It does not know
// what a record means (package meta does), who leads (package zkmeta or the only
// controller), what is done with an image, or how snapshots travel (internal/snapshots).
// No program has snapshots made or fetched yet.
//
// Whoever looks at a data directory from outside changes nothing in it: inspect.go,
// inspectimage.go and verify.go read it, fetchclient.go asks a server.
//
// Three offsets recur: LSO, the log start offset; HW, the high watermark, the
// first offset that is not committed; LEO, the log end offset. Offsets count
// batches. A Log shows a batch only after its fsync, so for the leader's own log
// the end that End reports is the high watermark: only [LSO, HW) is ever served
// or applied.
//
// Start reading at Device below, then log.go and writer_machine.go. The bytes on disk
// are drawn in docs/format/log.md and docs/format/snapshot.md.
package metalog

import (
	"context"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
)

// Device is where batches become durable. It is all-or-nothing and fenced by
// epoch: a batch of an older epoch than the last one is refused.
type Device interface {
	// Append makes b durable at offset b.Offset, which must be End. When it
	// returns an error the outcome may be unknown; the caller must not append
	// again on the strength of its own view.
	Append(ctx context.Context, b *meta.Batch) error
	// Read returns whole frames from offset on: at least one, and no further one
	// that would make them more than maxBytes together. At End it returns
	// nothing. An offset below Start or above End is an *OutOfRangeError. The
	// bytes belong to the caller.
	Read(from int64, maxBytes int) ([]byte, error)
	// Trim may drop batches below before; Start tells how far it went.
	Trim(before int64) error
	// Start is the first offset that is held (LSO), End the first that is not.
	Start() int64
	End() int64
	// Close releases the device. It is idempotent.
	Close() error
}

// EpochEnd says where the batches of one leader epoch end: End is the offset
// after its last batch. Term is the random id of that epoch's leader.
type EpochEnd struct {
	Epoch, End int64
	Term       uuid.UUID
}
