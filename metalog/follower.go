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
	opened  time.Time // the machine's time counts from here

	mu      sync.Mutex
	machine *FollowerMachine // guarded by mu, stepped only by Run
}

// OpenFollower opens the cache in cfg.Dir and loads its image. A cache that is
// damaged, or whose beginning is gone, is set aside as <dir>.corrupt and an empty one
// begun: everything in it can be fetched again. One of another cluster is refused.
func OpenFollower(cfg FollowerConfig) (*Follower, error) {
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics(nil)
	}
	f := &Follower{cfg: cfg, metrics: cfg.Metrics, opened: time.Now(), log: cfg.Logger.With().Str("component", "follower").Logger()}
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
	timing := FollowTiming{
		Poll:       cmp.Or(cfg.Poll, fetchWaitMax),
		BackOffMin: cmp.Or(cfg.BackOffMin, 100*time.Millisecond),
		BackOffMax: cmp.Or(cfg.BackOffMax, 5*time.Second),
	}
	f.machine = NewFollowerMachine(timing, cfg.Rand, cfg.Cluster, cache.Position(), im)
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
	return f.machine.Image()
}

// Status says how it goes.
func (f *Follower) Status() FollowerStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.machine.Status()
}

// Run follows until ctx ends, and then returns nil. Whatever goes wrong elsewhere is
// waited out and shown by Status; the error is that of a cache whose state is unknown
// after a failed fsync, when the process must stop. It is called once.
func (f *Follower) Run(ctx context.Context) error {
	f.cfg.Deliver(f.Image(), nil)
	for ev := FollowEvent(FollowStart{}); ; {
		for _, a := range f.step(ev) {
			if d, ok := a.(DeliverImage); ok {
				f.cfg.Deliver(d.Image, d.Touched)
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
func (f *Follower) step(ev FollowEvent) []FollowAction {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.machine.Status()
	actions := f.machine.Step(time.Since(f.opened), ev)
	st := f.machine.Status()
	f.metrics.followerLag.Set(float64(st.LeaderHighWatermark - st.Applied))
	if st.State == before.State {
		return actions
	}
	offset := f.machine.End().Offset
	switch st.State {
	case FollowFault, FollowNeedsSnapshot:
		f.metrics.followerFaults.Inc()
		f.log.Error().Err(st.Err).Str("state", string(st.State)).Int64("offset", offset).
			Msg("cannot follow the leader's log; the image stays as it is")
	case FollowWaiting:
		if st.Err != nil && before.Err == nil {
			f.log.Warn().Err(st.Err).Int64("offset", offset).Msg("fetch failed; trying again")
		}
	}
	return actions
}

// perform does one effect and returns what came of it.
func (f *Follower) perform(ctx context.Context, a FollowAction) (FollowEvent, error) {
	switch a := a.(type) {
	case FindLeader:
		leader, err := f.cfg.Find(ctx)
		if err != nil {
			return LeaderNotFound{err}, nil
		}
		return LeaderFound{leader}, nil
	case FetchLog:
		return f.fetch(ctx, a), nil
	case StoreEntries:
		err := f.cache.AppendEntries(ctx, a.Entries)
		return Stored{err}, fatal(err)
	case TruncateLog:
		err := f.cache.Truncate(a.To)
		return Truncated{a.To, err}, fatal(err)
	case WaitUntil:
		timer := time.NewTimer(a.At - time.Since(f.opened))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		return FollowTick{}, nil
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
func (f *Follower) fetch(ctx context.Context, a FetchLog) FollowEvent {
	answer, err := f.get(ctx, a)
	if err == nil {
		f.metrics.fetches.WithLabelValues(answer.kind()).Inc()
		return Fetched{answer}
	}
	f.metrics.fetches.WithLabelValues("failed").Inc()
	failed := FetchFailed{Err: err}
	if e := (*httpx.Error)(nil); errors.As(err, &e) {
		failed.Code = e.Code
	}
	return failed
}

func (a *FetchAnswer) kind() string {
	switch {
	case a.Snapshot != nil:
		return "snapshot"
	case a.Diverging != nil:
		return "diverging"
	case len(a.Frames) == 0:
		return "empty"
	}
	return "frames"
}

func (f *Follower) get(ctx context.Context, a FetchLog) (FetchAnswer, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(a.Query.MaxWait+fetchIdle, func() { cancel(errIdle) })
	defer idle.Stop()
	url := strings.TrimSuffix(a.URL, "/") + fetchPath + "?" + a.Query.values().Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return FetchAnswer{}, fmt.Errorf("metalog: fetch: %w", err)
	}
	res, err := f.cfg.Client.Do(req)
	if err != nil {
		return FetchAnswer{}, fmt.Errorf("metalog: fetch from %s: %w", a.URL, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(&progressReader{res.Body, idle}, answerBytesMax+1))
	if err != nil {
		return FetchAnswer{}, fmt.Errorf("metalog: fetch from %s: %w", a.URL, cmp.Or(context.Cause(ctx), err))
	}
	if len(body) > answerBytesMax {
		return FetchAnswer{}, fmt.Errorf("metalog: fetch from %s: the answer is larger than %d bytes", a.URL, answerBytesMax)
	}
	answer, err := parseAnswer(a.URL, res.Header, body)
	if err != nil {
		return FetchAnswer{}, fmt.Errorf("metalog: fetch from %s: %w", a.URL, err)
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
func parseAnswer(url string, h http.Header, body []byte) (FetchAnswer, error) {
	epoch, err := strconv.ParseInt(h.Get(HeaderLeaderEpoch), 10, 64)
	if err != nil {
		return FetchAnswer{}, fmt.Errorf("header %s: %w", HeaderLeaderEpoch, err)
	}
	hw, err := strconv.ParseInt(h.Get(HeaderHighWatermark), 10, 64)
	if err != nil {
		return FetchAnswer{}, fmt.Errorf("header %s: %w", HeaderHighWatermark, err)
	}
	a := FetchAnswer{Leader: LeaderRef{URL: cmp.Or(h.Get(HeaderLeader), url), Epoch: epoch}, HighWatermark: hw}
	switch t, _, _ := mime.ParseMediaType(h.Get("Content-Type")); t {
	case ContentTypeFrames:
		a.Frames = body
		return a, nil
	case "application/json":
		var r fetchRedirect
		if err := json.Unmarshal(body, &r); err != nil {
			return FetchAnswer{}, fmt.Errorf("answer: %w", err)
		}
		if (r.Snapshot == nil) == (r.Diverging == nil) {
			return FetchAnswer{}, errors.New("answer: neither frames nor exactly one of snapshot and diverging")
		}
		a.Snapshot, a.Diverging = r.Snapshot, r.Diverging
		return a, nil
	default:
		return FetchAnswer{}, fmt.Errorf("answer of unknown type %q", t)
	}
}

// Close closes the cache. It is idempotent and comes after Run has returned.
func (f *Follower) Close() error { return f.cache.Close() }
