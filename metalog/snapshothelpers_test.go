package metalog

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"slices"
	"testing"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
)

// imageAfter is the image after these batches.
func imageAfter(t testing.TB, batches ...*meta.Batch) *meta.Image {
	t.Helper()
	im := meta.Empty()
	for _, b := range batches {
		next, err := im.Apply(b)
		if err != nil {
			t.Fatal(err)
		}
		im = next
	}
	return im
}

// bigImage needs several frames of records.
func bigImage(t testing.TB) *meta.Image {
	t.Helper()
	batches := batchesOf(run{1, 2}, run{2, 1})
	for i := range int64(40) {
		batches[2].Upserts = append(batches[2].Upserts, job(100+i, 60<<10))
	}
	return imageAfter(t, batches...)
}

// manyFrames needs more frames than are decoded ahead, and several steps of fsync.
func manyFrames(t testing.TB) *meta.Image {
	t.Helper()
	batches := batchesOf(run{1, 1}, run{2, 1})
	for i := range int64(220) {
		batches[1].Upserts = append(batches[1].Upserts, job(100+i, 60<<10))
	}
	return imageAfter(t, batches...)
}

// wantImage checks that two images hold the same records at the same position.
func wantImage(t testing.TB, got, want *meta.Image) {
	t.Helper()
	if headerOf(got) != headerOf(want) {
		t.Fatalf("the image is at %+v, want %+v", headerOf(got), headerOf(want))
	}
	a, b := slices.Collect(got.Records()), slices.Collect(want.Records())
	if len(a) != len(b) {
		t.Fatalf("%d records, want %d", len(a), len(b))
	}
	for i := range a {
		x, err1 := meta.EncodeRecord(a[i])
		y, err2 := meta.EncodeRecord(b[i])
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		if a[i].Key() != b[i].Key() || !bytes.Equal(x, y) {
			t.Fatalf("record %d is %+v, want %+v", i, a[i], b[i])
		}
	}
}

func openSnapshots(t testing.TB, fsys vfs.FS) *Snapshots {
	t.Helper()
	s, err := OpenSnapshots(fsys, "", zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func writeSnapshot(t testing.TB, fsys vfs.FS, im *meta.Image) SnapshotRef {
	t.Helper()
	ref, err := WriteSnapshot(context.Background(), fsys, SnapshotsDir, im)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// snapshotBytes is the file that the image is written as.
func snapshotBytes(t testing.TB, im *meta.Image) []byte {
	t.Helper()
	disk := vfs.NewMem()
	return readFile(t, disk, snapshotFile(SnapshotsDir, writeSnapshot(t, disk, im).SnapshotID))
}

func readFile(t testing.TB, fsys vfs.FS, name string) []byte {
	t.Helper()
	data, err := vfs.ReadFile(fsys, name, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// putFile replaces a file, whatever its mode.
func putFile(t testing.TB, fsys vfs.FS, name string, data []byte) {
	t.Helper()
	if err := vfs.WriteFile(fsys, name, data); err != nil {
		t.Fatal(err)
	}
}

// frameEnds are the positions after each frame.
func frameEnds(t testing.TB, data []byte) (ends []int) {
	t.Helper()
	for rest := data; len(rest) > 0; {
		_, next, err := NextFrame(rest)
		if err != nil {
			t.Fatal(err)
		}
		rest = next
		ends = append(ends, len(data)-len(rest))
	}
	return ends
}

// fileNames lists a directory; one that does not exist is empty.
func fileNames(t testing.TB, fsys vfs.FS, dir string) (names []string) {
	t.Helper()
	entries, err := fsys.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func wantFiles(t testing.TB, fsys vfs.FS, dir string, want ...string) {
	t.Helper()
	if got := fileNames(t, fsys, dir); !slices.Equal(got, want) {
		t.Fatalf("%s holds %q, want %q", dir, got, want)
	}
}
