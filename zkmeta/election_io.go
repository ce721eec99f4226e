package zkmeta

import (
	"time"

	"github.com/google/uuid"
)

// The contract with the shell. One goroutine owns an Election. Every action with
// a Try is answered, within a time-out of the shell's own, by exactly one event
// with the same Try; an answer that is no longer waited for is dropped. What
// became of a request is only said when it is certain, and an answer counts only
// if the client still had the same session when it came: the client may send
// what it queued in a later one. Everything else is an error, or Unknown.

// ElectionEvent is something that happened.
type ElectionEvent interface{ electionEvent() }

// SessionOpened says that ZooKeeper gave this process a new session.
type SessionOpened struct{ Session int64 }

// SessionLost says that the connection is gone; the session may live.
type SessionLost struct{ Session int64 }

// SessionBack says that there is a connection again, in the same session.
type SessionBack struct{ Session int64 }

// SessionExpired says that the session is over.
type SessionExpired struct{ Session int64 }

// Ponged says that a request of the session, a Ping or any other, was answered,
// and when its sending began.
type Ponged struct {
	Session int64
	SentAt  time.Duration
}

// CandidateCreated is the result of CreateCandidate.
type CandidateCreated struct {
	Try  uint64
	Name string // with the sequence that ZooKeeper gave it
	Err  error
}

// CandidateDeleted is the result of DeleteCandidate; one that was not there any
// more is no error.
type CandidateDeleted struct {
	Try uint64
	Err error
}

// Candidates is the result of ListCandidates: the names of all children, in any
// order.
type Candidates struct {
	Try   uint64
	Names []string
	Err   error
}

// CandidateGone is the result of WatchCandidate: the candidate went, or was not
// there when it should be watched. Err says that the watch could not be set.
type CandidateGone struct {
	Try  uint64
	Name string
	Err  error
}

// Head is what log/head says of the last batch. A head that nobody has written
// is made by the shell, with zeros, before the first read.
type Head struct {
	Epoch  int64
	Offset int64
	Term   uuid.UUID
}

// HeadRead is the result of ReadHead. Version is that of the znode.
type HeadRead struct {
	Try     uint64
	Head    Head
	Version int32
	Err     error
}

// CaughtUp is the result of CatchUp: where the image stands now, in the terms of
// Head. An image that contradicts the log is an error.
type CaughtUp struct {
	Try    uint64
	Offset int64
	Epoch  int64
	Err    error
}

// Outcome is what is known of a conditional write.
type Outcome uint8

// The outcomes of a write. What is none of the first two is Unknown.
const (
	Unknown    Outcome = iota // it may be there, may come to be, or may never
	Written                   // it is in the log
	BadVersion                // it is not: somebody else wrote first
)

// LeaderWritten is the result of WriteLeader.
type LeaderWritten struct {
	Try     uint64
	Outcome Outcome
	Err     error
}

// Resign lays leadership down, or the hope of it: the writer of that epoch is
// poisoned or, with Final, the process stops. Epoch 0 means whatever there is; a
// late word of an older epoch changes nothing.
type Resign struct {
	Epoch int64
	Final bool
	Why   string
}

// ElectionTick lets deadlines be seen; a tenth of the session timeout is often
// enough.
type ElectionTick struct{}

func (SessionOpened) electionEvent()    {}
func (SessionLost) electionEvent()      {}
func (SessionBack) electionEvent()      {}
func (SessionExpired) electionEvent()   {}
func (Ponged) electionEvent()           {}
func (CandidateCreated) electionEvent() {}
func (CandidateDeleted) electionEvent() {}
func (Candidates) electionEvent()       {}
func (CandidateGone) electionEvent()    {}
func (HeadRead) electionEvent()         {}
func (CaughtUp) electionEvent()         {}
func (LeaderWritten) electionEvent()    {}
func (Resign) electionEvent()           {}
func (ElectionTick) electionEvent()     {}

// ElectionAction is something the shell is to do.
type ElectionAction interface{ electionAction() }

// CreateCandidate creates an ephemeral sequential child of election/, and that
// directory if it is not there.
type CreateCandidate struct {
	Try    uint64
	Prefix string
}

// DeleteCandidate removes a child of election/.
type DeleteCandidate struct {
	Try  uint64
	Name string
}

// ListCandidates lists the children of election/.
type ListCandidates struct{ Try uint64 }

// WatchCandidate waits until a child of election/ goes. A newer one replaces it,
// and so does the end of the session.
type WatchCandidate struct {
	Try  uint64
	Name string
}

// ReadHead reads log/head, after a sync.
type ReadHead struct{ Try uint64 }

// CatchUp brings this process's image to exactly To. A newer one replaces it.
type CatchUp struct {
	Try uint64
	To  Head
}

// WriteLeader appends the Leader batch of Epoch, with a term drawn for this
// action alone, on the condition that the head's version is Version.
type WriteLeader struct {
	Try     uint64
	Version int32
	Epoch   int64
}

// StartLeading says that this process leads from now on, by the WriteLeader of
// that Try.
type StartLeading struct {
	Try   uint64
	Epoch int64
}

// StepDown ends what StartLeading began: no message is answered, nothing is
// appended any more.
type StepDown struct {
	Epoch int64
	Why   string
}

// Ping has any request sent. If it is answered, Ponged says so.
type Ping struct{ Session int64 }

func (CreateCandidate) electionAction() {}
func (DeleteCandidate) electionAction() {}
func (ListCandidates) electionAction()  {}
func (WatchCandidate) electionAction()  {}
func (ReadHead) electionAction()        {}
func (CatchUp) electionAction()         {}
func (WriteLeader) electionAction()     {}
func (StartLeading) electionAction()    {}
func (StepDown) electionAction()        {}
func (Ping) electionAction()            {}

// effectResult is an event that answers the action with the same Try.
type effectResult interface {
	ElectionEvent
	attempt() uint64
	// contact tells whether ZooKeeper has answered for certain.
	contact() bool
}

func (r CandidateCreated) attempt() uint64 { return r.Try }
func (r CandidateDeleted) attempt() uint64 { return r.Try }
func (r Candidates) attempt() uint64       { return r.Try }
func (r HeadRead) attempt() uint64         { return r.Try }
func (r CaughtUp) attempt() uint64         { return r.Try }
func (r LeaderWritten) attempt() uint64    { return r.Try }

func (r CandidateCreated) contact() bool { return r.Err == nil }
func (r CandidateDeleted) contact() bool { return r.Err == nil }
func (r Candidates) contact() bool       { return r.Err == nil }
func (r HeadRead) contact() bool         { return r.Err == nil }
func (r CaughtUp) contact() bool         { return false } // the log comes from other controllers too
func (r LeaderWritten) contact() bool    { return r.Outcome == Written || r.Outcome == BadVersion }
