package up

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/meta"
)

// tableLook is what the cluster says of the table, joined by partition.
type tableLook struct {
	coverage   meta.TableCoverage
	partitions []partitionLook
}

// partitionLook is one partition's line.
type partitionLook struct {
	meta.PartitionCoverage
	state     meta.PartitionState // "" until the table has the partition
	attempt   int                 // of the segment that consumes
	lastError string              // of it, with the node
	readers   []reader            // the replicas that are UP, in the record's order
}

// reader is how far one replica has read.
type reader struct {
	node   string
	offset int64 // -1: it does not say yet
	state  string
}

// slowest is the least that a replica has read, −1 if one does not say or
// there is none.
func (p *partitionLook) slowest() int64 {
	least := int64(-1)
	for i, r := range p.readers {
		if i == 0 || r.offset < least {
			least = r.offset
		}
	}
	return least
}

// answers are what one look asked for.
type answers struct {
	coverage   meta.TableCoverage
	partitions []api.PartitionView
	nodes      []api.NodeView
	consuming  map[string][]api.ConsumingView // by node, of those that answered
}

// look asks the cluster, as anybody could.
func (r *run) look(ctx context.Context) (*tableLook, error) {
	var a answers
	var err error
	if err = r.control.Get(ctx, api.TablePath(r.table, "coverage"), &a.coverage); err != nil {
		return nil, err
	}
	if a.partitions, err = api.List[api.PartitionView](ctx, r.control, api.TablePath(r.table, "partitions")); err != nil {
		return nil, err
	}
	if a.nodes, err = api.List[api.NodeView](ctx, r.control, "/nodes"); err != nil {
		return nil, err
	}
	a.consuming = map[string][]api.ConsumingView{}
	for _, n := range a.nodes {
		var views []api.ConsumingView
		if n.State == meta.NodeUp && r.http.GetJSON(ctx, n.URL+"/partitions", &views) == nil {
			a.consuming[n.ID] = views
		}
	}
	return join(a, r.table), nil
}

// join puts the answers together. It is pure.
func join(a answers, table string) *tableLook {
	l := &tableLook{coverage: a.coverage}
	views := map[int32]*api.PartitionView{}
	for i := range a.partitions {
		views[a.partitions[i].Partition] = &a.partitions[i]
	}
	up := map[string]bool{}
	for _, n := range a.nodes {
		up[n.ID] = n.State == meta.NodeUp
	}
	for _, c := range a.coverage.Partitions {
		p := partitionLook{PartitionCoverage: c}
		if v := views[c.Partition]; v != nil {
			p.state = v.State
			replicas := v.Replicas
			if s := v.Consuming; s != nil {
				replicas, p.attempt = s.Replicas, s.Attempt
				if e := s.LastError; e != nil {
					p.lastError = e.Node + ": " + e.Error
				}
			}
			for _, id := range replicas {
				if up[id] {
					p.readers = append(p.readers, newReader(id, table, c.Partition, a.consuming[id]))
				}
			}
		}
		l.partitions = append(l.partitions, p)
	}
	return l
}

// newReader finds what a node says of a partition: of two segments during a
// roll-over, it is the later one that reads.
func newReader(node, table string, partition int32, views []api.ConsumingView) reader {
	r := reader{node: node, offset: -1, state: "not consuming yet"}
	for _, v := range views {
		if v.Table == table && v.Partition == partition && v.Offset >= r.offset {
			r.offset, r.state = v.Offset, v.State
		}
	}
	return r
}

// waitLeader waits until the controller leads.
func (r *run) waitLeader(ctx context.Context) error {
	return r.poll(ctx, "the controller opens its log", func() (string, error) {
		return "", r.control.Get(ctx, "/leader", &api.LeaderView{})
	})
}

// waitNodes waits until every node that was started is UP in this process's
// life, and caught up.
func (r *run) waitNodes(ctx context.Context) error {
	return r.poll(ctx, "the nodes register", func() (string, error) {
		nodes, err := api.List[api.NodeView](ctx, r.control, "/nodes")
		if err != nil {
			return "", err
		}
		for _, n := range r.cluster.nodes {
			i := slices.IndexFunc(nodes, func(v api.NodeView) bool { return v.ID == n.name })
			if i < 0 || nodes[i].URL != n.url || nodes[i].State != meta.NodeUp || nodes[i].LastHeartbeat.IsZero() {
				return n.name + " to be UP", nil
			}
		}
		return "", nil
	})
}

// job asks how a job is.
func (r *run) job(ctx context.Context, id uuid.UUID) (meta.JobState, error) {
	var j meta.Job
	err := r.control.Get(ctx, "/jobs/"+id.String(), &j)
	return j.State, err
}

// forceCommit asks the table's consuming segments to end.
func (r *run) forceCommit(ctx context.Context) (uuid.UUID, error) {
	var f api.ForceCommitted
	if err := r.control.Post(ctx, api.TablePath(r.table, "forceCommit"), nil, &f); err != nil {
		return uuid.Nil, fmt.Errorf("force commit of %s: %w", r.table, err)
	}
	return f.Job, nil
}
