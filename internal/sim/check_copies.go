package sim

import (
	"slices"

	"github.com/shoalstore/shoal/internal/node"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

// The rules by which copies come and go (DESIGN §4.1 and §4.5), said here once more
// and apart from the code that keeps them.

// letGo is a copy that its node has withdrawn, or asked to be released from.
type letGo struct {
	node    string
	segment meta.SegmentKey
}

// givenUp notes what a report says of copies that are gone, or may be about to go.
func (k *checker) givenUp(r *meta.LocationReport) {
	for _, ref := range r.Withdraw {
		k.withdrawn[letGo{r.Node, ref.SegmentKey()}] = true
	}
	for _, ref := range r.Release {
		k.releases[letGo{r.Node, ref.SegmentKey()}] = true
	}
}

// accepted checks what a leader says of a report: a copy that it says is listed is,
// unless its node has given it up since.
func (k *checker) accepted(r *meta.LocationReport, v *meta.LocationVerdicts) {
	for i, verdict := range v.Add {
		key := r.Add[i].SegmentKey()
		s, at := k.image.Segment(key), letGo{r.Node, key}
		if verdict.Accepted && s != nil && s.Digest == r.Add[i].Digest && s.NodeLocation(r.Node) == nil && !k.withdrawn[at] && !k.releases[at] {
			k.fail("I3", "%s is told that its copy of %s is listed, and it is not", r.Node, s.Name)
		}
	}
}

// checkGone looks at the locations that a batch has taken away: their node said so,
// or enough others stay. A batch holds several changes, so what counted before it or
// counts after it may have counted in between.
func (k *checker) checkGone(before *meta.Image, was, is *meta.Segment) {
	if was == nil || was.Status != meta.SegmentDone {
		return
	}
	for _, l := range was.Locations {
		at := letGo{l.Node, is.SegmentKey()}
		switch {
		case l.URI != "":
			if l.Verified && !k.behind[is.Name] && is.Generation == was.Generation && !slices.ContainsFunc(is.Locations, func(o meta.Location) bool { return o.URI == l.URI }) && k.c.objects.has(is.Name, is.Digest) {
				k.fail("I3", "%s is in the deep store, and not listed there any more", is.Name)
			}
		case is.NodeLocation(l.Node) != nil, k.withdrawn[at]:
		case !k.releases[at]:
			k.fail("I3", "%s is not listed at %s any more, which did not say so", is.Name, l.Node)
		default:
			others := map[string]bool{}
			countOthers(before, was, l.Node, others)
			countOthers(k.image, is, l.Node, others)
			if len(others) < min(k.c.plan.Replication, 2) {
				k.fail("I3", "%s is released at %s, and only %d others count", is.Name, l.Node, len(others))
			}
		}
	}
}

// countOthers notes the places at which a copy counts, but for one node.
func countOthers(im *meta.Image, s *meta.Segment, except string, places map[string]bool) {
	for _, l := range s.Locations {
		switch n := im.Node(l.Node); {
		case l.URI != "":
			if l.Verified {
				places[l.URI] = true
			}
		case n != nil && l.Node != except && n.StoreID == l.StoreID && n.State == meta.NodeUp:
			places[l.Node] = true
		}
	}
}

// listedNow: the bytes are there when the location is. A disk that was replaced
// since is another store, and damage is found later.
func (k *checker) listedNow(s *meta.Segment, l meta.Location) {
	n := k.c.nodeAt(l.Node)
	if n.store == nil || n.store.StoreID() != l.StoreID || n.rotted[s.Digest] || n.vanished {
		return
	}
	if !n.holdsDurably(s.SegmentKey(), s.Digest) {
		k.fail("I3", "%s is listed at %s, which has no such copy", s.Name, l.Node)
	}
}

// decided looks at what the machine of a node's copies wants, by the image it has.
func (k *checker) decided(n *simNode, a node.Action) {
	rm, ok := a.(node.Remove)
	if !ok {
		return
	}
	s := n.image.Segment(heldKey(rm.Held))
	if s == nil || s.Status != meta.SegmentDone {
		return
	}
	places := map[string]bool{}
	countOthers(n.image, s, n.name, places)
	if l := s.NodeLocation(n.name); l != nil && slices.ContainsFunc(n.store.HeldOf(s.Table, s.Partition, s.Seq), func(h segment.Held) bool {
		return h.State == segment.StateSealed && h.Digest == s.Digest
	}) {
		places[n.name] = true
	}
	deep := slices.ContainsFunc(s.Locations, func(l meta.Location) bool { return l.URI != "" && l.Verified })
	if len(places) < 2 && !deep {
		k.fail("I3", "%s removes %s while %d copies of the committed one count", n.name, rm.Held.File(), len(places))
	}
}
