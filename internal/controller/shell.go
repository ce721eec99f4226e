package controller

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/validation"
)

// tickEvery is how often the machine looks at its deadlines.
const tickEvery = 500 * time.Millisecond

// shell owns the Machine: one goroutine hands it events and carries out its
// actions. It decides nothing. Effects that take time run beside it and come
// back as events; how many looks outside run at once the machine bounds, and
// writes wait for the one writer.
type shell struct {
	log     zerolog.Logger
	machine *Machine
	effects effects
	start   time.Time // its monotonic reading is the machine's zero

	events  chan Event
	news    *news
	tickets atomic.Uint64
	effort  sync.WaitGroup // effects under way

	mu      sync.Mutex
	waiting map[Ticket]chan Action
	closed  bool
}

// effects are the outside things that the machine's actions touch.
type effects interface {
	// submit has a function of the image written by the one writer.
	submit(ctx context.Context, fn meta.Func) (metalog.Result, error)
	listPartitions(ctx context.Context, a ListPartitions) Listed
	checkDeepStore(ctx context.Context, a CheckDeepStore) Checked
	deleteDeepStore(ctx context.Context, a DeleteDeepStore) Deleted
	askUpload(ctx context.Context, a AskUpload) UploadAnswered
	listDeepStore(ctx context.Context, a ListDeepStore) ObjectsListed
	// expired and retentionBlocked show what retention does, and do not wait.
	expired(a Expired)
	retentionBlocked(a RetentionBlocked)
}

// errStopping refuses a request because the shell stops.
var errStopping = errors.New("controller: stopping")

func newShell(log zerolog.Logger, e effects) *shell {
	return &shell{
		log: log, machine: NewMachine(), effects: e, start: time.Now(),
		events: make(chan Event, 256), news: newNews(), waiting: map[Ticket]chan Action{},
	}
}

// run is the goroutine that owns the machine. It ends with ctx, after the
// effects have ended too; whoever waits for an answer is told.
func (s *shell) run(ctx context.Context) {
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	defer s.close()
	for {
		select {
		case <-ctx.Done():
			return
		case ev := <-s.events:
			s.learn(ctx) // whoever sent it may have seen what was committed before
			s.step(ctx, ev)
		case <-s.news.signal:
			s.learn(ctx)
		case <-ticker.C:
			s.step(ctx, Tick{})
		}
	}
}

// learn hands in what the writer has committed since.
func (s *shell) learn(ctx context.Context) {
	if im, touched := s.news.take(); im != nil {
		s.step(ctx, Committed{Image: im, Touched: touched})
	}
}

func (s *shell) step(ctx context.Context, ev Event) {
	now := Now{Mono: time.Since(s.start), Wall: time.Now().UnixMilli()}
	for _, a := range s.machine.Step(now, ev) {
		switch a := a.(type) {
		case ReplyTo:
			s.answer(a.Ticket, a)
		case AnswerHeartbeat:
			s.answer(a.Ticket, a)
		case AnswerLocations:
			s.answer(a.Ticket, a)
		case Seen:
			s.answer(a.Ticket, a)
		case ValidationSeen:
			s.answer(a.Ticket, a)
		case Write:
			s.effect(ctx, func() Event { return s.write(ctx, a) })
		case ListPartitions:
			s.effect(ctx, func() Event { return s.effects.listPartitions(ctx, a) })
		case CheckDeepStore:
			s.effect(ctx, func() Event { return s.effects.checkDeepStore(ctx, a) })
		case DeleteDeepStore:
			s.effect(ctx, func() Event { return s.effects.deleteDeepStore(ctx, a) })
		case Survey:
			s.effect(ctx, func() Event { return Surveyed{ID: a.ID, Findings: validation.Survey(a.Image, a.Request)} })
		case AskUpload:
			s.effect(ctx, func() Event { return s.effects.askUpload(ctx, a) })
		case ListDeepStore:
			s.effect(ctx, func() Event { return s.effects.listDeepStore(ctx, a) })
		case Expired:
			s.effects.expired(a)
		case RetentionBlocked:
			s.effects.retentionBlocked(a)
		}
	}
}

// effect runs do beside the machine and hands its result in.
func (s *shell) effect(ctx context.Context, do func() Event) {
	s.effort.Go(func() { s.post(ctx, do()) })
}

// post hands an event in.
func (s *shell) post(ctx context.Context, ev Event) {
	select {
	case s.events <- ev:
	case <-ctx.Done():
	}
}

// write submits a function of the image.
func (s *shell) write(ctx context.Context, a Write) Event {
	res, err := s.effects.submit(ctx, a.Func)
	ev := Wrote{ID: a.ID, Outcome: commit.Written, Err: err, Image: res.Image}
	var refused *meta.Refusal
	switch {
	case err == nil:
		if a.What != "" {
			s.log.Info().Int64("offset", res.Offset).Msg(a.What)
		}
	case errors.As(err, &refused):
		ev.Outcome = commit.WriteRefused
		s.log.Info().Err(err).Str("what", a.What).Msg("change refused")
	default:
		ev.Outcome = commit.WriteFailed
		s.log.Warn().Err(err).Str("what", a.What).Msg("change has no known outcome; whoever asked asks again")
	}
	return ev
}

