package metalog

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
)

// What the follower's machine does about snapshots (METALOG §4): it is sent to one when
// the leader no longer has what comes next, and it passes batches at which everybody
// makes one. The image that it has goes on being served until the new one is loaded.

// The events.
type (
	// SnapshotFetched ends a FetchSnapshot. Image is what the snapshot holds, which is
	// whole, verified and durable here; or Err says why there is none. ErrSnapshotNotFound:
	// nobody has it any more.
	SnapshotFetched struct {
		Image *meta.Image
		Err   error
	}
	// LogReset ends a ResetLog. After an error the log is as it was.
	LogReset struct{ Err error }
)

// The actions.
type (
	// FetchSnapshot brings a snapshot here and loads it. What an earlier one has brought
	// of it is continued, whoever has the rest.
	FetchSnapshot struct {
		Leader   LeaderRef
		Snapshot SnapshotRef
	}
	// ResetLog drops the log here, all of it, and begins it at a position.
	ResetLog struct{ To Position }
	// CutSnapshot asks for a snapshot of an image, in its own time. It comes beside the
	// one effect of a Step, and has no event.
	CutSnapshot struct{ Image *meta.Image }
)

func (SnapshotFetched) isFollowEvent() {}
func (LogReset) isFollowEvent()        {}

func (FetchSnapshot) isFollowAction() {}
func (ResetLog) isFollowAction()      {}
func (CutSnapshot) isFollowAction()   {}

// stepSnapshot is the answer that the leader's log does not go on from here.
func (m *FollowerMachine) stepSnapshot(now time.Duration, ref SnapshotRef) []FollowAction {
	m.snapshot = &ref
	switch {
	case !m.fetchesSnapshots:
		return m.halt(now, FollowNeedsSnapshot, fmt.Errorf(
			"the leader has no log from offset %d on, only snapshot %s, and nothing here fetches snapshots", m.end.Offset, ref))
	case ref.EndOffset <= m.image.Next() || ref.Epoch < m.image.Epoch():
		return m.halt(now, FollowFault, fmt.Errorf(
			"the leader names snapshot %s, which is no later than what was committed here (offset %d, epoch %d); "+
				"one of the two was damaged or restored from a backup", ref, m.image.Next(), m.image.Epoch()))
	}
	m.become(FollowDownloading)
	return []FollowAction{FetchSnapshot{Leader: m.leader, Snapshot: ref}}
}

// stepSnapshotFetched goes over to what has come, or asks the leader again: it says
// which snapshot there is by then, and the same one is continued.
func (m *FollowerMachine) stepSnapshotFetched(now time.Duration, ev SnapshotFetched) []FollowAction {
	switch {
	case errors.Is(ev.Err, ErrSnapshotNotFound) && m.failures == 0: // at once, but not in a circle
		m.failures++
		m.lastErr = ev.Err
		return m.fetch(now)
	case ev.Err != nil:
		return m.backOff(now, fmt.Errorf("snapshot %s: %w", m.snapshot, ev.Err))
	}
	h := headerOf(ev.Image)
	switch id := m.clusterID(); {
	case h.ID() != m.snapshot.SnapshotID:
		return m.halt(now, FollowFault, fmt.Errorf("snapshot %s was asked for, and %s came", m.snapshot, h.ID()))
	case id != uuid.Nil && h.Cluster != id:
		return m.halt(now, FollowFault, fmt.Errorf("snapshot %s is of cluster %s, expected %s", h.ID(), h.Cluster, id))
	}
	m.loaded = ev.Image
	m.become(FollowResetting)
	return []FollowAction{ResetLog{To: h.Position}}
}

// stepLogReset: the log here begins where the snapshot ends. Its image replaces the one
// before; what is absent from it is gone.
func (m *FollowerMachine) stepLogReset(now time.Duration, err error) []FollowAction {
	im := m.loaded
	m.loaded = nil
	if err != nil {
		return m.backOff(now, err)
	}
	m.end, m.image, m.staged = headerOf(im).Position, im, nil
	m.leaderHW = max(m.leaderHW, m.end.Offset)
	m.snapshot = nil
	m.wentWell()
	return append([]FollowAction{DeliverImage{Image: im}}, m.fetch(now)...)
}
