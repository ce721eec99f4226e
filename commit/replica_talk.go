package commit

import (
	"strings"
	"time"

	"github.com/shoalstore/shoal/segment"
)

// talk is the conversation with the leader: one message at a time.
type talk struct {
	sent     uint64        // ID of the last Send, the first is 1
	awaiting uint64        // ID whose answer is awaited, 0 = none
	kind     Kind          // of the awaited one
	sentAt   time.Duration // when it was sent
	sendAt   time.Duration // when to send next, never = not
	next     Kind          // what
}

// lease is the committer's time to seal, and its wait for the upload.
type lease struct {
	askAt     time.Duration // when to ask for more
	uploading bool
	uploadBy  time.Duration // when to commit without the upload
	uri       string        // where the upload put it
}

// say sends a message now. It leaves alone what is due to be said later.
func (r *Replica) say(now time.Duration, kind Kind) {
	t := &r.talk
	if kind == t.next {
		t.sendAt = never
	}
	t.sent++
	t.awaiting, t.kind, t.sentAt = t.sent, kind, now
	r.do(Send{t.sent, r.message(kind)})
}

// sayLater sends a message in a while.
func (r *Replica) sayLater(now time.Duration, kind Kind, wait time.Duration) {
	r.talk.next, r.talk.sendAt = kind, now+wait
}

// hush ends the conversation: an answer on its way will not be heard.
func (r *Replica) hush() {
	r.talk.awaiting, r.talk.sendAt = 0, never
	r.lease = lease{askAt: never, uploadBy: never}
}

// message fills in what a message of that kind says.
func (r *Replica) message(kind Kind) Message {
	c := &r.cfg
	m := Message{
		Kind: kind, Table: c.Key.Table, Partition: c.Key.Partition, Seq: c.Key.Seq, Segment: c.Segment,
		Instance: c.Instance, Incarnation: c.Incarnation, StreamEpoch: c.StreamEpoch,
		MinTimestamp: segment.NoTimestamp, MaxTimestamp: segment.NoTimestamp,
	}
	m.Offset, m.Rows, m.Bytes = r.proposal()
	switch kind {
	case SegmentConsumed:
		m.Reason = r.reason
	case SegmentStoppedConsuming:
		m.Reason, m.Error = r.reason, strings.ToValidUTF8(r.failed[:min(len(r.failed), maxErrorBytes)], "")
	case SegmentCommitEnd:
		m.Bytes = 0
		m.StoreID, m.DeepStoreURI = c.StoreID, r.lease.uri
		m.fillInfo(r.sealedAt(m.Offset).info)
	case ExtendBuildTime:
		m.ExtraTimeSec = c.Timing.extensionSec()
	}
	return m
}

// fillInfo puts what the seal learnt into a commitEnd.
func (m *Message) fillInfo(i segment.Info) {
	m.Digest, m.SHA256, m.RowsDigest = i.Digest, i.SHA256, i.RowsDigest
	m.SizeBytes, m.Rows = i.SizeBytes, i.Rows
	m.MinTimestamp, m.MaxTimestamp = i.MinTimestamp, i.MaxTimestamp
	if i.LastLeaderEpoch != segment.NoLeaderEpoch {
		m.LastLeaderEpoch = &i.LastLeaderEpoch
	}
}

// stepAnswered takes the awaited answer; the zero reply is no answer.
func (r *Replica) stepAnswered(now time.Duration, id uint64, reply Reply) {
	if id == 0 || id != r.talk.awaiting {
		return
	}
	kind := r.talk.kind
	r.talk.awaiting = 0
	switch r.state {
	case ReplicaHolding:
		r.answerConsumed(now, reply)
	case ReplicaCommitting:
		switch kind {
		case SegmentCommitStart:
			r.answerStart(now, reply)
		case SegmentCommitEnd:
			r.answerEnd(now, reply)
		case ExtendBuildTime:
			r.answerExtend(now, reply)
		}
	case ReplicaError:
		r.answerStopped(now, reply)
	}
}

// answerStopped: it is said again even after PROCESSED, if rarely, since the
// leader may forget. It keeps who has stopped in memory only: the acknowledgement
// may come from a leader that is about to fall, and a `consumed` that was sent
// before the error may overtake the stop and take it back. Without the repeat
// the others could wait for this replica's report for ever.
func (r *Replica) answerStopped(now time.Duration, reply Reply) {
	wait := stoppedRepeat
	if reply.Status == Processed {
		wait = max(wait, r.cfg.Timing.patience())
	}
	r.sayLater(now, SegmentStoppedConsuming, wait)
}

// answerConsumed: whatever does not move the replica on makes it wait one hold
// time and ask again, no answer included.
func (r *Replica) answerConsumed(now time.Duration, reply Reply) {
	end, rows, _ := r.proposal()
	switch {
	case reply.Status == CatchUp && reply.Offset > end:
		r.catchUp(now, reply.Offset)
	case reply.Status == Commit && reply.Offset == end && rows > 0:
		r.startCommit(now, end, reply.BuildTimeSec)
	case reply.Status == Keep, reply.Status == Discard:
		r.settle(now, reply.Offset, reply.Digest)
	default:
		r.sayLater(now, SegmentConsumed, r.cfg.Timing.Hold)
	}
}

