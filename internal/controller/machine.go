package controller

import (
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
	"github.com/shoalstore/shoal/validation"
)

// Now is a moment: Mono is what decides, monotonic since the process began;
// Wall, in milliseconds since the Unix epoch, is for show.
type Now struct {
	Mono time.Duration
	Wall int64
}

// Machine is everything that the leader decides, pure: Step takes an event and
// returns what is to be done about it. It has no clock, I/O, goroutine or
// chance of its own, and nothing of it is persisted: a new leader begins with
// the image and what it is told from then on.
//
// Its parts are kept apart by subject: the completion protocol
// (completion.go), the nodes' liveness (liveness.go), reports of copies
// (locations.go), the checks of the deep store (checks.go), tables on their way
// to ACTIVE (tables.go), changes of many records (bulk.go), jobs (jobs.go),
// retention with its tombstones (retention.go), and validation, which looks at
// everything (validation.go), also in the deep stores (audits.go).
//
// The image that it decides on holds everything whose Wrote it was given, and
// only what is committed.
//
// What takes time is an effect: an action with an ID that is never used twice,
// and one event that brings its result under the same ID. Who waits for it is in
// effects, and only there: a result of an earlier leadership is nobody's.
type Machine struct {
	leading bool
	url     string      // ours
	leader  string      // the leader's, as far as known
	image   *meta.Image // the newest seen, also by one that does not lead

	completion *commit.Controller
	rounds     map[meta.SegmentKey]*roundTimes
	live       liveness
	confirmed  confirmations
	checks     checks
	tables     tables
	bulk       bulk
	jobs       map[jobID]*jobWork
	retention  retention
	validation validator
	audits     audits

	effects    map[uint64]effect
	lastEffect uint64 // outlives a leadership

	now Now
	out []Action
}

// effect is what an action that takes time is for.
type effect struct {
	purpose purpose
	segment meta.SegmentKey
	ticket  Ticket
	node    string
	uri     string         // of a check
	digest  segment.Digest // of a check
	found   bool           // of a check: the copy is there
	id      uuid.UUID      // of a table or a job
	step    bool           // of a table: it takes the table on, and does not only note an error
	bulk    bulkKey
	from    meta.ConsumeFrom // of a listing for a resume
	// gone counts the segments that retention takes, once the function is evaluated.
	gone     *int
	segments []meta.SegmentKey // of tombstones
	began    Now               // of a survey or a listing
	dryRun   bool              // of a survey
	limit    int               // of what a survey shows
	// verdicts are filled in when the function is evaluated.
	verdicts *meta.LocationVerdicts
}

// purpose says who waits for the result of an effect.
type purpose uint8

const (
	forNobody    purpose = iota
	forCommit            // Write: a segment is DONE, its successor consumes
	forEmpty             // Write: a segment without rows has ended
	forAttempt           // Write: stopped replicas start afresh
	forNode              // Write: a node is UP, or DOWN
	forLocations         // Write: a node's copies
	forLook              // CheckDeepStore
	forCopy              // Write: what that look has found
	forList              // ListPartitions
	forTable             // Write: a step of a table
	forJob               // Write: a step of a job
	forExpiry            // Write: retention takes segments of a table
	forGrace             // Write: the grace of tombstones is over
	forRemoval           // Write: tombstones go
	forDelete            // DeleteDeepStore
	forBulk              // Write: a step of a bulk change
	forStarts            // ListPartitions: for a resume
	forSurvey            // Survey
	forUpload            // AskUpload
	forAudit             // ListDeepStore
)

// NewMachine returns the machine of a controller that does not lead.
func NewMachine() *Machine {
	m := &Machine{}
	m.retention.timing = DefaultRetention
	m.validation.timing = DefaultValidation
	m.reset()
	return m
}

// reset forgets what only a leader knows.
func (m *Machine) reset() {
	m.completion = commit.NewController()
	m.rounds = map[meta.SegmentKey]*roundTimes{}
	m.live = newLiveness()
	m.confirmed = newConfirmations()
	m.checks = newChecks()
	m.tables = newTables()
	m.bulk = newBulk()
	m.jobs = map[jobID]*jobWork{}
	m.retention = newRetention(m.retention.timing)
	m.validation = newValidator(m.validation.timing)
	m.audits = newAudits(m.validation.timing.Audit)
	m.effects = map[uint64]effect{}
}

