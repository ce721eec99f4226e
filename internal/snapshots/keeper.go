package snapshots

import (
	"context"
	"math/rand"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/peerdl"
)

// Shared is what the Keepers of a process have in common.
type Shared struct {
	Logger   zerolog.Logger
	Logs     *metalog.Metrics // of the log; nil: none
	Metrics  *Metrics         // of the downloads; nil: none
	Sends    *peerdl.Metrics  // nil: none
	Zone     string           // where this process is
	Client   *httpx.Client    // for chunks; nil: one without a token
	Reserve  func(bytes int64) (release func(), err error)
	Standing func() (st metalog.Standing, down bool) // as ServerConfig's
	// SendRate and FetchRate are budgets that others may share; nil: no limit.
	SendRate, FetchRate *peerdl.Rate
}

// sendsMax bounds the snapshots that are sent at a time. They have slots of their own: a
// node that waits for one does no work, and a segment more or less does no harm. A reader
// that drips gives its slot to whoever is refused one (peerdl.Limiter).
const sendsMax = 16

// Keeper keeps the snapshots of one log: it makes them where the log asks for them, lets
// go of old ones, serves them, and fetches one that the log here has to go on from. What
// it does by itself it does in Run, which whoever puts the log in another place ends first.
type Keeper struct {
	Snapshots *metalog.Snapshots
	Log       *metalog.Log

	applied     func() int64 // nil: what the log has
	snapshotter *metalog.Snapshotter
	server      *Server
	fetcher     *Fetcher
}

// NewKeeper returns the Keeper of a log and its snapshots, after metalog.Recover. applied is
// the offset of the next batch that the local consumer applies; nil: it applies what it has.
func NewKeeper(s Shared, log *metalog.Log, snaps *metalog.Snapshots, applied func() int64) *Keeper {
	now := func() int64 { return time.Now().UnixMilli() }
	return &Keeper{
		Snapshots: snaps, Log: log, applied: applied,
		snapshotter: metalog.NewSnapshotter(metalog.SnapshotterConfig{
			Log: log, Snapshots: snaps, Clock: now, Rand: rand.New(rand.NewSource(time.Now().UnixNano())),
			Logger: s.Logger, Metrics: s.Logs, Applied: applied,
		}),
		server: NewServer(ServerConfig{
			Snapshots: snaps, Standing: s.Standing, Limiter: peerdl.NewLimiter(sendsMax), Rate: s.SendRate, Metrics: s.Sends, Logger: s.Logger,
			Use: func(id metalog.SnapshotID) bool {
				_, ok := snaps.Use(id, now())
				return ok
			},
		}),
		fetcher: NewFetcher(FetcherConfig{
			Snapshots: snaps, Downloader: peerdl.NewDownloader(peerdl.Config{Log: s.Logger, Metrics: s.Sends, PeerRate: s.FetchRate}),
			Logger: s.Logger, Client: s.Client, Zone: s.Zone, Reserve: s.Reserve, Metrics: s.Metrics,
		}),
	}
}

// Run makes snapshots, and lets go of old ones, until ctx ends. It may be called again.
func (k *Keeper) Run(ctx context.Context) { k.snapshotter.Run(ctx) }

// Cut has a snapshot made of an image, in a while. It does not block.
func (k *Keeper) Cut(im *meta.Image) { k.snapshotter.Cut(im) }

// AskWhenDue has ask put a request for a snapshot into the log whenever one is due, until
// ctx ends: for a leader.
func (k *Keeper) AskWhenDue(ctx context.Context, ask func(context.Context) error) {
	k.snapshotter.AskWhenDue(ctx, ask)
}

// Named are the earliest and the latest snapshot, which a leader names to its followers.
func (k *Keeper) Named() (earliest, latest *metalog.SnapshotRef) {
	return k.Snapshots.Earliest(), k.Snapshots.Latest()
}

// ServeHTTP answers what Server does.
func (k *Keeper) ServeHTTP(w http.ResponseWriter, r *http.Request) { k.server.ServeHTTP(w, r) }

// Fetch brings a snapshot here that the leader has named: from the leader, and from others
// who may have it. It is what metalog.FollowerConfig.FetchSnapshot asks for.
func (k *Keeper) Fetch(ctx context.Context, cluster uuid.UUID, leader metalog.LeaderRef, ref metalog.SnapshotRef, others []Source) (*meta.Image, error) {
	sources := []Source{{Name: "leader " + leader.URL, URL: leader.URL, LeaderEpoch: leader.Epoch}}
	for _, o := range others {
		if o.URL != leader.URL {
			sources = append(sources, o)
		}
	}
	return k.fetcher.Fetch(ctx, Request{Snapshot: ref, Cluster: cluster, Sources: sources})
}

// nodesMax is how many nodes are asked for a snapshot, beside the controllers.
const nodesMax = 8

// Nodes draws some of the nodes of an image that may have a snapshot, but self.
func Nodes(im *meta.Image, self string) (sources []Source) {
	for n := range im.Nodes() {
		if n.ID != self && n.State != meta.NodeDown {
			sources = append(sources, Source{Name: "node " + n.ID, URL: n.URL, Zone: n.Zone})
		}
	}
	rand.Shuffle(len(sources), func(i, j int) { sources[i], sources[j] = sources[j], sources[i] })
	return sources[:min(len(sources), nodesMax)]
}
