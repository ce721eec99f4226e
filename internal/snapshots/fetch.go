package snapshots

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/peerdl"
)

// FetcherConfig is what a Fetcher needs. Zero values of the optional fields mean their
// defaults.
type FetcherConfig struct {
	Snapshots  *metalog.Snapshots // where they come to
	Downloader *peerdl.Downloader
	Logger     zerolog.Logger

	// Optional.
	Client   *httpx.Client // with the token; default: one over peerdl.NewTransport
	Zone     string        // where this process is
	Reserve  func(bytes int64) (release func(), err error)
	Progress func(peerdl.Progress) // as peerdl.Request's
	Metrics  *Metrics
}

// Fetcher downloads snapshots, one at a time. It is safe for concurrent use.
type Fetcher struct {
	cfg  FetcherConfig
	log  zerolog.Logger
	turn chan struct{} // of capacity 1: who has put something in is at it
}

// NewFetcher returns a Fetcher. It holds nothing that needs closing; idle connections are
// the client's.
func NewFetcher(cfg FetcherConfig) *Fetcher {
	if cfg.Client == nil {
		cfg.Client = &httpx.Client{HTTP: &http.Client{Transport: peerdl.NewTransport()}}
	}
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics(nil)
	}
	return &Fetcher{cfg: cfg, log: cfg.Logger.With().Str("component", "snapshots").Logger(), turn: make(chan struct{}, 1)}
}

// Source is a server that may have the snapshot: the leader that named it, or any other
// holder, of the same digest or of none.
type Source struct {
	Name string // for messages; empty means URL
	URL  string // of the server
	Zone string
	// LeaderEpoch, if not 0, says that this is taken for the leader of that epoch. It is
	// told so, and refuses if it is not so any more; and it is asked before the others.
	LeaderEpoch int64
}

// Request says which snapshot is wanted, and of whom.
type Request struct {
	Snapshot metalog.SnapshotRef
	// Cluster is the one that it must be of; zero: not known yet.
	Cluster uuid.UUID
	Sources []Source
}

// Fetch brings a snapshot into the directory and returns its image, verified. It goes on
// with what an earlier call has left of the same bytes, whoever has the rest; what is left
// of any other download is dropped. One that is here already is only read.
//
// What a follower tells apart (METALOG §4): metalog.ErrSnapshotNotFound, every source says
// that it has no such snapshot, and the partial is dropped; metalog.ErrNotTheSnapshot, what
// the sources have is not what was named, and the partial is dropped unless it is proven;
// ctx's own error; anything else, which is worth another try that goes on from the
// partial. A *vfs.SyncError among these is for the process to stop for.
func (f *Fetcher) Fetch(ctx context.Context, req Request) (*meta.Image, error) {
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if im, err := f.held(req.Snapshot); im != nil || err != nil {
		return im, err
	}
	_, part := f.cfg.Snapshots.PartPath(req.Snapshot)
	dropped, err := f.cfg.Snapshots.DropDownloads(part)
	f.cfg.Metrics.restarts.WithLabelValues(string(causeSuperseded)).Add(float64(dropped))
	if err != nil {
		return nil, err
	}
	return f.fetch(ctx, req)
}

// held returns the image of a snapshot that is here, and is what was named.
func (f *Fetcher) held(ref metalog.SnapshotRef) (*meta.Image, error) {
	if have, ok := f.cfg.Snapshots.Get(ref.SnapshotID); !ok || have.Digest != ref.Digest {
		return nil, nil
	}
	im, err := f.cfg.Snapshots.Load(ref.SnapshotID)
	if errors.As(err, new(*metalog.CorruptionError)) {
		f.log.Error().Err(err).Str("snapshot", ref.String()).Msg("a damaged snapshot is set aside; downloading it again")
		return nil, f.cfg.Snapshots.SetAside(ref.SnapshotID)
	}
	if errors.Is(err, metalog.ErrSnapshotNotFound) {
		return nil, nil // removed in between
	}
	return im, err
}

// fetch downloads, takes what came into the directory, and settles the account.
func (f *Fetcher) fetch(ctx context.Context, req Request) (*meta.Image, error) {
	var got atomic.Int64
	var found, held int64 // bytes of the .part, at first and at last
	known := false
	res, err := f.cfg.Downloader.Download(ctx, f.download(req, &got, func(p peerdl.Progress) {
		if held = p.HeldBytes; !known {
			found, known = held, true
		}
		if f.cfg.Progress != nil {
			f.cfg.Progress(p)
		}
	}))
	var im *meta.Image
	if err == nil {
		im, err = f.cfg.Snapshots.Adopt(res.File, req.Snapshot, req.Cluster)
	}
	wasted := got.Load() - (held - found)
	defer func() { f.cfg.Metrics.wastedBytes.Add(float64(wasted)) }()
	if err == nil {
		f.cfg.Metrics.fetched.Inc()
		return im, nil
	}
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		return nil, err
	}
	why := judge(err)
	f.cfg.Metrics.restarts.WithLabelValues(string(why)).Inc()
	if why.dropsPartial() {
		wasted += held
		_, derr := f.cfg.Snapshots.DropDownloads("")
		err = errors.Join(err, derr)
	}
	return nil, why.failed(req.Snapshot, err)
}

// download is the request as peerdl has it.
func (f *Fetcher) download(req Request, got *atomic.Int64, progress func(peerdl.Progress)) peerdl.Request {
	fsys, part := f.cfg.Snapshots.PartPath(req.Snapshot)
	d := peerdl.Request{
		Digest: req.Snapshot.Digest, Size: req.Snapshot.SizeBytes, Zone: f.cfg.Zone,
		FS: fsys, Part: part, Reserve: f.cfg.Reserve, Progress: progress,
	}
	for _, src := range req.Sources {
		q := metalog.SnapshotQuery{ID: req.Snapshot.SnapshotID}
		if req.Cluster != uuid.Nil {
			id := req.Cluster.String()
			q.ClusterID = &id
		}
		p := peerdl.Source{Name: src.Name, URL: src.URL, Zone: src.Zone, Rank: 1}
		if src.LeaderEpoch > 0 {
			q.LeaderEpoch, p.Rank = &src.LeaderEpoch, 0
		}
		p.Fetcher = &source{
			client: f.cfg.Client, ref: req.Snapshot, query: q, got: got,
			url: fmt.Sprintf("%s%s/%s", strings.TrimSuffix(src.URL, "/"), Path, req.Snapshot.SnapshotID),
		}
		d.Sources = append(d.Sources, p)
	}
	return d
}
