package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
)

type metadataDump struct {
	FromDir  string   `help:"Read this data directory, of a controller or a node, instead of asking the controllers. Nothing in it is changed, and a process may run on it." placeholder:"DIR" xor:"from"`
	URL      string   `name:"url" help:"Ask this controller or node, instead of the leader." placeholder:"URL" xor:"from"`
	Snapshot string   `help:"The records of this snapshot, without what came later." placeholder:"ID"`
	Kind     []string `help:"Only records of these kinds, comma-separated: ${kinds}." placeholder:"KIND"`
	Table    string   `help:"Only records of this table: its own, and those of its configurations, partitions, segments and tombstones." placeholder:"NAME"`
}

// dumpLine is a record as `shoal metadata dump` prints it.
type dumpLine struct {
	changedRecord
	Record json.RawMessage `json:"record"`
}

// kindNames are those of --kind.
func kindNames() (names []string) {
	for k := meta.Kind(1); k.Valid(); k++ {
		names = append(names, k.String())
	}
	return names
}

func (c metadataDump) Run(ctx context.Context, a *app) error {
	kinds, err := c.kinds()
	if err != nil {
		return err
	}
	var id *metalog.SnapshotID
	if c.Snapshot != "" {
		parsed, err := metalog.ParseSnapshotID(c.Snapshot)
		if err != nil {
			return usageError{fmt.Errorf("--snapshot: %w; shoal metadata snapshots lists them", err)}
		}
		id = &parsed
	}
	found, err := c.image(ctx, a, id)
	if err != nil {
		return err
	}
	for _, skipped := range found.Skipped {
		fmt.Fprintf(a.Err, "note: passed over: %s\n", skipped)
	}
	im := found.Image
	var table uuid.UUID
	if c.Table != "" {
		t := im.TableByName(c.Table)
		if t == nil {
			return fmt.Errorf("no table %q in the image", c.Table)
		}
		table = t.ID
	}
	fmt.Fprintf(a.Err, "note: %s\n", foundIn(found))
	out := bufio.NewWriter(a.Out)
	encode := json.NewEncoder(out)
	encode.SetEscapeHTML(false)
	for r := range im.Records() {
		k := r.Key()
		if len(kinds) > 0 && !kinds[k.Kind] || c.Table != "" && tableOf(r) != table {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		data, err := meta.EncodeRecordJSON(r)
		if err != nil {
			return err
		}
		if err := encode.Encode(dumpLine{named(k), data}); err != nil {
			return err
		}
	}
	return out.Flush()
}

func (c metadataDump) kinds() (map[meta.Kind]bool, error) {
	kinds := map[meta.Kind]bool{}
	for _, name := range c.Kind {
		k := meta.Kind(1)
		for k.Valid() && k.String() != name {
			k++
		}
		if !k.Valid() {
			return nil, usageError{fmt.Errorf("--kind %s is none of %s", name, strings.Join(kindNames(), ", "))}
		}
		kinds[k] = true
	}
	return kinds, nil
}

// tableOf is the table that a record is of, zero for one that is of none.
func tableOf(r meta.Record) uuid.UUID {
	if t, ok := r.(*meta.Table); ok {
		return t.ID
	}
	return r.Key().Table
}

// foundIn says where an image is of, and made of what.
func foundIn(f metalog.FoundImage) string {
	im := f.Image
	if im.Next() == 0 {
		return "there is no batch yet"
	}
	from := "the whole log"
	if f.Snapshot != nil {
		from = fmt.Sprintf("snapshot %s", f.Snapshot.SnapshotID)
		if f.Batches > 0 {
			from += fmt.Sprintf(" and %s after it", batches(f.Batches))
		}
	}
	return fmt.Sprintf("the image after batch %d of epoch %d, %s, from %s", im.Next()-1, im.Epoch(), time.UnixMilli(im.LastTime()).UTC().Format(time.RFC3339), from)
}

func batches(n int64) string {
	if n == 1 {
		return "1 batch"
	}
	return count(n) + " batches"
}

// image reads what is asked for.
func (c metadataDump) image(ctx context.Context, a *app, id *metalog.SnapshotID) (metalog.FoundImage, error) {
	if c.FromDir == "" {
		return a.remoteImage(ctx, c.URL, id)
	}
	d, err := openDataDir(c.FromDir)
	if err != nil {
		return metalog.FoundImage{}, err
	}
	a.noteRunning(d)
	found, err := readImage(d, id)
	if errors.As(err, new(*metalog.CorruptionError)) || errors.As(err, new(*metalog.SnapshotMissingError)) {
		return found, no("%s: %s; `shoal metadata verify --from-dir %s` says more, and --snapshot reads one file alone", d.path, err, d.path)
	}
	return found, err
}

// readImage reads a snapshot, or the image that a start would find.
func readImage(d *dataDir, id *metalog.SnapshotID) (metalog.FoundImage, error) {
	if id == nil {
		return metalog.ReadImage(d.fs, d.logDir, metalog.SnapshotsDir)
	}
	im, ref, err := metalog.LoadSnapshot(d.fs, metalog.SnapshotsDir, *id)
	return metalog.FoundImage{Image: im, Snapshot: &ref}, err
}
