package metalog

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
)

const (
	// fetchIdle is how long a leader may send nothing beyond the poll it was
	// granted; bytes that arrive start it anew.
	fetchIdle = 10 * time.Second
	// fetchPath is where a controller serves its log.
	fetchPath = "/metadata/log"
)

// FollowerConfig is what a Follower needs. Zero values of the optional fields mean
// their defaults.
type FollowerConfig struct {
	FS  vfs.FS
	Dir string // of the cache, below FS
	// Cluster is the id that the log must have; zero: that of the first batch.
	Cluster uuid.UUID
	// Find asks around for the leader. It is called again after whatever went
	// wrong, with back-off in between.
	Find func(ctx context.Context) (LeaderRef, error)
	// Deliver gets each new image and the keys that its batches touched since the
	// last one, in order, from the goroutine of Run, which waits for it. The first
	// call of a Run has nil keys and means everything.
	Deliver func(im *meta.Image, touched []meta.Key)
	Rand    *rand.Rand // of the back-off; Run's own
	Client  *httpx.Client
	Logger  zerolog.Logger

	// Optional.
	Metrics    *Metrics
	FileBytes  int64         // of the cache's files
	Poll       time.Duration // how long the leader may hold a fetch; 5 s
	BackOffMin time.Duration // 100 ms
	BackOffMax time.Duration // 5 s
}

// Follower keeps a copy of the leader's log on disk and its image in memory. The
// decisions are in follower_machine.go; this is the goroutine that acts on them, one
// effect after another.
type Follower struct {
	cfg     FollowerConfig
	log     zerolog.Logger
	metrics *Metrics
	cache   *Log

	mu      sync.Mutex
	machine *follow // guarded by mu, stepped only by Run
}

// FollowerStatus is what a follower is doing, for people and for readiness.
type FollowerStatus struct {
	State  FollowState
	Leader LeaderRef
	// Applied is the offset after the last batch of the image; LeaderHighWatermark
	// the newest that a leader has named.
	Applied, LeaderHighWatermark int64
	// Err is why it waits; nil when all is well.
	Err error
	// Snapshot is what it needs, in NEEDS_SNAPSHOT.
	Snapshot *SnapshotRef
}

// OpenFollower opens the cache in cfg.Dir and loads its image. A cache that is
// damaged, or whose beginning is gone, is set aside as <dir>.corrupt and an empty one
// begun: everything in it can be fetched again. One of another cluster is refused.
func OpenFollower(cfg FollowerConfig) (*Follower, error) {
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics(nil)
	}
	f := &Follower{cfg: cfg, metrics: cfg.Metrics, log: cfg.Logger.With().Str("component", "follower").Logger()}
	cache, im, err := f.openCache()
	if err != nil && worthless(err) {
		f.log.Error().Err(err).Str("dir", cfg.Dir).Msg("the cache of the metadata log is set aside; fetching all of it again")
		if err := f.setAside(); err != nil {
			return nil, err
		}
		cache, im, err = f.openCache()
	}
	if err != nil {
		return nil, err
	}
	if c := im.Cluster(); c != nil && cfg.Cluster != uuid.Nil && c.ID != cfg.Cluster {
		return nil, errors.Join(fmt.Errorf("metalog: %s is a cache of cluster %s, not of %s", cfg.Dir, c.ID, cfg.Cluster), cache.Close())
	}
	f.cache = cache
	timing := followTiming{
		poll:       cmp.Or(cfg.Poll, fetchWaitMax),
		backOffMin: cmp.Or(cfg.BackOffMin, 100*time.Millisecond),
		backOffMax: cmp.Or(cfg.BackOffMax, 5*time.Second),
	}
	f.machine = newFollow(timing, cfg.Rand, cfg.Cluster, cache.Position(), im)
	return f, nil
}

func (f *Follower) openCache() (*Log, *meta.Image, error) {
	l, err := OpenLog(f.cfg.FS, LogOptions{Dir: f.cfg.Dir, FileBytes: f.cfg.FileBytes, Logger: f.cfg.Logger, Metrics: f.metrics})
	if err != nil {
		return nil, nil, err
	}
	im, err := Replay(l, meta.Empty())
	if err != nil {
		return nil, nil, errors.Join(err, l.Close())
	}
	return l, im, nil
}

