package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
)

// In embedded mode there is one controller, and it leads whenever its log is
// sound. Each leadership is a new epoch.
const (
	leadRetryMin = time.Second
	leadRetryMax = 30 * time.Second
)

// keepLeading leads until ctx ends. A leadership that ends by an append whose
// outcome is unknown (a full disk, say) is followed by another, which finds the
// truth in the log. What another try cannot mend ends it with an error.
func (c *Controller) keepLeading(ctx context.Context) error {
	for wait := leadRetryMin; ; wait = min(2*wait, leadRetryMax) {
		began := time.Now()
		err := c.lead(ctx)
		switch {
		case ctx.Err() != nil && err == nil:
			return nil
		case isFinal(err):
			return err
		}
		if time.Since(began) > leadRetryMax {
			wait = leadRetryMin
		}
		c.log.Error().Err(err).Dur("dur", wait).Msg("leadership laid down, taken up again after a pause")
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
	}
}

// isFinal tells what no other try in this process mends: damage, a newer
// format, and a failed fsync, after which nobody knows what the disk holds.
func isFinal(err error) bool {
	var damage *metalog.CorruptionError
	var format *metalog.FormatError
	var missing *metalog.SnapshotMissingError
	var cluster *newerClusterError
	return errors.As(err, &damage) || errors.As(err, &format) || errors.As(err, &missing) ||
		errors.As(err, &cluster) || vfs.IsSyncError(err)
}

// newerClusterError says that the records were written by a newer program.
type newerClusterError struct{ version int }

func (e *newerClusterError) Error() string {
	return fmt.Sprintf("controller: the metadata has format version %d; this program knows up to %d", e.version, meta.FormatVersion)
}

// lead is one leadership: open the log, open an epoch, write until ctx ends or
// an append fails.
func (c *Controller) lead(ctx context.Context) (err error) {
	local := newLocalLog(c)
	local.original = true
	if err := local.open(); err != nil {
		return local.refused(err)
	}
	local.keep()
	defer func() { err = errors.Join(err, local.close()) }()
	cluster := uuid.New()
	if found := local.image.Cluster(); found != nil {
		if found.FormatVersion > meta.FormatVersion {
			return &newerClusterError{found.FormatVersion}
		}
		cluster = found.ID
	}
	epoch, err := metalog.ClaimEpoch(c.fs, local.image.Epoch())
	if err != nil {
		return local.refused(err)
	}
	l, err := c.openEpoch(ctx, metalog.WriterConfig{Device: local.log, Image: local.image, Cluster: cluster}, local.keeper, epoch)
	if err != nil {
		return err
	}
	return l.serve(ctx)
}
