package node

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/stream"
)

// consumer consumes one partition: one goroutine that owns the feed and the
// runs of its segments. Usually there is one run that appends, and for a moment
// at each roll-over the one before it, which seals, commits or fetches. It
// follows the driving contract of commit.Replica.
type consumer struct {
	n   *Node
	log zerolog.Logger
	key meta.PartitionKey

	calls   chan func()   // results of effects, run by the owner
	changed chan struct{} // of capacity 1: there is a newer image
	effects sync.WaitGroup

	// Owned by the goroutine of work.
	source   stream.Source
	feed     *feed // the partition's; the run that appends has it
	runs     map[int64]*run
	past     int64 // segments below it have ended here, whatever an older image says
	rollOver rollOver
	lag      lag

	mu   sync.Mutex
	view []api.ConsumingView // what GET /partitions shows
}

// rollOver measures one: how long the reader waited for room between the end
// of a segment and the first row of its successor.
type rollOver struct {
	under   bool
	blocked time.Duration
}

// lag is since when the consumer has been behind the end of the stream.
type lag struct{ since time.Duration }

// seconds is for how long that is, 0 while it is not behind.
func (l *lag) seconds(now time.Duration, rows int64) float64 {
	switch {
	case rows == 0:
		l.since = 0
	case l.since == 0:
		l.since = now
	}
	if l.since == 0 {
		return 0
	}
	return (now - l.since).Seconds()
}

func newConsumer(n *Node, key meta.PartitionKey) *consumer {
	return &consumer{
		n: n, key: key, calls: make(chan func(), 64), changed: make(chan struct{}, 1), runs: map[int64]*run{},
		log: n.component("consumer").With().Stringer("table", key.Table).Int32("partition", key.Partition).Logger(),
	}
}

// now is the monotonic time that the machines see.
func (c *consumer) now() time.Duration { return c.n.now() }

// post has do run by the owner. It is only called from effects, which the
// owner waits for before it goes.
func (c *consumer) post(do func()) { c.calls <- do }

// imageChanged says that the node has a newer image.
func (c *consumer) imageChanged() { notify(c.changed) }

// work consumes until ctx ends, or until nothing of the partition is this
// node's to consume.
func (c *consumer) work(ctx context.Context) {
	defer c.stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	always := make(chan struct{}) // ready whenever it is waited for
	close(always)
	c.review(ctx)
	for {
		more := false
		for _, r := range c.sorted() {
			more = r.pump() || more
		}
		c.sweep()
		c.publish()
		if len(c.runs) == 0 && !c.wanted() {
			return
		}
		var again <-chan struct{}
		if more {
			again = always
		} else {
			timer.Reset(c.untilTimer())
		}
		select {
		case <-ctx.Done():
			return
		case do := <-c.calls:
			do()
		case <-c.changed:
			c.review(ctx)
		case <-c.feedSignal():
		case <-timer.C:
		case <-again:
		}
		c.tick()
	}
}

// sorted lists the runs by sequence, the older first: what they hand over the
// younger can have at once.
func (c *consumer) sorted() []*run {
	return slices.SortedFunc(maps.Values(c.runs), func(a, b *run) int { return cmp.Compare(a.seg.Seq, b.seg.Seq) })
}

// feedSignal is that of the feed that the consumer waits for. A private one is
// looked at with the timer.
func (c *consumer) feedSignal() <-chan struct{} {
	if c.feed == nil {
		return nil
	}
	return c.feed.signal
}

// privatePoll is how often private feeds are looked at: rebuilding is rare.
const privatePoll = 10 * time.Millisecond

// untilTimer is how long until the first deadline of a run.
func (c *consumer) untilTimer() time.Duration {
	wait := time.Minute
	for _, r := range c.runs {
		if r.timer != commit.NoTimer {
			wait = min(wait, max(0, r.timer-c.now()))
		}
		if r.private {
			wait = min(wait, privatePoll)
		}
	}
	return wait
}

