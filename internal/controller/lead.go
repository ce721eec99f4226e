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
	log, err := metalog.OpenLog(c.fs, metalog.LogOptions{Logger: c.root, Metrics: c.logs})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	image, err := metalog.Replay(log, meta.Empty())
	if err != nil {
		return err
	}
	cluster := uuid.New()
	if found := image.Cluster(); found != nil {
		if found.FormatVersion > meta.FormatVersion {
			return &newerClusterError{found.FormatVersion}
		}
		cluster = found.ID
	}
	epoch, err := metalog.ClaimEpoch(c.fs, image.Epoch())
	if err != nil {
		return err
	}
	writer := metalog.NewWriter(metalog.WriterConfig{
		Device: log, Image: image, Cluster: cluster,
		Leader:    meta.Leader{Epoch: epoch, Term: uuid.New(), Controller: c.cfg.ID, URL: c.url},
		Clock:     func() int64 { return time.Now().UnixMilli() },
		Committed: c.shell.news.committed,
		Logger:    c.root, Metrics: c.logs,
	})
	server := metalog.NewServer(metalog.ServerConfig{Log: log, Logger: c.root})
	// The writer outlives ctx until the machine has laid down its leadership.
	writing, stopWriting := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWriting()
	failed := make(chan error, 1)
	go func() { failed <- writer.Run(writing) }()
	select {
	case <-writer.Ready():
	case err := <-failed:
		return err
	}
	server.SetStanding(metalog.Standing{Cluster: cluster, Epoch: epoch, URL: c.url, Leading: true})
	c.stand(standing{writer: writer, server: server, epoch: epoch})
	c.shell.post(writing, Lead{URL: c.url, Image: writer.Image()})
	c.log.Info().Int64("epoch", epoch).Str("cluster", cluster.String()).Msg("leading")

	select {
	case err = <-failed:
	case <-ctx.Done():
		stopWriting()
		err = <-failed
	}
	server.Shutdown()
	c.stand(standing{})
	c.shell.post(context.WithoutCancel(ctx), Depose{})
	return err
}

// stand says what this process's leadership is from now on.
func (c *Controller) stand(s standing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.standing = s
}

// leading returns the leadership of this process, or an error.
func (c *Controller) leading() (standing, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.standing.writer == nil {
		return standing{}, ErrNotLeading
	}
	return c.standing, nil
}

// submit has a function of the image written.
func (c *Controller) submit(ctx context.Context, fn meta.Func) (metalog.Result, error) {
	s, err := c.leading()
	if err != nil {
		return metalog.Result{}, err
	}
	return s.writer.Submit(ctx, fn)
}
