package meta

import (
	"cmp"
	"slices"
)

// Placer chooses nodes for partitions: those UP, spread over zones, the least
// loaded first. It counts what it has placed, so that the partitions of one
// batch spread too. The same image and the same calls give the same answers.
type Placer struct {
	nodes []*Node // by id
	load  map[string]int
}

// NewPlacer starts from the load in the image: for each node the IN_PROGRESS
// segments that name it. Only nodes that eligible accepts are chosen; nil
// accepts all that are UP.
func NewPlacer(im *Image, eligible func(*Node) bool) *Placer {
	p := &Placer{load: map[string]int{}}
	for n := range im.Nodes() {
		if n.State != NodeUp || eligible != nil && !eligible(n) {
			continue
		}
		p.nodes = append(p.nodes, n)
		p.load[n.ID] = im.consumingCount(n.ID)
	}
	return p
}

// Place returns replicas for one partition: the nodes in keep, whatever their
// state, and others up to replication. There may be fewer than that, or none,
// when there are not enough nodes.
func (p *Placer) Place(replication int, keep ...string) []string {
	chosen := slices.Clone(keep)
	zones := map[string]int{}
	for _, n := range p.nodes {
		if slices.Contains(keep, n.ID) {
			zones[n.Zone]++
		}
	}
	for len(chosen) < replication {
		var best *Node
		for _, n := range p.nodes {
			if slices.Contains(chosen, n.ID) {
				continue
			}
			if best == nil || cmp.Or(
				cmp.Compare(zones[n.Zone], zones[best.Zone]),
				cmp.Compare(p.load[n.ID], p.load[best.ID]),
			) < 0 {
				best = n
			}
		}
		if best == nil {
			break
		}
		chosen = append(chosen, best.ID)
		zones[best.Zone]++
		p.load[best.ID]++
	}
	return chosen
}

// consumingCount is how many IN_PROGRESS segments name the node.
func (im *Image) consumingCount(node string) int {
	if t := im.byNode.get(node).consuming.tree; t != nil {
		return t.Len()
	}
	return 0
}
