package commit

import (
	"maps"
	"slices"
	"time"
)

// Completion is the controller's machine for one segment that is completing. It
// has no timers: progress is clocked by the replicas' messages, and deadlines
// are looked at when one arrives. Not the leader, no record, a stranger as the
// sender: Controller answers those, and the machine never sees them.
//
// A round (winner, deadlines) is aborted only by its winner's own message, by a
// deadline, or, while merely COMMITTER_DECIDED, by a larger offset. In
// COMMITTING nothing aborts: the write's outcome is the only exit.
type Completion struct {
	key    Key
	timing Timing
	state  CompletionState

	// reports is what each replica said last; a stopped one is not in it.
	reports map[string]report
	// stops outlives the machine: it belongs to the segment, not to a round.
	stops *stops

	firstConsumed time.Duration // when the deadlines started
	commitBy      time.Duration // end of the committer's lease
	winner        string        // "" until decided
	offset        int64         // the winner's; in COMMITTED the record's end

	pending *pendingWrite // in COMMITTING
	out     []Action
}

// report is a replica's proposal.
type report struct {
	offset int64
	rows   int64
	reason Reason
}

// pendingWrite is a metadata write in flight and the messages that wait for it.
type pendingWrite struct {
	ticket  Ticket // of the message that caused it: names the write
	end     *Message
	waiting []Ticket
}

// maxWaiting bounds how many repeats of one message wait for one write. Past it
// the oldest is answered FAILED: its sender has long given up on that request,
// and FAILED only makes a replica ask again.
const maxWaiting = 16

// newCompletion makes the machine for a first message that is `consumed`
// (HOLDING) or a stop (PARTIAL_CONSUMING), or about a DONE record (COMMITTED).
func newCompletion(now time.Duration, key Key, timing Timing, st CompletionState, known *stops) *Completion {
	return &Completion{key: key, timing: timing, state: st, stops: known, reports: map[string]report{}, firstConsumed: now}
}

// State returns the state the machine is in.
func (c *Completion) State() CompletionState { return c.state }

// Winner returns the committer of this round, empty if none is decided.
func (c *Completion) Winner() string { return c.winner }

// Over reports whether the machine is at an end and to be dropped.
func (c *Completion) Over() bool { return c.state == Committed || c.state == Aborted }

// Step takes a Received or a WriteDone of this segment; other events do not
// concern a Completion. Facts.Leading is true and Facts.Status not Absent.
func (c *Completion) Step(now time.Duration, ev Event) []Action {
	c.out = nil
	switch ev := ev.(type) {
	case Received:
		switch ev.Message.Kind {
		case SegmentConsumed:
			c.stepConsumed(now, ev)
		case SegmentCommitStart:
			c.stepStart(now, ev)
		case SegmentCommitEnd:
			c.stepEnd(ev)
		case SegmentStoppedConsuming:
			c.stepStopped(now, ev)
		case ExtendBuildTime:
			c.stepExtend(now, ev)
		default:
			c.respond(ev, Reply{Status: Failed})
		}
	case WriteDone:
		c.stepWritten(ev)
	}
	return c.out
}

func (c *Completion) respond(ev Received, r Reply) { c.respondTo(ev.Ticket, r) }

func (c *Completion) respondTo(t Ticket, r Reply) { c.out = append(c.out, Respond{t, r}) }

// abort ends the round; the sender is told to hold, or whatever status says.
func (c *Completion) abort(ev Received, status Status) {
	c.become(Aborted)
	c.respond(ev, Reply{Status: status})
}

// stepConsumed: a replica stopped and proposes an end.
func (c *Completion) stepConsumed(now time.Duration, ev Received) {
	m := &ev.Message
	c.stops.remove(m.Instance)
	c.reports[m.Instance] = report{m.Offset, m.Rows, m.Reason}
	if c.state == PartialConsuming {
		c.become(Holding)
		c.firstConsumed = now
	}
	fromWinner := m.Instance == c.winner

	switch c.state {
	case Holding:
		c.pickWinner(now, ev)
	case CommitterDecided:
		switch {
		case now > c.firstConsumed+c.timing.notifyAfter():
			c.abort(ev, Hold)
		case fromWinner && m.Offset == c.offset:
			c.notify(ev)
		case fromWinner || m.Offset > c.offset:
			c.abort(ev, Hold)
		default:
			c.respond(ev, c.byOffset(m.Offset))
		}
	case CommitterNotified:
		switch {
		case now > c.commitBy:
			c.abort(ev, Hold)
		case fromWinner && m.Offset == c.offset:
			c.respond(ev, c.commitReply()) // the first COMMIT was lost
		case fromWinner:
			c.abort(ev, Hold)
		default:
			c.respond(ev, c.byOffset(m.Offset))
		}
	case CommitterUploading:
		if fromWinner || now > c.commitBy {
			c.abort(ev, Hold)
		} else {
			c.respond(ev, c.byOffset(m.Offset))
		}
	case Committing:
		if fromWinner {
			c.respond(ev, Reply{Status: Hold})
		} else {
			c.respond(ev, c.byOffset(m.Offset))
		}
	case Committed:
		c.respond(ev, committedReply(ev))
	}
}

