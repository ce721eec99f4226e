package sim

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
)

// What operators do: nodes join, drain and go for ever, the table's configuration
// changes, segments are asked to end, consumption is paused, tables are deleted, copies
// are released. It falls like any other fault (arm). What follows from an operator's
// flip the leader does by itself.

func (c *cluster) join() bool {
	if len(c.nodes) >= 8 {
		return false
	}
	c.addNode().boot()
	return true
}

// staying are the nodes that are to stay.
func (c *cluster) staying() (k int) {
	for _, n := range c.nodes {
		if !n.vanished && !n.draining {
			k++
		}
	}
	return k
}

// drain has a node drained, and sometimes not any more after a while.
func (c *cluster) drain() bool {
	n := c.runningNode()
	if n == nil || n.draining || c.staying() <= c.plan.Replication {
		return false
	}
	n.draining = true
	undrain := c.w.chance(0.3)
	c.operate("drain "+n.name, func(im *meta.Image) []meta.Func {
		switch node := im.Node(n.name); {
		case node == nil:
			return nil
		case node.State == meta.NodeDraining:
			if undrain {
				c.w.after(c.w.between(5*time.Second, time.Minute), "undrain", func() { c.undrain(n) })
			}
			return nil
		}
		return []meta.Func{meta.SetNodeState(n.name, meta.AnyIncarnation, meta.NodeDraining)}
	})
	return true
}

func (c *cluster) undrain(n *simNode) {
	c.operate("undrain "+n.name, func(im *meta.Image) []meta.Func {
		if node := im.Node(n.name); node == nil || node.State != meta.NodeDraining {
			n.draining = false
			return nil
		}
		return []meta.Func{meta.UndrainNode(n.name, n.up)}
	})
}

// moveAway places the partitions of a node elsewhere, and has what it consumes end:
// what replacing a node that is gone comes to, until validation does it by itself.
func (c *cluster) moveAway(n *simNode, reason string) {
	c.operate("move away from "+n.name, func(im *meta.Image) (todo []meta.Func) {
		placer := meta.NewPlacer(im, func(o *meta.Node) bool { return o.ID != n.name && !c.nodeAt(o.ID).leaving() })
		for p := range im.Partitions(c.table) {
			s := im.InProgress(p.PartitionKey())
			stuck := n.vanished && s != nil && slices.Contains(s.Replicas, n.name) // until it is seen DOWN
			if !stuck && !slices.Contains(p.Replicas, n.name) {
				continue
			}
			keep := slices.DeleteFunc(slices.Clone(p.Replicas), func(id string) bool { return c.nodeAt(id).leaving() })
			replicas := placer.Place(c.plan.Replication, keep...)
			if len(replicas) == 0 {
				continue
			}
			var gone []string
			if n.vanished {
				gone = []string{n.name}
			}
			todo = append(todo,
				meta.SetReplicas(p.PartitionKey(), replicas, gone),
				meta.RequestEnd(c.table, []int32{p.Partition}, reason, [16]byte{}))
		}
		return todo
	})
}

func (n *simNode) leaving() bool { return n.draining || n.vanished }

// vanish takes a node away for ever.
func (c *cluster) vanish() bool {
	n := c.runningNode()
	if n == nil || c.staying() <= c.plan.Replication || n.draining || !c.mayLose(n) {
		return false
	}
	n.vanished = true
	n.kill(true)
	n.durableBefore = nil
	c.moveAway(n, meta.EndDrain)
	return true
}

func (c *cluster) newConfig() bool {
	next := c.w.rnd.Intn(100)
	c.operate("new config", func(im *meta.Image) []meta.Func {
		if im.Table(c.table) == nil {
			return nil
		}
		return []meta.Func{meta.UpdateTableConfig(c.table, c.tableConfig(next)), meta.PruneTableConfigs(c.table)}
	}, once)
	return true
}

func (c *cluster) forceCommit() bool {
	id := c.uuid()
	c.operate("force commit", func(im *meta.Image) []meta.Func {
		if im.Job(id) != nil {
			return nil
		}
		return []meta.Func{meta.CreateJob(id, "forceCommit", map[string]string{"table": c.table.String()})}
	})
	return true
}

// pauseTable pauses consumption and resumes it after a while, sometimes elsewhere.
func (c *cluster) pauseTable() bool {
	c.operate("pause", func(im *meta.Image) []meta.Func {
		if t := im.Table(c.table); c.healed || t == nil || t.State != meta.TableActive {
			return nil
		}
		return []meta.Func{meta.PauseTable(c.table, meta.Pause{Reason: meta.PauseAdministrative, By: "sim"})}
	}, once)
	from := meta.FromLastConsumed
	switch c.w.rnd.Intn(4) {
	case 0:
		from = meta.FromSmallest
	case 1:
		from = meta.FromLargest
	}
	c.w.after(c.w.between(10*time.Second, time.Minute), "resume", func() { c.resume(from) })
	return true
}

// resume lets the table consume again.
func (c *cluster) resume(from meta.ConsumeFrom) {
	c.operate("resume", func(im *meta.Image) []meta.Func {
		if t := im.Table(c.table); t == nil || t.State != meta.TablePaused {
			return nil
		}
		return []meta.Func{meta.ResumeTable(c.table, from)}
	})
}