// worthless tells a cache that cannot be used from a disk that cannot be read.
func worthless(err error) bool {
	var (
		corrupt   *CorruptionError
		format    *FormatError
		missing   *SnapshotMissingError
		invariant *meta.InvariantError
	)
	return errors.As(err, &corrupt) || errors.As(err, &format) || errors.As(err, &missing) ||
		errors.As(err, &invariant) || errors.Is(err, meta.ErrMalformed)
}

// setAside keeps what is left for whoever wants to know what happened; one is enough.
func (f *Follower) setAside() error {
	aside := f.cfg.Dir + ".corrupt"
	if err := f.cfg.FS.RemoveAll(aside); err != nil {
		return fmt.Errorf("metalog: set aside %s: %w", f.cfg.Dir, err)
	}
	if err := f.cfg.FS.Rename(f.cfg.Dir, aside); err != nil {
		return fmt.Errorf("metalog: set aside %s: %w", f.cfg.Dir, err)
	}
	if err := f.cfg.FS.SyncDir(path.Dir(f.cfg.Dir)); err != nil {
		return fmt.Errorf("metalog: set aside %s: %w", f.cfg.Dir, err)
	}
	return nil
}

// Image is the newest image whose batches are durable here.
func (f *Follower) Image() *meta.Image {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.machine.image
}

// Status says how it goes.
func (f *Follower) Status() FollowerStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.machine
	return FollowerStatus{
		State: m.state, Leader: m.leader, Applied: m.image.Next(), LeaderHighWatermark: m.leaderHW,
		Err: m.lastErr, Snapshot: m.snapshot,
	}
}

