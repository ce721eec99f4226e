package metalog

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
)

// storeOf has a snapshot after each of the offsets.
func storeOf(t *testing.T, disk vfs.FS, batches []*meta.Batch, ends ...int) (s *Snapshots, refs []SnapshotRef) {
	t.Helper()
	s = openSnapshots(t, disk)
	for _, end := range ends {
		ref, err := s.Write(context.Background(), imageAfter(t, batches[:end]...))
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, ref)
	}
	return s, refs
}

func TestSnapshotsAreListedByEpochThenOffset(t *testing.T) {
	disk := vfs.NewMem()
	// Another history, as a restored backup leaves it: epoch 2 begins earlier.
	storeOf(t, disk, batchesOf(run{1, 2}, run{2, 2}), 3)
	s, _ := storeOf(t, disk, batchesOf(run{1, 9}), 9, 5)
	want := []SnapshotID{{5, 1}, {9, 1}, {3, 2}}
	for _, s := range []*Snapshots{s, openSnapshots(t, disk)} {
		var got []SnapshotID
		for _, ref := range s.List() {
			got = append(got, ref.SnapshotID)
			if known, ok := s.Get(ref.SnapshotID); !ok || known != ref {
				t.Errorf("Get gives %+v", known)
			}
		}
		if !slices.Equal(got, want) || s.Earliest().SnapshotID != want[0] || s.Latest().SnapshotID != want[2] {
			t.Errorf("%v from %s to %s", got, s.Earliest(), s.Latest())
		}
	}
	if !slices.Equal(s.List(), openSnapshots(t, disk).List()) {
		t.Error("reopened they have other sizes or digests")
	}
	if h, err := s.Header(SnapshotID{3, 2}); err != nil || h.LastTerm != termOf(2) || h.Time != 1002 {
		t.Errorf("header %+v, %v", h, err)
	}
	if _, err := s.Header(SnapshotID{4, 2}); !errors.Is(err, ErrSnapshotNotFound) {
		t.Error(err)
	}
	if _, err := s.Load(SnapshotID{4, 2}); !errors.Is(err, ErrSnapshotNotFound) {
		t.Error(err)
	}
}

func TestNoSnapshots(t *testing.T) {
	s := openSnapshots(t, vfs.NewMem())
	if s.Latest() != nil || s.Earliest() != nil || len(s.List()) > 0 {
		t.Error("there is one")
	}
}

func TestScenario31LeftoversAreSweptAndTheSnapshotStays(t *testing.T) {
	disk := vfs.NewMem()
	_, refs := storeOf(t, disk, batchesOf(run{1, 9}), 5)
	base := strings.TrimSuffix(snapshotFile(SnapshotsDir, refs[0].SnapshotID), snapshotSuffix)
	other := SnapshotsDir + "/00000000000000000007-0000000001"
	kept := []string{"README", "00000000000000000007.checkpoint", "00000000000000000007-0000000001.checkpoint.corrupt", "part"}
	for _, name := range []string{
		base + ".checkpoint.part", base + ".pieces.tmp", other + ".checkpoint.part", other + ".pieces",
		SnapshotsDir + "/00000000000000000009-0000000002.checkpoint.part",
		SnapshotsDir + "/" + kept[0], SnapshotsDir + "/" + kept[1], SnapshotsDir + "/" + kept[2], SnapshotsDir + "/" + kept[3],
	} {
		putFile(t, disk, name, []byte("left over"))
	}
	if err := disk.Chmod(base+".checkpoint.part", 0o444); err != nil {
		t.Fatal(err)
	}
	s := openSnapshots(t, disk)
	if got := s.List(); !slices.Equal(got, refs) {
		t.Errorf("it lists %v", got)
	}
	want := append(slices.Clone(kept), "00000000000000000005-0000000001.checkpoint", "00000000000000000005-0000000001.pieces")
	slices.Sort(want)
	wantFiles(t, disk, SnapshotsDir, want...)
}

