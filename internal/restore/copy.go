package restore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/snapshots"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/peerdl"
)

// LogDir is where a copy has its log, as a controller's data directory does; its snapshots
// are in metalog.SnapshotsDir.
const LogDir = "log"

// CopyConfig says where a copy goes.
type CopyConfig struct {
	FS       vfs.FS
	Logger   zerolog.Logger
	Others   []*Holding // who else may have the snapshots
	Progress func(peerdl.Progress)
}

// CopySnapshots brings snapshots here, those of the same bytes that are here already left
// alone. failed has an entry for each that could not be had; the error is ctx's, or the
// disk's.
func (h *Holding) CopySnapshots(ctx context.Context, cfg CopyConfig, refs ...metalog.SnapshotRef) (failed map[metalog.SnapshotID]error, err error) {
	snaps, err := metalog.OpenSnapshots(cfg.FS, metalog.SnapshotsDir, cfg.Logger)
	if err != nil {
		return nil, err
	}
	fetcher := snapshots.NewFetcher(snapshots.FetcherConfig{
		Snapshots: snaps, Downloader: peerdl.NewDownloader(peerdl.Config{Log: cfg.Logger}),
		Logger: cfg.Logger, Client: h.client, Progress: cfg.Progress,
	})
	failed = map[metalog.SnapshotID]error{}
	for _, ref := range refs {
		_, err := fetcher.Fetch(ctx, snapshots.Request{Snapshot: ref, Cluster: h.Cluster, Sources: h.sources(cfg.Others, ref)})
		switch {
		case err == nil:
		case ctx.Err() != nil, vfs.IsSyncError(err):
			return nil, err
		case isLocal(err):
			return nil, fmt.Errorf("restore: snapshot %s: %w", ref.SnapshotID, err)
		default:
			failed[ref.SnapshotID] = err
		}
	}
	return failed, nil
}

// isLocal tells what the disk here says, full or read-only, from what is wrong with a
// snapshot: another snapshot would not change it.
func isLocal(err error) bool {
	return !errors.As(err, new(*peerdl.NoSourceError)) && (errors.As(err, new(*fs.PathError)) || errors.As(err, new(*os.LinkError)))
}

// sources are all that list the very snapshot.
func (h *Holding) sources(others []*Holding, ref metalog.SnapshotRef) (all []snapshots.Source) {
	for _, o := range append([]*Holding{h}, others...) {
		for _, held := range o.Snapshots {
			if held == ref {
				all = append(all, snapshots.Source{Name: o.URL, URL: o.URL})
			}
		}
	}
	return all
}

// CopyLog brings the log here from a position on, to the end that it has now or a little
// further, into a log that is not there yet. IsNoLog tells that the server does not have it
// from there on.
func (h *Holding) CopyLog(ctx context.Context, cfg CopyConfig, from metalog.Position) (end metalog.Position, err error) {
	log, err := metalog.OpenLog(cfg.FS, metalog.LogOptions{Dir: LogDir, Logger: cfg.Logger})
	if err != nil {
		return end, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	if from.Offset > 0 {
		if err := log.Reset(from); err != nil {
			return end, err
		}
	}
	for first, to := true, int64(0); ; first = false {
		end = log.Position()
		if !first && end.Offset >= to {
			return end, nil // whoever writes at this moment is not run after
		}
		entries, tip, err := h.tail.read(ctx, end)
		if errors.Is(err, errNoLog) && end == h.Newest.Position {
			return end, h.endsThere(ctx)
		}
		if err != nil {
			return end, fmt.Errorf("restore: %s: %w", h.URL, err)
		}
		if len(entries) == 0 {
			return end, nil
		}
		if first {
			to = tip
		}
		if err := log.AppendEntries(ctx, entries); err != nil {
			return end, fmt.Errorf("restore: the log of %s: %w", h.URL, err)
		}
	}
}

// endsThere tells a server whose snapshot is past its log, as one that was killed in between
// leaves them, from one that has let go of the log meanwhile.
func (h *Holding) endsThere(ctx context.Context) error {
	now, err := Look(ctx, h.client, h.URL)
	if err != nil {
		return err
	}
	if now.End != h.End {
		return fmt.Errorf("restore: %s has gone on to a later snapshot meanwhile: try again", h.URL)
	}
	return nil
}

// Copied is what CopyImage has brought.
type Copied struct {
	Snapshot *metalog.SnapshotRef // nil: none, the log is whole
	From     metalog.Position     // where the log begins
	End      metalog.Position     // and where it ends
	Skipped  []error              // newer snapshots that could not be had
	// Replaced says why Snapshot could not be had from the server, and came from another.
	Replaced error
}

// CopyImage brings what it takes to have the image of now: the newest snapshot that can be
// had, and the log after it.
func (h *Holding) CopyImage(ctx context.Context, cfg CopyConfig) (c Copied, err error) {
	for _, ref := range slices.Backward(h.Snapshots) {
		why, fault, err := h.copyWhole(ctx, cfg, ref)
		if err != nil {
			return c, err
		}
		if fault != nil {
			c.Skipped = append(c.Skipped, fmt.Errorf("snapshot %s of %s: %w", ref.SnapshotID, h.URL, fault))
			continue
		}
		im, _, err := metalog.LoadSnapshot(cfg.FS, metalog.SnapshotsDir, ref.SnapshotID)
		if err != nil {
			return c, err
		}
		if why != nil {
			c.Replaced = fmt.Errorf("snapshot %s of %s: %w", ref.SnapshotID, h.URL, why)
		}
		c.Snapshot, c.From = &ref, metalog.Position{Offset: im.Next(), LastEpoch: im.Epoch(), LastTerm: im.LastTerm()}
		break
	}
	if c.End, err = h.CopyLog(ctx, cfg, c.From); IsNoLog(err) {
		err = errors.Join(append(c.Skipped, err)...)
	}
	return c, err
}

// copyWhole brings one snapshot: from the server itself, so that what is wrong with it there
// is found, and if it is not to be had there from all that list it. own is why not from the
// server itself, fault why not at all.
func (h *Holding) copyWhole(ctx context.Context, cfg CopyConfig, ref metalog.SnapshotRef) (own, fault, err error) {
	others := cfg.Others
	cfg.Others = nil
	if own = h.Damaged[ref.SnapshotID]; own == nil {
		failed, err := h.CopySnapshots(ctx, cfg, ref)
		if own = failed[ref.SnapshotID]; own == nil || err != nil {
			return nil, nil, err
		}
	}
	for _, o := range others {
		if o == h || !slices.Contains(o.Snapshots, ref) || o.Damaged[ref.SnapshotID] != nil {
			continue
		}
		cfg.Others = append(cfg.Others, o)
	}
	if len(cfg.Others) == 0 {
		return own, own, nil
	}
	failed, err := h.CopySnapshots(ctx, cfg, ref)
	return own, failed[ref.SnapshotID], err
}

// IsNoLog tells that CopyLog failed because the server does not have the log from there on.
func IsNoLog(err error) bool { return errors.Is(err, errNoLog) }
