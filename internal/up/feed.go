package up

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/shoalstore/shoal/internal/produce"
	"github.com/shoalstore/shoal/internal/telemetry"
	"github.com/shoalstore/shoal/internal/vfs"
)

// telemetryEvery is how often this machine is looked at.
const telemetryEvery = time.Second

// openInput looks at what is to be read, before anything is started for it.
func (r *run) openInput() (err error) {
	if r.cfg.Input == "" {
		return nil
	}
	if r.input, err = produce.OpenInput(r.cfg.Input, r.cfg.Stdin); err != nil {
		return err
	}
	for _, name := range r.input.Ignored {
		r.screen.Line("left out: %s in %s is not called like NDJSON", name, r.input)
	}
	return nil
}

func (r *run) closeInput() {
	if r.input != nil {
		if err := r.input.Close(); err != nil {
			r.log.Warn().Err(err).Msg("close of the input")
		}
	}
}

// openProducer makes the stream's directory ready: torn lines are cut.
func (r *run) openProducer() error {
	root, err := vfs.OS(r.cluster.dir(streamDir))
	if err != nil {
		return fmt.Errorf("stream directory: %w", err)
	}
	key := r.cfg.Key
	if r.input == nil {
		key = telemetry.KeyField
	}
	r.producer, err = produce.Open(root, produce.Config{Path: r.tableCfg.Stream.Path, Partitions: r.cfg.Partitions, Key: key})
	if err != nil {
		return r.cluster.explain(err)
	}
	return nil
}

// feed is the producer at work.
type feed struct {
	progress atomic.Pointer[produce.Progress]
	ended    chan struct{}
	err      error // set before ended is closed
}

// startFeed begins to produce; the feed ends with its input, or with ctx.
func (r *run) startFeed(ctx context.Context) *feed {
	f := &feed{ended: make(chan struct{})}
	f.progress.Store(&produce.Progress{})
	go func() {
		defer close(f.ended)
		f.err = r.produce(ctx, f)
	}()
	return f
}

func (r *run) produce(ctx context.Context, f *feed) error {
	if r.input != nil {
		_, err := r.producer.Run(ctx, r.input, produce.Options{
			Append:   r.cfg.Append,
			Progress: func(p produce.Progress) { f.progress.Store(&p) },
		})
		var other *produce.OtherInputError
		if errors.As(err, &other) && !r.cfg.Append {
			return &OtherInputError{Cause: other}
		}
		return err
	}
	emit, err := r.producer.Emitter(TelemetryTable)
	if err != nil {
		return err
	}
	return telemetry.Run(ctx, telemetryEvery, emit)
}

// OtherInputError says that the table was filled from another input.
type OtherInputError struct{ Cause *produce.OtherInputError }

func (e *OtherInputError) Error() string {
	return e.Cause.Error() + "; --append makes its rows follow, --table or --data begins another table"
}

func (e *OtherInputError) Unwrap() error { return e.Cause }
