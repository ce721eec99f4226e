package controller

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/snapshots"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/zkmeta"
)

// member is one controller of several. The metadata is in ZooKeeper; the member's own
// log follows it: from the leader while another one leads, from its own writes while
// it leads itself, and from the tail in ZooKeeper between the two.
//
// Its goroutine is the elector's, and what a term and the following need; a term's
// end is waited for before the next one begins.
type member struct {
	c       *Controller
	log     zerolog.Logger
	conn    *zkmeta.Conn
	elector *zkmeta.Elector
	cluster uuid.UUID
	files   *localLog       // of whoever follows, takes over or leads; the elector has them come one at a time
	ctx     context.Context // of run
	failed  chan error      // what no other try in this process mends
	efforts sync.WaitGroup

	followed atomic.Pointer[meta.Image] // the follower's newest

	mu        sync.Mutex
	following *following // nil while it leads or takes over
	term      *term      // the one that is being opened, or leads
	seen      string     // URL of the leader, as it was last heard of
}

// following is a follower that runs.
type following struct {
	follower *metalog.Follower
	stop     context.CancelFunc
	ended    chan struct{}
}

func newMember(c *Controller) (*member, error) {
	conn, err := c.dial()
	if err != nil {
		return nil, err
	}
	m := &member{c: c, conn: conn, failed: make(chan error, 1), log: c.root.With().Str("component", "member").Logger()}
	m.elector = zkmeta.NewElector(zkmeta.ElectorConfig{Conn: conn, Controller: controllerName(c.cfg.ID), Role: m, Logger: c.root})
	return m, nil
}

// controllerName makes an id fit for the name of a znode: the default is a URL.
func controllerName(id string) string {
	name := []byte(id)
	for i, b := range name {
		if b == '/' || b < ' ' {
			name[i] = '.'
		}
	}
	return string(name)
}

// run takes part until ctx ends, and returns nil then.
func (m *member) run(ctx context.Context) error {
	if err := m.waitForTree(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	files, err := openLocalLog(m.c, m.cluster)
	if err != nil {
		return err
	}
	if err := m.c.remark(); err != nil {
		return errors.Join(err, files.close())
	}
	m.files = files
	ctx, stop := context.WithCancelCause(ctx)
	m.ctx = ctx
	m.efforts.Go(func() {
		select {
		case err := <-m.failed:
			stop(err)
		case <-ctx.Done():
		}
	})
	m.follow()
	m.elector.Run(ctx)
	stop(nil) // nothing begins any more
	m.endTerm()
	m.pause()
	m.efforts.Wait()
	if err := files.close(); err != nil {
		m.log.Warn().Err(err).Msg("close of the log failed; its content is synced")
	}
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func (m *member) close() error { return m.conn.Close() }

// fail ends the process: what it has can no longer be trusted.
func (m *member) fail(err error) {
	select {
	case m.failed <- err:
	default:
	}
}

// Following.

// follow follows the leader's log until pause.
func (m *member) follow() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.following != nil || m.term != nil || m.ctx.Err() != nil {
		return
	}
	follower, err := metalog.OpenFollower(metalog.FollowerConfig{
		FS: m.c.fs, Cache: m.files.log, Image: m.files.image, Snapshots: m.files.snaps, Cluster: m.cluster,
		Find: m.findLeader, Deliver: m.delivered, Cut: m.files.keeper.Cut,
		FetchSnapshot: m.fetchSnapshot(m.files.keeper),
		Rand:          rand.New(rand.NewSource(time.Now().UnixNano())),
		Client:        m.c.nodes, Logger: m.c.root, Metrics: m.c.logs,
	})
	if err != nil {
		m.fail(err)
		return
	}
	ctx, stop := context.WithCancel(m.ctx)
	f := &following{follower: follower, stop: stop, ended: make(chan struct{})}
	m.following = f
	go func() {
		defer close(f.ended)
		if err := follower.Run(ctx); err != nil {
			m.fail(fmt.Errorf("controller: the log of %s: %w", m.c.cfg.Data, err))
		}
	}()
}

// fetchSnapshot is how the follower gets one: from the leader, and from the nodes that the
// image knows.
func (m *member) fetchSnapshot(keeper *snapshots.Keeper) func(context.Context, metalog.LeaderRef, metalog.SnapshotRef) (*meta.Image, error) {
	return func(ctx context.Context, leader metalog.LeaderRef, ref metalog.SnapshotRef) (*meta.Image, error) {
		return keeper.Fetch(ctx, m.cluster, leader, ref, snapshots.Nodes(m.image(), ""))
	}
}

// delivered takes a newer image from the follower.
func (m *member) delivered(im *meta.Image, _ []meta.Key) { m.followed.Store(im) }

// image is the newest image that was followed to, to find others by.
func (m *member) image() *meta.Image {
	if im := m.followed.Load(); im != nil {
		return im
	}
	return meta.Empty()
}

// pause ends the following; the log is the caller's until follow.
func (m *member) pause() {
	m.mu.Lock()
	f := m.following
	m.following = nil
	m.mu.Unlock()
	if f == nil {
		return
	}
	f.stop()
	<-f.ended
	// What it did last it may not have taken in any more.
	if err := m.files.resume(f.follower.Image()); err != nil {
		m.fail(err)
	}
}

// findLeader reads who leads from ZooKeeper, where that is written by the batch that
// opens an epoch.
func (m *member) findLeader(ctx context.Context) (metalog.LeaderRef, error) {
	leader, err := zkmeta.ReadLeader(ctx, m.conn)
	if err != nil {
		return metalog.LeaderRef{}, err
	}
	if leader == nil || leader.URL == m.c.url {
		m.setLeader("")
		return metalog.LeaderRef{}, errNoOtherLeader
	}
	m.setLeader(leader.URL)
	return metalog.LeaderRef{URL: leader.URL, Epoch: leader.Epoch}, nil
}

var errNoOtherLeader = errors.New("controller: no other controller leads")

func (m *member) setLeader(url string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen = url
}

// leaderURL is who leads, as far as this member knows; empty when nobody does.
func (m *member) leaderURL() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen
}

// follows reports whether it has a leader and is up with it.
func (m *member) follows() bool {
	m.mu.Lock()
	f := m.following
	m.mu.Unlock()
	if f == nil {
		return false
	}
	st := f.follower.Status()
	return (st.State == metalog.FollowFetching || st.State == metalog.FollowStoring) && st.Err == nil && st.Applied >= st.LeaderHighWatermark
}
