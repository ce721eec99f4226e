package node

import (
	"slices"
	"time"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/meta"
)

// Consumption decides how a node consumes one partition, pure: which segment has
// a run, which run has the partition's feed, and what each run's machine
// (commit.Replica) hears of both. Usually there is one run that appends, and for
// a moment at each roll-over the one before it, which seals, commits or fetches.
// It follows the driving contract of commit.Replica.
//
// Its parts, by subject: the runs (consumption_run.go), and the feeds and their
// rows (consumption_feed.go).
type Consumption struct {
	cfg ConsumptionConfig

	image       *meta.Image
	caughtUp    bool
	incarnation int64
	next        *meta.Segment // IN_PROGRESS and this node's to consume, as the image has it; nil: none
	past        int64         // segments below it have ended here, whatever an older image says

	runs     []*consumptionRun // by sequence, the older first
	lastRun  uint64
	feed     *feedStanding   // the partition's; the run that appends has it
	feeds    []*feedStanding // it and the private ones, by number
	lastFeed FeedID
	rollOver bool // nobody takes the rows of the partition's feed

	reading []Reading // what Reading returned last
	now     time.Duration
	out     []ConsumptionAction
}

// NewConsumption returns the machine of a partition that nothing is known of yet.
func NewConsumption(cfg ConsumptionConfig) *Consumption {
	return &Consumption{cfg: cfg, image: meta.Empty()}
}

// Step takes an event and returns what is to be done about it, in order.
func (c *Consumption) Step(now time.Duration, ev ConsumptionEvent) []ConsumptionAction {
	c.now, c.out = now, nil
	switch ev := ev.(type) {
	case ImageSeen:
		c.imageSeen(ev)
	case FeedMoved:
		c.feedMoved(ev)
	case EffectDone:
		c.effectDone(ev)
	case BuilderFailed:
		c.builderFailed(ev)
	case ConsumptionTick:
	}
	c.tick()
	c.sweep()
	c.startNext() // its predecessor may have let it, or gone
	c.limitFeeds()
	return c.out
}

func (c *Consumption) do(a ConsumptionAction) { c.out = append(c.out, a) }

// Timer returns the first deadline of a run.
func (c *Consumption) Timer() (at time.Duration, ok bool) {
	at = commit.NoTimer
	for _, r := range c.runs {
		at = min(at, r.timer)
	}
	return at, at != commit.NoTimer
}

// Done reports whether nothing of the partition is this node's to consume.
func (c *Consumption) Done() bool { return len(c.runs) == 0 && c.next == nil }

// Runs returns how the runs stand, the older first.
func (c *Consumption) Runs() []RunView {
	var views []RunView
	for _, r := range c.runs {
		v := RunView{
			Segment: r.seg, Run: r.id, Table: r.table, State: r.m.State(),
			Position: r.m.Position(), Rows: r.m.Rows(), Bytes: r.m.Bytes(), LastError: r.m.LastError(),
		}
		if c.feed != nil {
			v.StreamEnd = c.feed.end
		}
		views = append(views, v)
	}
	return views
}

// tick lets the machines whose moment has come see it.
func (c *Consumption) tick() {
	for _, r := range c.runs {
		if c.now >= r.timer {
			c.step(r, commit.Tick{})
		}
	}
}

// imageSeen compares the runs with the image: their records are handed in, and
// the segment that is consuming gets its run as soon as its predecessor lets it.
func (c *Consumption) imageSeen(ev ImageSeen) {
	c.image, c.caughtUp, c.incarnation = ev.Image, ev.CaughtUp, ev.Incarnation
	c.next = c.image.InProgress(c.cfg.Key)
	if c.next != nil && !slices.Contains(c.next.Replicas, c.cfg.Node) {
		c.next = nil
	}
	for _, r := range c.runs {
		c.step(r, commit.ImageChanged{Record: c.record(r.seg.SegmentKey())})
	}
	if s := c.next; s != nil && c.mayStart(s) {
		if table, _ := c.configOf(s); table == "" {
			c.do(ConfigMissing{s})
		}
	}
}

// record is what the image says about a segment. That it is not ours any more
// is believed only of an image that has caught up.
func (c *Consumption) record(k meta.SegmentKey) commit.Record {
	rec := commit.Record{LeaderEpoch: c.image.Epoch(), Mine: true, Incarnation: c.incarnation}
	s := c.image.Segment(k)
	if s == nil || s.Status == meta.SegmentLost {
		rec.Mine = !c.caughtUp
		return rec
	}
	rec.Mine = slices.Contains(s.Replicas, c.cfg.Node) || !c.caughtUp
	rec.Done, rec.End, rec.Digest, rec.Committer = s.Status == meta.SegmentDone, s.End, s.Digest, s.Committer
	rec.EndRequested, rec.Attempt = s.EndRequested != nil, s.Attempt
	return rec
}

// configOf finds the name of the segment's table, and the version of its
// configuration that the segment names; none if the image lacks either.
func (c *Consumption) configOf(s *meta.Segment) (table string, _ *meta.Config) {
	t, cfg := c.image.Table(s.Table), c.image.TableConfig(s.Table, s.ConfigVersion)
	if t == nil || cfg == nil {
		return "", nil
	}
	return t.Name, &cfg.Config
}

// mayStart reports whether the segment is to have a run and has none yet.
func (c *Consumption) mayStart(s *meta.Segment) bool {
	if c.incarnation == 0 || s.Seq < c.past {
		return false
	}
	for _, before := range c.runs {
		if before.seg.Seq == s.Seq {
			return false
		}
		if !before.told && !before.m.Over() {
			return false // it still has the feed
		}
	}
	return true
}

// startNext makes the run of the IN_PROGRESS segment.
func (c *Consumption) startNext() {
	s := c.next
	if s == nil || !c.mayStart(s) {
		return
	}
	table, cfg := c.configOf(s)
	if cfg == nil {
		return
	}
	c.lastRun++
	r := &consumptionRun{
		id: c.lastRun, seg: s, table: table, cfg: cfg, timer: commit.NoTimer,
		m: commit.NewReplica(c.replicaConfig(s, cfg)),
	}
	c.runs = append(c.runs, r)
	slices.SortFunc(c.runs, bySequence)
	c.attach(r, s.Start)
	c.openBuilder(r)
	c.do(Claim{s.SegmentKey()})
	c.step(r, commit.ImageChanged{Record: c.record(s.SegmentKey())})
}

// sweep ends the runs that are over, and drops those whose effects have come
// back.
func (c *Consumption) sweep() {
	c.runs = slices.DeleteFunc(c.runs, func(r *consumptionRun) bool {
		if !r.m.Over() {
			return false
		}
		c.end(r)
		if r.pending > 0 {
			return false
		}
		if r.told { // COMMIT_SUCCESS is often here before the image that shows it
			c.past = max(c.past, r.seg.Seq+1)
		}
		c.do(Unclaim{r.seg.SegmentKey()})
		return true
	})
	if c.Done() && c.feed != nil {
		c.close(c.feed)
		c.feed, c.rollOver = nil, false
	}
}
