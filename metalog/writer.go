package metalog

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/meta"
)

const (
	// groupBytesMax is how large a batch may be when it is encoded. It leaves room
	// below MaxFramePayload, and below what the other device can write at once.
	groupBytesMax = 512 << 10
	// groupsMax is how many batches may wait for the one in flight. When there are
	// that many, Submit waits.
	groupsMax = 4
	// takeMax is how many submissions are evaluated before the append in flight is
	// looked at again: refusals fill no batch, so a storm of them has no other end.
	takeMax = 256
)

// WriterConfig is what a Writer needs. Metrics may be nil.
type WriterConfig struct {
	Device Device
	Image  *meta.Image // what Device holds, exactly up to its end
	// Leader is whose epoch this is; its record is the first batch. Epoch and Term
	// are new, claimed by ClaimEpoch or won by a take-over.
	Leader meta.Leader
	// Cluster is the id that is written, before anything else, into an empty log.
	Cluster uuid.UUID
	Clock   func() int64 // milliseconds since the Unix epoch
	// Committed, if set, is told of each batch once it is committed, in order and
	// before those who waited for it are answered. It must not block.
	Committed func(im *meta.Image, b *meta.Batch)
	Logger    zerolog.Logger
	Metrics   *Metrics
}

// Writer is the one writer of the metadata: everything that changes it, on the
// acting leader, is a function of the image that goes through Submit. It groups what
// it accepts while an append is in flight into the next batch: one fsync for all of
// them, and never two appends at a time.
type Writer struct {
	cfg     WriterConfig
	log     zerolog.Logger
	metrics *Metrics

	submissions chan *submission
	done        chan struct{} // closed when Run returns
	err         error         // why it did, set before done is closed
	ready       chan struct{} // closed when this epoch's first batch is committed

	mu      sync.Mutex
	image   *meta.Image   // committed
	changed chan struct{} // closed and replaced when image changes

	groups []*group // accepted and not yet committed, oldest first; only Run's goroutine
}

// submission is one call of Submit on its way.
type submission struct {
	fn     meta.Func
	answer chan answer // of capacity 1
}

type answer struct {
	result Result
	err    error
}

// Result says where a change is: in the batch at Offset. Image is the committed
// image right after that batch.
type Result struct {
	Offset int64
	Image  *meta.Image
}

// NewWriter returns a writer that has written nothing yet; Run does.
func NewWriter(cfg WriterConfig) *Writer {
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics(nil)
	}
	return &Writer{
		cfg: cfg, metrics: cfg.Metrics, image: cfg.Image,
		log:         cfg.Logger.With().Str("component", "writer").Int64("epoch", cfg.Leader.Epoch).Logger(),
		submissions: make(chan *submission),
		done:        make(chan struct{}),
		ready:       make(chan struct{}),
		changed:     make(chan struct{}),
	}
}

// Submit has fn evaluated on the image as it will be once everything accepted before
// is committed, and waits until fn's change is committed too. fn must be pure: it
// may be evaluated more than once.
//
// The error is fn's own (a *meta.Refusal, as a rule) or that of a change which breaks
// an invariant, when nothing was accepted; ErrStopped or ErrPoisoned when the writer
// takes no more; ErrUnknown when the change was accepted, or may have been, and
// whether it is in the log is not known; ctx's when it ended before that.
//
// A fn that changes nothing is answered once everything it saw is committed.
func (w *Writer) Submit(ctx context.Context, fn meta.Func) (Result, error) {
	s := &submission{fn: fn, answer: make(chan answer, 1)}
	select {
	case w.submissions <- s:
	case <-w.done:
		return Result{}, w.refusal()
	case <-ctx.Done():
		return Result{}, fmt.Errorf("metalog: submit: %w", context.Cause(ctx))
	}
	select {
	case a := <-s.answer:
		return a.result, a.err
	case <-ctx.Done():
		return Result{}, fmt.Errorf("%w: %w", ErrUnknown, context.Cause(ctx))
	}
}

// refusal is what a Submit gets after Run has returned.
func (w *Writer) refusal() error {
	if w.err != nil {
		return fmt.Errorf("%w: %w", ErrPoisoned, w.err)
	}
	return ErrStopped
}

// Image is the committed image.
func (w *Writer) Image() *meta.Image {
	im, _ := w.Watch()
	return im
}

// Watch returns the committed image and a channel that is closed when there is a
// newer one. Waiting on it costs nothing that must be given back.
func (w *Writer) Watch() (im *meta.Image, changed <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.image, w.changed
}

// Ready is closed once the first batch of this leader's epoch is committed: only
// then has it proved that it leads.
func (w *Writer) Ready() <-chan struct{} { return w.ready }

// Done is closed when Run has returned.
func (w *Writer) Done() <-chan struct{} { return w.done }

