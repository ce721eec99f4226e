package cli

import (
	"context"
	"fmt"
	"net/http"

	"github.com/shoalstore/shoal/internal/api"
)

type nodesCommand struct {
	List    nodesList    `cmd:"" default:"1" aliases:"ls" help:"List the nodes (the default)."`
	Drain   nodesDrain   `cmd:"" help:"Move what a node consumes to others."`
	Undrain nodesUndrain `cmd:"" help:"Give a node new work again."`
	Remove  nodesRemove  `cmd:"" help:"Forget a node that is stopped and that nothing names any more."`
}

type nodesList struct{}

func (nodesList) Run(ctx context.Context, a *app) error {
	nodes, err := api.List[api.NodeView](ctx, a.control, "/nodes")
	if err != nil {
		return err
	}
	if a.json {
		return a.writeJSON(nodes)
	}
	return a.printNodes(nodes)
}

type nodesDrain struct {
	Node string `arg:"" help:"Id of the node."`
}

func (c nodesDrain) Run(ctx context.Context, a *app) error {
	return a.changeNode(ctx, c.Node, "drain")
}

type nodesUndrain struct {
	Node string `arg:"" help:"Id of the node."`
}

func (c nodesUndrain) Run(ctx context.Context, a *app) error {
	return a.changeNode(ctx, c.Node, "undrain")
}

func (a *app) changeNode(ctx context.Context, node, what string) error {
	var v api.NodeView
	if err := a.control.Post(ctx, api.NodePath(node, what), nil, &v); err != nil {
		return err
	}
	if a.json {
		return a.writeJSON(v)
	}
	_, err := fmt.Fprintf(a.Out, "%s is %s; it consumes %d segments, and %d partitions name it\n", v.ID, v.State, v.Consuming, v.Partitions)
	return err
}

type nodesRemove struct {
	Node string `arg:"" help:"Id of the node."`
}

func (c nodesRemove) Run(ctx context.Context, a *app) error {
	if err := a.control.Call(ctx, http.MethodDelete, api.NodePath(c.Node), nil, nil); err != nil {
		return err
	}
	if a.json {
		return a.writeJSON(map[string]string{"removed": c.Node})
	}
	_, err := fmt.Fprintf(a.Out, "removed %s\n", c.Node)
	return err
}
