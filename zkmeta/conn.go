package zkmeta

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/rs/zerolog"
)

const (
	sessionTimeoutDefault = 10 * time.Second
	sessionTimeoutMin     = time.Second
	sessionTimeoutMax     = 5 * time.Minute
)

// ConnConfig is what a Conn must know.
type ConnConfig struct {
	Address        Address
	SessionTimeout time.Duration // 1 s to 5 min; 0 means 10 s. The server may grant another one

	// For the scheme digest; both or none. With them, whatever is created is for
	// this user alone, else for everybody. Never logged.
	User, Password string

	// TLS nil means plaintext. A ServerName that is not set is that of the server.
	TLS *tls.Config

	Clock   func() time.Duration // nil means BootTime
	Logger  zerolog.Logger
	Metrics *Metrics // for this Conn alone; may be nil
}

// Validate reports all faults.
func (c ConnConfig) Validate() error {
	faults := []error{c.Address.validate()}
	if t := c.SessionTimeout; t != 0 && (t < sessionTimeoutMin || t > sessionTimeoutMax) {
		faults = append(faults, fmt.Errorf("zkmeta: the session timeout is %v: it must be %v to %v", t, sessionTimeoutMin, sessionTimeoutMax))
	}
	if (c.User == "") != (c.Password == "") {
		faults = append(faults, errors.New("zkmeta: user and password go together: both or none"))
	}
	if strings.Contains(c.User, ":") {
		faults = append(faults, errors.New("zkmeta: a ZooKeeper user has no colon in its name"))
	}
	return errors.Join(faults...)
}

// Session is what a Conn knows of its session.
type Session struct {
	ID int64 // 0: none, never had or expired
	// Connection rises with every connection that got a session, or got it back:
	// one that was lost and found is noticed though nobody saw it go.
	Connection int64
	Connected  bool          // a belief; a connection that just died looks alive
	Timeout    time.Duration // granted by the server
}

// Conn keeps a session with ZooKeeper, and opens a new one when ZooKeeper ends it.
// Its methods may be called by many goroutines.
//
// The session is over when ZooKeeper says so, and it can say so only once there is
// a connection again. Who must not go on after the end of a session, as a leader,
// goes by a clock of its own: see LastHeard.
type Conn struct {
	cfg     ConnConfig
	log     zerolog.Logger
	metrics *Metrics
	hosts   *hosts
	dialer  *dialer
	acl     []zk.ACL

	slots chan struct{} // one for each request that is in the library
	heard atomic.Int64
	began time.Duration

	granted atomic.Int64 // the last session timeout

	ctx    context.Context // until Close
	cancel context.CancelFunc
	done   chan struct{} // everything has ended
	links  sync.WaitGroup

	mu         sync.Mutex
	session    Session
	changed    chan struct{}
	link       *link
	authFailed bool
	lastFault  error // of a connection, for the errors of those that wait for one
	watches    map[string]*watch
}

// Connect begins to look for a session, and does not wait for one. Its errors are
// those of cfg. Close ends what it began.
func Connect(cfg ConnConfig) (*Conn, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.SessionTimeout == 0 {
		cfg.SessionTimeout = sessionTimeoutDefault
	}
	if cfg.Clock == nil {
		cfg.Clock = BootTime
	}
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics(nil)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &Conn{
		cfg:     cfg,
		log:     cfg.Logger.With().Str("component", "zookeeper").Logger(),
		metrics: cfg.Metrics,
		hosts:   newHosts(cfg.Address.Servers, cfg.SessionTimeout),
		dialer:  newDialer(cfg.TLS, attemptMax(len(cfg.Address.Servers), cfg.SessionTimeout)),
		acl:     zk.WorldACL(zk.PermAll),
		slots:   make(chan struct{}, inFlightMax),
		began:   cfg.Clock(),
		ctx:     ctx,
		cancel:  cancel,
		done:    make(chan struct{}),
		changed: make(chan struct{}),
		watches: make(map[string]*watch),
	}
	if cfg.User != "" {
		c.acl = zk.AuthACL(zk.PermAll)
	}
	since := c.sinceHeard
	c.metrics.sinceHeard.Store(&since)
	go c.run()
	return c, nil
}

// Session returns what is known now.
func (c *Conn) Session() Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

// Watch returns what is known now, and a channel that is closed when that changes.
// Changes that follow one another fast may be seen as one, never as none.
func (c *Conn) Watch() (Session, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session, c.changed
}

// change wakes those that wait. It is called with mu held.
func (c *Conn) change() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// Path returns the absolute path of a znode below the root; that of the root
// itself without names, or with "" alone.
func (c *Conn) Path(rel ...string) string {
	path := c.cfg.Address.Root
	for _, part := range rel {
		if part != "" {
			path += "/" + part
		}
	}
	return path
}

// SessionTimeout returns the one that was asked for. That of the server is in
// Session.
func (c *Conn) SessionTimeout() time.Duration { return c.cfg.SessionTimeout }

// Now returns the time on the config's clock.
func (c *Conn) Now() time.Duration { return c.cfg.Clock() }

// LastHeard returns, on the config's clock, when the sending began of the last
// request that was answered, in whatever session; 0 if none was. ZooKeeper ends a
// session no sooner than its timeout after that. The library's own pings do not
// count: who needs this to move sends a request.
func (c *Conn) LastHeard() time.Duration { return time.Duration(c.heard.Load()) }

func (c *Conn) sinceHeard() time.Duration {
	return c.cfg.Clock() - max(c.LastHeard(), c.began)
}

// hear notes an answer. Answers come in any order.
func (c *Conn) hear(sentAt time.Duration) {
	for {
		old := c.heard.Load()
		if int64(sentAt) <= old || c.heard.CompareAndSwap(old, int64(sentAt)) {
			c.hosts.good()
			return
		}
	}
}

// closeMax bounds Close. The library gives the server a second to answer, or
// three when requests are stuck.
const closeMax = 5 * time.Second

// Close ends the session, so that what is ephemeral goes at once, and makes every
// call fail. It may be called again, and takes 5 s at most; an error says that
// something of it still runs then.
func (c *Conn) Close() error {
	c.cancel()
	t := time.NewTimer(closeMax)
	defer t.Stop()
	select {
	case <-c.done:
		return nil
	case <-t.C:
		return errors.New("zkmeta: close: the client does not end; ZooKeeper ends the session when its timeout is over")
	}
}