// tick lets the machines whose moment has come see it.
func (c *consumer) tick() {
	for _, r := range c.sorted() {
		if r.timer != commit.NoTimer && c.now() >= r.timer {
			r.step(commit.Tick{})
		}
	}
}

// review compares the runs with the image: records that changed are handed in,
// and the segment that is consuming gets its run as soon as its predecessor
// lets it.
func (c *consumer) review(ctx context.Context) {
	im := c.n.currentImage()
	for _, r := range c.sorted() {
		r.step(commit.ImageChanged{Record: c.record(im, r.seg.SegmentKey())})
	}
	c.startNext(ctx, im)
}

// record is what the image says about a segment. That it is not ours any more
// is believed only of an image that has caught up.
func (c *consumer) record(im *meta.Image, k meta.SegmentKey) commit.Record {
	rec := commit.Record{LeaderEpoch: im.Epoch(), Mine: true}
	s := im.Segment(k)
	if s == nil || s.Status == meta.SegmentLost {
		rec.Mine = !c.n.caughtUp()
		return rec
	}
	rec.Mine = slices.Contains(s.Replicas, c.n.cfg.ID) || !c.n.caughtUp()
	rec.Done, rec.End, rec.Digest, rec.Committer = s.Status == meta.SegmentDone, s.End, s.Digest, s.Committer
	rec.EndRequested, rec.Attempt = s.EndRequested != nil, s.Attempt
	return rec
}

// wanted reports whether the image names this node for the partition's
// consuming segment.
func (c *consumer) wanted() bool {
	s := c.n.currentImage().InProgress(c.key)
	return s != nil && slices.Contains(s.Replicas, c.n.cfg.ID)
}

// startNext makes the run of the IN_PROGRESS segment.
func (c *consumer) startNext(ctx context.Context, im *meta.Image) {
	s := im.InProgress(c.key)
	if s == nil || s.Seq < c.past || c.runs[s.Seq] != nil || !slices.Contains(s.Replicas, c.n.cfg.ID) {
		return
	}
	for _, before := range c.runs {
		if !before.told && !before.m.Over() {
			return // it still has the feed
		}
	}
	t, cfg := im.Table(s.Table), im.TableConfig(s.Table, s.ConfigVersion)
	if t == nil || cfg == nil {
		c.log.Error().Str("segment", s.Name).Int("version", s.ConfigVersion).Msg("the image lacks the table or the version of its configuration that the segment names")
		return
	}
	if c.source == nil {
		source, err := c.n.streams.Source(cfg.Config.Stream)
		if err != nil {
			source = brokenSource{err}
		}
		c.source = source
	}
	r := &run{c: c, seg: s, cfg: &cfg.Config, table: t.Name, timer: commit.NoTimer}
	r.ctx, r.cancel = context.WithCancel(ctx)
	r.m = commit.NewReplica(commit.ReplicaConfig{
		Key:     commit.Key{Table: s.Table, Partition: s.Partition, Seq: s.Seq},
		Segment: s.Name, Instance: c.n.cfg.ID, Incarnation: c.n.incarnation(), StoreID: c.n.store.StoreID(),
		StreamEpoch: s.StreamEpoch, Start: s.Start,
		MaxRows: cfg.Config.Segment.MaxRows, MaxBytes: int64(cfg.Config.Segment.MaxBytes), MaxAge: time.Duration(cfg.Config.Segment.MaxAge),
		Timing:     commit.Timing{Hold: time.Duration(cfg.Config.Completion.HoldTime), CommitTimeout: time.Duration(cfg.Config.Completion.CommitTimeout)},
		Download:   cfg.Config.Completion.Mode == meta.CompletionDownload,
		UploadWait: uploadWait(&cfg.Config), Attempt: s.Attempt,
	})
	c.runs[s.Seq] = r
	c.attach(r, s.Start)
	r.openBuilder()
	c.n.copies.claim(s.SegmentKey())
	c.log.Info().Str("segment", s.Name).Int64("offset", s.Start).Msg("consuming")
	r.step(commit.ImageChanged{Record: c.record(im, s.SegmentKey())})
}