// Step takes an event and returns the actions that it calls for, in their
// order. Results of a leadership that is over are dropped.
func (m *Machine) Step(now Now, ev Event) []Action {
	m.now, m.out = now, nil
	switch ev := ev.(type) {
	case Lead:
		m.lead(ev)
	case Depose:
		m.depose(ev)
	case Message:
		m.message(ev)
	case Heartbeat:
		m.heartbeat(ev)
	case Located:
		m.located(ev)
	case Look:
		m.look(ev)
	case Committed:
		m.advance(ev.Image)
		if m.leading {
			m.review(ev.Touched)
		}
	case Wrote:
		if e, ok := m.take(ev.ID); ok {
			m.wrote(e, ev)
		}
	case Listed:
		if e, ok := m.take(ev.ID); ok && e.purpose == forStarts {
			m.startsListed(e, ev)
		} else if ok {
			m.listed(e, ev)
		}
	case Checked:
		if e, ok := m.take(ev.ID); ok {
			m.checked(e, ev)
		}
	case Deleted:
		if e, ok := m.take(ev.ID); ok {
			m.deleted(e, ev)
		}
	case Surveyed:
		if e, ok := m.take(ev.ID); ok {
			m.surveyed(e, ev)
		}
	case UploadAnswered:
		if e, ok := m.take(ev.ID); ok {
			m.uploadAnswered(e, ev)
		}
	case ObjectsListed:
		if e, ok := m.take(ev.ID); ok {
			m.objectsListed(e, ev)
		}
	case LookAtValidation:
		m.lookAtValidation(ev)
	case RunValidation:
		m.runValidation(ev)
	case Tick:
		if m.leading {
			m.completed(m.completion.Step(m.now.Mono, commit.Tick{}))
			m.markSilentNodes()
			m.workJobs()
			m.retain()
			m.validate()
		}
	}
	if m.leading {
		m.startChecks()
		m.startLists()
		m.startBulk()
		m.workTombstones()
		m.audit()
	}
	return m.out
}

// lead begins a leadership. Every node has one full time-out to be heard of.
// What was committed since Image was handed in has been seen by then, but not
// looked at: everything is, now.
func (m *Machine) lead(ev Lead) {
	if m.leading {
		m.depose(Depose{Leader: ev.URL})
	}
	m.leading, m.url, m.leader = true, ev.URL, ev.URL
	m.advance(ev.Image)
	m.retention.next = m.now.Mono + m.retention.timing.Every
	m.beginValidation()
	m.review(nil)
}

// depose ends a leadership. Whoever waits for an effect of it is answered now:
// its result comes to nothing.
func (m *Machine) depose(ev Depose) {
	m.leader = ev.Leader
	m.leading = false
	for _, id := range slices.Sorted(maps.Keys(m.effects)) {
		switch e := m.effects[id]; {
		case e.purpose == forLocations:
			m.do(AnswerLocations{Ticket: e.ticket, Refuse: RefuseUnknown})
		case e.purpose == forSurvey && e.ticket != 0:
			m.do(ValidationSeen{Ticket: e.ticket, Refuse: RefuseNotLeader})
		}
	}
	m.completed(m.completion.Step(m.now.Mono, commit.Deposed{Leader: ev.Leader}))
	m.block("") // it is another's business now
	m.reset()
}

// advance takes a newer image. One that is older than what a Wrote has brought
// already is no news.
func (m *Machine) advance(im *meta.Image) {
	if m.image == nil || im.Next() > m.image.Next() {
		m.image = im
	}
}

// review looks at what changed, or at everything, and takes up the work that
// it finds: the image is the list of what is to be done.
func (m *Machine) review(touched []meta.Key) {
	if touched == nil {
		for n := range m.image.Nodes() {
			m.reviewNode(n)
		}
		for t := range m.image.Tables() {
			m.reviewTable(t)
		}
		for s := range m.image.SegmentsAwaitingDeepStore() {
			m.reviewSegment(s)
		}
		for j := range m.image.Jobs() {
			m.reviewJob(j)
		}
		for t := range m.image.Tombstones() {
			m.reviewTombstone(t)
		}
		return
	}
	for _, k := range touched {
		switch r := m.image.Lookup(k).(type) {
		case *meta.Node:
			m.reviewNode(r)
		case *meta.Table:
			m.reviewTable(r)
		case *meta.Partition:
			m.reviewReplicas(r)
		case *meta.Segment:
			m.reviewSegment(r)
			m.reviewReplicas(r)
		case *meta.Job:
			m.reviewJob(r)
		case *meta.Tombstone:
			m.reviewTombstone(r)
		case nil:
			m.reviewGone(k)
		}
	}
}

