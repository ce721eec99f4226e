package meta

import "slices"

// UndrainNode ends the draining of a node, which gets new work again; what has moved
// away stays where it is. alive says whether the leader hears of it: it is UP then,
// else DOWN until it is heard of.
func UndrainNode(id string, alive bool) Func {
	return func(im *Image, now int64) (Change, error) {
		n := im.Node(id)
		switch {
		case n == nil:
			return refuse(CodeUnknownNode, "no node %q is registered", id)
		case n.State != NodeDraining:
			return Change{}, nil
		}
		n = n.Clone()
		n.State = NodeDown
		if alive {
			n.State = NodeUp
		}
		return upserts(n)
	}
}

// DrainNext is the next step of draining a node that is DRAINING: partitions that
// name it get other replicas, of the nodes that are UP and ready, and the segments
// that it consumes are asked to end, so that their successors begin there. A
// partition that would be left without a node that is UP waits; it consumes on.
//
// A partition may be left with fewer replicas than its table wants, while there are
// fewer nodes than that.
func DrainNext(node string, ready []string) Func {
	return func(im *Image, now int64) (Change, error) {
		if n := im.Node(node); n == nil || n.State != NodeDraining {
			return Change{}, nil
		}
		d := drain{im: im, node: node, now: now, placer: NewPlacer(im, among(ready)), seen: map[PartitionKey]bool{}}
		// What it consumes is found at once; the other partitions that name it, PAUSED
		// or ENDED or just moved, only by a look at all.
		for s := range im.SegmentsConsuming(node) {
			if s.EndRequested != nil {
				continue
			}
			if more, err := d.take(im.partitions.get(s.SegmentKey().PartitionKey())); err != nil || !more {
				return d.result(err)
			}
		}
		for _, p := range im.partitions.all() {
			if !slices.Contains(p.Replicas, node) {
				continue
			}
			if more, err := d.take(p); err != nil || !more {
				return d.result(err)
			}
		}
		return d.result(nil)
	}
}

// drain is a step of one in the making.
type drain struct {
	step
	im     *Image
	node   string
	now    int64
	placer *Placer
	seen   map[PartitionKey]bool
}

// take moves a partition away, unless there is nowhere to move it to, and reports
// whether there is room for more.
func (d *drain) take(p *Partition) (more bool, err error) {
	if p == nil || d.seen[p.PartitionKey()] || d.im.deleting(p.Table) {
		return true, nil
	}
	d.seen[p.PartitionKey()] = true
	replicas, ok := d.elsewhere(p)
	if !ok {
		return true, nil
	}
	var c Change
	if !slices.Equal(replicas, p.Replicas) {
		p = p.Clone()
		p.Replicas = replicas
		c.Upserts = append(c.Upserts, p)
	}
	s := d.im.InProgress(p.PartitionKey())
	if s != nil && s.EndRequested == nil && slices.Contains(s.Replicas, d.node) {
		c.Upserts = append(c.Upserts, d.im.askToEnd(s, EndDrain, d.now))
	}
	if c.Empty() {
		return true, nil
	}
	return d.add(c)
}

// elsewhere chooses the replicas of a partition without the nodes that leave.
func (d *drain) elsewhere(p *Partition) (replicas []string, ok bool) {
	state := func(id string) NodeState {
		if n := d.im.Node(id); n != nil {
			return n.State
		}
		return NodeDraining // gone for good
	}
	keep := slices.DeleteFunc(slices.Clone(p.Replicas), func(id string) bool { return state(id) == NodeDraining })
	if p.State == PartitionEnded {
		return keep, true // it never consumes again
	}
	replicas = keep
	if cfg := d.im.CurrentConfig(p.Table); cfg != nil {
		replicas = d.placer.Place(cfg.Replication, keep...)
	}
	return replicas, slices.ContainsFunc(replicas, func(id string) bool { return state(id) == NodeUp })
}
