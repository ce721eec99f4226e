package node

import (
	"cmp"
	"fmt"
	"time"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/meta"
)

// consumptionRun is one segment on its way from its first row to the committed
// bytes in the store: its machine, and what the machine has.
type consumptionRun struct {
	id    uint64
	seg   *meta.Segment // as it was when the run began
	cfg   *meta.Config  // exactly the version that the record names
	table string
	m     *commit.Replica

	// feed is where rows come from: the partition's, or a private one; nil when
	// the machine wants none.
	feed    *feedStanding
	private bool
	fed     fedMark
	left    bool // a row was left since the last Fed

	building bool // there is a builder, and it takes rows
	pending  int  // effects under way
	timer    time.Duration
	told     bool // SuccessorMayStart
	ended    bool // Ended
}

// fedMark is what was last said with Fed, so that nothing is said twice.
type fedMark struct{ next, fetched int64 }

func bySequence(a, b *consumptionRun) int { return cmp.Compare(a.seg.Seq, b.seg.Seq) }

// run finds a run by its number, nil if it is no more.
func (c *Consumption) run(id uint64) *consumptionRun {
	for _, r := range c.runs {
		if r.id == id {
			return r
		}
	}
	return nil
}

// step hands an event to a run's machine and does what it says.
func (c *Consumption) step(r *consumptionRun, ev commit.ReplicaEvent) {
	before := r.m.State()
	for _, a := range r.m.Step(c.now, ev) {
		c.act(r, a)
	}
	if after := r.m.State(); after != before {
		c.do(RunMoved{Segment: r.seg, Run: r.id, Was: before, State: after, Offset: r.m.Position()})
	}
}

func (c *Consumption) act(r *consumptionRun, a commit.ReplicaAction) {
	switch a := a.(type) {
	case commit.Send, commit.Upload, commit.Download:
		c.effect(r, a)
	case commit.Seal:
		r.building = false
		c.effect(r, a)
	case commit.StopDownload:
		c.do(Effect{Segment: r.seg, Run: r.id, Config: r.cfg, Do: a})
	case commit.Restart:
		c.restart(r, a)
	case commit.FreeRows:
		c.freeRows(r)
	case commit.SuccessorMayStart:
		r.told = true
		c.handOver(r)
	case commit.SetTimer:
		r.timer = a.At
	case commit.KeepFile, commit.SetAside:
		// The file is in the store, and the store's changes are told to the
		// copies' machine, which knows from the image what it is good for.
	}
}

// effect asks for something whose result comes back.
func (c *Consumption) effect(r *consumptionRun, a commit.ReplicaAction) {
	r.pending++
	c.do(Effect{Segment: r.seg, Run: r.id, Config: r.cfg, Do: a})
}

func (c *Consumption) effectDone(ev EffectDone) {
	r := c.run(ev.Run)
	if r == nil || r.pending == 0 {
		return
	}
	r.pending--
	c.step(r, ev.Event)
}

// builderFailed is the machine's to deal with, as if the feed had broken.
func (c *Consumption) builderFailed(ev BuilderFailed) {
	r := c.run(ev.Run)
	if r == nil || !r.building {
		return
	}
	r.building = false
	c.step(r, commit.ReaderFailed{Error: ev.Err.Error()})
}

// restart throws the builder away and begins a new one at the segment's start.
func (c *Consumption) restart(r *consumptionRun, a commit.Restart) {
	if a.Private {
		c.closePrivate(r)
		r.private = true
		c.give(r, c.open(a.From, true, r.cfg))
	} else {
		c.attach(r, a.From)
	}
	c.openBuilder(r)
}

func (c *Consumption) openBuilder(r *consumptionRun) {
	r.building = true
	c.do(OpenBuilder{Segment: r.seg, Run: r.id, Table: r.table, Config: r.cfg})
}

func (c *Consumption) freeRows(r *consumptionRun) {
	r.building = false
	c.do(DropBuilder{Segment: r.seg.SegmentKey(), Run: r.id})
	c.closePrivate(r)
}

// end says once that a run is over. Whoever comes next has the feed.
func (c *Consumption) end(r *consumptionRun) {
	if r.ended {
		return
	}
	r.ended = true
	r.feed = nil
	c.do(Ended{Segment: r.seg.SegmentKey(), Run: r.id})
}

// sameStream reports whether what is being read is the stream of the record. A
// topic that was made anew under the old name is another one, and its offsets
// mean nothing here.
func (r *consumptionRun) sameStream() bool {
	return r.feed.epoch == "" || r.feed.epoch == r.seg.StreamEpoch
}

func (r *consumptionRun) otherStream() string {
	return fmt.Sprintf("the stream has epoch %q, the segment is of epoch %q: it was made anew", r.feed.epoch, r.seg.StreamEpoch)
}
