package peerdl

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/segment"
)

// Config is how a Downloader works. The zero value of a field is its default.
type Config struct {
	// Client asks peers; default: one over NewTransport. It must not have a
	// total time-out, which would kill honest long downloads.
	Client *http.Client
	// Workers is how many pieces one download fetches at a time, and so what a
	// killed process has to fetch again: pieces in flight, nothing else. Default 2,
	// and from three or four sources one of each. In how many ranges at once a piece
	// is asked for follows what helps (window.go).
	Workers int
	// Buffers bounds the memory of all downloads together, in pieces of 4 MiB;
	// default 16. Downloads that find none free wait their turn.
	Buffers int
	// Unsynced is how many pieces may be in flight or written but not yet fsynced:
	// what a power cut can cost one download. Default 16, which is
	// 64 MiB; with 2 the disk waits for the network and the network for the disk.
	Unsynced int
	// IdleTimeout ends a transfer that brings no byte for so long; default 30 s.
	// There is no limit on its whole length.
	IdleTimeout time.Duration
	// PeerRate and DeepStoreRate are the budgets of what is read from peers and
	// from deep stores; nil: no limit. Others may share them.
	PeerRate, DeepStoreRate *Rate
	Log                     zerolog.Logger
	Metrics                 *Metrics // nil: none

	limits *PlanLimits // tests shorten them
}

// Downloader fetches immutable resources. It is safe for concurrent use.
type Downloader struct {
	cfg     Config
	limits  PlanLimits
	buffers *buffers
}

// NewDownloader returns a Downloader. It holds nothing that needs closing; idle
// connections are the client's.
func NewDownloader(cfg Config) *Downloader {
	if cfg.Client == nil {
		cfg.Client = &http.Client{Transport: NewTransport()}
	}
	setDefault(&cfg.Buffers, 16)
	setDefault(&cfg.Unsynced, 16)
	setDefault(&cfg.IdleTimeout, 30*time.Second)
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics(nil)
	}
	d := &Downloader{cfg: cfg, limits: DefaultPlanLimits(), buffers: newBuffers(cfg.Buffers)}
	if cfg.limits != nil {
		d.limits = *cfg.limits
	}
	if cfg.Workers > 0 {
		d.limits.Pieces, d.limits.PiecesMax, d.limits.Window.Start = cfg.Workers, cfg.Workers, cfg.Workers
	}
	return d
}

func setDefault[T int | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}

// Request says what to fetch, from where, and into which file.
type Request struct {
	// Digest and Size identify the resource; both come from its record, never
	// from a source.
	Digest segment.Digest
	Size   int64
	// Sources are tried by rank, zone and load. At least one.
	Sources []Source
	// Zone is where this process is.
	Zone string
	// FS and Part name the file to fill, called "….part" by custom. Its directory must
	// exist. JournalName(Part) lies beside it until Forget.
	FS   vfs.FS
	Part string
	// Reserve is told how many bytes are going to be written, before any is;
	// the function it returns is called when the download ends, however it ends.
	// Nil: no reservation.
	Reserve func(bytes int64) (release func(), err error)
	// Progress is called once it is known what an earlier call has left, and after
	// each piece, from one goroutine at a time. It must not block. Nil: not called.
	Progress func(Progress)
}

// Progress is how far a download is.
type Progress struct {
	HeldBytes int64 // verified and written
	SizeBytes int64
}

// Result is a complete download: every byte in File was verified against the
// request's digest before it was written, and File is fsynced.
type Result struct {
	// File is open for reading and writing and belongs to the caller, who
	// publishes it (segment.Store.Publish closes and renames it) and then calls
	// Forget.
	File   vfs.File
	Pieces *segment.Pieces
	Stats  Stats
}

// Stats is what a download cost.
type Stats struct {
	// ResumedBytes were found in the .part, FetchedBytes came over the wire and
	// were kept, WastedBytes came and were not: damaged, cut off, or too late.
	ResumedBytes, FetchedBytes, WastedBytes int64
	// BySource is FetchedBytes for each source, in the request's order.
	BySource []int64
}

