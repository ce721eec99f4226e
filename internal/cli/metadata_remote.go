package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/internal/restore"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/metalog"
)

// What a server has is copied into a directory of its own, and then read as any directory
// is. The directory goes when the command ends.

// base is a server's URL without a slash at its end.
func base(url string) string { return strings.TrimRight(url, "/") }

// look asks a server what it has, the leader if url is empty.
func (a *app) look(ctx context.Context, url string) (*restore.Holding, error) {
	if url == "" {
		var err error
		if url, err = a.leaderURL(ctx); err != nil {
			return nil, err
		}
	}
	h, err := restore.Look(ctx, a.bulk, base(url))
	var answer *httpx.Error
	if errors.As(err, &answer) && answer.Code == metalog.CodeNotLeader {
		return nil, fmt.Errorf("%s does not lead, and so does not hand out the log: ask who leads, or read its data directory with --from-dir", url)
	}
	return h, err
}

// remoteImage copies what there is of the image, and reads it: of the snapshot id, or of
// the newest one and the log after it.
func (a *app) remoteImage(ctx context.Context, url string, id *metalog.SnapshotID) (found metalog.FoundImage, err error) {
	if id != nil {
		return a.remoteSnapshot(ctx, url, *id)
	}
	h, err := a.look(ctx, url)
	if err != nil {
		return found, err
	}
	err = inTemporary(func(d *dataDir) error {
		copied, err := h.CopyImage(ctx, restore.CopyConfig{FS: d.fs, Logger: zerolog.Nop()})
		if err != nil {
			return err
		}
		found, err = readImage(d, nil)
		found.Skipped = append(found.Skipped, copied.Skipped...)
		return err
	})
	return found, err
}

// remoteSnapshot copies one snapshot, of whoever has it: the server need not lead.
func (a *app) remoteSnapshot(ctx context.Context, url string, id metalog.SnapshotID) (found metalog.FoundImage, err error) {
	if url == "" {
		if url, err = a.leaderURL(ctx); err != nil {
			return found, err
		}
	}
	rows, err := a.snapshotsOf(ctx, url)
	if err != nil {
		return found, err
	}
	i := slices.IndexFunc(rows, func(r snapshotRow) bool { return r.SnapshotID == id })
	if i < 0 {
		return found, fmt.Errorf("%s has no snapshot %s; shoal metadata snapshots --url %s lists those it has", url, id, url)
	}
	ref := metalog.SnapshotRef{SnapshotID: id, SizeBytes: rows[i].SizeBytes, Digest: rows[i].Digest}
	err = inTemporary(func(d *dataDir) error {
		h := restore.HolderOf(a.bulk, base(url), ref)
		if err := copySnapshot(ctx, h, restore.CopyConfig{FS: d.fs, Logger: zerolog.Nop()}, ref); err != nil {
			return err
		}
		found, err = readImage(d, &id)
		return err
	})
	return found, err
}

func copySnapshot(ctx context.Context, h *restore.Holding, to restore.CopyConfig, ref metalog.SnapshotRef) error {
	failed, err := h.CopySnapshots(ctx, to, ref)
	if err != nil {
		return err
	}
	if err := failed[ref.SnapshotID]; err != nil {
		return fmt.Errorf("snapshot %s of %s: %w", ref.SnapshotID, h.URL, err)
	}
	return nil
}

// inTemporary does something in a directory that goes afterwards.
func inTemporary(do func(*dataDir) error) (err error) {
	dir, err := os.MkdirTemp("", "shoal-metadata-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	fsys, err := vfs.OS(dir)
	if err != nil {
		return err
	}
	return do(&dataDir{path: dir, fs: fsys, owner: ownerNode, logDir: restore.LogDir})
}
