package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/up"
	"github.com/shoalstore/shoal/meta"
)

type partitionsCommand struct {
	Table string `arg:"" optional:"" help:"Name of the table; all of them without it."`
}

// partition is one of `shoal partitions -o json`: the record, and what the nodes
// that are UP say they do for it.
type partition struct {
	Table string `json:"table"`
	api.PartitionView
	Consumers map[string][]api.ConsumingView `json:"consumers"`
}

func (c partitionsCommand) Run(ctx context.Context, a *app) error {
	tables := []string{c.Table}
	if c.Table == "" {
		all, err := api.List[api.TableView](ctx, a.control, "/tables")
		if err != nil {
			return err
		}
		tables = nil
		for _, t := range all {
			tables = append(tables, t.Name)
		}
	}
	consuming, err := a.consuming(ctx)
	if err != nil {
		return err
	}
	out := []partition{}
	for _, name := range tables {
		views, err := api.List[api.PartitionView](ctx, a.control, api.TablePath(name, "partitions"))
		if err != nil {
			return err
		}
		for _, v := range views {
			out = append(out, partition{name, v, consumersOf(consuming, name, v.Partition)})
		}
	}
	if a.json {
		return a.writeJSON(out)
	}
	return a.printPartitions(out)
}

// consuming asks every node that is UP; one that does not answer is left out.
func (a *app) consuming(ctx context.Context) (map[string][]api.ConsumingView, error) {
	nodes, err := api.List[api.NodeView](ctx, a.control, "/nodes")
	if err != nil {
		return nil, err
	}
	all := map[string][]api.ConsumingView{}
	for _, n := range nodes {
		if n.State == meta.NodeDown {
			continue
		}
		var views []api.ConsumingView
		if err := a.http.GetJSON(ctx, n.URL+"/partitions", &views); err != nil {
			fmt.Fprintf(a.Err, "node %s: %s\n", n.ID, message(err))
			continue
		}
		all[n.ID] = views
	}
	return all, nil
}

func consumersOf(all map[string][]api.ConsumingView, table string, p int32) map[string][]api.ConsumingView {
	out := map[string][]api.ConsumingView{}
	for node, views := range all {
		for _, v := range views {
			if v.Partition == p && strings.EqualFold(v.Table, table) {
				out[node] = append(out[node], v)
			}
		}
	}
	return out
}

func (a *app) printPartitions(ps []partition) error {
	if len(ps) == 0 {
		_, err := fmt.Fprintln(a.Out, "no partitions")
		return err
	}
	t := newTable(a.Out, "TABLE", "PARTITION", "STATE", "FIRST", "COMMITTED", "SEGMENT", "LAG", "REPLICAS")
	for i := range ps {
		p := &ps[i]
		seq := ""
		if p.Consuming != nil {
			seq = fmt.Sprint(p.Consuming.Seq)
		}
		t.row(p.Table, p.Partition, p.State, p.FirstRetained, p.NextOffset, seq, p.lag(), strings.Join(p.replicas(), " "))
	}
	if err := t.flush(); err != nil {
		return err
	}
	for _, p := range ps {
		if p.Consuming != nil && p.Consuming.LastError != nil {
			e := p.Consuming.LastError
			fmt.Fprintf(a.Out, "%s/%d: %s at %s: %s\n", p.Table, p.Partition, e.Node, at(e.At), e.Error)
		}
	}
	return nil
}

// replicas says of each replica where it is: node@offset, with what it does
// unless that is to consume.
func (p *partition) replicas() []string {
	ids := p.Replicas
	if p.Consuming != nil {
		ids = p.Consuming.Replicas
	}
	var out []string
	for _, id := range ids {
		v := newest(p.Consumers[id])
		switch {
		case v == nil:
			out = append(out, id+"@?")
		case v.State == "INITIAL_CONSUMING":
			out = append(out, fmt.Sprintf("%s@%d", id, v.Offset))
		default:
			out = append(out, fmt.Sprintf("%s@%d(%s)", id, v.Offset, v.State))
		}
	}
	return out
}

// lag is that of the replica that is furthest behind.
func (p *partition) lag() string {
	most := int64(-1)
	for _, views := range p.Consumers {
		if v := newest(views); v != nil {
			most = max(most, v.LagRows)
		}
	}
	if most < 0 {
		return "?"
	}
	return count(most)
}

func newest(views []api.ConsumingView) *api.ConsumingView {
	if len(views) == 0 {
		return nil
	}
	i := slices.IndexFunc(views, func(v api.ConsumingView) bool {
		return v.Seq == slices.MaxFunc(views, func(a, b api.ConsumingView) int { return int(a.Seq - b.Seq) }).Seq
	})
	return &views[i]
}

type coverageCommand struct {
	Table string `arg:"" help:"Name of the table."`
}

// Run exits with 1 unless every offset up to the stream's end is in exactly one
// committed segment; for a table that consumes, that is the moment's answer.
func (c coverageCommand) Run(ctx context.Context, a *app) error {
	var v meta.TableCoverage
	if err := a.control.Get(ctx, api.TablePath(c.Table, "coverage"), &v); err != nil {
		return err
	}
	if a.json {
		if err := a.writeJSON(v); err != nil {
			return err
		}
	} else {
		fmt.Fprint(a.Out, up.CoverageText(&v))
	}
	if !v.Complete {
		return no("")
	}
	return nil
}
