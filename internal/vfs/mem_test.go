package vfs_test

import (
	"bytes"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/shoalstore/shoal/internal/vfs"
)

// lost is what a power cut leaves that keeps nothing it need not keep.
func lost(m *vfs.Mem) *vfs.Mem { return m.CrashClone(nil) }

// outcomes collects what tell says of many random power cuts.
func outcomes(m *vfs.Mem, tell func(*vfs.Mem) string) map[string]bool {
	seen := map[string]bool{}
	for seed := range int64(200) {
		seen[tell(m.CrashClone(rand.New(rand.NewSource(seed))))] = true
	}
	return seen
}

func same(t *testing.T, got map[string]bool, want ...string) {
	t.Helper()
	for _, w := range want {
		if !got[w] {
			t.Errorf("never seen: %q", w)
		}
		delete(got, w)
	}
	for g := range got {
		t.Errorf("must not happen: %q", g)
	}
}

func syncFile(t *testing.T, fsys vfs.FS, name string) {
	t.Helper()
	f, err := fsys.Open(name)
	must(t, err)
	must(t, vfs.Sync(f))
	must(t, f.Close())
}

func holds(name string) func(*vfs.Mem) string {
	return func(m *vfs.Mem) string {
		data, err := vfs.ReadFile(m, name, 1<<20)
		if err != nil {
			return "none"
		}
		return string(data)
	}
}

func TestCreatedAndSyncedFileMayVanishUntilItsDirectoryIsSynced(t *testing.T) {
	m := vfs.NewMem()
	write(t, m, "f", "data")
	same(t, outcomes(m, func(m *vfs.Mem) string { return list(t, m, ".") }), "", "f")
	syncFile(t, m, "f")
	same(t, outcomes(m, holds("f")), "none", "data")
	if _, err := lost(m).Stat("f"); err == nil {
		t.Fatal("the entry survived without SyncDir")
	}
	must(t, m.SyncDir("."))
	same(t, outcomes(m, holds("f")), "data")
	if got := read(t, lost(m), "f"); got != "data" {
		t.Fatalf("got %q", got)
	}
}

func TestEntryWithoutContentSync(t *testing.T) {
	m := vfs.NewMem()
	write(t, m, "f", "data")
	must(t, m.SyncDir("."))
	if got := read(t, lost(m), "f"); got != "" {
		t.Fatalf("content survived without Sync: %q", got)
	}
}

func TestRenameMayBeUndoneUntilTheDirectoryIsSynced(t *testing.T) {
	m := vfs.NewMem()
	must(t, vfs.WriteFile(m, "f", []byte("old")))
	write(t, m, "t", "new")
	syncFile(t, m, "t")
	must(t, m.SyncDir("."))
	must(t, m.Rename("t", "f"))
	same(t, outcomes(m, holds("f")), "old", "new")
	same(t, outcomes(m, func(m *vfs.Mem) string { return holds("f")(m) + " " + holds("t")(m) }),
		"old new", "new new", "new none") // never "old none": the new file would be lost
	must(t, m.SyncDir("."))
	same(t, outcomes(m, holds("f")), "new")
}

func TestRenameAcrossDirectoriesNeedsBothSynced(t *testing.T) {
	setUp := func() *vfs.Mem {
		m := vfs.NewMem()
		must(t, m.MkdirAll("a", 0o755))
		must(t, m.MkdirAll("b", 0o755))
		must(t, vfs.WriteFile(m, "a/f", []byte("x")))
		must(t, m.Rename("a/f", "b/f"))
		return m
	}
	both := func(m *vfs.Mem) string { return holds("a/f")(m) + holds("b/f")(m) }
	m := setUp()
	same(t, outcomes(m, both), "xnone", "xx", "nonex")
	must(t, m.SyncDir("b"))
	same(t, outcomes(m, both), "xx", "nonex")
	must(t, m.SyncDir("a"))
	same(t, outcomes(m, both), "nonex")
	m = setUp()
	must(t, m.SyncDir("a")) // what left a has arrived in b
	same(t, outcomes(m, both), "nonex")
}

