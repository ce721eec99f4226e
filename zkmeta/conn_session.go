package zkmeta

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

// answerMax is the longest answer that is read. ZooKeeper limits requests to
// 1 MiB, but not what it lists of a directory; directories of Shoal are bounded
// far below that. Without a limit the library makes room for any length it reads.
const answerMax = 4 << 20

// link is one session: a connection of the library that is thrown away when the
// session is over. The library itself would go on in a new session, and send
// there what it had queued in the old one: a candidate of an election that nobody
// waits for any more, and that lives as long as the process. Of a link nothing
// can be sent in another session.
type link struct {
	c    *Conn
	zk   *zk.Conn
	over chan struct{} // the session has ended, or was given up
	done chan struct{} // the library's goroutine has ended

	ctx    context.Context // of its dials
	cancel context.CancelFunc

	// All with Conn.mu.
	wire    *wire
	up      bool // the wire has shaken hands
	authed  bool // the library knows the credentials, and sends them itself
	authing bool
}

// run keeps a link until Close.
func (c *Conn) run() {
	defer close(c.done)
	for c.ctx.Err() == nil {
		l, err := c.open()
		if err != nil {
			c.log.Error().Err(err).Msg("the ZooKeeper client cannot be started; nothing is tried any more")
			<-c.ctx.Done()
			break
		}
		select {
		case <-l.over:
		case <-c.ctx.Done():
		}
		c.links.Go(l.close)
	}
	c.mu.Lock()
	c.session = Session{Connection: c.session.Connection}
	c.metrics.state(stateClosed)
	c.change()
	c.mu.Unlock()
	c.links.Wait()
}

