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
	"pgregory.net/rapid"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
)

// recovered opens log and snapshots and recovers from them.
func recovered(fsys vfs.FS, fileBytes int64) (l *Log, s *Snapshots, im *meta.Image, err error) {
	if l, err = OpenLog(fsys, LogOptions{FileBytes: fileBytes}); err != nil {
		return nil, nil, nil, err
	}
	if s, err = OpenSnapshots(fsys, "", zerolog.Nop()); err == nil {
		im, err = Recover(l, s, zerolog.Nop())
	}
	return l, s, im, err
}

// dataDir holds the log [start, len(batches)) and snapshots at the given ends. Every
// snapshot is of batches; those past the log are of what the log would go on with.
type dataDir struct {
	start, end int
	snapshots  []int
}

func (d dataDir) on(t *testing.T, disk vfs.FS, batches []*meta.Batch) {
	t.Helper()
	l := openLog(t, disk, onePerFile)
	if d.start > 0 {
		if err := l.Reset(after(batches[d.start-1])); err != nil {
			t.Fatal(err)
		}
	}
	appendAll(t, l, batches[d.start:d.end]...)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	storeOf(t, disk, batches, d.snapshots...)
}

func TestRecoverTakesTheNewestSnapshotAndTheTail(t *testing.T) {
	batches := batchesOf(run{1, 3}, run{2, 3}, run{5, 4})
	for name, d := range map[string]dataDir{
		"nothing":                    {0, 0, nil},
		"no snapshot":                {0, 9, nil},
		"snapshots within the log":   {0, 9, []int{2, 6}},
		"at its start":               {6, 9, []int{2, 6}},
		"at its end":                 {0, 9, []int{9}},
		"at the end of an epoch":     {2, 9, []int{3}},
		"an empty log where it ends": {9, 9, []int{9}},
		"one too old beside":         {6, 9, []int{2, 8}},
	} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewMem()
			d.on(t, disk, batches)
			l, s, im, err := recovered(disk, onePerFile)
			if err != nil {
				t.Fatal(err)
			}
			wantImage(t, im, imageAfter(t, batches[:d.end]...))
			wantRange(t, l, int64(d.start), int64(d.end))
			if len(s.List()) != len(d.snapshots) {
				t.Errorf("the snapshots are %v", s.List())
			}
		})
	}
}

func TestScenario32LogAndSnapshotsThatConnectOrNot(t *testing.T) {
	batches := batchesOf(run{1, 500})
	for name, c := range map[string]struct {
		dir     dataDir
		missing *SnapshotMissingError
		at      int
	}{
		"log at 100, no snapshot":     {dir: dataDir{100, 100, nil}, missing: &SnapshotMissingError{0, 100}},
		"log at 100, (50,1)":          {dir: dataDir{100, 100, []int{50}}, missing: &SnapshotMissingError{50, 100}},
		"log at 100, (50,1) and more": {dir: dataDir{100, 110, []int{20, 50}}, missing: &SnapshotMissingError{50, 100}},
		"log at 100, (100,1)":         {dir: dataDir{100, 100, []int{100}}, at: 100},
		"log at 100 to 110, (100,1)":  {dir: dataDir{100, 110, []int{100}}, at: 110},
		"log at 200, (500,1)":         {dir: dataDir{200, 200, []int{500}}, at: 500},
		"log at 200 to 210, (500,1)":  {dir: dataDir{200, 210, []int{500}}, at: 500},
		"log at 0 to 210, (500,1)":    {dir: dataDir{0, 210, []int{500}}, at: 500},
		"empty log at 0, (500,1)":     {dir: dataDir{0, 0, []int{500}}, at: 500},
	} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewMem()
			c.dir.on(t, disk, batches)
			logged, snapped := fileNames(t, disk, "log"), fileNames(t, disk, SnapshotsDir)
			for range 2 { // nothing is different the second time
				l, _, im, err := recovered(disk, onePerFile)
				if c.missing != nil {
					var missing *SnapshotMissingError
					if !errors.As(err, &missing) || *missing != *c.missing {
						t.Fatalf("got %v", err)
					}
					wantFiles(t, disk, "log", logged...)
					wantFiles(t, disk, SnapshotsDir, snapped...)
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				wantImage(t, im, imageAfter(t, batches[:c.at]...))
				if c.at == 500 {
					wantRange(t, l, 500, 500)
				}
				if l.Position() != after(batches[c.at-1]) {
					t.Errorf("the log is at %+v", l.Position())
				}
			}
		})
	}
}

