package sim

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/internal/node"
	"github.com/shoalstore/shoal/meta"
)

// consumer is the shell of one partition's consumption: the feeds, the builders and
// the effects that the machine asks for (internal/node, consumer.go).
type consumer struct {
	n        *simNode
	key      meta.PartitionKey
	machine  *node.Consumption
	feeds    map[node.FeedID]*feed
	builders map[uint64]*builder
	ended    map[uint64]bool  // runs that are over, or whose download was called off
	targets  map[uint64]int64 // of runs that were told to catch up
	pumping  bool
	timerAt  time.Duration
}

// feed reads ahead of its consumer, in batches.
type feed struct {
	id       node.FeedID
	rows     []row
	next     int64 // next-fetch position
	taken    int64
	end      int64
	epoch    string
	err      error
	limit    int // rows that may wait
	fetching bool
	closed   bool
}

const (
	feedSteady   = 40
	feedRollOver = 160
)

// builder has the rows of one segment so far.
type builder struct {
	segment *meta.Segment
	rows    []row
}

// wake looks at the image for partitions to consume, and tells it to those that are.
func (n *simNode) wake() {
	if n.standing.incarnation == 0 {
		return
	}
	for s := range n.image.SegmentsConsuming(n.name) {
		k := s.SegmentKey().PartitionKey()
		if n.consumers[k] == nil {
			n.consumers[k] = &consumer{
				n: n, key: k,
				machine: node.NewConsumption(node.ConsumptionConfig{Node: n.name, StoreID: n.store.StoreID(), Key: k}),
				feeds:   map[node.FeedID]*feed{}, builders: map[uint64]*builder{}, ended: map[uint64]bool{}, targets: map[uint64]int64{},
			}
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(n.consumers), meta.PartitionKey.Compare) {
		c := n.consumers[k]
		n.after(0, "image seen", func() {
			c.step(node.ImageSeen{Image: n.image, CaughtUp: n.caughtUp(), Incarnation: n.standing.incarnation})
		})
	}
}

// step hands the machine an event, carries out what it says, and moves rows.
func (c *consumer) step(ev node.ConsumptionEvent) {
	if c.n.consumers[c.key] != c {
		return
	}
	for _, a := range c.machine.Step(c.n.mono(), ev) {
		c.act(a)
	}
	if !c.pumping {
		c.pump()
	}
	c.setTimer()
	if !c.pumping && len(c.targets) > 0 {
		c.n.c.check.catchingUp(c)
	}
	if c.machine.Done() {
		for _, f := range c.feeds {
			f.closed = true
		}
		delete(c.n.consumers, c.key)
		c.n.after(0, "consumer is done", c.n.wake) // it may be wanted again by now
	}
}

// stateOf is what the machine of a run is doing, the last of its states if there is none.
func (c *consumer) stateOf(run uint64) commit.ReplicaState {
	for _, v := range c.machine.Runs() {
		if v.Run == run {
			return v.State
		}
	}
	return commit.Discarded
}

// pump offers rows until nobody takes any.
func (c *consumer) pump() {
	c.pumping = true
	defer func() { c.pumping = false }()
	for again := true; again; {
		again = false
		for _, r := range c.machine.Reading() {
			f := c.feeds[r.Feed]
			if f == nil {
				continue
			}
			n := c.offer(r, f)
			c.step(f.standing())
			c.fill(f)
			again = again || n > 0
		}
	}
}

// offer offers the rows that wait, one by one.
func (c *consumer) offer(r node.Reading, f *feed) (done int) {
	for len(f.rows) > 0 {
		row := f.rows[0]
		switch c.machine.Offer(c.n.mono(), r, row.offset, row.bytes) {
		case commit.LeaveRow:
			return done
		case commit.AppendRow:
			b := c.builders[r.Run]
			if b == nil || c.n.cannotBuild {
				c.step(node.BuilderFailed{Segment: r.Segment, Run: r.Run, Err: errors.New("sim: the builder takes no row")})
				return 0
			}
			b.rows = append(b.rows, row)
		}
		f.rows, f.taken = f.rows[1:], row.offset+1
		done++
	}
	return done
}

func (f *feed) standing() node.FeedMoved {
	ev := node.FeedMoved{
		Feed: f.id, Position: f.next, Fetched: f.next, Taken: f.taken, End: f.end, Epoch: f.epoch,
		Waiting: len(f.rows) > 0, Err: f.err,
	}
	if ev.Waiting {
		ev.Position = f.rows[0].offset
	}
	return ev
}

// fill has the feed fetch, unless it does, or has no room.
func (c *consumer) fill(f *feed) {
	if f.fetching || f.closed || f.err != nil || len(f.rows) >= f.limit {
		return
	}
	f.fetching = true
	n := c.n
	n.after(n.c.w.between(5*time.Millisecond, n.c.plan.FetchMax), "rows fetched", func() {
		f.fetching = false
		if f.closed {
			return
		}
		p := n.c.topic.partitions[c.key.Partition]
		before := f.next
		switch {
		case n.c.topic.down, n.readsNothing:
		case f.next < p.earliest:
			f.err = errTrimmed
		case f.next > p.end:
			f.err = errors.New("sim: the stream ends before the offset")
		default:
			rows, next := p.read(f.next, 1+n.c.w.rnd.Intn(10))
			f.rows = append(f.rows, rows...)
			f.next, f.end, f.epoch = next, p.end, n.c.topic.epoch
		}
		if f.next != before || f.err != nil {
			c.step(f.standing())
		}
		if f.next == before && f.err == nil {
			n.after(n.c.plan.FetchMax, "feed polls", func() { c.fill(f) })
			return
		}
		c.fill(f)
	})
}

// setTimer has the machine see its first deadline.
func (c *consumer) setTimer() {
	at, ok := c.machine.Timer()
	if !ok || at == c.timerAt {
		return
	}
	c.timerAt = at
	c.n.after(at-c.n.mono(), "deadline", func() {
		if c.timerAt == at {
			c.timerAt = -1
			c.step(node.ConsumptionTick{})
		}
	})
}

func (c *consumer) act(a node.ConsumptionAction) {
	switch a := a.(type) {
	case node.OpenFeed:
		f := &feed{id: a.Feed, next: a.Offset, taken: a.Offset, end: a.Offset, limit: feedSteady}
		c.feeds[a.Feed] = f
		c.fill(f)
	case node.CloseFeed:
		if f := c.feeds[a.Feed]; f != nil {
			f.closed = true
			delete(c.feeds, a.Feed)
		}
	case node.SkipFeed:
		if f := c.feeds[a.Feed]; f != nil {
			for len(f.rows) > 0 && f.rows[0].offset < a.Offset {
				f.taken = f.rows[0].offset + 1
				f.rows = f.rows[1:]
			}
		}
	case node.LimitFeed:
		if f := c.feeds[a.Feed]; f != nil {
			f.limit = feedSteady
			if a.RollOver {
				f.limit = feedRollOver
			}
			c.fill(f)
		}
	case node.OpenBuilder:
		c.builders[a.Run] = &builder{segment: a.Segment}
	case node.DropBuilder:
		if c.builders[a.Run] != nil {
			c.n.c.check.freed(c.n, a.Segment)
		}
		delete(c.builders, a.Run)
	case node.Effect:
		c.effect(a)
	case node.Claim:
		c.n.step(node.Claimed{Segment: a.Segment})
	case node.Unclaim:
		c.n.step(node.Unclaimed{Segment: a.Segment})
	case node.RunMoved:
		c.n.c.w.trace.notef(c.n.c.w.now, "%s: %s is %s at %d, was %s", c.n.name, a.Segment.Name, a.State, a.Offset, a.Was)
		c.n.c.edge("replica", a.Was.String(), a.State.String())
		switch a.State {
		case commit.ReplicaCommitted, commit.Retained, commit.Discarded:
			c.n.c.check.freed(c.n, a.Segment.SegmentKey()) // also of rows that are in a file by now
		}
	case node.Ended:
		c.ended[a.Run] = true
		delete(c.targets, a.Run)
	}
}

func (c *consumer) effect(a node.Effect) {
	n := c.n
	done := func(ev commit.ReplicaEvent) {
		c.step(node.EffectDone{Segment: a.Segment.SegmentKey(), Run: a.Run, Event: ev})
	}
	switch do := a.Do.(type) {
	case commit.Send:
		n.send(do.Message, func(r commit.Reply, err error) {
			if err != nil {
				done(commit.NoAnswer{ID: do.ID})
				return
			}
			was := c.stateOf(a.Run)
			done(commit.Answered{ID: do.ID, Reply: r})
			if r.Status == commit.CatchUp && was != commit.CatchingUp && c.stateOf(a.Run) == commit.CatchingUp {
				c.targets[a.Run] = r.Offset
			}
		})
	case commit.Seal:
		b := c.builders[a.Run]
		delete(c.builders, a.Run)
		n.after(n.c.w.between(10*time.Millisecond, n.c.plan.SealMax), "sealed", func() { c.seal(a, b, do.End, done) })
	case commit.Upload:
		n.upload(a.Segment, do.Info.Digest, func(uri string, _ error) { done(commit.Uploaded{URI: uri}) })
	case commit.Download:
		run := a.Run
		delete(c.ended, run) // an earlier one of this run may have been called off
		n.after(0, "download begins", func() {
			n.fetchSegment(a.Segment.SegmentKey(), do.Digest, func() bool { return c.ended[run] }, func(err error) {
				if err != nil {
					done(commit.NoSource{Error: err.Error()})
					return
				}
				done(commit.Downloaded{Digest: do.Digest})
			})
		})
	case commit.StopDownload:
		c.ended[a.Run] = true
	}
}

func (c *consumer) seal(a node.Effect, b *builder, end int64, done func(commit.ReplicaEvent)) {
	n := c.n
	if b == nil {
		done(commit.SealFailed{End: end, Error: "there is no builder"})
		return
	}
	s := a.Segment
	data, rowsDigest := n.c.content(s.SegmentKey(), n.class, a.Config, s.Start, end, b.rows)
	info, err := n.seal(s, data, infoOf(s.Start, end, b.rows, rowsDigest))
	if n.disk.off {
		return
	}
	if err != nil {
		n.c.w.count.outcomes["seal failed"]++
		done(commit.SealFailed{End: end, Error: err.Error()})
		return
	}
	n.c.w.count.outcomes["sealed"]++
	done(commit.Sealed{Info: info})
}

// send sends a message of the protocol to the leader (commithttp.Client.Send).
func (n *simNode) send(m commit.Message, done func(commit.Reply, error)) {
	n.c.check.sent(n, &m)
	switch m.Kind {
	case commit.SegmentCommitEnd:
		n.c.killCommitter(n)
	case commit.SegmentConsumed:
		if m.Reason == commit.TimeLimit || m.Reason == commit.ForceCommit { // others stop elsewhere
			n.c.killReporter(n, meta.SegmentKey{Table: m.Table, Partition: m.Partition, Seq: m.Seq})
		}
	}
	askLeader(n, string(m.Kind), 10*time.Second,
		func(s *simController, reply func(answered[commit.Reply])) {
			s.protocol(m, func(r commit.Reply) {
				if r.Status == commit.NotLeader {
					reply(answered[commit.Reply]{body: r, code: codeNotLeader, leader: r.Leader})
					return
				}
				reply(answered[commit.Reply]{body: r})
			})
		},
		func(a answered[commit.Reply], err error) {
			if err == nil {
				n.c.check.answered(n, &m, a.body)
			}
			done(a.body, err)
		})
}