// otherName is what every table is called that is made to be deleted.
const otherName = "other"

// makeAndDelete makes a table on the same stream, and deletes it after a while. The
// next one gets its name.
func (c *cluster) makeAndDelete() bool {
	if n := len(c.others); n > 0 && !c.isGone(c.others[n-1]) {
		return false
	}
	id := c.uuid()
	c.others = append(c.others, id)
	cfg := c.tableConfig(c.w.rnd.Intn(3))
	cfg.Name = otherName
	c.operate("make another table", func(im *meta.Image) []meta.Func {
		if im.Table(id) == nil {
			return []meta.Func{meta.CreateTable(cfg, id)}
		}
		c.w.after(c.w.between(5*time.Second, 90*time.Second), "delete the other table", func() { c.deleteOther(id) })
		return nil
	})
	return true
}

func (c *cluster) deleteOther(id uuid.UUID) {
	c.operate("delete the other table", func(im *meta.Image) []meta.Func {
		if t := im.Table(id); t == nil || t.State == meta.TableDeleting {
			return nil
		}
		c.check.mayGo[id] = true
		return []meta.Func{meta.DeleteTable(id)}
	})
}

// isGone reports whether a table was made and deleted, and nothing of it is left but
// tombstones.
func (c *cluster) isGone(id uuid.UUID) bool {
	return c.check.mayGo[id] && c.check.image.Table(id) == nil
}

const once = true

// operatorPatience is how long an operator waits for an answer.
const operatorPatience = time.Minute

// operate is an operator's change: it goes to the leader again and again, until
// nothing more is needed of what is committed, or with once until one was written.
func (c *cluster) operate(what string, todo func(*meta.Image) []meta.Func, just ...bool) {
	var try func()
	again := func(d time.Duration) { c.w.after(d, what, try) }
	try = func() {
		l := c.leader()
		if l == nil {
			again(time.Second)
			return
		}
		fns := todo(c.check.image)
		if len(fns) == 0 {
			return
		}
		left := len(fns)
		for _, fn := range fns {
			l.submit(fn, func(_ metalog.Result, err error) {
				if left--; left == 0 && (err != nil || len(just) == 0) {
					again(c.w.between(time.Second, 3*time.Second))
				}
			})
		}
		// A leader that dies answers nothing: nobody waits for it for ever.
		c.w.after(operatorPatience, what+", no answer", func() {
			if left > 0 {
				left = -1
				again(0)
			}
		})
	}
	again(0)
}

// askRelease has a node ask for the release of a copy, and delete it if that is
// granted, as it will when tables limit how long nodes keep what is in the deep
// store.
func (c *cluster) askRelease() bool {
	n := c.runningNode()
	if n == nil {
		return false
	}
	var copies []*meta.Segment
	for s := range n.image.SegmentsListed(n.name) {
		if _, ok := n.store.Get(s.Table, s.Partition, s.Name, s.Digest); ok && s.Status == meta.SegmentDone {
			copies = append(copies, s)
		}
	}
	if len(copies) == 0 {
		return false
	}
	return n.askReleaseOf(copies[c.w.rnd.Intn(len(copies))])
}

func (n *simNode) askReleaseOf(s *meta.Segment) bool {
	c, node := n.c, n.image.Node(n.name)
	if !n.standing.registered || n.image.Next() < n.standing.highWatermark || node == nil || node.Incarnation != n.standing.incarnation {
		return false
	}
	report := meta.LocationReport{
		Node: n.name, Incarnation: n.standing.incarnation, StoreID: n.store.StoreID(), Sequence: node.LocationsSeq + 1,
		Release: []meta.CopyRef{{Table: s.Table, Partition: s.Partition, Seq: s.Seq, Digest: s.Digest}},
	}
	n.after(0, "release asked", func() {
		c.check.givenUp(&report)
		n.releasing[s.SegmentKey()] = true
		askLeader(n, "release", 30*time.Second,
			func(l *simController, reply func(answered[meta.LocationVerdicts])) { l.locations(report, reply) },
			func(a answered[meta.LocationVerdicts], err error) {
				if err == nil && a.code == "" && len(a.body.Release) == 1 && a.body.Release[0].Accepted {
					n.letGo(s)
				}
				// Reports that were decided on before are on their way out by then.
				n.after(time.Second, "release settled", func() { delete(n.releasing, s.SegmentKey()) })
			})
	})
	return true
}

// notReleasing leaves out the copies whose release has been asked for: a node does
// not report what it may be about to delete.
func (n *simNode) notReleasing(refs []meta.CopyRef) []meta.CopyRef {
	return slices.DeleteFunc(slices.Clone(refs), func(r meta.CopyRef) bool { return n.releasing[r.SegmentKey()] })
}

// letGo deletes a copy whose release was granted.
func (n *simNode) letGo(s *meta.Segment) {
	h, ok := n.store.Get(s.Table, s.Partition, s.Name, s.Digest)
	if !ok {
		return
	}
	n.c.w.count.outcomes["release granted"]++
	n.c.check.released(n, s)
	if err := n.take(h, func() error { return n.store.Remove(h) }); err != nil && !n.disk.off {
		n.c.w.trace.notef(n.c.w.now, "%s: remove: %v", n.name, err)
	}
	n.storeChanged(s.SegmentKey())
}
