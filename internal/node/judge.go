package node

import (
	"slices"
	"time"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

// need is what the image and the store call for, for one segment. It is a level,
// not an edge: it follows from what is so now, and from nothing that happened.
type need struct {
	held   bool   // the committed copy is in the store
	fetch  bool   // the committed bytes, from whoever has them
	upload bool   // of the copy that is held, by this node
	remove Action // Remove or SetAside of one file that may go, or nil
	tell   tell   // the leader, about the copy with digest
	digest segment.Digest
}

// judge compares wanted, held and listed for one segment.
func (m *Machine) judge(k meta.SegmentKey) need {
	switch s := m.image.Segment(k); {
	case s == nil:
		return need{remove: m.leftover(k)}
	case s.Status == meta.SegmentDone:
		return m.judgeDone(k, s)
	}
	// IN_PROGRESS: its files, if any, are the consumer's. LOST: whatever there is
	// may be all there is.
	return need{}
}

func (m *Machine) judgeDone(k meta.SegmentKey, s *meta.Segment) need {
	held := m.holds(k, s.Digest)
	listed := s.NodeLocation(m.cfg.Node)
	n := need{
		held:   held,
		fetch:  !held && !m.claimed[k] && slices.Contains(s.Replicas, m.cfg.Node),
		upload: held && m.isUploader(k, s),
		remove: m.surplus(k, s),
		digest: s.Digest,
	}
	switch {
	case held && (listed == nil || listed.StoreID != m.cfg.StoreID):
		n.tell = tellAdd
	case !held && listed != nil: // also one in a store that this node had before
		n.tell = tellWithdraw
	case held && m.reports.told[k] != s.Digest:
		n.tell = tellConfirm
	}
	return n
}

// holds reports whether the store has the sealed copy with the digest.
func (m *Machine) holds(k meta.SegmentKey, d segment.Digest) bool {
	return slices.ContainsFunc(m.held[k], func(h segment.Held) bool { return isCopy(h, d) })
}

func isCopy(h segment.Held, d segment.Digest) bool {
	return h.State == segment.StateSealed && h.Digest == d
}

// leftover is the next copy to go of a segment that the image does not have. An
// image that has not caught up says nothing by that. A tombstone explains a copy,
// and lets it go once the leader has marked it expired. What is quarantined stays
// where it is: it is aside already.
func (m *Machine) leftover(k meta.SegmentKey) Action {
	if !m.caughtUp || m.claimed[k] {
		return nil
	}
	tomb := m.image.Tombstone(k)
	for _, h := range m.held[k] {
		switch {
		case tomb == nil && h.State == segment.StateSealed:
			return SetAside{Held: h}
		case tomb != nil && tomb.Expired:
			return Remove{Held: h, Why: "its segment was deleted, and the grace is over"}
		}
	}
	return nil
}

// surplus is the next file to go of a committed segment: a build that differs, or
// a damaged copy. It may hold the only good bytes there are, so it stays until
// the committed ones are there twice, of which this node's own can be one, or
// verified in the deep store (DESIGN §4.5), by an image that is not of another
// time.
func (m *Machine) surplus(k meta.SegmentKey, s *meta.Segment) Action {
	if !m.caughtUp || m.claimed[k] {
		return nil
	}
	i := slices.IndexFunc(m.held[k], func(h segment.Held) bool { return !isCopy(h, s.Digest) })
	if i < 0 {
		return nil
	}
	counted := meta.CountedCopies(m.image, s)
	copies := 0
	for _, l := range counted.Nodes {
		if l.Node != m.cfg.Node || m.holds(k, s.Digest) {
			copies++
		}
	}
	if copies < 2 && len(counted.DeepStore) == 0 {
		return nil
	}
	return Remove{Held: m.held[k][i], Why: "it is not the committed file, and enough copies of that exist"}
}

// isUploader reports whether the upload of a committed segment is this node's to
// do: it was asked, or it is the committer, if that is UP and has its copy, else
// the first whose copy counts.
func (m *Machine) isUploader(k meta.SegmentKey, s *meta.Segment) bool {
	if !meta.IsNotInDeepStore(m.image, s) {
		return false
	}
	if w := m.works[k]; w != nil && w.asked {
		return true
	}
	counted := meta.CountedCopies(m.image, s).Nodes
	for _, l := range counted {
		if l.Node == s.Committer {
			return m.cfg.Node == s.Committer
		}
	}
	return len(counted) > 0 && counted[0].Node == m.cfg.Node
}

// patience is how long a committed segment without a source is waited for
// before it is built again from the stream: 10 H (PROTOCOL §5).
func (m *Machine) patience(k meta.SegmentKey) time.Duration {
	hold := commit.DefaultTiming.Hold
	if cfg := m.image.CurrentConfig(k.Table); cfg != nil {
		hold = time.Duration(cfg.Completion.HoldTime)
	}
	return 10 * hold
}
