package metalog

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/meta"
)

// SnapshotterConfig is what a Snapshotter needs. Metrics may be nil.
type SnapshotterConfig struct {
	Log       *Log
	Snapshots *Snapshots
	Clock     func() int64 // milliseconds since the Unix epoch
	Rand      *rand.Rand   // of the jitter; the Snapshotter's own
	Logger    zerolog.Logger
	Metrics   *Metrics

	// Optional.
	Generation GenerationPolicy
	Retention  RetentionPolicy
	// Applied is the offset of the next batch that the local consumer of the log applies;
	// nil: it applies what it has.
	Applied   func() int64
	JitterMax time.Duration // how long a snapshot waits at most; 10 s, none if negative
	// Written, if set, is told of each snapshot that is there now. It may take its time.
	Written func(ctx context.Context, ref SnapshotRef)
}

const (
	// jitterMax spreads the writing of one snapshot by all that make it.
	jitterMax = 10 * time.Second
	// cleanEvery is how often old snapshots are looked at, beside whenever there is a new
	// one; askEvery how often a leader looks whether the next is due.
	cleanEvery = time.Minute
	askEvery   = 10 * time.Second
	// retrySnapshot is how long after a failed one no other is asked for.
	retrySnapshot = 10 * time.Minute
)

// Snapshotter makes the snapshots of one log, where the log asks for them: one at a
// time, from images that nobody changes, while appends and applies go on. It lets go of
// old ones, and of the log before them.
type Snapshotter struct {
	cfg     SnapshotterConfig
	log     zerolog.Logger
	metrics *Metrics
	wake    chan struct{} // of capacity 1

	cleaning sync.Mutex // one Clean at a time

	mu     sync.Mutex
	next   *meta.Image // to make one of, nil: none
	asked  int64       // end offset of the newest that is still to be made, 0: none
	failed int64       // when the last one failed, by the clock
}

// NewSnapshotter returns one that has made nothing yet; Run does.
func NewSnapshotter(cfg SnapshotterConfig) *Snapshotter {
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics(nil)
	}
	if cfg.JitterMax == 0 {
		cfg.JitterMax = jitterMax
	}
	s := &Snapshotter{
		cfg: cfg, metrics: cfg.Metrics, wake: make(chan struct{}, 1),
		log: cfg.Logger.With().Str("component", "snapshotter").Logger(),
	}
	if latest := cfg.Snapshots.Latest(); latest != nil {
		s.show(*latest)
	}
	return s
}

// Cut has a snapshot made of the image, in a while. One that still waits for its turn
// gives way: the later one holds all that it does. It does not block.
func (s *Snapshotter) Cut(im *meta.Image) {
	s.mu.Lock()
	s.next = im
	s.asked = max(s.asked, im.Next())
	s.failed = 0 // this is the next try
	s.mu.Unlock()
	s.signal()
}

// signal tells Run that there is something to do.
func (s *Snapshotter) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// IsDue reports whether it is time to ask for a snapshot: for the leader, who puts that
// into the log.
func (s *Snapshotter) IsDue() (bool, error) {
	now := s.cfg.Clock()
	s.mu.Lock()
	asked, failed := s.asked, s.failed
	s.mu.Unlock()
	g, end, err := s.growth()
	if err != nil {
		return false, err
	}
	if asked > end && failed == 0 || failed > 0 && now-failed < retrySnapshot.Milliseconds() {
		return false, nil // one is on its way, or could not be made just now
	}
	return s.cfg.Generation.IsDue(g, now), nil
}

// growth is what has come since the last snapshot, which ends at end.
func (s *Snapshotter) growth() (g Growth, end int64, err error) {
	log := s.cfg.Log
	end = log.Start()
	latest, h, err := s.latest()
	if err != nil {
		return Growth{}, 0, err
	}
	if latest != nil {
		end, g.Snapshot, g.Since = latest.EndOffset, latest.SizeBytes, h.Time
	} else if end > 0 {
		g.Bare = true
	} else if log.End() > end {
		first, err := log.entryAt(end)
		if err != nil && !errors.As(err, new(*CorruptionError)) {
			return Growth{}, 0, err
		}
		if err == nil {
			g.Since = first.Batch.Time
		}
	}
	g.Batches, g.Bytes, g.Damaged = max(0, log.End()-end), log.bytesFrom(end), log.damagedFrom(end)
	return g, end, nil
}

// latest is the newest snapshot that begins as one. Others are set aside: they are worth
// nothing, and as long as one of them counts as the newest there would be no other.
func (s *Snapshotter) latest() (*SnapshotRef, SnapshotHeader, error) {
	for {
		ref := s.cfg.Snapshots.Latest()
		if ref == nil {
			return nil, SnapshotHeader{}, nil
		}
		h, err := s.cfg.Snapshots.Header(ref.SnapshotID)
		if errors.Is(err, ErrSnapshotNotFound) {
			continue // it has gone, and the one before it is the newest
		}
		if err == nil || !errors.As(err, new(*CorruptionError)) {
			return ref, h, err
		}
		s.log.Error().Err(err).Str("snapshot", ref.String()).Msg("a damaged snapshot is set aside; the one before it counts")
		if err := s.cfg.Snapshots.SetAside(ref.SnapshotID); err != nil {
			return nil, SnapshotHeader{}, err
		}
	}
}

