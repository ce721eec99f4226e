package metalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand"
	"path"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
)

// FollowerConfig is what a Follower needs. Zero values of the optional fields mean
// their defaults.
type FollowerConfig struct {
	FS  vfs.FS
	Dir string // of the cache, below FS
	// Cache, if set, is the cache with Image, what it holds, instead of what is in Dir.
	// It stays its owner's, who closes it.
	Cache *Log
	Image *meta.Image
	// Snapshots are beside Cache, if that is set. SnapshotsDir is where they are below FS
	// otherwise; empty: there are none, and the cache has the log from its beginning.
	Snapshots    *Snapshots
	SnapshotsDir string
	// FetchSnapshot brings a snapshot into the Snapshots and returns its image, verified;
	// ErrSnapshotNotFound says that nobody has it any more. What it has brought before it
	// failed, it continues when it is called for the same one again. Nil: a leader that no
	// longer has what comes next is not followed.
	FetchSnapshot func(ctx context.Context, leader LeaderRef, ref SnapshotRef) (*meta.Image, error)
	// Cut, if set, is told of each image that the log asks for a snapshot of. It must not
	// block.
	Cut func(im *meta.Image)
	// Cluster is the id that the log must have; zero: that of the first batch.
	Cluster uuid.UUID
	// Find asks around for the leader. It is called again after whatever went
	// wrong, with back-off in between.
	Find func(ctx context.Context) (LeaderRef, error)
	// Deliver gets each new image and the keys that its batches touched since the
	// last one, in order, from the goroutine of Run, which waits for it. Nil keys mean
	// everything: at the first call of a Run, and when a snapshot has replaced the image.
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
	snaps   *Snapshots // nil without
	opened  time.Time  // the machine's time counts from here

	noDownloads bool // Run's: nothing is left of a download of a snapshot

	mu      sync.Mutex
	machine *FollowerMachine        // guarded by mu, stepped only by Run
	newer   context.CancelCauseFunc // guarded by mu: ends a wait for an older leader, or the pause after one
}

// OpenFollower opens the cache in cfg.Dir and loads its image. A cache that is
// damaged, or whose beginning is gone, is set aside as <dir>.corrupt and an empty one
// begun: everything in it can be fetched again. One of another cluster is refused.
func OpenFollower(cfg FollowerConfig) (*Follower, error) {
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics(nil)
	}
	f := &Follower{cfg: cfg, metrics: cfg.Metrics, opened: time.Now(), log: cfg.Logger.With().Str("component", "follower").Logger()}
	cache, im, err := cfg.Cache, cfg.Image, error(nil)
	if f.snaps = cfg.Snapshots; cache == nil {
		cache, im, err = f.openOrSetAside()
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
	if cfg.FetchSnapshot != nil {
		f.machine.FetchesSnapshots()
	}
	return f, nil
}

// OpenCache opens a cache and the snapshots beside it as OpenFollower does, for whoever
// follows by a FollowerMachine of his own. Of the configuration it takes FS, the
// directories, Cluster, FileBytes, Logger and Metrics. Who opened the cache closes it.
func OpenCache(cfg FollowerConfig) (*Log, *Snapshots, *meta.Image, error) {
	f := &Follower{cfg: cfg, metrics: cfg.Metrics, log: cfg.Logger.With().Str("component", "follower").Logger()}
	cache, im, err := f.openOrSetAside()
	if err != nil {
		return nil, nil, nil, err
	}
	return cache, f.snaps, im, nil
}

// openOrSetAside opens the cache. What cannot be used is set aside: first the log, as
// the newest snapshot may do without it, and if that does not help, the snapshots.
func (f *Follower) openOrSetAside() (cache *Log, im *meta.Image, err error) {
	for _, dir := range []string{f.cfg.Dir, f.cfg.SnapshotsDir, ""} {
		cache, im, err = f.openCache()
		if err == nil || dir == "" || !worthless(err) {
			break
		}
		f.log.Error().Err(err).Str("dir", dir).Msg("the cache of the metadata log is set aside; fetching what is missing again")
		if err := f.setAside(dir); err != nil {
			return nil, nil, err
		}
	}
	return cache, im, err
}

func (f *Follower) openCache() (*Log, *meta.Image, error) {
	l, err := OpenLog(f.cfg.FS, LogOptions{Dir: f.cfg.Dir, FileBytes: f.cfg.FileBytes, Logger: f.cfg.Logger, Metrics: f.metrics})
	if err != nil {
		return nil, nil, err
	}
	im, err := f.recover(l)
	if err != nil {
		return nil, nil, errors.Join(err, l.Close())
	}
	return l, im, nil
}

