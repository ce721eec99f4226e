package metalog

import (
	"fmt"
	"math/rand"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
)

// FollowState is what a follower is doing.
type FollowState string

// The states of a follower. WAITING, NEEDS_SNAPSHOT and FAULT all end by trying
// again: a follower never gives up, and never shows an image it does not trust.
const (
	FollowStarting      FollowState = "STARTING"
	FollowFinding       FollowState = "FINDING_LEADER"
	FollowFetching      FollowState = "FETCHING"
	FollowStoring       FollowState = "STORING"
	FollowTruncating    FollowState = "TRUNCATING"
	FollowDownloading   FollowState = "DOWNLOADING"    // a snapshot
	FollowResetting     FollowState = "RESETTING"      // the log, to where the snapshot ends
	FollowWaiting       FollowState = "WAITING"        // backing off after something that passes
	FollowNeedsSnapshot FollowState = "NEEDS_SNAPSHOT" // the leader no longer has what comes next
	FollowFault         FollowState = "FAULT"          // the leader's answer contradicts what is here
)

// followEdges are the legal changes of state.
var followEdges = map[FollowState][]FollowState{
	FollowStarting:      {FollowFinding},
	FollowFinding:       {FollowFetching, FollowWaiting},
	FollowFetching:      {FollowFetching, FollowStoring, FollowTruncating, FollowDownloading, FollowFinding, FollowWaiting, FollowNeedsSnapshot, FollowFault},
	FollowStoring:       {FollowFetching, FollowWaiting},
	FollowTruncating:    {FollowFetching, FollowWaiting},
	FollowDownloading:   {FollowFetching, FollowResetting, FollowWaiting, FollowFault},
	FollowResetting:     {FollowFetching, FollowWaiting},
	FollowWaiting:       {FollowFinding},
	FollowNeedsSnapshot: {FollowFinding},
	FollowFault:         {FollowFinding},
}

// LeaderRef is where the leader is and which epoch it opened.
type LeaderRef struct {
	URL   string
	Epoch int64
}

// FollowEvent is what happened, FollowAction what to do about it. Each Step asks for
// exactly one effect, whose outcome is the next event; CutSnapshot and a DeliverImage may
// come before it. Those of snapshots are in follower_snapshot.go.
type (
	FollowEvent  interface{ isFollowEvent() }
	FollowAction interface{ isFollowAction() }
)

// The events.
type (
	// FollowStart begins; it comes once.
	FollowStart struct{}
	// FollowTick says that the time which was waited for has come.
	FollowTick struct{}
	// LeaderFound and LeaderNotFound end a FindLeader.
	LeaderFound    struct{ Leader LeaderRef }
	LeaderNotFound struct{ Err error }
	// Fetched and FetchFailed end a FetchLog.
	Fetched     struct{ FetchAnswer }
	FetchFailed struct {
		Code string // of the answer, empty when there was none
		Err  error
	}
	// Stored ends a StoreEntries: of all of them or, with an error, of none.
	Stored struct{ Err error }
	// Truncated ends a TruncateLog.
	Truncated struct {
		To  int64
		Err error
	}
)

// The actions.
type (
	FindLeader struct{}
	FetchLog   struct {
		URL   string
		Query FetchQuery
	}
	// StoreEntries makes entries durable at the end of the log here.
	StoreEntries struct{ Entries []Entry }
	// TruncateLog drops everything from To on.
	TruncateLog struct{ To int64 }
	WaitUntil   struct{ At time.Duration }
	// DeliverImage hands on an image whose batches are all durable here, and the keys
	// that they touched; nil keys mean everything: the image came from a snapshot.
	DeliverImage struct {
		Image   *meta.Image
		Touched []meta.Key
	}
)

// FetchAnswer is an answer to a fetch: frames, unless one of the others is set.
type FetchAnswer struct {
	Leader        LeaderRef
	HighWatermark int64
	Frames        []byte
	Snapshot      *SnapshotRef
	Diverging     *Diverging
}

func (FollowStart) isFollowEvent()    {}
func (FollowTick) isFollowEvent()     {}
func (LeaderFound) isFollowEvent()    {}
func (LeaderNotFound) isFollowEvent() {}
func (Fetched) isFollowEvent()        {}
func (FetchFailed) isFollowEvent()    {}
func (Stored) isFollowEvent()         {}
func (Truncated) isFollowEvent()      {}

