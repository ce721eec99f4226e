package meta

import (
	"regexp"
	"slices"

	"github.com/google/uuid"
)

// Registration is what a node says of itself when it starts (DESIGN §5).
type Registration struct {
	ID            string    `json:"id"`
	URL           string    `json:"url"`
	Zone          string    `json:"zone,omitempty"`
	Tags          []string  `json:"tags,omitempty"`
	CapacityBytes int64     `json:"capacityBytes,omitempty"`
	StoreID       uuid.UUID `json:"storeId"`
	BootID        uuid.UUID `json:"bootId"`
}

// nodeID is the grammar of node ids: they are path elements and URL parts.
var nodeID = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,126}[A-Za-z0-9])?$`)

// CheckNodeID returns a *Refusal if no node can be called so.
func CheckNodeID(id string) error {
	if !nodeID.MatchString(id) {
		return refusal(CodeInvalidNode,
			"node id %q is not 1 to 128 letters, digits, '_', '.', '-' that begin and end with a letter or digit", plain(id))
	}
	return nil
}

// RegisterNode makes the node UP (one that is DRAINING stays so). The same boot
// keeps its incarnation, another gets the next; with a new store, the locations
// in the old one stop counting. An id that is UP belongs to its store: another
// store is refused NODE_ID_IN_USE. One that is DRAINING may come with another
// store: it never becomes DOWN, so it could not come back else after its disk was
// replaced.
//
// The incarnation is stored in *incarnation when the function is evaluated.
func RegisterNode(r Registration, incarnation *int64) Func {
	return func(im *Image, now int64) (Change, error) {
		if err := CheckNodeID(r.ID); err != nil {
			return Change{}, err
		}
		if r.StoreID == (uuid.UUID{}) || r.BootID == (uuid.UUID{}) || r.URL == "" {
			return refuse(CodeInvalidNode, "node %s needs a URL, a store id and a boot id", r.ID)
		}
		n := &Node{
			ID: r.ID, URL: r.URL, Zone: r.Zone, Tags: trimmed(slices.Clone(r.Tags)), CapacityBytes: r.CapacityBytes,
			StoreID: r.StoreID, BootID: r.BootID, Incarnation: 1, State: NodeUp,
		}
		old := im.Node(r.ID)
		if old != nil {
			if old.State == NodeUp && old.StoreID != r.StoreID {
				return refuse(CodeNodeIDInUse, "node %s is %s with store %s", r.ID, old.State, old.StoreID)
			}
			n.Incarnation = old.Incarnation + 1
			if old.BootID == r.BootID && old.StoreID == r.StoreID {
				n.Incarnation, n.LocationsSeq = old.Incarnation, old.LocationsSeq
			}
			if old.State == NodeDraining {
				n.State = NodeDraining
			}
		}
		*incarnation = n.Incarnation
		if old != nil && sameNode(old, n) {
			return Change{}, nil
		}
		return sized(n)
	}
}

func sameNode(a, b *Node) bool {
	return a.ID == b.ID && a.URL == b.URL && a.Zone == b.Zone && slices.Equal(a.Tags, b.Tags) &&
		a.CapacityBytes == b.CapacityBytes && a.StoreID == b.StoreID && a.BootID == b.BootID &&
		a.Incarnation == b.Incarnation && a.LocationsSeq == b.LocationsSeq && a.State == b.State
}

// AnyIncarnation stands for whichever incarnation a node has.
const AnyIncarnation int64 = 0

// SetNodeState changes whether the node is counted on. A state that was found
// out about one incarnation, such as DOWN, does nothing to a later one;
// operators say AnyIncarnation.
func SetNodeState(id string, incarnation int64, state NodeState) Func {
	return func(im *Image, now int64) (Change, error) {
		n := im.Node(id)
		if n == nil {
			return refuse(CodeUnknownNode, "no node %q is registered", id)
		}
		if incarnation != AnyIncarnation && n.Incarnation != incarnation || n.State == state {
			return Change{}, nil
		}
		n = n.Clone()
		n.State = state
		return upserts(n)
	}
}

// RemoveNode forgets a node that is not UP and that nothing names any more. One
// that is DRAINING may still be alive, and would register again: the caller sees to
// it that it is not.
func RemoveNode(id string) Func {
	return func(im *Image, now int64) (Change, error) {
		n := im.Node(id)
		switch {
		case n == nil:
			return refuse(CodeUnknownNode, "no node %q is registered", id)
		case n.State == NodeUp:
			return refuse(CodeNodeInUse, "node %s is %s: drain and stop it first", id, n.State)
		}
		for s := range im.SegmentsNaming(id) {
			if s.Status == SegmentInProgress || s.NodeLocation(id) != nil {
				return refuse(CodeNodeInUse, "node %s is named by %s", id, s.Name)
			}
		}
		for _, p := range im.partitions.all() {
			if slices.Contains(p.Replicas, id) {
				return refuse(CodeNodeInUse, "node %s is a replica of partition %s", id, p.PartitionKey())
			}
		}
		return Change{Removals: []Key{n.Key()}}, nil
	}
}