// ask hands in the event that make returns for a fresh ticket, and waits for
// the answer to that ticket.
func (s *shell) ask(ctx context.Context, make func(Ticket) Event) (Action, error) {
	t := Ticket(s.tickets.Add(1))
	ch, err := s.register(t)
	if err != nil {
		return nil, err
	}
	defer s.forget(t)
	select {
	case s.events <- make(t):
	case <-ch: // closed: nobody takes events any more
		return nil, errStopping
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case a, ok := <-ch:
		if !ok {
			return nil, errStopping
		}
		return a, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (s *shell) register(t Ticket) (<-chan Action, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errStopping
	}
	ch := make(chan Action, 1)
	s.waiting[t] = ch
	return ch, nil
}

func (s *shell) forget(t Ticket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, t)
}

func (s *shell) answer(t Ticket, a Action) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ch := s.waiting[t]; ch != nil {
		ch <- a // capacity 1, and one answer to a ticket
		delete(s.waiting, t)
	}
}

// close ends everybody's waiting.
func (s *shell) close() {
	s.mu.Lock()
	s.closed = true
	for t, ch := range s.waiting {
		close(ch)
		delete(s.waiting, t)
	}
	s.mu.Unlock()
	s.effort.Wait()
}

// message answers a message of the completion protocol. No answer in time is
// as good as HOLD, which is what silence means to a replica.
func (s *shell) message(ctx context.Context, m commit.Message) commit.Reply {
	a, err := s.ask(ctx, func(t Ticket) Event { return Message{Ticket: t, Message: m} })
	if err != nil {
		return commit.Reply{Status: commit.Hold}
	}
	return a.(ReplyTo).Reply
}

func (s *shell) heartbeat(ctx context.Context, hb api.Heartbeat) (AnswerHeartbeat, error) {
	a, err := s.ask(ctx, func(t Ticket) Event { return Heartbeat{Ticket: t, Heartbeat: hb} })
	if err != nil {
		return AnswerHeartbeat{}, err
	}
	return a.(AnswerHeartbeat), nil
}

func (s *shell) located(ctx context.Context, r meta.LocationReport) (AnswerLocations, error) {
	a, err := s.ask(ctx, func(t Ticket) Event { return Located{Ticket: t, Report: r} })
	if err != nil {
		return AnswerLocations{}, err
	}
	return a.(AnswerLocations), nil
}

func (s *shell) look(ctx context.Context) (map[string]NodeSeen, error) {
	a, err := s.ask(ctx, func(t Ticket) Event { return Look{Ticket: t} })
	if err != nil {
		return nil, err
	}
	return a.(Seen).Nodes, nil
}

// validation hands in the event of a request about what validation has found.
func (s *shell) validation(ctx context.Context, make func(Ticket) Event) (ValidationSeen, error) {
	a, err := s.ask(ctx, make)
	if err != nil {
		return ValidationSeen{}, err
	}
	return a.(ValidationSeen), nil
}

// news is what the writer has committed and the machine has not seen: the
// newest image and the keys that changed on the way to it. It never makes the
// writer wait, and it is bounded: past newsMax keys it says "anything".
type news struct {
	signal chan struct{}

	mu      sync.Mutex
	image   *meta.Image
	touched map[meta.Key]struct{}
	all     bool
}

const newsMax = 1 << 16

func newNews() *news {
	return &news{signal: make(chan struct{}, 1), touched: map[meta.Key]struct{}{}}
}

// committed takes a batch; it is the writer's callback.
func (n *news) committed(im *meta.Image, b *meta.Batch) {
	n.mu.Lock()
	n.image = im
	for k := range b.Keys() {
		n.touched[k] = struct{}{}
	}
	if len(n.touched) > newsMax {
		n.all = true
		clear(n.touched)
	}
	n.mu.Unlock()
	select {
	case n.signal <- struct{}{}:
	default:
	}
}

// take returns the newest image and the sorted keys, nil keys for anything; a
// nil image when there is nothing new.
func (n *news) take() (*meta.Image, []meta.Key) {
	n.mu.Lock()
	defer n.mu.Unlock()
	im := n.image
	touched := sortedKeys(n.touched)
	if n.all {
		touched = nil
	}
	n.image, n.all, n.touched = nil, false, map[meta.Key]struct{}{}
	return im, touched
}

// sortedKeys returns the keys of a set in their order; never nil.
func sortedKeys(set map[meta.Key]struct{}) []meta.Key {
	keys := make([]meta.Key, 0, len(set))
	for k := range set {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, meta.Key.Compare)
	return keys
}