func (FindLeader) isFollowAction()   {}
func (FetchLog) isFollowAction()     {}
func (StoreEntries) isFollowAction() {}
func (TruncateLog) isFollowAction()  {}
func (WaitUntil) isFollowAction()    {}
func (DeliverImage) isFollowAction() {}

// FollowTiming are the waits of a follower.
type FollowTiming struct {
	Poll       time.Duration // how long the leader may hold a fetch
	BackOffMin time.Duration // before the first repeat; doubles
	BackOffMax time.Duration // and the wait after a fault
}

// FollowerStatus is what a follower is doing, for people and for readiness.
type FollowerStatus struct {
	State  FollowState
	Leader LeaderRef
	// Applied is the offset after the last batch of the image; LeaderHighWatermark
	// the newest that a leader has named.
	Applied, LeaderHighWatermark int64
	// Err is why it waits; nil when all is well.
	Err error
	// Snapshot is what it needs, in NEEDS_SNAPSHOT, or fetches, in DOWNLOADING.
	Snapshot *SnapshotRef
}

// FollowerMachine decides what a follower does (METALOG §4). It is pure; time comes in with each event and randomness with rnd.
type FollowerMachine struct {
	timing  FollowTiming
	rnd     *rand.Rand
	cluster uuid.UUID // expected; zero: that of the first batch
	// fetchesSnapshots says that FetchSnapshot can be done.
	fetchesSnapshots bool

	state    FollowState
	leader   LeaderRef
	sentAt   time.Duration
	failures int   // in a row
	lastErr  error // why it waits; nil once a fetch went well
	snapshot *SnapshotRef
	leaderHW int64

	end    Position    // of the log here (LEO)
	image  *meta.Image // what is delivered: everything below our own HW
	staged []staged    // in the log here, not known to be committed: [HW, LEO)
	store  []staged    // being stored
	loaded *meta.Image // of the snapshot that the log is being reset to
}

// staged is a batch and the image that it makes: a batch is applied before it is
// stored, so that one which does not apply never enters the log.
type staged struct {
	Entry
	image *meta.Image
}

// NewFollowerMachine starts from a log that ends at end and the image of all of it. A
// cluster of zero means that of the first batch.
func NewFollowerMachine(t FollowTiming, rnd *rand.Rand, cluster uuid.UUID, end Position, im *meta.Image) *FollowerMachine {
	return &FollowerMachine{timing: t, rnd: rnd, cluster: cluster, state: FollowStarting, end: end, image: im, leaderHW: end.Offset}
}

// FetchesSnapshots says, before the first event, that FetchSnapshot can be done.
func (m *FollowerMachine) FetchesSnapshots() { m.fetchesSnapshots = true }

func (m *FollowerMachine) become(s FollowState) {
	for _, legal := range followEdges[m.state] {
		if legal == s {
			m.state = s
			return
		}
	}
	panic(fmt.Sprintf("metalog: follower cannot go from %s to %s", m.state, s))
}

// Image is the newest image that is committed and durable here.
func (m *FollowerMachine) Image() *meta.Image { return m.image }

// End is where the log here ends; batches below it may be uncommitted.
func (m *FollowerMachine) End() Position { return m.end }

// Status says how it goes.
func (m *FollowerMachine) Status() FollowerStatus {
	return FollowerStatus{
		State: m.state, Leader: m.leader, Applied: m.image.Next(), LeaderHighWatermark: m.leaderHW,
		Err: m.lastErr, Snapshot: m.snapshot,
	}
}

// Step takes one event and says what to do. now is the time since any fixed moment,
// and never goes back.
func (m *FollowerMachine) Step(now time.Duration, ev FollowEvent) []FollowAction {
	switch ev := ev.(type) {
	case FollowStart, FollowTick:
		return m.find()
	case LeaderFound:
		m.leader = ev.Leader
		return m.fetch(now)
	case LeaderNotFound:
		return m.backOff(now, fmt.Errorf("no leader found: %w", ev.Err))
	case Fetched:
		return m.stepFetched(now, ev.FetchAnswer)
	case FetchFailed:
		return m.stepFetchFailed(now, ev)
	case Stored:
		return m.stepStored(now, ev.Err)
	case Truncated:
		return m.stepTruncated(now, ev.To, ev.Err)
	case SnapshotFetched:
		return m.stepSnapshotFetched(now, ev)
	case LogReset:
		return m.stepLogReset(now, ev.Err)
	}
	panic(fmt.Sprintf("metalog: follower cannot take a %T", ev))
}