// Run writes until ctx ends; then it takes no more, appends what it has accepted,
// and returns nil. An append that fails poisons the writer: everything accepted
// ends as ErrUnknown, Run returns the failure, and leadership must be laid down.
func (w *Writer) Run(ctx context.Context) (err error) {
	defer func() {
		w.err = err
		close(w.done)
	}()
	if err := w.openEpoch(); err != nil {
		return err
	}
	var (
		appended = make(chan error, 1)
		busy     bool // an append is in flight: of groups[0]
		stop     = ctx.Done()
		in       = w.submissions
	)
	for {
		if !busy && len(w.groups) > 0 {
			if err := w.groups[0].seal(); err != nil {
				return w.poison(err)
			}
			busy = true
			go func(b *meta.Batch) {
				// Shutting down does not make an append's outcome unknown.
				appended <- w.cfg.Device.Append(context.WithoutCancel(ctx), b)
			}(w.groups[0].batch)
		}
		if stop == nil && len(w.groups) == 0 {
			return nil
		}
		accepting := in
		if len(w.groups) > groupsMax {
			accepting = nil
		}
		select {
		case s := <-accepting:
			if err := w.take(s); err != nil {
				if busy {
					<-appended
				}
				return w.poison(err)
			}
		case err := <-appended:
			busy = false
			if err != nil {
				return w.poison(fmt.Errorf("append batch %d: %w", w.groups[0].batch.Offset, err))
			}
			w.commit()
		case <-stop:
			stop, in = nil, nil
		}
	}
}

// openEpoch accepts the records that every epoch, and every log, begins with.
func (w *Writer) openEpoch() error {
	g := w.newGroup()
	if w.image.Next() == 0 {
		if err := g.add(w.change(meta.NewCluster(w.cfg.Cluster))); err != nil {
			return fmt.Errorf("metalog: new cluster: %w", err)
		}
	}
	if err := g.add(w.change(meta.NewLeader(w.cfg.Leader))); err != nil {
		return fmt.Errorf("metalog: open epoch %d: %w", w.cfg.Leader.Epoch, err)
	}
	return nil
}

// change makes a submission that nobody waits for.
func (w *Writer) change(fn meta.Func) *submission {
	return &submission{fn: fn, answer: make(chan answer, 1)}
}

// take evaluates a submission and those that are waiting behind it, while they fit
// into the groups there may be. Only a broken invariant of the writer is an error.
func (w *Writer) take(s *submission) error {
	for n := 1; ; n++ {
		if err := w.evaluate(s); err != nil {
			return err
		}
		if len(w.groups) > groupsMax || n == takeMax {
			return nil
		}
		select {
		case s = <-w.submissions:
		default:
			return nil
		}
	}
}

// evaluate puts s into the open group, or into a new one when that is in flight or
// has no room, or answers it.
func (w *Writer) evaluate(s *submission) error {
	g := w.openGroup()
	if g == nil {
		g = w.newGroup()
	}
	err := g.add(s)
	if errors.Is(err, errNoRoom) {
		if err := g.seal(); err != nil {
			s.answer <- answer{err: fmt.Errorf("%w: %w", ErrUnknown, err)}
			return err
		}
		g = w.newGroup()
		err = g.add(s)
	}
	if len(g.waiting) == 0 {
		w.groups = w.groups[:len(w.groups)-1] // nothing came of it
	}
	switch {
	case errors.Is(err, errNoChange):
		w.awaitCommitted(s)
	case err != nil:
		w.metrics.refusals.Inc()
		s.answer <- answer{err: err}
	}
	return nil
}

// awaitCommitted answers a submission that changes nothing: with the newest group
// that it saw, or at once.
func (w *Writer) awaitCommitted(s *submission) {
	if n := len(w.groups); n > 0 {
		w.groups[n-1].waiting = append(w.groups[n-1].waiting, s)
		return
	}
	s.answer <- answer{result: Result{Offset: w.image.Next() - 1, Image: w.image}}
}

// openGroup is the newest group if it can still be added to.
func (w *Writer) openGroup() *group {
	if n := len(w.groups); n > 0 && !w.groups[n-1].sealed {
		return w.groups[n-1]
	}
	return nil
}

// newGroup opens a group after the newest one.
func (w *Writer) newGroup() *group {
	base := w.image // only Run's goroutine changes it
	if n := len(w.groups); n > 0 {
		base = w.groups[n-1].image
	}
	g := &group{
		base: base, image: base,
		batch: &meta.Batch{
			Offset: base.Next(), Epoch: w.cfg.Leader.Epoch, Term: w.cfg.Leader.Term,
			Time: meta.NextTime(base.LastTime(), w.cfg.Clock()),
		},
	}
	w.groups = append(w.groups, g)
	return g
}

// commit publishes the image of the group whose append has come back, and then
// answers those who waited for it.
func (w *Writer) commit() {
	g := w.groups[0]
	w.groups = w.groups[1:]
	w.mu.Lock()
	w.image = g.image
	close(w.changed)
	w.changed = make(chan struct{})
	w.mu.Unlock()
	if g.base.Epoch() != w.cfg.Leader.Epoch {
		close(w.ready)
		w.log.Info().Int64("offset", g.batch.Offset).Msg("epoch opened")
	}
	if w.cfg.Committed != nil {
		w.cfg.Committed(g.image, g.batch)
	}
	w.metrics.groupChanges.Observe(float64(len(g.waiting)))
	for _, s := range g.waiting {
		s.answer <- answer{result: Result{Offset: g.batch.Offset, Image: g.image}}
	}
}

// poison ends everything accepted: nobody can say which of it will be found in the
// log. Nothing is tried again here; the next leader reads what is there.
func (w *Writer) poison(cause error) error {
	for _, g := range w.groups {
		for _, s := range g.waiting {
			s.answer <- answer{err: fmt.Errorf("%w: %w", ErrUnknown, cause)}
		}
	}
	w.groups = nil
	return cause
}
