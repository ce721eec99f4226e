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
	FollowWaiting       FollowState = "WAITING"        // backing off after something that passes
	FollowNeedsSnapshot FollowState = "NEEDS_SNAPSHOT" // the leader no longer has what comes next
	FollowFault         FollowState = "FAULT"          // the leader's answer contradicts what is here
)

// followEdges are the legal changes of state.
var followEdges = map[FollowState][]FollowState{
	FollowStarting:      {FollowFinding},
	FollowFinding:       {FollowFetching, FollowWaiting},
	FollowFetching:      {FollowFetching, FollowStoring, FollowTruncating, FollowFinding, FollowWaiting, FollowNeedsSnapshot, FollowFault},
	FollowStoring:       {FollowFetching, FollowWaiting},
	FollowTruncating:    {FollowFetching, FollowWaiting},
	FollowWaiting:       {FollowFinding},
	FollowNeedsSnapshot: {FollowFinding},
	FollowFault:         {FollowFinding},
}

// LeaderRef is where the leader is and which epoch it opened.
type LeaderRef struct {
	URL   string
	Epoch int64
}

// followEvent is what happened, followAction what to do about it. Each Step asks for
// exactly one effect, whose outcome is the next event; a deliver may come before it.
type (
	followEvent  interface{ isEvent() }
	followAction interface{ isAction() }

	evStart       struct{}
	evTick        struct{} // the time that was waited for has come
	evLeader      struct{ leader LeaderRef }
	evNoLeader    struct{ err error }
	evFetched     struct{ fetched }
	evFetchFailed struct {
		code string // of the answer, empty when there was none
		err  error
	}
	evStored    struct{ err error }
	evTruncated struct {
		to  int64
		err error
	}

	actFind  struct{}
	actFetch struct {
		url   string
		query fetchQuery
	}
	actStore    struct{ entries []Entry }
	actTruncate struct{ to int64 }
	actWait     struct{ until time.Time }
	// actDeliver hands on an image whose batches are all durable here.
	actDeliver struct {
		image   *meta.Image
		touched []meta.Key
	}
)

// fetched is an answer to a fetch: frames, unless one of the others is set.
type fetched struct {
	leader        LeaderRef
	highWatermark int64
	frames        []byte
	snapshot      *SnapshotRef
	diverging     *Diverging
}

func (evStart) isEvent()       {}
func (evTick) isEvent()        {}
func (evLeader) isEvent()      {}
func (evNoLeader) isEvent()    {}
func (evFetched) isEvent()     {}
func (evFetchFailed) isEvent() {}
func (evStored) isEvent()      {}
func (evTruncated) isEvent()   {}
func (actFind) isAction()      {}
func (actFetch) isAction()     {}
func (actStore) isAction()     {}
func (actTruncate) isAction()  {}
func (actWait) isAction()      {}
func (actDeliver) isAction()   {}

// followTiming are the waits of a follower.
type followTiming struct {
	poll       time.Duration // how long the leader may hold a fetch
	backOffMin time.Duration // before the first repeat; doubles
	backOffMax time.Duration // and the wait after a fault
}

// follow is the follower's machine: METALOG §4 without its snapshots. It is pure;
// time comes in with each event and randomness with rnd.
type follow struct {
	timing  followTiming
	rnd     *rand.Rand
	cluster uuid.UUID // expected; zero: that of the first batch

	state    FollowState
	leader   LeaderRef
	sentAt   time.Time
	failures int   // in a row
	lastErr  error // why it waits; nil once a fetch went well
	snapshot *SnapshotRef
	leaderHW int64

	end    Position    // of the log here (LEO)
	image  *meta.Image // what is delivered: everything below our own HW
	staged []staged    // in the log here, not known to be committed: [HW, LEO)
	store  []staged    // being stored
}

// staged is a batch and the image that it makes: a batch is applied before it is
// stored, so that one which does not apply never enters the log.
type staged struct {
	Entry
	image *meta.Image
}

// newFollow starts from a log that ends at end and the image of all of it.
func newFollow(t followTiming, rnd *rand.Rand, cluster uuid.UUID, end Position, im *meta.Image) *follow {
	return &follow{timing: t, rnd: rnd, cluster: cluster, state: FollowStarting, end: end, image: im, leaderHW: end.Offset}
}

func (m *follow) become(s FollowState) {
	for _, legal := range followEdges[m.state] {
		if legal == s {
			m.state = s
			return
		}
	}
	panic(fmt.Sprintf("metalog: follower cannot go from %s to %s", m.state, s))
}

// step takes one event and says what to do.
func (m *follow) step(now time.Time, ev followEvent) []followAction {
	switch ev := ev.(type) {
	case evStart, evTick:
		return m.find()
	case evLeader:
		m.leader = ev.leader
		return m.fetch(now)
	case evNoLeader:
		return m.backOff(now, fmt.Errorf("no leader found: %w", ev.err))
	case evFetched:
		return m.stepFetched(now, ev.fetched)
	case evFetchFailed:
		return m.stepFetchFailed(now, ev)
	case evStored:
		return m.stepStored(now, ev.err)
	case evTruncated:
		return m.stepTruncated(now, ev.to, ev.err)
	}
	panic(fmt.Sprintf("metalog: follower cannot take a %T", ev))
}

func (m *follow) find() []followAction {
	m.become(FollowFinding)
	return []followAction{actFind{}}
}

func (m *follow) fetch(now time.Time) []followAction {
	m.become(FollowFetching)
	m.sentAt = now
	epoch := m.leader.Epoch
	q := fetchQuery{Position: m.end, leaderEpoch: &epoch, maxBytes: fetchBytesDefault, maxWait: m.timing.poll}
	if id := m.clusterID(); id != uuid.Nil {
		s := id.String()
		q.clusterID = &s
	}
	return []followAction{actFetch{url: m.leader.URL, query: q}}
}