func (m *FollowerMachine) find() []FollowAction {
	m.become(FollowFinding)
	return []FollowAction{FindLeader{}}
}

func (m *FollowerMachine) fetch(now time.Duration) []FollowAction {
	m.become(FollowFetching)
	m.sentAt = now
	epoch := m.leader.Epoch
	q := FetchQuery{Position: m.end, LeaderEpoch: &epoch, MaxBytes: fetchBytesDefault, MaxWait: m.timing.Poll}
	if id := m.clusterID(); id != uuid.Nil {
		s := id.String()
		q.ClusterID = &s
	}
	return []FollowAction{FetchLog{URL: m.leader.URL, Query: q}}
}

func (m *FollowerMachine) clusterID() uuid.UUID {
	if c := m.image.Cluster(); c != nil {
		return c.ID
	}
	return m.cluster
}

// backOff waits after something that passes by itself.
func (m *FollowerMachine) backOff(now time.Duration, err error) []FollowAction {
	d := m.timing.BackOffMin << min(m.failures, 16)
	m.failures++
	return m.retry(now, FollowWaiting, min(d, m.timing.BackOffMax), err)
}

// halt waits, as long as ever, after an answer that waiting alone does not mend. It
// asks again all the same: another leader, or the same one repaired, may answer.
func (m *FollowerMachine) halt(now time.Duration, s FollowState, err error) []FollowAction {
	return m.retry(now, s, m.timing.BackOffMax, err)
}

// retry waits for between half of d and d, so that followers do not come in step.
func (m *FollowerMachine) retry(now time.Duration, s FollowState, d time.Duration, err error) []FollowAction {
	m.become(s)
	m.lastErr = err
	return []FollowAction{WaitUntil{At: now + d/2 + time.Duration(m.rnd.Int63n(int64(d/2)+1))}}
}

func (m *FollowerMachine) stepFetchFailed(now time.Duration, ev FetchFailed) []FollowAction {
	switch ev.Code {
	case CodeFencedLeaderEpoch, CodeNotLeader:
		if m.failures == 0 { // at once, but not in a circle
			m.failures++
			m.lastErr = ev.Err
			return m.find()
		}
		return m.backOff(now, ev.Err)
	case CodeInconsistentClusterID:
		return m.halt(now, FollowFault, ev.Err)
	default: // UNKNOWN_LEADER_EPOCH, NOT_AVAILABLE, no answer: same position later
		return m.backOff(now, ev.Err)
	}
}

func (m *FollowerMachine) stepFetched(now time.Duration, f FetchAnswer) []FollowAction {
	if f.Leader.Epoch < m.leader.Epoch {
		return m.backOff(now, fmt.Errorf("answer of epoch %d, the leader's is %d", f.Leader.Epoch, m.leader.Epoch))
	}
	switch {
	case f.Snapshot != nil:
		return m.stepSnapshot(now, *f.Snapshot)
	case f.Diverging != nil:
		return m.stepDiverging(now, *f.Diverging)
	}
	batches, err := m.stage(f.Frames)
	if err != nil {
		return m.halt(now, FollowFault, err)
	}
	early := len(batches) == 0 && f.HighWatermark <= m.leaderHW && now-m.sentAt < m.timing.Poll/2
	m.snapshot = nil
	m.leaderHW = max(m.leaderHW, f.HighWatermark)
	switch {
	case early: // a leader that does not hold the poll must not be asked in a tight loop
		m.wentWell()
		return m.retry(now, FollowWaiting, m.timing.BackOffMin, nil)
	case len(batches) == 0:
		m.wentWell()
		return append(m.deliver(), m.fetch(now)...)
	}
	m.become(FollowStoring)
	m.store = batches
	entries := make([]Entry, len(batches))
	for i, b := range batches {
		entries[i] = b.Entry
	}
	return []FollowAction{StoreEntries{Entries: entries}}
}

