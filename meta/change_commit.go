package meta

import (
	"slices"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/segment"
)

// Commit is what segmentCommitEnd asks for (PROTOCOL §3).
type Commit struct {
	Key         SegmentKey
	Instance    string // the committer
	Incarnation int64
	StoreID     uuid.UUID // where its copy is, durable and verified
	StreamEpoch string
	// Info is what the seal learnt; Info.End is the segment's end. Its Start
	// and RawBytes are not looked at.
	Info segment.Info
	// EndOfPartition: the stream will never have more, so nothing follows.
	EndOfPartition bool
	// DeepStoreURI is where the committer has uploaded it, empty if it has not
	// yet. It counts once the leader has verified it.
	DeepStoreURI string
	// When the round's steps were, in milliseconds since the epoch, 0 if that
	// is not known.
	FirstConsumed, WinnerDecided, CommitStarted int64
}

// CommitSegment makes the segment DONE with its first location and opens its
// successor, in one batch: there is no state between (DESIGN §4.2).
//
// The sequence that it has to stand: the write succeeds, the answer is lost, the
// committer asks again, perhaps of another leader and after a restart of its
// own. So what the record already says is a success before anything else is
// looked at, whatever the incarnation, and any other end of a committed segment
// is refused.
func CommitSegment(c Commit) Func {
	return func(im *Image, now int64) (Change, error) {
		s := im.Segment(c.Key)
		if s == nil {
			return refuse(CodeUnknownSegment, "no segment %s", c.Key)
		}
		if s.Status != SegmentInProgress {
			if s.Status == SegmentDone && s.Committer == c.Instance && s.End == c.Info.End && s.Digest == c.Info.Digest {
				return Change{}, nil
			}
			return refuse(CodeAlreadyCommitted, "%s is %s, committed by %s at %d with digest %s",
				s.Name, s.Status, s.Committer, s.End, s.Digest)
		}
		t, p := im.Table(s.Table), im.Partition(s.Table, s.Partition)
		if t == nil || p == nil {
			return refuse(CodeUnknownPartition, "no partition %s", c.Key.PartitionKey())
		}
		if r := c.check(im, s); r != nil {
			return Change{}, r
		}
		p = p.Clone()
		p.NextOffset = c.Info.End
		p.State = c.next(t)
		records := []Record{c.done(im, s, now), p}
		if p.State == PartitionConsuming {
			records = append(records, im.open(t, p, c.Info.End, now))
		}
		return sized(records...) // the URI comes from outside
	}
}

// check refuses what must not be committed: it repeats inside the function
// what may have changed since the committer was chosen.
func (c *Commit) check(im *Image, s *Segment) *Refusal {
	if r := im.checkSender(c.Instance, c.Incarnation, c.StoreID); r != nil {
		return r
	}
	switch in := &c.Info; {
	case !slices.Contains(s.Replicas, c.Instance):
		return refusal(CodeNotAReplica, "%s is not among the replicas %v of %s", c.Instance, s.Replicas, s.Name)
	case c.StreamEpoch != s.StreamEpoch:
		return refusal(CodeStreamEpoch, "%s is of stream %q, not %q", s.Name, s.StreamEpoch, c.StreamEpoch)
	case in.End <= s.Start:
		return refusal(CodeInvalidCommit, "%s starts at %d and cannot end at %d", s.Name, s.Start, in.End)
	case in.Rows < 1 || in.Rows > in.End-s.Start:
		return refusal(CodeInvalidCommit, "%s cannot have %d rows in [%d, %d)", s.Name, in.Rows, s.Start, in.End)
	case in.SizeBytes < 1 || in.Digest.IsZero():
		return refusal(CodeInvalidCommit, "%s needs a size and a digest", s.Name)
	}
	return nil
}

// done returns the record of s as committed.
func (c *Commit) done(im *Image, s *Segment, now int64) *Segment {
	s = s.Clone()
	in := &c.Info
	s.Status = SegmentDone
	s.End, s.Rows, s.SizeBytes = in.End, in.Rows, in.SizeBytes
	s.MinTimestamp, s.MaxTimestamp = in.MinTimestamp, in.MaxTimestamp
	s.Digest, s.SHA256, s.RowsDigest = in.Digest, in.SHA256, in.RowsDigest
	s.LastLeaderEpoch = in.LastLeaderEpoch
	s.LeaderEpoch = im.leaderEpoch()
	s.Committer = c.Instance
	s.EndRequested, s.LastError = nil, nil // of the consuming that is over
	s.Locations = []Location{{Node: c.Instance, StoreID: c.StoreID, Since: now}}
	s.Times.FirstConsumed = c.FirstConsumed
	s.Times.WinnerDecided = c.WinnerDecided
	s.Times.CommitStarted = c.CommitStarted
	s.Times.Committed = now
	s.Times.LastLocation = now
	if c.DeepStoreURI != "" {
		s.Locations = append(s.Locations, Location{URI: c.DeepStoreURI, Since: now})
		s.Times.Uploaded = now
	}
	noteCopies(im, s, now)
	return s
}

// next returns what the partition does once the segment is committed.
func (c *Commit) next(t *Table) PartitionState {
	switch {
	case c.EndOfPartition, t.State == TableDeleting:
		return PartitionEnded
	case t.State == TablePaused:
		return PartitionPaused
	default:
		return PartitionConsuming
	}
}

// checkSender refuses the message of an old incarnation, or about a store that
// the node no longer has.
func (im *Image) checkSender(node string, incarnation int64, store uuid.UUID) *Refusal {
	n := im.Node(node)
	switch {
	case n == nil:
		return refusal(CodeUnknownNode, "no node %q is registered", node)
	case n.Incarnation != incarnation:
		return refusal(CodeStaleIncarnation, "%s is at incarnation %d, not %d", node, n.Incarnation, incarnation)
	case n.StoreID != store:
		return refusal(CodeWrongStore, "%s has store %s, not %s", node, n.StoreID, store)
	}
	return nil
}
