package zkmeta

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"
)

// Role is what an Elector's controller does about leading. The calls with a context
// come one at a time and may take as long as they need; the others must not block.
type Role interface {
	// CatchUp brings the controller's image to exactly the head, whose version the
	// first append is conditional on, and says where the image stands then. A newer
	// call follows only after this one has returned; its context ends then.
	CatchUp(ctx context.Context, to TailHead, version int32) (at Head, err error)
	// WriteLeader appends the batch that opens the epoch, on what the last CatchUp has
	// brought. The error is the device's: OutcomeOf tells what is known.
	WriteLeader(ctx context.Context, epoch int64) error
	// StartLeading says that the controller leads by the last WriteLeader.
	StartLeading(epoch int64)
	// StepDown ends a leadership: nothing is answered or appended any more.
	StepDown(epoch int64, why string)
	// Follow says that what CatchUp and WriteLeader have begun is over, whether it came
	// to leading or not: somebody else may lead. It comes after StepDown, and not when
	// the next CatchUp has begun.
	Follow(ctx context.Context)
}

// ElectorConfig is what an Elector needs.
type ElectorConfig struct {
	Conn       *Conn
	Controller string // its id
	Role       Role
	Logger     zerolog.Logger
}

// Elector runs the election of one controller: the goroutine that steps an Election
// and carries out what it says. It decides nothing.
type Elector struct {
	cfg ElectorConfig
	log zerolog.Logger

	events chan ElectionEvent
	lead   atomic.Pointer[lead] // nil without a leadership

	// Only Run's goroutine:
	election *Election
	tail     TailHead // the head as it was last read, and the version of its znode
	version  int32
	seen     Session
	timeout  time.Duration      // that election counts with
	role     context.CancelFunc // ends the role's work that is under way
	watch    context.CancelFunc
	efforts  sync.WaitGroup
	working  sync.Mutex // one call of the role at a time
}

// lead is a leadership. Its epoch and its end change together: who asks about an
// epoch that is over must not see until when the next one lasts.
type lead struct {
	epoch int64
	until time.Duration // when it ends by itself, on the connection's clock
}

// NewElector returns an Elector; Run does the work.
func NewElector(cfg ElectorConfig) *Elector {
	return &Elector{
		cfg: cfg, log: cfg.Logger.With().Str("component", "election").Logger(),
		events: make(chan ElectionEvent, 64), role: func() {}, watch: func() {},
	}
}

// Leading reports whether the controller leads that epoch now. It becomes false by
// itself once ZooKeeper was silent for two thirds of the session's timeout, also
// while the process was not running. It is asked before every answer.
func (e *Elector) Leading(epoch int64) bool {
	l := e.lead.Load()
	return l != nil && l.epoch == epoch && e.cfg.Conn.Now() < l.until
}

// Resign lays down the leadership of an epoch, as when its writer is poisoned.
func (e *Elector) Resign(ctx context.Context, epoch int64, why string) {
	e.post(ctx, Resign{Epoch: epoch, Why: why})
}

// Heard takes in that a request was answered in the session, and when its sending
// began.
func (e *Elector) Heard(ctx context.Context, session int64, sentAt time.Duration) {
	e.post(ctx, Ponged{Session: session, SentAt: sentAt})
}

// stopMax is how long the end of an election may take. What is left in ZooKeeper
// goes with the session.
const stopMax = 2 * time.Second

// Run takes part in the election until ctx ends; then it lays leadership down, so
// that another need not wait for the session to expire.
func (e *Elector) Run(ctx context.Context) {
	effects, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		stop()
		e.efforts.Wait()
	}()
	done := ctx.Done()
	var giveUp <-chan time.Time
	ticker := time.NewTicker(tickOf(e.cfg.Conn.Session().Timeout))
	defer ticker.Stop()
	for e.election == nil || e.election.State() != Retired {
		session, changed := e.cfg.Conn.Watch()
		if e.meet(effects, session) {
			ticker.Reset(tickOf(session.Timeout))
		}
		if e.election == nil && giveUp != nil {
			return // it never had a session
		}
		select {
		case ev := <-e.events:
			e.step(effects, ev)
		case <-changed:
		case <-ticker.C:
			e.step(effects, ElectionTick{})
		case <-done:
			done, giveUp = nil, time.After(stopMax)
			e.step(effects, Resign{Final: true, Why: "the controller stops"})
		case <-giveUp:
			e.publish()
			return
		}
	}
}