// Download fetches the resource, continuing what an earlier call left in the
// same .part. On an error the .part stays, so that a later call continues; only
// if its content can no longer be trusted (a failed fsync) is it removed.
//
// It returns *NoSourceError when the sources have failed it, the cause of ctx
// when that ended, and the file system's errors as they are, with the file
// system named.
func (d *Downloader) Download(ctx context.Context, req Request) (*Result, error) {
	if req.Size <= 0 || req.Digest.IsZero() {
		return nil, fmt.Errorf("peerdl: nothing to download: size %d, digest %s", req.Size, req.Digest)
	}
	t := &transfer{
		d:   d,
		req: req,
		rnd: rand.New(rand.NewSource(rand.Int63())),
		log: d.cfg.Log.With().Str("component", "peerdl").Str("part", req.Part).Logger(),
	}
	for _, s := range req.Sources {
		if s.Fetcher == nil {
			s.Fetcher = NewHTTPFetcher(d.cfg.Client, s.URL, req.Digest, req.Size)
		}
		t.sources = append(t.sources, s)
	}
	t.stats.BySource = make([]int64, len(t.sources))
	d.cfg.Metrics.downloads.Inc()
	defer d.cfg.Metrics.downloads.Dec()
	defer func() { d.cfg.Metrics.wastedBytes.Add(float64(t.stats.WastedBytes)) }()

	defer func() {
		if t.release != nil {
			t.release()
		}
	}()
	err := t.prepare(ctx)
	if err == nil {
		err = t.run(ctx)
	}
	if err != nil {
		return nil, t.abandon(err)
	}
	return &Result{File: t.file, Pieces: t.pieces, Stats: t.stats}, nil
}

// transfer is one running Download.
type transfer struct {
	d       *Downloader
	req     Request
	sources []Source // with their fetchers
	rnd     *rand.Rand
	log     zerolog.Logger

	plan    *Planner
	pieces  *segment.Pieces
	file    vfs.File
	release func() // of the reservation

	held  int64 // bytes
	stats Stats

	// The rest belongs to run.
	inflight map[Assignment]context.CancelFunc
	spare    bool // a place among the buffers, taken but not yet used
	events   chan event
	running  sync.WaitGroup
	unsynced int  // pieces written since the last fsync began
	syncing  int  // pieces that the running fsync covers
	inSync   bool // an fsync is running
	dirty    bool // something was written since the last fsync began
}

// prepare gets the piece list, opens the .part and finds out what it holds.
func (t *transfer) prepare(ctx context.Context) (err error) {
	known := true
	var silent []int
	if t.pieces, err = readJournal(t.req.FS, t.req.Part, t.req.Digest, t.req.Size); err != nil {
		if t.pieces, silent, err = t.fetchPieces(ctx); err != nil {
			return err
		}
		known = false
	}
	part, held, err := openPart(ctx, t.req.FS, t.req.Part, t.pieces)
	if err != nil {
		return err
	}
	t.file = part
	t.plan = t.newPlanner(t.pieces.Count(), held)
	for _, source := range silent {
		t.plan.Stalled(source)
	}
	for i, h := range held {
		if h {
			_, n := t.pieces.Range(i)
			t.held += n
		}
	}
	t.stats.ResumedBytes = t.held
	t.tell()
	if t.req.Reserve != nil {
		if t.release, err = t.req.Reserve(t.req.Size - t.held); err != nil {
			return fmt.Errorf("peerdl: no room for %d bytes on %s: %w", t.req.Size-t.held, t.req.FS, err)
		}
	}
	if err := t.file.Truncate(t.req.Size); err != nil {
		return t.writeError(err)
	}
	if !known {
		if err := writeJournal(t.req.FS, t.req.Part, t.req.Digest, t.pieces); err != nil {
			return t.writeError(err)
		}
	}
	return nil
}

// tell says how far the download is.
func (t *transfer) tell() {
	if t.req.Progress != nil {
		t.req.Progress(Progress{HeldBytes: t.held, SizeBytes: t.req.Size})
	}
}

// abandon cleans up after a transfer that failed for err, and returns it.
func (t *transfer) abandon(err error) error {
	if t.file != nil {
		err = errors.Join(err, t.file.Close())
	}
	// After a failed fsync the page cache may say what the disk does not: a
	// resume would hash good bytes that are not there.
	if errors.As(err, new(*vfs.SyncError)) {
		err = errors.Join(err, Forget(t.req.FS, t.req.Part))
	}
	return err
}

func (t *transfer) writeError(err error) error {
	return fmt.Errorf("peerdl: write %s on %s: %w", t.req.Part, t.req.FS, err)
}
