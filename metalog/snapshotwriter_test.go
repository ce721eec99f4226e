package metalog

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

func TestWriteSnapshotPublishesTheFileReadOnlyWithItsPieceList(t *testing.T) {
	disk, im := vfs.NewMem(), bigImage(t)
	ref := writeSnapshot(t, disk, im)
	if ref.SnapshotID != (SnapshotID{EndOffset: 3, Epoch: 2}) {
		t.Fatalf("snapshot %s", ref)
	}
	wantFiles(t, disk, SnapshotsDir, "00000000000000000003-0000000002.checkpoint", "00000000000000000003-0000000002.pieces")
	info, err := disk.Stat(snapshotFile(SnapshotsDir, ref.SnapshotID))
	if err != nil || info.Mode() != 0o444 || info.Size() != ref.SizeBytes {
		t.Errorf("mode %v, %d bytes, %v; want %d bytes", info.Mode(), info.Size(), err, ref.SizeBytes)
	}
	data := readFile(t, disk, snapshotFile(SnapshotsDir, ref.SnapshotID))
	list, digest, err := segment.HashFile(bytes.NewReader(data), int64(len(data)))
	if err != nil || digest != ref.Digest {
		t.Fatalf("digest %s, %v; want %s", ref.Digest, err, digest)
	}
	sidecar, err := list.MarshalBinary()
	if err != nil || !bytes.Equal(sidecar, readFile(t, disk, sidecarFile(SnapshotsDir, ref.SnapshotID))) {
		t.Errorf("the piece list is another (%v)", err)
	}
}

func TestFramesOfASnapshotAreFilled(t *testing.T) {
	data := snapshotBytes(t, bigImage(t))
	ends := frameEnds(t, data)
	for i := 1; i < len(ends)-2; i++ { // not the last one of records
		payload, rest, err := NextFrame(data[ends[i-1]:])
		if err != nil {
			t.Fatal(err)
		}
		next, _, err := NextFrame(rest)
		if err != nil {
			t.Fatal(err)
		}
		_, after, err := takeRecord(next[1:])
		if err != nil {
			t.Fatal(err)
		}
		if first := len(next) - 1 - len(after); len(payload)+first <= MaxFramePayload {
			t.Errorf("frame %d has %d bytes, and room for the next record of %d", i, len(payload), first)
		}
	}
}

