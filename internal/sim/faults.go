package sim

import (
	"slices"
	"time"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

// arm has the faults of the plan fall until phase 1 is over.
func (c *cluster) arm() {
	faults := map[Fault]func() bool{
		KillNode:         func() bool { return c.downNode(false, 0) },
		CutNode:          func() bool { return c.downNode(true, 0) },
		CutNodeInside:    func() bool { return c.downNode(true, 1+c.w.rnd.Intn(12)) },
		PauseNode:        func() bool { return c.pause(c.anyNode()) },
		KillController:   func() bool { return c.downController(false, 0) },
		CutController:    func() bool { return c.downController(true, 0) },
		CutControlInside: func() bool { return c.downController(true, 1+c.w.rnd.Intn(6)) },
		PauseController:  func() bool { return c.pause(c.anyController()) },
		CutLink:          c.cutLink,
		Isolate:          c.isolate,
		DeepAway:         func() bool { return c.flag(&c.objects.away, 10*time.Second, c.plan.DeepAwayMax) },
		StreamDown:       func() bool { return c.flag(&c.topic.down, 5*time.Second, time.Minute) },
		BitRot:           c.rot,
		FullDisk:         c.fillDisk,
		ClockJump:        c.jumpClock,
		Trim:             c.trim,
		ReplaceDisk:      c.replaceDisk,
		WipeCache:        c.wipeCache,
		Join:             c.join,
		Drain:            c.drain,
		Vanish:           c.vanish,
		Lie:              c.lie,
		NewConfig:        c.newConfig,
		ForceCommit:      c.forceCommit,
		Pause:            c.pauseTable,
		Release:          c.askRelease,
		ExpireSession:    c.expireSession,
		ZooKeeperDown:    c.zooKeeperDown,
		BreakBuilder:     c.breakBuilder,
		LoseUpload:       c.loseUpload,
		SlowReader:       c.slowReader,
		DeleteObject:     c.deleteObject,
		DeleteTable:      c.makeAndDelete,
		RotSnapshot:      c.rotSnapshot,
		RotLog:           c.rotLog,
		CutInSnapshots:   c.cutInSnapshots,
		LoseLogs:         c.loseLogs,
	}
	for _, f := range allFaults {
		do := faults[f.fault]
		if do == nil {
			continue // it falls by what happens, not by itself
		}
		c.every(c.plan.Faults[f.fault], string(f.fault), func() {
			if do() {
				c.w.count.faults[string(f.fault)]++
			} else {
				c.w.count.faults[string(f.fault)+" (held back)"]++
			}
		})
	}
}

// anyNode draws a node that runs, nil if none does.
func (c *cluster) anyNode() *process {
	if n := c.runningNode(); n != nil {
		return &n.process
	}
	return nil
}

func (c *cluster) runningNode() *simNode {
	var up []*simNode
	for _, n := range c.nodes {
		if n.up && !n.stopped() {
			up = append(up, n)
		}
	}
	if len(up) == 0 {
		return nil
	}
	return up[c.w.rnd.Intn(len(up))]
}

// anyController draws a controller that runs, the leader more often than not.
func (c *cluster) anyController() *process {
	if l := c.leader(); l != nil && c.w.chance(0.6) {
		return &l.process
	}
	s := c.controllers[c.w.rnd.Intn(len(c.controllers))]
	if !s.up || s.stopped() {
		return nil
	}
	return &s.process
}

func (c *cluster) downNode(power bool, inside int) bool { return c.down(c.anyNode(), power, inside) }

func (c *cluster) downController(power bool, inside int) bool {
	return c.down(c.anyController(), power, inside)
}

// down ends a process, now or within its inside-th durable operation from now, and
// has it start again after a while.
func (c *cluster) down(p *process, power bool, inside int) bool {
	if p == nil {
		return false
	}
	if inside > 0 {
		p.disk.cutIn = inside
		p.whenDead = func() { c.rebootLater(p, c.w.between(100*time.Millisecond, 20*time.Second)) }
		return true
	}
	p.kill(power)
	most := time.Minute
	if c.w.chance(0.5) {
		most = 2 * time.Second // as a supervisor does
	}
	if power && c.w.chance(0.3) {
		c.w.count.faults["power cut again while it starts"]++
		p.cutAtStart = 1 + c.w.rnd.Intn(10)
	}
	c.rebootLater(p, c.w.between(100*time.Millisecond, most))
	return true
}

// killReporter ends a node just after it has proposed an end. It is back at once, and
// its builder refuses the rows: it stops, and the proposal is nobody's. The others are
// held up meanwhile, so that the round is still open.
func (c *cluster) killReporter(n *simNode, k meta.SegmentKey) {
	mean := c.plan.Faults[KillReporter]
	if mean <= 0 || c.healed || !c.w.chance(float64(10*time.Second)/float64(mean)) {
		return
	}
	c.w.count.faults[string(KillReporter)]++
	if s := c.check.image.Segment(k); s != nil {
		for _, id := range s.Replicas {
			if o := c.nodeAt(id); o != n && o.up {
				o.resumesAt = max(o.resumesAt, c.w.now+c.w.between(3*time.Second, 6*time.Second))
			}
		}
	}
	c.w.after(c.w.between(50*time.Millisecond, 150*time.Millisecond), "reporter dies", func() {
		if n.up {
			n.kill(false)
			c.flag(&n.cannotBuild, 3*time.Second, 20*time.Second)
			c.rebootLater(&n.process, c.w.between(50*time.Millisecond, 200*time.Millisecond))
		}
	})
}

// killCommitter ends a node just after it has asked to commit, and has what it said
// arrive when it is back under another incarnation. How often it falls is drawn at
// each message, so it is told by the node (simNode.send).
func (c *cluster) killCommitter(n *simNode) {
	mean := c.plan.Faults[KillCommitter]
	if mean <= 0 || c.healed || !c.w.chance(float64(5*time.Second)/float64(mean)) {
		return
	}
	c.w.count.faults[string(KillCommitter)]++
	c.net.delayNext = c.w.between(time.Second, 4*time.Second)
	c.w.after(0, "committer dies", func() {
		if n.up {
			n.kill(false)
			c.rebootLater(&n.process, c.w.between(50*time.Millisecond, 500*time.Millisecond))
		}
	})
}

// pause stops a process for a while, sometimes for minutes.
func (c *cluster) pause(p *process) bool {
	if p == nil {
		return false
	}
	most := 30 * time.Second
	if c.w.chance(0.3) {
		most = 4 * time.Minute
	}
	p.resumesAt = c.w.now + c.w.between(time.Second, most)
	return true
}

func (c *cluster) processes() (all []*process) {
	for _, s := range c.controllers {
		all = append(all, &s.process)
	}
	for _, n := range c.nodes {
		all = append(all, &n.process)
	}
	if c.zk != nil {
		all = append(all, c.zk.proc())
	}
	return append(all, &c.reader.process)
}

func (c *cluster) cutLink() bool {
	all := c.processes()
	a, b := all[c.w.rnd.Intn(len(all))], all[c.w.rnd.Intn(len(all))]
	if a == b {
		return false
	}
	return c.cutFor(c.w.between(time.Second, time.Minute), link{a.name, b.name})
}

// isolate cuts a process off from all others, in one direction or both.
func (c *cluster) isolate() bool {
	all := c.processes()
	p := all[c.w.rnd.Intn(len(all))]
	in, out := true, true
	switch c.w.rnd.Intn(3) {
	case 0:
		in = false
	case 1:
		out = false
	}
	var links []link
	for _, o := range all {
		if o != p && in {
			links = append(links, link{o.name, p.name})
		}
		if o != p && out {
			links = append(links, link{p.name, o.name})
		}
	}
	return c.cutFor(c.w.between(time.Second, time.Minute), links...)
}

func (c *cluster) cutFor(d time.Duration, links ...link) bool {
	for _, l := range links {
		c.net.cut[l] = true
	}
	c.w.after(d, "links mended", func() {
		for _, l := range links {
			delete(c.net.cut, l)
		}
	})
	return true
}

// flag sets something for a while.
func (c *cluster) flag(f *bool, lo, hi time.Duration) bool {
	*f = true
	c.w.after(c.w.between(lo, hi), "is back", func() { *f = false })
	return true
}

// spare reports whether a copy of a segment may be destroyed: two good ones are left
// then. A disk that loses more at once than the replication covers is no fault that
// the design has to stand.
func (c *cluster) spare(s *meta.Segment, n *simNode) bool { return c.check.goodCopies(s, n) >= 2 }

// rot flips a bit of a sealed copy.
func (c *cluster) rot() bool {
	n := c.runningNode()
	if n == nil {
		return false
	}
	held := slices.DeleteFunc(n.store.Held(), func(h segment.Held) bool { return h.State != segment.StateSealed })
	if len(held) == 0 {
		return false
	}
	h := held[c.w.rnd.Intn(len(held))]
	s := c.check.image.Segment(heldKey(h))
	if s == nil || s.Status != meta.SegmentDone || s.Digest != h.Digest || !c.spare(s, n) {
		return false
	}
	if n.disk.rot(n.fileOf(h), c.w.rnd.Int63n(h.SizeBytes)) != nil {
		return false
	}
	n.rotted[h.Digest] = true
	// It is found by whoever reads it, or by the next look at everything.
	c.w.after(c.w.between(time.Second, 2*time.Minute), "copy looked at", func() {
		if n.up && n.store != nil {
			n.after(0, "copy looked at", func() { n.verify(h) })
		}
	})
	return true
}

func (c *cluster) fillDisk() bool {
	n := c.runningNode()
	d := (*disk)(nil)
	if n != nil {
		d = n.disk
	}
	if c.w.chance(0.3) {
		d = c.controllers[c.w.rnd.Intn(len(c.controllers))].disk
	}
	if d == nil {
		return false
	}
	return c.flag(&d.full, 5*time.Second, time.Minute)
}

func (c *cluster) jumpClock() bool {
	all := c.processes()
	p := all[c.w.rnd.Intn(len(all))]
	p.skew += c.w.between(-time.Hour, time.Hour)
	p.skewedAt = c.w.now
	return true
}

// trim lets the stream forget rows that are in committed segments.
func (c *cluster) trim() bool {
	i := c.w.rnd.Intn(len(c.topic.partitions))
	p := c.check.image.Partition(c.table, int32(i))
	tp := c.topic.partitions[i]
	if p == nil || p.NextOffset <= tp.earliest {
		return false
	}
	tp.earliest += c.w.rnd.Int63n(p.NextOffset-tp.earliest) + 1
	return true
}

// mayLose reports whether what a node's disk holds can go. What it has sealed of a segment
// in progress may be on its way to be committed, with nobody else who can build the same.
func (c *cluster) mayLose(n *simNode) bool {
	for t := range c.check.image.Tables() {
		for s := range c.check.image.TableSegments(t.ID) {
			switch {
			case s.Status == meta.SegmentDone && n.holdsDurably(s.SegmentKey(), s.Digest) && !c.spare(s, n):
				return false
			case s.Status == meta.SegmentInProgress && n.hasSealed(s):
				return false
			}
		}
	}
	return true
}

// replaceDisk puts an empty disk into a node, under the same id.
func (c *cluster) replaceDisk() bool {
	n := c.runningNode()
	if n == nil || !c.mayLose(n) {
		return false
	}
	n.kill(true)
	n.disk.renew()
	n.store = nil
	n.durableBefore, n.rotted = nil, map[segment.Digest]bool{}
	delete(c.check.shown, n.name)
	n.newDisk = true
	c.rebootLater(&n.process, c.w.between(time.Second, 30*time.Second))
	return true
}

// temptRelease has others ask for the release of what a node lost with its disk, at
// the moment at which it is back and has not withdrawn anything yet.
func (c *cluster) temptRelease(n *simNode) {
	if c.plan.Faults[Release] == 0 || c.healed {
		return
	}
	asked := map[string]bool{}
	for s := range c.check.image.SegmentsListed(n.name) {
		for _, l := range s.Locations {
			if o := c.nodeAt(l.Node); l.URI == "" && o != n && o.up && !asked[o.name] && o.askReleaseOf(s) {
				asked[o.name] = true
				c.w.count.faults["release asked around a replaced disk"]++
			}
		}
	}
}

// wipeCache drops the cache of the log of a node, or of all at once.
func (c *cluster) wipeCache() bool {
	nodes := []*simNode{c.runningNode()}
	if c.w.chance(0.3) {
		nodes = c.nodes
	}
	for _, n := range nodes {
		if n == nil || n.vanished {
			continue
		}
		n.kill(false)
		c.dropCache(n)
		delete(c.check.shown, n.name)
		c.rebootLater(&n.process, c.w.between(100*time.Millisecond, 5*time.Second))
	}
	return true
}

func (c *cluster) lie() bool {
	n := c.runningNode()
	if n == nil {
		return false
	}
	return c.flag(&n.lies, 5*time.Second, time.Minute)
}

// breakBuilder has the builders of a node refuse every row for a while, or those of
// all nodes, so that no replica is left.
func (c *cluster) breakBuilder() bool {
	n := c.runningNode()
	if n == nil {
		return false
	}
	if c.w.chance(0.3) {
		for _, n := range c.nodes {
			c.flag(&n.cannotBuild, time.Second, 40*time.Second)
		}
		return true
	}
	return c.flag(&n.cannotBuild, time.Second, 40*time.Second)
}

// slowReader has a node's stream stall for a while.
func (c *cluster) slowReader() bool {
	n := c.runningNode()
	return n != nil && c.flag(&n.readsNothing, 5*time.Second, 40*time.Second)
}

// loseUpload has the deep store lose what it is given next: that is why the leader
// looks before it counts a copy.
func (c *cluster) loseUpload() bool {
	c.objects.lose = true
	return c.plan.DeepStore
}

// deleteObject deletes an object of a segment that the leader has verified, behind its
// back: the bucket has other users. Two nodes have the bytes, as the leader may let one
// of them go by what it has seen.
func (c *cluster) deleteObject() bool {
	var all []*meta.Segment
	for s := range c.check.image.TableSegments(c.table) {
		if s.Status == meta.SegmentDone && s.DeepStoreVerified() && c.objects.has(s.Name, s.Digest) && c.check.goodCopies(s, nil) >= 3 {
			all = append(all, s)
		}
	}
	if len(all) == 0 {
		return false
	}
	s := all[c.w.rnd.Intn(len(all))]
	key, err := deepstore.DataKey(s.Name, s.Digest)
	if err != nil {
		return false
	}
	c.check.behind[s.Name] = true
	which := c.w.rnd.Intn(3)
	if which != 1 {
		delete(c.objects.of, key)
	}
	if which != 0 {
		delete(c.objects.of, deepstore.PiecesKey(key))
	}
	return true
}

func (c *cluster) expireSession() bool {
	if c.zk == nil {
		return false
	}
	p := c.anyController()
	return p != nil && c.zk.expire(p)
}

func (c *cluster) zooKeeperDown() bool {
	if c.zk == nil {
		return false
	}
	return c.flag(&c.zk.down, time.Second, time.Minute)
}
