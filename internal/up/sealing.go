package up

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
)

// sealing decides when an input that has ended is sealed as a whole. It is pure:
// judge is given a look and says what to do.
//
// All UP replicas first read to the end of what was written, and only then the
// segments are asked to end: asked earlier, a replica that lags would make the
// others end short of the rows they have. Whatever happens in between (a limit
// reached, a replica lost), what counts in the end is the state alone.
type sealing struct {
	lines []int64   // of each partition, written and fsynced
	job   uuid.UUID // the force commit under way, zero if none
}

// verdict is what follows from a look.
type verdict struct {
	waiting     []string // what for; empty only if done or failed
	forceCommit bool     // ask for it now
	done        bool
	failed      []string // what will not come of waiting
}

// judge looks at the table and at the state of the job, if there is one. A
// partition that is beyond hope does not keep the others from being sealed.
func (s *sealing) judge(l *tableLook, job meta.JobState) verdict {
	var v verdict
	if v.waiting = s.unread(l); len(v.waiting) > 0 {
		return v
	}
	if v.waiting = s.uncommitted(l); len(v.waiting) > 0 {
		// A job that is over and left rows behind, because a replica came
		// back meanwhile, is followed by another.
		v.forceCommit = s.job == uuid.Nil || job == meta.JobDone || job == meta.JobFailed
		return v
	}
	if v.waiting = s.unsafe(l); len(v.waiting) > 0 {
		return v
	}
	for _, p := range l.partitions {
		if p.hopeless() {
			v.failed = append(v.failed, fmt.Sprintf("partition %d stopped, and stopped again when it was begun afresh: %s", p.Partition, p.lastError))
		}
	}
	v.done = len(v.failed) == 0
	return v
}

// hopeless reports whether the partition stopped with an error twice: it was
// begun afresh once, and the same came of it.
func (p *partitionLook) hopeless() bool { return p.state == meta.PartitionError && p.attempt > 0 }

// unread says who has not read to the end.
func (s *sealing) unread(l *tableLook) (waiting []string) {
	if len(l.partitions) < len(s.lines) {
		return []string{fmt.Sprintf("%d of %d partitions to be in the table", len(s.lines)-len(l.partitions), len(s.lines))}
	}
	for n, lines := range s.lines {
		p := &l.partitions[n]
		switch {
		case p.NextOffset >= lines:
			continue // committed to its end; who reads it does not matter
		case p.hopeless():
			continue
		case p.state == "":
			waiting = append(waiting, fmt.Sprintf("partition %d to be in the table", n))
			continue
		case p.state == meta.PartitionError:
			waiting = append(waiting, fmt.Sprintf("partition %d to be begun afresh after an error: %s", n, p.lastError))
			continue
		case p.state != meta.PartitionConsuming:
			waiting = append(waiting, fmt.Sprintf("partition %d, which is %s", n, p.state))
			continue
		case len(p.readers) == 0:
			waiting = append(waiting, fmt.Sprintf("a replica of partition %d to be UP", n))
		}
		for _, r := range p.readers {
			if r.offset < lines {
				waiting = append(waiting, fmt.Sprintf("%s to read partition %d: %s of %s rows (%s)", r.node, n, count(max(r.offset, 0)), count(lines), r.state))
			}
		}
	}
	return waiting
}

// uncommitted says what is read and not committed.
func (s *sealing) uncommitted(l *tableLook) (waiting []string) {
	for n, lines := range s.lines {
		if p := &l.partitions[n]; p.NextOffset < lines && !p.hopeless() {
			waiting = append(waiting, fmt.Sprintf("partition %d to be committed: %s of %s rows", n, count(p.NextOffset), count(lines)))
		}
	}
	return waiting
}

// unsafe says what is committed and has not all its copies yet.
func (s *sealing) unsafe(l *tableLook) (waiting []string) {
	for _, p := range l.partitions {
		if p.UnderReplicated > 0 {
			waiting = append(waiting, fmt.Sprintf("all copies of %s of partition %d", plural(p.UnderReplicated, "segment"), p.Partition))
		}
		if p.NotInDeepStore > 0 {
			waiting = append(waiting, fmt.Sprintf("a verified deep-store copy of %s of partition %d", plural(p.NotInDeepStore, "segment"), p.Partition))
		}
	}
	return waiting
}