func TestPieceListThatIsMissingOrWrongIsMadeAgain(t *testing.T) {
	batches := batchesOf(run{1, 9})
	another := vfs.NewMem()
	_, others := storeOf(t, another, batches, 7)
	foreign := readFile(t, another, sidecarFile(SnapshotsDir, others[0].SnapshotID))
	for name, damage := range map[string]func(fs vfs.FS, list string) error{
		"missing": func(fs vfs.FS, list string) error { return fs.Remove(list) },
		"empty":   func(fs vfs.FS, list string) error { return vfs.WriteFile(fs, list, nil) },
		"huge":    func(fs vfs.FS, list string) error { return vfs.WriteFile(fs, list, make([]byte, 1<<20)) },
		"foreign": func(fs vfs.FS, list string) error { return vfs.WriteFile(fs, list, foreign) },
		// Of the right size, so only Load can tell.
		"flipped": func(fs vfs.FS, list string) error {
			data, err := vfs.ReadFile(fs, list, 1<<20)
			if err == nil {
				data[len(data)-1] ^= 1
				err = vfs.WriteFile(fs, list, data)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewMem()
			_, refs := storeOf(t, disk, batches, 5)
			list := sidecarFile(SnapshotsDir, refs[0].SnapshotID)
			want := readFile(t, disk, list)
			if err := damage(disk, list); err != nil {
				t.Fatal(err)
			}
			s := openSnapshots(t, disk)
			im, err := s.Load(refs[0].SnapshotID)
			if err != nil {
				t.Fatal(err)
			}
			wantImage(t, im, imageAfter(t, batches[:5]...))
			if *s.Latest() != refs[0] || !bytes.Equal(readFile(t, disk, list), want) {
				t.Errorf("it is known as %+v", s.Latest())
			}
		})
	}
}

func TestLoadRefusesASnapshotUnderAnotherName(t *testing.T) {
	disk := vfs.NewMem()
	_, refs := storeOf(t, disk, batchesOf(run{1, 9}), 5)
	other := SnapshotID{EndOffset: 6, Epoch: 1}
	if err := disk.Rename(snapshotFile(SnapshotsDir, refs[0].SnapshotID), snapshotFile(SnapshotsDir, other)); err != nil {
		t.Fatal(err)
	}
	var damage *CorruptionError
	if _, err := openSnapshots(t, disk).Load(other); !errors.As(err, &damage) {
		t.Errorf("got %v", err)
	}
}

func TestSetAsideKeepsTheBytes(t *testing.T) {
	disk := vfs.NewMem()
	s, refs := storeOf(t, disk, batchesOf(run{1, 9}), 5, 7)
	data := readFile(t, disk, snapshotFile(SnapshotsDir, refs[1].SnapshotID))
	for range 2 { // the second time there is one of that name already
		if err := s.SetAside(refs[1].SnapshotID); err != nil {
			t.Fatal(err)
		}
		if got := s.List(); !slices.Equal(got, refs[:1]) || !slices.Equal(openSnapshots(t, disk).List(), refs[:1]) {
			t.Errorf("it lists %v", got)
		}
		base := "00000000000000000007-0000000001"
		if got := readFile(t, disk, SnapshotsDir+"/"+base+".checkpoint.corrupt"); !bytes.Equal(got, data) {
			t.Error("other bytes")
		}
		wantFiles(t, disk, SnapshotsDir, "00000000000000000005-0000000001.checkpoint", "00000000000000000005-0000000001.pieces",
			base+".checkpoint.corrupt", base+".pieces.corrupt")
		s, _ = storeOf(t, disk, batchesOf(run{1, 9}), 7)
	}
	if err := s.SetAside(SnapshotID{1, 1}); !errors.Is(err, ErrSnapshotNotFound) {
		t.Error(err)
	}
}

func TestScenario35TwoNewestAreNeverRemoved(t *testing.T) {
	disk := vfs.NewMem()
	s, refs := storeOf(t, disk, batchesOf(run{1, 9}), 3, 5, 7)
	for _, ref := range refs[1:] {
		if err := s.Remove(ref.SnapshotID, 0); !errors.Is(err, ErrSnapshotKept) {
			t.Errorf("%s: %v", ref, err)
		}
	}
	if err := s.Remove(refs[0].SnapshotID, 0); err != nil {
		t.Fatal(err)
	}
	if got := s.List(); !slices.Equal(got, refs[1:]) {
		t.Errorf("it lists %v", got)
	}
	gone := "00000000000000000003-0000000001.checkpoint.deleted"
	if names := fileNames(t, disk, SnapshotsDir); len(names) != 5 || !slices.Contains(names, gone) {
		t.Fatalf("there are %q", names)
	}
	if err := s.Remove(refs[0].SnapshotID, 0); !errors.Is(err, ErrSnapshotNotFound) {
		t.Error(err)
	}
	// A restart knows of it, too.
	s = openSnapshots(t, disk)
	if err := s.Sweep(0); err != nil {
		t.Fatal(err)
	}
	if names := fileNames(t, disk, SnapshotsDir); len(names) != 4 || slices.Contains(names, gone) {
		t.Fatalf("there are %q", names)
	}
}

