package meta

import (
	"github.com/google/uuid"

	"github.com/shoalstore/shoal/segment"
)

// The records of the image (DESIGN §4.1). Each is a plain value that is never
// changed once it is in an image: to change one, Clone it, change the clone,
// and put that into a batch. JSON is what people read; CBOR with small integer
// keys is what the log and the snapshots hold. JSON → record → CBOR → record is
// the identity.
//
// All times are milliseconds since the Unix epoch, 0 for "not yet", and for
// show only: nothing is decided by them, retention age excepted.

// Cluster is the identity of the cluster; its record is the first of the log.
type Cluster struct {
	ID            uuid.UUID `json:"id" cbor:"1,keyasint"`
	FormatVersion int       `json:"formatVersion" cbor:"2,keyasint"`
}

// Leader opens each epoch: its first batch holds this record.
type Leader struct {
	Epoch      int64     `json:"epoch" cbor:"1,keyasint"`
	Term       uuid.UUID `json:"term" cbor:"2,keyasint"`
	Controller string    `json:"controller" cbor:"3,keyasint"`
	URL        string    `json:"url" cbor:"4,keyasint"`
}

// TableState is where a table is in its life.
type TableState string

// The states of a table.
const (
	TableCreating TableState = "CREATING"
	TableActive   TableState = "ACTIVE"
	TablePaused   TableState = "PAUSED"
	TableDeleting TableState = "DELETING"
)

// Table is a stream topic with its settings.
type Table struct {
	ID    uuid.UUID  `json:"id" cbor:"1,keyasint"`
	Name  string     `json:"name" cbor:"2,keyasint"`
	State TableState `json:"state" cbor:"3,keyasint"`
	// Pause says why and by whom the table is paused, nil unless PAUSED.
	Pause         *Pause `json:"pause,omitempty" cbor:"4,keyasint,omitempty"`
	ConfigVersion int    `json:"configVersion" cbor:"5,keyasint"`
	CreatedAt     int64  `json:"createdAt" cbor:"6,keyasint"`
	// LastError is why the last step towards ACTIVE failed, empty when none did.
	LastError string `json:"lastError,omitempty" cbor:"7,keyasint,omitempty"`
	// ConsumeFrom is where the partitions that are still PAUSED go on, set by the
	// resume; empty is lastConsumed.
	ConsumeFrom ConsumeFrom `json:"consumeFrom,omitempty" cbor:"8,keyasint,omitempty"`
}

// ConsumeFrom is where the partitions of a table that is resumed go on. None goes
// back: all of them mean at least where the partition stands (Partition.Position).
type ConsumeFrom string

// The places where consumption goes on.
const (
	FromLastConsumed ConsumeFrom = ""         // "lastConsumed" in the API
	FromSmallest     ConsumeFrom = "smallest" // the earliest offset that the stream still has
	FromLargest      ConsumeFrom = "largest"  // the end of the stream: what waits there is skipped
)

// The reasons of a pause. Only those that follow from a shortage may be lifted by
// anybody but a person.
const (
	PauseAdministrative = "administrative"
	PauseDiskFull       = "diskFull"
	PauseQuota          = "quota"
)

// Pause is the reason of a pause (administrative, diskFull, quota) and who asked.
type Pause struct {
	Reason string `json:"reason" cbor:"1,keyasint"`
	By     string `json:"by" cbor:"2,keyasint"`
}

// TableConfig is one version of a table's configuration. It is kept while a
// segment that is not sealed names it.
type TableConfig struct {
	Table   uuid.UUID `json:"table" cbor:"1,keyasint"`
	Version int       `json:"version" cbor:"2,keyasint"`
	Config  Config    `json:"config" cbor:"3,keyasint"`
}

// PartitionState is what a partition is doing.
type PartitionState string

// The states of a partition. CONSUMING and ERROR have exactly one IN_PROGRESS
// segment; PAUSED and ENDED have none.
const (
	PartitionConsuming PartitionState = "CONSUMING"
	PartitionPaused    PartitionState = "PAUSED"
	PartitionEnded     PartitionState = "ENDED"
	PartitionError     PartitionState = "ERROR"
)

// Partition is one partition of a table's stream. NextSeq is the sequence
// number of the next segment to be created, NextOffset the end of the last
// committed segment, below which nothing ever starts again.
type Partition struct {
	Table         uuid.UUID      `json:"table" cbor:"1,keyasint"`
	Partition     int32          `json:"partition" cbor:"2,keyasint"`
	Replicas      []string       `json:"replicas" cbor:"3,keyasint"`
	NextSeq       int64          `json:"nextSeq" cbor:"4,keyasint"`
	NextOffset    int64          `json:"nextOffset" cbor:"5,keyasint"`
	StreamEpoch   string         `json:"streamEpoch" cbor:"6,keyasint"`
	State         PartitionState `json:"state" cbor:"7,keyasint"`
	FirstRetained int64          `json:"firstRetained" cbor:"8,keyasint"`
	Holes         []Hole         `json:"holes,omitempty" cbor:"9,keyasint,omitempty"`
}

