package peerdl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/segment"
)

// event is what a goroutine of a transfer reports when it ends.
type event struct {
	kind eventKind
	Assignment
	err error
	got int64 // bytes that came from the source
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
	// reports ever waits, also when run has returned.
	t.events = make(chan event, t.d.cfg.Workers+1)
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
		var buffers <-chan []byte
		if next.Kind == PlanFetch {
			buffers = t.d.buffers // dispatch would go on if it had one
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case ev := <-t.events:
			if err := t.handle(ev); err != nil {
				return err
			}
		case t.spare = <-buffers:
			t.hasSpare = true
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
		if len(t.inflight) >= t.d.cfg.Workers || len(t.inflight)+t.unsynced+t.syncing >= t.d.cfg.Unsynced {
			return PlanStep{Kind: PlanWait}, nil
		}
		if !t.takeBuffer() {
			return PlanStep{Kind: PlanFetch}, nil
		}
		next := t.plan.Next(time.Now())
		switch next.Kind {
		case PlanFetch:
			t.startFetch(ctx, next.Assignment)
		case PlanStuck:
			return next, &NoSourceError{Missing: t.plan.Missing(), Sources: t.plan.faults()}
		default:
			t.returnBuffer()
			return next, nil
		}
	}
}

func (t *transfer) takeBuffer() bool {
	if t.hasSpare {
		return true
	}
	select {
	case t.spare = <-t.d.buffers:
		t.hasSpare = true
	default:
	}
	return t.hasSpare
}

// returnBuffer gives an unused buffer to the other downloads.
func (t *transfer) returnBuffer() {
	if t.hasSpare {
		t.d.buffers <- t.spare
		t.spare, t.hasSpare = nil, false
	}
}

func (t *transfer) startFetch(ctx context.Context, a Assignment) {
	buf := t.spare
	t.spare, t.hasSpare = nil, false
	if buf == nil {
		buf = make([]byte, segment.PieceSize)
	}
	ctx, cancel := context.WithCancel(ctx)
	t.inflight[a] = cancel
	t.running.Go(func() {
		got, err := t.fetchPiece(ctx, a, buf)
		t.d.buffers <- buf
		t.events <- event{kind: eventFetched, Assignment: a, err: err, got: got}
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

// fetchPiece fetches one piece into buf, verifies it as it arrives, and only
// then writes it. It returns how many bytes came, also on an error.
//
// A transfer that breaks off is continued at the byte where it broke, as long
// as each try brings something: over a link that is cut again and again a piece
// still gets through. Only the same source may continue it, so that there is
// one to blame for the whole.
func (t *transfer) fetchPiece(ctx context.Context, a Assignment, buf []byte) (got int64, err error) {
	off, n := t.pieces.Range(a.Piece)
	verifier := t.pieces.Verifier(a.Piece)
	for got < n {
		k, err := t.d.fetchRange(ctx, t.sources[a.Source].Fetcher, off+got, buf[got:n], verifier)
		got += k
		if err == nil {
			break
		}
		if ctx.Err() != nil || errors.As(err, new(*DeceptionError)) || k < max(1, min(n/16, 64<<10)) {
			return got, err
		}
	}
	if err := verifier.Verify(); err != nil {
		return got, &DeceptionError{What: "sent damaged bytes", Cause: err}
	}
	if err := t.writePiece(buf[:n], off); err != nil {
		return got, &writeFailure{err}
	}
	return got, nil
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

// readSize is how much is read and hashed at once: small enough to be hashed
// while it is in the cache, large enough to cost few system calls.
const readSize = 256 << 10

// fetchRange fills buf with the bytes at off and passes them to w. The reader
// has to end where it was asked to.
func (d *Downloader) fetchRange(ctx context.Context, f Fetcher, off int64, buf []byte, w io.Writer) (got int64, err error) {
	ctx, idle := newIdleTimer(ctx, d.cfg.IdleTimeout)
	defer idle.stop()
	r, err := f.Fetch(ctx, off, int64(len(buf)))
	if err != nil {
		return 0, idle.explain(err)
	}
	defer r.Close()
	for int(got) < len(buf) {
		k, err := r.Read(buf[got:min(len(buf), int(got)+readSize)])
		if k > 0 {
			idle.progress()
			w.Write(buf[got : int(got)+k]) // a Verifier, which never fails
			got += int64(k)
		}
		if err == io.EOF && int(got) < len(buf) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil && int(got) < len(buf) {
			return got, idle.explain(fmt.Errorf("broke off after %d of %d bytes: %w", got, len(buf), err))
		}
	}
	// This also lets net/http see the end of the body and keep the connection.
	var more [1]byte
	if k, _ := io.ReadFull(r, more[:]); k > 0 {
		return got, &DeceptionError{What: fmt.Sprintf("sent more than the %d bytes asked for", len(buf))}
	}
	return got, nil
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

// fetchPieces gets the piece list from some source and proves it against the
// digest. To the planner it is a resource of one piece.
func (t *transfer) fetchPieces(ctx context.Context) (*segment.Pieces, error) {
	p := t.newPlanner(1, nil)
	wake := time.NewTimer(time.Hour)
	defer wake.Stop()
	for {
		next := p.Next(time.Now())
		switch next.Kind {
		case PlanFetch:
			pieces, err := t.d.fetchList(ctx, t.sources[next.Source].Fetcher, t.req.Digest, t.req.Size)
			if err == nil {
				return pieces, nil
			}
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			p.Failed(next.Assignment, err, time.Now())
			t.d.cfg.Metrics.faults.WithLabelValues(faultKind(err)).Inc()
			t.log.Warn().Err(err).Str("source", t.sources[next.Source].name()).Msg("no good piece list; asking another source")
		case PlanWait:
			wake.Reset(next.Wait)
			select {
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			case <-wake.C:
			}
		default:
			return nil, &NoSourceError{Missing: -1, Sources: p.faults()}
		}
	}
}

func (d *Downloader) fetchList(ctx context.Context, f Fetcher, digest segment.Digest, size int64) (*segment.Pieces, error) {
	ctx, idle := newIdleTimer(ctx, d.cfg.IdleTimeout)
	defer idle.stop()
	r, err := f.Pieces(ctx)
	if err != nil {
		return nil, idle.explain(err)
	}
	defer r.Close()
	want := segment.SidecarSize(size)
	data, err := io.ReadAll(&idleReader{r: io.LimitReader(r, want+1), idle: idle})
	if err != nil {
		return nil, idle.explain(err)
	}
	pieces, err := segment.ParsePieces(data, digest)
	if err != nil {
		return nil, &DeceptionError{What: "sent a bad piece list", Cause: err}
	}
	if pieces.Size != size {
		return nil, &DeceptionError{What: fmt.Sprintf("sent a piece list for %d bytes, want %d", pieces.Size, size)}
	}
	return pieces, nil
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
