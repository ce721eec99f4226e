package controller

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/schedule"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/stream"
	"github.com/shoalstore/shoal/validation"
)

// Looks at streams and deep stores are for metadata only and end in time, so
// that one store that hangs holds up nobody else's.
const (
	listTimeout = 30 * time.Second
	// deleteTimeout is for the objects of one segment.
	deleteTimeout = time.Minute
	// objectsTimeout is for the pages of one listing of a deep store.
	objectsTimeout = 2 * time.Minute
)

// checkTimeout is for the look at an object of that size. A file:// store reads the
// whole of it, and so does an S3 that shows no checksums; eight of a table share the way.
func checkTimeout(sizeBytes int64) time.Duration { return 5*time.Minute + schedule.ForBytes(sizeBytes) }

// partitions asks the stream of a table for its partitions.
func (c *Controller) partitions(ctx context.Context, cfg meta.StreamConfig) ([]stream.Partition, error) {
	src, err := c.streams.Source(cfg)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	return src.Partitions(ctx)
}

func (c *Controller) listPartitions(ctx context.Context, a ListPartitions) Listed {
	ps, err := c.partitions(ctx, a.Stream)
	return Listed{ID: a.ID, Partitions: ps, Err: err}
}

// checkDeepStore compares an object with the segment it is said to be.
func (c *Controller) checkDeepStore(ctx context.Context, a CheckDeepStore) Checked {
	found, err := c.lookIntoDeepStore(ctx, a)
	if err != nil {
		c.log.Warn().Err(err).Str("segment", a.Name).Str("uri", a.URI).Msg("deep-store copy could not be checked, tried again later")
	}
	return Checked{ID: a.ID, Found: found, Err: err}
}

func (c *Controller) lookIntoDeepStore(ctx context.Context, a CheckDeepStore) (found bool, err error) {
	store, err := c.deep.Store(a.Store)
	if err != nil {
		return false, err
	}
	key, err := deepstore.KeyOf(a.Store, a.URI)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout(a.SizeBytes))
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

// askUpload asks a node to upload a segment, or how far it is.
func (c *Controller) askUpload(ctx context.Context, a AskUpload) UploadAnswered {
	method := http.MethodPost
	if a.Poll {
		method = http.MethodGet
	}
	var said api.UploadState
	err := c.nodes.Call(ctx, method, a.URL+api.SegmentPath(a.Table, a.Segment, "upload"), nil, &said)
	log := c.log.Debug()
	switch {
	case err != nil:
		log = c.log.Warn().Err(err)
	case !a.Poll:
		log = c.log.Info()
	}
	log.Str("node", a.Node).Str("segment", a.Segment).Str("state", said.State).Int("failures", said.Failures).Msg("node asked for an upload to the deep store")
	return UploadAnswered{ID: a.ID, Answer: validation.Answer{Failures: said.Failures, LastError: said.LastError, Different: said.Different}, Err: err}
}

// listDeepStore looks through a part of a deep store.
func (c *Controller) listDeepStore(ctx context.Context, a ListDeepStore) ObjectsListed {
	store, err := c.deep.Store(a.Store)
	if err != nil {
		return ObjectsListed{ID: a.ID, After: a.After, Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, objectsTimeout)
	defer cancel()
	out := ListObjects(ctx, a, store)
	if out.Err != nil {
		c.log.Warn().Err(out.Err).Str("table", a.Name).Msg("deep store could not be looked through, tried again later")
	}
	if len(out.Missing) > 0 {
		c.log.Warn().Str("table", a.Name).Int("segments", len(out.Missing)).Msg("the listing of the deep store lacks copies that were verified; each is looked at")
	}
	return out
}

// deleteDeepStore deletes the objects of a segment that is gone.
func (c *Controller) deleteDeepStore(ctx context.Context, a DeleteDeepStore) Deleted {
	err := c.removeFromDeepStore(ctx, a)
	if err != nil {
		c.log.Warn().Err(err).Str("store", a.Store).Strs("keys", a.Keys).Msg("deep-store copy of an expired segment could not be deleted, tried again later")
	} else {
		c.log.Info().Str("store", a.Store).Strs("keys", a.Keys).Msg("deep-store copy of an expired segment is deleted")
	}
	return Deleted{ID: a.ID, Err: err}
}

func (c *Controller) removeFromDeepStore(ctx context.Context, a DeleteDeepStore) error {
	store, err := c.deep.Store(a.Store)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	var errs []error
	for _, key := range a.Keys {
		errs = append(errs, deepstore.Remove(ctx, store, key))
	}
	return errors.Join(errs...)
}

// expired counts what retention took.
func (c *Controller) expired(a Expired) {
	c.retention.expired.WithLabelValues(a.Table).Add(float64(a.Segments))
}

// retentionBlocked says why retention takes nothing, or that it goes on.
func (c *Controller) retentionBlocked(a RetentionBlocked) {
	if a.Why == "" {
		c.retention.blocked.Set(0)
		c.log.Info().Msg("retention is not blocked any more")
		return
	}
	c.retention.blocked.Set(1)
	c.log.Warn().Str("why", a.Why).Msg("retention takes nothing until the clocks agree")
}