// The bytes are the same on every machine, however the image came about.
func TestSnapshotBytesDependOnTheStateAlone(t *testing.T) {
	batches := batchesOf(run{1, 4})
	replaced := job(2, 10)
	replaced.State = meta.JobDone
	batches[3].Upserts = append(batches[3].Upserts, replaced)
	batches[3].Removals = append(batches[3].Removals, job(1, 0).Key())
	im := imageAfter(t, batches...)
	restored, _, err := ReadSnapshot("x", bytes.NewReader(snapshotBytes(t, im)))
	if err != nil {
		t.Fatal(err)
	}
	half, _, err := ReadSnapshot("x", bytes.NewReader(snapshotBytes(t, imageAfter(t, batches[:2]...))))
	for _, b := range batches[2:] {
		if err == nil {
			half, err = half.Apply(b)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, other := range map[string]*meta.Image{"restored": restored, "snapshot and tail": half} {
		if !bytes.Equal(snapshotBytes(t, im), snapshotBytes(t, other)) {
			t.Errorf("%s: other bytes", name)
		}
	}
}

// An append to the log waits for the disk, which must not have all of a snapshot to take
// in at once.
func TestSnapshotIsSyncedInSteps(t *testing.T) {
	unsynced, most, syncs := 0, 0, 0
	disk := vfs.WithFaults(vfs.NewMem(), func(op vfs.Op) error {
		switch {
		case !strings.HasSuffix(op.Name, snapshotSuffix+partSuffix):
		case op.Kind == vfs.OpWrite:
			unsynced += op.Size
			most = max(most, unsynced)
		case op.Kind == vfs.OpSync:
			unsynced, syncs = 0, syncs+1
		}
		return nil
	})
	ref := writeSnapshot(t, disk, manyFrames(t))
	if ref.SizeBytes < 3*syncEvery {
		t.Fatalf("the snapshot has only %d bytes", ref.SizeBytes)
	}
	if most > syncEvery+MaxFramePayload+frameOverhead {
		t.Errorf("%d bytes were written between two of %d fsyncs", most, syncs)
	}
	if syncs > int(ref.SizeBytes/syncEvery)+1 {
		t.Errorf("%d fsyncs for %d bytes", syncs, ref.SizeBytes)
	}
}

// A failed fsync in the middle is as fatal as the last one.
func TestSnapshotWhoseStepIsNotSyncedIsNone(t *testing.T) {
	mem, first := vfs.NewMem(), true
	disk := vfs.WithFaults(mem, func(op vfs.Op) error {
		if op.Kind == vfs.OpSync && first {
			first = false
			return syscall.EIO
		}
		return nil
	})
	if _, err := WriteSnapshot(context.Background(), disk, SnapshotsDir, manyFrames(t)); !vfs.IsSyncError(err) {
		t.Errorf("got %v", err)
	}
	wantFiles(t, mem, SnapshotsDir)
}

func TestScenario28ExistingSnapshotIsNotWrittenAgain(t *testing.T) {
	disk, im := vfs.NewMem(), imageAfter(t, batchesOf(run{1, 2})...)
	ref := writeSnapshot(t, disk, im)
	readOnly := vfs.WithFaults(disk, func(op vfs.Op) error {
		if op.Kind.Mutates() && op.Kind != vfs.OpMkdirAll {
			return syscall.EROFS
		}
		return nil
	})
	if again := writeSnapshot(t, readOnly, im); again != ref {
		t.Errorf("%+v, then %+v", ref, again)
	}
	// What the first was killed before: the next must not say it is durable.
	noSync := vfs.WithFaults(disk, func(op vfs.Op) error {
		if op.Kind == vfs.OpSyncDir {
			return syscall.EIO
		}
		return nil
	})
	if _, err := WriteSnapshot(context.Background(), noSync, SnapshotsDir, im); !vfs.IsSyncError(err) {
		t.Errorf("got %v", err)
	}
}

func TestWriteSnapshotRefusesWhatCouldNotBeLoaded(t *testing.T) {
	with := func(at meta.Position, records ...meta.Record) *meta.Image {
		im, err := meta.Restore(at, func(yield func(meta.Record) bool) {
			for _, r := range records {
				if !yield(r) {
					return
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return im
	}
	leader := &meta.Leader{Epoch: 1, Term: termOf(1)}
	far := &meta.Leader{Epoch: 1e10, Term: termOf(1)}
	for name, im := range map[string]*meta.Image{
		"no batch":                     meta.Empty(),
		"no leader":                    with(meta.Position{Next: 2, Epoch: 1}),
		"the leader of another epoch":  with(meta.Position{Next: 2, Epoch: 2}, leader),
		"an epoch of eleven digits":    with(meta.Position{Next: 2, Epoch: 1e10}, far),
		"a leader before any batch":    with(meta.Position{}, leader),
		"a position without its epoch": with(meta.Position{Next: 2}, leader),
	} {
		disk := vfs.NewMem()
		if ref, err := WriteSnapshot(context.Background(), disk, SnapshotsDir, im); err == nil {
			t.Errorf("%s: written as %s", name, ref)
		}
		wantFiles(t, disk, SnapshotsDir)
	}
}

func TestScenario29ClosedUnfinishedLeavesNothing(t *testing.T) {
	disk := vfs.NewMem()
	im := bigImage(t)
	if err := disk.MkdirAll(SnapshotsDir, 0o755); err != nil {
		t.Fatal(err)
	}
	w, err := createSnapshot(disk, SnapshotsDir, headerOf(im))
	if err != nil {
		t.Fatal(err)
	}
	for r := range im.Records() {
		if err := w.append(r); err != nil {
			t.Fatal(err)
		}
	}
	wantFiles(t, disk, SnapshotsDir, "00000000000000000003-0000000002.checkpoint.part")
	for range 2 {
		if err := w.close(); err != nil {
			t.Fatal(err)
		}
		wantFiles(t, disk, SnapshotsDir)
	}
	if _, err := w.freeze(); !errors.Is(err, errFrozen) {
		t.Errorf("frozen after close: %v", err)
	}
}

func TestScenario29CancelledWriteLeavesNothing(t *testing.T) {
	disk := vfs.NewMem()
	ctx, cancel := context.WithCancel(context.Background())
	slow := vfs.WithFaults(disk, func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite && op.Size > MaxFramePayload/2 {
			cancel()
		}
		return nil
	})
	if _, err := WriteSnapshot(ctx, slow, SnapshotsDir, bigImage(t)); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	wantFiles(t, disk, SnapshotsDir)
}

func TestScenario30AppendAfterFreezeIsAnError(t *testing.T) {
	disk := vfs.NewMem()
	im := imageAfter(t, batchesOf(run{1, 2})...)
	if err := disk.MkdirAll(SnapshotsDir, 0o755); err != nil {
		t.Fatal(err)
	}
	w, err := createSnapshot(disk, SnapshotsDir, headerOf(im))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.append(job(1, 1)); err != nil {
		t.Fatal(err)
	}
	if err := w.append(job(0, 1)); err == nil {
		t.Error("a record out of order was taken")
	}
	if _, err := w.freeze(); err != nil {
		t.Fatal(err)
	}
	before := readFile(t, disk, snapshotFile(SnapshotsDir, w.id))
	if err := w.append(job(2, 1)); !errors.Is(err, errFrozen) {
		t.Errorf("append: %v", err)
	}
	if err := w.close(); err != nil {
		t.Error(err)
	}
	if !bytes.Equal(readFile(t, disk, snapshotFile(SnapshotsDir, w.id)), before) {
		t.Error("the file has changed")
	}
}

func TestScenario37FullDiskLeavesNoSnapshot(t *testing.T) {
	im := bigImage(t)
	size := writeSnapshot(t, vfs.NewMem(), im).SizeBytes
	for _, room := range []int64{0, 10, 100, 2 << 20, size - 1, size, size + 10} {
		disk := vfs.NewMem()
		s := openSnapshots(t, disk)
		full := vfs.WithSpace(disk, room)
		s.fs = full
		if ref, err := s.Write(context.Background(), im); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("with room for %d of %d bytes: %s, %v", room, size, ref, err)
		}
		wantFiles(t, disk, SnapshotsDir)
		if s.Latest() != nil {
			t.Errorf("with room for %d bytes, %s is known", room, s.Latest())
		}
		full.Add(2*size + 100)
		if _, err := s.Write(context.Background(), im); err != nil {
			t.Errorf("with room again: %v", err)
		}
	}
}

func TestScenario37FailedStepLeavesNothingHalfKnown(t *testing.T) {
	im := imageAfter(t, batchesOf(run{1, 2})...)
	for _, step := range []struct {
		kind vfs.Kind
		of   string // what the file's name holds
		sync bool
	}{
		{vfs.OpCreate, partSuffix, false},
		{vfs.OpWrite, partSuffix, false},
		{vfs.OpSync, partSuffix, true},
		{vfs.OpChmod, partSuffix, false},
		{vfs.OpRename, partSuffix, false},
		{vfs.OpWrite, sidecarSuffix, false},
		{vfs.OpSync, sidecarSuffix, true},
		{vfs.OpRename, sidecarSuffix, false},
		{vfs.OpSyncDir, SnapshotsDir, true},
	} {
		t.Run(string(step.kind)+" "+step.of, func(t *testing.T) {
			disk := vfs.NewMem()
			s := openSnapshots(t, disk)
			s.fs = vfs.WithFaults(disk, func(op vfs.Op) error {
				if op.Kind == step.kind && strings.Contains(op.Name, step.of) {
					return syscall.EIO
				}
				return nil
			})
			_, err := s.Write(context.Background(), im)
			if !errors.Is(err, syscall.EIO) || vfs.IsSyncError(err) != step.sync {
				t.Fatalf("got %v", err)
			}
			if s.Latest() != nil {
				t.Errorf("%s is known", s.Latest())
			}
			if _, err := disk.Stat(snapshotFile(SnapshotsDir, headerOf(im).ID())); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("it has its name: %v", err)
			}
			if !step.sync && slices.ContainsFunc(fileNames(t, disk, SnapshotsDir), func(n string) bool { return strings.HasSuffix(n, partSuffix) }) {
				t.Errorf("left are %q", fileNames(t, disk, SnapshotsDir))
			}
			// The next start sweeps what is left, and can write it.
			s = openSnapshots(t, disk)
			wantFiles(t, disk, SnapshotsDir)
			if _, err := s.Write(context.Background(), im); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestScenario36PowerCutWhileASnapshotIsWritten(t *testing.T) {
	im := bigImage(t)
	want := writeSnapshot(t, vfs.NewMem(), im)
	var got SnapshotRef
	for crash := range vfs.CrashPoints(vfs.NewMem(), func(fs vfs.FS) (err error) {
		got, err = WriteSnapshot(context.Background(), fs, SnapshotsDir, im)
		return err
	}) {
		t.Run(crash.String(), func(t *testing.T) {
			if crash.Done && got != want {
				t.Fatalf("wrote %+v", got)
			}
			s := openSnapshots(t, crash.Disk)
			switch latest := s.Latest(); {
			case latest == nil && crash.Done:
				t.Fatal("it is gone")
			case latest == nil:
				wantFiles(t, crash.Disk, SnapshotsDir)
			default:
				if *latest != want {
					t.Fatalf("found %+v", latest)
				}
				loaded, err := s.Load(latest.SnapshotID)
				if err != nil {
					t.Fatal(err)
				}
				wantImage(t, loaded, im)
			}
			if _, err := s.Write(context.Background(), im); err != nil {
				t.Fatal(err)
			}
			if latest := s.Latest(); *latest != want {
				t.Fatalf("written again it is %+v", latest)
			}
		})
	}
}

// One that was killed after the file was made read-only must not stop the next.
func TestReadOnlyPartOfAKilledProcessIsReplaced(t *testing.T) {
	disk, im := vfs.NewMem(), imageAfter(t, batchesOf(run{1, 2})...)
	part := snapshotFile(SnapshotsDir, headerOf(im).ID()) + partSuffix
	if err := disk.MkdirAll(SnapshotsDir, 0o755); err != nil {
		t.Fatal(err)
	}
	putFile(t, disk, part, []byte("left over"))
	if err := disk.Chmod(part, 0o444); err != nil {
		t.Fatal(err)
	}
	strict := vfs.WithFaults(disk, func(op vfs.Op) error { // Mem lets everybody write, as Linux does root
		if info, err := disk.Stat(op.Name); op.Kind == vfs.OpCreate && err == nil && info.Mode()&0o200 == 0 {
			return syscall.EACCES
		}
		return nil
	})
	writeSnapshot(t, strict, im)
}
