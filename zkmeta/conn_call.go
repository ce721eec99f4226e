package zkmeta

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
)

// inFlightMax is how many requests may be in the library at once, those included
// that nobody waits for any more. The library cannot take one back: it hangs
// until the server answers, or until the connection is lost.
const inFlightMax = 256

var errTimeout = errors.New("timed out")

// callMax is the time-out of a call.
func (c *Conn) callMax() time.Duration {
	t := c.cfg.SessionTimeout
	if granted := time.Duration(c.granted.Load()); granted > 0 {
		t = min(t, granted)
	}
	return t / 3
}

// call has fn send one request, and waits for the answer. An answer counts only
// in the session in which the request was begun: as a link has one session, that
// is when the link is still the one.
//
// What remains possible: a request that was given up may be carried out later in
// the same session, also after a reconnect, as the library keeps what it has not
// sent yet.
func call[T any](ctx context.Context, c *Conn, op, path string, fn func(*zk.Conn) (T, error)) (T, error) {
	var none T
	fail := func(err error) (T, error) {
		c.metrics.failed(op, err)
		return none, fmt.Errorf("zkmeta: %s %s: %w", op, path, err)
	}
	if why := pathFault(path); why != "" {
		return none, fmt.Errorf("zkmeta: %s %q: %w: it %s", op, path, ErrBadPath, why)
	}
	select {
	case c.slots <- struct{}{}:
		c.metrics.inFlight.Inc()
	default:
		return fail(noAnswer(fmt.Errorf("%d requests are in flight already", inFlightMax)))
	}
	release := func() {
		c.metrics.inFlight.Dec()
		<-c.slots
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.callMax(), errTimeout)
	defer cancel()
	l, w, err := c.ready(ctx)
	if err != nil {
		release()
		return fail(err)
	}

	type result struct {
		value T
		err   error
	}
	results := make(chan result, 1)
	sentAt, began := c.cfg.Clock(), time.Now()
	go func() {
		defer release()
		value, err := fn(l.zk)
		err = c.judge(l, sentAt, translate(err))
		c.metrics.answered(op, time.Since(began), err)
		results <- result{value, err}
	}()
	select {
	case r := <-results:
		if r.err != nil {
			return fail(r.err)
		}
		return r.value, nil
	case <-ctx.Done():
		if context.Cause(ctx) == errTimeout {
			c.leaveSilent(w, began)
		}
		return fail(noAnswer(context.Cause(ctx)))
	case <-c.ctx.Done():
		return fail(noAnswer(ErrClosed))
	}
}

// ready waits for a session, so that nothing is queued in the library without.
func (c *Conn) ready(ctx context.Context) (*link, *wire, error) {
	for {
		c.mu.Lock()
		l, s, refused, changed := c.link, c.session, c.authFailed, c.changed
		var w *wire
		if l != nil {
			w = l.wire
		}
		c.mu.Unlock()
		switch {
		case c.ctx.Err() != nil:
			return nil, nil, ErrClosed
		case s.Connected:
			return l, w, nil
		case refused:
			return nil, nil, fmt.Errorf("%w: user and password were refused", ErrNoAuth)
		}
		select {
		case <-changed:
		case <-c.ctx.Done():
		case <-ctx.Done():
			if cause := context.Cause(ctx); cause != errTimeout {
				return nil, nil, noAnswer(fmt.Errorf("%w: %w", cause, c.why()))
			}
			return nil, nil, noAnswer(c.why())
		}
	}
}

// judge decides at the coming of an answer whether it counts.
func (c *Conn) judge(l *link, sentAt time.Duration, err error) error {
	if !answered(err) {
		return err
	}
	c.mu.Lock()
	over := l.finished()
	c.mu.Unlock()
	if over {
		return noAnswer(errors.New("the session ended meanwhile"))
	}
	c.hear(sentAt)
	return err
}

// leaveSilent leaves a server that has not said a word since the request was
// sent: it is frozen, or cut off. The library would notice after 2/3 of the
// session timeout, which is all that a leader has.
func (c *Conn) leaveSilent(w *wire, began time.Time) {
	if time.Since(began) >= c.callMax()*9/10 && w.silentSince(began) && !w.closed.Load() {
		c.log.Warn().Str("server", w.server).Msg("a ZooKeeper server is silent; leaving it for another")
		w.Close()
	}
}
