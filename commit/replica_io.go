package commit

import (
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/segment"
)

// ReplicaConfig is what a Replica is born with. Its segment, limits and timing
// come from the segment's record and the config version that the record names.
type ReplicaConfig struct {
	Key         Key
	Segment     string // the segment's name
	Instance    string // this node
	Incarnation int64  // at first; Record.Incarnation is a later one
	StoreID     uuid.UUID
	// StreamEpoch is the identity of the stream that is being read. If it is not
	// the record's, the shell does not feed the machine but says ReaderFailed.
	StreamEpoch string
	Start       int64

	MaxRows  int64         // 0 = no such limit, here and below
	MaxBytes int64         // raw key, value and header bytes
	MaxAge   time.Duration // from the first row

	Timing Timing
	// Download: completion mode "download": told KEEP, fetch the committer's
	// bytes instead of sealing.
	Download bool
	// UploadWait is how long the committer waits for its upload before it
	// commits, 0 = not at all.
	UploadWait time.Duration
	// Attempt is the record's when the machine was made.
	Attempt int
}

// Record is what the node's image says about the segment.
type Record struct {
	// Mine: the record exists, is not LOST, and names this node as a replica.
	// False is only said from an image that has reached the leader's high
	// watermark: a young image knows nothing.
	Mine bool

	Done      bool
	End       int64
	Digest    segment.Digest
	Committer string

	EndRequested bool
	Attempt      int
	// Incarnation is what the node speaks under now, 0: as before. A process can
	// get another one in the middle of a segment: a registration of an earlier
	// boot, late, makes it register again, and messages under the old one are
	// refused for ever.
	Incarnation int64
	// LeaderEpoch is the image's epoch. A new leader knows nothing of who has
	// stopped, so a machine in ERROR says it again when this rises.
	LeaderEpoch int64
}

// ReplicaEvent is something that happened to a replica.
type ReplicaEvent interface{ replicaEvent() }

// ImageChanged hands in the record as the image has it now. It is level, not
// edge: saying the same twice does no harm, and the first one follows the
// machine's birth at once.
type ImageChanged struct{ Record Record }

// Fed says how far the feed is after a run of Offer calls, or when the reader
// moved on without a row.
type Fed struct {
	// Next is the builder's position: the offset of the first row that was
	// fetched but not appended, or, if none waits, the reader's next-fetch
	// position.
	Next int64
	// Fetched is the reader's next-fetch position: what lies between waits in
	// the buffer.
	Fetched int64
}

// ReaderFailed says that the feed broke and will not go on by itself.
type ReaderFailed struct{ Error string }

// PartitionEnded says that the stream has been read to its end and will never
// have more.
type PartitionEnded struct{}

// Answered is the leader's answer to the Send of that ID.
type Answered struct {
	ID    uint64
	Reply Reply
}

// NoAnswer says that the Send of that ID got none: refused, cut off, timed out.
type NoAnswer struct{ ID uint64 }

// Sealed is the result of a Seal: the file is published in the local store.
type Sealed struct{ Info segment.Info }

// SealFailed is the other result of a Seal: there is no file.
type SealFailed struct {
	End   int64
	Error string
}

// Uploaded is the result of an Upload; URI is empty if it failed.
type Uploaded struct{ URI string }

// Downloaded is the result of a Download: a verified copy is installed in the
// local store.
type Downloaded struct{ Digest segment.Digest }

// NoSource is the other result of a Download: nobody had it, or nobody gave it
// whole.
type NoSource struct{ Error string }

func (ImageChanged) replicaEvent()   {}
func (Fed) replicaEvent()            {}
func (ReaderFailed) replicaEvent()   {}
func (PartitionEnded) replicaEvent() {}
func (Answered) replicaEvent()       {}
func (NoAnswer) replicaEvent()       {}
func (Sealed) replicaEvent()         {}
func (SealFailed) replicaEvent()     {}
func (Uploaded) replicaEvent()       {}
func (Downloaded) replicaEvent()     {}
func (NoSource) replicaEvent()       {}
func (Tick) replicaEvent()           {}

// ReplicaAction is something the replica's shell is to do.
type ReplicaAction interface{ replicaAction() }

// Send sends the message to the leader; exactly one Answered or NoAnswer of
// that ID follows. At most one is in flight per machine that is still awaited;
// a newer one makes the machine deaf to the older.
type Send struct {
	ID      uint64
	Message Message
}

// Seal seals the builder at End (exclusive) and publishes the file in the local
// store. Sealed or SealFailed follows. The builder is used up by it.
type Seal struct{ End int64 }

// Upload starts the upload of the sealed file that commitEnd waits for; Uploaded
// follows, or is no longer waited for. Uploads behind the commit are the node's
// own business.
type Upload struct{ Info segment.Info }

// Download fetches and installs the committed segment from whatever source the
// image names, or finds it installed. Downloaded or NoSource follows, unless
// StopDownload overtakes it.
type Download struct {
	End    int64
	Digest segment.Digest
}

// StopDownload ends a Download that is no longer needed; a result that is
// already on its way does no harm.
type StopDownload struct{}

// KeepFile says that the sealed file is the committed one: report it as a
// location.
type KeepFile struct{ Info segment.Info }

// SetAside says that the sealed file is not the committed one. It stays on disk
// until DESIGN §4.5 lets it go; the rule needs the image and is the node's.
type SetAside struct{ Info segment.Info }

// FreeRows says that a verified copy of the committed bytes is installed, or
// that the segment is no longer this node's: the builder and the rows below the
// segment's end may go.
type FreeRows struct{}

// Restart begins a new builder at From, the segment's start, fed by the stream
// from there; what the old feed had fetched is not offered any more. Private: the
// successor has the partition's feed by now, so this needs a reader of its own,
// which ends when Consuming turns false. The rows of the builder before are kept
// until FreeRows all the same: if the stream has trimmed them meanwhile, they are
// what there is to rebuild from.
type Restart struct {
	From    int64
	Private bool
}

// SuccessorMayStart says that the segment ends at Offset, for good, and that
// this machine does not need the partition's feed any more: hand it to the
// successor, whose builder begins exactly at Offset. If the feed is elsewhere
// (rows past Offset were appended here, or it has not got there), it seeks.
// Emitted once.
type SuccessorMayStart struct{ Offset int64 }

// SetTimer asks for a Tick at At or soon after; it replaces the one before. A
// Step whose deadline did not change says nothing.
type SetTimer struct{ At time.Duration }

// NoTimer is the At of a machine that waits for no moment.
const NoTimer = never

func (Send) replicaAction()              {}
func (Seal) replicaAction()              {}
func (Upload) replicaAction()            {}
func (Download) replicaAction()          {}
func (StopDownload) replicaAction()      {}
func (KeepFile) replicaAction()          {}
func (SetAside) replicaAction()          {}
func (FreeRows) replicaAction()          {}
func (Restart) replicaAction()           {}
func (SuccessorMayStart) replicaAction() {}
func (SetTimer) replicaAction()          {}