// tickOf is how often deadlines are looked at.
func tickOf(timeout time.Duration) time.Duration {
	return max(timeout/20, 10*time.Millisecond)
}

func (e *Elector) post(ctx context.Context, ev ElectionEvent) {
	select {
	case e.events <- ev:
	case <-ctx.Done():
	}
}

// meet tells the election what has become of the session, by what it is now. It
// reports whether the timeout is another one.
func (e *Elector) meet(ctx context.Context, s Session) (newTimeout bool) {
	before := e.seen
	e.seen = s
	if before.ID != 0 && s.ID != before.ID {
		e.step(ctx, SessionExpired{before.ID})
	}
	switch {
	case s.ID != 0 && s.ID != before.ID:
		newTimeout = e.renew(s.Timeout)
		e.log.Info().Str("session", fmt.Sprintf("%#x", s.ID)).Dur("timeout", s.Timeout).Msg("ZooKeeper session opened")
		e.step(ctx, SessionOpened{s.ID})
	case s.ID != 0 && s.Connection != before.Connection:
		e.step(ctx, SessionBack{s.ID})
	}
	if s.ID != 0 && !s.Connected && (before.Connected || before.ID != s.ID) {
		e.step(ctx, SessionLost{s.ID})
	}
	return newTimeout
}

// renew makes an election for sessions of that timeout: the servers grant it, and may
// grant another one the next time. It comes between two sessions, when nothing is
// led.
func (e *Elector) renew(timeout time.Duration) bool {
	if e.election != nil && (e.timeout == timeout || e.election.State() != Connecting) {
		return false
	}
	e.timeout = timeout
	e.election = NewElection(ElectionConfig{Controller: e.cfg.Controller, BootID: uuid.New(), SessionTimeout: timeout})
	return true
}

func (e *Elector) step(ctx context.Context, ev ElectionEvent) {
	if e.election == nil {
		return
	}
	if read, ok := ev.(headRead); ok {
		e.tail, e.version, ev = read.tail, read.Version, read.HeadRead
	}
	before := e.election.State()
	actions := e.election.Step(e.cfg.Conn.Now(), ev)
	// Before what follows is done: a leadership that is over is denied from here on.
	e.publish()
	if state := e.election.State(); state != before {
		e.log.Debug().Str("state", state.String()).Msg("election")
	}
	for _, a := range actions {
		e.act(ctx, a)
	}
	if takesOver(before) && !takesOver(e.election.State()) {
		e.work(ctx, func(ctx context.Context) ElectionEvent {
			if ctx.Err() == nil { // the next work may have come first
				e.cfg.Role.Follow(ctx)
			}
			return ElectionTick{}
		})
	}
}

// takesOver tells the states in which the role has a term or is about to have one.
func takesOver(s ElectionState) bool {
	return s == CatchingUp || s == WritingLeader || s == Leading
}

// publish says for how long the leadership lasts.
func (e *Elector) publish() {
	if e.election == nil || e.election.State() != Leading {
		e.lead.Store(nil)
		return
	}
	e.lead.Store(&lead{epoch: e.election.Epoch(), until: e.election.Deadline()})
}