// stage checks frames and applies their batches to what is here. Nothing changes yet.
func (m *FollowerMachine) stage(frames []byte) ([]staged, error) {
	entries, err := DecodeEntries(frames)
	if err != nil {
		return nil, err
	}
	end, im := m.end, m.newest()
	out := make([]staged, 0, len(entries))
	for _, e := range entries {
		if err := continues(end, e.Batch); err != nil {
			return nil, fmt.Errorf("metalog: fetched batch does not continue the log: %w", err)
		}
		if im, err = im.Apply(e.Batch); err != nil {
			return nil, fmt.Errorf("metalog: fetched batch does not apply: %w", err)
		}
		end = after(e.Batch)
		out = append(out, staged{Entry: e, image: im})
	}
	if c := im.Cluster(); c != nil && m.cluster != uuid.Nil && c.ID != m.cluster {
		return nil, fmt.Errorf("metalog: the leader's log is of cluster %s, expected %s", c.ID, m.cluster)
	}
	return out, nil
}

// newest is the image at the end of the log here.
func (m *FollowerMachine) newest() *meta.Image {
	if n := len(m.staged); n > 0 {
		return m.staged[n-1].image
	}
	return m.image
}

// wentWell ends a row of failures: what was fetched is stored, or there was nothing to
// store. A fetch alone does not, as a full disk would be met again at once.
func (m *FollowerMachine) wentWell() { m.failures, m.lastErr = 0, nil }

func (m *FollowerMachine) stepStored(now time.Duration, err error) []FollowAction {
	batches := m.store
	m.store = nil
	if err != nil {
		return m.backOff(now, err)
	}
	m.wentWell()
	m.staged = append(m.staged, batches...)
	m.end = after(m.staged[len(m.staged)-1].Batch)
	return append(m.deliver(), m.fetch(now)...)
}

// deliver moves our own high watermark to the leader's, as far as the log here goes.
func (m *FollowerMachine) deliver() []FollowAction {
	n := 0
	var out []FollowAction
	seen := map[meta.Key]bool{}
	var touched []meta.Key
	for ; n < len(m.staged) && m.staged[n].Batch.Offset < m.leaderHW; n++ {
		for k := range m.staged[n].Batch.Keys() {
			if !seen[k] {
				seen[k] = true
				touched = append(touched, k)
			}
		}
		if m.staged[n].Batch.SnapshotHere {
			out = append(out, CutSnapshot{Image: m.staged[n].image})
		}
	}
	if n == 0 {
		return nil
	}
	m.image = m.staged[n-1].image
	m.staged = m.staged[n:]
	return append(out, DeliverImage{Image: m.image, Touched: touched})
}

// stepDiverging cuts off what the leader does not have, but nothing that was
// delivered: everything served is committed, so that would mean a leader which lost
// committed batches, and a cache that follows it would show them gone (I5).
func (m *FollowerMachine) stepDiverging(now time.Duration, d Diverging) []FollowAction {
	to := min(m.ownEnd(d.Epoch), d.EndOffset)
	if to < m.image.Next() || to >= m.end.Offset {
		return m.halt(now, FollowFault, fmt.Errorf(
			"the leader's log parts from the one here at offset %d or below (its epoch %d ends at %d), but everything up to %d was committed; "+
				"one of the two was damaged or restored from a backup", to, d.Epoch, d.EndOffset, m.image.Next()))
	}
	m.become(FollowTruncating)
	return []FollowAction{TruncateLog{To: to}}
}

// ownEnd is where an epoch ends in the log here; −1 when that is somewhere in what
// was delivered.
func (m *FollowerMachine) ownEnd(epoch int64) int64 {
	if epoch < m.image.Epoch() {
		return -1
	}
	for _, s := range m.staged {
		if s.Batch.Epoch > epoch {
			return s.Batch.Offset
		}
	}
	return m.end.Offset
}

// stepTruncated: the shell has cut the log at the offset it was told.
func (m *FollowerMachine) stepTruncated(now time.Duration, to int64, err error) []FollowAction {
	if err != nil {
		return m.backOff(now, err)
	}
	m.staged = m.staged[:to-m.image.Next()]
	m.end = Position{Offset: m.image.Next(), LastEpoch: m.image.Epoch(), LastTerm: m.image.LastTerm()}
	if n := len(m.staged); n > 0 {
		m.end = after(m.staged[n-1].Batch)
	}
	return m.fetch(now)
}
