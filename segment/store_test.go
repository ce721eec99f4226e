package segment

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/vfs"
)

var (
	testTable = uuid.MustParse("6f1c24ce-2d1c-4d5c-9f0c-3d9b7a1f0001")
	testTime  = time.Date(2026, 11, 29, 16, 25, 0, 0, time.UTC)
)

func testName(seq int64) string { return NewName("flights", 3, seq, testTime).String() }

func openTestStore(t testing.TB, fsys vfs.FS) *Store {
	t.Helper()
	s, err := OpenStore(fsys, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	s.now = func() time.Time { return testTime }
	return s
}

// stage writes data to staging, as a builder or a downloader does.
func stage(s *Store, name string, data []byte) (vfs.File, string, error) {
	f, path, err := s.Stage(testTable, 3, name)
	if err != nil {
		return nil, "", err
	}
	if _, err := f.Write(data); err != nil {
		return nil, "", errors.Join(err, f.Close())
	}
	return f, path, nil
}

func publish(s *Store, name string, data []byte) (Held, error) {
	f, path, err := stage(s, name, data)
	if err != nil {
		return Held{}, err
	}
	pieces, digest := hashBytes(data)
	return s.Publish(f, path, testTable, 3, name, pieces, digest)
}

func mustPublish(t testing.TB, s *Store, name string, data []byte) Held {
	t.Helper()
	h, err := publish(s, name, data)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func find(s *Store, name string, data []byte) (Held, bool) {
	_, digest := hashBytes(data)
	return s.Get(testTable, 3, name, digest)
}

// mustHold fails unless the store holds the segment, sealed, with this content,
// and says that it is good.
func mustHold(t testing.TB, s *Store, name string, data []byte) Held {
	t.Helper()
	h, ok := find(s, name, data)
	if !ok {
		t.Fatalf("%s is not held", name)
	}
	if err := s.Verify(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	f, pieces, release, err := s.Open(h)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	got, err := io.ReadAll(f)
	if err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%s: read %d bytes of other content, %v", name, len(got), err)
	}
	if err := pieces.Check(h.Digest); err != nil {
		t.Fatal(err)
	}
	return h
}

func mustNotHold(t testing.TB, s *Store, name string, data []byte) {
	t.Helper()
	if h, ok := find(s, name, data); ok {
		t.Fatalf("%s is held", h.File())
	}
}

// filesBelow lists the regular files under dir.
func filesBelow(t testing.TB, fsys vfs.FS, dir string) (files []string) {
	t.Helper()
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if name := path.Join(dir, e.Name()); e.IsDir() {
			files = append(files, filesBelow(t, fsys, name)...)
		} else {
			files = append(files, name)
		}
	}
	return files
}

// mustBeTidy fails if anything lies in the store that the index does not know:
// staging is empty, and each sealed copy is its two files.
func mustBeTidy(t testing.TB, fsys vfs.FS, s *Store) {
	t.Helper()
	if left := filesBelow(t, fsys, "staging"); len(left) > 0 {
		t.Errorf("left in staging: %v", left)
	}
	var want []string
	for _, h := range s.Held() {
		if h.State == StateSealed {
			want = append(want, sidecarPath(h.File()), h.File())
		}
	}
	slices.Sort(want)
	if got := filesBelow(t, fsys, "segments"); !slices.Equal(got, want) {
		t.Errorf("in segments/:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func writeRaw(t testing.TB, fsys vfs.FS, name string, data []byte) {
	t.Helper()
	if err := errors.Join(fsys.MkdirAll(path.Dir(name), 0o755), vfs.WriteFile(fsys, name, data)); err != nil {
		t.Fatal(err)
	}
}

func readRaw(t testing.TB, fsys vfs.FS, name string) []byte {
	t.Helper()
	b, err := vfs.ReadFile(fsys, name, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// flipBit damages a file in place, as a disk does.
func flipBit(t testing.TB, fsys vfs.FS, name string, at int64) {
	t.Helper()
	b := readRaw(t, fsys, name)
	b[at] ^= 0x10
	writeRaw(t, fsys, name, b)
}

func TestPublishedCopyIsHeldAndFoundAgain(t *testing.T) {
	disk := vfs.NewMem()
	s := openTestStore(t, disk)
	data := randomBytes(PieceSize + 4321)
	h := mustPublish(t, s, testName(7), data)

	_, digest := hashBytes(data)
	want := Held{Table: testTable, Partition: 3, Name: testName(7), Digest: digest, SizeBytes: int64(len(data)), State: StateSealed, Verified: testTime,
		file: "segments/6f1c24ce-2d1c-4d5c-9f0c-3d9b7a1f0001/3/flights__3__7__20261129T162500Z-" + digest.String()[:16] + ".parquet"}
	if h != want {
		t.Errorf("got  %+v\nwant %+v", h, want)
	}
	mustHold(t, s, testName(7), data)
	mustBeTidy(t, disk, s)

	again := openTestStore(t, disk)
	if again.StoreID() != s.StoreID() {
		t.Error("the store's id changed")
	}
	want.Verified = time.Time{} // what was proven before the restart is not remembered
	if got := again.Held(); len(got) != 1 || got[0] != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	mustHold(t, again, testName(7), data)
}

func TestPublishTwiceIsOneCopy(t *testing.T) {
	disk := vfs.NewMem()
	s := openTestStore(t, disk)
	data := randomBytes(1000)
	first := mustPublish(t, s, testName(1), data)
	if second := mustPublish(t, s, testName(1), data); second != first {
		t.Errorf("got %+v, then %+v", first, second)
	}
	mustHold(t, s, testName(1), data)
	mustBeTidy(t, disk, s)
}

func TestTwoBuildsOfOneSegmentLieSideBySide(t *testing.T) {
	disk := vfs.NewMem()
	s := openTestStore(t, disk)
	one, two := randomBytes(1000), randomBytes(1001)
	mustPublish(t, s, testName(1), one)
	mustPublish(t, s, testName(1), two)
	for range 2 {
		mustHold(t, s, testName(1), one)
		mustHold(t, s, testName(1), two)
		mustBeTidy(t, disk, s)
		s = openTestStore(t, disk)
	}
	h, _ := find(s, testName(1), one)
	if err := s.Remove(h); err != nil {
		t.Fatal(err)
	}
	mustNotHold(t, s, testName(1), one)
	mustHold(t, s, testName(1), two)
}

func TestPublishRefusesWhatDoesNotFit(t *testing.T) {
	disk := vfs.NewMem()
	s := openTestStore(t, disk)
	data := randomBytes(1000)
	pieces, digest := hashBytes(data)
	other, otherDigest := hashBytes(randomBytes(1001))
	for why, publish := range map[string]func(f vfs.File, path string) (Held, error){
		"another digest": func(f vfs.File, path string) (Held, error) {
			return s.Publish(f, path, testTable, 3, testName(1), pieces, otherDigest)
		},
		"another size": func(f vfs.File, path string) (Held, error) {
			return s.Publish(f, path, testTable, 3, testName(1), other, otherDigest)
		},
		"another partition": func(f vfs.File, path string) (Held, error) {
			return s.Publish(f, path, testTable, 4, testName(1), pieces, digest)
		},
		"no pieces": func(f vfs.File, path string) (Held, error) {
			return s.Publish(f, path, testTable, 3, testName(1), &Pieces{}, Digest{})
		},
	} {
		f, path, err := stage(s, "x", data)
		if err != nil {
			t.Fatal(err)
		}
		if h, err := publish(f, path); err == nil {
			t.Errorf("%s: accepted as %+v", why, h)
		}
		if _, err := f.Stat(); err == nil {
			t.Errorf("%s: the file was not closed", why)
		}
		if err := s.Discard(path); err != nil {
			t.Error(err)
		}
	}
	mustBeTidy(t, disk, s)
}

func TestNamesFromOutsideCannotLeaveTheStore(t *testing.T) {
	disk := vfs.NewMem()
	s := openTestStore(t, disk)
	data := randomBytes(1000)
	pieces, digest := hashBytes(data)
	before := filesBelow(t, disk, ".")
	for _, name := range badNames {
		f, staged, err := stage(s, "x", data)
		if err != nil {
			t.Fatal(err)
		}
		if h, err := s.Publish(f, staged, testTable, 3, name, pieces, digest); err == nil {
			t.Errorf("%q was published as %s", name, h.File())
		}
		if err := s.Discard(staged); err != nil {
			t.Error(err)
		}
		if h, ok := s.Get(testTable, 3, name, digest); ok {
			t.Errorf("%q was found as %s", name, h.File())
		}
		if p, err := s.DownloadPath(testTable, 3, name, digest); err == nil {
			t.Errorf("%q would be downloaded to %s", name, p)
		}
		if h, err := s.Adopt(t.Context(), testTable, 3, name, digest); err == nil {
			t.Errorf("%q was adopted as %s", name, h.File())
		}
	}
	for _, label := range []string{"", "..", "../x", "a/b", "a\\b", "a\x00", strings.Repeat("a", 201)} {
		// ".." is harmless inside the path element that it becomes part of.
		if f, p, err := s.Stage(testTable, 3, label); err == nil && label != ".." {
			t.Errorf("label %q was staged as %s", label, p)
		} else if err == nil {
			if path.Dir(p) != "staging/builds" {
				t.Errorf("label %q was staged as %s", label, p)
			}
			f.Close()
			if err := s.Discard(p); err != nil {
				t.Error(err)
			}
		}
	}
	for _, p := range []string{"", ".", "store.id", "staging/builds/../../store.id", "staging", "staging/builds", "segments/x", "../store.id", "/etc/passwd"} {
		if err := s.Discard(p); err == nil {
			t.Errorf("%q was discarded", p)
		}
	}
	if after := filesBelow(t, disk, "."); !slices.Equal(after, before) {
		t.Errorf("files before: %v, after: %v", before, after)
	}
}

func TestPinnedCopyCannotGo(t *testing.T) {
	s := openTestStore(t, vfs.NewMem())
	data := randomBytes(1000)
	h := mustPublish(t, s, testName(1), data)
	_, _, releaseOne, err := s.Open(h)
	if err != nil {
		t.Fatal(err)
	}
	f, _, releaseTwo, err := s.Open(h)
	if err != nil {
		t.Fatal(err)
	}
	releaseOne()
	releaseOne() // once more does not take the other's pin
	for _, err := range []error{s.Remove(h), s.Orphan(h, testTime)} {
		if !errors.Is(err, ErrPinned) {
			t.Errorf("got %v", err)
		}
	}
	if got, err := io.ReadAll(f); err != nil || !bytes.Equal(got, data) {
		t.Errorf("read %d bytes, %v", len(got), err)
	}
	releaseTwo()
	if err := s.Remove(h); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := s.Open(h); !errors.Is(err, ErrNotHeld) {
		t.Errorf("got %v", err)
	}
	if err := s.Remove(h); !errors.Is(err, ErrNotHeld) {
		t.Errorf("got %v", err)
	}
}

func TestHeldIsSortedByNumber(t *testing.T) {
	s := openTestStore(t, vfs.NewMem())
	seqs := []int64{10, 9, 100, 1}
	for _, seq := range seqs {
		mustPublish(t, s, testName(seq), randomBytes(10+int(seq)))
	}
	slices.Sort(seqs)
	held := s.Held()
	for i, seq := range seqs {
		if held[i].Name != testName(seq) {
			t.Errorf("at %d: %s", i, held[i].Name)
		}
	}
}

func TestStoreThatLostItsIDIsNotGivenAnother(t *testing.T) {
	disk := vfs.NewMem()
	mustPublish(t, openTestStore(t, disk), testName(1), randomBytes(10))
	if err := disk.Remove("store.id"); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenStore(disk, zerolog.Nop()); err == nil || !strings.Contains(err.Error(), "store.id") {
		t.Errorf("got %v", err)
	}
	writeRaw(t, disk, "store.id", []byte("no uuid\n"))
	if _, err := OpenStore(disk, zerolog.Nop()); err == nil || !strings.Contains(err.Error(), "store.id") {
		t.Errorf("got %v", err)
	}
}

func TestForeignFilesAreLeftAlone(t *testing.T) {
	disk := vfs.NewMem()
	s := openTestStore(t, disk)
	h := mustPublish(t, s, testName(1), randomBytes(10))
	foreign := []string{
		"segments/notes.txt", "segments/no-uuid/3/a.parquet", "segments/" + testTable.String() + "/x/a.parquet", "segments/" + testTable.String() + "/03/a.parquet",
		path.Dir(h.File()) + "/README", path.Dir(h.File()) + "/a.parquet",
		"segments/" + testTable.String() + "/4/" + path.Base(h.File()), // of another partition
		"quarantine/" + testTable.String() + "/3/a.damaged", "orphans/" + testTable.String() + "/3/a.orphan",
	}
	for _, f := range foreign {
		writeRaw(t, disk, f, []byte("x"))
	}
	s = openTestStore(t, disk)
	if held := s.Held(); len(held) != 1 {
		t.Errorf("%d copies held", len(held))
	}
	if orphans, err := s.Orphans(); err != nil || len(orphans) != 0 {
		t.Errorf("orphans: %v, %v", orphans, err)
	}
	for _, f := range foreign {
		if _, err := disk.Stat(f); err != nil {
			t.Error(err)
		}
	}
}

// On a real file system: what is served is an *os.File (sendfile), read-only.
func TestStoreOnTheOperatingSystem(t *testing.T) {
	root := t.TempDir()
	disk, err := vfs.OS(root)
	if err != nil {
		t.Fatal(err)
	}
	s := openTestStore(t, disk)
	data := randomBytes(PieceSize + 1)
	mustPublish(t, s, testName(1), data)
	s = openTestStore(t, disk)
	h := mustHold(t, s, testName(1), data)
	f, _, release, err := s.Open(h)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := f.(*os.File); !ok {
		t.Errorf("a held file is a %T", f)
	}
	if info, err := f.Stat(); err != nil || info.Mode().Perm() != 0o444 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	release()
	if err := s.Remove(h); err != nil {
		t.Fatal(err)
	}
	mustBeTidy(t, disk, s)
	if s = openTestStore(t, disk); len(s.Held()) != 0 {
		t.Errorf("held: %v", s.Held())
	}
}

// Many goroutines publish, read, verify and remove the same few copies. The end
// is whatever it is, but the index must agree with the disk, and no reader may
// ever see other bytes.
func TestStoreUnderConcurrentUse(t *testing.T) {
	disk := vfs.NewMem()
	s := openTestStore(t, disk)
	content := func(k int) []byte { return randomBytes(3000 + k) }
	expected := []error{ErrPinned, ErrNotHeld}
	check := func(what string, err error) {
		if err != nil && !slices.ContainsFunc(expected, func(e error) bool { return errors.Is(err, e) }) {
			t.Errorf("%s: %v", what, err)
		}
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 60 {
				k := (g*7 + i) % 3
				name, data := testName(int64(k)), content(k)
				h, held := find(s, name, data)
				switch {
				case !held:
					_, err := publish(s, name, data)
					check("publish", err)
				case (g+i)%5 == 0:
					check("remove", s.Remove(h))
				case (g+i)%5 == 1:
					check("orphan", s.Orphan(h, testTime))
				case (g+i)%5 == 2:
					_, err := s.Adopt(t.Context(), testTable, 3, name, h.Digest)
					check("adopt", err)
				default:
					f, _, release, err := s.Open(h)
					// Between the look at the index and the open, the copy can go.
					if check("open", err); err != nil {
						continue
					}
					if got, err := io.ReadAll(f); err != nil || !bytes.Equal(got, data) {
						t.Errorf("read %d bytes, %v", len(got), err)
					}
					release()
				}
			}
		})
	}
	wg.Wait()
	mustBeTidy(t, disk, s)
	for _, h := range s.Held() {
		if err := s.Verify(t.Context(), h); err != nil {
			t.Error(err)
		}
	}
	forget := func(held []Held) (files []string) {
		for _, h := range held {
			files = append(files, fmt.Sprint(h.File(), h.Digest, h.SizeBytes, h.State))
		}
		return files
	}
	if before, after := forget(s.Held()), forget(openTestStore(t, disk).Held()); !slices.Equal(before, after) {
		t.Errorf("held before the restart:\n%v\nafter:\n%v", before, after)
	}
}

func TestFailedFsyncIsFatalAndNothingIsReported(t *testing.T) {
	data := randomBytes(1000)
	for _, kind := range []vfs.Kind{vfs.OpSync, vfs.OpSyncDir} {
		disk := vfs.NewMem()
		failing := false
		s := openTestStore(t, vfs.WithFaults(disk, func(op vfs.Op) error {
			if failing && op.Kind == kind {
				return fs.ErrInvalid
			}
			return nil
		}))
		failing = true
		if _, err := publish(s, testName(1), data); !vfs.IsSyncError(err) {
			t.Errorf("%s: got %v", kind, err)
		}
		mustNotHold(t, s, testName(1), data)
	}
}
