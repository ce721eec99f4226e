package metalog

import (
	"path"
	"slices"
	"testing"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/segment"
)

func refOf(end, epoch int64, digest byte) SnapshotRef {
	return SnapshotRef{SnapshotID: SnapshotID{EndOffset: end, Epoch: epoch}, SizeBytes: 1, Digest: segment.Digest{digest}}
}

func TestDownloadsAreKeptWhileTheyCanBeContinued(t *testing.T) {
	disk := vfs.NewMem()
	s, refs := storeOf(t, disk, batchesOf(run{1, 9}), 5)
	part := func(end, epoch int64, digest byte) string {
		_, part := s.PartPath(refOf(end, epoch, digest))
		return part
	}
	whole := []string{path.Base(snapshotFile("", refs[0].SnapshotID)), path.Base(sidecarFile("", refs[0].SnapshotID))}
	good := part(7, 1, 7)
	kept := []string{path.Base(good), path.Base(good) + ".journal"}
	for _, name := range []string{
		good, good + ".journal", good + ".journal.tmp",
		part(7, 1, 8),                             // no journal
		part(8, 1, 7) + ".journal",                // no .part
		part(5, 1, 7), part(5, 1, 7) + ".journal", // done
	} {
		putFile(t, disk, name, []byte("bytes"))
	}
	want := append(slices.Clone(whole), kept...)
	slices.Sort(want)
	s = openSnapshots(t, disk)
	wantFiles(t, disk, SnapshotsDir, want...)

	if n, err := s.DropDownloads(good); err != nil || n != 0 {
		t.Fatal(n, err)
	}
	wantFiles(t, disk, SnapshotsDir, want...)
	if n, err := s.DropDownloads(part(7, 1, 8)); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	wantFiles(t, disk, SnapshotsDir, whole...)
}

func TestNamesOfDownloads(t *testing.T) {
	id := SnapshotID{EndOffset: 7, Epoch: 1}
	for name, want := range map[string]bool{
		id.String() + ".checkpoint.0123456789abcdef.part":   true,
		id.String() + ".checkpoint.part":                    false, // being written
		id.String() + ".checkpoint.0123456789abcde.part":    false,
		id.String() + ".checkpoint.0123456789abcdeg.part":   false,
		id.String() + ".checkpoint.0123456789abcdef":        false,
		id.String() + ".0123456789abcdef.part":              false,
		"7-1.checkpoint.0123456789abcdef.part":              false,
		id.String() + ".checkpoint.0123456789abcdef.part.x": false,
		".part": false,
	} {
		if got, ok := parseDownloadName(name); ok != want || ok && got != id {
			t.Errorf("%s: %v, %v", name, got, ok)
		}
	}
}
