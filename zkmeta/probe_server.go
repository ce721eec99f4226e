package zkmeta

import (
	"context"
	"errors"
	"path"
	"slices"
	"time"

	"github.com/google/uuid"
)

const (
	probeWrites     = 40
	probeWriteBytes = 256
	probePrefix     = "doctor-"
)

// probeServer asks one server.
func probeServer(ctx context.Context, cfg ProbeConfig, server string) ServerReport {
	r := ServerReport{Server: server}
	timeout := cfg.Access.SessionTimeout
	if timeout == 0 {
		timeout = sessionTimeoutDefault
	}
	d := newDialer(cfg.Access.TLS, attemptMax(1, timeout))
	wire, err := d.dial(ctx, server)
	if err != nil {
		r.Error, r.fault, r.Reachable = err.Error(), err, errors.As(err, new(*handshakeError))
		return r
	}
	wire.Close()
	r.Reachable = true
	r.hearWords(ctx, d)

	alone := Address{Servers: []string{server}, Root: cfg.Address.Root}
	conn, err := Connect(cfg.Access.Conn(alone, cfg.Logger, nil))
	if err == nil {
		defer conn.Close()
		err = r.open(ctx, conn)
	}
	if err != nil {
		r.Error, r.fault = err.Error(), err
		return r
	}
	if r.write = r.tryWrites(ctx, conn); r.write != nil {
		r.Error = r.write.Error()
	}
	return r
}

// open waits for a session, and looks how far the way to the root goes.
func (r *ServerReport) open(ctx context.Context, c *Conn) error {
	for at := c.Path(); ; at = path.Dir(at) {
		if at == "/" {
			r.at = at // it is always there
			return nil
		}
		_, there, err := c.Stat(ctx, at)
		if err != nil {
			return err
		}
		if s := c.Session(); !r.Session {
			r.Session, r.SessionTimeoutMs = true, s.Timeout.Milliseconds()
		}
		if there {
			r.at = at
			return nil
		}
	}
}

// tryWrites writes to a znode that goes with the session.
func (r *ServerReport) tryWrites(ctx context.Context, c *Conn) error {
	prefix := path.Join(r.at, probePrefix+uuid.NewString()+"-")
	began := time.Now()
	name, err := c.CreateEphemeralSequential(ctx, prefix)
	took := time.Since(began)
	if err != nil {
		return err
	}
	znode := path.Join(r.at, name)
	defer func() { _ = c.Delete(context.WithoutCancel(ctx), znode, -1) }() // else it goes with the session
	stat, there, err := c.Stat(ctx, znode)
	if err != nil || !there {
		return errors.Join(err, errors.New("the znode that was just made is not there"))
	}
	ahead := ms(stat.Ctime.Sub(began.Add(took / 2)))
	r.ClockAheadMs, r.RoundTripMs = &ahead, ms(took)

	if err := r.timeWrites(ctx, c, znode); err != nil {
		return err
	}
	return r.tryLargest(ctx, c, znode)
}

// timeWrites writes one after another.
func (r *ServerReport) timeWrites(ctx context.Context, c *Conn, znode string) error {
	var took []time.Duration
	for range probeWrites {
		began := time.Now()
		if _, err := c.Set(ctx, znode, make([]byte, probeWriteBytes), -1); err != nil {
			return err
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	r.Writes = len(took)
	r.WriteP50Ms, r.WriteP99Ms = ms(took[len(took)/2]), ms(took[len(took)*99/100])
	return nil
}

// tryLargest finds out what a server takes, downwards from what Shoal may send. It
// drops the connection over what is too large; twice is no accident.
func (r *ServerReport) tryLargest(ctx context.Context, c *Conn, znode string) error {
	for size := MultiBytesMax; ; size /= 2 {
		data := make([]byte, size-MultiSize(Op{Kind: OpSet, Path: znode}))
		_, err := c.Set(ctx, znode, data, -1)
		if errors.Is(err, ErrNoAnswer) {
			_, err = c.Set(ctx, znode, data, -1)
		}
		switch {
		case err == nil:
			r.LargestWrite = size
			// What is large is not left to be read by others.
			_, err := c.Set(ctx, znode, nil, -1)
			return err
		case !errors.Is(err, ErrNoAnswer) || size < 1<<10 || ctx.Err() != nil:
			return err
		}
		r.Refused = size
	}
}
