package zktest

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

const (
	serveMax  = time.Minute           // until a server serves, or an ensemble has a quorum
	askMax    = 2 * time.Second       // one question; a paused server never answers
	pollEvery = 25 * time.Millisecond // between two questions
)

// Ask sends a four-letter word (ruok, srvr, mntr, conf, …) and returns the
// answer. A server that does not answer within 2 s is an error.
func (p *Process) Ask(ctx context.Context, word string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askMax)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp4", p.Addr())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	conn.SetDeadline(deadline)
	if _, err := io.WriteString(conn, word); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	return string(answer), err
}

// State is a server's own word on what it is.
type State struct {
	Mode string // standalone, leader, follower; "" while it serves nobody
	Zxid int64  // of the last transaction that it knows; the epoch is in the upper half
}

// State asks the server what it is.
func (p *Process) State(ctx context.Context) (State, error) {
	answer, err := p.Ask(ctx, "srvr")
	if err != nil {
		return State{}, err
	}
	var s State
	for line := range strings.Lines(answer) {
		switch key, value, _ := strings.Cut(strings.TrimSpace(line), ": "); key {
		case "Mode":
			s.Mode = value
		case "Zxid":
			if s.Zxid, err = strconv.ParseInt(value, 0, 64); err != nil {
				return State{}, fmt.Errorf("srvr: %w", err)
			}
		}
	}
	return s, nil
}

// WaitServing waits until the server serves clients, or ctx ends, a minute at
// most. A server that dies meanwhile is an error with the end of its log.
func (p *Process) WaitServing(ctx context.Context) error {
	return p.poll(ctx, func(ctx context.Context) error {
		s, err := p.State(ctx)
		switch {
		case err != nil:
			return err
		case s.Mode == "":
			return fmt.Errorf("server %d serves nobody yet", p.self.id)
		}
		return p.isOurs(ctx)
	})
}

// isOurs makes sure that the answer does not come from somebody else's server,
// on a port that was taken in between.
func (p *Process) isOurs(ctx context.Context) error {
	conf, err := p.Ask(ctx, "conf")
	if err == nil && !strings.Contains(conf, p.DataDir()) {
		err = fmt.Errorf("the server at %s is another one: %w", p.Addr(), errPortTaken)
	}
	return err
}

func (p *Process) poll(ctx context.Context, done func(context.Context) error) error {
	return poll(ctx, func(ctx context.Context) error {
		if died := p.died(); died != nil {
			return fatal{died}
		}
		return done(ctx)
	}, p)
}

// fatal is an error for which poll does not try again.
type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

// poll calls done until it succeeds, fails for good, ctx ends or a minute has
// passed.
func poll(ctx context.Context, done func(context.Context) error, of ...*Process) error {
	ctx, cancel := context.WithTimeout(ctx, serveMax)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := done(ctx)
		if f, ok := err.(fatal); ok {
			return f.error
		}
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			for _, p := range of {
				err = fmt.Errorf("%w\nlog of server %d ends:\n%s", err, p.self.id, p.Tail(15))
			}
			return fmt.Errorf("ZooKeeper is not ready: %w", err)
		}
	}
}