func TestScenario33OnlyADeletedSnapshotRefusesAndLeavesTheFile(t *testing.T) {
	batches := batchesOf(run{1, 110})
	disk := vfs.NewMem()
	dataDir{100, 110, []int{100}}.on(t, disk, batches)
	name := snapshotFile(SnapshotsDir, SnapshotID{100, 1})
	if err := disk.Rename(name, name+deletedSuffix); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		var missing *SnapshotMissingError
		if _, _, _, err := recovered(disk, onePerFile); !errors.As(err, &missing) {
			t.Fatalf("got %v", err)
		}
		wantFiles(t, disk, SnapshotsDir, "00000000000000000100-0000000001.checkpoint.deleted")
	}
	// Its old name is all it takes to go on; then what was deleted besides may go.
	putFile(t, disk, snapshotFile(SnapshotsDir, SnapshotID{50, 1})+deletedSuffix, []byte("old"))
	if err := disk.Rename(name+deletedSuffix, name); err != nil {
		t.Fatal(err)
	}
	_, _, im, err := recovered(disk, onePerFile)
	if err != nil {
		t.Fatal(err)
	}
	wantImage(t, im, imageAfter(t, batches...))
	wantFiles(t, disk, SnapshotsDir, "00000000000000000100-0000000001.checkpoint", "00000000000000000100-0000000001.pieces")
}

// damages are the ways in which a snapshot is damaged.
func damages(t *testing.T, data []byte) map[string][]byte {
	t.Helper()
	flip := func(i int) []byte {
		bad := bytes.Clone(data)
		bad[i] ^= 0x10
		return bad
	}
	ends := frameEnds(t, data)
	return map[string][]byte{
		"flipped in the header":     flip(ends[0] / 2),
		"flipped in the records":    flip((ends[0] + ends[1]) / 2),
		"flipped in the footer":     flip(ends[len(ends)-1] - 5),
		"empty":                     {},
		"cut after the header":      data[:ends[0]],
		"cut before the footer":     data[:ends[len(ends)-2]],
		"cut inside a frame":        data[:ends[0]+40],
		"more bytes at the end":     append(bytes.Clone(data), 0),
		"zeros from the middle on":  append(bytes.Clone(data[:len(data)/2]), make([]byte, len(data)-len(data)/2)...),
		"another snapshot's bytes":  snapshotBytes(t, imageAfter(t, batchesOf(run{1, 4})...)),
		"something else altogether": []byte("hello"),
	}
}

func TestScenario35WithTheNewestDamagedTheOlderOneOpens(t *testing.T) {
	batches := batchesOf(run{1, 9})
	good := snapshotBytes(t, imageAfter(t, batches[:7]...))
	for name, bad := range damages(t, good) {
		for older, d := range map[string]dataDir{
			"an older one":    {3, 9, []int{3, 5, 7}},
			"the oldest":      {3, 9, []int{3, 7}},
			"the log alone":   {0, 9, []int{7}},
			"it ends the log": {3, 7, []int{5, 7}},
		} {
			t.Run(name+", "+older, func(t *testing.T) {
				disk := vfs.NewMem()
				d.on(t, disk, batches)
				putFile(t, disk, snapshotFile(SnapshotsDir, SnapshotID{7, 1}), bad)
				for range 2 {
					l, s, im, err := recovered(disk, onePerFile)
					if err != nil {
						t.Fatal(err)
					}
					wantImage(t, im, imageAfter(t, batches[:d.end]...))
					wantRange(t, l, int64(d.start), int64(d.end))
					if len(s.List()) != len(d.snapshots)-1 {
						t.Errorf("the snapshots are %v", s.List())
					}
					aside := readFile(t, disk, snapshotFile(SnapshotsDir, SnapshotID{7, 1})+corruptSuffix)
					if !bytes.Equal(aside, bad) {
						t.Error("what was set aside has other bytes")
					}
				}
			})
		}
	}
}

func TestRecoverRefusesWhenEverySnapshotIsDamaged(t *testing.T) {
	batches := batchesOf(run{1, 9})
	disk := vfs.NewMem()
	dataDir{3, 9, []int{3, 7}}.on(t, disk, batches)
	for _, end := range []int64{3, 7} {
		putFile(t, disk, snapshotFile(SnapshotsDir, SnapshotID{end, 1}), []byte("bad"))
	}
	for range 2 {
		l, _, _, err := recovered(disk, onePerFile)
		var missing *SnapshotMissingError
		if !errors.As(err, &missing) || missing.Start != 3 {
			t.Fatalf("got %v", err)
		}
		wantRange(t, l, 3, 9)
		for _, end := range []int64{3, 7} {
			readFile(t, disk, snapshotFile(SnapshotsDir, SnapshotID{end, 1})+corruptSuffix)
		}
	}
}

