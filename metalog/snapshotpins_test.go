package metalog

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/shoalstore/shoal/internal/vfs"
)

// METALOG §5, 18: cleaning during a download. Here is the side of who sends.

func TestScenario18SnapshotThatIsBeingSentStays(t *testing.T) {
	const second, start = 1000, int64(1e12)
	for name, c := range map[string]struct {
		uses []int64 // seconds after start
		at   int64
		free bool
	}{
		"never used":                       {nil, 0, true},
		"just now":                         {[]int64{0}, 0, false},
		"a minute ago":                     {[]int64{0}, 60, false},
		"more than a minute ago":           {[]int64{0}, 61, true},
		"renewed":                          {[]int64{0, 50, 100}, 150, false},
		"renewed, and left":                {[]int64{0, 50, 100}, 161, true},
		"a pause, and another":             {[]int64{0, 500}, 550, false},
		"an hour without a pause":          {every(60, 3600), 3600, true},
		"nearly that":                      {every(60, 3540), 3599, false},
		"and longer":                       {every(60, 7200), 7201, true},
		"another after an hour of it":      {append(every(60, 3600), 3661), 3662, false},
		"used since the cleaner looked":    {[]int64{30}, 0, false},
		"used before the clock was set":    {[]int64{86400}, 0, true},
		"used before and after it was set": {[]int64{86400, 0}, 3599, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, refs := storeOf(t, vfs.NewMem(), batchesOf(run{1, 9}), 3, 5, 7)
			id := refs[0].SnapshotID
			for _, at := range c.uses {
				if ref, ok := s.Use(id, start+at*second); !ok || ref != refs[0] {
					t.Fatalf("it is %+v, %v", ref, ok)
				}
			}
			now := start + c.at*second
			if got := s.Pinned(now); slices.Contains(got, id) == c.free || len(got) > 1 {
				t.Errorf("%v are pinned", got)
			}
			err := s.Remove(id, now)
			if c.free && err != nil || !c.free && !errors.Is(err, ErrSnapshotPinned) {
				t.Fatalf("got %v", err)
			}
			if _, ok := s.Use(id, now); ok == c.free {
				t.Errorf("it is there: %v", ok)
			}
		})
	}
}

// every is the times from 0 to end that are step apart.
func every(step, end int64) (times []int64) {
	for at := int64(0); at <= end; at += step {
		times = append(times, at)
	}
	return times
}

func TestUseOfASnapshotThatIsNotThere(t *testing.T) {
	s, refs := storeOf(t, vfs.NewMem(), batchesOf(run{1, 9}), 3, 5, 7)
	if _, ok := s.Use(SnapshotID{4, 1}, 1000); ok {
		t.Error("it is there")
	}
	// What is damaged goes, whoever reads it: they would read nothing good.
	if _, ok := s.Use(refs[0].SnapshotID, 1000); !ok {
		t.Error("it is not there")
	}
	if err := s.SetAside(refs[0].SnapshotID); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.Use(refs[0].SnapshotID, 1000); ok || len(s.Pinned(1000)) > 0 {
		t.Error("it is still there")
	}
}

func TestRemovedSnapshotIsUnlinkedAMinuteLater(t *testing.T) {
	const now = int64(1e12)
	disk := vfs.NewMem()
	batches := batchesOf(run{1, 9})
	s, refs := storeOf(t, disk, batches, 3, 5, 7, 8)
	deleted := func() (names []string) {
		return slices.DeleteFunc(fileNames(t, disk, SnapshotsDir), func(name string) bool { return !strings.HasSuffix(name, deletedSuffix) })
	}
	remove := func(i int, at int64) {
		t.Helper()
		if err := s.Remove(refs[i].SnapshotID, at); err != nil {
			t.Fatal(err)
		}
	}
	sweep := func(at int64, want ...SnapshotRef) {
		t.Helper()
		if err := s.Sweep(at); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, ref := range want {
			names = append(names, ref.String()+snapshotSuffix+deletedSuffix)
		}
		if got := deleted(); !slices.Equal(got, names) {
			t.Fatalf("%q are left, want %q", got, names)
		}
	}
	remove(0, now)
	remove(1, now+10_000)
	sweep(0, refs[:2]...) // as Recover does
	sweep(now+59_999, refs[:2]...)
	sweep(now+60_000, refs[1])
	// It is made again, and goes again.
	storeOf(t, disk, batches, 5)
	s.put(refs[1])
	remove(1, now+50_000)
	sweep(now+109_999, refs[1])
	sweep(now + 110_000)
}

func TestSweepTriesAgainWhatItCouldNotUnlink(t *testing.T) {
	disk := vfs.NewMem()
	s, refs := storeOf(t, disk, batchesOf(run{1, 9}), 2, 3, 5, 7)
	for _, ref := range refs[:2] {
		if err := s.Remove(ref.SnapshotID, 0); err != nil {
			t.Fatal(err)
		}
	}
	first := refs[0].String() + snapshotSuffix + deletedSuffix
	s.fs = vfs.WithFaults(disk, func(op vfs.Op) error {
		if op.Kind == vfs.OpRemove && strings.HasSuffix(op.Name, first) {
			return syscall.EIO
		}
		return nil
	})
	if err := s.Sweep(unlinkAfter); !errors.Is(err, syscall.EIO) {
		t.Errorf("got %v", err)
	}
	if names := fileNames(t, disk, SnapshotsDir); len(names) != 5 || !slices.Contains(names, first) {
		t.Errorf("there are %q", names)
	}
	s.fs = disk
	if err := s.Sweep(unlinkAfter); err != nil {
		t.Error(err)
	}
	if names := fileNames(t, disk, SnapshotsDir); len(names) != 4 {
		t.Errorf("there are %q", names)
	}
}

// All or none: a cleaner that cannot take one of them takes none.
func TestWithdrawLeavesTheListAsItWasWhenItMayNot(t *testing.T) {
	s, refs := storeOf(t, vfs.NewMem(), batchesOf(run{1, 9}), 2, 3, 5, 7)
	s.Use(refs[1].SnapshotID, 1000)
	if _, err := s.withdraw(1000, refs[0].SnapshotID, refs[1].SnapshotID); !errors.Is(err, ErrSnapshotPinned) {
		t.Errorf("got %v", err)
	}
	if _, err := s.withdraw(1000, refs[0].SnapshotID, refs[2].SnapshotID); !errors.Is(err, ErrSnapshotKept) {
		t.Errorf("got %v", err)
	}
	if got := s.List(); !slices.Equal(got, refs) {
		t.Errorf("it lists %v", got)
	}
	took, err := s.withdraw(99_000, refs[0].SnapshotID, refs[1].SnapshotID)
	if err != nil || !slices.Equal(took, refs[:2]) || !slices.Equal(s.List(), refs[2:]) {
		t.Errorf("took %v, %v; it lists %v", took, err, s.List())
	}
	s.putBack(took)
	if got := s.List(); !slices.Equal(got, refs) {
		t.Errorf("it lists %v", got)
	}
}