// startCommit: this replica is the committer. A file that was sealed at this
// end in an earlier round serves again.
func (r *Replica) startCommit(now time.Duration, end, buildTimeSec int64) {
	r.become(ReplicaCommitting)
	r.renew(now, buildTimeSec)
	switch {
	case r.sealedAt(end) != nil:
		r.say(now, SegmentCommitStart)
	case r.builder == builderOpen:
		r.seal(end)
	}
}

// renew notes a lease of so many seconds from t on; more is asked for when nine
// tenths of it are gone.
func (r *Replica) renew(t time.Duration, seconds int64) {
	r.lease.askAt = t + time.Duration(seconds)*time.Second*9/10
}

// advanceLease asks for a longer lease, and stops waiting for an upload.
func (r *Replica) advanceLease(now time.Duration) {
	if r.lease.uploading && now >= r.lease.uploadBy {
		r.commitEnd(now)
	}
	if now >= r.lease.askAt && r.talk.awaiting == 0 {
		r.lease.askAt = never
		r.say(now, ExtendBuildTime)
	}
}

// holdAgain leaves COMMITTING: the round was not ours or is over. The sealed
// file, or the seal that still runs, waits for the next one.
func (r *Replica) holdAgain(now time.Duration) {
	r.hush()
	r.become(ReplicaHolding)
	r.sayLater(now, SegmentConsumed, r.cfg.Timing.Hold)
}

// answerStart: a start whose answer got lost is said again, because the leader
// knows a repeat and would take `consumed` for the end of the round.
func (r *Replica) answerStart(now time.Duration, reply Reply) {
	switch reply.Status {
	case CommitContinue:
		if r.cfg.UploadWait == 0 {
			r.commitEnd(now)
			return
		}
		r.lease.uploading, r.lease.uploadBy = true, now+r.cfg.UploadWait
		r.do(Upload{r.sealedAt(r.sealedEnd()).info})
	case Keep, Discard:
		r.settle(now, reply.Offset, reply.Digest)
	case NotLeader, "":
		r.sayLater(now, SegmentCommitStart, r.cfg.Timing.Hold)
	default:
		r.holdAgain(now)
	}
}

// sealedEnd is the end that is being committed.
func (r *Replica) sealedEnd() int64 {
	end, _, _ := r.proposal()
	return end
}

// stepUploaded: the upload that commitEnd waited for is over, well or not.
func (r *Replica) stepUploaded(now time.Duration, uri string) {
	if r.state != ReplicaCommitting || !r.lease.uploading {
		return
	}
	r.lease.uri = uri
	r.commitEnd(now)
}

// commitEnd asks for the commit. From here on the lease does not matter: no
// deadline binds an end.
func (r *Replica) commitEnd(now time.Duration) {
	r.lease.uploading, r.lease.uploadBy, r.lease.askAt = false, never, never
	r.say(now, SegmentCommitEnd)
}

// answerEnd: an end whose answer got lost is said again until there is one; a
// leader that wrote it knows the repeat from the record.
func (r *Replica) answerEnd(now time.Duration, reply Reply) {
	switch reply.Status {
	case CommitSuccess:
		r.committed()
	case NotLeader, "":
		r.sayLater(now, SegmentCommitEnd, r.cfg.Timing.Hold)
	default:
		r.holdAgain(now)
	}
}

// answerExtend: refused means that the round is over; no answer leaves a tenth
// of the lease to ask again in.
func (r *Replica) answerExtend(now time.Duration, reply Reply) {
	switch reply.Status {
	case Processed:
		r.renew(r.talk.sentAt, r.cfg.Timing.extensionSec())
	case NotLeader, "":
		r.lease.askAt = now + r.cfg.Timing.Hold
	default:
		r.holdAgain(now)
	}
}

// stepSealed: the file is published in the local store.
func (r *Replica) stepSealed(now time.Duration, info segment.Info) {
	if r.builder != builderSealing {
		return
	}
	r.builder = builderSpent
	r.sealed = append(r.sealed, sealedFile{info: info})
	switch r.state {
	case InitialConsuming, CatchingUp:
		r.restart() // it was told to go on while the seal ran
	case ReplicaCommitting:
		r.say(now, SegmentCommitStart)
	case Retaining:
		if info.End == r.settling.end {
			r.compare(r.sealedAt(info.End))
		}
	case ReplicaCommitted, Retained, Discarded:
		r.finishSealed()
	}
}

// stepSealFailed: the rows are still in the stream, but this node cannot make a
// file of them. Told who has one, it fetches it; else it stops and says why.
func (r *Replica) stepSealFailed(now time.Duration, err string) {
	if r.builder != builderSealing {
		return
	}
	r.builder = builderSpent
	switch r.state {
	case ReplicaHolding, ReplicaCommitting, CatchingUp:
		r.fail(now, err)
	case InitialConsuming:
		r.restart()
	case Retaining:
		r.download()
	}
}
