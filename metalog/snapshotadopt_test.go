package metalog

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path"
	"slices"
	"syscall"
	"testing"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

// refTo describes bytes as the snapshot of an id.
func refTo(t testing.TB, id SnapshotID, data []byte) SnapshotRef {
	t.Helper()
	_, digest, err := segment.HashFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	return SnapshotRef{SnapshotID: id, SizeBytes: int64(len(data)), Digest: digest}
}

// putDownload leaves a finished download.
func putDownload(s *Snapshots, ref SnapshotRef, data []byte) (vfs.File, error) {
	disk, part := s.PartPath(ref)
	f, err := disk.Create(part)
	if err == nil {
		_, err = f.WriteAt(data, 0)
	}
	return f, errors.Join(err, vfs.WriteFile(disk, part+journalSuffix, []byte("journal")), f.Sync())
}

func adopt(t testing.TB, s *Snapshots, ref SnapshotRef, data []byte, cluster uuid.UUID) (*meta.Image, error) {
	t.Helper()
	f, err := putDownload(s, ref, data)
	if err != nil {
		t.Fatal(err)
	}
	im, err := s.Adopt(f, ref, cluster)
	if f.Close() == nil {
		t.Error("the file was left open")
	}
	return im, err
}

func TestAdoptedSnapshotIsLikeOneThatWasWritten(t *testing.T) {
	want := bigImage(t)
	data := snapshotBytes(t, want)
	ref := refTo(t, headerOf(want).ID(), data)
	disk := vfs.NewMem()
	s := openSnapshots(t, disk)
	im, err := adopt(t, s, ref, data, testCluster)
	if err != nil {
		t.Fatal(err)
	}
	wantImage(t, im, want)
	for _, s := range []*Snapshots{s, openSnapshots(t, disk.CrashClone(nil))} {
		if got := s.List(); !slices.Equal(got, []SnapshotRef{ref}) {
			t.Errorf("it lists %v", got)
		}
		if im, err = s.Load(ref.SnapshotID); err != nil {
			t.Fatal(err)
		}
		wantImage(t, im, want)
	}
	name := snapshotFile(SnapshotsDir, ref.SnapshotID)
	wantFiles(t, disk, SnapshotsDir, path.Base(name), path.Base(sidecarFile("", ref.SnapshotID)))
	if info, err := disk.Stat(name); err != nil || info.Mode().Perm() != 0o444 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	// Whoever writes it here, too, finds it there.
	if got, err := s.Write(t.Context(), want); err != nil || got != ref {
		t.Errorf("written again it is %v, %v", got, err)
	}
}

func TestScenario27EmptyStateIsAdopted(t *testing.T) {
	data := emptySnapshot()
	im, err := adopt(t, openSnapshots(t, vfs.NewMem()), refTo(t, SnapshotID{}, data), data, testCluster)
	if err == nil {
		t.Error("it is of no cluster")
	}
	s := openSnapshots(t, vfs.NewMem())
	if im, err = adopt(t, s, refTo(t, SnapshotID{}, data), data, uuid.Nil); err != nil {
		t.Fatal(err)
	}
	wantImage(t, im, meta.Empty())
	if im, err = s.Load(SnapshotID{}); err != nil {
		t.Fatal(err)
	}
	wantImage(t, im, meta.Empty())
}

func TestNothingIsAdoptedThatIsNotTheSnapshot(t *testing.T) {
	im := imageAfter(t, batchesOf(run{1, 5})...)
	data, id := snapshotBytes(t, im), headerOf(im).ID()
	good := refTo(t, id, data)
	flipped := slices.Clone(data)
	flipped[len(flipped)/2] ^= 1
	for name, c := range map[string]struct {
		ref     SnapshotRef
		data    []byte
		cluster uuid.UUID
	}{
		"a flipped bit":                          {good, flipped, uuid.Nil},
		"a flipped bit that the digest is of":    {refTo(t, id, flipped), flipped, uuid.Nil},
		"cut":                                    {good, data[:len(data)-1], uuid.Nil},
		"cut after a frame, as the digest says":  {refTo(t, id, data[:frameEnds(t, data)[1]]), data[:frameEnds(t, data)[1]], uuid.Nil},
		"longer":                                 {good, append(slices.Clone(data), 0), uuid.Nil},
		"longer, as the digest says":             {refTo(t, id, append(slices.Clone(data), 0)), append(slices.Clone(data), 0), uuid.Nil},
		"empty":                                  {good, nil, uuid.Nil},
		"another digest":                         {SnapshotRef{id, good.SizeBytes, segment.Digest{1}}, data, uuid.Nil},
		"another id":                             {refTo(t, SnapshotID{EndOffset: 6, Epoch: 1}, data), data, uuid.Nil},
		"another epoch":                          {refTo(t, SnapshotID{EndOffset: 5, Epoch: 2}, data), data, uuid.Nil},
		"another cluster":                        {good, data, termOf(77)},
		"no snapshot at all, as the digest says": {refTo(t, id, []byte("hello")), []byte("hello"), uuid.Nil},
		"the size of another, as the digest says": {SnapshotRef{id, 5, good.Digest}, []byte("hello"), uuid.Nil},
	} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewMem()
			s, _ := storeOf(t, disk, batchesOf(run{1, 9}), 3)
			before := s.List()
			if _, err := adopt(t, s, c.ref, c.data, c.cluster); !errors.Is(err, ErrNotTheSnapshot) {
				t.Fatalf("got %v", err)
			}
			if !slices.Equal(s.List(), before) || !slices.Equal(openSnapshots(t, disk.CrashClone(nil)).List(), before) {
				t.Errorf("it lists %v", s.List())
			}
		})
	}
}

