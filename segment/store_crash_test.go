package segment

import (
	"bytes"
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/vfs"
)

// The tests here cut the power before every durable operation of a step, reopen
// what the disk may have kept, and look: a copy is complete, or it is not there.

// diskWith is a disk with a store that holds the given contents as segments 0, 1, …
func diskWith(t *testing.T, contents ...[]byte) *vfs.Mem {
	t.Helper()
	disk := vfs.NewMem()
	s := openTestStore(t, disk)
	for seq, data := range contents {
		mustPublish(t, s, testName(int64(seq)), data)
	}
	return disk
}

// withStore makes a step of a store the work of vfs.CrashPoints.
func withStore(step func(*Store) error) func(vfs.FS) error {
	return func(fsys vfs.FS) error {
		s, err := OpenStore(fsys, zerolog.Nop())
		if err != nil {
			return err
		}
		return step(s)
	}
}

func forEachCrash(t *testing.T, start *vfs.Mem, step func(*Store) error, check func(*testing.T, vfs.Crash, *Store)) {
	t.Helper()
	crashes := 0
	for crash := range vfs.CrashPoints(start, withStore(step)) {
		crashes++
		t.Run(crash.String(), func(t *testing.T) {
			if crash.Done && crash.Err != nil {
				t.Fatal(crash.Err)
			}
			s := openTestStore(t, crash.Disk)
			check(t, crash, s)
			mustBeTidy(t, crash.Disk, s)
		})
	}
	if crashes < 20 {
		t.Errorf("only %d crashes: the step does nothing durable", crashes)
	}
}

func TestCrashWhileTheStoreIsMade(t *testing.T) {
	var made uuid.UUID
	step := func(s *Store) error { made = s.StoreID(); return nil }
	forEachCrash(t, vfs.NewMem(), step, func(t *testing.T, crash vfs.Crash, s *Store) {
		if crash.Done && s.StoreID() != made {
			t.Errorf("id is %s, was reported as %s", s.StoreID(), made)
		}
	})
}

func TestCrashInPublish(t *testing.T) {
	old, data := randomBytes(500), randomBytes(5000)
	step := func(s *Store) error { _, err := publish(s, testName(1), data); return err }
	forEachCrash(t, diskWith(t, old), step, func(t *testing.T, crash vfs.Crash, s *Store) {
		mustHold(t, s, testName(0), old)
		if h, ok := find(s, testName(1), data); ok || crash.Done {
			mustHold(t, s, testName(1), data)
		} else if len(s.Held()) != 1 {
			t.Errorf("held: %+v, found: %+v", s.Held(), h)
		}
		// And the next try succeeds, whatever the first one left.
		mustPublish(t, s, testName(1), data)
		mustHold(t, s, testName(1), data)
	})
}

func TestCrashInPublishOfADownload(t *testing.T) {
	data := randomBytes(5000)
	pieces, digest := hashBytes(data)
	step := func(s *Store) error {
		part, err := s.DownloadPath(testTable, 3, testName(0), digest)
		if err != nil {
			return err
		}
		f, err := s.fs.Create(part)
		if err != nil {
			return err
		}
		if _, err := f.Write(data); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
		if err := vfs.WriteFile(s.fs, part+journalSuffix, []byte("journal")); err != nil {
			return err
		}
		_, err = s.Publish(f, part, testTable, 3, testName(0), pieces, digest)
		return err
	}
	crashes, resumable := 0, 0
	for crash := range vfs.CrashPoints(vfs.NewMem(), withStore(step)) {
		crashes++
		t.Run(crash.String(), func(t *testing.T) {
			s := openTestStore(t, crash.Disk)
			downloads, err := s.Downloads()
			if err != nil {
				t.Fatal(err)
			}
			_, held := find(s, testName(0), data)
			if held || crash.Done {
				mustHold(t, s, testName(0), data)
				// Never both: writing to the .part would be writing to the copy.
				mustBeTidy(t, crash.Disk, s)
				return
			}
			if len(downloads) == 0 {
				mustBeTidy(t, crash.Disk, s)
				return
			}
			resumable++
			if d := downloads[0]; len(downloads) != 1 || d.Name != testName(0) || d.Short != digest.Short() || d.Table != testTable || d.Partition != 3 {
				t.Errorf("downloads: %+v", downloads)
			}
		})
	}
	if resumable == 0 || resumable == crashes {
		t.Errorf("%d of %d crashes left a download to resume", resumable, crashes)
	}
}

func TestCrashInRemove(t *testing.T) {
	keep, gone := randomBytes(500), randomBytes(5000)
	step := func(s *Store) error {
		h, _ := find(s, testName(1), gone)
		return s.Remove(h)
	}
	forEachCrash(t, diskWith(t, keep, gone), step, func(t *testing.T, crash vfs.Crash, s *Store) {
		mustHold(t, s, testName(0), keep)
		if crash.Done {
			mustNotHold(t, s, testName(1), gone)
		} else if _, ok := find(s, testName(1), gone); ok {
			mustHold(t, s, testName(1), gone)
		}
		if n := len(filesBelow(t, crash.Disk, "quarantine")); n > 0 {
			t.Errorf("%d files in quarantine", n)
		}
	})
}

