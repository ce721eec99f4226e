package node

import (
	"slices"
	"time"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/meta"
)

// feedStanding is what is known of a feed. The reader goes on meanwhile, but
// forwards only: position and fetched are where it is at least.
type feedStanding struct {
	id       FeedID
	position int64
	fetched  int64
	taken    int64
	end      int64
	epoch    string
	waiting  bool
	err      error
	rollOver bool // the limit that was said last
}

// reaches reports whether the next row that comes out of the feed, once the
// waiting rows below offset are dropped, is the first one at or past offset: no
// such row was taken, and none below it is still to be read.
func (f *feedStanding) reaches(offset int64) bool {
	return f.err == nil && f.taken <= offset && offset <= f.fetched
}

// feedMoved takes note of how a feed stands, and tells the run that takes its
// rows.
func (c *Consumption) feedMoved(ev FeedMoved) {
	i := slices.IndexFunc(c.feeds, func(f *feedStanding) bool { return f.id == ev.Feed })
	if i < 0 {
		return // closed meanwhile
	}
	f := c.feeds[i]
	f.position, f.fetched = max(f.position, ev.Position), max(f.fetched, ev.Fetched)
	f.taken, f.end = max(f.taken, ev.Taken), max(f.end, ev.End)
	f.epoch, f.waiting, f.err = ev.Epoch, ev.Waiting, ev.Err
	for _, r := range c.runs {
		if r.feed == f {
			c.fed(r)
			return
		}
	}
}

// fed tells a run's machine how far its feed is, or that it broke, if the machine
// wants rows at all. One that heard that its feed broke wants none before it has
// another.
func (c *Consumption) fed(r *consumptionRun) {
	if !r.takesRows() {
		return
	}
	f := r.feed
	if !r.sameStream() {
		c.step(r, commit.ReaderFailed{Error: r.otherStream()})
		return
	}
	if mark := (fedMark{f.position, f.fetched}); mark != r.fed || r.left {
		r.fed, r.left = mark, false
		c.step(r, commit.Fed{Next: f.position, Fetched: f.fetched})
	}
	if r.feed == f && r.takesRows() && f.err != nil && !f.waiting {
		c.step(r, commit.ReaderFailed{Error: f.err.Error()})
	}
}

// takesRows reports whether the run has what it takes to append, and wants to.
func (r *consumptionRun) takesRows() bool { return r.feed != nil && r.building && r.m.Consuming() }

// Reading returns the runs that take rows now, the older first: what they hand
// over the younger can have at once. The slice is good until the next call.
func (c *Consumption) Reading() []Reading {
	c.reading = c.reading[:0]
	for _, r := range c.runs {
		if r.takesRows() && r.sameStream() {
			c.reading = append(c.reading, Reading{Feed: r.feed.id, Segment: r.seg.SegmentKey(), Run: r.id})
		}
	}
	return c.reading
}

// Offer asks a run that takes rows what becomes of the row at the front of its
// feed. AppendRow, SkipRow: it is taken from the feed, as done with. LeaveRow: it
// stays there with all that follow, until FeedMoved was handed in; what comes of
// that may be that another run takes it. Offer does not allocate.
func (c *Consumption) Offer(now time.Duration, at Reading, offset, rawBytes int64) commit.Verdict {
	r := c.run(at.Run)
	if r == nil || r.feed == nil || r.feed.id != at.Feed || !r.building || offset >= r.feed.fetched {
		return commit.LeaveRow
	}
	verdict := r.m.Offer(now, offset, rawBytes)
	if verdict == commit.LeaveRow {
		r.left = true
		return verdict
	}
	r.feed.taken = offset + 1
	r.feed.position = offset + 1
	return verdict
}

// attach gives the partition's feed to a run, standing exactly at offset: as it
// is if it gets there, else opened anew.
func (c *Consumption) attach(r *consumptionRun, offset int64) {
	switch f := c.feed; {
	case f == nil:
		c.feed = c.open(offset, false, r.cfg)
	case !f.reaches(offset):
		c.close(f)
		c.feed = c.open(offset, false, r.cfg)
	case f.position < offset:
		c.do(SkipFeed{Feed: f.id, Offset: offset})
		f.position = offset
	}
	c.give(r, c.feed)
	if c.rollOver {
		c.rollOver = false
		c.do(RollOverEnded{c.feed.id})
	}
}

// give lets a run have the rows of a feed. It has heard nothing of it yet.
func (c *Consumption) give(r *consumptionRun, f *feedStanding) {
	r.feed, r.fed, r.left = f, fedMark{}, false
}

func (c *Consumption) open(offset int64, private bool, cfg *meta.Config) *feedStanding {
	c.lastFeed++
	f := &feedStanding{id: c.lastFeed, position: offset, fetched: offset, taken: offset, end: offset}
	c.feeds = append(c.feeds, f)
	c.do(OpenFeed{Feed: f.id, Offset: offset, Private: private, Config: cfg})
	return f
}

func (c *Consumption) close(f *feedStanding) {
	c.feeds = slices.DeleteFunc(c.feeds, func(g *feedStanding) bool { return g == f })
	c.do(CloseFeed{f.id})
}

func (c *Consumption) closePrivate(r *consumptionRun) {
	if r.private {
		c.close(r.feed)
		r.feed, r.private = nil, false
	}
}

// handOver takes the partition's feed from a run that does not need it any more.
func (c *Consumption) handOver(r *consumptionRun) {
	if !r.private {
		r.feed = nil
	}
	c.beginRollOver()
}

func (c *Consumption) beginRollOver() {
	if c.feed != nil && !c.rollOver {
		c.rollOver = true
		c.do(RollOverBegan{c.feed.id})
	}
}

// limitFeeds lets each feed whose rows nobody takes read on for a while. That of
// the partition is in a roll-over then, until a run takes its rows again: the
// successor, or the same one, told to catch up.
func (c *Consumption) limitFeeds() {
	for _, f := range c.feeds {
		taken := slices.ContainsFunc(c.runs, func(r *consumptionRun) bool { return r.feed == f && r.takesRows() })
		if f.rollOver == taken {
			f.rollOver = !taken
			c.do(LimitFeed{Feed: f.id, RollOver: f.rollOver})
		}
		switch {
		case f != c.feed:
		case taken:
			c.rollOver = false
		default:
			c.beginRollOver()
		}
	}
}
