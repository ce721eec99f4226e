package metalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
)

// cleanNow is when the tests clean, tiny lets them clean as much as may ever go.
const cleanNow = int64(1e12)

var tiny = RetentionPolicy{BytesMax: 1, AgeMax: 1, TrailingMin: 1}

// churn is a log whose batches write the same record over and over: its snapshots are
// smaller than what it trails them with.
func churn(runs ...run) []*meta.Batch {
	batches := batchesOf(runs...)
	for _, b := range batches {
		b.Upserts[len(b.Upserts)-1] = job(1, 300)
	}
	return batches
}

// sixSnapshots is a data directory with a log from 0 to 33 and a snapshot every five
// batches; some of them are the last batches of an epoch.
func sixSnapshots(t *testing.T) (disk *vfs.Mem, batches []*meta.Batch) {
	t.Helper()
	return snapshotsFrom(t, 0, 5, 10, 15, 20, 25, 30)
}

// fourSnapshots is what is left of that after some cleaning.
func fourSnapshots(t *testing.T) (disk *vfs.Mem, batches []*meta.Batch) {
	t.Helper()
	return snapshotsFrom(t, 15, 15, 20, 25, 30)
}

func snapshotsFrom(t *testing.T, start int, ends ...int) (disk *vfs.Mem, batches []*meta.Batch) {
	t.Helper()
	disk, batches = vfs.NewMem(), churn(run{1, 10}, run{2, 12}, run{5, 12})
	dataDir{start, 33, ends}.on(t, disk, batches)
	return disk, batches
}

// opened opens a data directory as a start does.
func opened(t *testing.T, fsys vfs.FS) (*Log, *Snapshots) {
	t.Helper()
	l, s, _, err := recovered(fsys, onePerFile)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, s
}

func clean(t *testing.T, l *Log, s *Snapshots, policy RetentionPolicy, now int64) []SnapshotID {
	t.Helper()
	gone, err := Clean(context.Background(), l, s, policy, l.End(), now)
	if err != nil {
		t.Fatal(err)
	}
	return gone
}

func endsOf(refs []SnapshotRef) (ends []int64) {
	for _, r := range refs {
		ends = append(ends, r.EndOffset)
	}
	return ends
}

// wantCleaned checks what is left, now and after a restart.
func wantCleaned(t *testing.T, disk *vfs.Mem, batches []*meta.Batch, l *Log, s *Snapshots, start int64, ends ...int64) {
	t.Helper()
	for range 2 {
		wantRange(t, l, start, 33)
		if got := endsOf(s.List()); !slices.Equal(got, ends) {
			t.Fatalf("snapshots %v, want %v", got, ends)
		}
		var im *meta.Image
		var err error
		if l, s, im, err = recovered(disk.CrashClone(nil), onePerFile); err != nil {
			t.Fatal(err)
		}
		wantImage(t, im, imageAfter(t, batches[:33]...))
	}
}

func TestScenario34SixSnapshotsAndTinyRetention(t *testing.T) {
	for name, c := range map[string]struct {
		policy RetentionPolicy
		now    int64
		start  int64
		ends   []int64
	}{
		"tiny":           {tiny, cleanNow, 25, []int64{25, 30}},
		"few bytes":      {RetentionPolicy{BytesMax: 1, TrailingMin: 1}, 2000, 25, []int64{25, 30}},
		"short":          {RetentionPolicy{AgeMax: 1e6, TrailingMin: 1}, 2000, 25, []int64{25, 30}},
		"some are young": {RetentionPolicy{AgeMax: 10e6, TrailingMin: 1}, 1025, 20, []int64{20, 25, 30}},
		"long trail":     {RetentionPolicy{BytesMax: 1, TrailingMin: 1 << 20}, cleanNow, 0, []int64{25, 30}},
		"by default":     {RetentionPolicy{}, 2000, 0, []int64{5, 10, 15, 20, 25, 30}},
		"after a week":   {RetentionPolicy{}, cleanNow, 0, []int64{25, 30}},
	} {
		t.Run(name, func(t *testing.T) {
			disk, batches := sixSnapshots(t)
			l, s := opened(t, disk)
			gone := clean(t, l, s, c.policy, c.now)
			if len(gone) != 6-len(c.ends) {
				t.Errorf("%v went", gone)
			}
			wantCleaned(t, disk, batches, l, s, c.start, c.ends...)
			if again := clean(t, l, s, c.policy, c.now); len(again) > 0 {
				t.Errorf("then %v went", again)
			}
			// A minute later the bytes go, too.
			if names := fileNames(t, disk, SnapshotsDir); len(names) != 6+len(c.ends) {
				t.Errorf("there are %q", names)
			}
			if err := s.Sweep(c.now + unlinkAfter); err != nil {
				t.Fatal(err)
			}
			if names := fileNames(t, disk, SnapshotsDir); len(names) != 2*len(c.ends) {
				t.Errorf("there are %q", names)
			}
		})
	}
}

