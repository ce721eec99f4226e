package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/metalog"
)

// HistoriesError says that two servers tell two histories: one of them is of another
// cluster, or was restored from a backup and went on by itself.
type HistoriesError struct {
	A, B       string // URLs
	HasA, HasB string // what each has
}

func (e *HistoriesError) Error() string {
	return fmt.Sprintf("restore: two histories: %s has %s, and %s has %s", e.A, e.HasA, e.B, e.HasB)
}

// errNothing says that there is nothing to restore.
var errNothing = errors.New("restore: none of them has a batch or a snapshot")

// furthest returns the holding that goes furthest, by epoch and then by offset, once all
// the others turned out to be of its history.
func furthest(ctx context.Context, all []*Holding) (*Holding, error) {
	held := slices.DeleteFunc(slices.Clone(all), func(h *Holding) bool { return h.Cluster == uuid.Nil })
	if len(held) == 0 {
		return nil, errNothing
	}
	best := slices.MaxFunc(held, further)
	for _, h := range held {
		if err := best.continues(ctx, h); err != nil {
			return nil, err
		}
	}
	return best, nil
}

// continues returns a *HistoriesError unless o ends where h was, too. Where h no longer has
// anything of that offset, only the epochs are compared.
func (h *Holding) continues(ctx context.Context, o *Holding) error {
	differ := func(has, otherHas string) error {
		return &HistoriesError{A: h.URL, B: o.URL, HasA: has, HasB: otherHas}
	}
	switch {
	case o.Cluster != h.Cluster:
		return differ("cluster "+h.Cluster.String(), "cluster "+o.Cluster.String())
	case o.End.Offset > h.End.Offset: // and of a lower epoch
		return differ(standing(h.End), standing(o.End))
	}
	was, known, err := h.at(ctx, o.End.Offset)
	if err != nil {
		return err
	}
	if !known {
		was = h.Newest.Position // which is later
		known = o.End.LastEpoch > was.LastEpoch
	}
	if known && was != o.End {
		return differ(standing(was), standing(o.End))
	}
	return nil
}

func standing(p metalog.Position) string {
	return fmt.Sprintf("epoch %d, term %s before offset %d", p.LastEpoch, p.LastTerm, p.Offset)
}
