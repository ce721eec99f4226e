package node

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/shoalstore/shoal/deepstore"
)

const (
	// sweepEvery is how often leftovers of uploads in the deep stores are looked
	// for. The first time is somewhere in the first sweepFirst, so that nodes that
	// start together do not all ask at once.
	sweepEvery = time.Hour
	sweepFirst = 10 * time.Minute
	sweepMax   = 10 * time.Minute // for one look at all stores
)

// sweepUploads removes, again and again, what uploads that were killed left in the
// deep stores, whichever node's they were.
func (n *Node) sweepUploads(ctx context.Context) error {
	timer := time.NewTimer(rand.N(sweepFirst))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		n.sweepOnce(ctx)
		timer.Reset(sweepEvery/2 + rand.N(sweepEvery))
	}
}

// sweepOnce looks into the deep stores of all tables.
func (n *Node) sweepOnce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, sweepMax)
	defer cancel()
	var errs []error
	for _, uri := range n.deepStores() {
		_, err := n.deep.Store(uri)
		errs = append(errs, err)
	}
	swept, err := n.deep.Sweep(ctx, deepstore.SweepAge)
	n.metrics.swept.Add(float64(swept))
	if swept > 0 {
		n.log.Info().Int("uploads", swept).Msg("uploads to the deep store that were begun more than a day ago and never ended are removed")
	}
	if err := errors.Join(append(errs, err)...); err != nil && ctx.Err() == nil {
		n.log.Warn().Err(err).Msg("leftovers of uploads in the deep store could not be looked for, tried again later")
	}
}

// deepStores are the URIs that tables name.
func (n *Node) deepStores() (uris []string) {
	im := n.currentImage()
	for t := range im.Tables() {
		if cfg := im.CurrentConfig(t.ID); cfg != nil && cfg.DeepStore != nil {
			uris = append(uris, cfg.DeepStore.URI)
		}
	}
	slices.Sort(uris)
	return slices.Compact(uris)
}