func uploadWait(cfg *meta.Config) time.Duration {
	if cfg.DeepStore == nil {
		return 0
	}
	return time.Duration(cfg.DeepStore.UploadWait)
}

// attach gives the partition's feed to a run, standing exactly at offset: as it
// is if it stands there, else opened anew.
func (c *consumer) attach(r *run, offset int64) {
	if c.feed != nil {
		c.feed.skipTo(offset)
		if !c.feed.standsAt(offset) {
			c.rollOver.blocked -= c.feed.blockedFor() // the next feed counts from zero
			c.feed.close()
			c.feed = nil
		}
	}
	if c.feed == nil {
		c.feed = c.openFeed(c.n.life, offset)
	}
	r.feed, r.private, r.feedEnded = c.feed, false, false
	c.endRollOver()
}

func (c *consumer) openFeed(ctx context.Context, offset int64) *feed {
	return startFeed(ctx, c.source, c.key.Partition, offset)
}

// handOver takes the partition's feed from a run that does not need it any more.
func (c *consumer) handOver(r *run) {
	if !r.private {
		r.feed = nil
	}
	c.beginRollOver()
}

func (c *consumer) beginRollOver() {
	if c.feed != nil && !c.rollOver.under {
		c.rollOver = rollOver{under: true, blocked: c.feed.blockedFor()}
	}
}

func (c *consumer) endRollOver() {
	if c.rollOver.under {
		c.n.metrics.rollOverPause.Observe((c.feed.blockedFor() - c.rollOver.blocked).Seconds())
		c.rollOver = rollOver{}
	}
}

// sweep drops the runs that are over and whose effects have come back.
func (c *consumer) sweep() {
	for seq, r := range c.runs {
		if !r.m.Over() {
			continue
		}
		r.cancel()
		if r.pending > 0 {
			continue
		}
		r.freeRows()
		delete(c.runs, seq)
		if r.told { // COMMIT_SUCCESS is often here before the image that shows it
			c.past = max(c.past, seq+1)
		}
		c.n.copies.unclaim(r.seg.SegmentKey())
		c.imageChanged() // the successor may be waiting for this one to go
	}
}

// stop ends everything under way and waits for it.
func (c *consumer) stop() {
	for _, r := range c.runs {
		r.cancel()
	}
	ended := make(chan struct{})
	go func() { c.effects.Wait(); close(ended) }()
	for waiting := true; waiting; {
		select {
		case <-c.calls: // what it would have done is of no use now
		case <-ended:
			waiting = false
		}
	}
	for _, r := range c.runs {
		r.freeRows()
		c.n.copies.unclaim(r.seg.SegmentKey())
	}
	if c.feed != nil {
		c.feed.close()
	}
}

// publish renews what GET /partitions shows.
func (c *consumer) publish() {
	var views []api.ConsumingView
	for _, r := range c.sorted() {
		v := api.ConsumingView{
			Table: r.table, Partition: c.key.Partition, Segment: r.seg.Name, Seq: r.seg.Seq, State: r.m.State().String(),
			Start: r.seg.Start, Offset: r.m.Position(), Rows: r.m.Rows(), Bytes: r.m.Bytes(), LastError: r.m.LastError(),
		}
		if c.feed != nil {
			v.StreamEnd, _, _ = c.feed.state()
			v.LagRows = max(0, v.StreamEnd-v.Offset)
			v.LagSeconds = c.lag.seconds(c.now(), v.LagRows)
		}
		views = append(views, v)
	}
	c.mu.Lock()
	c.view = views
	c.mu.Unlock()
}

func (c *consumer) views() []api.ConsumingView {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.view
}

// brokenSource is a stream that cannot be opened: its error comes out where
// those of reading do, and becomes the segment's last error.
type brokenSource struct{ err error }

func (b brokenSource) Partitions(context.Context) ([]stream.Partition, error) { return nil, b.err }

func (b brokenSource) Open(context.Context, int32, int64) (stream.Reader, error) { return nil, b.err }
