package zkmeta

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
)

// ImportConfig is what an Import needs.
type ImportConfig struct {
	Conn  *Conn
	Image *meta.Image
	// Migration is kept in the directory that the image is from, and From says to
	// people which that is.
	Migration uuid.UUID
	From      string
	// Progress is told how many records of how many are done with.
	Progress func(done, total int)
}

// Import makes a tree out of an image. Begin, Write, Verify and Finish are called in
// this order, in one process; until Finish no controller uses the tree. An import
// that ended anywhere is begun again from the start.
type Import struct {
	cfg     ImportConfig
	version int32 // of the id znode: each write is on the condition that it is still ours
}

// NewImport returns an Import. It does no I/O.
func NewImport(cfg ImportConfig) *Import {
	if cfg.Progress == nil {
		cfg.Progress = func(int, int) {}
	}
	return &Import{cfg: cfg}
}

// Begin marks the root, where there is nothing, or what an earlier import of this
// cluster began, or what was moved away from here and comes back. Anything else is
// refused and not touched.
func (i *Import) Begin(ctx context.Context) error {
	c, cluster := i.cfg.Conn, clusterOf(i.cfg.Image)
	if cluster == (uuid.UUID{}) || i.cfg.Image.Next() == 0 {
		return errors.New("zkmeta: import: the image is of no cluster")
	}
	found, err := LookAt(ctx, c)
	if err != nil {
		return err
	}
	id := identityOf(cluster)
	id.Migrating = &migratingMark{Migration: i.cfg.Migration, From: i.cfg.From}
	if found.Cluster == (uuid.UUID{}) {
		if err := makeRoot(ctx, c); err != nil {
			return err
		}
		return c.Create(ctx, c.Path(idName), id.encode())
	}
	if err := i.mayReplace(found); err != nil {
		return err
	}
	i.version, err = c.Set(ctx, c.Path(idName), id.encode(), found.version)
	return err
}

// mayReplace refuses to write over a tree that is or may be somebody's truth.
func (i *Import) mayReplace(t Tree) error {
	im, root := i.cfg.Image, i.cfg.Conn.Path()
	switch {
	case t.Unusable == nil:
		return &FoundedError{Root: root, ClusterID: t.Cluster}
	case t.Cluster != clusterOf(im):
		return fmt.Errorf("zkmeta: cluster %s cannot be brought to %s: %w", clusterOf(im), root, t.Unusable)
	case t.id.Moved != nil:
		if at := t.id.Moved.Head; im.Next() < at.next() || im.Epoch() < at.Epoch || im.Next() == at.next() && im.LastTerm() != at.Term {
			return fmt.Errorf("zkmeta: what is to be brought to %s ends at offset %d, epoch %d, and what was moved away from there at offset %d, epoch %d: it does not go on from it: %w",
				root, im.Next(), im.Epoch(), at.next(), at.Epoch, t.Unusable)
		}
	}
	return nil
}

// Write makes the tree but for its head. What an earlier import left goes first.
func (i *Import) Write(ctx context.Context) error {
	if err := i.wipe(ctx); err != nil {
		return fmt.Errorf("zkmeta: remove what an earlier migration left: %w", err)
	}
	total := i.cfg.Image.Len()
	i.cfg.Progress(0, total)
	b := i.batch()
	for _, dir := range fixedDirs {
		if err := b.add(ctx, Op{Kind: OpCreate, Path: dir}); err != nil {
			return err
		}
	}
	made, done, sent := map[directory]bool{}, 0, 0
	for r := range i.cfg.Image.Records() {
		for _, d := range dirsOf(r.Key()) {
			if made[d] {
				continue
			}
			made[d] = true
			if err := b.add(ctx, Op{Kind: OpCreate, Path: d.path()}); err != nil {
				return err
			}
		}
		data, err := meta.EncodeRecordJSON(r)
		if err != nil {
			return err
		}
		if err := b.add(ctx, Op{Kind: OpCreate, Path: recordPath(r.Key()), Data: data}); err != nil {
			return err
		}
		if b.sent > sent {
			sent = b.sent
			i.cfg.Progress(done, total)
		}
		done++
	}
	if err := b.flush(ctx); err != nil {
		return err
	}
	i.cfg.Progress(total, total)
	return nil
}

// wipe removes all that is Shoal's below the root but the id, whose mark says that it
// is nobody's truth.
func (i *Import) wipe(ctx context.Context) error {
	c := i.cfg.Conn
	names, err := c.Children(ctx, c.Path())
	if err != nil {
		return err
	}
	b := i.batch()
	for _, name := range names {
		if name == clusterName || name == leaderName || slices.Contains(fixedDirs, name) {
			if err := i.wipeBelow(ctx, b, name); err != nil {
				return err
			}
		}
	}
	return b.flush(ctx)
}

