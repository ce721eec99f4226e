package peerdl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// fetchPiece fetches one piece from one source into buf, verifies it, and only
// then writes it. It returns how many bytes came, also on an error, and whether
// the source had no slot for some of it at first.
//
// The piece is asked for in so many ranges at once. With one of them it is hashed
// while it arrives; of several the first is, and the rest when they are there.
func (t *transfer) fetchPiece(ctx context.Context, a Assignment, requests int, buf []byte) (got int64, crowded bool, err error) {
	off, n := t.pieces.Range(a.Piece)
	verifier := t.pieces.Verifier(a.Piece)
	src, step := &t.sources[a.Source], rangeSize(n, requests)

	var came tally
	group, ctx := errgroup.WithContext(ctx)
	for from := int64(0); from < n; from += step {
		to := io.Writer(verifier)
		if from > 0 {
			to = io.Discard
		}
		group.Go(func() error {
			return t.d.fetchWhole(ctx, src, off+from, buf[from:min(from+step, n)], to, &came)
		})
	}
	err = group.Wait()
	got, crowded = came.bytes.Load(), came.busy.Load() > 0
	if err != nil {
		return got, crowded, err
	}
	verifier.Write(buf[min(step, n):n]) // it never fails
	if err := verifier.Verify(); err != nil {
		return got, crowded, &DeceptionError{What: "sent damaged bytes", Cause: err}
	}
	if err := t.writePiece(buf[:n], off); err != nil {
		return got, crowded, &writeFailure{err}
	}
	return got, crowded, nil
}

// tally is what the ranges of a piece have in common.
type tally struct {
	bytes atomic.Int64 // that came
	busy  atomic.Int64 // answers that there is no slot
}

// rangeMin is the least that is worth a request of its own.
const rangeMin = 512 << 10

// rangeSize cuts n bytes into so many ranges, none of them smaller than is worth
// a request.
func rangeSize(n int64, requests int) int64 {
	return max((n+int64(requests)-1)/int64(requests), rangeMin)
}

// Of a source that has no slot for the rest of a piece, because it has cut us off
// or because other ranges of it have the last ones, so much is waited for before
// what came is given up.
const (
	busyMax  = 8 // answers in a row
	busyWait = 200 * time.Millisecond
)

// fetchWhole fills buf with the bytes at off.
//
// A transfer that breaks off is continued at the byte where it broke, as long
// as each try brings something: over a link that is cut again and again a piece
// still gets through. Only the same source may continue it, so that there is
// one to blame for the whole.
func (d *Downloader) fetchWhole(ctx context.Context, src *Source, off int64, buf []byte, to io.Writer, came *tally) error {
	n, got := int64(len(buf)), int64(0)
	for busy := 0; got < n; {
		k, err := d.fetchRange(ctx, src, off+got, buf[got:], to, came)
		got += k
		var later *BusyError
		switch {
		case err == nil, ctx.Err() != nil, errors.As(err, new(*DeceptionError)):
			return err
		case errors.As(err, &later) && came.bytes.Load() > 0 && busy < busyMax:
			busy++
			came.busy.Add(1)
			wait := max(later.RetryAfter, busyWait)
			if err := sleep(ctx, wait+rand.N(wait/2)); err != nil { // apart from the others
				return err
			}
		case k < max(1, min(n/16, 64<<10)):
			return err
		default:
			busy = 0
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// readSize is how much is read and hashed at once: small enough to be hashed
// while it is in the cache, large enough to cost few system calls.
const readSize = 256 << 10

// fetchRange fills buf with the bytes at off and passes them to w. The reader
// has to end where it was asked to. Neither asks nor reads beyond the budget of
// its kind of source; the time that is waited for that is nobody's silence.
func (d *Downloader) fetchRange(ctx context.Context, src *Source, off int64, buf []byte, w io.Writer, came *tally) (got int64, err error) {
	rate := d.rate(src)
	allowed := min(len(buf), rate.step())
	if err := rate.wait(ctx, allowed); err != nil {
		return 0, err
	}
	ctx, idle := newIdleTimer(ctx, d.cfg.IdleTimeout)
	defer idle.stop()
	r, err := src.Fetcher.Fetch(ctx, off, int64(len(buf)))
	if err != nil {
		return 0, idle.explain(err)
	}
	defer r.Close()
	for int(got) < len(buf) {
		if allowed == 0 {
			idle.pause()
			allowed = min(len(buf)-int(got), rate.step())
			if err := rate.wait(ctx, allowed); err != nil {
				return got, err
			}
			idle.progress()
		}
		k, err := r.Read(buf[got:min(len(buf), int(got)+min(allowed, readSize))])
		if k > 0 {
			idle.progress()
			allowed -= k
			w.Write(buf[got : int(got)+k]) // a Verifier, which never fails
			got += int64(k)
			came.bytes.Add(int64(k))
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

// rate is the budget that a source is read from.
func (d *Downloader) rate(src *Source) *Rate {
	if src.DeepStore {
		return d.cfg.DeepStoreRate
	}
	return d.cfg.PeerRate
}
