package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/snapshots"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/segment"
)

type metadataSnapshots struct {
	FromDir string `help:"List those in this data directory, of a controller or a node. Nothing in it is changed, and a process may run on it." placeholder:"DIR" xor:"from"`
	URL     string `name:"url" help:"List those of this controller or node, instead of the leader's." placeholder:"URL" xor:"from"`
}

// snapshotRow is a snapshot as `shoal metadata snapshots -o json` prints it.
type snapshotRow struct {
	ID string `json:"id"`
	metalog.SnapshotID
	SizeBytes int64                 `json:"sizeBytes"`
	Digest    segment.Digest        `json:"digest,omitzero"`
	Time      time.Time             `json:"time,omitzero"` // of its last batch
	State     metalog.SnapshotState `json:"state"`
	File      string                `json:"file,omitempty"`
}

func (c metadataSnapshots) Run(ctx context.Context, a *app) error {
	rows, err := c.rows(ctx, a)
	if err != nil {
		return err
	}
	if a.json {
		return a.writeJSON(rows)
	}
	if len(rows) == 0 {
		_, err := fmt.Fprintln(a.Out, "no snapshots")
		return err
	}
	t := newTable(a.Out, "ID", "SIZE", "LAST BATCH", "STATE", "DIGEST")
	for _, r := range rows {
		digest := ""
		if !r.Digest.IsZero() {
			digest = r.Digest.String()
		}
		t.row(r.ID, size(r.SizeBytes), a.ago(r.Time), r.State, digest)
	}
	return t.flush()
}

func (c metadataSnapshots) rows(ctx context.Context, a *app) ([]snapshotRow, error) {
	if c.FromDir == "" {
		url := c.URL
		if url == "" {
			var err error
			if url, err = a.leaderURL(ctx); err != nil {
				return nil, err
			}
		}
		return a.snapshotsOf(ctx, url)
	}
	d, err := openDataDir(c.FromDir)
	if err != nil {
		return nil, err
	}
	a.noteRunning(d)
	files, err := metalog.ListSnapshotFiles(d.fs, metalog.SnapshotsDir)
	if err != nil {
		return nil, err
	}
	rows := []snapshotRow{}
	for _, f := range files {
		row := snapshotRow{
			ID: f.SnapshotID.String(), SnapshotID: f.SnapshotID, SizeBytes: f.SizeBytes, Digest: f.Digest, State: f.State, File: f.Name,
		}
		if f.Time > 0 {
			row.Time = time.UnixMilli(f.Time).UTC()
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// snapshotsOf lists those of a server, the oldest first.
func (a *app) snapshotsOf(ctx context.Context, url string) ([]snapshotRow, error) {
	items, err := api.ListAt[snapshots.Item](ctx, a.http, base(url)+snapshots.Path)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(items, func(x, y snapshots.Item) int { return x.SnapshotID.Compare(y.SnapshotID) })
	rows := []snapshotRow{}
	for _, i := range items {
		rows = append(rows, snapshotRow{
			ID: i.ID, SnapshotID: i.SnapshotID, SizeBytes: i.SizeBytes, Digest: i.Digest, Time: i.Time, State: metalog.SnapshotWhole,
		})
	}
	return rows, nil
}

// leaderURL finds who leads, by the URL that it was reached at.
func (a *app) leaderURL(ctx context.Context) (string, error) {
	err := a.control.Get(ctx, "/leader", nil)
	return a.control.Leader(), err
}

type metadataSnapshot struct {
	Wait    bool          `negatable:"" default:"true" help:"Wait until the leader has it; --no-wait only asks for it."`
	Timeout time.Duration `default:"1m" help:"For how long to wait." placeholder:"DURATION"`
}

// snapshotEvery is how often it is looked whether the snapshot is there.
const snapshotEvery = 250 * time.Millisecond

// Run asks for a snapshot, which every controller and node makes at the same offset.
func (c metadataSnapshot) Run(ctx context.Context, a *app) error {
	if c.Wait && c.Timeout <= 0 {
		return usageError{fmt.Errorf("--timeout %s is not positive", c.Timeout)}
	}
	var asked api.SnapshotAsked
	if err := a.control.Post(ctx, snapshots.Path, nil, &asked); err != nil {
		return err
	}
	id := metalog.SnapshotID{EndOffset: asked.EndOffset, Epoch: asked.Epoch}
	if !c.Wait {
		if a.json {
			return a.writeJSON(snapshotRow{ID: id.String(), SnapshotID: id})
		}
		_, err := fmt.Fprintf(a.Out, "snapshot %s is asked for\n", id)
		return err
	}
	row, err := c.await(ctx, a, id)
	if err != nil {
		return err
	}
	if a.json {
		return a.writeJSON(row)
	}
	_, err = fmt.Fprintf(a.Out, "snapshot %s is there, %s, blake3 %s\n", id, size(row.SizeBytes), row.Digest)
	return err
}

// await waits until the leader, whichever it is by then, lists the snapshot.
func (c metadataSnapshot) await(ctx context.Context, a *app, id metalog.SnapshotID) (snapshotRow, error) {
	waiting, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	for looks := 0; ; looks++ {
		url, err := a.leaderURL(waiting)
		var rows []snapshotRow
		if err == nil {
			rows, err = a.snapshotsOf(waiting, url)
		}
		for _, r := range rows {
			if r.SnapshotID.Compare(id) >= 0 { // one that was asked for meanwhile takes its place
				return r, nil
			}
		}
		if err != nil && waiting.Err() == nil && !passes(err) {
			return snapshotRow{}, err
		}
		if looks == 0 {
			fmt.Fprintf(a.Err, "note: snapshot %s is asked for, at offset %d of the log; waiting until the leader has it, %s at most. It begins within 10 s, at a moment of its own\n", id, id.EndOffset, c.Timeout)
		}
		if pause(waiting, snapshotEvery) != nil {
			if ctx.Err() != nil {
				return snapshotRow{}, ctx.Err()
			}
			return snapshotRow{}, fmt.Errorf("snapshot %s was asked for, and the leader does not have it after %s: it may still come (shoal metadata snapshots); if not, the controller's log says why", id, c.Timeout)
		}
	}
}