func (m *follow) clusterID() uuid.UUID {
	if c := m.image.Cluster(); c != nil {
		return c.ID
	}
	return m.cluster
}

// backOff waits after something that passes by itself.
func (m *follow) backOff(now time.Time, err error) []followAction {
	d := m.timing.backOffMin << min(m.failures, 16)
	m.failures++
	return m.retry(now, FollowWaiting, min(d, m.timing.backOffMax), err)
}

// halt waits, as long as ever, after an answer that waiting alone does not mend. It
// asks again all the same: another leader, or the same one repaired, may answer.
func (m *follow) halt(now time.Time, s FollowState, err error) []followAction {
	return m.retry(now, s, m.timing.backOffMax, err)
}

// retry waits for between half of d and d, so that followers do not come in step.
func (m *follow) retry(now time.Time, s FollowState, d time.Duration, err error) []followAction {
	m.become(s)
	m.lastErr = err
	return []followAction{actWait{until: now.Add(d/2 + time.Duration(m.rnd.Int63n(int64(d/2)+1)))}}
}

func (m *follow) stepFetchFailed(now time.Time, ev evFetchFailed) []followAction {
	switch ev.code {
	case CodeFencedLeaderEpoch, CodeNotLeader:
		if m.failures == 0 { // at once, but not in a circle
			m.failures++
			m.lastErr = ev.err
			return m.find()
		}
		return m.backOff(now, ev.err)
	case CodeInconsistentClusterID:
		return m.halt(now, FollowFault, ev.err)
	default: // UNKNOWN_LEADER_EPOCH, NOT_AVAILABLE, no answer: same position later
		return m.backOff(now, ev.err)
	}
}

func (m *follow) stepFetched(now time.Time, f fetched) []followAction {
	if f.leader.Epoch < m.leader.Epoch {
		return m.backOff(now, fmt.Errorf("answer of epoch %d, the leader's is %d", f.leader.Epoch, m.leader.Epoch))
	}
	switch {
	case f.snapshot != nil:
		m.snapshot = f.snapshot
		return m.halt(now, FollowNeedsSnapshot, fmt.Errorf(
			"the leader has no log from offset %d on, only snapshot %s, and this program cannot fetch snapshots", m.end.Offset, f.snapshot))
	case f.diverging != nil:
		return m.stepDiverging(now, *f.diverging)
	}
	batches, err := m.stage(f.frames)
	if err != nil {
		return m.halt(now, FollowFault, err)
	}
	early := len(batches) == 0 && f.highWatermark <= m.leaderHW && now.Sub(m.sentAt) < m.timing.poll/2
	m.failures, m.lastErr, m.snapshot = 0, nil, nil
	m.leaderHW = max(m.leaderHW, f.highWatermark)
	switch {
	case early: // a leader that does not hold the poll must not be asked in a tight loop
		return m.retry(now, FollowWaiting, m.timing.backOffMin, nil)
	case len(batches) == 0:
		return append(m.deliver(), m.fetch(now)...)
	}
	m.become(FollowStoring)
	m.store = batches
	entries := make([]Entry, len(batches))
	for i, b := range batches {
		entries[i] = b.Entry
	}
	return []followAction{actStore{entries: entries}}
}

// stage checks frames and applies their batches to what is here. Nothing changes yet.
func (m *follow) stage(frames []byte) ([]staged, error) {
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
func (m *follow) newest() *meta.Image {
	if n := len(m.staged); n > 0 {
		return m.staged[n-1].image
	}
	return m.image
}

func (m *follow) stepStored(now time.Time, err error) []followAction {
	batches := m.store
	m.store = nil
	if err != nil {
		return m.backOff(now, err)
	}
	m.staged = append(m.staged, batches...)
	m.end = after(m.staged[len(m.staged)-1].Batch)
	return append(m.deliver(), m.fetch(now)...)
}

// deliver moves our own high watermark to the leader's, as far as the log here goes.
func (m *follow) deliver() []followAction {
	n := 0
	seen := map[meta.Key]bool{}
	var touched []meta.Key
	for ; n < len(m.staged) && m.staged[n].Batch.Offset < m.leaderHW; n++ {
		for k := range m.staged[n].Batch.Keys() {
			if !seen[k] {
				seen[k] = true
				touched = append(touched, k)
			}
		}
	}
	if n == 0 {
		return nil
	}
	m.image = m.staged[n-1].image
	m.staged = m.staged[n:]
	return []followAction{actDeliver{image: m.image, touched: touched}}
}

// stepDiverging cuts off what the leader does not have, but nothing that was
// delivered: everything served is committed, so that would mean a leader which lost
// committed batches, and a cache that follows it would show them gone (I5).
func (m *follow) stepDiverging(now time.Time, d Diverging) []followAction {
	to := min(m.ownEnd(d.Epoch), d.EndOffset)
	if to < m.image.Next() || to >= m.end.Offset {
		return m.halt(now, FollowFault, fmt.Errorf(
			"the leader's log parts from the one here at offset %d or below (its epoch %d ends at %d), but everything up to %d was committed; "+
				"one of the two was damaged or restored from a backup", to, d.Epoch, d.EndOffset, m.image.Next()))
	}
	m.become(FollowTruncating)
	return []followAction{actTruncate{to: to}}
}

// ownEnd is where an epoch ends in the log here; −1 when that is somewhere in what
// was delivered.
func (m *follow) ownEnd(epoch int64) int64 {
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
func (m *follow) stepTruncated(now time.Time, to int64, err error) []followAction {
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
