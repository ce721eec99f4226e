package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/stream"
)

// Looks at streams and deep stores are for metadata only and end in time, so
// that one store that hangs holds up nobody else's.
const (
	listTimeout  = 30 * time.Second
	checkTimeout = 5 * time.Minute // a file:// store reads the whole object
)

// streams opens the streams that tables name, once each.
type streams struct {
	root string

	mu   sync.Mutex
	open map[meta.StreamConfig]stream.Source
}

func newStreams(root string) *streams {
	return &streams{root: root, open: map[meta.StreamConfig]stream.Source{}}
}

// source returns the stream of a table.
func (s *streams) source(cfg meta.StreamConfig) (stream.Source, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if src := s.open[cfg]; src != nil {
		return src, nil
	}
	if s.root == "" {
		return nil, errors.New("no stream root is configured: start the controller with --stream-root")
	}
	src, err := stream.OpenFiles(s.root, cfg.Path)
	if err != nil {
		return nil, err
	}
	s.open[cfg] = src
	return src, nil
}

// partitions asks the stream of a table for its partitions.
func (s *streams) partitions(ctx context.Context, cfg meta.StreamConfig) ([]stream.Partition, error) {
	src, err := s.source(cfg)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	return src.Partitions(ctx)
}

func (c *Controller) listPartitions(ctx context.Context, a ListPartitions) Listed {
	ps, err := c.streams.partitions(ctx, a.Stream)
	return Listed{Table: a.Table, Partitions: ps, Err: err}
}

// deepStores opens deep stores below the allowed roots, once each.
type deepStores struct {
	roots []string

	mu   sync.Mutex
	open map[string]deepstore.Store
}

func newDeepStores(roots []string) *deepStores {
	return &deepStores{roots: roots, open: map[string]deepstore.Store{}}
}

// store returns the deep store of a URI.
func (d *deepStores) store(uri string) (deepstore.Store, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.open[uri]; s != nil {
		return s, nil
	}
	s, err := deepstore.Open(uri, d.roots)
	if err != nil {
		return nil, err
	}
	d.open[uri] = s
	return s, nil
}

// checkDeepStore compares an object with the segment it is said to be.
func (c *Controller) checkDeepStore(ctx context.Context, a CheckDeepStore) Checked {
	found, err := c.lookIntoDeepStore(ctx, a)
	if err != nil {
		c.log.Warn().Err(err).Str("segment", a.Name).Str("uri", a.URI).Msg("deep-store copy could not be checked, tried again later")
	}
	return Checked{Segment: a.Segment, URI: a.URI, Found: found, Err: err}
}

func (c *Controller) lookIntoDeepStore(ctx context.Context, a CheckDeepStore) (found bool, err error) {
	if a.Store == "" {
		return false, fmt.Errorf("the table of %s has no deep store", a.Name)
	}
	store, err := c.deep.store(a.Store)
	if err != nil {
		return false, err
	}
	key, err := deepstore.KeyOf(a.Store, a.URI)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	switch err := deepstore.VerifySegment(ctx, store, key, a.SizeBytes, a.Digest); {
	case err == nil:
		return true, nil
	case errors.Is(err, deepstore.ErrNotFound), errors.Is(err, deepstore.ErrDifferent):
		c.log.Warn().Err(err).Str("segment", a.Name).Str("uri", a.URI).Msg("no such copy in the deep store")
		return false, nil
	default:
		return false, err
	}
}
