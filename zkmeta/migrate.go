package zkmeta

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
)

// Metadata moves between a tree and the data directory of an embedded controller
// while no controller runs. At every moment one of the two is the truth, and only
// that one can be led from. What says so is one znode here, id, and one file there:
//
//	into ZooKeeper   id is marked migrating · tree written and verified ·
//	                 directory marked · id unmarked, head made
//	out of it        directory marked, written and verified ·
//	                 id marked moved, head removed · directory unmarked
//
// Between the last two steps neither can be led from, and the command that was cut
// short there goes on when it is run again. import.go and export.go are the two ways
// on this side; package controller has the directory's side.

// migratingMark is in the id znode of a tree that is not whole yet.
type migratingMark struct {
	Migration uuid.UUID `json:"migration"` // the directory has it too
	From      string    `json:"from"`      // for people
}

// movedMark is in the id znode of a tree whose metadata lives elsewhere by now.
type movedMark struct {
	Migration uuid.UUID  `json:"migration"`
	To        string     `json:"to"` // for people
	At        time.Time  `json:"at"`
	Head      headRecord `json:"head"` // as it was when it was removed
}

// MigratingError says that a tree was begun by a migration and is not whole. No
// controller may use it.
type MigratingError struct {
	Root      string
	ClusterID uuid.UUID
	From      string
}

func (e *MigratingError) Error() string {
	return fmt.Sprintf("zkmeta: the tree at %s is half made: moving the metadata of cluster %s here, from %s, was begun and not finished; run that `shoal metadata migrate` again",
		e.Root, e.ClusterID, e.From)
}

// MovedError says that the metadata of a tree was moved elsewhere. What is left is
// what it was then; no controller may use it.
type MovedError struct {
	Root      string
	ClusterID uuid.UUID
	To        string
	At        time.Time
}

func (e *MovedError) Error() string {
	return fmt.Sprintf("zkmeta: the metadata of cluster %s was moved away from %s on %s, to %s: start the controller there, or bring it back with `shoal metadata migrate`",
		e.ClusterID, e.Root, e.At.UTC().Format(time.RFC3339), e.To)
}

// unusable returns why no controller may use the tree, or nil.
func (id identity) unusable(root string) error {
	switch {
	case id.Migrating != nil:
		return &MigratingError{Root: root, ClusterID: id.ClusterID, From: id.Migrating.From}
	case id.Moved != nil:
		return &MovedError{Root: root, ClusterID: id.ClusterID, To: id.Moved.To, At: id.Moved.At}
	}
	return nil
}

// Tree is what was found at a root.
type Tree struct {
	// Cluster is zero if there is nothing.
	Cluster uuid.UUID
	// Unusable is why no controller may use the tree: nil, *NoTreeError,
	// *MigratingError or *MovedError.
	Unusable error
	// Migration is that of the two last.
	Migration uuid.UUID

	id      identity
	version int32 // of the id znode
}

// LookAt reads what there is at the root. Somebody else's tree is a
// *ForeignTreeError.
func LookAt(ctx context.Context, c *Conn) (Tree, error) {
	if err := c.Sync(ctx, c.Path()); err != nil {
		return Tree{}, err
	}
	id, version, err := readIdentity(ctx, c)
	var none *NoTreeError
	if errors.As(err, &none) {
		return Tree{Unusable: err}, nil
	}
	if err != nil {
		return Tree{}, err
	}
	t := Tree{Cluster: id.ClusterID, Unusable: id.unusable(c.Path()), id: id, version: version}
	switch {
	case id.Migrating != nil:
		t.Migration = id.Migrating.Migration
	case id.Moved != nil:
		t.Migration = id.Moved.Migration
	}
	return t, nil
}

// Next is the offset after the last batch that a tree had when it was moved; 0
// otherwise.
func (t Tree) Next() int64 {
	if t.id.Moved == nil {
		return 0
	}
	return t.id.Moved.Head.next()
}

// CandidatesError says that controllers run on a tree.
type CandidatesError struct {
	Root  string
	Names []string
}

func (e *CandidatesError) Error() string {
	return fmt.Sprintf("zkmeta: controllers run on the tree at %s: %q; stop them first (one that was killed stays in the line until its session times out)", e.Root, e.Names)
}

// Deserted returns a *CandidatesError if a controller stands for election, or leads.
func Deserted(ctx context.Context, c *Conn) error {
	if err := c.Sync(ctx, c.Path(electionDir)); err != nil {
		return err
	}
	names, err := c.Children(ctx, c.Path(electionDir))
	switch {
	case errors.Is(err, ErrNoNode):
		return nil
	case err != nil:
		return err
	case len(names) > 0:
		return &CandidatesError{Root: c.Path(), Names: names}
	}
	return nil
}

// headOf is the head of a log that ends where the image does, and holds no batch.
func headOf(im *meta.Image) headRecord {
	return headRecord{
		Epoch: im.Epoch(), Term: im.LastTerm(), Offset: im.Next() - 1, Time: im.LastTime(),
		Operation: uuid.New(), LogStart: im.Next(),
	}
}
