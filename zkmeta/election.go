package zkmeta

import (
	"errors"
	"hash/fnv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// takeOverTries is how often the first in line tries to take over before it lets
// the next one try: what it cannot read, another may.
const takeOverTries = 3

// ElectionConfig is what an Election must know.
type ElectionConfig struct {
	Controller     string    // the id, part of the candidate's name
	BootID         uuid.UUID // drawn by this process at its start
	SessionTimeout time.Duration
}

// Validate reports all faults.
func (c ElectionConfig) Validate() error {
	var faults []error
	if c.Controller == "" || strings.ContainsAny(c.Controller, "/\x00") {
		faults = append(faults, errors.New("zkmeta: the controller's id must be part of a znode's name: not empty, no slash"))
	}
	if c.BootID == uuid.Nil {
		faults = append(faults, errors.New("zkmeta: an election needs the boot id of its process"))
	}
	if c.SessionTimeout <= 0 {
		faults = append(faults, errors.New("zkmeta: the session timeout must be more than 0"))
	}
	return errors.Join(faults...)
}

// leadFor is how long after the start of its last answered request a leader
// goes on. ZooKeeper expires the session no sooner than a whole timeout after it
// heard that request; the third between is for clocks that differ.
func (c ElectionConfig) leadFor() time.Duration { return c.SessionTimeout * 2 / 3 }

// pingEvery is a leader's: four tries in the time that it may lead.
func (c ElectionConfig) pingEvery() time.Duration { return c.SessionTimeout / 6 }

// retryAfter is the pause after an effect that failed.
func (c ElectionConfig) retryAfter() time.Duration { return c.SessionTimeout / 20 }

// restFor is the pause before a controller that resigned joins again. It joins
// at the end of the line, so this only keeps one that is alone from spinning.
func (c ElectionConfig) restFor() time.Duration { return c.SessionTimeout / 4 }

// lookEvery is how often the line is read although no event said so: events and
// watches get lost. The controllers look at different times.
func (c ElectionConfig) lookEvery() time.Duration {
	h := fnv.New32a()
	h.Write(c.BootID[:])
	return c.SessionTimeout + c.SessionTimeout*time.Duration(h.Sum32()%1024)/2048
}

// Election decides whether one controller leads. Being the first in line only
// lets it try: a leader is who wrote the Leader batch on the condition that the
// log's head is the one that its image stands at. Nothing else proves that no
// earlier leader writes any more.
//
// It leads until it resigns, until its session is over, or until its own
// deadline, which passes before ZooKeeper can let another one be first.
type Election struct {
	cfg   ElectionConfig
	state ElectionState

	session   int64
	connected bool          // a belief: its only use is to try less often without
	deadline  time.Duration // 0 before the first answer in this session

	candidacy int64
	own       string // our candidate
	watch     uint64 // the Try of the watch that is set, or 0
	watched   string

	try     uint64 // the last one given out
	awaited uint64 // the one whose result is waited for, or 0
	askedAt time.Duration
	due     time.Duration // when to try or to look again, while nothing is awaited
	pinged  time.Duration

	head     Head
	version  int32
	epoch    int64 // of the leadership; 0 without
	failures int   // of this take-over
	final    bool  // it resigns for good

	out []ElectionAction
}

// NewElection returns the election of a controller that has no session yet. It
// panics if cfg is not valid.
func NewElection(cfg ElectionConfig) *Election {
	if err := cfg.Validate(); err != nil {
		panic(err)
	}
	return &Election{cfg: cfg, state: Connecting}
}

// State returns what the controller does about leading.
func (e *Election) State() ElectionState { return e.state }

// Epoch returns that of the leadership, or 0.
func (e *Election) Epoch() int64 { return e.epoch }

// Candidate returns the name of the controller's candidate, or "".
func (e *Election) Candidate() string { return e.own }

// Deadline returns until when a leader may lead unless ZooKeeper answers again:
// the start of the last request that was answered in this session plus 2/3 of
// the timeout. It is 0 before the first answer.
func (e *Election) Deadline() time.Duration { return e.deadline }

// Leading tells whether the controller leads at now. The shell asks before every
// answer to a message. Once false, it stays false for that epoch.
func (e *Election) Leading(now time.Duration) bool {
	return e.state == Leading && now < e.deadline
}

// Step takes an event and returns what is to be done about it, in order.
func (e *Election) Step(now time.Duration, ev ElectionEvent) []ElectionAction {
	// Before the event: one that was late in coming must not revive a leadership
	// that the shell has already denied.
	e.fence(now)
	switch ev := ev.(type) {
	case SessionOpened:
		e.opened(now, ev.Session)
	case SessionBack:
		e.opened(now, ev.Session)
	case SessionLost:
		if e.inSession(ev.Session) {
			e.connected = false
		}
	case SessionExpired:
		if e.inSession(ev.Session) {
			e.leaveSession("the session expired")
		}
	case Ponged:
		if e.inSession(ev.Session) {
			e.heard(min(ev.SentAt, now))
		}
	case CandidateGone:
		e.gone(now, ev)
	case Resign:
		e.resign(now, ev)
	case effectResult:
		e.result(now, ev)
	}
	e.alarm(now)
	out := e.out
	e.out = nil
	return out
}

func (e *Election) do(a ElectionAction) { e.out = append(e.out, a) }

// ask numbers an effect. With it, the result of every earlier one is dropped.
func (e *Election) ask(now time.Duration, action func(try uint64) ElectionAction) {
	e.try++
	e.awaited, e.askedAt = e.try, now
	e.do(action(e.try))
}

// wait has the alarm ring at a time, and drops what was awaited.
func (e *Election) wait(until time.Duration) { e.awaited, e.due = 0, until }

func (e *Election) list(now time.Duration) {
	e.ask(now, func(try uint64) ElectionAction { return ListCandidates{try} })
}

// heard notes an answer to a request that was sent then, in this session.
func (e *Election) heard(sentAt time.Duration) {
	e.connected = true
	e.deadline = max(e.deadline, sentAt+e.cfg.leadFor())
}

func (e *Election) fence(now time.Duration) {
	if e.state == Leading && now >= e.deadline {
		e.stepDown("ZooKeeper was silent for too long")
		e.stand(e.soon(now, 0))
	}
}

func (e *Election) stepDown(why string) {
	e.do(StepDown{e.epoch, why})
	e.epoch = 0
}

// soon is when to try again: after a pause, or after a long one while nothing can
// be sent, as far as is known.
func (e *Election) soon(now, pause time.Duration) time.Duration {
	if !e.connected {
		pause = e.cfg.lookEvery()
	}
	return now + pause
}

// The session.

func (e *Election) inSession(s int64) bool {
	return e.state != Connecting && e.state != Retired && s == e.session
}

func (e *Election) opened(now time.Duration, session int64) {
	switch {
	case e.state == Retired:
	case e.inSession(session):
		e.connected = true
		e.again(now)
	default:
		// Words get lost: the end of the old session may be one.
		if e.state != Connecting {
			e.leaveSession("there is a new session")
		}
		if e.state == Connecting {
			e.session, e.connected = session, true
			e.join(now)
		}
	}
}

// again starts over in the same session: what was in flight when the connection
// went may never be answered, and watches were not told.
func (e *Election) again(now time.Duration) {
	e.watch, e.watched = 0, ""
	switch e.state {
	case Resting: // it has nothing in flight
	case Leading:
		e.ping(now)
		e.list(now)
	case Joining, Resigning:
		e.wait(now)
	default:
		e.stand(now)
	}
}

func (e *Election) leaveSession(why string) {
	if e.state == Leading {
		e.stepDown(why)
	}
	e.own, e.watch, e.watched = "", 0, ""
	e.connected, e.deadline, e.awaited, e.failures = false, 0, 0, 0
	if e.final {
		e.become(Retired)
		return
	}
	e.become(Connecting)
}

// The results.

func (e *Election) result(now time.Duration, r effectResult) {
	if r.attempt() != e.awaited || e.awaited == 0 {
		return
	}
	if r.contact() {
		e.heard(e.askedAt)
	}
	e.awaited = 0
	switch e.state {
	case Joining:
		e.stepJoining(now, r)
	case Standing, Watching, Leading:
		e.stepInLine(now, r)
	case Syncing:
		e.stepSyncing(now, r)
	case CatchingUp:
		e.stepCatchingUp(now, r)
	case WritingLeader:
		e.stepWritingLeader(now, r)
	case Resigning:
		e.stepResigning(now, r)
	}
}

// alarm does what is due, once nothing is awaited.
func (e *Election) alarm(now time.Duration) {
	if e.state == Leading && now >= e.pinged+e.cfg.pingEvery() {
		e.ping(now)
	}
	if e.awaited != 0 || now < e.due {
		return
	}
	switch e.state {
	case Joining, Standing, Watching, Leading:
		e.list(now)
	case Resigning:
		e.delete(now)
	case Resting:
		e.join(now)
	}
}

func (e *Election) ping(now time.Duration) {
	e.pinged = now
	e.do(Ping{e.session})
}

// Taking over. It never asks whether the head's term is its own: an epoch whose
// write ended unknown is laid aside like anybody else's, and the next one opened.

func (e *Election) takeOver(now time.Duration) {
	e.become(Syncing)
	e.watch, e.watched = 0, ""
	e.ask(now, func(try uint64) ElectionAction { return ReadHead{try} })
}

func (e *Election) stepSyncing(now time.Duration, r effectResult) {
	read, ok := r.(HeadRead)
	if !ok {
		return
	}
	// A negative version would match any: the write would not be conditional.
	if read.Err != nil || read.Version < 0 {
		e.failed(now, e.cfg.retryAfter())
		return
	}
	e.head, e.version = read.Head, read.Version
	e.become(CatchingUp)
	e.ask(now, func(try uint64) ElectionAction { return CatchUp{try, read.Head} })
}

func (e *Election) stepCatchingUp(now time.Duration, r effectResult) {
	at, ok := r.(CaughtUp)
	switch {
	case !ok:
	case at.Err == nil && at.Offset == e.head.Offset && at.Epoch == e.head.Epoch:
		e.become(WritingLeader)
		e.ask(now, func(try uint64) ElectionAction { return WriteLeader{try, e.version, e.head.Epoch + 1} })
	case at.Err == nil && at.Offset > e.head.Offset:
		// An earlier leader still writes.
		e.failed(now, 0)
	default:
		e.failed(now, e.cfg.retryAfter())
	}
}

func (e *Election) stepWritingLeader(now time.Duration, r effectResult) {
	w, ok := r.(LeaderWritten)
	switch {
	case !ok:
	case w.Outcome == Written && now < e.deadline:
		e.become(Leading)
		e.epoch, e.failures, e.pinged = e.head.Epoch+1, 0, now
		e.wait(now + e.cfg.lookEvery())
		e.do(StartLeading{w.Try, e.epoch})
	case w.Outcome == Written, w.Outcome == BadVersion:
		// The first came too late to lead by it.
		e.failed(now, 0)
	default:
		e.failed(now, e.cfg.retryAfter())
	}
}

// failed goes back to look whether it is still the first, and lets another try
// when it has failed often. Failures without a connection are everybody's.
func (e *Election) failed(now, pause time.Duration) {
	if e.connected {
		e.failures++
	}
	if e.failures >= takeOverTries {
		e.layDown(now)
		return
	}
	e.stand(e.soon(now, pause))
}

// Going.

func (e *Election) resign(now time.Duration, ev Resign) {
	if !ev.Final && ev.Epoch != 0 && ev.Epoch != e.epoch {
		return
	}
	switch e.state {
	case Standing, Watching, Syncing, CatchingUp, WritingLeader, Leading:
		if e.state == Leading {
			e.stepDown(ev.Why)
		}
		e.final = ev.Final
		e.layDown(now)
	case Resigning:
		e.final = e.final || ev.Final
	case Connecting, Joining, Resting:
		// What a create may leave behind goes with the session.
		if ev.Final {
			e.awaited = 0
			e.become(Retired)
		}
	}
}

func (e *Election) layDown(now time.Duration) {
	e.become(Resigning)
	e.watch, e.watched = 0, ""
	e.delete(now)
}

func (e *Election) delete(now time.Duration) {
	e.ask(now, func(try uint64) ElectionAction { return DeleteCandidate{try, e.own} })
}

func (e *Election) stepResigning(now time.Duration, r effectResult) {
	d, ok := r.(CandidateDeleted)
	switch {
	case !ok:
	case d.Err != nil:
		e.wait(e.soon(now, e.cfg.retryAfter()))
	case e.final:
		e.own = ""
		e.become(Retired)
	default:
		e.rest(now, e.cfg.restFor())
	}
}

// rest leaves the line for a while.
func (e *Election) rest(now, pause time.Duration) {
	e.become(Resting)
	e.own, e.watch, e.watched = "", 0, ""
	e.wait(e.soon(now, pause))
}
