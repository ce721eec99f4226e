package controller

import (
	"slices"
	"time"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

// roundTimes are the wall times of a segment's completion so far, for its
// record: milliseconds since the Unix epoch.
type roundTimes struct {
	firstConsumed, winnerDecided, commitStarted int64
}

func commitKey(k meta.SegmentKey) commit.Key {
	return commit.Key{Table: k.Table, Partition: k.Partition, Seq: k.Seq}
}

func segmentKey(k commit.Key) meta.SegmentKey {
	return meta.SegmentKey{Table: k.Table, Partition: k.Partition, Seq: k.Seq}
}

// message hands a message of the protocol to its machine, with what the image
// says about it.
func (m *Machine) message(ev Message) {
	facts, k := m.facts(&ev.Message), segmentKey(ev.Message.Key())
	m.completed(m.completion.Step(m.now.Mono, commit.Received{Ticket: ev.Ticket, Message: ev.Message, Facts: facts}))
	if m.rounds[k] == nil && m.completion.Machine(commitKey(k)) != nil {
		m.rounds[k] = &roundTimes{firstConsumed: m.now.Wall}
	}
	m.noteRound(k)
}

// CompletionState is where the completion of a segment is, and whether it is
// completing. It is for looking at.
func (m *Machine) CompletionState(k meta.SegmentKey) (state commit.CompletionState, completing bool) {
	c := m.completion.Machine(commitKey(k))
	if c == nil {
		return 0, false
	}
	return c.State(), true
}

// facts is what the image says about a message's segment and sender.
func (m *Machine) facts(msg *commit.Message) commit.Facts {
	f := commit.Facts{Leading: m.leading, Leader: m.leader}
	if !m.leading {
		return f
	}
	s := m.image.Segment(segmentKey(msg.Key()))
	if s == nil || s.Status == meta.SegmentLost {
		return f
	}
	f.Status = commit.InProgress
	if s.Status == meta.SegmentDone {
		f.Status = commit.Done
	}
	f.Name, f.Start, f.StreamEpoch, f.Attempt, f.Replicas = s.Name, s.Start, s.StreamEpoch, s.Attempt, s.Replicas
	f.End, f.Digest, f.Committer = s.End, s.Digest, s.Committer
	if n := m.image.Node(msg.Instance); n != nil {
		f.Incarnation = n.Incarnation
	}
	f.Timing = m.timing(s)
	return f
}

// timing is that of the config version that the segment's record names, or the
// current one if that version is gone, as it may be once the segment is DONE.
func (m *Machine) timing(s *meta.Segment) commit.Timing {
	var c *meta.Config
	if v := m.image.TableConfig(s.Table, s.ConfigVersion); v != nil {
		c = &v.Config
	} else {
		c = m.image.CurrentConfig(s.Table)
	}
	if c == nil {
		return commit.DefaultTiming
	}
	return commit.Timing{
		Hold:          time.Duration(c.Completion.HoldTime),
		CommitTimeout: time.Duration(c.Completion.CommitTimeout),
	}
}

// completed carries the protocol's actions on.
func (m *Machine) completed(actions []commit.Action) {
	for _, a := range actions {
		switch a := a.(type) {
		case commit.Respond:
			m.do(ReplyTo{Ticket: a.Ticket, Reply: a.Reply})
		case commit.WriteCommit:
			m.writeCommit(a)
		case commit.EndEmpty:
			k := segmentKey(a.Key)
			m.write(effect{purpose: forEmpty, segment: k, ticket: a.Ticket}, "end of a segment without rows",
				meta.ClearEndRequested(k, a.Reason == commit.EndOfPartition))
		case commit.RecordError:
			k := segmentKey(a.Key)
			m.write(effect{}, "error of a replica", meta.RecordError(k, a.Instance, a.Error, m.allStopped(k)))
		case commit.RaiseAttempt:
			k := segmentKey(a.Key)
			m.write(effect{purpose: forAttempt, segment: k}, "next attempt", meta.RaiseAttempt(k, a.From))
		}
	}
}

// noteRound notes when the segment's winner was decided and its commit started.
// A lost round starts over, but the first report stays the first.
func (m *Machine) noteRound(k meta.SegmentKey) {
	r := m.rounds[k]
	if r == nil {
		return
	}
	c := m.completion.Machine(commitKey(k))
	if c == nil {
		r.winnerDecided, r.commitStarted = 0, 0
		return
	}
	switch c.State() {
	case commit.CommitterDecided, commit.CommitterNotified:
		if r.winnerDecided == 0 {
			r.winnerDecided = m.now.Wall
		}
	case commit.CommitterUploading:
		if r.commitStarted == 0 {
			r.commitStarted = m.now.Wall
		}
	}
}

func (m *Machine) writeCommit(a commit.WriteCommit) {
	k, end := segmentKey(a.Key), &a.End
	c := meta.Commit{
		Key: k, Instance: end.Instance, Incarnation: end.Incarnation, StoreID: end.StoreID, StreamEpoch: end.StreamEpoch,
		Info: segment.Info{
			Digest: end.Digest, SHA256: end.SHA256, RowsDigest: end.RowsDigest,
			SizeBytes: end.SizeBytes, End: end.Offset, Rows: end.Rows,
			MinTimestamp: end.MinTimestamp, MaxTimestamp: end.MaxTimestamp,
			LastLeaderEpoch: segment.NoLeaderEpoch,
		},
		EndOfPartition: end.Reason == commit.EndOfPartition,
		DeepStoreURI:   end.DeepStoreURI,
	}
	if end.LastLeaderEpoch != nil {
		c.Info.LastLeaderEpoch = *end.LastLeaderEpoch
	}
	if r := m.rounds[k]; r != nil {
		c.FirstConsumed, c.WinnerDecided, c.CommitStarted = r.firstConsumed, r.winnerDecided, r.commitStarted
	}
	m.write(effect{purpose: forCommit, segment: k, ticket: a.Ticket}, "commit of "+end.Segment, meta.CommitSegment(c))
}

// completionWrote takes the result of a write to the protocol's machine.
func (m *Machine) completionWrote(e effect, ev Wrote) {
	key := commitKey(e.segment)
	if e.purpose == forAttempt {
		m.completed(m.completion.Step(m.now.Mono, commit.RaiseDone{Key: key, Outcome: ev.Outcome}))
		return
	}
	if e.purpose == forCommit && ev.Outcome == commit.Written {
		delete(m.rounds, e.segment)
	}
	m.completed(m.completion.Step(m.now.Mono, commit.WriteDone{Key: key, Ticket: e.ticket, Outcome: ev.Outcome}))
}

// allStopped reports whether no replica of the segment goes on.
func (m *Machine) allStopped(k meta.SegmentKey) bool {
	s := m.image.Segment(k)
	if s == nil {
		return false
	}
	stopped := m.completion.Stopped(commitKey(k))
	for _, r := range s.Replicas {
		if !slices.Contains(stopped, r) {
			return false
		}
	}
	return true
}
