package node

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/stream"
)

// consumer is the shell of Consumption: one goroutine that owns the machine, the
// feeds and the builders of one partition. It hands in what happens, carries out
// the actions, and carries rows from feeds to builders. Effects that take long
// run beside it and come back as events.
type consumer struct {
	n   *Node
	log zerolog.Logger
	key meta.PartitionKey

	results chan ConsumptionEvent // of effects
	changed chan struct{}         // of capacity 1: there is a newer image
	effects sync.WaitGroup

	// Owned by the goroutine of work.
	machine *Consumption
	source  stream.Source
	feeds   map[FeedID]*feed
	shared  FeedID // the partition's own
	runs    map[meta.SegmentKey]*run
	blocked time.Duration // of the feed when the roll-over began
	lag     lag

	mu   sync.Mutex
	view []api.ConsumingView // what GET /partitions shows
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
		n: n, key: key, results: make(chan ConsumptionEvent, 64), changed: make(chan struct{}, 1),
		machine: NewConsumption(ConsumptionConfig{Node: n.cfg.ID, StoreID: n.store.StoreID(), Key: key}),
		feeds:   map[FeedID]*feed{}, runs: map[meta.SegmentKey]*run{},
		log: n.component("consumer").With().Stringer("table", key.Table).Int32("partition", key.Partition).Logger(),
	}
}

// now is the monotonic time that the machines see.
func (c *consumer) now() time.Duration { return c.n.now() }

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
	c.step(c.n.imageSeen())
	for {
		more := c.pump()
		c.publish()
		if c.machine.Done() {
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
		case ev := <-c.results:
			c.lookAtFeeds()
			c.step(ev)
		case <-c.changed:
			c.lookAtFeeds()
			c.step(c.n.imageSeen())
		case <-c.feedSignal():
		case <-timer.C:
			c.step(ConsumptionTick{})
		case <-again:
		}
	}
}

// feedSignal is that of the partition's feed. A private one is looked at with
// the timer.
func (c *consumer) feedSignal() <-chan struct{} {
	if f := c.feeds[c.shared]; f != nil {
		return f.signal
	}
	return nil
}

// privatePoll is how often private feeds are looked at: rebuilding is rare.
const privatePoll = 10 * time.Millisecond

// untilTimer is how long until the first deadline.
func (c *consumer) untilTimer() time.Duration {
	wait := time.Minute
	if at, ok := c.machine.Timer(); ok {
		wait = min(wait, max(0, at-c.now()))
	}
	for id := range c.feeds {
		if id != c.shared {
			wait = min(wait, privatePoll)
		}
	}
	return wait
}

// step hands in an event, and carries out the actions. It reports whether there
// were any.
func (c *consumer) step(ev ConsumptionEvent) (acted bool) {
	for events := []ConsumptionEvent{ev}; len(events) > 0; events = events[1:] {
		for _, a := range c.machine.Step(c.now(), events[0]) {
			acted = true
			if failed := c.perform(a); failed != nil {
				events = append(events, failed)
			}
		}
	}
	return acted
}

// perform carries out an action. What fails at once comes back as an event.
func (c *consumer) perform(a ConsumptionAction) ConsumptionEvent {
	switch a := a.(type) {
	case OpenFeed:
		c.openFeed(a)
	case CloseFeed:
		c.closeFeed(a.Feed)
	case SkipFeed:
		c.feeds[a.Feed].skipTo(a.Offset)
	case LimitFeed:
		c.limitFeed(a)
	case OpenBuilder:
		return c.openBuilder(a)
	case DropBuilder:
		c.runs[a.Segment].dropBuilder()
	case Effect:
		c.runs[a.Segment.SegmentKey()].perform(a.Do)
	case Claim:
		c.n.copies.claim(a.Segment)
	case Unclaim:
		delete(c.runs, a.Segment)
		c.n.copies.unclaim(a.Segment)
	case RollOverBegan:
		c.blocked = c.feeds[a.Feed].blockedFor()
	case RollOverEnded:
		c.n.metrics.rollOverPause.Observe((c.feeds[a.Feed].blockedFor() - c.blocked).Seconds())
	case RunMoved:
		c.runMoved(a)
	case Ended:
		c.runs[a.Segment].cancel()
	case ConfigMissing:
		c.log.Error().Str("segment", a.Segment.Name).Int("version", a.Segment.ConfigVersion).
			Msg("the image lacks the table or the version of its configuration that the segment names")
	}
	return nil
}

func (c *consumer) openFeed(a OpenFeed) {
	if c.source == nil {
		source, err := c.n.streams.Source(a.Config.Stream)
		if err != nil {
			source = brokenSource{err}
		}
		c.source = source
	}
	c.feeds[a.Feed] = startFeed(c.n.life, c.source, c.key.Partition, a.Offset)
	if !a.Private {
		c.shared = a.Feed
	}
}

func (c *consumer) closeFeed(id FeedID) {
	f := c.feeds[id]
	if id == c.shared {
		c.blocked -= f.blockedFor() // the next feed counts from zero
	}
	f.close()
	delete(c.feeds, id)
}

func (c *consumer) limitFeed(a LimitFeed) {
	limit := int64(feedSteady)
	if a.RollOver {
		limit = feedRollOver
	}
	c.feeds[a.Feed].allow(limit)
}

// openBuilder begins a builder, with its run if it is the run's first.
func (c *consumer) openBuilder(a OpenBuilder) ConsumptionEvent {
	k := a.Segment.SegmentKey()
	r := c.runs[k]
	if r == nil {
		r = newRun(c, a)
		c.runs[k] = r
		c.log.Info().Str("segment", a.Segment.Name).Int64("offset", a.Segment.Start).Msg("consuming")
	}
	if err := r.openBuilder(); err != nil {
		return BuilderFailed{Segment: k, Run: r.id, Err: err}
	}
	return nil
}

func (c *consumer) runMoved(a RunMoved) {
	c.log.Info().Str("segment", a.Segment.Name).Stringer("was", a.Was).Stringer("state", a.State).
		Int64("offset", a.Offset).Msg("replica")
	c.n.events.add(a.Segment.SegmentKey(), "state "+a.State.String(), offsetDetail(a.Offset), nil)
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
		case <-c.results: // what would come of it is of no use now
		case <-ended:
			waiting = false
		}
	}
	for k, r := range c.runs {
		r.dropBuilder()
		c.n.copies.unclaim(k)
	}
	for _, f := range c.feeds {
		f.close()
	}
}

// publish renews what GET /partitions shows.
func (c *consumer) publish() {
	var views []api.ConsumingView
	for _, r := range c.machine.Runs() {
		v := api.ConsumingView{
			Table: r.Table, Partition: c.key.Partition, Segment: r.Segment.Name, Seq: r.Segment.Seq, State: r.State.String(),
			Start: r.Segment.Start, Offset: r.Position, Rows: r.Rows, Bytes: r.Bytes, LastError: r.LastError,
			StreamEnd: r.StreamEnd, LagRows: max(0, r.StreamEnd-r.Position),
		}
		v.LagSeconds = c.lag.seconds(c.now(), v.LagRows)
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