func TestRemovalMayBeUndone(t *testing.T) {
	m := vfs.NewMem()
	must(t, m.MkdirAll("d", 0o755))
	must(t, vfs.WriteFile(m, "d/f", []byte("x")))
	must(t, vfs.WriteFile(m, "d/g", []byte("y")))
	must(t, m.RemoveAll("d"))
	if got := holds("d/f")(lost(m)) + holds("d/g")(lost(m)); got != "xy" {
		t.Fatalf("after losing the removal: %q", got)
	}
	must(t, m.SyncDir("."))
	same(t, outcomes(m, func(m *vfs.Mem) string { return list(t, m, ".") }), "")
}

func TestDirectoryRenameIsDoneOrNot(t *testing.T) {
	m := vfs.NewMem()
	must(t, m.MkdirAll("d", 0o755))
	must(t, vfs.WriteFile(m, "d/f", []byte("x")))
	must(t, m.Rename("d", "e"))
	same(t, outcomes(m, func(m *vfs.Mem) string { return list(t, m, ".") }), "d/", "e/")
	must(t, m.SyncDir("."))
	if got := read(t, lost(m), "e/f"); got != "x" {
		t.Fatalf("got %q", got)
	}
}

func TestOvertakenChangesDoNotComeBack(t *testing.T) {
	m := vfs.NewMem()
	must(t, m.MkdirAll("a", 0o755))
	must(t, m.MkdirAll("b", 0o755))
	write(t, m, "b/x", "first")
	syncFile(t, m, "b/x")
	write(t, m, "a/y", "second")
	syncFile(t, m, "a/y")
	must(t, m.Rename("a/y", "b/x"))
	must(t, m.SyncDir("a")) // brings b/x = second with it
	same(t, outcomes(m, holds("b/x")), "second")
	must(t, m.SyncDir("b"))
	same(t, outcomes(m, holds("b/x")), "second")
}

func TestUnsyncedContentIsKeptLostOrTorn(t *testing.T) {
	m := vfs.NewMem()
	f, err := m.Create("f")
	must(t, err)
	old := strings.Repeat("o", 3000)
	_, err = f.Write([]byte(old))
	must(t, err)
	must(t, f.Sync())
	must(t, m.SyncDir("."))
	_, err = f.WriteAt([]byte(strings.Repeat("n", 5000)), 1000)
	must(t, err)

	if got := read(t, lost(m), "f"); got != old {
		t.Fatal("the durable content is not what it was")
	}
	torn, short := false, false
	for content := range outcomes(m, holds("f")) {
		if len(content) < 3000 || len(content) > 6000 {
			t.Fatalf("%d bytes: neither 3000, 6000, nor between", len(content))
		}
		if content[:512] != old[:512] {
			t.Fatal("a sector that nobody wrote has changed")
		}
		short = short || len(content) > 3000 && len(content) < 6000
		torn = torn || strings.Contains(content, "\x00")
	}
	if !torn || !short {
		t.Fatalf("torn %v, short %v: neither is ever tried", torn, short)
	}
	must(t, f.Sync())
	if got := read(t, lost(m), "f"); got != old[:1000]+strings.Repeat("n", 5000) {
		t.Fatal("synced content was lost")
	}
}

func TestSameSeedSameDisk(t *testing.T) {
	m := vfs.NewMem()
	for _, name := range strings.Split("abcdefghij", "") {
		write(t, m, name, strings.Repeat(name, 2000))
	}
	tell := func() string {
		c := m.CrashClone(rand.New(rand.NewSource(7)))
		s := list(t, c, ".")
		for _, name := range strings.Fields(s) {
			s += read(t, c, name)
		}
		return s
	}
	first := tell()
	for range 10 {
		if tell() != first {
			t.Fatal("the same seed gave another disk")
		}
	}
}

func TestClonesShareNothing(t *testing.T) {
	m := vfs.NewMem()
	must(t, vfs.WriteFile(m, "f", []byte("one")))
	held, err := m.Lock("LOCK")
	must(t, err)
	defer held.Close()
	f, err := m.OpenFile("f", os.O_RDWR, 0)
	must(t, err)
	clone, crash := m.Clone(), lost(m)
	_, err = f.WriteAt([]byte("two"), 0)
	must(t, err)
	write(t, crash, "f", "three")
	for i, want := range map[int]string{0: "two", 1: "one", 2: "three"} {
		if got := read(t, []*vfs.Mem{m, clone, crash}[i], "f"); got != want {
			t.Errorf("%d holds %q, want %q", i, got, want)
		}
	}
	lock, err := clone.Lock("LOCK") // the holder died with the machine
	must(t, err)
	must(t, lock.Close())
}

