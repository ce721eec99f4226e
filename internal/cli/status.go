package cli

import (
	"context"
	"fmt"

	"github.com/shoalstore/shoal/internal/api"
)

type statusCommand struct{}

// status is what `shoal status -o json` prints.
type status struct {
	Leader api.LeaderView  `json:"leader"`
	Nodes  []api.NodeView  `json:"nodes"`
	Tables []api.TableView `json:"tables"`
}

func (statusCommand) Run(ctx context.Context, a *app) error {
	var s status
	if err := a.control.Get(ctx, "/leader", &s.Leader); err != nil {
		return err
	}
	var err error
	if s.Nodes, err = api.List[api.NodeView](ctx, a.control, "/nodes"); err != nil {
		return err
	}
	if s.Tables, err = api.List[api.TableView](ctx, a.control, "/tables"); err != nil {
		return err
	}
	if a.json {
		return a.writeJSON(s)
	}
	fmt.Fprintf(a.Out, "cluster %s, led by %s (%s), epoch %d\n\n", s.Leader.ClusterID, s.Leader.Leader, s.Leader.Controller, s.Leader.Epoch)
	if err := a.printNodes(s.Nodes); err != nil {
		return err
	}
	fmt.Fprintln(a.Out)
	return a.printTables(s.Tables)
}

func (a *app) printNodes(nodes []api.NodeView) error {
	if len(nodes) == 0 {
		_, err := fmt.Fprintln(a.Out, "no nodes")
		return err
	}
	t := newTable(a.Out, "NODE", "STATE", "ZONE", "SEGMENTS", "SIZE", "BUSY", "CONSUMES", "HEARD", "URL")
	for _, n := range nodes {
		t.row(n.ID, n.State, n.Zone, count(n.Segments), size(n.SizeBytes), n.Busy, n.Consuming, a.ago(n.LastHeartbeat), n.URL)
	}
	return t.flush()
}

func (a *app) printTables(tables []api.TableView) error {
	if len(tables) == 0 {
		_, err := fmt.Fprintln(a.Out, "no tables")
		return err
	}
	t := newTable(a.Out, "TABLE", "STATE", "PARTITIONS", "SEGMENTS", "ROWS", "SIZE", "UNDER-REPLICATED", "SINGLE COPY", "NOT IN STORE")
	for _, v := range tables {
		t.row(v.Name, v.State, v.Partitions, count(v.Segments), count(v.Rows), size(v.SizeBytes), count(v.UnderReplicated), count(v.SingleCopy), count(v.NotInDeepStore))
	}
	if err := t.flush(); err != nil {
		return err
	}
	for _, v := range tables {
		if v.LastError != "" {
			fmt.Fprintf(a.Out, "table %s: %s\n", v.Name, v.LastError)
		}
	}
	return nil
}
