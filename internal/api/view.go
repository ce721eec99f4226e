package api

import (
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

// LeaderView answers GET /leader.
type LeaderView struct {
	ClusterID     uuid.UUID `json:"clusterId"`
	Leader        string    `json:"leader"`
	Controller    string    `json:"controller"`
	Epoch         int64     `json:"epoch"`
	HighWatermark int64     `json:"highWatermark"`
}

// TableView is a table as GET /tables shows it.
type TableView struct {
	Name          string          `json:"name"`
	ID            uuid.UUID       `json:"id"`
	State         meta.TableState `json:"state"`
	Pause         *meta.Pause     `json:"pause,omitempty"`
	ConfigVersion int             `json:"configVersion"`
	Config        meta.Config     `json:"config"`
	CreatedAt     time.Time       `json:"createdAt"`
	LastError     string          `json:"lastError,omitempty"`
	Partitions    int             `json:"partitions"`
	// PartitionStates counts the partitions by what they are doing, Ending the
	// segments that were asked to end and have not: how far a pause is, and a resume.
	PartitionStates map[meta.PartitionState]int `json:"partitionStates"`
	Ending          int                         `json:"ending"`

	Segments  int64 `json:"segments"` // DONE
	Rows      int64 `json:"rows"`     // in DONE segments
	SizeBytes int64 `json:"sizeBytes"`
	// These count DONE segments: with too few copies, at risk, and not in the deep store
	// of a table that has one.
	UnderReplicated int64 `json:"underReplicated"`
	SingleCopy      int64 `json:"singleCopy"`
	NotInDeepStore  int64 `json:"notInDeepStore"`
}

// PartitionView is a partition as GET /tables/{t}/partitions shows it.
type PartitionView struct {
	Partition     int32               `json:"partition"`
	State         meta.PartitionState `json:"state"`
	Replicas      []string            `json:"replicas"`
	FirstRetained int64               `json:"firstRetained"`
	NextOffset    int64               `json:"nextOffset"`
	NextSeq       int64               `json:"nextSeq"`
	StreamEpoch   string              `json:"streamEpoch"`
	Holes         []meta.Hole         `json:"holes,omitempty"`
	// Consuming is the IN_PROGRESS segment, nil when there is none.
	Consuming *SegmentView `json:"consuming,omitempty"`
}

// SegmentView is a segment's record with what follows from the image: who has
// it now, and how safe it is.
type SegmentView struct {
	meta.Segment
	TableName string `json:"tableName"`
	// Sources are the live copies in the order in which a reader should try them.
	Sources []SourceView `json:"sources"`
	// CountedCopies are node copies that count (DESIGN §1).
	CountedCopies int `json:"countedCopies"`
	// InDeepStore says that the leader has verified a deep-store copy.
	InDeepStore     bool `json:"inDeepStore"`
	SingleCopy      bool `json:"singleCopy"`
	UnderReplicated bool `json:"underReplicated"`
}

// SourceView is a live copy: a node's URL of the segment, or a deep-store URI.
type SourceView struct {
	Node string `json:"node,omitempty"`
	Zone string `json:"zone,omitempty"`
	URL  string `json:"url"`
	// Link and PiecesLink, if they are there, are addresses of a deep-store copy
	// and of its piece list that whoever has them may read for a while.
	Link       string `json:"link,omitempty"`
	PiecesLink string `json:"piecesLink,omitempty"`
}

// NodeView is a node as GET /nodes shows it.
type NodeView struct {
	meta.Node
	// AppliedOffset and LastHeartbeat are the leader's memory, not the record.
	AppliedOffset int64     `json:"appliedOffset"`
	LastHeartbeat time.Time `json:"lastHeartbeat,omitzero"`
	Busy          int       `json:"busy"`
	// Partitions counts those that name the node as a replica, Consuming the segments
	// that it consumes: a node that is drained is done with both when they are 0.
	Partitions int   `json:"partitions"`
	Consuming  int   `json:"consuming"`
	Segments   int64 `json:"segments"`
	SizeBytes  int64 `json:"sizeBytes"`
}

// ConsumingView is what a node does for one partition: GET /partitions on it.
type ConsumingView struct {
	Table     string `json:"table"`
	Partition int32  `json:"partition"`
	Segment   string `json:"segment"`
	Seq       int64  `json:"seq"`
	// State is the replica's machine state (PROTOCOL §4).
	State  string `json:"state"`
	Start  int64  `json:"start"`
	Offset int64  `json:"offset"`
	Rows   int64  `json:"rows"`
	Bytes  int64  `json:"bytes"`
	// StreamEnd is the end of the stream as last seen; LagRows what is between.
	StreamEnd  int64   `json:"streamEnd"`
	LagRows    int64   `json:"lagRows"`
	LagSeconds float64 `json:"lagSeconds"`
	LastError  string  `json:"lastError,omitempty"`
}

// InventoryItem is one file of a node's store: GET /segments on it.
type InventoryItem struct {
	Table     string         `json:"table"`
	TableID   uuid.UUID      `json:"tableId"`
	Partition int32          `json:"partition"`
	Segment   string         `json:"segment"`
	SizeBytes int64          `json:"sizeBytes"`
	Digest    segment.Digest `json:"digest"`
	State     string         `json:"state"`
	Verified  time.Time      `json:"verified,omitzero"`
}

// SegmentEvent is one entry of the bounded ring of things that a node did to a
// segment: GET /segments/{table}/{segment}/events.
type SegmentEvent struct {
	At     time.Time `json:"at"`
	Node   string    `json:"node"`
	What   string    `json:"what"`
	Detail string    `json:"detail,omitempty"`
	Error  string    `json:"error,omitempty"`
}

// ForceCommitted answers POST /tables/{t}/forceCommit.
type ForceCommitted struct {
	Job      uuid.UUID `json:"job"`
	Segments int       `json:"segments"`
}

// Pause is the body of POST /tables/{t}/pauseConsumption; it may be left out.
type Pause struct {
	// By says who pauses, for people; "api" without.
	By string `json:"by,omitempty"`
}

// SnapshotAsked is the id of the snapshot that every controller and every node makes, in a
// while, after one was asked for.
type SnapshotAsked struct {
	EndOffset int64 `json:"endOffset"`
	Epoch     int64 `json:"epoch"`
}
