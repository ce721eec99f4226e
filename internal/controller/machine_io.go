package controller

import (
	"github.com/google/uuid"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
	"github.com/shoalstore/shoal/stream"
)

// Ticket names one request that waits for its answer. The shell draws it and
// never draws the same twice.
type Ticket = commit.Ticket

// Event is something that happened to the controller.
type Event interface{ event() }

// Lead says that this controller leads: the first batch of its epoch is
// committed, and Image holds it.
type Lead struct {
	URL   string // how others reach this controller
	Image *meta.Image
}

// Depose says that it leads no longer. Leader is who does, if known.
type Depose struct{ Leader string }

// Committed hands in a newer committed image, with the keys that changed since
// the last one; nil says that anything may have.
type Committed struct {
	Image   *meta.Image
	Touched []meta.Key
}

// Message is a message of the completion protocol. One ReplyTo follows.
type Message struct {
	Ticket  Ticket
	Message commit.Message
}

// Heartbeat is a node's sign of life. One AnswerHeartbeat follows.
type Heartbeat struct {
	Ticket Ticket
	api.Heartbeat
}

// Located is a node's report of its copies. One AnswerLocations follows.
type Located struct {
	Ticket Ticket
	Report meta.LocationReport
}

// Wrote is the result of the Write of that ID.
type Wrote struct {
	ID      uint64
	Outcome commit.Outcome
	// Err says why it is not Written.
	Err error
	// Image holds what was written, and whatever came before it.
	Image *meta.Image
}

// Listed is the result of the ListPartitions of that ID.
type Listed struct {
	ID         uint64
	Partitions []stream.Partition
	Err        error
}

// Checked is the result of the CheckDeepStore of that ID. Found false with no
// error says that the store answered, and the object is not there or is not the
// segment.
type Checked struct {
	ID    uint64
	Found bool
	Err   error
}

// Deleted is the result of the DeleteDeepStore of that ID.
type Deleted struct {
	ID  uint64
	Err error
}

// Tick lets deadlines be seen; every half second is plenty.
type Tick struct{}

func (Lead) event()      {}
func (Depose) event()    {}
func (Committed) event() {}
func (Message) event()   {}
func (Heartbeat) event() {}
func (Located) event()   {}
func (Wrote) event()     {}
func (Listed) event()    {}
func (Checked) event()   {}
func (Deleted) event()   {}
func (Tick) event()      {}

// Action is something the shell is to do.
type Action interface{ action() }

// ReplyTo answers a message of the protocol.
type ReplyTo struct {
	Ticket Ticket
	Reply  commit.Reply
}

// AnswerHeartbeat answers a heartbeat. With Stale the node must register again.
type AnswerHeartbeat struct {
	Ticket Ticket
	Answer api.HeartbeatAnswer
	Refuse Refusal
}

// AnswerLocations answers a report of locations.
type AnswerLocations struct {
	Ticket   Ticket
	Verdicts meta.LocationVerdicts
	Refuse   Refusal
}

// Refusal is why a request is not served; the empty one is none.
type Refusal string

// The refusals.
const (
	RefuseNotLeader        Refusal = api.CodeNotLeader
	RefuseStaleIncarnation Refusal = api.CodeStaleIncarnation
	RefuseUnknown          Refusal = "UNKNOWN" // it may or may not have been written
)

// Write submits a function of the image to the one writer. Wrote follows. What
// is for the log.
type Write struct {
	ID   uint64
	What string
	Func meta.Func
}

// ListPartitions asks the table's stream for its partitions, metadata only.
// Listed follows.
type ListPartitions struct {
	ID     uint64
	Table  uuid.UUID
	Stream meta.StreamConfig
}

// CheckDeepStore has the object at URI, which is in the table's Store, compared
// with the segment's size and digest. Checked follows.
type CheckDeepStore struct {
	ID        uint64
	Segment   meta.SegmentKey
	Name      string
	Store     string // URI of the table's deep store
	URI       string
	SizeBytes int64
	Digest    segment.Digest
}

// DeleteDeepStore has objects deleted whose segment an expired tombstone remembers:
// Keys are of data, and their sidecars go with them. Deleted follows.
type DeleteDeepStore struct {
	ID    uint64
	Store string // URI of the table's deep store
	Keys  []string
}

// Expired says that retention has taken so many segments of a table. Nothing
// follows.
type Expired struct {
	Table    string // its name
	Segments int
}

// RetentionBlocked says why retention takes nothing, or with an empty Why that
// nothing is in its way any more. Nothing follows.
type RetentionBlocked struct{ Why string }

func (ReplyTo) action()          {}
func (AnswerHeartbeat) action()  {}
func (AnswerLocations) action()  {}
func (Write) action()            {}
func (ListPartitions) action()   {}
func (CheckDeepStore) action()   {}
func (DeleteDeepStore) action()  {}
func (Expired) action()          {}
func (RetentionBlocked) action() {}
