package metalog

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
)

// untouched is a file system that refuses whatever would change it, or lock it.
func untouched(t testing.TB, fsys vfs.FS) vfs.FS {
	return vfs.WithFaults(fsys, func(op vfs.Op) error {
		if op.Kind.Mutates() || op.Kind.Durable() || op.Kind == vfs.OpLock {
			t.Errorf("%s: reading changes something", op)
			return errors.New("refused")
		}
		return nil
	})
}

// readOffsets reads to the end of what is there.
func readOffsets(t testing.TB, r *LogReader) (offsets []int64) {
	t.Helper()
	for {
		b, err := r.Next()
		if errors.Is(err, io.EOF) {
			return offsets
		}
		if err != nil {
			t.Fatal(err)
		}
		offsets = append(offsets, b.Batch.Offset)
	}
}

func openReader(t testing.TB, fsys vfs.FS, from int64) *LogReader {
	t.Helper()
	r, err := OpenLogReader(untouched(t, fsys), "log", from)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestLogReaderReadsFromAnyOffset(t *testing.T) {
	batches := batchesOf(run{1, 3}, run{4, 3})
	for _, fileBytes := range []int64{0, onePerFile} {
		disk := vfs.NewMem()
		l := openLog(t, disk, fileBytes)
		if err := l.Reset(after(batches[1])); err != nil {
			t.Fatal(err)
		}
		appendAll(t, l, batches[2:]...)
		for from := int64(0); from < 9; from++ {
			r, err := OpenLogReader(untouched(t, disk), "log", from)
			if from < 2 || from > 6 {
				if out := (*OutOfRangeError)(nil); !errors.As(err, &out) || out.Start != 2 || out.End != 6 {
					t.Errorf("from %d: %v", from, err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if want := after(batches[from-1]); r.Position() != want {
				t.Errorf("from %d: at %+v, want %+v", from, r.Position(), want)
			}
			for offset := from; offset < 6; offset++ {
				b, err := r.Next()
				if err != nil || b.Batch.Offset != offset {
					t.Fatalf("from %d: %+v, %v; want batch %d", from, b, err, offset)
				}
				if frame := readFile(t, disk, b.File)[b.At:]; !strings.HasPrefix(string(frame), string(b.Frame)) {
					t.Errorf("batch %d does not lie at byte %d of %s", offset, b.At, b.File)
				}
			}
			if _, err := r.Next(); !errors.Is(err, io.EOF) {
				t.Errorf("from %d: at the end: %v", from, err)
			}
		}
		if start, end, err := LogBounds(untouched(t, disk), "log"); err != nil || start != 2 || end != 6 {
			t.Errorf("[%d, %d), %v", start, end, err)
		}
	}
}

func TestLogReaderOfNoLog(t *testing.T) {
	for name, prepare := range map[string]func(disk vfs.FS){
		"no directory":       func(vfs.FS) {},
		"an empty directory": func(disk vfs.FS) { _ = disk.MkdirAll("log", 0o755) },
		"an empty log":       func(disk vfs.FS) { openLog(t, disk, 0) },
	} {
		disk := vfs.NewMem()
		prepare(disk)
		if got := readOffsets(t, openReader(t, disk, 0)); got != nil {
			t.Errorf("%s: %v", name, got)
		}
		if _, err := OpenLogReader(disk, "log", 1); !errors.As(err, new(*OutOfRangeError)) {
			t.Errorf("%s: from 1: %v", name, err)
		}
		if start, end, err := LogBounds(disk, "log"); start != 0 || end != 0 || err != nil {
			t.Errorf("%s: [%d, %d), %v", name, start, end, err)
		}
	}
}

func TestLogReaderGoesOnWithWhatIsAppended(t *testing.T) {
	batches := batchesOf(run{1, 8})
	for _, fileBytes := range []int64{0, onePerFile} {
		disk := vfs.NewMem()
		r := openReader(t, disk, 0) // before there is a log
		l := openLog(t, disk, fileBytes)
		for i := range batches {
			if got := readOffsets(t, r); got != nil {
				t.Fatalf("before batch %d is appended: %v", i, got)
			}
			appendAll(t, l, batches[i])
			if got := readOffsets(t, r); !slices.Equal(got, []int64{int64(i)}) {
				t.Fatalf("after batch %d was appended: %v", i, got)
			}
		}
	}
}

// A process that writes while it is read shows a part of a frame, and then the rest.
func TestLogReaderWaitsForTheRestOfAFrame(t *testing.T) {
	disk := vfs.NewMem()
	l := openLog(t, disk, 0)
	batches := batchesOf(run{1, 3})
	appendAll(t, l, batches[:2]...)
	whole := readFile(t, disk, "log/00000000000000000000.log")
	frame := framesOf(t, batches[2])
	r := openReader(t, disk, 0)
	if got := readOffsets(t, r); len(got) != 2 {
		t.Fatalf("read %v", got)
	}
	if _, _, size := r.Torn(); size != 0 {
		t.Errorf("%d bytes are torn at the end of a whole log", size)
	}
	for cut := 1; cut < len(frame); cut++ {
		putFile(t, disk, "log/00000000000000000000.log", append(slices.Clone(whole), frame[:cut]...))
		if got := readOffsets(t, r); got != nil {
			t.Fatalf("read %v of %d bytes", got, cut)
		}
		if file, at, size := r.Torn(); file != "log/00000000000000000000.log" || at != int64(len(whole)) || size != int64(cut) {
			t.Errorf("torn: %s at %d, %d bytes; want %d at %d", file, at, size, cut, len(whole))
		}
	}
	putFile(t, disk, "log/00000000000000000000.log", append(slices.Clone(whole), frame...))
	if got := readOffsets(t, r); !slices.Equal(got, []int64{2}) {
		t.Errorf("read %v", got)
	}
}

func TestLogReaderNoticesThatTheLogIsNotTheSame(t *testing.T) {
	for name, change := range map[string]func(l *Log) error{
		"trimmed":  func(l *Log) error { return l.Trim(5) },
		"emptied":  func(l *Log) error { return l.Reset(after(batchAt(7, 1, false))) },
		"cut back": func(l *Log) error { return l.Truncate(1) },
	} {
		disk := vfs.NewMem()
		l := openLog(t, disk, onePerFile)
		appendAll(t, l, batchesOf(run{1, 8})...)
		r := openReader(t, disk, 0)
		for range 3 {
			if _, err := r.Next(); err != nil {
				t.Fatal(err)
			}
		}
		if err := change(l); err != nil {
			t.Fatal(err)
		}
		var err error
		for err == nil {
			_, err = r.Next()
		}
		if !errors.Is(err, ErrLogChanged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestListSnapshotFiles(t *testing.T) {
	batches := batchesOf(run{1, 3}, run{2, 3})
	disk := vfs.NewMem()
	s, refs := storeOf(t, disk, batches, 1, 2, 3, 4, 5)
	if err := errors.Join(s.SetAside(refs[1].SnapshotID), s.Remove(refs[0].SnapshotID, 0), disk.Remove(sidecarFile(SnapshotsDir, refs[2].SnapshotID))); err != nil {
		t.Fatal(err)
	}
	_, download := s.PartPath(refs[4])
	putFile(t, disk, download, []byte("half"))
	putFile(t, disk, snapshotFile(SnapshotsDir, SnapshotID{9, 2})+partSuffix, nil)
	putFile(t, disk, snapshotFile(SnapshotsDir, SnapshotID{8, 2}), nil) // damaged
	putFile(t, disk, SnapshotsDir+"/notes.txt", nil)

	files, err := ListSnapshotFiles(untouched(t, disk), SnapshotsDir)
	if err != nil {
		t.Fatal(err)
	}
	type short struct {
		end    int64
		state  SnapshotState
		digest bool
		time   int64
	}
	var got []short
	for _, f := range files {
		got = append(got, short{f.EndOffset, f.State, !f.Digest.IsZero(), f.Time})
		if i := slices.IndexFunc(refs, func(r SnapshotRef) bool { return r.SnapshotID == f.SnapshotID }); f.State == SnapshotWhole && i >= 0 && f.SnapshotRef != refs[i] {
			t.Errorf("%s: %+v, want %+v", f.Name, f.SnapshotRef, refs[i])
		}
	}
	want := []short{
		{1, SnapshotRemoving, false, 1000}, {2, SnapshotSetAside, false, 1001}, {3, SnapshotWhole, true, 1002}, {4, SnapshotWhole, true, 1003},
		{5, SnapshotWhole, true, 1004}, {5, SnapshotDownloading, false, 0}, {8, SnapshotWhole, false, 0}, {9, SnapshotWriting, false, 0},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if files, err := ListSnapshotFiles(disk, "absent"); files != nil || err != nil {
		t.Errorf("of no directory: %v, %v", files, err)
	}
}

// TestReadImageFindsWhatAStartWould compares with Recover on a copy of the directory, for
// every directory with one bit flipped, or cut at any byte.
func TestReadImageFindsWhatAStartWould(t *testing.T) {
	batches := batchesOf(run{1, 3}, run{2, 2})
	for name, d := range map[string]dataDir{
		"no snapshot":                {0, 5, nil},
		"snapshots within the log":   {0, 5, []int{2, 4}},
		"the log begins at the last": {4, 5, []int{2, 4}},
		"a snapshot past the log":    {0, 2, []int{4}},
		"nothing":                    {0, 0, nil},
		"only snapshots":             {0, 0, []int{2, 4}},
		"the beginning is missing":   {3, 5, []int{2}},
	} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewMem()
			d.on(t, disk, batches)
			all := imageAfter(t, batches[:max(d.end, slices.Max(append(d.snapshots, 0)))]...)
			compareWithStart(t, "as it is", disk, all)
			for _, dir := range []string{"log", SnapshotsDir} {
				for _, file := range fileNames(t, disk, dir) {
					file = dir + "/" + file
					data := readFile(t, disk, file)
					for i := 0; i < len(data); i += 5 {
						one := disk.Clone()
						putFile(t, one, file, flip(i)(slices.Clone(data)))
						compareWithStart(t, fmt.Sprintf("%s flipped at %d", file, i), one, all)
						if i%3 == 0 {
							one := disk.Clone()
							putFile(t, one, file, data[:i])
							compareWithStart(t, fmt.Sprintf("%s cut to %d", file, i), one, all)
						}
					}
				}
			}
		})
	}
}

// compareWithStart checks that whatever a start would lead from is read, and that nothing
// else is read but the image of all batches: of a log that is damaged before its snapshot.
func compareWithStart(t *testing.T, what string, disk *vfs.Mem, all *meta.Image) {
	t.Helper()
	found, err := ReadImage(untouched(t, disk), "log", SnapshotsDir)
	l, _, im, started := recovered(disk.Clone(), onePerFile)
	if l != nil {
		defer l.Close()
	}
	switch {
	case err != nil && started == nil:
		t.Fatalf("%s: reading gives %v, a start goes well", what, err)
	case err == nil && started == nil:
		wantImage(t, found.Image, im)
	case err == nil:
		wantImage(t, found.Image, all)
	}
}

func TestReadImageSaysWhatItIsFrom(t *testing.T) {
	batches := batchesOf(run{1, 6})
	disk := vfs.NewMem()
	dataDir{0, 6, []int{2, 4}}.on(t, disk, batches)
	found, err := ReadImage(disk, "log", SnapshotsDir)
	if err != nil || found.Snapshot == nil || found.Snapshot.EndOffset != 4 || found.Batches != 2 || found.Skipped != nil {
		t.Fatalf("%+v, %v", found, err)
	}
	newest := snapshotFile(SnapshotsDir, found.Snapshot.SnapshotID)
	putFile(t, disk, newest, flip(100)(readFile(t, disk, newest)))
	found, err = ReadImage(disk, "log", SnapshotsDir)
	if err != nil || found.Snapshot == nil || found.Snapshot.EndOffset != 2 || found.Batches != 4 || len(found.Skipped) != 1 {
		t.Fatalf("with the newest damaged: %+v, %v", found, err)
	}
	if damage := (*CorruptionError)(nil); !errors.As(found.Skipped[0], &damage) || damage.File != newest {
		t.Errorf("skipped: %v", found.Skipped)
	}
	if found, err = ReadImage(disk, "log", "absent"); err != nil || found.Snapshot != nil || found.Batches != 6 {
		t.Errorf("without snapshots: %+v, %v", found, err)
	}
}

func TestLoadSnapshotChangesNothing(t *testing.T) {
	batches := batchesOf(run{1, 3})
	disk := vfs.NewMem()
	_, refs := storeOf(t, disk, batches, 3)
	ref := refs[0]
	for _, prepare := range []func(){func() {}, func() { putFile(t, disk, sidecarFile(SnapshotsDir, ref.SnapshotID), []byte("damaged")) }} {
		prepare()
		im, got, err := LoadSnapshot(untouched(t, disk), SnapshotsDir, ref.SnapshotID)
		if err != nil || got != ref {
			t.Fatalf("%+v, %v; want %+v", got, err, ref)
		}
		wantImage(t, im, imageAfter(t, batches...))
	}
	if _, _, err := LoadSnapshot(disk, SnapshotsDir, SnapshotID{7, 1}); !errors.Is(err, ErrSnapshotNotFound) {
		t.Error(err)
	}
	other := snapshotFile(SnapshotsDir, SnapshotID{2, 1})
	putFile(t, disk, other, readFile(t, disk, snapshotFile(SnapshotsDir, ref.SnapshotID)))
	if _, _, err := LoadSnapshot(disk, SnapshotsDir, SnapshotID{2, 1}); !errors.As(err, new(*CorruptionError)) {
		t.Errorf("under another's name: %v", err)
	}
}

func TestReadSnapshotHeader(t *testing.T) {
	im := imageAfter(t, batchesOf(run{1, 3})...)
	data := snapshotBytes(t, im)
	h, err := ReadSnapshotHeader("x", strings.NewReader(string(data[:SnapshotHeaderBytes])))
	if err != nil || h != headerOf(im) {
		t.Errorf("%+v, %v", h, err)
	}
	if _, err := ReadSnapshotHeader("x", strings.NewReader(string(data[:SnapshotHeaderBytes-1]))); !errors.As(err, new(*CorruptionError)) {
		t.Errorf("of a part of it: %v", err)
	}
}
