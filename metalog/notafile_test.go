package metalog

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
)

// TestWhatIsNoFile: something that is no file may lie under any name that is used here.
// verify lists it and goes on; a start puts it out of the way, unless it is in the place
// of the log.
func TestWhatIsNoFile(t *testing.T) {
	batches := batchesOf(run{1, 3}, run{2, 3})
	id := SnapshotID{EndOffset: 5, Epoch: 2}
	directory := func(name string) error { return os.MkdirAll(filepath.Join(name, "something"), 0o755) }
	link := func(to string) func(string) error {
		return func(name string) error { return os.Symlink(to, name) }
	}
	for what, test := range map[string]struct {
		name  string
		put   func(string) error
		kind  FindingKind
		start bool // is possible
	}{
		"directory as snapshot":          {"snapshots/" + id.String() + ".checkpoint", directory, DamagedSnapshot, true},
		"link as snapshot":               {"snapshots/" + id.String() + ".checkpoint", link("nowhere"), DamagedSnapshot, true},
		"link to a snapshot":             {"snapshots/" + id.String() + ".checkpoint", link(SnapshotID{4, 2}.String() + ".checkpoint"), DamagedSnapshot, true},
		"directory as piece list":        {"snapshots/" + SnapshotID{4, 2}.String() + ".pieces", directory, DamagedSnapshot, true},
		"link as piece list":             {"snapshots/" + SnapshotID{4, 2}.String() + ".pieces", link("/nowhere"), DamagedSnapshot, true},
		"directory in the making":        {"snapshots/" + id.String() + ".checkpoint.part", directory, DamagedSnapshot, true},
		"directory that is going":        {"snapshots/" + id.String() + ".checkpoint.deleted", directory, DamagedSnapshot, true},
		"directory as download":          {"snapshots/" + id.String() + ".checkpoint.0123456789abcdef.part", directory, DamagedSnapshot, true},
		"directory as log file":          {"log/" + filepath.Base(logFileName("log", 6)), directory, DamagedLog, false},
		"link as log file":               {"log/" + filepath.Base(logFileName("log", 6)), link("nowhere"), DamagedLog, false},
		"directory as log that is begun": {"log/" + filepath.Base(logFileName("log", 6)) + ".reset", directory, DamagedLog, false},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			disk, err := vfs.OS(dir)
			if err != nil {
				t.Fatal(err)
			}
			dataDir{0, 6, []int{2, 4}}.on(t, disk, batches)
			place := filepath.Join(dir, filepath.FromSlash(test.name))
			if err := os.RemoveAll(place); err != nil {
				t.Fatal(err)
			}
			if err := test.put(place); err != nil {
				t.Fatal(err)
			}

			v := verify(t, disk)
			if !slices.Contains(findings(v), string(test.kind)+" "+test.name) {
				t.Errorf("found %v", v.Findings)
			}
			if test.kind == DamagedSnapshot && (v.Batches != 6 || len(v.Snapshots) != 2) {
				t.Errorf("read %d batches and the snapshots %v, and there is more", v.Batches, v.Snapshots)
			}

			snaps, err := OpenSnapshots(disk, "", zerolog.Nop())
			if err != nil {
				t.Fatal(err)
			}
			l, err := OpenLog(disk, LogOptions{FileBytes: onePerFile})
			if !test.start {
				if err == nil || !strings.Contains(err.Error(), test.name) || !strings.Contains(err.Error(), "should be a file") {
					t.Errorf("the log is opened: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			im, err := Recover(l, snaps, zerolog.Nop())
			if err != nil {
				t.Fatal(err)
			}
			wantImage(t, im, imageAfter(t, batches...))
			if _, err := os.Lstat(place + corruptSuffix); err != nil {
				t.Errorf("it is not set aside: %v", err)
			}
			if left := verify(t, disk); left.Damaged() {
				t.Errorf("after a start there is %v", left.Findings)
			}
		})
	}
}

// TestWhatIsNoEpochFile: it is named as damaged.
func TestWhatIsNoEpochFile(t *testing.T) {
	for what, put := range map[string]func(disk vfs.FS) error{
		"directory": func(disk vfs.FS) error { return disk.MkdirAll(EpochFile, 0o755) },
		"long":      func(disk vfs.FS) error { return vfs.WriteFile(disk, EpochFile, make([]byte, 4096)) },
	} {
		t.Run(what, func(t *testing.T) {
			disk := vfs.NewMem()
			dataDir{0, 3, nil}.on(t, disk, batchesOf(run{1, 3}))
			if err := put(disk); err != nil {
				t.Fatal(err)
			}
			if v := verify(t, disk); !slices.Contains(findings(v), string(DamagedEpoch)+" "+EpochFile) {
				t.Errorf("found %v", v.Findings)
			}
			if _, err := ClaimEpoch(disk, 1); err == nil || !saysDamage(err) {
				t.Errorf("an epoch is claimed: %v", err)
			}
		})
	}
}

// TestVerifyTellsAPieceListThatIsTooLong: it is not read, and the start makes it anew.
func TestVerifyTellsAPieceListThatIsTooLong(t *testing.T) {
	disk := vfs.NewMem()
	dataDir{0, 4, []int{2, 4}}.on(t, disk, batchesOf(run{1, 4}))
	name := sidecarFile(SnapshotsDir, SnapshotID{4, 1})
	putFile(t, disk, name, make([]byte, 1<<20))
	if v := verify(t, disk); !slices.Equal(findings(v), []string{string(DamagedPieces) + " " + name}) {
		t.Errorf("found %v", v.Findings)
	}
	openSnapshots(t, disk)
	if v := verify(t, disk); v.Damaged() {
		t.Errorf("after a start there is %v", v.Findings)
	}
}

// TestSnapshotOfAnotherClusterIsSetAside: whoever knows which cluster he is of keeps his
// log, and lets go of the snapshot. Verify names the snapshot too.
func TestSnapshotOfAnotherClusterIsSetAside(t *testing.T) {
	batches := batchesOf(run{1, 3}, run{2, 3})
	foreign := batchesOf(run{1, 3}, run{2, 6})
	foreign[0].Upserts[0] = &meta.Cluster{ID: uuid.MustParse("00000000-0000-4000-8000-0000000000c2"), FormatVersion: meta.FormatVersion}
	for what, test := range map[string]struct {
		dir dataDir
		end int // of the stranger
	}{
		"within the log":                  {dataDir{0, 6, []int{2}}, 4},
		"past the log":                    {dataDir{0, 6, []int{2}}, 8},
		"before the log":                  {dataDir{3, 6, []int{3}}, 2},
		"past a log that begins later":    {dataDir{3, 6, []int{3, 5}}, 8},
		"before the log, of a later time": {dataDir{5, 6, []int{5}}, 4},
	} {
		t.Run(what, func(t *testing.T) {
			disk := vfs.NewMem()
			test.dir.on(t, disk, batches)
			ref := writeSnapshot(t, disk, imageAfter(t, foreign[:test.end]...))
			name := snapshotFile(SnapshotsDir, ref.SnapshotID)
			v, err := Verify(VerifyConfig{FS: disk, LogDir: "log", SnapshotsDir: SnapshotsDir, Cluster: testCluster, Same: sameImages})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(findings(v), []string{string(StrangeSnapshot) + " " + name}) {
				t.Errorf("verify finds %v", v.Findings)
			}

			l, _, im, err := OpenCache(FollowerConfig{FS: disk, Dir: "log", SnapshotsDir: SnapshotsDir, Cluster: testCluster, Logger: zerolog.Nop()})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			wantImage(t, im, imageAfter(t, batches...))
			if l.Start() != int64(test.dir.start) || l.End() != int64(test.dir.end) {
				t.Errorf("the log is [%d, %d)", l.Start(), l.End())
			}
			if _, err := disk.Stat(name + corruptSuffix); err != nil {
				t.Errorf("it is not set aside: %v", err)
			}
		})
	}
}