// Nothing rests on a snapshot that somebody has removed by hand, so it must not keep the
// others and the log for ever.
func TestCleanGoesOnWithoutASnapshotWhoseFileIsGone(t *testing.T) {
	for name, c := range map[string]struct {
		gone, left []int64
		start      int64
	}{
		"the oldest":         {[]int64{5}, []int64{25, 30}, 25},
		"one in the middle":  {[]int64{20}, []int64{25, 30}, 25},
		"the newest":         {[]int64{30}, []int64{20, 25}, 20},
		"all but the oldest": {[]int64{10, 15, 20, 25, 30}, []int64{5}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			disk, batches := sixSnapshots(t)
			l, s := opened(t, disk)
			for _, ref := range s.List() {
				if slices.Contains(c.gone, ref.EndOffset) {
					if err := disk.Remove(snapshotFile(SnapshotsDir, ref.SnapshotID)); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := disk.SyncDir(SnapshotsDir); err != nil {
				t.Fatal(err)
			}
			clean(t, l, s, tiny, cleanNow)
			wantCleaned(t, disk, batches, l, s, c.start, c.left...)
		})
	}
}

func TestScenario18CleaningDuringADownload(t *testing.T) {
	disk, batches := sixSnapshots(t)
	l, s := opened(t, disk)
	id := s.List()[1].SnapshotID
	data := readFile(t, disk, snapshotFile(SnapshotsDir, id))
	now := cleanNow
	var got []byte
	for at := 0; at < len(data); at += 100 {
		ref, ok := s.Use(id, now)
		if !ok || ref.SizeBytes != int64(len(data)) {
			t.Fatalf("at byte %d it is gone", at)
		}
		clean(t, l, s, tiny, now)
		now += 59_000
		clean(t, l, s, tiny, now)
		got = append(got, readFile(t, disk, snapshotFile(SnapshotsDir, id))[at:min(at+100, len(data))]...)
	}
	if !bytes.Equal(got, data) {
		t.Error("other bytes arrived")
	}
	// And the log goes on from it.
	wantCleaned(t, disk, batches, l, s, 10, 10, 15, 20, 25, 30)
	if gone := clean(t, l, s, tiny, now+2000); len(gone) != 3 {
		t.Errorf("%v went", gone)
	}
	wantCleaned(t, disk, batches, l, s, 25, 25, 30)
}

// A chunk may be asked for between the decision and what follows from it.
func TestScenario18DownloadThatBeginsWhileTheCleanerReads(t *testing.T) {
	disk, batches := sixSnapshots(t)
	var begin func()
	l, s := opened(t, vfs.WithFaults(disk, func(op vfs.Op) error {
		if begin != nil && op.Kind == vfs.OpOpen && op.Name == snapshotFile(SnapshotsDir, SnapshotID{25, 5}) {
			begin()
		}
		return nil
	}))
	id := s.List()[3].SnapshotID
	begin = func() {
		if _, ok := s.Use(id, cleanNow+5000); !ok {
			t.Error("it is gone")
		}
	}
	if gone := clean(t, l, s, tiny, cleanNow); len(gone) > 0 {
		t.Errorf("%v went", gone)
	}
	wantCleaned(t, disk, batches, l, s, 0, 5, 10, 15, 20, 25, 30)
	begin = nil
	clean(t, l, s, tiny, cleanNow+6000)
	wantCleaned(t, disk, batches, l, s, 20, 20, 25, 30)
}

func TestCleanWaitsForTheConsumer(t *testing.T) {
	disk, batches := sixSnapshots(t)
	l, s := opened(t, disk)
	if _, err := Clean(context.Background(), l, s, tiny, 12, cleanNow); err != nil {
		t.Fatal(err)
	}
	wantCleaned(t, disk, batches, l, s, 12, 25, 30)
}

func TestCleanEndsWithItsContext(t *testing.T) {
	disk, batches := sixSnapshots(t)
	l, s := opened(t, disk)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Clean(ctx, l, s, tiny, 33, cleanNow); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	wantCleaned(t, disk, batches, l, s, 0, 5, 10, 15, 20, 25, 30)
}

func TestScenario35AfterCleaningTheOlderOneOpensWithTheNewestDamaged(t *testing.T) {
	disk, batches := sixSnapshots(t)
	l, s := opened(t, disk)
	newest := s.Latest().SnapshotID
	clean(t, l, s, tiny, cleanNow)
	for name, bad := range damages(t, readFile(t, disk, snapshotFile(SnapshotsDir, newest))) {
		t.Run(name, func(t *testing.T) {
			disk := disk.Clone()
			putFile(t, disk, snapshotFile(SnapshotsDir, newest), bad)
			l, s := opened(t, disk)
			// The one that is left is not cleaned, whatever comes.
			clean(t, l, s, tiny, cleanNow)
			wantCleaned(t, disk, batches, l, s, 25, 25)
		})
	}
}

// The log before a snapshot goes only when the snapshot has just proven that it holds it.
func TestScenario35NothingIsCleanedOnTheWordOfADamagedSnapshot(t *testing.T) {
	start, _ := sixSnapshots(t)
	id := SnapshotID{25, 5} // would become the oldest
	for name, bad := range damages(t, readFile(t, start, snapshotFile(SnapshotsDir, id))) {
		t.Run(name, func(t *testing.T) {
			disk, batches := sixSnapshots(t)
			l, s := opened(t, disk)
			putFile(t, disk, snapshotFile(SnapshotsDir, id), bad)
			var told bytes.Buffer
			s.log = zerolog.New(&told)
			if gone := clean(t, l, s, tiny, cleanNow); len(gone) > 0 {
				t.Errorf("%v went", gone)
			}
			if !strings.Contains(told.String(), `"level":"error"`) || !strings.Contains(told.String(), id.String()) {
				t.Errorf("the log says %q", told.String())
			}
			if aside := readFile(t, disk, snapshotFile(SnapshotsDir, id)+corruptSuffix); !bytes.Equal(aside, bad) {
				t.Error("what was set aside has other bytes")
			}
			wantCleaned(t, disk, batches, l, s, 0, 5, 10, 15, 20, 30)
			clean(t, l, s, tiny, cleanNow)
			wantCleaned(t, disk, batches, l, s, 20, 20, 30)
		})
	}
}

func TestScenario35SnapshotWithADamagedHeaderIsSetAsideWhicheverItIs(t *testing.T) {
	for at := range 6 {
		disk, batches := sixSnapshots(t)
		l, s := opened(t, disk)
		ends := endsOf(s.List())
		id := s.List()[at].SnapshotID
		putFile(t, disk, snapshotFile(SnapshotsDir, id), []byte("damaged"))
		if gone := clean(t, l, s, tiny, cleanNow); len(gone) > 0 {
			t.Errorf("%s: %v went", id, gone)
		}
		wantCleaned(t, disk, batches, l, s, 0, slices.Delete(ends, at, at+1)...)
	}
}

func TestCleanTouchesNothingWhenASnapshotTellsAnotherHistory(t *testing.T) {
	disk, batches := sixSnapshots(t)
	l, s := opened(t, disk)
	other := churn(run{1, 10}, run{2, 12}, run{5, 12})
	for _, b := range other[22:] {
		b.Term = termOf(55)
	}
	other[22].Upserts[0].(*meta.Leader).Term = termOf(55)
	id := SnapshotID{25, 5}
	putFile(t, disk, snapshotFile(SnapshotsDir, id), snapshotBytes(t, imageAfter(t, other[:25]...)))
	_, err := Clean(context.Background(), l, s, tiny, 33, cleanNow)
	var damage *CorruptionError
	if !errors.As(err, &damage) || damage.File != snapshotFile(SnapshotsDir, id) {
		t.Errorf("got %v", err)
	}
	wantCleaned(t, disk, batches, l, s, 0, 5, 10, 15, 20, 25, 30)
}

func TestCleanSetsNothingAsideBecauseTheDiskCannotBeRead(t *testing.T) {
	disk, batches := sixSnapshots(t)
	var bad bool
	l, s := opened(t, vfs.WithFaults(disk, func(op vfs.Op) error {
		if bad && op.Kind == vfs.OpRead && strings.HasSuffix(op.Name, snapshotSuffix) {
			return syscall.EIO
		}
		return nil
	}))
	bad = true
	if _, err := Clean(context.Background(), l, s, tiny, 33, cleanNow); !errors.Is(err, syscall.EIO) {
		t.Errorf("got %v", err)
	}
	wantCleaned(t, disk, batches, l, s, 0, 5, 10, 15, 20, 25, 30)
}

// Where a step fails, what was not come to is as it was, and the next time goes on.
func TestCleanGoesOnWhereItFailed(t *testing.T) {
	disk, batches := sixSnapshots(t)
	var bad bool
	l, s := opened(t, vfs.WithFaults(disk, func(op vfs.Op) error {
		if bad && op.Kind == vfs.OpRename && op.Name == snapshotFile(SnapshotsDir, SnapshotID{10, 1}) {
			return syscall.EIO
		}
		return nil
	}))
	bad = true
	gone, err := Clean(context.Background(), l, s, tiny, 33, cleanNow)
	if !errors.Is(err, syscall.EIO) || len(gone) != 1 {
		t.Errorf("%v went, got %v", gone, err)
	}
	if got := endsOf(s.List()); !slices.Equal(got, []int64{15, 20, 25, 30}) {
		t.Errorf("snapshots %v", got)
	}
	bad = false
	clean(t, l, s, tiny, cleanNow)
	wantRange(t, l, 25, 33)
	// The one whose name was not known any more is known to the next start.
	l, s = opened(t, disk)
	clean(t, l, s, RetentionPolicy{}, 2000)
	wantCleaned(t, disk, batches, l, s, 25, 25, 30)
}

func TestCleanKeepsEverySnapshotWhenTheLogCannotBeTrimmed(t *testing.T) {
	disk, batches := sixSnapshots(t)
	var bad bool
	l, s := opened(t, vfs.WithFaults(disk, func(op vfs.Op) error {
		if bad && op.Kind == vfs.OpRename {
			return syscall.EIO
		}
		return nil
	}))
	bad = true
	if gone, err := Clean(context.Background(), l, s, tiny, 33, cleanNow); !errors.Is(err, ErrPoisoned) || len(gone) > 0 {
		t.Errorf("%v went, got %v", gone, err)
	}
	if got := endsOf(s.List()); !slices.Equal(got, []int64{5, 10, 15, 20, 25, 30}) {
		t.Errorf("snapshots %v", got)
	}
	l, s = opened(t, disk)
	wantCleaned(t, disk, batches, l, s, 0, 5, 10, 15, 20, 25, 30)
}

// cleaningOn is what the process does that is killed somewhere in it.
func cleaningOn(fsys vfs.FS) error {
	l, s, im, err := recovered(fsys, onePerFile)
	if err == nil {
		_, err = Clean(context.Background(), l, s, tiny, im.Next(), cleanNow)
	}
	if err == nil {
		_, err = Clean(context.Background(), l, s, tiny, im.Next(), cleanNow+unlinkAfter)
	}
	if l != nil {
		err = errors.Join(err, l.Close())
	}
	return err
}

// wantCleanable checks the invariants of METALOG §2, and that another cleaning ends it.
func wantCleanable(t *testing.T, disk *vfs.Mem, batches []*meta.Batch) {
	t.Helper()
	l, s, im, err := recovered(disk, onePerFile)
	if err != nil {
		t.Fatal(err)
	}
	wantImage(t, im, imageAfter(t, batches[:33]...))
	wantRange(t, l, l.Start(), 33)
	refs := s.List()
	if got := endsOf(refs); len(got) < 2 || !slices.Equal(got[len(got)-2:], []int64{25, 30}) || l.Start() > 25 {
		t.Fatalf("the log starts at %d, there are %v", l.Start(), got)
	}
	for _, r := range refs {
		if im, err := s.Load(r.SnapshotID); err != nil {
			t.Error(err)
		} else {
			wantImage(t, im, imageAfter(t, batches[:r.EndOffset]...))
		}
	}
	if err := cleaningOn(disk); err != nil {
		t.Fatal(err)
	}
	l, s = opened(t, disk)
	wantCleaned(t, disk, batches, l, s, 25, 25, 30)
	if names := fileNames(t, disk, SnapshotsDir); len(names) != 4 {
		t.Errorf("there are %q", names)
	}
}

func TestScenario36PowerCutWhileCleaning(t *testing.T) {
	disk, batches := fourSnapshots(t)
	for crash := range vfs.CrashPoints(disk, cleaningOn) {
		t.Run(crash.String(), func(t *testing.T) {
			if crash.Done && crash.Err != nil {
				t.Fatal(crash.Err)
			}
			wantCleanable(t, crash.Disk, batches)
		})
	}
}

// kill −9: what was done is there, also what no fsync came after.
func TestScenario36KilledAtEachStepOfCleaning(t *testing.T) {
	start, batches := fourSnapshots(t)
	killed := errors.New("killed")
	for n := 1; ; n++ {
		disk, count, at := start.Clone(), 0, vfs.Op{}
		err := cleaningOn(vfs.WithFaults(disk, func(op vfs.Op) error {
			if op.Kind.Mutates() || op.Kind.Durable() {
				if count++; count == n {
					at = op
				}
			}
			if count >= n {
				return killed
			}
			return nil
		}))
		if count < n {
			if err != nil {
				t.Fatal(err)
			}
			if n < 30 { // ten log files and two snapshots are renamed and unlinked
				t.Errorf("there were only %d steps", n)
			}
			return
		}
		t.Run(fmt.Sprintf("before step %d, %s", n, at), func(t *testing.T) { wantCleanable(t, disk.Clone(), batches) })
	}
}