func (e *Elector) act(ctx context.Context, a ElectionAction) {
	c := e.cfg.Conn
	switch a := a.(type) {
	case CreateCandidate:
		e.effect(ctx, func() ElectionEvent {
			name, err := createCandidate(ctx, c, a.Prefix)
			return CandidateCreated{Try: a.Try, Name: name, Err: err}
		})
	case DeleteCandidate:
		e.effect(ctx, func() ElectionEvent {
			err := c.Delete(ctx, c.Path(electionDir, a.Name), -1)
			if errors.Is(err, ErrNoNode) {
				err = nil
			}
			return CandidateDeleted{Try: a.Try, Err: err}
		})
	case ListCandidates:
		e.effect(ctx, func() ElectionEvent {
			names, err := c.Children(ctx, c.Path(electionDir))
			if errors.Is(err, ErrNoNode) {
				names, err = nil, nil // who removed it has removed all candidates
			}
			return Candidates{Try: a.Try, Names: names, Err: err}
		})
	case WatchCandidate:
		e.watchCandidate(ctx, a)
	case ReadHead:
		e.effect(ctx, func() ElectionEvent { return e.readHead(ctx, a) })
	case CatchUp:
		tail, version := e.tail, e.version
		e.work(ctx, func(ctx context.Context) ElectionEvent {
			at, err := e.cfg.Role.CatchUp(ctx, tail, version)
			e.complain(err, "cannot bring the image to the head of the log")
			return CaughtUp{Try: a.Try, Offset: at.Offset, Epoch: at.Epoch, Err: err}
		})
	case WriteLeader:
		e.work(ctx, func(ctx context.Context) ElectionEvent {
			err := e.cfg.Role.WriteLeader(ctx, a.Epoch)
			e.complain(err, "the epoch could not be opened")
			return LeaderWritten{Try: a.Try, Outcome: OutcomeOf(err), Err: err}
		})
	case StartLeading:
		e.cfg.Role.StartLeading(a.Epoch)
	case StepDown:
		e.cfg.Role.StepDown(a.Epoch, a.Why)
	case Ping:
		e.effect(ctx, func() ElectionEvent { return e.ping(ctx, a.Session) })
	}
}

// complain logs an error of a take-over, which is tried again.
func (e *Elector) complain(err error, what string) {
	if err != nil && !errors.Is(err, context.Canceled) {
		e.log.Warn().Err(err).Msg(what + "; trying again")
	}
}

// effect runs do beside the election and hands its result in.
func (e *Elector) effect(ctx context.Context, do func() ElectionEvent) {
	e.efforts.Go(func() { e.post(ctx, do()) })
}

// work has the role do something, once what it did before has ended. It is left out if
// by then there is something newer to do.
func (e *Elector) work(ctx context.Context, do func(context.Context) ElectionEvent) {
	e.role()
	ctx, e.role = context.WithCancel(ctx)
	e.effect(ctx, func() ElectionEvent {
		e.working.Lock()
		defer e.working.Unlock()
		if ctx.Err() != nil {
			return ElectionTick{} // of this one nobody waits for the result any more
		}
		return do(ctx)
	})
}

func createCandidate(ctx context.Context, c *Conn, prefix string) (string, error) {
	name, err := c.CreateEphemeralSequential(ctx, c.Path(electionDir, prefix))
	if !errors.Is(err, ErrNoNode) {
		return name, err
	}
	// Somebody has removed the directory.
	if err := c.Create(ctx, c.Path(electionDir), nil); err != nil && !errors.Is(err, ErrNodeExists) {
		return "", err
	}
	return c.CreateEphemeralSequential(ctx, c.Path(electionDir, prefix))
}

// headRead is the event with what else the znode says, for whoever catches up with it.
type headRead struct {
	HeadRead
	tail TailHead
}

func (e *Elector) readHead(ctx context.Context, a ReadHead) ElectionEvent {
	r, version, err := readHead(ctx, e.cfg.Conn)
	if err != nil {
		e.complain(err, "cannot read the head of the log")
		return HeadRead{Try: a.Try, Err: err}
	}
	return headRead{HeadRead{Try: a.Try, Head: r.head(), Version: version}, TailHead{r}}
}

func (e *Elector) watchCandidate(ctx context.Context, a WatchCandidate) {
	e.watch()
	ctx, e.watch = context.WithCancel(ctx)
	e.effect(ctx, func() ElectionEvent {
		gone, err := e.cfg.Conn.Gone(ctx, e.cfg.Conn.Path(electionDir, a.Name))
		if err != nil && !errors.Is(err, ErrNoNode) {
			return CandidateGone{Try: a.Try, Name: a.Name, Err: err}
		}
		if err == nil {
			select {
			case <-gone:
			case <-ctx.Done():
			}
		}
		return CandidateGone{Try: a.Try, Name: a.Name}
	})
}

func (e *Elector) ping(ctx context.Context, session int64) ElectionEvent {
	c := e.cfg.Conn
	sentAt := c.Now()
	if _, _, err := c.Stat(ctx, c.Path(headName)); err != nil || c.Session().ID != session {
		return ElectionTick{}
	}
	return Ponged{Session: session, SentAt: sentAt}
}
