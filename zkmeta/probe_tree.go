package zkmeta

import (
	"context"
	"errors"
)

// readTree reads the tree by whatever server gives a session.
func (r *Report) readTree(ctx context.Context, cfg ProbeConfig) {
	address := Address{Root: cfg.Address.Root}
	for _, s := range r.Servers {
		if s.Session {
			address.Servers = append(address.Servers, s.Server)
		}
	}
	if len(address.Servers) == 0 {
		return
	}
	conn, err := Connect(cfg.Access.Conn(address, cfg.Logger, nil))
	if err != nil {
		r.Tree.fault = err
		return
	}
	defer conn.Close()
	r.Tree.fault = r.Tree.read(ctx, conn)
}

func (t *TreeReport) read(ctx context.Context, c *Conn) (err error) {
	if _, t.Present, err = c.Stat(ctx, c.Path()); err != nil {
		return err
	}
	tree, err := LookAt(ctx, c)
	var foreign *ForeignTreeError
	if errors.As(err, &foreign) {
		t.Standing = "foreign"
	}
	if err != nil {
		return err
	}
	t.ClusterID, t.FormatVersion = tree.Cluster, tree.id.FormatVersion
	t.Standing = tree.standing()
	if tree.Unusable != nil {
		t.NextOffset = tree.Next()
		return tree.Unusable
	}
	head, _, err := readHead(ctx, c)
	if err != nil {
		return err
	}
	t.Epoch, t.NextOffset = head.Epoch, head.next()
	names, err := c.Children(ctx, c.Path(electionDir))
	if err != nil && !errors.Is(err, ErrNoNode) {
		return err
	}
	t.Candidates = append(t.Candidates, inLine(names)...)
	for _, name := range t.Candidates {
		s, there, err := c.Stat(ctx, c.Path(electionDir, name))
		if err != nil {
			return err
		}
		if there && s.EphemeralOwner == 0 {
			t.strangers = append(t.strangers, name)
		}
	}
	entries, err := c.Children(ctx, c.Path(entriesDir))
	t.Entries = len(entries)
	return err
}

func (t Tree) standing() string {
	switch {
	case t.Unusable == nil:
		return "whole"
	case t.id.Migrating != nil:
		return "migrating"
	case t.id.Moved != nil:
		return "moved"
	}
	return "none"
}