// reviewNode waits for a node, and forgets what it confirmed of another store.
func (m *Machine) reviewNode(n *meta.Node) {
	m.live.wait(m.now.Mono, n, m.image.Next())
	m.confirmed.forgetOtherStores(nodeStore{n.ID, n.StoreID})
	if k := (bulkKey{node: n.ID}); n.State == meta.NodeDraining && m.bulk.work[k] == nil { // its record changes with every report
		m.takeUp(k)
	}
}

// reviewGone forgets what is remembered of a record that was removed.
func (m *Machine) reviewGone(k meta.Key) {
	switch k.Kind {
	case meta.KindNode:
		m.live.forget(k.Name)
		m.confirmed.forgetNode(k.Name)
	case meta.KindSegment:
		key := meta.SegmentKey{Table: k.Table, Partition: k.Partition, Seq: k.Num}
		m.completed(m.completion.Step(m.now.Mono, commit.SegmentGone{Key: commitKey(key)}))
		m.forgetSegment(key)
	case meta.KindTombstone:
		m.forgetTombstone(meta.SegmentKey{Table: k.Table, Partition: k.Partition, Seq: k.Num})
	}
}

// forgetSegment drops what is remembered of a segment that no longer concerns
// the machine.
func (m *Machine) forgetSegment(k meta.SegmentKey) {
	delete(m.rounds, k)
	m.checks.forget(k)
	m.confirmed.forgetSegment(k)
	m.manage(validation.Changed{Segment: k})
}

// do adds an action.
func (m *Machine) do(a Action) { m.out = append(m.out, a) }

// begin remembers what an effect is for, and returns its ID.
func (m *Machine) begin(e effect) (id uint64) {
	m.lastEffect++
	m.effects[m.lastEffect] = e
	return m.lastEffect
}

// take returns what the effect that has ended was for, if that still matters.
func (m *Machine) take(id uint64) (e effect, ok bool) {
	e, ok = m.effects[id]
	delete(m.effects, id)
	return e, ok
}

// write submits a function of the image.
func (m *Machine) write(e effect, what string, fn meta.Func) {
	m.do(Write{ID: m.begin(e), What: what, Func: fn})
}

// wrote takes the result of a write to whoever waits for it.
func (m *Machine) wrote(e effect, ev Wrote) {
	if ev.Image != nil {
		m.advance(ev.Image)
	}
	switch e.purpose {
	case forCommit, forEmpty, forAttempt:
		m.completionWrote(e, ev)
	case forNode:
		m.live.settled(e.node)
		m.retryDrains()
		m.surveySoon()
	case forLocations:
		m.locationsWrote(e, ev)
	case forCopy:
		m.copyWrote(e, ev)
	case forTable:
		m.tableWrote(e, ev)
	case forJob:
		m.jobWrote(e, ev)
	case forExpiry:
		m.expiryWrote(e, ev)
	case forGrace, forRemoval:
		m.tombstonesWrote(e)
	case forBulk:
		m.bulkWrote(e, ev)
	}
}

// heartbeat takes a sign of life. One of a node that was taken for DOWN brings
// it back.
func (m *Machine) heartbeat(ev Heartbeat) {
	answer := AnswerHeartbeat{Ticket: ev.Ticket}
	if !m.leading {
		answer.Refuse, answer.Answer.Leader = RefuseNotLeader, m.leader
		m.do(answer)
		return
	}
	n := m.image.Node(ev.Node)
	if n == nil || n.Incarnation != ev.Incarnation {
		answer.Refuse = RefuseStaleIncarnation
		m.do(answer)
		return
	}
	if m.live.beat(m.now.Mono, ev.Heartbeat, m.image.Next()) {
		m.nodeReady()
	}
	if n.State == meta.NodeDown {
		m.setNodeState(n, meta.NodeUp)
	}
	answer.Answer = api.HeartbeatAnswer{Leader: m.url, Epoch: m.image.Epoch(), HighWatermark: m.image.Next()}
	m.do(answer)
}

// markSilentNodes takes nodes that were silent for too long for DOWN. One that
// is DRAINING stays so: its copies do not count as it is, and it must not come
// back as UP.
func (m *Machine) markSilentNodes() {
	for _, id := range m.live.silent(m.now.Mono) {
		if n := m.image.Node(id); n != nil && n.State == meta.NodeUp {
			m.setNodeState(n, meta.NodeDown)
		}
	}
}

// setNodeState changes the record of a node, one change at a time.
func (m *Machine) setNodeState(n *meta.Node, state meta.NodeState) {
	if m.live.unsettled(n.ID) {
		m.write(effect{purpose: forNode, node: n.ID}, "node "+n.ID+" is "+string(state),
			meta.SetNodeState(n.ID, n.Incarnation, state))
	}
}