// byOffset is the answer to a replica that did not win: catch up if it is short
// of the winner's end, else wait.
func (c *Completion) byOffset(offset int64) Reply {
	if offset < c.offset {
		return Reply{Status: CatchUp, Offset: c.offset}
	}
	return Reply{Status: Hold}
}

func (c *Completion) commitReply() Reply {
	return Reply{Status: Commit, Offset: c.offset, BuildTimeSec: c.timing.buildTimeSec()}
}

// notify tells the winner that it is the committer. Its lease counts from the
// first report, as all deadlines of a round do.
func (c *Completion) notify(ev Received) {
	c.become(CommitterNotified)
	c.commitBy = c.firstConsumed + c.timing.commitAfter()
	c.respond(ev, c.commitReply())
}

// committedReply is KEEP to a replica at the committed end, DISCARD to any
// other. Both come from the DONE record alone.
func committedReply(ev Received) Reply {
	r := Reply{Status: Discard, Offset: ev.Facts.End, Digest: ev.Facts.Digest}
	if ev.Message.Offset == ev.Facts.End {
		r.Status = Keep
	}
	return r
}

// pickWinner answers a report in HOLDING, deciding the round if it can be.
//
//  1. The first and only reporter wins at once if its reason is one at which
//     every replica stops at that same offset.
//  2. Else, once the pick deadline has passed or everybody who still can has
//     reported: the largest offset, the sender among equals, else the smallest
//     instance id.
//
// A report without rows never wins: a segment without rows is never committed.
func (c *Completion) pickWinner(now time.Duration, ev Received) {
	m := &ev.Message
	var live []string // reporters that are still replicas, sorted
	for _, id := range slices.Sorted(maps.Keys(c.reports)) {
		if slices.Contains(ev.Facts.Replicas, id) {
			live = append(live, id)
		}
	}
	everybody := len(live) >= len(ev.Facts.Replicas)-c.stops.count(ev.Facts.Replicas)
	waited := everybody || now > c.firstConsumed+c.timing.pickAfter()
	// Who is missing after the deadline may have rows, or be gone: then a force
	// commit or a pause would wait for it for ever. Ending empty loses nothing of
	// its rows, as nextOffset stays and they are read again.
	if waited && c.allEmpty(live) {
		c.endEmpty(ev, live)
		return
	}

	first := len(live) == 1 && (m.Reason == RowLimit || m.Reason == SizeLimit || m.Reason == EndOfPartition)
	if !first && !waited {
		c.respond(ev, Reply{Status: Hold})
		return
	}
	winner := ""
	for _, id := range live {
		r := c.reports[id]
		if r.rows == 0 {
			continue
		}
		best := c.reports[winner]
		if winner == "" || r.offset > best.offset || r.offset == best.offset && id == m.Instance {
			winner = id
		}
	}
	if winner == "" {
		c.respond(ev, Reply{Status: Hold})
		return
	}
	c.winner, c.offset = winner, c.reports[winner].offset
	c.become(CommitterDecided)
	if winner == m.Instance {
		c.notify(ev)
		return
	}
	c.respond(ev, c.byOffset(m.Offset))
}

// allEmpty reports whether every one of ids was asked to end without a row.
func (c *Completion) allEmpty(ids []string) bool {
	for _, id := range ids {
		r := c.reports[id]
		if r.rows != 0 || r.reason != ForceCommit && r.reason != EndOfPartition {
			return false
		}
	}
	return len(ids) > 0
}

// endEmpty asks for the batch that ends a segment nobody has a row of. While it
// is in flight the machine is COMMITTING, with no winner: everybody holds.
func (c *Completion) endEmpty(ev Received, ids []string) {
	reason := EndOfPartition
	for _, id := range ids {
		if c.reports[id].reason != EndOfPartition {
			reason = ForceCommit
		}
	}
	c.become(Committing)
	c.pending = &pendingWrite{ticket: ev.Ticket, waiting: []Ticket{ev.Ticket}}
	c.out = append(c.out, EndEmpty{c.key, ev.Ticket, reason})
}

