package sim

import (
	"path"
	"slices"
	"strings"
	"time"

	"github.com/shoalstore/shoal/metalog"
)

// Faults of the metadata's log and of its snapshots.

// dropCache removes the cache of the log of a node that does not run, the snapshots beside
// it, or both.
func (c *cluster) dropCache(n *simNode) {
	dirs := []string{"cache"}
	if len(filesIn(n.disk.mem, metalog.SnapshotsDir)) > 0 {
		switch c.w.rnd.Intn(4) {
		case 0:
		case 1:
			dirs = []string{metalog.SnapshotsDir}
		default:
			dirs = append(dirs, metalog.SnapshotsDir)
		}
	}
	for _, dir := range dirs {
		if err := n.disk.mem.RemoveAll(dir); err != nil {
			c.w.fail("sim", "%v", err)
		}
		n.disk.rotted[dir] = true // what is left of the two need not fit together
	}
}

// keeper draws a process that keeps a log, whether it runs or not; nil: it is gone.
func (c *cluster) keeper() (p *process, ofLeaders bool) {
	i := c.w.rnd.Intn(len(c.nodes) + len(c.controllers))
	switch {
	case i >= len(c.nodes):
		return &c.controllers[i-len(c.nodes)].process, true
	case c.nodes[i].vanished:
		return nil, false
	}
	return &c.nodes[i].process, false
}

// rotSnapshot flips a bit of a snapshot, of its piece list, or of one that is being
// downloaded.
func (c *cluster) rotSnapshot() bool {
	p, ofLeaders := c.keeper()
	if p == nil {
		return false
	}
	var names []string
	for _, name := range filesIn(p.disk.mem, metalog.SnapshotsDir) {
		if strings.HasSuffix(name, ".checkpoint") || strings.HasSuffix(name, ".pieces") || strings.HasSuffix(name, ".part") {
			names = append(names, path.Join(metalog.SnapshotsDir, name))
		}
	}
	if len(names) == 0 {
		return false
	}
	name := names[c.w.rnd.Intn(len(names))]
	if ofLeaders && c.zk == nil && !c.controllers[0].standsLossOf(name) {
		return false
	}
	return c.rotFile(p, name)
}

// standsLossOf reports whether the only controller can do without a snapshot: there is
// another good one that its log goes on from, or its whole log.
func (s *simController) standsLossOf(name string) bool {
	if !s.up || s.files == nil {
		return false // nobody knows where its log begins
	}
	start := s.files.log.Start()
	return start == 0 || slices.ContainsFunc(s.files.snaps.List(), func(r metalog.SnapshotRef) bool {
		return snapshotPath(r.SnapshotID) != name && r.EndOffset >= start && s.c.check.isGood(s.disk, r.SnapshotID)
	})
}

// rotLog flips a bit of a log that is a copy: a node's cache, or that of a controller
// which has ZooKeeper.
func (c *cluster) rotLog() bool {
	p, ofLeaders := c.keeper()
	if p == nil || ofLeaders && c.zk == nil {
		return false
	}
	dir := "cache"
	if ofLeaders {
		dir = "log"
	}
	names := filesIn(p.disk.mem, dir)
	if len(names) == 0 {
		return false
	}
	return c.rotFile(p, path.Join(dir, names[c.w.rnd.Intn(len(names))]))
}

// rotFile flips a bit, in one of four at the beginning, where the header is.
func (c *cluster) rotFile(p *process, name string) bool {
	info, err := p.disk.mem.Stat(name)
	if err != nil || info.Size() == 0 {
		return false
	}
	size := info.Size()
	if c.w.chance(0.25) {
		size = min(size, 64)
	}
	if p.disk.rot(name, c.w.rnd.Int63n(size)) != nil {
		return false
	}
	p.disk.rotted[name] = true
	delete(c.check.shown, p.name) // what it finds on its disk may be less than it had
	return true
}

// loseLogs kills all controllers, and those that do not lead lose their logs: who leads
// next has nothing but ZooKeeper.
func (c *cluster) loseLogs() bool {
	l := c.leader()
	if c.zk == nil || l == nil {
		return false
	}
	for _, s := range c.controllers {
		if !s.up {
			continue // it has its log, maybe an old one
		}
		s.kill(false)
		if s == l {
			c.rebootLater(&s.process, c.w.between(15*time.Second, 40*time.Second))
			continue
		}
		for _, dir := range []string{"log", metalog.SnapshotsDir} {
			if err := s.disk.mem.RemoveAll(dir); err != nil {
				c.w.fail("sim", "%v", err)
			}
			s.disk.sound(dir)
		}
		c.rebootLater(&s.process, c.w.between(100*time.Millisecond, 3*time.Second))
	}
	return true
}

// cutInSnapshots has the power of a process go in the middle of what it does next with
// snapshots.
func (c *cluster) cutInSnapshots() bool {
	p, _ := c.keeper()
	if p == nil || !p.up {
		return false
	}
	p.disk.cutInSnapshots = 1 + c.w.rnd.Intn(8)
	return true
}
