package node

import (
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

// Event is something that happened to the node's copies.
type Event interface{ event() }

// Registered says that the leader of an epoch knows this node, under an
// incarnation, and how far the log is there. What it knew of the copies may be
// old: they are confirmed.
type Registered struct {
	Incarnation   int64
	Epoch         int64
	HighWatermark int64
}

// ImageChanged hands in a newer image, with the keys that changed since the last
// one; nil says that anything may have.
type ImageChanged struct {
	Image   *meta.Image
	Touched []meta.Key
}

// StoreChanged says what the store holds of one segment now.
type StoreChanged struct {
	Segment meta.SegmentKey
	Held    []segment.Held
}

// Claimed says that a consumer's run sees to the segment: nothing is fetched,
// rebuilt or removed behind its back. Unclaimed ends that.
type (
	Claimed   struct{ Segment meta.SegmentKey }
	Unclaimed struct{ Segment meta.SegmentKey }
)

// FetchDone is the result of a Fetch; the copy, if there is one now, came as a
// StoreChanged before. NoSource says that nobody had the bytes to give.
type FetchDone struct {
	Segment  meta.SegmentKey
	NoSource bool
	Err      error
}

// RebuildDone is the result of a Rebuild.
type RebuildDone struct {
	Segment meta.SegmentKey
	Err     error
}

// UploadDone is the result of an Upload of the copy with the digest.
type UploadDone struct {
	Segment meta.SegmentKey
	Digest  segment.Digest
	URI     string
	Err     error
	// Different, with Err: the store answered, and has other bytes under the key. It
	// will not do so later, but nothing is wrong with the store.
	Different bool
}

// ReportDone is the result of a Report: the leader's verdicts, or why there are
// none.
type ReportDone struct {
	Sequence int64
	Verdicts meta.LocationVerdicts
	Err      error
}

// RemoveDone is the result of a Remove or a SetAside.
type RemoveDone struct {
	Held segment.Held
	Err  error
}

// UploadAsked says that the leader, or an operator, wants the segment in the deep
// store now, or with Poll only wants to know how far that is. One UploadTold follows.
type UploadAsked struct {
	Ticket  uint64
	Segment meta.SegmentKey
	Poll    bool
}

// DownloadsFound is the result of a ListDownloads.
type DownloadsFound struct{ Downloads []segment.Download }

// Tick lets deadlines be seen; once a second is plenty.
type Tick struct{}

func (Registered) event()     {}
func (ImageChanged) event()   {}
func (StoreChanged) event()   {}
func (Claimed) event()        {}
func (Unclaimed) event()      {}
func (FetchDone) event()      {}
func (RebuildDone) event()    {}
func (UploadDone) event()     {}
func (ReportDone) event()     {}
func (RemoveDone) event()     {}
func (UploadAsked) event()    {}
func (DownloadsFound) event() {}
func (Tick) event()           {}

// Action is something the shell is to do.
type Action interface{ action() }

// Fetch downloads the committed bytes of a segment from the sources that the
// image names, and installs them. FetchDone follows.
type Fetch struct {
	Segment meta.SegmentKey
	Digest  segment.Digest
}

// Rebuild builds a committed segment from the stream. RebuildDone follows; the
// file may differ from the committed one.
type Rebuild struct {
	Segment meta.SegmentKey
	End     int64
}

// Upload puts the held copy into the table's deep store. UploadDone follows.
type Upload struct {
	Segment meta.SegmentKey
	Digest  segment.Digest
}

// Report tells the leader. ReportDone follows; one report is under way at a time.
type Report struct{ Report meta.LocationReport }

// Remove deletes a copy from the store: one that is not the committed one, or
// whose tombstone has expired. RemoveDone follows.
type Remove struct {
	Held segment.Held
	Why  string
}

// SetAside moves a copy that no record explains to the orphans. RemoveDone
// follows.
type SetAside struct{ Held segment.Held }

// ListDownloads asks which downloads lie in the store, begun and not published.
// DownloadsFound follows.
type ListDownloads struct{}

// DropDownload removes what a download left that nobody wants any more. Nothing
// follows.
type DropDownload struct{ Download segment.Download }

// UploadTold answers UploadAsked.
type UploadTold struct {
	Ticket   uint64
	State    string // api.UploadNone and the others
	Failures int
	// LastError is the last failure, LastAt when it was by the machine's clock.
	// Different is as in its UploadDone.
	LastError string
	LastAt    time.Duration
	Different bool
}

func (Fetch) action()         {}
func (Rebuild) action()       {}
func (Upload) action()        {}
func (Report) action()        {}
func (Remove) action()        {}
func (SetAside) action()      {}
func (ListDownloads) action() {}
func (DropDownload) action()  {}
func (UploadTold) action()    {}

// MachineConfig is who the node is.
type MachineConfig struct {
	Node    string
	StoreID uuid.UUID
	// FetchesMax, RebuildsMax and UploadsMax bound what is under way at once; 0: 4,
	// 1 and 4.
	FetchesMax, RebuildsMax, UploadsMax int
}