// The log does not hold what the snapshot held, so the state before it is not an
// answer: an acting leader would go on from there as if the rest had never been.
func TestRecoverDoesNotGoBackBehindADamagedSnapshotPastTheLog(t *testing.T) {
	batches := batchesOf(run{1, 9})
	for name, d := range map[string]dataDir{
		"the log alone": {0, 5, []int{7}},
		"an older one":  {3, 5, []int{3, 7}},
		"both past":     {0, 5, []int{6, 7}},
	} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewMem()
			d.on(t, disk, batches)
			putFile(t, disk, snapshotFile(SnapshotsDir, SnapshotID{7, 1}), []byte("bad"))
			snapped := fileNames(t, disk, SnapshotsDir)
			for range 2 {
				l, _, _, err := recovered(disk, onePerFile)
				var damage *CorruptionError
				if !errors.As(err, &damage) || damage.File != snapshotFile(SnapshotsDir, SnapshotID{7, 1}) {
					t.Fatalf("got %v", err)
				}
				wantRange(t, l, int64(d.start), int64(d.end))
				wantFiles(t, disk, SnapshotsDir, snapped...)
			}
		})
	}
}

func TestRecoverTouchesNothingWhenLogAndSnapshotTellTwoHistories(t *testing.T) {
	other := func(runs ...run) []*meta.Batch { // of other terms
		batches := batchesOf(runs...)
		for _, b := range batches {
			b.Term = termOf(b.Epoch + 100)
			for _, r := range b.Upserts {
				if l, ok := r.(*meta.Leader); ok {
					l.Term = b.Term
				}
			}
		}
		return batches
	}
	foreign := batchesOf(run{3, 9})
	foreign[0].Upserts[0].(*meta.Cluster).ID = termOf(77)
	for name, c := range map[string]struct {
		log      []*meta.Batch
		start    int
		snapshot []*meta.Batch
	}{
		"a later epoch within the log":    {batchesOf(run{1, 9}), 0, batchesOf(run{1, 3}, run{2, 3})},
		"an earlier epoch within the log": {batchesOf(run{1, 3}, run{2, 6}), 0, batchesOf(run{1, 5})},
		"an earlier epoch at its end":     {batchesOf(run{1, 3}, run{2, 6}), 0, batchesOf(run{1, 9})},
		"an earlier epoch past its end":   {batchesOf(run{1, 3}, run{2, 3}), 0, batchesOf(run{1, 9})},
		"another term within the log":     {batchesOf(run{1, 9}), 0, other(run{1, 5})},
		"another term at its end":         {batchesOf(run{1, 5}), 0, other(run{1, 5})},
		"another term past its end":       {batchesOf(run{1, 5}), 0, other(run{1, 9})},
		"another term at its start":       {batchesOf(run{1, 9}), 5, other(run{1, 5})},
		"a later epoch below its start":   {batchesOf(run{1, 9}), 5, batchesOf(run{1, 1}, run{2, 2})},
		"another cluster past its end":    {batchesOf(run{1, 5}), 0, foreign},
	} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewMem()
			dataDir{c.start, len(c.log), nil}.on(t, disk, c.log)
			storeOf(t, disk, c.snapshot, len(c.snapshot))
			snapped := fileNames(t, disk, SnapshotsDir)
			l, _, _, err := recovered(disk, onePerFile)
			var damage *CorruptionError
			if !errors.As(err, &damage) || !strings.HasPrefix(damage.File, SnapshotsDir) {
				t.Fatalf("got %v", err)
			}
			wantRange(t, l, int64(c.start), int64(len(c.log)))
			wantFiles(t, disk, SnapshotsDir, snapped...)
		})
	}
}

// A follower that was sent the snapshot because its own last batch is not the
// leader's, and died before it emptied its log.
func TestSnapshotOfALaterEpochAtTheLogsEndEmptiesIt(t *testing.T) {
	disk := vfs.NewMem()
	dataDir{0, 5, nil}.on(t, disk, batchesOf(run{1, 5}))
	batches := batchesOf(run{1, 3}, run{2, 2})
	storeOf(t, disk, batches, 5)
	l, _, im, err := recovered(disk, onePerFile)
	if err != nil {
		t.Fatal(err)
	}
	wantImage(t, im, imageAfter(t, batches...))
	wantRange(t, l, 5, 5)
}

