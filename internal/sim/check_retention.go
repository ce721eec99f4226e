package sim

import (
	"slices"
	"time"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

// retired checks the end of a committed segment: it leaves a tombstone, and it was
// old enough by a clock that most of the cluster agrees with.
func (k *checker) retired(before *meta.Image, s *meta.Segment) {
	if k.image.Tombstone(s.SegmentKey()) == nil {
		k.fail("I2", "%s was DONE and is gone without a tombstone", s.Name)
	}
	if k.isDeleting(before, s.Table) {
		k.c.w.count.outcomes["segment of a deleted table gone"]++
		return
	}
	k.c.w.count.outcomes["segment retired"]++
	if k.c.plan.RetentionAge == 0 {
		k.fail("I2", "%s was DONE and is gone, and nobody wants it to", s.Name)
		return
	}
	l := k.c.controllerAt(k.image.Leader().URL) // whose batch this is
	const settles = 30 * time.Second            // until heartbeats have told of a clock, and for the round trip
	skews := []time.Duration{}
	for _, n := range k.c.nodes {
		if record := k.image.Node(n.name); record != nil && record.State == meta.NodeUp {
			if k.c.w.now-n.skewedAt < settles {
				return
			}
			skews = append(skews, n.skew)
		}
	}
	if l == nil || len(skews) == 0 || k.c.w.now-l.skewedAt < settles {
		return
	}
	slices.Sort(skews)
	low, high := skews[(len(skews)-1)/2], skews[len(skews)/2]
	if most := time.Minute + settles; l.skew-high > most || low-l.skew > most {
		k.fail("I3", "%s is taken by the clock of %s, which is %s off, while the nodes' are %v", s.Name, l.name, l.skew, skews)
	}
}

// tombstoneChanged notes that the grace of a segment has ended.
func (k *checker) tombstoneChanged(key meta.SegmentKey) {
	if t := k.image.Tombstone(key); t != nil && t.Expired {
		k.expired[key] = true
	}
}

// removingRetired checks a copy that goes and whose segment has no record: by an
// expired tombstone, or aside, because nothing explains it.
func (k *checker) removingRetired(n *simNode, h segment.Held, why string) {
	key := heldKey(h)
	switch {
	case k.expired[key], k.digests[key] != (segment.Digest{}) && k.digests[key] != h.Digest: // a build that differs was for the rules before
	case k.image.Tombstone(key) != nil:
		k.fail("I3", "%s removes %s, and the grace of its tombstone is not over: %s", n.name, h.File(), why)
	case why != unexplained:
		k.fail("I3", "%s removes %s, of which there is neither record nor tombstone: %s", n.name, h.File(), why)
	}
}