func TestScenario36PowerCutWhileSnapshotsAreRemovedAndSetAside(t *testing.T) {
	disk := vfs.NewMem()
	batches := batchesOf(run{1, 9})
	_, refs := storeOf(t, disk, batches, 3, 5, 7)
	for crash := range vfs.CrashPoints(disk, func(fs vfs.FS) error {
		s, err := OpenSnapshots(fs, "", zerolog.Nop())
		if err != nil {
			return err
		}
		return errors.Join(s.Remove(refs[0].SnapshotID, 0), s.SetAside(refs[2].SnapshotID), s.Sweep(unlinkAfter))
	}) {
		t.Run(crash.String(), func(t *testing.T) {
			s := openSnapshots(t, crash.Disk)
			for _, ref := range s.List() {
				if !slices.Contains(refs, ref) {
					t.Errorf("there is %+v", ref)
				}
				if im, err := s.Load(ref.SnapshotID); err != nil {
					t.Error(err)
				} else {
					wantImage(t, im, imageAfter(t, batches[:ref.EndOffset]...))
				}
			}
			if _, ok := s.Get(refs[1].SnapshotID); !ok {
				t.Error("the one that nobody touched is gone")
			}
			if crash.Done && len(s.List()) != 1 {
				t.Errorf("it lists %v", s.List())
			}
			aside := snapshotFile(SnapshotsDir, refs[2].SnapshotID) + corruptSuffix
			_, listed := s.Get(refs[2].SnapshotID)
			if _, err := crash.Disk.Stat(aside); err != nil && !listed {
				t.Error("what was set aside is gone")
			}
		})
	}
}

func TestSnapshotWhoseRenameFailsIsNotKnown(t *testing.T) {
	for _, kind := range []vfs.Kind{vfs.OpRename, vfs.OpSyncDir} {
		disk := vfs.NewMem()
		s, refs := storeOf(t, disk, batchesOf(run{1, 9}), 3, 5, 7)
		s.fs = vfs.WithFaults(disk, func(op vfs.Op) error {
			if op.Kind == kind {
				return syscall.EIO
			}
			return nil
		})
		if err := s.Remove(refs[0].SnapshotID, 0); !errors.Is(err, syscall.EIO) {
			t.Errorf("%s: %v", kind, err)
		}
		if err := s.SetAside(refs[2].SnapshotID); !errors.Is(err, syscall.EIO) {
			t.Errorf("%s: %v", kind, err)
		}
		if got := s.List(); !slices.Equal(got, refs[1:2]) {
			t.Errorf("%s: it lists %v", kind, got)
		}
	}
}

// A process can be killed between the rename and the fsync of the directory.
func TestSnapshotThatIsFoundIsDurable(t *testing.T) {
	disk := vfs.NewMem()
	_, refs := storeOf(t, disk, batchesOf(run{1, 9}), 5)
	name := snapshotFile(SnapshotsDir, refs[0].SnapshotID)
	if err := errors.Join(disk.Rename(name, name+partSuffix), disk.SyncDir(SnapshotsDir), disk.Rename(name+partSuffix, name)); err != nil {
		t.Fatal(err)
	}
	if got := openSnapshots(t, disk.CrashClone(nil)).List(); len(got) > 0 {
		t.Fatalf("the rename is durable without the fsync: %v", got)
	}
	openSnapshots(t, disk)
	if got := openSnapshots(t, disk.CrashClone(nil)).List(); !slices.Equal(got, refs) {
		t.Errorf("it was found, and after a power cut there is %v", got)
	}
}
