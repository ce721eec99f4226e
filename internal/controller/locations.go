package controller

import (
	"github.com/google/uuid"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/meta"
)

// confirmations are the copies that were confirmed in this epoch: those of
// nodes by their holder, those in the deep store by the leader's own look. A
// release is granted only on confirmed copies, because a location in the image
// may be older than the loss of its bytes.
type confirmations struct {
	nodes map[nodeStore]map[meta.SegmentKey]struct{}
	deep  map[meta.SegmentKey]map[string]struct{} // URIs
}

// nodeStore is a node with the store it had when it confirmed: a replaced disk
// confirms nothing of the old one.
type nodeStore struct {
	node  string
	store uuid.UUID
}

func newConfirmations() confirmations {
	return confirmations{
		nodes: map[nodeStore]map[meta.SegmentKey]struct{}{},
		deep:  map[meta.SegmentKey]map[string]struct{}{},
	}
}

func (c *confirmations) confirm(at nodeStore, k meta.SegmentKey) {
	if c.nodes[at] == nil {
		c.nodes[at] = map[meta.SegmentKey]struct{}{}
	}
	c.nodes[at][k] = struct{}{}
}

func (c *confirmations) withdraw(at nodeStore, k meta.SegmentKey) { delete(c.nodes[at], k) }

func (c *confirmations) confirmDeep(k meta.SegmentKey, uri string) {
	if c.deep[k] == nil {
		c.deep[k] = map[string]struct{}{}
	}
	c.deep[k][uri] = struct{}{}
}

// withdrawDeep takes back what was confirmed of a deep-store copy.
func (c *confirmations) withdrawDeep(k meta.SegmentKey, uri string) { delete(c.deep[k], uri) }

func (c *confirmations) forgetNode(node string) { c.forgetOtherStores(nodeStore{node: node}) }

// forgetOtherStores keeps, of what the node confirmed, only what is in its store.
func (c *confirmations) forgetOtherStores(keep nodeStore) {
	for at := range c.nodes {
		if at.node == keep.node && at != keep {
			delete(c.nodes, at)
		}
	}
}

func (c *confirmations) forgetSegment(k meta.SegmentKey) {
	delete(c.deep, k)
	for _, held := range c.nodes {
		delete(held, k)
	}
}

func (c *confirmations) has(l meta.Location, k meta.SegmentKey) bool {
	if l.URI != "" {
		_, ok := c.deep[k][l.URI]
		return ok
	}
	_, ok := c.nodes[nodeStore{l.Node, l.StoreID}][k]
	return ok
}

// located takes a node's report of its copies. What it confirms is kept in
// memory, what it uploaded is looked at, and the rest becomes one change.
func (m *Machine) located(ev Located) {
	r := &ev.Report
	refuse := Refusal("")
	if !m.leading {
		refuse = RefuseNotLeader
	} else if n := m.image.Node(r.Node); n == nil || n.Incarnation != r.Incarnation || n.StoreID != r.StoreID {
		refuse = RefuseStaleIncarnation
	}
	if refuse != "" {
		m.do(AnswerLocations{Ticket: ev.Ticket, Refuse: refuse})
		return
	}
	if r.Sequence > m.image.Node(r.Node).LocationsSeq { // else it is an old one, late
		m.hear(r)
	}
	verdicts := &meta.LocationVerdicts{}
	m.write(effect{purpose: forLocations, ticket: ev.Ticket, verdicts: verdicts},
		"locations of "+r.Node, meta.Locations(r, m.confirmedNow(r.Release), verdicts))
}

// hear takes in what a report says that is not for the image.
func (m *Machine) hear(r *meta.LocationReport) {
	at := nodeStore{r.Node, r.StoreID}
	for _, ref := range r.Withdraw {
		m.confirmed.withdraw(at, ref.SegmentKey())
	}
	for _, refs := range [][]meta.CopyRef{r.Confirm, r.Add} {
		for _, ref := range refs {
			if s := m.committed(ref); s != nil {
				m.confirmed.confirm(at, ref.SegmentKey())
			}
		}
	}
	for _, up := range r.Uploaded {
		if s := m.committed(up.CopyRef); s != nil {
			m.check(s, up.URI)
		}
	}
	for _, ref := range r.Release {
		if s := m.committed(ref); s != nil {
			m.confirmDeepCopies(s)
		}
	}
}

// committed finds the DONE segment that a copy is of, nil if its digest is not
// the committed one.
func (m *Machine) committed(ref meta.CopyRef) *meta.Segment {
	if s := m.image.Segment(ref.SegmentKey()); s != nil && s.Status == meta.SegmentDone && s.Digest == ref.Digest {
		return s
	}
	return nil
}

// confirmDeepCopies has the copies that an earlier leader verified looked at
// again, because somebody wants to release one that they would have to stand for.
// It is refused until then, and asks again.
func (m *Machine) confirmDeepCopies(s *meta.Segment) {
	for _, l := range s.Locations {
		if l.URI != "" && l.Verified && !m.confirmed.has(l, s.SegmentKey()) {
			m.check(s, l.URI)
		}
	}
}

// confirmedNow is what is known of the copies of these segments now, in a form
// that can be looked at while the machine goes on.
func (m *Machine) confirmedNow(refs []meta.CopyRef) func(meta.Location, meta.SegmentKey) bool {
	known := map[meta.SegmentKey][]meta.Location{}
	for _, ref := range refs {
		k := ref.SegmentKey()
		if s := m.image.Segment(k); s != nil {
			for _, l := range s.Locations {
				if m.confirmed.has(l, k) {
					known[k] = append(known[k], l)
				}
			}
		}
	}
	return func(l meta.Location, k meta.SegmentKey) bool {
		for _, c := range known[k] {
			if c.Node == l.Node && c.StoreID == l.StoreID && c.URI == l.URI {
				return true
			}
		}
		return false
	}
}

func (m *Machine) locationsWrote(e effect, ev Wrote) {
	answer := AnswerLocations{Ticket: e.ticket}
	switch ev.Outcome {
	case commit.Written:
		answer.Verdicts = *e.verdicts
	case commit.WriteRefused:
		answer.Refuse = RefuseStaleIncarnation // the only thing it refuses as a whole
	default:
		answer.Refuse = RefuseUnknown
	}
	m.do(answer)
}
