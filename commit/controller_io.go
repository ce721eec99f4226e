package commit

import (
	"time"

	"github.com/shoalstore/shoal/segment"
)

// Ticket names one received message: the shell makes it, never the same twice,
// and answers the message when a Respond carries it.
type Ticket uint64

// RecordStatus is what the image says of a segment.
type RecordStatus uint8

// The statuses of a record. A LOST segment is Absent for the protocol: there is
// nothing left to agree on.
const (
	Absent RecordStatus = iota
	InProgress
	Done
)

// Facts is what the image says about the segment and the sender of one message,
// at the moment it is handed in. The shell takes them from an image that holds
// everything whose WriteDone it has already handed in.
type Facts struct {
	// Leading: this controller leads and can write. When false, only Leader is
	// looked at.
	Leading bool
	Leader  string // URL of the leader, if another is known

	Status      RecordStatus
	Name        string
	Start       int64
	StreamEpoch string
	Attempt     int
	// Replicas are the record's, not the table's. The machine keeps the slice.
	Replicas []string
	// Incarnation is the sender's current one, 0 when no such node is registered.
	Incarnation int64
	Timing      Timing

	// Of a DONE record.
	End       int64
	Digest    segment.Digest
	Committer string
}

// Event is something that happened to the controller.
type Event interface{ controllerEvent() }

// Received is a well-formed message that waits for its answer. Exactly one
// Respond with its ticket follows, in this Step or a later one.
type Received struct {
	Ticket  Ticket
	Message Message
	Facts   Facts
}

// Outcome is how a metadata write ended.
type Outcome uint8

// The outcomes. Unknown belongs to WriteFailed.
const (
	Written      Outcome = iota + 1 // the batch is committed
	WriteRefused                    // its function refused: nothing was written
	WriteFailed                     // not written, or nobody knows
)

// WriteDone is the result of a WriteCommit or an EndEmpty, of the same key and
// ticket.
type WriteDone struct {
	Key     Key
	Ticket  Ticket
	Outcome Outcome
}

// RaiseDone is the result of a RaiseAttempt.
type RaiseDone struct {
	Key     Key
	Outcome Outcome
}

// SegmentGone says that the record left the image or became LOST: what is
// remembered of it is dropped. A pending write is still waited for.
type SegmentGone struct{ Key Key }

// Deposed says that this controller no longer leads: every machine is dropped,
// and messages that wait for a write are answered NOT_LEADER.
type Deposed struct{ Leader string }

// Tick lets deadlines be seen. Once a second is plenty for the controller; a
// Replica asks for its ticks with SetTimer.
type Tick struct{}

func (Received) controllerEvent()    {}
func (WriteDone) controllerEvent()   {}
func (RaiseDone) controllerEvent()   {}
func (SegmentGone) controllerEvent() {}
func (Deposed) controllerEvent()     {}
func (Tick) controllerEvent()        {}

// Action is something the controller's shell is to do.
type Action interface{ controllerAction() }

// Respond answers the message of that ticket.
type Respond struct {
	Ticket Ticket
	Reply  Reply
}

// WriteCommit asks for the one batch of a commit: segment DONE, its first
// location, successor IN_PROGRESS. The batch's function checks the record's
// IN_PROGRESS, end > start, the sender's incarnation and storeId again. Its
// result comes back as WriteDone.
type WriteCommit struct {
	Key    Key
	Ticket Ticket
	End    Message // the segmentCommitEnd
}

// EndEmpty asks for the batch that ends a segment in which no replica has a
// row: with endRequested by a force commit it clears that, else it removes the
// segment and sets the partition PAUSED or ENDED; nextOffset stays. Reason is
// EndOfPartition when all replicas gave that, else ForceCommit. Its result
// comes back as WriteDone.
type EndEmpty struct {
	Key    Key
	Ticket Ticket
	Reason Reason
}

// RecordError asks to put a replica's error into the segment's record. Nothing
// waits for it, and if it fails nothing is lost but the note.
type RecordError struct {
	Key      Key
	Instance string
	Error    string
}

// RaiseAttempt asks to raise the record's attempt from From to From+1, so that
// replicas in ERROR start afresh; refused if it is another by now. Its result
// comes back as RaiseDone.
type RaiseAttempt struct {
	Key  Key
	From int
}

func (Respond) controllerAction()      {}
func (WriteCommit) controllerAction()  {}
func (EndEmpty) controllerAction()     {}
func (RecordError) controllerAction()  {}
func (RaiseAttempt) controllerAction() {}

// never is a deadline that does not come.
const never = time.Duration(1<<63 - 1)