func TestAdoptingANewerFormatIsNotItsSourcesFault(t *testing.T) {
	data := snapshotBytes(t, imageAfter(t, batchesOf(run{1, 5})...))
	payload, rest, err := NextFrame(data)
	if err != nil {
		t.Fatal(err)
	}
	newer := slices.Clone(payload)
	newer[8] = 2
	newer = append(AppendFrame(nil, newer), rest...)
	s := openSnapshots(t, vfs.NewMem())
	_, err = adopt(t, s, refTo(t, SnapshotID{EndOffset: 5, Epoch: 1}, newer), newer, uuid.Nil)
	if !errors.As(err, new(*FormatError)) || errors.Is(err, ErrNotTheSnapshot) || len(s.List()) > 0 {
		t.Errorf("got %v", err)
	}
}

func TestAdoptingAnIdThatIsHere(t *testing.T) {
	im := imageAfter(t, batchesOf(run{1, 5})...)
	data, id := snapshotBytes(t, im), headerOf(im).ID()
	ref := refTo(t, id, data)
	name, list := snapshotFile(SnapshotsDir, id), sidecarFile(SnapshotsDir, id)
	flipped := slices.Clone(data)
	flipped[len(flipped)/2] ^= 1

	// Somebody else's history: the same id, another state.
	batches := batchesOf(run{1, 5})
	batches[4].Upserts = append(batches[4].Upserts, job(99, 10))
	other := imageAfter(t, batches...)

	for name, c := range map[string]struct {
		prepare func(t *testing.T, disk vfs.FS)
		refused bool
		aside   bool
	}{
		"good": {prepare: func(t *testing.T, disk vfs.FS) { writeSnapshot(t, disk, im) }},
		"rotten since": {prepare: func(t *testing.T, disk vfs.FS) {
			writeSnapshot(t, disk, im)
			putFile(t, disk, name, flipped)
		}},
		"rotten when it was opened": {aside: true, prepare: func(t *testing.T, disk vfs.FS) { putFile(t, disk, name, flipped) }},
		"good with the piece list of another": {prepare: func(t *testing.T, disk vfs.FS) {
			putFile(t, disk, name, data)
			pieces, _, err := segment.HashFile(bytes.NewReader(flipped), int64(len(flipped)))
			if err != nil {
				t.Fatal(err)
			}
			putFile(t, disk, list, must(pieces.MarshalBinary()))
		}},
		"another history": {refused: true, prepare: func(t *testing.T, disk vfs.FS) { writeSnapshot(t, disk, other) }},
	} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewMem()
			openSnapshots(t, disk)
			c.prepare(t, disk)
			before := readFile(t, disk, snapshotFile(SnapshotsDir, id))
			s := openSnapshots(t, disk)
			got, err := adopt(t, s, ref, data, uuid.Nil)
			if c.refused {
				if err == nil || errors.Is(err, ErrNotTheSnapshot) || !bytes.Equal(readFile(t, disk, snapshotFile(SnapshotsDir, id)), before) {
					t.Fatalf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			wantImage(t, got, im)
			for _, s := range []*Snapshots{s, openSnapshots(t, disk.CrashClone(nil))} {
				if !slices.Equal(s.List(), []SnapshotRef{ref}) {
					t.Errorf("it lists %v", s.List())
				}
				if _, err := s.Load(id); err != nil {
					t.Error(err)
				}
			}
			_, err = disk.Stat(snapshotFile(SnapshotsDir, id) + corruptSuffix)
			if c.aside != (err == nil) {
				t.Errorf("set aside: %v", err)
			}
		})
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Scenario 36, of a download: it is whole under its name, or it can be continued.
func TestPowerCutDuringAdoptLosesNoDownload(t *testing.T) {
	im := imageAfter(t, batchesOf(run{1, 5})...)
	data := snapshotBytes(t, im)
	ref := refTo(t, headerOf(im).ID(), data)
	disk := vfs.NewMem()
	if f, err := putDownload(openSnapshots(t, disk), ref, data); err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	finish := func(fs vfs.FS) error {
		s, err := OpenSnapshots(fs, "", zerolog.Nop())
		if err != nil {
			return err
		}
		if _, ok := s.Get(ref.SnapshotID); ok {
			return nil
		}
		_, part := s.PartPath(ref)
		f, err := fs.OpenFile(part, os.O_RDONLY, 0)
		if err != nil {
			return err
		}
		_, err = s.Adopt(f, ref, testCluster)
		return err
	}
	for crash := range vfs.CrashPoints(disk, finish) {
		t.Run(crash.String(), func(t *testing.T) {
			if crash.Done && openSnapshots(t, crash.Disk.Clone()).Latest() == nil {
				t.Error("it was adopted, and is not there")
			}
			if err := finish(crash.Disk); err != nil {
				t.Fatal(err)
			}
			s := openSnapshots(t, crash.Disk.CrashClone(nil))
			got, err := s.Load(ref.SnapshotID)
			if err != nil {
				t.Fatal(err)
			}
			wantImage(t, got, im)
			wantFiles(t, crash.Disk, SnapshotsDir, path.Base(snapshotFile("", ref.SnapshotID)), path.Base(sidecarFile("", ref.SnapshotID)))
		})
	}
}

// Scenario 37, of a download: the disk's error is told, and nothing is half known.
func TestDiskThatFailsDuringAdopt(t *testing.T) {
	data := snapshotBytes(t, imageAfter(t, batchesOf(run{1, 5})...))
	ref := refTo(t, SnapshotID{EndOffset: 5, Epoch: 1}, data)
	for _, kind := range []vfs.Kind{vfs.OpRead, vfs.OpWrite, vfs.OpSync, vfs.OpRename, vfs.OpChmod, vfs.OpClose} {
		t.Run(string(kind), func(t *testing.T) {
			disk, failing := vfs.NewMem(), false
			s := openSnapshots(t, vfs.WithFaults(disk, func(op vfs.Op) error {
				if failing && op.Kind == kind {
					return syscall.EIO
				}
				return nil
			}))
			f, err := putDownload(s, ref, data)
			if err != nil {
				t.Fatal(err)
			}
			failing = true
			if _, err := s.Adopt(f, ref, uuid.Nil); !errors.Is(err, syscall.EIO) || errors.Is(err, ErrNotTheSnapshot) {
				t.Fatalf("got %v", err)
			}
			if len(s.List()) > 0 {
				t.Error("it lists the snapshot")
			}
		})
	}
}

func TestSnapshotsAreSentWithTheirPieceLists(t *testing.T) {
	disk := vfs.NewMem()
	s, refs := storeOf(t, disk, batchesOf(run{1, 9}), 5, 7)
	id, list := refs[0].SnapshotID, sidecarFile(SnapshotsDir, refs[0].SnapshotID)
	want := readFile(t, disk, list)
	for name, damage := range map[string]func() error{
		"as it is": func() error { return nil },
		"missing":  func() error { return disk.Remove(list) },
		"damaged":  func() error { return vfs.WriteFile(disk, list, want[1:]) },
		"another's": func() error {
			return vfs.WriteFile(disk, list, readFile(t, disk, sidecarFile(SnapshotsDir, refs[1].SnapshotID)))
		},
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		p, err := s.Pieces(id)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := p.Check(refs[0].Digest); err != nil || !bytes.Equal(readFile(t, disk, list), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	f, err := s.OpenFile(id)
	if err != nil {
		t.Fatal(err)
	}
	data := must(io.ReadAll(f))
	if err := f.Close(); err != nil || refTo(t, id, data) != refs[0] {
		t.Errorf("%d bytes, %v", len(data), err)
	}

	data[len(data)/2] ^= 1
	putFile(t, disk, snapshotFile(SnapshotsDir, id), data)
	if err := disk.Remove(list); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Pieces(id); !errors.As(err, new(*CorruptionError)) {
		t.Errorf("of damaged bytes: %v", err)
	}
	if err := disk.Remove(snapshotFile(SnapshotsDir, id)); err != nil {
		t.Fatal(err)
	}
	for _, id := range []SnapshotID{id, {EndOffset: 1, Epoch: 1}} {
		_, err1 := s.OpenFile(id)
		_, err2 := s.Pieces(id)
		if !errors.Is(err1, ErrSnapshotNotFound) || !errors.Is(err2, ErrSnapshotNotFound) {
			t.Errorf("%s is gone: %v, %v", id, err1, err2)
		}
	}
}
