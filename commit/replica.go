package commit

import "time"

// Verdict is the answer to an offered row.
type Verdict uint8

// The verdicts.
const (
	AppendRow Verdict = iota + 1 // append it now: it is counted
	SkipRow                      // the builder is past it already
	LeaveRow                     // not appended here: it waits, for the successor or for CATCH_UP
)

// Replica is the node's machine for one segment.
type Replica struct {
	cfg   ReplicaConfig
	state ReplicaState
}

// NewReplica returns the machine of a segment whose builder is empty and at
// cfg.Start. Hand in the record with ImageChanged next.
func NewReplica(cfg ReplicaConfig) *Replica { return &Replica{cfg: cfg, state: InitialConsuming} }

// State returns the state the machine is in.
func (r *Replica) State() ReplicaState { return r.state }

// Consuming reports whether the machine wants rows offered.
func (r *Replica) Consuming() bool { return false }

// Offer asks whether the next row of the feed is to be appended now. The shell
// asks for each row just before it appends it, so that the segment ends exactly
// at its criterion, in mid-batch if need be. After a run of rows, and always
// after LeaveRow, it says Fed.
func (r *Replica) Offer(now time.Duration, offset, rawBytes int64) Verdict { return LeaveRow }

// Position returns the builder's position, Rows and Bytes what it holds.
func (r *Replica) Position() int64 { return 0 }

// Rows returns how many rows the builder holds.
func (r *Replica) Rows() int64 { return 0 }

// Bytes returns the raw bytes of the builder's rows.
func (r *Replica) Bytes() int64 { return 0 }

// Step takes an event and returns what is to be done about it, in order.
func (r *Replica) Step(now time.Duration, ev ReplicaEvent) []ReplicaAction { return nil }
