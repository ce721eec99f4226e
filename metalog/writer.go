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

// takeMax is how many submissions are evaluated before the append in flight is looked
// at again: refusals fill no batch, so a storm of them has no other end.
const takeMax = 256

// WriterConfig is what a Writer needs. Metrics may be nil.
type WriterConfig struct {
	Device Device
	Image  *meta.Image // what Device holds, exactly up to its end
	// Leader is whose epoch this is; its record is the first batch. Epoch and Term
	// are new, claimed by ClaimEpoch or won by a take-over.
	Leader meta.Leader
	// Cluster is the id that is written, before anything else, into an empty log.
	Cluster uuid.UUID
	// BatchSize measures a batch as Device does, and BatchBytesMax is how large one may
	// be by that. The defaults are the encoded batch, and 512 KiB.
	BatchSize     func(*meta.Batch) (int, error)
	BatchBytesMax int
	Clock         func() int64 // milliseconds since the Unix epoch
	// Committed, if set, is told of each batch once it is committed, in order and
	// before those who waited for it are answered. It must not block.
	Committed func(im *meta.Image, b *meta.Batch)
	Logger    zerolog.Logger
	Metrics   *Metrics
}

// Writer is the one writer of the metadata: everything that changes it, on the
// acting leader, is a function of the image that goes through Submit. It groups what
// it accepts while an append is in flight into the next batch: one fsync for all of
// them, and never two appends at a time. The decisions are in writer_machine.go; this
// is the goroutine that acts on them.
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

	// Only Run's goroutine:
	machine  *WriterMachine
	waiting  map[uint64]*submission // by the id that the machine knows them by
	last     uint64                 // id given
	appended chan error             // what came of the append in flight
	stopped  bool
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
		machine: NewWriterMachine(WriterMachineConfig{
			Image: cfg.Image, Leader: cfg.Leader, Cluster: cfg.Cluster,
			BatchSize: cfg.BatchSize, BatchBytesMax: cfg.BatchBytesMax,
		}),
		waiting:  make(map[uint64]*submission),
		appended: make(chan error, 1),
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
		return Result{}, refusal(w.err)
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
func (w *Writer) Run(ctx context.Context) error {
	defer close(w.done)
	stop := ctx.Done()
	w.step(ctx, OpenEpoch{})
	for !w.stopped {
		in := w.submissions
		if w.machine.Full() {
			in = nil
		}
		select {
		case s := <-in:
			w.take(ctx, s)
		case err := <-w.appended:
			w.step(ctx, Appended{err})
		case <-stop:
			stop = nil
			w.step(ctx, Stopping{})
		}
	}
	return w.err
}

// take hands over a submission and those that are waiting behind it, while there is
// room, before the next append begins: they share it.
func (w *Writer) take(ctx context.Context, s *submission) {
	for n := 1; s != nil; n++ {
		w.last++
		w.waiting[w.last] = s
		w.step(ctx, Submitted{ID: w.last, Func: s.fn, More: true})
		s = nil
		if n < takeMax && !w.machine.Full() {
			select {
			case s = <-w.submissions:
			default:
			}
		}
	}
	w.step(ctx, Flush{})
}

// step steps the machine and does what it says.
func (w *Writer) step(ctx context.Context, ev WriterEvent) {
	for _, a := range w.machine.Step(w.cfg.Clock(), ev) {
		switch a := a.(type) {
		case AppendBatch:
			go func() {
				// Shutting down does not make an append's outcome unknown.
				w.appended <- w.cfg.Device.Append(context.WithoutCancel(ctx), a.Batch)
			}()
		case BatchCommitted:
			w.committed(a)
		case Answered:
			w.answer(a)
		case WriterStopped:
			w.err, w.stopped = a.Err, true
		}
	}
}

// committed publishes the image of a batch.
func (w *Writer) committed(c BatchCommitted) {
	w.mu.Lock()
	w.image = c.Image
	close(w.changed)
	w.changed = make(chan struct{})
	w.mu.Unlock()
	if c.First {
		close(w.ready)
		w.log.Info().Int64("offset", c.Batch.Offset).Msg("epoch opened")
	}
	if w.cfg.Committed != nil {
		w.cfg.Committed(c.Image, c.Batch)
	}
	w.metrics.groupChanges.Observe(float64(c.Changes))
}

func (w *Writer) answer(a Answered) {
	if a.Err != nil && !errors.Is(a.Err, ErrUnknown) {
		w.metrics.refusals.Inc()
	}
	w.waiting[a.ID].answer <- answer{result: a.Result, err: a.Err}
	delete(w.waiting, a.ID)
}
