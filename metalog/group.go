package metalog

import (
	"errors"
	"fmt"

	"github.com/shoalstore/shoal/meta"
)

// group is a batch in the making: what the writer has accepted since the last one
// was closed.
type group struct {
	base    *meta.Image   // committed, or of the group before
	image   *meta.Image   // base with everything accepted so far; sealed: with the batch
	batch   *meta.Batch   // without its changes until the group is sealed
	changes []meta.Change // accepted, in order
	bytes   int           // no less than the size of the batch
	waiting []uint64      // who is answered once it is committed
	sealed  bool
	bounds  bounds
}

// bounds say how large a batch may be, and how that is measured.
type bounds struct {
	size func(*meta.Batch) (int, error)
	max  int
}

// encodedSize is what the batch itself takes.
func encodedSize(b *meta.Batch) (int, error) {
	encoded, err := meta.EncodeBatch(b)
	return len(encoded), err
}

var (
	// errNoRoom says that a change belongs into the next batch.
	errNoRoom = errors.New("metalog: the batch has no room for it")
	// errNoChange says that a function asked for nothing.
	errNoChange = errors.New("metalog: nothing to change")
)

// add evaluates fn and takes its change into the batch, whole. On an error the group
// is as it was.
func (g *group) add(fn meta.Func) error {
	c, err := fn(g.image, g.batch.Time)
	switch {
	case err != nil:
		return err
	case c.Empty():
		return errNoChange
	}
	size, err := g.size(c)
	switch {
	case err != nil:
		return err
	case size > g.bounds.max:
		return &BatchTooLargeError{Size: size, Max: g.bounds.max}
	case g.bytes+size > g.bounds.max:
		return errNoRoom
	}
	im, err := g.image.With(c)
	if err != nil {
		return fmt.Errorf("metalog: refused change: %w", err)
	}
	g.image = im
	g.bytes += size
	g.changes = append(g.changes, c)
	return nil
}

// size is how large the batch would be if c were all of it. The sum over changes is
// never less than what they take together: each counts a header.
func (g *group) size(c meta.Change) (int, error) {
	alone := *g.batch
	alone.Upserts, alone.Removals, alone.SnapshotHere = c.Upserts, c.Removals, c.SnapshotHere
	return g.bounds.size(&alone)
}

// seal closes the group and computes the image that its batch makes.
func (g *group) seal() error {
	if g.sealed {
		return nil
	}
	merged := g.base.Merge(g.changes...)
	g.batch.Upserts, g.batch.Removals, g.batch.SnapshotHere = merged.Upserts, merged.Removals, merged.SnapshotHere
	im, err := g.base.Apply(g.batch)
	if err != nil {
		return fmt.Errorf("metalog: changes that were accepted one by one do not apply as one batch: %w", err)
	}
	g.image, g.sealed = im, true
	return nil
}
