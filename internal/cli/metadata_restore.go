package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/restore"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/peerdl"
)

type metadataRestore struct {
	FromNode []string `required:"" help:"URLs of nodes, comma-separated: of all that there are, because one of them has the most. Each has to answer." placeholder:"URL"`
	Data     string   `required:"" help:"The data directory that is made: empty, or not there yet. If the command is cut short, run it again." placeholder:"DIR"`
}

func (c metadataRestore) Run(ctx context.Context, a *app) error {
	fsys, err := c.open()
	if err != nil {
		return err
	}
	r, err := restore.Restore(ctx, restore.Config{
		FS: fsys, Make: func() (vfs.FS, error) { return vfs.OS(c.Data) },
		Nodes: c.FromNode, Client: a.bulk, Logger: zerolog.Nop(), Progress: a.downloadProgress(),
	})
	if err != nil {
		return restoreError(err)
	}
	if a.json {
		return a.writeJSON(r)
	}
	return a.printRestored(c.Data, r)
}

// open opens the data directory, nil if it is not there yet.
func (c metadataRestore) open() (vfs.FS, error) {
	const give = "give an empty directory, or one that is not there yet"
	info, err := os.Stat(c.Data)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, usageError{fmt.Errorf("--data %s: %w: %s", c.Data, err, give)}
	case !info.IsDir():
		return nil, usageError{fmt.Errorf("--data %s is no directory: %s", c.Data, give)}
	}
	return vfs.OS(c.Data)
}

// restoreError is an error for people: in full, as the message of a server alone would not
// say which of the nodes it was, and with what was written by then.
func restoreError(err error) error {
	if errors.As(err, new(*restore.UnfinishedError)) {
		return errors.New(err.Error())
	}
	said := fmt.Errorf("%s; nothing was written", err)
	switch {
	case errors.As(err, new(*restore.HistoriesError)):
		return no("%s. Name nodes of one of them only", said)
	case errors.As(err, new(*restore.NodesError)):
		return usageError{said}
	}
	return said
}

func (a *app) printRestored(dir string, r *restore.Restored) error {
	t := newTable(a.Out, "SNAPSHOT", "LAST BATCH", "EPOCH", "WRITTEN", "NODE")
	for _, n := range r.Asked {
		last := "none"
		if n.Offset >= 0 {
			last = fmt.Sprint(n.Offset)
		}
		t.row(n.Snapshot, last, n.Epoch, a.ago(n.Time), n.URL)
	}
	if err := t.flush(); err != nil {
		return err
	}
	for _, skipped := range r.Skipped {
		fmt.Fprintf(a.Out, "note: passed over: %s\n", skipped)
	}
	for _, damaged := range r.Damaged {
		fmt.Fprintf(a.Out, "note: damaged: %s; what is restored does not come from it\n", damaged)
	}
	from := "the whole log"
	if r.Snapshot != nil {
		from = fmt.Sprintf("snapshot %s and %s after it", r.Snapshot.SnapshotID, batches(r.Batches))
	}
	fmt.Fprintf(a.Out, "\ncluster %s is restored in %s from %s: %s\n", r.ClusterID, dir, r.From, from)
	fmt.Fprintf(a.Out, "it ends with batch %d of epoch %d: %s records, %d tables, %s segments (%s committed), %d nodes\n",
		r.Offset, r.Epoch, count(int64(r.Records)), r.Tables, count(int64(segments(r))), count(int64(r.Segments[meta.SegmentDone])), r.Nodes)
	fmt.Fprintf(a.Out, "may be missing: whatever the lost controller wrote after %s and none of these nodes had fetched\n", at(r.Time.UnixMilli()))
	_, err := fmt.Fprintf(a.Out, "next: start one controller with --data %s, under the address that the nodes know; it opens epoch %d. Never start the lost one again\n", dir, r.NextEpoch)
	return err
}

func segments(r *restore.Restored) (n int) {
	for _, of := range r.Segments {
		n += of
	}
	return n
}

// downloadProgress says on standard error how far a long download is.
func (a *app) downloadProgress() func(peerdl.Progress) {
	last := a.now()
	return func(p peerdl.Progress) {
		if now := a.now(); now.Sub(last) >= progressEvery {
			last = now
			fmt.Fprintf(a.Err, "snapshot: %s of %s\n", size(p.HeldBytes), size(p.SizeBytes))
		}
	}
}
