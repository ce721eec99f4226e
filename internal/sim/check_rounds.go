package sim

import (
	"slices"
	"time"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/meta"
)

// The rules of the completion protocol that no record shows when they are broken: a
// round that is lost to the wrong message costs time, and the next one hides it.

// roundKey is a segment as one leadership knows it.
type roundKey struct {
	controller string
	epoch      int64
	segment    meta.SegmentKey
}

type round struct {
	began time.Duration // the first report
	// proposed is what each replica stands for; one that has stopped stands for
	// nothing.
	proposed  map[string]int64
	committer string // told COMMIT, and nothing of its own ended that; "": nobody
	offset    int64
	started   bool          // it was told to go on with its commit: an end before that is a late one
	until     time.Duration // when its lease may be over
}

// replied checks an answer of a leader that believes it leads, in the order in which
// it gives them.
func (k *checker) replied(s *simController, m *commit.Message, r commit.Reply) {
	key := roundKey{s.name, s.epoch, meta.SegmentKey{Table: m.Table, Partition: m.Partition, Seq: m.Seq}}
	rd := k.rounds[key]
	if rd == nil {
		rd = &round{began: k.c.w.now, proposed: map[string]int64{}}
		k.rounds[key] = rd
	}
	byCommitter := m.Instance == rd.committer
	switch m.Kind {
	case commit.SegmentConsumed:
		k.repliedConsumed(rd, m, r)
	case commit.SegmentStoppedConsuming:
		if r.Status == commit.Processed {
			delete(rd.proposed, m.Instance)
			rd.endedBy(m.Instance)
		}
	case commit.ExtendBuildTime:
		if byCommitter && r.Status == commit.Processed {
			rd.until = k.c.w.now + time.Duration(m.ExtraTimeSec)*time.Second
		} else {
			rd.endedBy(m.Instance)
		}
	case commit.SegmentCommitStart:
		rd.started = rd.started || byCommitter && r.Status == commit.CommitContinue
	case commit.SegmentCommitEnd:
		if byCommitter && rd.started && r.Status == commit.Failed {
			k.lost(rd, m)
		}
	}
}

func (k *checker) repliedConsumed(rd *round, m *commit.Message, r commit.Reply) {
	if r.Status != commit.Failed {
		rd.proposed[m.Instance] = m.Offset
	}
	switch r.Status {
	case commit.Commit:
		if rd.committer != m.Instance || rd.offset != m.Offset {
			rd.committer, rd.offset, rd.started = m.Instance, m.Offset, false
			rd.until = rd.began + k.c.plan.Hold*22/10 + k.c.plan.CommitTimeout
		}
		return
	case commit.CatchUp:
		stands := false
		for _, offset := range rd.proposed {
			stands = stands || offset == r.Offset
		}
		if !stands {
			k.fail("round", "%s is to catch up to %d of %s, for which nobody stands who goes on", m.Instance, r.Offset, m.Segment)
		}
	}
	rd.endedBy(m.Instance)
}

// catchingUp checks that who was told to catch up stops there: one that goes on past its
// target holds no round up for ever, as others may end it, but only they.
func (k *checker) catchingUp(c *consumer) {
	reading := map[uint64]bool{}
	for _, r := range c.machine.Reading() {
		reading[r.Run] = true
	}
	for _, v := range c.machine.Runs() {
		target, ok := c.targets[v.Run]
		switch {
		case !ok:
		case v.State != commit.CatchingUp:
			delete(c.targets, v.Run)
		case reading[v.Run] && v.Position >= target:
			k.fail("round", "%s is at %d of %s, was to catch up to %d, and does not stop", c.n.name, v.Position, v.Segment.Name, target)
		}
	}
}

// endedBy notes that the committer itself has ended the round.
func (rd *round) endedBy(instance string) {
	if rd.committer == instance {
		rd.committer = ""
	}
}

// lost checks that a committer lost its round for a reason: a deadline, or what the
// image says of it by now.
func (k *checker) lost(rd *round, m *commit.Message) {
	rd.endedBy(m.Instance)
	s, n := k.image.Segment(meta.SegmentKey{Table: m.Table, Partition: m.Partition, Seq: m.Seq}), k.image.Node(m.Instance)
	switch {
	case m.Offset != rd.offset, k.c.w.now > rd.until:
	case k.refused["commit of "+m.Segment]: // by the function, on an image that nobody else has seen yet
	case s == nil, s.Status != meta.SegmentInProgress, !slices.Contains(s.Replicas, m.Instance):
	case n == nil, n.Incarnation != m.Incarnation:
	case k.c.nodeAt(m.Instance).standing.incarnation != m.Incarnation: // of an earlier life; the image may not show it yet
	default:
		k.fail("round", "%s was told COMMIT of %s at %d, and FAILED to its commitEnd within its time", m.Instance, m.Segment, m.Offset)
	}
}

// claimedEpoch: an epoch is claimed once, whatever became of it.
func (k *checker) claimedEpoch(s *simController, epoch int64) {
	if by, again := k.epochs[epoch]; again {
		k.fail("I4", "%s claims epoch %d, which %s has claimed before", s.name, epoch, by)
	}
	k.epochs[epoch] = s.name
}
