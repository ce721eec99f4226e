package peerdl

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/shoalstore/shoal/internal/vfs"
)

// event is what a goroutine of a transfer reports when it ends.
type event struct {
	kind eventKind
	Assignment
	err     error
	got     int64 // bytes that came from the source
	crowded bool  // it had no slot for some of it at first
}

type eventKind int

const (
	eventFetched eventKind = iota // a fetch ended, well or not
	eventSynced                   // an fsync ended
)

// writeFailure marks an error of our own disk, which no other source can mend.
type writeFailure struct{ err error }

func (e *writeFailure) Error() string { return e.err.Error() }
func (e *writeFailure) Unwrap() error { return e.err }

// run fetches what is missing. This goroutine owns the plan and the counters;
// fetches and the fsync run beside it, each reports one event, and all of them
// are waited for.
//
// The file is fsynced again and again, not only at the end: that starts the disk
// early and bounds what a power cut can cost (Config.Unsynced).
func (t *transfer) run(ctx context.Context) error {
	// Room for an event of everything that can run at once, so that nobody who
	// reports ever waits, also when run has returned: a piece is fetched from two
	// sources at most, and an fsync may run beside.
	t.events = make(chan event, 2*max(t.d.limits.Pieces, t.d.limits.PiecesMax)+1)
	t.inflight = make(map[Assignment]context.CancelFunc)
	t.dirty = true
	ctx, cancel := context.WithCancel(ctx)
	defer t.finish(cancel)

	wake := time.NewTimer(time.Hour)
	defer wake.Stop()
	for {
		next, err := t.dispatch(ctx)
		if err != nil {
			return err
		}
		if next.Kind == PlanComplete && !t.dirty && !t.inSync {
			return nil
		}
		var timer <-chan time.Time
		if next.Wait > 0 {
			wake.Reset(next.Wait)
			timer = wake.C
		}
		var buffers <-chan struct{}
		if next.Kind == PlanFetch {
			buffers = t.d.buffers.free // dispatch would go on if it had one
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case ev := <-t.events:
			if err := t.handle(ev); err != nil {
				return err
			}
		case <-buffers:
			t.spare = true
		case <-timer:
		}
	}
}

// dispatch starts whatever can start now. It returns the planner's last word,
// or PlanFetch if more could be fetched with one more buffer.
func (t *transfer) dispatch(ctx context.Context) (PlanStep, error) {
	defer t.startSync()
	for {
		if t.plan.Missing() == 0 {
			// The losers of an endgame have nothing left to win.
			for _, cancel := range t.inflight {
				cancel()
			}
			return PlanStep{Kind: PlanComplete}, nil
		}
		if len(t.inflight)+t.unsynced+t.syncing >= t.d.cfg.Unsynced {
			return PlanStep{Kind: PlanWait}, nil
		}
		if !t.takeBuffer() {
			return PlanStep{Kind: PlanFetch}, nil
		}
		next := t.plan.Next(time.Now())
		switch next.Kind {
		case PlanFetch:
			t.startFetch(ctx, next.Assignment, next.Requests)
		case PlanStuck:
			return next, &NoSourceError{Missing: t.plan.Missing(), Sources: t.plan.faults()}
		default:
			t.returnBuffer()
			return next, nil
		}
	}
}

func (t *transfer) takeBuffer() bool {
	if t.spare {
		return true
	}
	select {
	case <-t.d.buffers.free:
		t.spare = true
	default:
	}
	return t.spare
}

// returnBuffer gives an unused buffer to the other downloads.
func (t *transfer) returnBuffer() {
	if t.spare {
		t.d.buffers.free <- struct{}{}
		t.spare = false
	}
}

func (t *transfer) startFetch(ctx context.Context, a Assignment, requests int) {
	t.spare = false
	ctx, cancel := context.WithCancel(ctx)
	t.inflight[a] = cancel
	t.running.Go(func() {
		buf := t.d.buffers.take()
		got, crowded, err := t.fetchPiece(ctx, a, requests, buf)
		t.d.buffers.put(buf)
		t.events <- event{kind: eventFetched, Assignment: a, err: err, got: got, crowded: crowded}
	})
}