// Hole is a range of offsets [From, To) that was skipped on purpose.
type Hole struct {
	From int64  `json:"from" cbor:"1,keyasint"`
	To   int64  `json:"to" cbor:"2,keyasint"`
	Why  string `json:"why" cbor:"3,keyasint"`
}

// SegmentStatus is where a segment is in its life.
type SegmentStatus string

// The statuses of a segment.
const (
	SegmentInProgress SegmentStatus = "IN_PROGRESS"
	SegmentDone       SegmentStatus = "DONE"
	SegmentLost       SegmentStatus = "LOST"
)

// Segment is the record of one segment: the rows of a partition in
// [Start, End). Fields from End to LastLeaderEpoch are set by the commit.
type Segment struct {
	Table     uuid.UUID     `json:"table" cbor:"1,keyasint"`
	Partition int32         `json:"partition" cbor:"2,keyasint"`
	Seq       int64         `json:"seq" cbor:"3,keyasint"`
	Name      string        `json:"name" cbor:"4,keyasint"`
	Status    SegmentStatus `json:"status" cbor:"5,keyasint"`
	Start     int64         `json:"start" cbor:"6,keyasint"`

	End             int64              `json:"end,omitzero" cbor:"7,keyasint,omitempty"`
	Rows            int64              `json:"rows,omitzero" cbor:"8,keyasint,omitempty"`
	SizeBytes       int64              `json:"sizeBytes,omitzero" cbor:"9,keyasint,omitempty"`
	MinTimestamp    int64              `json:"minTimestamp,omitzero" cbor:"10,keyasint,omitempty"`
	MaxTimestamp    int64              `json:"maxTimestamp,omitzero" cbor:"11,keyasint,omitempty"`
	Digest          segment.Digest     `json:"digest,omitzero" cbor:"12,keyasint,omitzero"`
	SHA256          segment.SHA256     `json:"sha256,omitzero" cbor:"13,keyasint,omitzero"`
	RowsDigest      segment.RowsDigest `json:"rowsDigest,omitzero" cbor:"14,keyasint,omitzero"`
	LastLeaderEpoch int32              `json:"lastLeaderEpoch,omitzero" cbor:"15,keyasint,omitempty"`

	// Generation rises with each audited recommit of the same offsets.
	Generation    int    `json:"generation,omitzero" cbor:"16,keyasint,omitempty"`
	ConfigVersion int    `json:"configVersion" cbor:"17,keyasint"`
	StreamEpoch   string `json:"streamEpoch" cbor:"18,keyasint"`
	// LeaderEpoch is the epoch of the leader that last wrote this record.
	LeaderEpoch int64 `json:"leaderEpoch" cbor:"19,keyasint"`
	// Replicas are the nodes that consume it, or did when it was committed.
	Replicas []string `json:"replicas" cbor:"20,keyasint"`
	// Attempt rises when every replica has stopped: one in ERROR at a lower
	// attempt starts afresh.
	Attempt      int           `json:"attempt,omitzero" cbor:"21,keyasint,omitempty"`
	EndRequested *EndRequested `json:"endRequested,omitempty" cbor:"22,keyasint,omitempty"`
	Locations    []Location    `json:"locations,omitempty" cbor:"23,keyasint,omitempty"`
	Committer    string        `json:"committer,omitempty" cbor:"24,keyasint,omitempty"`
	Times        Times         `json:"times" cbor:"25,keyasint"`
	LastError    *LastError    `json:"lastError,omitempty" cbor:"26,keyasint,omitempty"`
}

// EndRequested asks the replicas to end the segment where they are.
type EndRequested struct {
	Reason string    `json:"reason" cbor:"1,keyasint"`
	Job    uuid.UUID `json:"job,omitzero" cbor:"2,keyasint,omitzero"`
}

// LastError is the last thing that went wrong with a segment.
type LastError struct {
	Node  string `json:"node" cbor:"1,keyasint"`
	At    int64  `json:"at" cbor:"2,keyasint"`
	Error string `json:"error" cbor:"3,keyasint"`
}

