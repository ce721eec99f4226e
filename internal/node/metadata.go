package node

import (
	"context"
	"math/rand"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/internal/snapshots"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/peerdl"
)

// The node's copy of the metadata: it follows the leader's log, makes the snapshots that
// the log asks for, and serves both to whoever has lost them.

// cacheDir is where the copy of the log is, in the data directory.
const cacheDir = "cache"

// openCache opens the copy and what follows with it. It is made of what was durable; Run
// brings it on.
func (n *Node) openCache() (err error) {
	logs := metalog.NewMetrics(n.reg)
	n.follower, err = metalog.OpenFollower(metalog.FollowerConfig{
		FS: n.fs, Dir: cacheDir, SnapshotsDir: metalog.SnapshotsDir, Cluster: n.id.ClusterID,
		Find: n.findLeader, Deliver: n.deliver,
		Cut:           func(im *meta.Image) { n.keeper.Cut(im) },
		FetchSnapshot: n.fetchSnapshot,
		Rand:          rand.New(rand.NewSource(time.Now().UnixNano())), Client: n.client(-1),
		Logger: n.root, Metrics: logs,
	})
	if err != nil {
		return err
	}
	chunks := &httpx.Client{Token: n.cfg.ClusterToken, Timeout: -1, HTTP: &http.Client{Transport: peerdl.NewTransport()}}
	n.clients = append(n.clients, chunks)
	n.keeper = snapshots.NewKeeper(snapshots.Shared{
		Logger: n.root, Logs: logs, Metrics: snapshots.NewMetrics(n.reg), Sends: n.transfers,
		Zone: n.cfg.Zone, Client: chunks, Reserve: n.store.Reserve, Standing: n.leaderSeen,
		SendRate: n.sendRate, FetchRate: n.fetchRate,
	}, n.follower.Log(), n.follower.Snapshots(), func() int64 { return n.follower.Image().Next() })
	n.reg.MustRegister(snapshots.Collector(func() *snapshots.Keeper { return n.keeper }))
	n.image = n.follower.Image()
	return nil
}

// findLeader is how the follower finds whom to follow.
func (n *Node) findLeader(ctx context.Context) (metalog.LeaderRef, error) {
	var v api.LeaderView
	if err := n.control.Get(ctx, "/leader", &v); err != nil {
		return metalog.LeaderRef{}, err
	}
	return metalog.LeaderRef{URL: v.Leader, Epoch: v.Epoch}, nil
}

// fetchSnapshot is how the follower gets one: from the leader, the other controllers, and
// the nodes that the image knows.
func (n *Node) fetchSnapshot(ctx context.Context, leader metalog.LeaderRef, ref metalog.SnapshotRef) (*meta.Image, error) {
	var others []snapshots.Source
	for _, u := range n.cfg.Controllers {
		others = append(others, snapshots.Source{Name: "controller " + u, URL: u})
	}
	others = append(others, snapshots.Nodes(n.currentImage(), n.cfg.ID)...)
	return n.keeper.Fetch(ctx, n.clusterID(), leader, ref, others)
}

// clusterID is the one that the node is of; zero before it has met it.
func (n *Node) clusterID() uuid.UUID {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.id.ClusterID
}

// leaderSeen is who leads, as far as this node knows, and whether it is going down.
func (n *Node) leaderSeen() (st metalog.Standing, down bool) {
	leader, cluster := n.follower.Status().Leader, n.clusterID()
	n.mu.Lock()
	defer n.mu.Unlock()
	st = metalog.Standing{Cluster: cluster, Epoch: max(leader.Epoch, n.standing.epoch), URL: leader.URL}
	return st, n.life.Err() != nil
}