// Run follows until ctx ends, and then returns nil. Whatever goes wrong elsewhere is
// waited out and shown by Status; the error is that of a cache whose state is unknown
// after a failed fsync, when the process must stop. It is called once.
func (f *Follower) Run(ctx context.Context) error {
	f.cfg.Deliver(f.Image(), nil)
	for ev := followEvent(evStart{}); ; {
		for _, a := range f.step(ev) {
			if d, ok := a.(actDeliver); ok {
				f.cfg.Deliver(d.image, d.touched)
				continue
			}
			var err error
			if ev, err = f.perform(ctx, a); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// step steps the machine and reports a change of its state.
func (f *Follower) step(ev followEvent) []followAction {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, errBefore := f.machine.state, f.machine.lastErr
	actions := f.machine.step(time.Now(), ev)
	m := f.machine
	f.metrics.followerLag.Set(float64(m.leaderHW - m.image.Next()))
	if m.state == before {
		return actions
	}
	switch m.state {
	case FollowFault, FollowNeedsSnapshot:
		f.metrics.followerFaults.Inc()
		f.log.Error().Err(m.lastErr).Str("state", string(m.state)).Int64("offset", m.end.Offset).
			Msg("cannot follow the leader's log; the image stays as it is")
	case FollowWaiting:
		if m.lastErr != nil && errBefore == nil {
			f.log.Warn().Err(m.lastErr).Int64("offset", m.end.Offset).Msg("fetch failed; trying again")
		}
	}
	return actions
}

// perform does one effect and returns what came of it.
func (f *Follower) perform(ctx context.Context, a followAction) (followEvent, error) {
	switch a := a.(type) {
	case actFind:
		leader, err := f.cfg.Find(ctx)
		if err != nil {
			return evNoLeader{err}, nil
		}
		return evLeader{leader}, nil
	case actFetch:
		return f.fetch(ctx, a), nil
	case actStore:
		err := f.cache.AppendEntries(ctx, a.entries)
		return evStored{err}, fatal(err)
	case actTruncate:
		err := f.cache.Truncate(a.to)
		return evTruncated{a.to, err}, fatal(err)
	case actWait:
		timer := time.NewTimer(time.Until(a.until))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		return evTick{}, nil
	}
	panic(fmt.Sprintf("metalog: follower cannot do a %T", a))
}

// fatal is err if the cache's state is unknown.
func fatal(err error) error {
	if errors.Is(err, ErrPoisoned) || errors.Is(err, ErrClosed) {
		return err
	}
	return nil
}

// fetch asks the leader once.
func (f *Follower) fetch(ctx context.Context, a actFetch) followEvent {
	answer, err := f.get(ctx, a)
	if err == nil {
		f.metrics.fetches.WithLabelValues(answer.kind()).Inc()
		return evFetched{answer}
	}
	f.metrics.fetches.WithLabelValues("failed").Inc()
	failed := evFetchFailed{err: err}
	if e := (*httpx.Error)(nil); errors.As(err, &e) {
		failed.code = e.Code
	}
	return failed
}

func (a *fetched) kind() string {
	switch {
	case a.snapshot != nil:
		return "snapshot"
	case a.diverging != nil:
		return "diverging"
	case len(a.frames) == 0:
		return "empty"
	}
	return "frames"
}

func (f *Follower) get(ctx context.Context, a actFetch) (fetched, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(a.query.maxWait+fetchIdle, func() { cancel(errIdle) })
	defer idle.Stop()
	url := strings.TrimSuffix(a.url, "/") + fetchPath + "?" + a.query.values().Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fetched{}, fmt.Errorf("metalog: fetch: %w", err)
	}
	res, err := f.cfg.Client.Do(req)
	if err != nil {
		return fetched{}, fmt.Errorf("metalog: fetch from %s: %w", a.url, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(&progressReader{res.Body, idle}, answerBytesMax+1))
	if err != nil {
		return fetched{}, fmt.Errorf("metalog: fetch from %s: %w", a.url, cmp.Or(context.Cause(ctx), err))
	}
	if len(body) > answerBytesMax {
		return fetched{}, fmt.Errorf("metalog: fetch from %s: the answer is larger than %d bytes", a.url, answerBytesMax)
	}
	answer, err := parseAnswer(a.url, res.Header, body)
	if err != nil {
		return fetched{}, fmt.Errorf("metalog: fetch from %s: %w", a.url, err)
	}
	return answer, nil
}

// answerBytesMax is the most that a leader may send: what is asked for at most, or
// one frame.
const answerBytesMax = fetchBytesMax + MaxFramePayload + frameOverhead

var errIdle = errors.New("nothing came for too long")

// progressReader starts the idle timer anew with whatever arrives.
type progressReader struct {
	r    io.Reader
	idle *time.Timer
}

func (p *progressReader) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	if n > 0 {
		p.idle.Reset(fetchIdle)
	}
	return n, err
}

// parseAnswer reads headers and body of a 200.
func parseAnswer(url string, h http.Header, body []byte) (fetched, error) {
	epoch, err := strconv.ParseInt(h.Get(HeaderLeaderEpoch), 10, 64)
	if err != nil {
		return fetched{}, fmt.Errorf("header %s: %w", HeaderLeaderEpoch, err)
	}
	hw, err := strconv.ParseInt(h.Get(HeaderHighWatermark), 10, 64)
	if err != nil {
		return fetched{}, fmt.Errorf("header %s: %w", HeaderHighWatermark, err)
	}
	a := fetched{leader: LeaderRef{URL: cmp.Or(h.Get(HeaderLeader), url), Epoch: epoch}, highWatermark: hw}
	switch t, _, _ := mime.ParseMediaType(h.Get("Content-Type")); t {
	case ContentTypeFrames:
		a.frames = body
		return a, nil
	case "application/json":
		var r fetchRedirect
		if err := json.Unmarshal(body, &r); err != nil {
			return fetched{}, fmt.Errorf("answer: %w", err)
		}
		if (r.Snapshot == nil) == (r.Diverging == nil) {
			return fetched{}, errors.New("answer: neither frames nor exactly one of snapshot and diverging")
		}
		a.snapshot, a.diverging = r.Snapshot, r.Diverging
		return a, nil
	default:
		return fetched{}, fmt.Errorf("answer of unknown type %q", t)
	}
}

// Close closes the cache. It is idempotent and comes after Run has returned.
func (f *Follower) Close() error { return f.cache.Close() }