func TestRecoverRefusesASnapshotOfANewerProgramAndLeavesIt(t *testing.T) {
	disk := vfs.NewMem()
	batches := batchesOf(run{1, 9})
	dataDir{0, 9, []int{3}}.on(t, disk, batches)
	putFile(t, disk, snapshotFile(SnapshotsDir, SnapshotID{5, 1}), reframe(versionOf(headerOf(imageAfter(t, batches[:5]...)), 2)))
	var newer *FormatError
	if _, _, _, err := recovered(disk, onePerFile); !errors.As(err, &newer) {
		t.Fatalf("got %v", err)
	}
	if names := fileNames(t, disk, SnapshotsDir); !slices.Contains(names, "00000000000000000005-0000000001.checkpoint") {
		t.Errorf("there are %q", names)
	}
}

func TestRecoverSetsNothingAsideBecauseTheDiskCannotBeRead(t *testing.T) {
	disk := vfs.NewMem()
	dataDir{0, 9, []int{3, 5}}.on(t, disk, batchesOf(run{1, 9}))
	before := fileNames(t, disk, SnapshotsDir)
	bad := vfs.WithFaults(disk, func(op vfs.Op) error {
		if op.Kind == vfs.OpRead && strings.HasSuffix(op.Name, snapshotSuffix) {
			return syscall.EIO
		}
		return nil
	})
	if _, _, _, err := recovered(bad, onePerFile); !errors.Is(err, syscall.EIO) {
		t.Fatalf("got %v", err)
	}
	wantFiles(t, disk, SnapshotsDir, before...)
}

func TestScenario36PowerCutWhileRecoverEmptiesTheLog(t *testing.T) {
	batches := batchesOf(run{1, 3}, run{2, 6})
	for name, d := range map[string]dataDir{"from 0": {0, 5, []int{3, 8}}, "from 3": {3, 5, []int{3, 8}}} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewMem()
			d.on(t, disk, batches)
			putFile(t, disk, snapshotFile(SnapshotsDir, SnapshotID{2, 1})+deletedSuffix, []byte("old"))
			if err := RaiseEpoch(disk, 2); err != nil {
				t.Fatal(err)
			}
			for crash := range vfs.CrashPoints(disk, func(fs vfs.FS) error {
				l, _, _, err := recovered(fs, onePerFile)
				if l != nil {
					err = errors.Join(err, l.Close())
				}
				return err
			}) {
				t.Run(crash.String(), func(t *testing.T) { wantRecovery(t, crash.Disk, batches, 8) })
			}
		})
	}
}

// wantRecovery recovers, and goes on from there.
func wantRecovery(t *testing.T, disk *vfs.Mem, batches []*meta.Batch, end int) {
	t.Helper()
	l, _, im, err := recovered(disk, onePerFile)
	if err != nil {
		t.Fatal(err)
	}
	wantImage(t, im, imageAfter(t, batches[:end]...))
	wantRange(t, l, int64(end), int64(end))
	appendAll(t, l, batches[end])
	if _, _, im, err = recovered(disk.CrashClone(nil), onePerFile); err != nil {
		t.Fatal(err)
	}
	wantImage(t, im, imageAfter(t, batches[:end+1]...))
}

// Somebody copied the snapshot here, and no fsync came after it.
func TestLogIsEmptiedOnlyForASnapshotThatIsDurable(t *testing.T) {
	batches := batchesOf(run{1, 9})
	disk := vfs.NewMem()
	dataDir{0, 5, nil}.on(t, disk, batches)
	f, err := disk.Create(snapshotFile(SnapshotsDir, SnapshotID{8, 1}))
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(snapshotBytes(t, imageAfter(t, batches[:8]...)))
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := recovered(disk, onePerFile); err != nil {
		t.Fatal(err)
	}
	wantRecovery(t, disk.CrashClone(nil), batches, 8)
}

// What a migration does, and a controller that rebuilt its image from elsewhere: an
// image becomes a data directory.
func TestScenario36PowerCutWhileADataDirectoryIsBegunFromAnImage(t *testing.T) {
	batches := batchesOf(run{1, 3}, run{2, 6})
	im := imageAfter(t, batches[:8]...)
	begin := func(fs vfs.FS) error {
		l, s, _, err := recovered(fs, onePerFile)
		if err != nil {
			return err
		}
		_, err = s.Write(context.Background(), im)
		if err == nil && l.Position() != headerOf(im).Position {
			err = l.Reset(headerOf(im).Position)
		}
		if err == nil {
			err = RaiseEpoch(fs, im.Epoch())
		}
		return errors.Join(err, l.Close())
	}
	for crash := range vfs.CrashPoints(vfs.NewMem(), begin) {
		t.Run(crash.String(), func(t *testing.T) {
			if !crash.Done { // whoever did it does it again
				if err := begin(crash.Disk); err != nil {
					t.Fatal(err)
				}
			}
			wantRecovery(t, crash.Disk, batches, 8)
			if epoch, err := ClaimEpoch(crash.Disk, 2); err != nil || epoch != 3 {
				t.Errorf("epoch %d, %v", epoch, err)
			}
		})
	}
}