// stepStart: a replica says that it is the committer and has sealed. Only the
// winner of this round may go on; anyone else holds (the original lets them).
func (c *Completion) stepStart(now time.Duration, ev Received) {
	m := &ev.Message
	fromWinner := m.Instance == c.winner
	switch {
	case c.stops.has(m.Instance):
		c.respond(ev, Reply{Status: Failed})
	case c.state == Committed:
		c.respond(ev, committedReply(ev))
	case c.state == CommitterNotified && fromWinner:
		if m.Offset != c.offset || now > c.commitBy {
			c.abort(ev, Hold)
			return
		}
		c.become(CommitterUploading)
		c.respond(ev, Reply{Status: CommitContinue})
	case c.state == CommitterUploading && fromWinner && m.Offset == c.offset:
		c.respond(ev, Reply{Status: CommitContinue}) // the first answer was lost
	default:
		c.respond(ev, Reply{Status: Hold})
	}
}

// stepEnd: commit it. No deadline binds an end: the file is there, and refusing
// it would only make somebody build it again.
func (c *Completion) stepEnd(ev Received) {
	m := &ev.Message
	fromWinner := m.Instance == c.winner
	switch {
	case c.state == CommitterUploading && fromWinner && m.Offset == c.offset:
		c.become(Committing)
		c.pending = &pendingWrite{ticket: ev.Ticket, end: m, waiting: []Ticket{ev.Ticket}}
		c.out = append(c.out, WriteCommit{c.key, ev.Ticket, *m})
	case c.state == CommitterUploading && fromWinner:
		c.abort(ev, Failed)
	case c.state == Committing && c.pending.isSame(m):
		c.join(ev.Ticket)
	case c.state == Committed && m.Instance == ev.Facts.Committer && m.Offset == ev.Facts.End && m.Digest == ev.Facts.Digest:
		c.respond(ev, Reply{Status: CommitSuccess}) // the first answer was lost
	default:
		c.respond(ev, Reply{Status: Failed})
	}
}

func (p *pendingWrite) isSame(m *Message) bool {
	return p.end != nil && p.end.Instance == m.Instance && p.end.Offset == m.Offset && p.end.Digest == m.Digest
}

func (c *Completion) join(t Ticket) {
	if len(c.pending.waiting) == maxWaiting {
		c.respondTo(c.pending.waiting[0], Reply{Status: Failed})
		c.pending.waiting = slices.Delete(c.pending.waiting, 0, 1)
	}
	c.pending.waiting = append(c.pending.waiting, t)
}

// stepWritten: the write in flight ended. An outcome that belongs to another
// write (of a machine that a fail-over dropped) is not ours.
func (c *Completion) stepWritten(ev WriteDone) {
	if c.state != Committing || c.pending.ticket != ev.Ticket {
		return
	}
	p := c.pending
	c.pending = nil
	reply := Reply{Status: Failed}
	switch {
	case p.end == nil: // nothing was committed: whoever asked holds and looks at the image
		c.become(Aborted)
		reply.Status = Hold
	case ev.Outcome == Written:
		c.become(Committed)
		reply.Status = CommitSuccess
	default:
		c.become(Aborted)
	}
	for _, t := range p.waiting {
		c.respondTo(t, reply)
	}
}

// stepStopped: a replica will not go on. Its report is dropped (the original
// keeps it, and it can win). Controller notes the error and the stop itself.
func (c *Completion) stepStopped(now time.Duration, ev Received) {
	if c.state == Committing || c.state == Committed {
		c.respond(ev, Reply{Status: Processed})
		return
	}
	m := &ev.Message
	delete(c.reports, m.Instance)
	c.out = append(c.out, c.stops.add(now, c.key, ev)...)
	if m.Instance == c.winner {
		c.abort(ev, Processed)
		return
	}
	c.respond(ev, Reply{Status: Processed})
}

// stepExtend renews the committer's lease.
func (c *Completion) stepExtend(now time.Duration, ev Received) {
	m := &ev.Message
	if c.state != CommitterNotified && c.state != CommitterUploading || m.Instance != c.winner {
		c.respond(ev, Reply{Status: Failed})
		return
	}
	until := now + time.Duration(m.ExtraTimeSec)*time.Second
	switch {
	case until > c.firstConsumed+c.timing.hardCap():
		c.abort(ev, Failed)
	case now > c.commitBy:
		c.abort(ev, Hold)
	default:
		c.commitBy = until
		c.respond(ev, Reply{Status: Processed})
	}
}
