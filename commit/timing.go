package commit

import "time"

// Timing holds the two settings of a table that all waits scale with
// (PROTOCOL §2).
type Timing struct {
	Hold          time.Duration // H: how long HOLD holds
	CommitTimeout time.Duration // C: what a committer gets to seal
}

// DefaultTiming is that of a table that says nothing.
var DefaultTiming = Timing{Hold: 3 * time.Second, CommitTimeout: 120 * time.Second}

const (
	// stoppedRepeat is how often segmentStoppedConsuming is said until it is
	// acknowledged; after that, patience is.
	stoppedRepeat = 10 * time.Second
	// errorEvery is how often at most a segment's record takes a new last error.
	errorEvery = time.Minute
	// raiseMax bounds the doubling wait between two raises of an attempt.
	raiseMax = 10 * time.Minute
)

// pickAfter is how long after the first report a winner is picked although not
// everybody has reported.
func (t Timing) pickAfter() time.Duration { return t.Hold * 11 / 10 }

// notifyAfter is how long after the first report a decided winner may take to
// ask and be told.
func (t Timing) notifyAfter() time.Duration { return t.Hold * 22 / 10 }

// commitAfter is how long after the first report the committer's lease ends,
// unless it is extended.
func (t Timing) commitAfter() time.Duration { return t.notifyAfter() + t.CommitTimeout }

// buildTimeSec is what COMMIT tells the committer: its whole budget in seconds,
// rounded down so that it never believes in time it does not have, but 1 at
// least.
func (t Timing) buildTimeSec() int64 { return max(1, int64(t.commitAfter()/time.Second)) }

// hardCap is how long after the first report no extension reaches: 1800 s by
// default.
func (t Timing) hardCap() time.Duration { return 15 * t.CommitTimeout }

// extension is what a committer asks for at a time, in seconds.
func (t Timing) extensionSec() int64 { return max(1, int64(t.CommitTimeout/time.Second)) }

// patience is how long a replica looks for a source of a committed segment
// before it builds the file itself, and how long all replicas stay stopped
// before the leader first raises the attempt.
func (t Timing) patience() time.Duration { return 10 * t.Hold }
