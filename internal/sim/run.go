package sim

import (
	"fmt"
	"io"
	"path"
	"runtime/debug"
	"slices"
	"time"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

// Result is what came of a run.
type Result struct {
	Plan      *Plan
	Hash      uint64 // of everything that happened
	Violation *Violation
	Healed    time.Duration // how long phase 2 took
	counts    *counts
}

// Run runs a plan. The history goes to out, if that is not nil.
func Run(plan *Plan, out io.Writer) (res Result) {
	tr := &trace{out: out}
	w := newWorld(plan.Seed, tr)
	res.Plan, res.counts = plan, w.count
	defer func() {
		if r := recover(); r != nil {
			w.failure = &Violation{Invariant: "panic", At: w.now, What: fmt.Sprintf("%v\n%s", r, debug.Stack())}
		}
		res.Hash, res.Violation = tr.sum, w.failure
	}()
	c := newCluster(w, plan)
	c.boot()
	c.produceAll()
	c.createTable()
	c.arm()
	w.run(plan.FaultFor, nil)
	if w.failure != nil {
		return res
	}
	c.heal()
	began, why := w.now, ""
	w.run(w.now+plan.HealFor, func() bool {
		// A look at everything after each event would cost more than the events.
		if w.count.events%256 != 0 {
			return false
		}
		why = c.unrest()
		return why == ""
	})
	c.check.checkImage()
	if why = c.unrest(); w.failure == nil && why != "" {
		w.fail("I6", "%s after the faults have ended: %s", plan.HealFor, why)
	}
	res.Healed = w.now - began
	return res
}

// produceAll has rows arrive at every partition, for as long as faults fall.
func (c *cluster) produceAll() {
	for i := range c.topic.partitions {
		c.every(c.plan.Produce, "rows", func() { c.topic.produce(i, 1+c.w.rnd.Intn(8), c.plan.Gaps) })
	}
}

func (c *cluster) createTable() {
	c.w.after(c.w.between(time.Second, 5*time.Second), "table made", func() {
		c.operate("create table", func(im *meta.Image) []meta.Func {
			if im.Table(c.table) != nil {
				return nil
			}
			return []meta.Func{meta.CreateTable(c.tableConfig(0), c.table)}
		})
	})
}

// heal ends phase 1: nothing is broken any more, and what was stays so no longer.
func (c *cluster) heal() {
	c.healed = true
	w := c.w
	w.trace.note(w.now, "all faults end")
	c.net.rates.drop, c.net.rates.double, c.net.rates.slow = 0, 0, 0
	clear(c.net.cut)
	c.objects.away, c.objects.lose, c.objects.before, c.objects.after = false, false, 0, 0
	c.topic.down = false
	if c.zk != nil {
		c.zk.down = false
	}
	for _, p := range c.processes() {
		p.disk.full, p.disk.cutIn, p.disk.cutInSnapshots, p.skew = false, 0, 0, 0
		p.resumesAt = min(p.resumesAt, w.now)
	}
	for _, n := range c.nodes {
		n.lies, n.cannotBuild, n.readsNothing = false, false, false
		if !n.vanished {
			c.rebootLater(&n.process, 0)
		}
	}
	for _, s := range c.controllers {
		c.rebootLater(&s.process, 0)
	}
	c.endRows()
}

// endRows ends the stream with a row in each partition, and has everything
// committed: what is consumed and not committed by then shows that consumption goes
// on, and the force commit that it ends.
func (c *cluster) endRows() {
	for i := range c.topic.partitions {
		c.topic.produce(i, 1, 0)
	}
	resume := func() { c.resume(meta.FromLastConsumed) }
	c.w.after(5*time.Second, "resume", resume)
	var ask func()
	ask = func() {
		if c.uncommitted() == "" {
			return
		}
		resume() // a pause may have been on its way
		c.forceCommit()
		c.w.after(time.Minute, "force commit", ask)
	}
	c.w.after(30*time.Second, "force commit", ask)
	// A copy that a bit has rotted in is found by a look at everything.
	var scrub func()
	scrub = func() {
		for _, n := range c.nodes {
			if n.up && n.store != nil {
				for _, h := range n.store.Held() {
					n.after(0, "copy looked at", func() { n.verify(h) })
				}
			}
		}
		c.w.after(2*time.Minute, "scrub", scrub)
	}
	scrub()
}

// uncommitted says which rows are in no committed segment, "" if all are.
func (c *cluster) uncommitted() string {
	for i, tp := range c.topic.partitions {
		p := c.check.image.Partition(c.table, int32(i))
		switch {
		case p == nil:
			return fmt.Sprintf("partition %d is not there", i)
		case p.State != meta.PartitionConsuming:
			return fmt.Sprintf("partition %d is %s", i, p.State)
		case tp.from(p.Position()) < len(tp.rows): // what was skipped on purpose is recorded
			return fmt.Sprintf("partition %d is committed up to %d of %d", i, p.NextOffset, tp.end)
		}
	}
	return ""
}

// unrest says what is still to be done before everything is as I6 wants it, "" if
// nothing is.
func (c *cluster) unrest() string {
	if why := c.uncommitted(); why != "" {
		return why
	}
	im := c.check.image
	for s := range im.TableSegments(c.table) {
		if s.Status != meta.SegmentDone {
			continue
		}
		for _, id := range s.Replicas {
			n := c.nodeAt(id)
			if n.vanished {
				continue
			}
			switch l := s.NodeLocation(id); {
			case l == nil:
				return fmt.Sprintf("%s is not listed at its replica %s", s.Name, id)
			case n.store == nil || l.StoreID != n.store.StoreID():
				return fmt.Sprintf("%s is listed at %s in a store that it no longer has", s.Name, id)
			case !n.holdsDurably(s.SegmentKey(), s.Digest):
				return fmt.Sprintf("%s is listed at %s, and is not there whole", s.Name, id)
			}
		}
		if c.plan.DeepStore && !s.DeepStoreVerified() {
			return fmt.Sprintf("%s has no verified copy in the deep store", s.Name)
		}
		if c.plan.DeepStore && !c.objects.has(s.Name, s.Digest) {
			return fmt.Sprintf("%s is listed in the deep store, and is not there", s.Name)
		}
	}
	if why := c.leftOfOthers(); why != "" {
		return why
	}
	for _, n := range c.nodes {
		if n.vanished {
			continue
		}
		if why := n.unrest(im); why != "" {
			return n.name + " " + why
		}
	}
	for _, s := range c.controllers {
		if why := s.unrest(im); why != "" {
			return s.name + " " + why
		}
	}
	return ""
}

// unrest says what a node still has to do.
func (n *simNode) unrest(im *meta.Image) string {
	switch {
	case !n.up || n.store == nil:
		return "is not up"
	case !n.caughtUp() || n.image.Next() != im.Next():
		return fmt.Sprintf("has applied %d of %d batches", n.image.Next(), im.Next())
	case im.Node(n.name) == nil || im.Node(n.name).State == meta.NodeDown:
		return "is not taken for UP"
	case n.machine.Busy() > 0:
		return "is busy with copies"
	}
	for _, h := range n.store.Held() {
		s := im.Segment(heldKey(h))
		if s == nil && im.Tombstone(heldKey(h)) == nil && h.State == segment.StateSealed {
			return fmt.Sprintf("keeps %s, which no record explains", h.File())
		}
		if s != nil && s.Status == meta.SegmentDone && (s.Digest != h.Digest || h.State != segment.StateSealed) {
			counted := meta.CountedCopies(im, s)
			if len(counted.Nodes) < 2 && len(counted.DeepStore) == 0 && slices.ContainsFunc(s.Replicas, func(id string) bool { return n.c.nodeAt(id).leaving() }) {
				continue // it has to stay until others have the copies of who leaves: validation's
			}
			return fmt.Sprintf("keeps %s (%s), which is not the committed copy, with %d and %d counted elsewhere, replicas %v",
				h.File(), h.State, len(counted.Nodes), len(counted.DeepStore), s.Replicas)
		}
	}
	if im.Node(n.name).State == meta.NodeDraining {
		for p := range im.Partitions(n.c.table) {
			if s := im.InProgress(p.PartitionKey()); slices.Contains(p.Replicas, n.name) || s != nil && slices.Contains(s.Replicas, n.name) {
				return fmt.Sprintf("is DRAINING, and partition %d is its", p.Partition)
			}
		}
	}
	for s := range im.SegmentsConsuming(n.name) {
		if n.consumers[s.SegmentKey().PartitionKey()] == nil {
			return fmt.Sprintf("does not consume %s", s.Name)
		}
	}
	if why := n.files.unrest(im); why != "" {
		return why
	}
	return n.leftovers()
}

// unrest says what a controller still has to do for the metadata.
func (s *simController) unrest(im *meta.Image) string {
	if !s.up {
		return "is not up"
	}
	if why := s.files.unrest(im); why != "" || !s.leads() {
		return why
	}
	switch due, err := s.files.shotter.IsDue(); {
	case err != nil:
		return "cannot say whether a snapshot is due: " + err.Error()
	case due:
		return "has not asked for the snapshot that is due"
	}
	return ""
}

// leftovers says what lies in staging and belongs to nothing under way.
func (n *simNode) leftovers() string {
	if len(n.fetching) > 0 {
		return "downloads"
	}
	if file := anyFile(n.disk.mem, "staging"); file != "" {
		return "keeps " + file
	}
	return ""
}

// anyFile is a file below a directory, "" if there is none.
func anyFile(mem *vfs.Mem, dir string) string {
	entries, err := mem.ReadDir(dir)
	if err != nil {
		return ""
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		if !e.IsDir() {
			return name
		}
		if file := anyFile(mem, name); file != "" {
			return file
		}
	}
	return ""
}