func TestCrashInQuarantine(t *testing.T) {
	keep, bad := randomBytes(500), randomBytes(5000)
	disk := diskWith(t, keep, bad)
	h, _ := find(openTestStore(t, disk), testName(1), bad)
	flipBit(t, disk, h.File(), 4007)
	damaged := readRaw(t, disk, h.File())

	step := func(s *Store) error {
		h, _ := find(s, testName(1), bad)
		_, err := s.Quarantine(h, "one bit")
		return err
	}
	forEachCrash(t, disk, step, func(t *testing.T, crash vfs.Crash, s *Store) {
		mustHold(t, s, testName(0), keep)
		copies := 0
		for _, h := range s.Held() {
			if h.Name != testName(1) {
				continue
			}
			copies++
			if crash.Done && (h.State != StateQuarantined || h.Reason != "one bit" || h.Digest.IsZero()) {
				t.Errorf("after the end: %+v", h)
			}
			if got := readRaw(t, crash.Disk, h.File()); !bytes.Equal(got, damaged) {
				t.Errorf("%s has other bytes", h.File())
			}
		}
		// Two when a rename survived by halves; never none.
		if copies == 0 || crash.Done && copies != 1 {
			t.Errorf("held: %+v", s.Held())
		}
	})
}

func TestCrashInOrphan(t *testing.T) {
	keep, odd := randomBytes(500), randomBytes(5000)
	step := func(s *Store) error {
		h, _ := find(s, testName(1), odd)
		return s.Orphan(h, testTime)
	}
	forEachCrash(t, diskWith(t, keep, odd), step, func(t *testing.T, crash vfs.Crash, s *Store) {
		mustHold(t, s, testName(0), keep)
		mustBeSomewhere(t, s, testName(1), odd, crash.Done)
	})
}

func TestCrashInAdopt(t *testing.T) {
	keep, odd := randomBytes(500), randomBytes(5000)
	disk := diskWith(t, keep, odd)
	s := openTestStore(t, disk)
	h, _ := find(s, testName(1), odd)
	if err := s.Orphan(h, testTime); err != nil {
		t.Fatal(err)
	}
	step := func(s *Store) error {
		_, err := s.Adopt(context.Background(), testTable, 3, testName(1), h.Digest)
		return err
	}
	forEachCrash(t, disk, step, func(t *testing.T, crash vfs.Crash, s *Store) {
		mustHold(t, s, testName(0), keep)
		if crash.Done {
			mustHold(t, s, testName(1), odd)
		}
		mustBeSomewhere(t, s, testName(1), odd, false)
	})
}

// mustBeSomewhere fails unless the content is sealed, or an orphan that can be
// adopted, or both; if moved, only the latter.
func mustBeSomewhere(t *testing.T, s *Store, name string, data []byte, moved bool) {
	t.Helper()
	orphans, err := s.Orphans()
	if err != nil {
		t.Fatal(err)
	}
	_, held := find(s, name, data)
	if moved && (held || len(orphans) != 1) || !held && len(orphans) == 0 {
		t.Fatalf("held: %v, orphans: %+v", held, orphans)
	}
	for _, o := range orphans {
		if !o.Since.Equal(testTime) || o.SizeBytes != int64(len(data)) {
			t.Errorf("orphan: %+v", o)
		}
	}
	_, digest := hashBytes(data)
	if _, err := s.Adopt(t.Context(), testTable, 3, name, digest); err != nil {
		t.Fatal(err)
	}
	mustHold(t, s, name, data)
}

func TestCrashWhileTheScanRepairs(t *testing.T) {
	keep, bare, bad := randomBytes(500), randomBytes(5000), randomBytes(6000)
	disk := diskWith(t, keep, bare, bad)
	s := openTestStore(t, disk)
	h, _ := find(s, testName(1), bare)
	if err := disk.Remove(sidecarPath(h.File())); err != nil {
		t.Fatal(err)
	}
	h, _ = find(s, testName(2), bad)
	writeRaw(t, disk, h.File(), bad[:5999])
	step := func(*Store) error { return nil }
	forEachCrash(t, disk, step, func(t *testing.T, _ vfs.Crash, s *Store) {
		mustHold(t, s, testName(0), keep)
		mustHold(t, s, testName(1), bare)
		mustNotHold(t, s, testName(2), bad)
		quarantined := 0
		for _, h := range s.Held() {
			if h.State == StateQuarantined {
				quarantined++
			}
		}
		if quarantined == 0 {
			t.Error("the damaged copy is gone")
		}
	})
}