func (c *Conn) open() (*link, error) {
	l := &link{c: c, over: make(chan struct{}), done: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancel(c.ctx)
	log := libraryLog{log: c.log, authFailed: l.authRefused, fault: c.fault}
	// The callback waits for the lock, and so for zk.
	c.mu.Lock()
	defer c.mu.Unlock()
	conn, events, err := zk.Connect(c.hosts.servers, c.cfg.SessionTimeout,
		zk.WithHostProvider(provider{c.hosts, func() bool { return l.ctx.Err() != nil }}),
		zk.WithDialer(l.dial),
		zk.WithEventCallback(l.event),
		zk.WithLogger(log),
		zk.WithMaxBufferSize(answerMax),
	)
	if err != nil {
		l.cancel()
		return nil, fmt.Errorf("zkmeta: connect: %w", err)
	}
	l.zk = conn
	c.link = l
	go func() {
		defer close(l.done)
		for range events { // the callback has seen them
		}
	}()
	return l, nil
}

// close ends the session if there is one. The library's Close waits for an answer,
// and leaves its loop where it is: in a dial, or reading from a server that says
// nothing.
func (l *link) close() {
	l.cancel()
	l.zk.Close()
	l.c.mu.Lock()
	w := l.wire
	l.c.mu.Unlock()
	if w != nil {
		w.Close()
	}
	<-l.done
}

// dial is called by the library's one loop. It pauses here and not in the host
// provider, which is called with a lock.
func (l *link) dial(_, server string, _ time.Duration) (net.Conn, error) {
	c := l.c
	l.lasted()
	pause, round := c.hosts.attempt()
	if round == 1 && pause > 0 {
		c.unreachable()
	}
	select {
	case <-time.After(pause):
	case <-l.ctx.Done():
	}
	if l.ctx.Err() != nil {
		return nil, errors.New("the session is over")
	}
	w, err := c.dialer.dial(l.ctx, server)
	if err != nil {
		c.fault(err)
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// Closed meanwhile: close may have looked already, and found no wire.
	if l.ctx.Err() != nil {
		w.Close()
		return nil, errors.New("the session is over")
	}
	l.wire = w
	return w, nil
}

// lasted forgives the server what was before, if its connection has lasted.
func (l *link) lasted() {
	l.c.mu.Lock()
	w := l.wire
	l.c.mu.Unlock()
	if w != nil && w.lasted.Load() > int64(l.c.cfg.SessionTimeout/3) {
		l.c.hosts.good()
	}
}

func (c *Conn) fault(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastFault = err
}

// unreachable is said once, when all servers have failed.
func (c *Conn) unreachable() {
	c.mu.Lock()
	err := c.lastFault
	c.mu.Unlock()
	if err == nil {
		return
	}
	c.log.Warn().Err(err).Strs("servers", c.cfg.Address.Servers).Msg("no ZooKeeper server can be reached; trying on")
}

// event is called by the library's loop at every change of its state, in order:
// unlike its channel, which drops events when it is full, nothing is lost here.
// It must not wait.
func (l *link) event(ev zk.Event) {
	if ev.Type != zk.EventSession {
		return
	}
	switch ev.State {
	case zk.StateHasSession:
		l.shaken()
	case zk.StateDisconnected:
		l.lost()
	case zk.StateExpired:
		l.expired()
	}
}

func (l *link) shaken() {
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	l.up = true
	switch {
	case l.finished():
	case c.cfg.User == "" || l.authed:
		l.connected()
	case !l.authing:
		l.authing = true
		c.links.Go(l.authenticate)
	}
}

// connected is called with mu held.
func (l *link) connected() {
	c, w := l.c, l.wire
	fresh := c.session.ID != w.session
	if c.session.Connection > 0 {
		c.metrics.reconnects.Inc()
	}
	c.session = Session{ID: w.session, Connection: c.session.Connection + 1, Connected: true, Timeout: w.timeout}
	c.granted.Store(int64(w.timeout))
	c.authFailed, c.lastFault = false, nil
	c.metrics.state(stateConnected)
	c.change()
	e := c.log.Info().Str("session", sessionID(w.session)).Str("server", w.server)
	if fresh {
		e.Dur("timeout", w.timeout).Msg("ZooKeeper session opened")
	} else {
		e.Msg("connected to ZooKeeper again, in the same session")
	}
	if fresh && w.timeout < c.cfg.SessionTimeout {
		c.log.Warn().Dur("asked", c.cfg.SessionTimeout).Dur("granted", w.timeout).
			Msg("ZooKeeper grants a shorter session timeout than was asked for; going by that")
	}
}

func (l *link) lost() {
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	l.up = false
	if l.finished() || !c.session.Connected {
		return
	}
	c.session.Connected = false
	c.metrics.state(stateDisconnected)
	c.change()
	c.log.Warn().Str("session", sessionID(c.session.ID)).Str("server", l.wire.server).
		Msg("lost the connection to ZooKeeper; reconnecting, the session may live on")
}

func (l *link) expired() {
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.finished() {
		return
	}
	c.metrics.expiries.Inc()
	if c.session.ID != 0 {
		c.hosts.good() // it is there, and has had its say
	}
	c.log.Warn().Str("session", sessionID(c.session.ID)).Msg("ZooKeeper has ended the session; opening a new one")
	l.finish(stateNone)
}

// finish ends the session for this process. It is called with mu held. From here
// on the link dials no more.
func (l *link) finish(state string) {
	l.cancel()
	close(l.over)
	l.c.session = Session{Connection: l.c.session.Connection}
	l.c.metrics.state(state)
	l.c.change()
}

// finished tells whether the link's word does not count any more. It is called
// with mu held.
func (l *link) finished() bool { return l.ctx.Err() != nil || l.c.link != l }

func sessionID(id int64) string { return fmt.Sprintf("0x%x", uint64(id)) }

// User and password.

// authenticate gives the credentials to the library, which sends them again with
// each later connection of the session. Before that nothing else is sent: it
// would be done, or refused, as anybody's.
func (l *link) authenticate() {
	c := l.c
	for {
		err := l.zk.AddAuth("digest", []byte(c.cfg.User+":"+c.cfg.Password))
		c.mu.Lock()
		again := l.authAnswered(err)
		c.mu.Unlock()
		if !again {
			return
		}
	}
}

// authAnswered is called with mu held. It tells whether to send once more: on a
// connection that came while the answer was being waited for.
func (l *link) authAnswered(err error) (again bool) {
	c := l.c
	switch {
	case l.finished():
	case err == nil:
		l.authed = true
		if l.up {
			l.connected()
		}
	case errors.Is(err, zk.ErrAuthFailed):
		c.authRefused()
	case l.up && !l.wire.closed.Load():
		return true
	}
	l.authing = false
	return false
}

// authRefused is called with mu held. ZooKeeper closes the connection, and with
// the next one it is tried again.
func (c *Conn) authRefused() {
	if c.authFailed {
		return
	}
	c.authFailed = true
	c.metrics.state(stateAuthFailed)
	c.change()
	c.log.Error().Str("user", c.cfg.User).
		Msg("ZooKeeper does not take the user and its password: allow the digest scheme on the servers, or check the two settings; trying on")
}

// authRefused is of credentials that the library sent again. Only a new session
// is asked for them anew.
func (l *link) authRefused() {
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.finished() || !l.authed {
		return
	}
	l.finish(stateAuthFailed)
	c.authRefused()
}

// why says why there is no session, for those that wait for one.
func (c *Conn) why() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	servers := strings.Join(c.cfg.Address.Servers, ",")
	if c.lastFault == nil {
		return fmt.Errorf("no session with %s", servers)
	}
	return fmt.Errorf("no session with %s: %w", servers, c.lastFault)
}