// AskWhenDue has ask put a request for a snapshot into the log whenever one is due,
// until ctx ends: for a leader.
func (s *Snapshotter) AskWhenDue(ctx context.Context, ask func(context.Context) error) {
	ticker := time.NewTicker(askEvery)
	defer ticker.Stop()
	for {
		due, err := s.IsDue()
		if err == nil && due {
			err = ask(ctx)
		}
		if err != nil && ctx.Err() == nil {
			s.log.Warn().Err(err).Msg("no snapshot could be asked for")
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Run makes snapshots until ctx ends. A snapshot that cannot be made is told of, and the
// next one is tried in its turn. One that the end of a Run has cut short the next Run makes.
func (s *Snapshotter) Run(ctx context.Context) {
	ticker := time.NewTicker(cleanEvery)
	defer ticker.Stop()
	s.signal() // what an earlier one has left
	for {
		_, _ = s.Clean(ctx) // it has told of what failed
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			continue
		case <-s.wake:
		}
		if !s.jitter(ctx) {
			return
		}
		ref, err := s.MakeNext(ctx)
		if err == nil && ref != nil && s.cfg.Written != nil {
			s.cfg.Written(ctx, *ref)
		}
	}
}

// MakeNext makes the snapshot that was asked for last, and returns it; nil if none waits.
// With Clean it is what Run does, without the waiting between: for whoever counts time in
// another way. One of the two, or Run, at a time.
func (s *Snapshotter) MakeNext(ctx context.Context) (*SnapshotRef, error) {
	s.mu.Lock()
	im := s.next
	s.next = nil
	s.mu.Unlock()
	if im == nil {
		return nil, nil
	}
	ref, err := s.make(ctx, im)
	if err != nil {
		s.putBack(ctx, im)
		return nil, err
	}
	return &ref, nil
}

// putBack has a snapshot that was cut short by the end of a Run made by the next one.
func (s *Snapshotter) putBack(ctx context.Context, im *meta.Image) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil && s.next == nil {
		s.next = im
	}
}

// Clean lets go of what is old, and returns what went. What fails is tried again the next
// time.
func (s *Snapshotter) Clean(ctx context.Context) ([]SnapshotID, error) {
	s.cleaning.Lock()
	defer s.cleaning.Unlock()
	applied := s.cfg.Log.End()
	if s.cfg.Applied != nil {
		applied = min(applied, s.cfg.Applied())
	}
	gone, err := Clean(ctx, s.cfg.Log, s.cfg.Snapshots, s.cfg.Retention, applied, s.cfg.Clock())
	if err != nil && ctx.Err() == nil {
		s.log.Error().Err(err).Msg("old snapshots could not be let go; tried again in a minute")
	}
	return gone, err
}

// jitter waits for a moment of its own, and reports whether ctx lasts.
func (s *Snapshotter) jitter(ctx context.Context) bool {
	if s.cfg.JitterMax <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(time.Duration(s.cfg.Rand.Int63n(int64(s.cfg.JitterMax))))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// make writes one snapshot.
func (s *Snapshotter) make(ctx context.Context, im *meta.Image) (SnapshotRef, error) {
	began := time.Now()
	ref, err := s.cfg.Snapshots.Write(ctx, im)
	took := time.Since(began)
	switch {
	case err != nil && ctx.Err() != nil:
		return SnapshotRef{}, err
	case err != nil:
		s.mu.Lock()
		s.failed = s.cfg.Clock()
		s.mu.Unlock()
		s.metrics.snapshotFailures.Inc()
		s.log.Error().Err(err).Int64("offset", im.Next()).Msg("no snapshot could be made; the log keeps what it has, and grows")
		return SnapshotRef{}, fmt.Errorf("metalog: snapshot at %d: %w", im.Next(), err)
	}
	s.mu.Lock()
	if s.asked <= ref.EndOffset {
		s.asked = 0 // should it turn out to be damaged, another one is due
	}
	s.mu.Unlock()
	s.metrics.snapshotSeconds.Observe(took.Seconds())
	s.show(ref)
	s.log.Info().Str("snapshot", ref.String()).Int64("bytes", ref.SizeBytes).Int("records", im.Len()).Dur("dur", took).Msg("snapshot made")
	return ref, nil
}

// show puts the newest snapshot into the metrics.
func (s *Snapshotter) show(ref SnapshotRef) {
	s.metrics.snapshotBytes.Set(float64(ref.SizeBytes))
	if h, err := s.cfg.Snapshots.Header(ref.SnapshotID); err == nil {
		s.metrics.snapshotTime.Set(float64(h.Time) / 1000)
	}
}