// Times are the moments of a segment's life, each set once.
type Times struct {
	Created       int64 `json:"created,omitzero" cbor:"1,keyasint,omitempty"`
	FirstConsumed int64 `json:"firstConsumed,omitzero" cbor:"2,keyasint,omitempty"`
	WinnerDecided int64 `json:"winnerDecided,omitzero" cbor:"3,keyasint,omitempty"`
	CommitStarted int64 `json:"commitStarted,omitzero" cbor:"4,keyasint,omitempty"`
	Committed     int64 `json:"committed,omitzero" cbor:"5,keyasint,omitempty"`
	SecondCopy    int64 `json:"secondCopy,omitzero" cbor:"6,keyasint,omitempty"`
	Replicated    int64 `json:"replicated,omitzero" cbor:"7,keyasint,omitempty"`
	Uploaded      int64 `json:"uploaded,omitzero" cbor:"8,keyasint,omitempty"`
	DeepStore     int64 `json:"deepStore,omitzero" cbor:"9,keyasint,omitempty"`
	EndRequested  int64 `json:"endRequested,omitzero" cbor:"10,keyasint,omitempty"`
	Recommitted   int64 `json:"recommitted,omitzero" cbor:"11,keyasint,omitempty"`
	LastLocation  int64 `json:"lastLocation,omitzero" cbor:"12,keyasint,omitempty"`
}

// Location is where a verified copy is: a node's store, or a deep-store URI.
type Location struct {
	Node    string    `json:"node,omitempty" cbor:"1,keyasint,omitempty"`
	StoreID uuid.UUID `json:"storeId,omitzero" cbor:"2,keyasint,omitzero"`
	URI     string    `json:"uri,omitempty" cbor:"3,keyasint,omitempty"`
	Since   int64     `json:"since" cbor:"4,keyasint"`
	// Verified: the leader has checked a deep-store copy by HEAD. A node's
	// location is verified by the node before it is reported.
	Verified bool `json:"verified,omitzero" cbor:"5,keyasint,omitempty"`
}

// Tombstone remembers a deleted segment until its grace is over.
type Tombstone struct {
	Table         uuid.UUID `json:"table" cbor:"1,keyasint"`
	Partition     int32     `json:"partition" cbor:"2,keyasint"`
	Seq           int64     `json:"seq" cbor:"3,keyasint"`
	DeepStoreKeys []string  `json:"deepStoreKeys,omitempty" cbor:"4,keyasint,omitempty"`
	DeletedAt     int64     `json:"deletedAt" cbor:"5,keyasint"`
	Expired       bool      `json:"expired,omitzero" cbor:"6,keyasint,omitempty"`
	// Store is the URI of the deep store that has the keys, once no configuration
	// says so any more: that of a table that was deleted. Empty: the table's.
	Store string `json:"store,omitempty" cbor:"7,keyasint,omitempty"`
}

// NodeState is whether a node is counted on.
type NodeState string

// The states of a node.
const (
	NodeUp       NodeState = "UP"
	NodeDown     NodeState = "DOWN"
	NodeDraining NodeState = "DRAINING"
)

// Node is a registered node. Incarnation rises with each new boot id;
// LocationsSeq is the last sequence of POST /locations that took effect in it.
type Node struct {
	ID            string    `json:"id" cbor:"1,keyasint"`
	URL           string    `json:"url" cbor:"2,keyasint"`
	Zone          string    `json:"zone,omitempty" cbor:"3,keyasint,omitempty"`
	Tags          []string  `json:"tags,omitempty" cbor:"4,keyasint,omitempty"`
	CapacityBytes int64     `json:"capacityBytes,omitzero" cbor:"5,keyasint,omitempty"`
	StoreID       uuid.UUID `json:"storeId" cbor:"6,keyasint"`
	BootID        uuid.UUID `json:"bootId" cbor:"7,keyasint"`
	Incarnation   int64     `json:"incarnation" cbor:"8,keyasint"`
	LocationsSeq  int64     `json:"locationsSeq,omitzero" cbor:"9,keyasint,omitempty"`
	State         NodeState `json:"state" cbor:"10,keyasint"`
}

// JobState is how far a job is.
type JobState string

// The states of a job.
const (
	JobRunning JobState = "RUNNING"
	JobDone    JobState = "DONE"
	JobFailed  JobState = "FAILED"
)

// Job is a long operation that an operator asked for.
type Job struct {
	ID      uuid.UUID         `json:"id" cbor:"1,keyasint"`
	Kind    string            `json:"kind" cbor:"2,keyasint"`
	Args    map[string]string `json:"args,omitempty" cbor:"3,keyasint,omitempty"`
	State   JobState          `json:"state" cbor:"4,keyasint"`
	Counts  map[string]int64  `json:"counts,omitempty" cbor:"5,keyasint,omitempty"`
	Created int64             `json:"created" cbor:"6,keyasint"`
}
