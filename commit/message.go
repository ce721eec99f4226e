package commit

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/segment"
)

// Kind is what a message says; it is the last element of its path,
// POST /protocol/<kind>.
type Kind string

// The kinds of message, node → leader.
const (
	// SegmentConsumed: I stopped here. Repeated every hold time until answered
	// otherwise.
	SegmentConsumed Kind = "segmentConsumed"
	// SegmentStoppedConsuming: I hit an error and will not go on. Repeated until
	// PROCESSED.
	SegmentStoppedConsuming Kind = "segmentStoppedConsuming"
	// SegmentCommitStart: I am the committer, my file is sealed.
	SegmentCommitStart Kind = "segmentCommitStart"
	// SegmentCommitEnd: commit it.
	SegmentCommitEnd Kind = "segmentCommitEnd"
	// ExtendBuildTime renews the committer's lease while it seals.
	ExtendBuildTime Kind = "extendBuildTime"
)

// Reason is why a replica stopped where it did.
type Reason string

// The reasons to stop.
const (
	RowLimit       Reason = "rowLimit"
	SizeLimit      Reason = "sizeLimit"
	TimeLimit      Reason = "timeLimit"
	ForceCommit    Reason = "forceCommit"    // the record's endRequested
	EndOfPartition Reason = "endOfPartition" // the stream will never have more
)

// Status is the answer to a message.
type Status string

// The statuses; what a replica does with each is in PROTOCOL §1.
const (
	Hold           Status = "HOLD"
	CatchUp        Status = "CATCH_UP"
	Commit         Status = "COMMIT"
	CommitContinue Status = "COMMIT_CONTINUE"
	CommitSuccess  Status = "COMMIT_SUCCESS"
	Keep           Status = "KEEP"
	Discard        Status = "DISCARD"
	Processed      Status = "PROCESSED"
	NotLeader      Status = "NOT_LEADER"
	Failed         Status = "FAILED"
)

// Key names a segment: the key of its record.
type Key struct {
	Table     uuid.UUID
	Partition int32
	Seq       int64
}

func (k Key) String() string { return fmt.Sprintf("%s/%d/%d", k.Table, k.Partition, k.Seq) }

// Message is what a replica sends. Fields that a kind does not use are zero.
type Message struct {
	// Kind travels in the path, not in the body.
	Kind Kind `json:"-"`

	Table     uuid.UUID `json:"tableId"`
	Partition int32     `json:"partition"`
	Seq       int64     `json:"seq"`
	// Segment is the segment's name; it must be the record's.
	Segment     string `json:"segment"`
	Instance    string `json:"instance"`
	Incarnation int64  `json:"incarnation"`
	StreamEpoch string `json:"streamEpoch"`
	// Offset is the end that the sender proposes, exclusive.
	Offset int64 `json:"offset"`

	Reason Reason `json:"reason,omitempty"` // consumed; stopped, when a criterion was met
	Error  string `json:"error,omitempty"`  // stopped
	Rows   int64  `json:"rows"`             // consumed, start, end
	Bytes  int64  `json:"bytes,omitempty"`  // consumed, start: raw key, value and header bytes

	// The rest of commitEnd: what the seal learnt, and where the file is.
	Digest       segment.Digest     `json:"digest,omitzero"`
	SHA256       segment.SHA256     `json:"sha256,omitzero"`
	RowsDigest   segment.RowsDigest `json:"rowsDigest,omitzero"`
	SizeBytes    int64              `json:"sizeBytes,omitempty"`
	MinTimestamp int64              `json:"minTimestamp"` // ms, segment.NoTimestamp for none
	MaxTimestamp int64              `json:"maxTimestamp"`
	StoreID      uuid.UUID          `json:"storeId,omitzero"`
	// LastLeaderEpoch is the stream's leader epoch at the last row, nil when
	// the stream has no such thing.
	LastLeaderEpoch *int32 `json:"lastLeaderEpoch,omitempty"`
	// DeepStoreURI is where the upload put it, empty when it is not there yet.
	DeepStoreURI string `json:"deepStoreUri,omitempty"`

	// ExtraTimeSec is how much longer the committer needs, in seconds from now.
	ExtraTimeSec int64 `json:"extraTimeSec,omitempty"` // extend
}

// Key returns the key of the segment that the message is about.
func (m *Message) Key() Key { return Key{m.Table, m.Partition, m.Seq} }

// Reply is the leader's answer. Offset comes with CATCH_UP, COMMIT, KEEP and
// DISCARD, and is never 0 there: it is the end of a segment with rows.
type Reply struct {
	Status Status `json:"status"`
	Offset int64  `json:"offset,omitempty"`
	// BuildTimeSec comes with COMMIT: the committer's lease.
	BuildTimeSec int64 `json:"buildTimeSec,omitempty"`
	// Digest comes with KEEP and DISCARD: the committed file's.
	Digest segment.Digest `json:"digest,omitzero"`
	// Leader comes with NOT_LEADER, when known: the leader's URL.
	Leader string `json:"leader,omitempty"`
}