// TestMemIsTheOperatingSystem does random operations on both and compares.
func TestMemIsTheOperatingSystem(t *testing.T) {
	names := []string{"a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "."}
	root, runs := t.TempDir(), 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		real, err := vfs.OS(filepath.Join(root, strconv.Itoa(runs)))
		if err != nil {
			t.Fatal(err)
		}
		defer real.(io.Closer).Close()
		mem := vfs.NewMem()
		for range rapid.IntRange(1, 30).Draw(t, "operations") {
			op := rapid.SampledFrom([]string{"write", "append", "truncate", "rename", "remove", "removeall", "mkdir", "stat", "chmod"}).Draw(t, "op")
			a, b := rapid.SampledFrom(names).Draw(t, "a"), rapid.SampledFrom(names).Draw(t, "b")
			n := rapid.IntRange(0, 9000).Draw(t, "n")
			want, got := do(real, op, a, b, n), do(mem, op, a, b, n)
			if (want == nil) != (got == nil) {
				t.Fatalf("%s %s %s %d: os says %v, mem %v", op, a, b, n, want, got)
			}
		}
		if want, got := tree(real, "."), tree(mem, "."); want != got {
			t.Fatalf("os holds\n%s\nmem\n%s", want, got)
		}
		if want, got := tree(mem, "."), tree(mem.Clone(), "."); want != got {
			t.Fatalf("mem holds\n%s\nits clone\n%s", want, got)
		}
	})
}

func do(fsys vfs.FS, op, a, b string, n int) error {
	with := func(flag int, act func(vfs.File) error) error {
		f, err := fsys.OpenFile(a, flag, 0o644)
		if err != nil {
			return err
		}
		defer f.Close()
		return act(f)
	}
	switch op {
	case "write":
		return with(os.O_RDWR|os.O_CREATE, func(f vfs.File) error { _, err := f.WriteAt(bytes.Repeat([]byte(b), 1+n%700), int64(n)); return err })
	case "append":
		return with(os.O_RDWR|os.O_APPEND, func(f vfs.File) error { _, err := f.Write(bytes.Repeat([]byte("x"), n)); return err })
	case "truncate":
		return with(os.O_RDWR, func(f vfs.File) error { return f.Truncate(int64(n)) })
	case "rename":
		return fsys.Rename(a, b)
	case "remove":
		return fsys.Remove(a)
	case "removeall":
		return fsys.RemoveAll(a)
	case "mkdir":
		return fsys.MkdirAll(a, 0o755)
	case "chmod":
		return fsys.Chmod(a, 0o700)
	}
	_, err := fsys.Stat(a)
	return err
}

// tree tells everything below name.
func tree(fsys vfs.FS, name string) string {
	entries, err := fsys.ReadDir(name)
	if err != nil {
		return err.Error()
	}
	var out strings.Builder
	for _, e := range entries {
		child := strings.TrimPrefix(name+"/"+e.Name(), "./")
		info, err := e.Info()
		if err != nil {
			return err.Error()
		}
		out.WriteString(child + " " + info.Mode().String() + "\n")
		if e.IsDir() {
			out.WriteString(tree(fsys, child))
			continue
		}
		data, err := vfs.ReadFile(fsys, child, 1<<20)
		if err != nil {
			return err.Error()
		}
		out.Write(append(data, '\n'))
	}
	return out.String()
}

func TestDurableIsWhatACrashLeaves(t *testing.T) {
	m := vfs.NewMem()
	if err := m.MkdirAll("d", 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := m.Create("d/f")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	check := func(when, want string, there bool) {
		t.Helper()
		data, ok := m.Durable("d/f")
		if string(data) != want || ok != there {
			t.Errorf("%s: %q, %v", when, data, ok)
		}
		left, err := vfs.ReadFile(m.CrashClone(nil), "d/f", 10)
		if string(left) != want || (err == nil) != there {
			t.Errorf("%s: a crash leaves %q, %v", when, left, err)
		}
	}
	check("created", "", false)
	f.WriteAt([]byte("one"), 0)
	f.Sync()
	check("synced, in a directory that is not", "", false)
	m.SyncDir("d")
	check("all the way", "one", true)
	f.WriteAt([]byte("two"), 0)
	check("written again", "one", true)
	f.Sync()
	check("and synced", "two", true)
}
