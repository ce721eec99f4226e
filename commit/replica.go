package commit

import (
	"cmp"
	"time"

	"github.com/shoalstore/shoal/segment"
)

// Replica is the node's machine for one segment, from its first row to the
// moment the committed bytes lie verified in the local store. It holds no rows:
// it decides.
//
// # Driving it
//
// A node's shell has, per partition, a reader that fills a bounded buffer, and
// one goroutine that owns the segment's builder and its Replica. That goroutine
//
//   - makes the machine when the image shows an IN_PROGRESS record that names
//     this node, hands in the record (ImageChanged), and again whenever the
//     record or the image's epoch changed;
//   - offers each row just before it appends it (reading the clock once a batch
//     will do). AppendRow: append it. SkipRow: drop it, it is below the builder's
//     position. LeaveRow: leave it and all that follow in the buffer; the reader
//     goes on until the buffer is full;
//   - says Fed after a run of rows, after each LeaveRow, and when the reader
//     moved on without a row (offsets have gaps, and the next-fetch position
//     counts). Offer never returns actions; what it led to comes out of the
//     Step that follows;
//   - carries out the actions of each Step in their order. Seal, Send, Upload and
//     Download are long: they run in bounded workers, and their results are
//     events. Rows are not offered while a Seal runs; Consuming says whether
//     they are wanted at all.
//
// The roll-over: while n is HOLDING or COMMITTING its rows past the stop wait in
// the buffer. They are the first that n appends when it is told to catch up, or
// the first of n+1. The shell makes the Replica of n+1 once the image shows its
// record *and* n's machine, if there is one, has said SuccessorMayStart. If the
// feed stands exactly at that offset it is handed over, so the reader never
// stopped; else it seeks. n may go on without the feed (sealing, downloading,
// rebuilding from a private reader) beside n+1.
//
// After a restart of the node a committed segment whose file is not here can have
// a machine too: it is born with a DONE record, downloads, and rebuilds when
// nobody has the bytes. Fed, it catches up instead if the end is near.
//
// The machine is dropped once Over reports true, its last actions are done, and
// no Seal runs (its result still says what becomes of the file).
type Replica struct {
	cfg   ReplicaConfig
	state ReplicaState

	// The builder.
	builder    builderState
	next       int64 // its position: everything fetched below is appended
	fetched    int64 // what the reader has fetched, at least
	filled     int64 // last appended offset + 1; Start when there is no row
	rows       int64
	rawBytes   int64
	firstRowAt time.Duration
	target     int64  // append below it: CATCHING_UP, and RETAINING while filling
	filling    bool   // RETAINING: rows up to the committed end are still wanted
	sealEnd    int64  // of the last Seal
	failed     string // why the feed, or the seal, broke

	// The proposal. A sealed file at or past stop is reported instead of it.
	stop   int64
	reason Reason
	sealed []sealedFile

	talk  talk
	lease lease

	record  Record
	attempt int
	ended   bool // the stream has no more, for good

	settling      settling // RETAINING
	successorTold bool

	timer time.Duration // the last SetTimer
	out   []ReplicaAction
}

// builderState is what the machine knows of its builder.
type builderState uint8

const (
	builderOpen    builderState = iota // takes rows
	builderSealing                     // a Seal is running
	builderSpent                       // sealed, or the seal failed: Restart before the next row
)

// sealedFile is a file that this replica sealed. It is kept for the next try at
// the same offset: a second file is never built there.
type sealedFile struct {
	info segment.Info
	told bool // KeepFile or SetAside was said of it
}

// NewReplica returns the machine of a segment whose builder is empty and stands
// at cfg.Start. Hand in the record with ImageChanged next.
func NewReplica(cfg ReplicaConfig) *Replica {
	return &Replica{
		cfg: cfg, state: InitialConsuming, attempt: cfg.Attempt,
		next: cfg.Start, fetched: cfg.Start, filled: cfg.Start,
		talk: talk{sendAt: never}, lease: lease{askAt: never, uploadBy: never},
		settling: settling{retryAt: never, rebuildAt: never, catchUpBy: never},
		timer:    never,
	}
}

// Key returns the key of the machine's segment.
func (r *Replica) Key() Key { return r.cfg.Key }

// State returns the state the machine is in.
func (r *Replica) State() ReplicaState { return r.state }

// Position returns the builder's position.
func (r *Replica) Position() int64 { return r.next }

// Rows returns how many rows the builder holds.
func (r *Replica) Rows() int64 { return r.rows }

// Bytes returns the raw bytes of the builder's rows.
func (r *Replica) Bytes() int64 { return r.rawBytes }

// LastError says why the machine stopped, empty unless it is in ERROR.
func (r *Replica) LastError() string {
	if r.state != ReplicaError {
		return ""
	}
	return r.failed
}

// Over reports whether the machine is at an end.
func (r *Replica) Over() bool {
	return r.state == ReplicaCommitted || r.state == Retained || r.state == Discarded
}