func TestScenario37FullDiskWhileTheLogIsEmptied(t *testing.T) {
	disk := vfs.NewMem()
	batches := batchesOf(run{1, 9})
	dataDir{0, 5, []int{8}}.on(t, disk, batches)
	if _, _, _, err := recovered(vfs.WithSpace(disk, 10), onePerFile); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("got %v", err)
	}
	wantRecovery(t, disk, batches, 8)
}

// A random history: from a snapshot at any of its points and the tail, the image is
// that of the whole log; and two stores of one history hold the same bytes.
func TestSnapshotAndTailAreTheWholeLog(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		walk := metatest.Walk(rt, 40, nil)
		at := rapid.IntRange(1, len(walk.Batches)).Draw(rt, "snapshot at")
		start := rapid.SampledFrom([]int{0, at}).Draw(rt, "log from")
		im := meta.Empty()
		for _, b := range walk.Batches[:at] {
			im = mustApply(t, im, b)
		}
		disk := vfs.NewMem()
		ref := writeSnapshot(t, disk, im)
		l := openLog(t, disk, 4000)
		if start > 0 {
			if err := l.Reset(headerOf(im).Position); err != nil {
				rt.Fatal(err)
			}
		}
		appendAll(t, l, walk.Batches[start:]...)
		l2, _, got, err := recovered(disk, 4000)
		if err != nil {
			rt.Fatal(err)
		}
		l2.Close()
		if v := meta.CheckInvariants(got); len(v) > 0 {
			rt.Fatal(v)
		}
		// The other store comes by its image another way: by the log from 0 on.
		other := vfs.NewMem()
		a, b := writeSnapshot(t, disk, got), writeSnapshot(t, other, walk.Image)
		name := snapshotFile(SnapshotsDir, a.SnapshotID)
		if a != b || !bytes.Equal(readFile(t, disk, name), readFile(t, other, name)) {
			rt.Fatalf("%+v and %+v are not the same bytes", a, b)
		}
		if headerOf(got) != headerOf(walk.Image) || ref.EndOffset != int64(at) {
			rt.Fatalf("the image is at %+v, the snapshot is %s", headerOf(got), ref)
		}
	})
}

func mustApply(t testing.TB, im *meta.Image, b *meta.Batch) *meta.Image {
	t.Helper()
	next, err := im.Apply(b)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// A log that is no copy and ends before a snapshot that was made of it has lost batches:
// nobody goes on from there, and nothing is touched. It is found by who only looks, too.
func TestRecoverOriginalRefusesALogThatEndsBeforeItsSnapshot(t *testing.T) {
	disk := vfs.NewMem()
	batches := batchesOf(run{1, 9})
	l := openLog(t, disk, onePerFile)
	appendAll(t, l, batches...)
	s, refs := storeOf(t, disk, batches, 4, 8)
	if im, err := RecoverOriginal(l, s, zerolog.Nop()); err != nil || im.Next() != 9 {
		t.Fatalf("a whole log: %v", err)
	}
	l.Close()
	for offset := range 4 { // the last batches, one in each file
		if err := disk.Remove(logFileName("log", int64(8-offset))); err != nil {
			t.Fatal(err)
		}
	}
	before := fileNames(t, disk, "log")
	l = openLog(t, disk, onePerFile)
	var damage *CorruptionError
	if _, err := RecoverOriginal(l, s, zerolog.Nop()); !errors.As(err, &damage) || !strings.Contains(err.Error(), refs[1].SnapshotID.String()) {
		t.Fatalf("error %v", err)
	}
	if after := fileNames(t, disk, "log"); !slices.Equal(after, before) || l.End() != 5 {
		t.Errorf("the log is %q with its end at %d", after, l.End())
	}
	for led, want := range map[bool]FindingKind{true: DamagedLog, false: Leftover} {
		v, err := Verify(VerifyConfig{FS: disk, LogDir: "log", SnapshotsDir: SnapshotsDir, Same: sameImages, Led: led})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(v.Findings, func(f Finding) bool {
			return f.Kind == want && strings.Contains(f.Problem, "5") && f.Kind != DamagedEpoch
		}) {
			t.Errorf("led: %v: %+v", led, v.Findings)
		}
	}
	// A copy goes on from what the snapshot has.
	if im, err := Recover(l, s, zerolog.Nop()); err != nil || im.Next() != 8 {
		t.Errorf("a copy: %v", err)
	}
}
