package deepstore

import (
	"context"
	"fmt"
	"time"
)

// A directory may be on a mount whose server is away. System calls hang there then, and
// no context ends them. So they are made beside whoever waits for them, who goes when
// the context ends: an upload has its time, and a download has other sources. What
// hangs holds a thread of the process; so there are dirCallsMax of them at most, and
// whoever comes after that waits without one.
const (
	dirCallsMax = 64
	// dirGrace is how long a call is waited for after its context has ended. One that
	// does not hang ends by itself, and then nothing of it goes on afterwards.
	dirGrace = 2 * time.Second
)

// dirCalls are the calls of one store that are under way.
type dirCalls struct {
	places chan struct{}
	grace  time.Duration
	idle   time.Duration // that one reading may take
}

func newDirCalls() *dirCalls {
	return &dirCalls{places: make(chan struct{}, dirCallsMax), grace: dirGrace, idle: idleMax}
}

// dirCall makes a call and waits until it has ended, or hangs while ctx has ended. Drop
// gets what one that was left behind comes to after all; nil: nothing is to be done.
// Calls do not call each other so: they could wait for each other's places.
func dirCall[T any](ctx context.Context, d *dirStore, what string, call func() (T, error), drop func(T)) (out T, err error) {
	if ctx.Done() == nil {
		return call()
	}
	hangs := func() error {
		return fmt.Errorf("deepstore: %s: the directory gives no answer: %w", what, context.Cause(ctx))
	}
	select {
	case d.calls.places <- struct{}{}:
	case <-ctx.Done():
		return out, hangs()
	}
	type result struct {
		out T
		err error
	}
	done, left := make(chan result), make(chan struct{})
	go func() {
		out, err := call()
		<-d.calls.places
		select {
		case done <- result{out, err}:
		case <-left:
			if err == nil && drop != nil {
				drop(out)
			}
		}
	}()
	select {
	case r := <-done:
		return r.out, r.err
	case <-ctx.Done():
	}
	grace := time.NewTimer(d.calls.grace)
	defer grace.Stop()
	select {
	case r := <-done:
		return r.out, r.err
	case <-grace.C:
		close(left)
		return out, hangs()
	}
}
