package meta

import (
	"cmp"
	"slices"
)

// Copies are the copies of a segment that count.
type Copies struct {
	// Nodes are the locations whose store is the node's current one, on a node
	// that is UP.
	Nodes []Location
	// DeepStore are the verified deep-store locations.
	DeepStore []Location
}

// Total is how many copies count.
func (c Copies) Total() int { return len(c.Nodes) + len(c.DeepStore) }

// CountedCopies returns the copies of the segment that count (DESIGN §1). One on
// a DRAINING node does not: it is about to go, and has to be replaced first.
func CountedCopies(im *Image, s *Segment) Copies {
	var c Copies
	for _, l := range s.Locations {
		switch {
		case l.URI != "" && l.Verified:
			c.DeepStore = append(c.DeepStore, l)
		case l.URI == "" && isCurrent(im, l) && im.Node(l.Node).State == NodeUp:
			c.Nodes = append(c.Nodes, l)
		}
	}
	return c
}

// isCurrent reports whether a node's location is in the store that the node has
// now. A replaced disk is another store.
func isCurrent(im *Image, l Location) bool {
	n := im.Node(l.Node)
	return n != nil && n.StoreID == l.StoreID
}

// Replication returns how many node copies the segment should have: what its
// table's current configuration says.
func Replication(im *Image, s *Segment) int {
	if c := im.CurrentConfig(s.Table); c != nil {
		return c.Replication
	}
	return max(1, len(s.Replicas))
}

// IsUnderReplicated reports whether a DONE segment has fewer counted node copies than
// its replication.
func IsUnderReplicated(im *Image, s *Segment) bool {
	return s.Status == SegmentDone && len(CountedCopies(im, s).Nodes) < Replication(im, s)
}

// IsNotInDeepStore reports whether a DONE segment's table has a deep store, and no
// verified copy is there.
func IsNotInDeepStore(im *Image, s *Segment) bool {
	if s.Status != SegmentDone || s.DeepStoreVerified() {
		return false
	}
	cfg := im.CurrentConfig(s.Table)
	return cfg != nil && cfg.DeepStore != nil
}

// IsSingleCopy reports whether the segment is at risk (DESIGN §1): DONE, not
// verified in the deep store, and with fewer counted node copies than its
// replication. At replication 1 every such segment is.
func IsSingleCopy(im *Image, s *Segment) bool {
	if s.Status != SegmentDone || s.DeepStoreVerified() {
		return false
	}
	want := Replication(im, s)
	return want <= 1 || len(CountedCopies(im, s).Nodes) < want
}

// Risk orders segments by how urgently they need another copy: at risk before not,
// among those the ones with fewer copies first, and then the oldest.
type Risk struct {
	Single    bool  // IsSingleCopy
	Copies    int   // that count; of one that is not at risk it does not matter
	Committed int64 // ms
}

// RiskOf returns the risk of a DONE segment.
func RiskOf(im *Image, s *Segment) Risk {
	r := Risk{Single: IsSingleCopy(im, s), Committed: s.Times.Committed}
	if r.Single {
		r.Copies = CountedCopies(im, s).Total()
	}
	return r
}

// Compare is negative if r is the more urgent.
func (r Risk) Compare(o Risk) int {
	if r.Single != o.Single {
		if r.Single {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(r.Copies, o.Copies), cmp.Compare(r.Committed, o.Committed))
}

// Source is where a segment's bytes can be fetched: from a node, or from a
// deep-store URI when Node is empty.
type Source struct {
	Node string
	URL  string // of the node
	Zone string // of the node
	URI  string
}

// Sources returns where the segment can be fetched, best first: peers and the
// deep store in the order of the policy (peers first for BothAtOnce), among
// peers those in the zone of the node self before the others, and UP before
// DRAINING ones, which still serve although their copies do not count. The node
// self is left out; it is empty for a reader outside the cluster.
func Sources(im *Image, s *Segment, policy DownloadPolicy, self string) []Source {
	type peer struct {
		Source
		rank int
	}
	var zone string
	if n := im.Node(self); n != nil {
		zone = n.Zone
	}
	var peers []peer
	var deep []Source
	for _, l := range s.Locations {
		if l.URI != "" {
			if l.Verified {
				deep = append(deep, Source{URI: l.URI})
			}
			continue
		}
		n := im.Node(l.Node)
		if l.Node == self || !isCurrent(im, l) || n.State == NodeDown {
			continue
		}
		p := peer{Source: Source{Node: n.ID, URL: n.URL, Zone: n.Zone}}
		if n.State != NodeUp {
			p.rank += 2
		}
		if n.Zone != zone {
			p.rank++
		}
		peers = append(peers, p)
	}
	slices.SortFunc(peers, func(a, b peer) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.Node, b.Node))
	})
	slices.SortFunc(deep, func(a, b Source) int { return cmp.Compare(a.URI, b.URI) })
	near := make([]Source, len(peers))
	for i, p := range peers {
		near[i] = p.Source
	}
	if policy == DeepStoreFirst {
		return append(deep, near...)
	}
	return append(near, deep...)
}

// noteCopies sets the moments of s that depend on how many copies count.
func noteCopies(im *Image, s *Segment, now int64) {
	counted := CountedCopies(im, s)
	if len(counted.Nodes) >= 2 {
		setOnce(&s.Times.SecondCopy, now)
	}
	if len(counted.Nodes) >= Replication(im, s) {
		setOnce(&s.Times.Replicated, now)
	}
	if len(counted.DeepStore) > 0 {
		setOnce(&s.Times.DeepStore, now)
	}
}

func setOnce(t *int64, now int64) {
	if *t == 0 {
		*t = now
	}
}
