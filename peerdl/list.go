package peerdl

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/shoalstore/shoal/segment"
)

// listAnswer is what a source answered when asked for the piece list.
type listAnswer struct {
	Assignment
	pieces *segment.Pieces
	err    error
}

// fetchPieces gets the piece list from some source and proves it against the
// digest. To the planner it is a resource of one piece: a source that takes too long
// has company soon, and if that is faster, the silent one is told of, as it would
// be as silent about the pieces.
func (t *transfer) fetchPieces(ctx context.Context) (pieces *segment.Pieces, silent []int, err error) {
	p := t.newPlanner(1, nil)
	asking, cancel := context.WithCancel(ctx)
	answers := make(chan listAnswer)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	wake := time.NewTimer(time.Hour)
	defer wake.Stop()
	for {
		next := p.Next(time.Now())
		var timer <-chan time.Time
		switch next.Kind {
		case PlanFetch:
			running.Go(func() {
				a := listAnswer{Assignment: next.Assignment}
				a.pieces, a.err = t.d.fetchList(asking, t.sources[a.Source].Fetcher, t.req.Digest, t.req.Size)
				select {
				case answers <- a:
				case <-asking.Done():
				}
			})
			continue
		case PlanWait:
			if next.Wait > 0 {
				wake.Reset(next.Wait)
				timer = wake.C
			}
		default:
			return nil, nil, &NoSourceError{Missing: -1, Sources: p.faults()}
		}
		select {
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		case <-timer:
		case a := <-answers:
			if a.err == nil {
				p.Done(a.Assignment, time.Now())
				return a.pieces, p.asked(), nil
			}
			if ctx.Err() != nil {
				return nil, nil, context.Cause(ctx)
			}
			p.Failed(a.Assignment, a.err, time.Now())
			t.d.cfg.Metrics.faults.WithLabelValues(faultKind(a.err)).Inc()
			t.log.Warn().Err(a.err).Str("source", t.sources[a.Source].name()).Msg("no good piece list; asking another source")
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
