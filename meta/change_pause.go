package meta

import (
	"slices"

	"github.com/google/uuid"
)

// PauseTable lets no successor follow the table's IN_PROGRESS segments; PauseNext
// has them end. A pause by a person takes the place of one that may be lifted
// without one.
func PauseTable(id uuid.UUID, why Pause) Func {
	why = Pause{Reason: plain(why.Reason), By: plain(why.By)}
	return func(im *Image, now int64) (Change, error) {
		t := im.Table(id)
		switch {
		case t == nil:
			return refuse(CodeUnknownTable, "no table %s", id)
		case t.State == TablePaused && (why.Reason != PauseAdministrative || t.Pause != nil && t.Pause.Reason == PauseAdministrative):
			return Change{}, nil
		case t.State == TableDeleting:
			return refuse(CodeTableDeleting, "table %q is being deleted", t.Name)
		case t.State == TableCreating:
			return refuse(CodeTableNotActive, "table %q is %s", t.Name, t.State)
		}
		t = t.Clone()
		t.State, t.Pause, t.ConsumeFrom = TablePaused, &why, FromLastConsumed
		return upserts(t)
	}
}

// ResumeTable lets the table's partitions consume again: those that are still ending
// a segment go on after it, those that are PAUSED where from says, by ResumeNext.
func ResumeTable(id uuid.UUID, from ConsumeFrom) Func {
	return func(im *Image, now int64) (Change, error) {
		t := im.Table(id)
		switch {
		case t == nil:
			return refuse(CodeUnknownTable, "no table %s", id)
		case t.State == TableActive:
			return Change{}, nil
		case t.State == TableDeleting:
			return refuse(CodeTableDeleting, "table %q is being deleted", t.Name)
		case t.State != TablePaused:
			return refuse(CodeTableNotActive, "table %q is %s", t.Name, t.State)
		}
		t = t.Clone()
		t.State, t.Pause, t.ConsumeFrom = TableActive, nil, from
		return upserts(t)
	}
}

// PauseNext is the next step of a pause: segments of the PAUSED table that are
// IN_PROGRESS and have not been asked to end are. Their partitions become PAUSED by
// the batches that end them.
func PauseNext(id uuid.UUID) Func {
	return func(im *Image, now int64) (Change, error) {
		if t := im.Table(id); t == nil || t.State != TablePaused {
			return Change{}, nil
		}
		var st step
		for p := range im.Partitions(id) {
			s := im.InProgress(p.PartitionKey())
			if s == nil || s.EndRequested != nil {
				continue
			}
			if added, err := st.add(Change{Upserts: []Record{im.askToEnd(s, EndPause, now)}}); err != nil || !added {
				return st.result(err)
			}
		}
		return st.result(nil)
	}
}

// askToEnd returns the record of s with the request to end it.
func (im *Image) askToEnd(s *Segment, reason string, now int64) *Segment {
	s = s.Clone()
	s.EndRequested = &EndRequested{Reason: reason}
	s.LeaderEpoch = im.leaderEpoch()
	s.Times.EndRequested = now
	return s
}

// ResumeNext is the next step of a resume: PAUSED partitions of the ACTIVE table get
// their next segment. It begins where starts says, by partition, but not below where
// the partition stands, which is what counts for those that starts does not have.
// What is skipped becomes a hole.
//
// Its replicas are nodes that are UP: those the partition has, and others of the
// ready ones. While there are too few of those it keeps such as may come back.
func ResumeNext(id uuid.UUID, starts map[int32]int64, ready []string) Func {
	return func(im *Image, now int64) (Change, error) {
		t := im.Table(id)
		if t == nil || t.State != TableActive {
			return Change{}, nil
		}
		var placer *Placer
		var st step
		for p := range im.Partitions(id) {
			if p.State != PartitionPaused {
				continue
			}
			if placer == nil {
				placer = NewPlacer(im, among(ready))
			}
			p = p.Clone()
			from := p.Position()
			if start, listed := starts[p.Partition]; listed {
				from = max(from, start)
			}
			p.skipTo(from, "consumption was resumed at the "+string(t.ConsumeFrom)+" offset")
			p.State = PartitionConsuming
			p.Replicas = placer.again(im, p.Replicas, im.CurrentConfig(id).Replication)
			if added, err := st.add(Change{Upserts: []Record{p, im.open(t, p, from, now)}}); err != nil || !added {
				return st.result(err)
			}
		}
		return st.result(nil)
	}
}

// among accepts the nodes in ids.
func among(ids []string) func(*Node) bool {
	return func(n *Node) bool { return slices.Contains(ids, n.ID) }
}

// again returns replicas for a partition that begins to consume anew, where nothing
// that its old ones hold has to be waited for.
func (p *Placer) again(im *Image, old []string, replication int) []string {
	in := func(state NodeState) (ids []string) {
		for _, id := range old {
			if n := im.Node(id); n != nil && n.State == state {
				ids = append(ids, id)
			}
		}
		return ids
	}
	replicas := p.Place(replication, in(NodeUp)...)
	for _, id := range in(NodeDown) {
		if len(replicas) < replication {
			replicas = append(replicas, id)
		}
	}
	return replicas
}