func (i *Import) wipeBelow(ctx context.Context, b *opBatch, name string) error {
	names, err := i.cfg.Conn.Children(ctx, i.cfg.Conn.Path(name))
	if errors.Is(err, ErrNoNode) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, child := range names {
		// A record and a batch have no children: to ask each would take longer than
		// all the rest.
		below := path.Join(name, child)
		if isLeaf(below) {
			err = b.add(ctx, Op{Kind: OpDelete, Path: below, Version: -1})
		} else {
			err = i.wipeBelow(ctx, b, below)
		}
		if err != nil {
			return err
		}
	}
	return b.add(ctx, Op{Kind: OpDelete, Path: name, Version: -1})
}

// isLeaf tells by its depth a znode that never has children.
func isLeaf(rel string) bool {
	top, _, _ := strings.Cut(rel, "/")
	for _, l := range roots {
		if l.path == top {
			return strings.Count(rel, "/") == l.depth+1
		}
	}
	return strings.HasPrefix(rel, entriesDir+"/")
}

// Verify reads every record back and compares it.
func (i *Import) Verify(ctx context.Context) error {
	c := i.cfg.Conn
	if err := c.Sync(ctx, c.Path()); err != nil {
		return err
	}
	records, err := scan(ctx, c)
	if err != nil {
		return err
	}
	got, err := imageOf(c, records, headOf(i.cfg.Image))
	if err != nil {
		return err
	}
	return Same(i.cfg.Image, got)
}

// Finish makes the tree one that controllers use. It may be called again.
func (i *Import) Finish(ctx context.Context) error {
	c, want := i.cfg.Conn, headOf(i.cfg.Image)
	err := i.write(ctx, []Op{
		{Kind: OpSet, Path: idName, Data: identityOf(clusterOf(i.cfg.Image)).encode(), Version: i.version},
		{Kind: OpCreate, Path: headName, Data: want.encode()},
	})
	if err != nil {
		return err
	}
	if _, err := ReadIdentity(ctx, c); err != nil {
		return err
	}
	head, _, err := readHead(ctx, c)
	if err == nil && (head.next() < want.next() || head.Epoch < want.Epoch) {
		err = &TreeError{Path: headName, Reason: fmt.Sprintf("it is at offset %d, epoch %d, not %d, %d", head.Offset, head.Epoch, want.Offset, want.Epoch)}
	}
	return err
}

// batch collects operations for this import's multis.
func (i *Import) batch() *opBatch {
	check := Op{Kind: OpCheck, Path: idName, Version: i.version}
	b := &opBatch{write: i.write, first: check, root: len(i.cfg.Conn.Path()) + 1}
	b.reset()
	return b
}

// importOpsMax bounds the operations of a multi, and so how long a slow server is
// busy with it.
const importOpsMax = 2000

// opBatch groups operations into multis. Paths are below the root.
type opBatch struct {
	write func(ctx context.Context, ops []Op) error
	first Op  // of each multi
	root  int // bytes that it adds to a path
	ops   []Op
	size  int
	sent  int // multis
}

func (b *opBatch) reset() {
	b.ops = []Op{b.first}
	b.size = requestBytes + b.first.Size() + b.root
}

func (b *opBatch) empty() bool { return len(b.ops) == 1 }

// add sends what there is when the operation does not fit any more.
func (b *opBatch) add(ctx context.Context, op Op) error {
	n := op.Size() + b.root
	if b.size+n > MultiBytesMax && !b.empty() || len(b.ops) > importOpsMax {
		if err := b.flush(ctx); err != nil {
			return err
		}
	}
	b.ops, b.size = append(b.ops, op), b.size+n
	return nil
}

func (b *opBatch) flush(ctx context.Context) error {
	if b.empty() {
		return nil
	}
	ops := b.ops
	b.reset()
	b.sent++
	return b.write(ctx, ops)
}

// writeTries is how often a multi is sent whose answer does not come.
const writeTries = 4

// write does a multi whose first operation is on the id. One that was not answered
// is sent again: if it was done, the second finds what the first left.
func (i *Import) write(ctx context.Context, ops []Op) error {
	ops = under(i.cfg.Conn.Path(), slices.Clone(ops))
	for try := 1; ; try++ {
		err := i.cfg.Conn.Multi(ctx, ops...)
		var refused *MultiError
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return err
		case errors.As(err, &refused) && refused.Index == 0 && try > 1 && ops[0].Kind == OpSet:
			return nil // Finish looks at what is there
		case errors.As(err, &refused) && refused.Index == 0:
			return fmt.Errorf("zkmeta: another migration to %s has begun meanwhile: %w", i.cfg.Conn.Path(), err)
		case errors.As(err, &refused) && refused.Index == 1 && try > 1:
			return nil // Verify reads all of it
		case errors.Is(err, ErrNoAnswer) && try < writeTries:
			continue
		case errors.Is(err, ErrNoAnswer):
			return fmt.Errorf("%w (a request of %d bytes; `shoal doctor` tells how much ZooKeeper takes)", err, MultiSize(ops...))
		}
		return err
	}
}