// startSync begins an fsync when half the window is waiting for it, so that the
// other half can be filled meanwhile, and when all pieces are there.
func (t *transfer) startSync() {
	complete := t.plan.Missing() == 0
	if t.inSync || !t.dirty || t.unsynced < max(1, t.d.cfg.Unsynced/2) && !complete {
		return
	}
	t.inSync, t.dirty = true, false
	t.syncing, t.unsynced = t.unsynced, 0
	t.running.Go(func() { t.events <- event{kind: eventSynced, err: t.file.Sync()} })
}

// finish ends everything that still runs and settles the accounts.
func (t *transfer) finish(cancel context.CancelFunc) {
	cancel()
	t.returnBuffer()
	t.running.Wait()
	close(t.events)
	for ev := range t.events {
		t.stats.WastedBytes += ev.got
	}
	for _, cancel := range t.inflight {
		cancel()
	}
}

func (t *transfer) handle(ev event) error {
	if ev.kind == eventSynced {
		t.inSync, t.syncing = false, 0
		if ev.err != nil {
			return &vfs.SyncError{Name: t.req.Part, Err: ev.err}
		}
		return nil
	}
	t.inflight[ev.Assignment]()
	delete(t.inflight, ev.Assignment)
	now := time.Now()
	if ev.crowded {
		t.plan.Crowded(ev.Source)
	}
	switch {
	case ev.err == nil && t.plan.Done(ev.Assignment, now):
		t.arrived(ev)
		return nil
	case ev.err == nil || t.plan.pieces[ev.Piece].held:
		t.plan.Cancelled(ev.Assignment)
	case errors.As(ev.err, new(*writeFailure)):
		return t.writeError(ev.err)
	default:
		t.blame(ev, now)
	}
	t.stats.WastedBytes += ev.got
	return nil
}

func (t *transfer) arrived(ev event) {
	_, n := t.pieces.Range(ev.Piece)
	t.held += n
	t.unsynced++
	t.dirty = true
	t.stats.FetchedBytes += n
	t.stats.WastedBytes += ev.got - n
	t.stats.BySource[ev.Source] += n
	t.d.cfg.Metrics.fetchedBytes.Add(float64(n))
	for a, cancel := range t.inflight {
		if a.Piece == ev.Piece {
			cancel()
		}
	}
	t.tell()
}

func (t *transfer) blame(ev event, now time.Time) {
	wasDropped := t.plan.sources[ev.Source].dropped
	t.plan.Failed(ev.Assignment, ev.err, now)
	kind := faultKind(ev.err)
	t.d.cfg.Metrics.faults.WithLabelValues(kind).Inc()
	log := t.log.Debug()
	if kind == "lie" {
		log = t.log.Warn()
	}
	src := &t.plan.sources[ev.Source]
	log = log.Err(ev.err).Str("source", t.sources[ev.Source].name()).Int("piece", ev.Piece)
	if src.dropped && !wasDropped {
		log.Msg("source dropped for this download; the piece is fetched elsewhere")
	} else {
		log.Dur("rest", max(src.notBefore.Sub(now), 0)).Msg("source rests; the piece is fetched elsewhere or later")
	}
}

// writeSize is how much is written at once. For a write of a whole piece Linux
// looks for runs of free pages of megabytes, which costs several times the
// processor time of the copy where memory is full of cached files
// (docs/benchmarks.md).
const writeSize = 256 << 10

func (t *transfer) writePiece(b []byte, off int64) error {
	for step := range slices.Chunk(b, writeSize) {
		if _, err := t.file.WriteAt(step, off); err != nil {
			return err
		}
		off += int64(len(step))
	}
	return nil
}

// newPlanner plans n pieces over the sources of the transfer.
func (t *transfer) newPlanner(n int, held []bool) *Planner {
	return NewPlanner(PlannerConfig{
		Limits: t.d.limits, Pieces: n, Held: held, Sources: planSources(t.sources, t.req.Zone), Rand: t.rnd,
	})
}

func planSources(sources []Source, zone string) []PlanSource {
	out := make([]PlanSource, len(sources))
	for i, s := range sources {
		out[i] = PlanSource{Rank: s.Rank, SameZone: zone != "" && s.Zone == zone, Name: s.name()}
	}
	return out
}

func faultKind(err error) string {
	switch {
	case errors.As(err, new(*BusyError)):
		return "busy"
	case errors.As(err, new(*DeceptionError)):
		return "lie"
	case errors.Is(err, ErrStalled):
		return "stall"
	}
	return "failure"
}