// recover returns the image at the end of the cache.
func (f *Follower) recover(l *Log) (*meta.Image, error) {
	if f.cfg.SnapshotsDir == "" {
		return Replay(l, meta.Empty())
	}
	snaps, err := OpenSnapshots(f.cfg.FS, f.cfg.SnapshotsDir, f.cfg.Logger)
	if err != nil {
		return nil, err
	}
	f.snaps = snaps
	if f.cfg.Cluster != uuid.Nil {
		if err := snaps.SetAsideOthers(f.cfg.Cluster); err != nil {
			return nil, err
		}
	}
	return Recover(l, snaps, f.cfg.Logger)
}

// Log is the cache. It is the follower's to write to; trimming it is whoever keeps the
// Snapshots'.
func (f *Follower) Log() *Log { return f.cache }

// Snapshots are those beside the cache, nil if there are none.
func (f *Follower) Snapshots() *Snapshots { return f.snaps }

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
func (f *Follower) setAside(dir string) error {
	aside := dir + ".corrupt"
	if err := f.cfg.FS.RemoveAll(aside); err != nil {
		return fmt.Errorf("metalog: set aside %s: %w", dir, err)
	}
	if err := f.cfg.FS.Rename(dir, aside); err != nil {
		return fmt.Errorf("metalog: set aside %s: %w", dir, err)
	}
	if err := f.cfg.FS.SyncDir(path.Dir(dir)); err != nil {
		return fmt.Errorf("metalog: set aside %s: %w", dir, err)
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
			switch a := a.(type) {
			case DeliverImage:
				f.cfg.Deliver(a.Image, a.Touched)
				continue
			case CutSnapshot:
				if f.cfg.Cut != nil {
					f.cfg.Cut(a.Image)
				}
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

// LeaderHeard says that somebody else leads by now, as whoever asked another
// controller has heard: a wait for the leader of an earlier epoch, which may be frozen
// or cut off, ends.
func (f *Follower) LeaderHeard(epoch int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if epoch > f.machine.Status().Leader.Epoch && f.newer != nil {
		f.newer(errNewerEpoch)
	}
}

var errNewerEpoch = errors.New("another controller leads by now")

// untilNewer is ctx until LeaderHeard ends it; over must be called.
func (f *Follower) untilNewer(ctx context.Context) (until context.Context, over func()) {
	until, cancel := context.WithCancelCause(ctx)
	f.setNewer(cancel)
	return until, func() {
		f.setNewer(nil)
		cancel(nil)
	}
}

func (f *Follower) setNewer(cancel context.CancelCauseFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.newer = cancel
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
		if err == nil {
			f.dropDownloads()
		}
		return Stored{err}, fatal(err)
	case TruncateLog:
		err := f.cache.Truncate(a.To)
		return Truncated{a.To, err}, fatal(err)
	case FetchSnapshot:
		f.noDownloads = false
		im, err := f.cfg.FetchSnapshot(ctx, a.Leader, a.Snapshot)
		if vfs.IsSyncError(err) {
			return nil, err // nobody knows what the disk holds
		}
		return SnapshotFetched{Image: im, Err: err}, nil
	case ResetLog:
		err := f.cache.Reset(a.To)
		return LogReset{err}, fatal(err)
	case WaitUntil:
		ctx, over := f.untilNewer(ctx)
		defer over()
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

// dropDownloads lets go of a snapshot that is half here, once the log goes on without it.
func (f *Follower) dropDownloads() {
	if f.snaps == nil || f.noDownloads {
		return
	}
	if _, err := f.snaps.DropDownloads(""); err != nil {
		f.log.Warn().Err(err).Msg("what is left of the download of a snapshot could not be removed; tried again after the next batch")
		return
	}
	f.noDownloads = true
}

// Read returns frames of the cache from an offset on, as Log.Read does, but only of what
// is committed; and where that ends, where there is no frame.
func (f *Follower) Read(offset int64, maxBytes int) (frames []byte, end int64, err error) {
	end = f.Image().Next()
	if offset == end {
		return nil, end, nil
	}
	if frames, err = f.cache.Read(offset, maxBytes); err != nil {
		return nil, end, err
	}
	rest := frames
	for at := offset; at < end && len(rest) > 0; at++ {
		if _, rest, err = NextFrame(rest); err != nil {
			return nil, end, fmt.Errorf("metalog: read: %w", err)
		}
	}
	return frames[:len(frames)-len(rest)], end, nil
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
	ctx, over := f.untilNewer(ctx)
	defer over()
	answer, err := Fetch(ctx, f.cfg.Client, a)
	if err == nil {
		f.metrics.fetches.WithLabelValues(answer.kind()).Inc()
		return Fetched{answer}
	}
	f.metrics.fetches.WithLabelValues("failed").Inc()
	failed := FetchFailed{Err: err}
	if errors.Is(context.Cause(ctx), errNewerEpoch) {
		failed.Code = CodeNotLeader
	}
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

// Close closes the cache. It is idempotent and comes after Run has returned.
func (f *Follower) Close() error {
	if f.cfg.Cache != nil {
		return nil
	}
	return f.cache.Close()
}