// Step takes an event and returns what is to be done about it, in order. The
// slice is the caller's.
func (r *Replica) Step(now time.Duration, ev ReplicaEvent) []ReplicaAction {
	r.out = nil
	switch ev := ev.(type) {
	case ImageChanged:
		r.stepImage(now, ev.Record)
	case Fed:
		r.next = max(r.next, ev.Next)
		r.fetched = max(r.fetched, r.next, ev.Fetched)
	case PartitionEnded:
		r.ended = true
	case ReaderFailed:
		r.stepReaderFailed(now, ev.Error)
	case Answered:
		r.stepAnswered(now, ev.ID, ev.Reply)
	case NoAnswer:
		r.stepAnswered(now, ev.ID, Reply{})
	case Sealed:
		r.stepSealed(now, ev.Info)
	case SealFailed:
		r.stepSealFailed(now, ev.Error)
	case Uploaded:
		r.stepUploaded(now, ev.URI)
	case Downloaded:
		r.stepDownloaded(ev.Digest)
	case NoSource:
		r.stepNoSource(now)
	}
	r.advance(now)
	r.setTimer()
	return r.out
}

func (r *Replica) do(a ReplicaAction) { r.out = append(r.out, a) }

// advance does what the builder's position or the time calls for; it is called
// after every event, Tick included.
func (r *Replica) advance(now time.Duration) {
	switch r.state {
	case InitialConsuming:
		if reason := r.criterion(now); reason != "" && r.builder == builderOpen {
			r.stopHere(now, reason)
		}
	case CatchingUp:
		if r.builder == builderOpen && r.next >= r.target {
			r.stop = r.target
			r.become(ReplicaHolding)
			r.say(now, SegmentConsumed)
		}
	case ReplicaCommitting:
		r.advanceLease(now)
	case Retaining:
		r.advanceSettling(now)
	}
	if r.talk.awaiting == 0 && now >= r.talk.sendAt {
		r.say(now, r.talk.next)
	}
}

// stepImage compares the record with where the machine is.
func (r *Replica) stepImage(now time.Duration, rec Record) {
	before := r.record
	r.record = rec
	r.cfg.Incarnation = cmp.Or(rec.Incarnation, r.cfg.Incarnation)
	switch {
	case r.Over():
	case !rec.Mine:
		r.leave()
	case rec.Done:
		r.stepDone(now, rec)
	case r.state == ReplicaError && rec.Attempt > r.attempt:
		r.startAfresh()
	case r.state == ReplicaError && rec.LeaderEpoch > before.LeaderEpoch && r.talk.awaiting == 0:
		r.say(now, SegmentStoppedConsuming) // a new leader does not know
	case r.state == ReplicaHolding && r.reason == ForceCommit && r.rows == 0 && len(r.sealed) == 0 && !rec.EndRequested:
		r.resume(now)
	}
	r.attempt = max(r.attempt, rec.Attempt)
}

// startAfresh leaves ERROR for another attempt from the segment's start. What
// was sealed is kept, and reported until the new builder is past it.
func (r *Replica) startAfresh() {
	r.hush()
	r.failed, r.reason = "", ""
	r.become(InitialConsuming)
	if r.builder != builderSealing { // else stepSealed does it
		r.restart()
	}
}

// resume goes on after a force commit that found no row anywhere.
func (r *Replica) resume(now time.Duration) {
	if r.failed != "" {
		r.fail(now, r.failed)
		return
	}
	r.hush()
	r.reason = ""
	r.become(InitialConsuming)
	r.needBuilder()
}

// stepReaderFailed: while nothing more is to be appended a broken feed is the
// successor's trouble, unless this machine is told to catch up.
func (r *Replica) stepReaderFailed(now time.Duration, err string) {
	switch r.state {
	case InitialConsuming, CatchingUp:
		r.fail(now, err)
	case ReplicaHolding, ReplicaCommitting:
		r.failed = err
	case Retaining:
		r.failed = err
		if r.filling {
			r.filling = false
			r.tellSuccessor()
			r.download()
		}
	}
}

// fail stops for good and says so until it is acknowledged. Only a higher
// attempt, or a committed end, gets the machine out of ERROR.
func (r *Replica) fail(now time.Duration, err string) {
	r.failed = err
	r.hush()
	r.become(ReplicaError)
	r.stop = r.next
	r.say(now, SegmentStoppedConsuming)
}

// leave ends the machine because the segment is not this node's any more. Files
// that were sealed stay on disk: absence deletes nothing.
func (r *Replica) leave() {
	r.become(Discarded)
	r.finish()
}

// setTimer asks for the next moment at which advance has something to do.
func (r *Replica) setTimer() {
	at := never
	if r.talk.awaiting == 0 {
		at = min(at, r.talk.sendAt)
	}
	switch r.state {
	case InitialConsuming:
		if r.rows > 0 && r.cfg.MaxAge > 0 {
			at = min(at, r.firstRowAt+r.cfg.MaxAge)
		}
	case ReplicaCommitting:
		at = min(at, r.lease.uploadBy)
		if r.talk.awaiting == 0 {
			at = min(at, r.lease.askAt)
		}
	case Retaining:
		at = min(at, r.settling.retryAt, r.settling.rebuildAt, r.settling.catchUpBy)
	}
	if at != r.timer {
		r.timer = at
		r.do(SetTimer{at})
	}
}
