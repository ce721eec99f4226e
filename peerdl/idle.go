package peerdl

import (
	"context"
	"io"
	"time"
)

// idleTimer cancels a context when nothing has happened for a while. Unlike a
// total time-out it leaves a slow but honest transfer alone.
type idleTimer struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	limit  time.Duration
}

func newIdleTimer(parent context.Context, limit time.Duration) (context.Context, *idleTimer) {
	ctx, cancel := context.WithCancelCause(parent)
	return ctx, &idleTimer{
		ctx:    ctx,
		cancel: cancel,
		timer:  time.AfterFunc(limit, func() { cancel(ErrStalled) }),
		limit:  limit,
	}
}

// pause stops the time until the next progress.
func (i *idleTimer) pause() { i.timer.Stop() }

// progress starts the time again.
func (i *idleTimer) progress() { i.timer.Reset(i.limit) }

func (i *idleTimer) stop() {
	i.timer.Stop()
	i.cancel(nil)
}

// explain replaces an error that the cancelled context caused by its reason.
func (i *idleTimer) explain(err error) error {
	if context.Cause(i.ctx) == ErrStalled {
		return ErrStalled
	}
	return err
}

// idleReader counts every byte that arrives as progress.
type idleReader struct {
	r    io.Reader
	idle *idleTimer
}

func (r *idleReader) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	if n > 0 {
		r.idle.progress()
	}
	return n, err
}
