package zkmeta

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
)

// Export reads a tree for a directory that takes its place. Nothing is changed before
// Move.
type Export struct {
	conn    *Conn
	tree    Tree
	head    headRecord
	version int32 // of the head's znode
	// Image is what the tree holds.
	Image *meta.Image
}

// ReadExport reads the tree that LookAt found, which is whole or was moved already.
func ReadExport(ctx context.Context, c *Conn, t Tree) (*Export, error) {
	e := &Export{conn: c, tree: t}
	if t.id.Moved != nil {
		e.head = t.id.Moved.Head
		records, err := scan(ctx, c)
		if err != nil {
			return nil, err
		}
		e.Image, err = imageOf(c, records, e.head)
		return e, err
	}
	if t.Unusable != nil {
		return nil, t.Unusable
	}
	var err error
	if e.head, e.version, err = readHead(ctx, c); err != nil {
		return nil, err
	}
	if e.head.next() == 0 {
		return nil, &TreeError{Path: headName, Reason: "no controller has ever led here: there is nothing to move"}
	}
	if e.Image, err = Rebuild(ctx, c); err != nil {
		return nil, err
	}
	if got := e.Image.Next(); got != e.head.next() {
		return nil, fmt.Errorf("zkmeta: the log at %s went on from offset %d to %d while it was read: a controller runs; stop it first", c.Path(), e.head.next(), got)
	}
	return e, nil
}

// Head is where the log ends.
func (e *Export) Head() TailHead { return TailHead{e.head} }

// Moved reports whether the tree is marked.
func (e *Export) Moved() bool { return e.tree.id.Moved != nil }

// Move marks the tree and takes its head away, on the condition that nobody has
// written since it was read. Without a head no controller can lead from it, not even
// one that looked at the mark before it was there.
func (e *Export) Move(ctx context.Context, migration uuid.UUID, to string) error {
	if e.Moved() {
		return nil
	}
	c, id := e.conn, e.tree.id
	id.Moved = &movedMark{Migration: migration, To: to, At: time.Now().UTC().Truncate(time.Second), Head: e.head}
	ops := under(c.Path(), []Op{
		{Kind: OpSet, Path: idName, Data: id.encode(), Version: e.tree.version},
		{Kind: OpDelete, Path: headName, Version: e.version},
	})
	err := c.Multi(ctx, ops...)
	if err == nil || ctx.Err() != nil {
		return err
	}
	now, failed := LookAt(ctx, c)
	switch {
	case failed != nil:
		return errors.Join(err, failed)
	case now.Unusable != nil && now.Migration == migration:
		return nil // it was done, and only the answer was lost
	}
	var refused *MultiError
	if errors.As(err, &refused) {
		return fmt.Errorf("zkmeta: the tree at %s was written to while it was read: a controller runs; stop it first: %w", c.Path(), err)
	}
	return err
}
