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

// Consuming reports whether the machine wants rows: while it does, the feed is
// its own and not yet its successor's.
func (r *Replica) Consuming() bool {
	return r.builder == builderOpen && (r.state == InitialConsuming || r.state == CatchingUp || r.filling)
}

// Offer asks whether the next row of the feed is to be appended now. Asking row
// by row is what ends a segment exactly at its criterion, in mid-batch if need
// be: a row that was fetched but not appended is never skipped. It does not
// allocate.
func (r *Replica) Offer(now time.Duration, offset, rawBytes int64) Verdict {
	switch {
	case offset < r.next:
		return SkipRow
	case !r.Consuming():
		return LeaveRow
	case r.state == InitialConsuming && r.criterion(now) != "":
		return LeaveRow
	case r.state != InitialConsuming && offset >= r.target:
		return LeaveRow
	}
	if r.rows == 0 {
		r.firstRowAt = now
	}
	r.rows++
	r.rawBytes += rawBytes
	r.filled = offset + 1
	r.next = r.filled
	return AppendRow
}

// criterion returns why the segment ends here, empty if it does not. The time
// limit counts from the first row, so a segment without rows never meets it.
func (r *Replica) criterion(now time.Duration) Reason {
	switch c := &r.cfg; {
	case c.MaxRows > 0 && r.rows >= c.MaxRows:
		return RowLimit
	case c.MaxBytes > 0 && r.rawBytes >= c.MaxBytes:
		return SizeLimit
	case r.record.EndRequested:
		return ForceCommit
	case r.ended && r.next >= r.fetched:
		return EndOfPartition
	case c.MaxAge > 0 && r.rows > 0 && now >= r.firstRowAt+c.MaxAge:
		return TimeLimit
	}
	return ""
}

// stopHere proposes an end: right behind the last row at a row or size limit,
// where all replicas stop alike, else the builder's position.
func (r *Replica) stopHere(now time.Duration, reason Reason) {
	r.reason = reason
	r.stop = r.next
	if reason == RowLimit || reason == SizeLimit {
		r.stop = r.filled
	}
	r.become(ReplicaHolding)
	r.say(now, SegmentConsumed)
}

// catchUp goes on to exactly target.
func (r *Replica) catchUp(now time.Duration, target int64) {
	if r.failed != "" {
		r.fail(now, r.failed)
		return
	}
	r.target = target
	r.become(CatchingUp)
	r.needBuilder()
}

// needBuilder makes sure that there is a builder to append to. One that was
// sealed is used up: a new one begins at the segment's start, and until it is
// past the sealed end, that is what gets reported. While the seal still runs the
// new one waits for its result (stepSealed).
func (r *Replica) needBuilder() {
	if r.builder == builderSpent {
		r.restart()
	}
}

// restart begins a new builder at the segment's start.
func (r *Replica) restart() {
	r.builder = builderOpen
	r.next, r.fetched, r.filled = r.cfg.Start, r.cfg.Start, r.cfg.Start
	r.rows, r.rawBytes = 0, 0
	r.failed = ""
	r.do(Restart{r.cfg.Start, r.successorTold})
}

// seal turns the builder into a file that ends at end: the caller knows that no
// row at or past end was appended, and none below it is missing.
func (r *Replica) seal(end int64) {
	r.builder, r.sealEnd = builderSealing, end
	r.do(Seal{end})
}

// sealedAt returns the file that was sealed at end, nil if there is none.
func (r *Replica) sealedAt(end int64) *sealedFile {
	for i := range r.sealed {
		if r.sealed[i].info.End == end {
			return &r.sealed[i]
		}
	}
	return nil
}

// proposal is the end this replica stands for, with the rows and bytes up to
// there: that of a sealed file until the builder is past it.
func (r *Replica) proposal() (end, rows, rawBytes int64) {
	end, rows, rawBytes = r.stop, r.rows, r.rawBytes
	for _, s := range r.sealed {
		if s.info.End >= end {
			end, rows, rawBytes = s.info.End, s.info.Rows, s.info.RawBytes
		}
	}
	return end, rows, rawBytes
}
