package vfs_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/shoalstore/shoal/internal/vfs"
)

// everyFS runs one test of behaviour on every implementation.
func everyFS(t *testing.T, test func(t *testing.T, fsys vfs.FS)) {
	t.Run("os", func(t *testing.T) { test(t, newOS(t)) })
	t.Run("mem", func(t *testing.T) { test(t, vfs.NewMem()) })
	t.Run("clone", func(t *testing.T) { test(t, vfs.NewMem().CrashClone(nil)) })
	t.Run("faults", func(t *testing.T) {
		test(t, vfs.WithFaults(vfs.NewMem(), func(vfs.Op) error { return nil }))
	})
	t.Run("space", func(t *testing.T) { test(t, vfs.WithSpace(newOS(t), 1<<20)) })
}

func newOS(t *testing.T) vfs.FS {
	t.Helper()
	fsys, err := vfs.OS(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fsys.(io.Closer).Close() })
	return fsys
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t *testing.T, got error, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Fatalf("got error %v, want one that is %v", got, want)
	}
}

// write puts a file there, not durably.
func write(t *testing.T, fsys vfs.FS, name, data string) {
	t.Helper()
	f, err := fsys.Create(name)
	must(t, err)
	_, err = f.Write([]byte(data))
	must(t, err)
	must(t, f.Close())
}

func read(t *testing.T, fsys vfs.FS, name string) string {
	t.Helper()
	data, err := vfs.ReadFile(fsys, name, 1<<20)
	must(t, err)
	return string(data)
}

func list(t *testing.T, fsys vfs.FS, name string) string {
	t.Helper()
	entries, err := fsys.ReadDir(name)
	must(t, err)
	var names []string
	for _, e := range entries {
		s := e.Name()
		if e.IsDir() {
			s += "/"
		}
		names = append(names, s)
	}
	return strings.Join(names, " ")
}

func TestNamesThatAreNotLocalAreRefused(t *testing.T) {
	everyFS(t, func(t *testing.T, fsys vfs.FS) {
		for _, name := range []string{"", "..", "../x", "a/../b", "/etc/passwd", "a//b", "./a", "a/", `a\b`, "a\x00b", "a/./b"} {
			_, open := fsys.Open(name)
			_, create := fsys.Create(name)
			_, readDir := fsys.ReadDir(name)
			_, stat := fsys.Stat(name)
			_, lock := fsys.Lock(name)
			for op, err := range map[string]error{
				"open": open, "create": create, "readdir": readDir, "stat": stat, "lock": lock,
				"remove": fsys.Remove(name), "removeall": fsys.RemoveAll(name), "mkdir": fsys.MkdirAll(name, 0o755),
				"chmod": fsys.Chmod(name, 0o600), "syncdir": fsys.SyncDir(name),
				"rename from": fsys.Rename(name, "x"), "rename to": fsys.Rename("x", name),
			} {
				if _, ok := errors.AsType[*fs.PathError](err); !ok {
					t.Errorf("%s %q: got %v, want a *fs.PathError", op, name, err)
				}
			}
		}
	})
}

func TestWhatIsWrittenIsReadBack(t *testing.T) {
	everyFS(t, func(t *testing.T, fsys vfs.FS) {
		f, err := fsys.Create("f")
		must(t, err)
		defer f.Close()
		_, err = f.Write([]byte("hello world"))
		must(t, err)
		_, err = f.WriteAt([]byte("HELLO"), 0)
		must(t, err)
		_, err = f.WriteAt([]byte("far"), 20)
		must(t, err)
		must(t, f.Sync())
		if got, want := read(t, fsys, "f"), "HELLO world"+strings.Repeat("\x00", 9)+"far"; got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
		at, err := f.Seek(-3, io.SeekEnd)
		must(t, err)
		rest, err := io.ReadAll(f)
		must(t, err)
		if at != 20 || string(rest) != "far" {
			t.Fatalf("at %d read %q", at, rest)
		}
		must(t, f.Truncate(5))
		must(t, f.Truncate(8))
		if got := read(t, fsys, "f"); got != "HELLO\x00\x00\x00" {
			t.Fatalf("after truncating: %q", got)
		}
		info, err := f.Stat()
		must(t, err)
		if info.Size() != 8 || info.IsDir() {
			t.Fatalf("stat: %d bytes, dir %v", info.Size(), info.IsDir())
		}
	})
}

func TestReadAtTheEnd(t *testing.T) {
	everyFS(t, func(t *testing.T, fsys vfs.FS) {
		write(t, fsys, "f", "0123456789")
		f, err := fsys.Open("f")
		must(t, err)
		defer f.Close()
		b := make([]byte, 4)
		n, err := f.ReadAt(b, 8)
		if n != 2 || err != io.EOF {
			t.Fatalf("ReadAt over the end: %d, %v", n, err)
		}
		n, err = f.ReadAt(b, 6)
		if n != 4 || err != nil {
			t.Fatalf("ReadAt up to the end: %d, %v", n, err)
		}
		if _, err = f.ReadAt(b, 100); err != io.EOF {
			t.Fatalf("ReadAt past the end: %v", err)
		}
		if _, err = f.ReadAt(b, -1); err == nil {
			t.Fatal("ReadAt of a negative offset succeeds")
		}
		_, err = f.Seek(0, io.SeekEnd)
		must(t, err)
		if n, err = f.Read(b); n != 0 || err != io.EOF {
			t.Fatalf("Read at the end: %d, %v", n, err)
		}
	})
}

func TestOpenFlags(t *testing.T) {
	everyFS(t, func(t *testing.T, fsys vfs.FS) {
		_, err := fsys.Open("f")
		wantErr(t, err, fs.ErrNotExist)
		_, err = fsys.Create("nowhere/f")
		wantErr(t, err, fs.ErrNotExist)
		write(t, fsys, "f", "one")
		_, err = fsys.Open("f/below")
		if err == nil {
			t.Fatal("a file has files below it")
		}
		_, err = fsys.OpenFile("f", os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o644)
		wantErr(t, err, fs.ErrExist)

		f, err := fsys.OpenFile("f", os.O_WRONLY|os.O_APPEND, 0)
		must(t, err)
		_, err = f.Write([]byte(" two"))
		must(t, err)
		if _, err := f.Read(make([]byte, 1)); err == nil {
			t.Fatal("reading a file opened for writing succeeds")
		}
		must(t, f.Close())
		if got := read(t, fsys, "f"); got != "one two" {
			t.Fatalf("appended: %q", got)
		}
		f, err = fsys.Open("f")
		must(t, err)
		if _, err := f.Write([]byte("x")); err == nil {
			t.Fatal("writing a file opened for reading succeeds")
		}
		must(t, f.Close())
		wantErr(t, f.Close(), fs.ErrClosed)
		_, err = f.Read(make([]byte, 1))
		wantErr(t, err, fs.ErrClosed)
		write(t, fsys, "f", "3")
		if got := read(t, fsys, "f"); got != "3" {
			t.Fatalf("created again: %q", got)
		}
	})
}

func TestRenameReplaces(t *testing.T) {
	everyFS(t, func(t *testing.T, fsys vfs.FS) {
		wantErr(t, fsys.Rename("a", "b"), fs.ErrNotExist)
		write(t, fsys, "a", "new")
		write(t, fsys, "b", "old")
		old, err := fsys.Open("b")
		must(t, err)
		defer old.Close()
		must(t, fsys.Rename("a", "b"))
		if got := read(t, fsys, "b"); got != "new" {
			t.Fatalf("b holds %q", got)
		}
		// A reader of the replaced file goes on reading that.
		data, err := io.ReadAll(old)
		must(t, err)
		if string(data) != "old" {
			t.Fatalf("the open file holds %q", data)
		}
		if got := list(t, fsys, "."); got != "b" {
			t.Fatalf("left: %s", got)
		}
		must(t, fsys.MkdirAll("d/e", 0o755))
		must(t, fsys.Rename("b", "d/e/b"))
		must(t, fsys.Rename("d/e", "f"))
		if got := list(t, fsys, ".") + "|" + list(t, fsys, "f") + "|" + list(t, fsys, "d"); got != "d/ f/|b|" {
			t.Fatalf("after moving a directory: %s", got)
		}
		must(t, fsys.MkdirAll("full/x", 0o755))
		for _, names := range [][2]string{{"f", "full"}, {"f/b", "full"}, {"f", "f/b"}, {"f", "f/below"}, {"f", "nowhere/x"}} {
			if err := fsys.Rename(names[0], names[1]); err == nil {
				t.Errorf("rename of %s to %s succeeds", names[0], names[1])
			}
		}
	})
}

func TestRemove(t *testing.T) {
	everyFS(t, func(t *testing.T, fsys vfs.FS) {
		must(t, fsys.MkdirAll("d/e", 0o755))
		write(t, fsys, "d/e/f", "x")
		if err := fsys.Remove("d/e"); err == nil {
			t.Fatal("removed a directory that is not empty")
		}
		wantErr(t, fsys.Remove("d/none"), fs.ErrNotExist)
		must(t, fsys.Remove("d/e/f"))
		must(t, fsys.Remove("d/e"))
		write(t, fsys, "d/g", "x")
		must(t, fsys.RemoveAll("d"))
		must(t, fsys.RemoveAll("d"))
		if got := list(t, fsys, "."); got != "" {
			t.Fatalf("left: %s", got)
		}
		if err := fsys.RemoveAll("."); err == nil {
			t.Fatal("removed the root")
		}
	})
}

func TestDirectories(t *testing.T) {
	everyFS(t, func(t *testing.T, fsys vfs.FS) {
		must(t, fsys.MkdirAll(".", 0o755))
		must(t, fsys.MkdirAll("b/c", 0o755))
		must(t, fsys.MkdirAll("b/c", 0o755))
		write(t, fsys, "a", "")
		if err := fsys.MkdirAll("a", 0o755); err == nil {
			t.Fatal("made a directory over a file")
		}
		if err := fsys.MkdirAll("a/x", 0o755); err == nil {
			t.Fatal("made a directory below a file")
		}
		for _, name := range []string{"z", "m", "k"} {
			write(t, fsys, "b/"+name, name)
		}
		if got := list(t, fsys, "b"); got != "c/ k m z" {
			t.Fatalf("b: %s", got)
		}
		_, err := fsys.ReadDir("none")
		wantErr(t, err, fs.ErrNotExist)
		if _, err := fsys.ReadDir("a"); err == nil {
			t.Fatal("listed a file")
		}
		must(t, fsys.SyncDir("b"))
		must(t, fsys.SyncDir("."))
		wantErr(t, fsys.SyncDir("none"), fs.ErrNotExist)
		if _, err := fsys.Create("b"); err == nil {
			t.Fatal("created a file over a directory")
		}
		entries, err := fsys.ReadDir("b")
		must(t, err)
		i := slices.IndexFunc(entries, func(e fs.DirEntry) bool { return e.Name() == "m" })
		info, err := entries[i].Info()
		must(t, err)
		if info.Size() != 1 {
			t.Fatalf("m has %d bytes", info.Size())
		}
	})
}

func TestChmod(t *testing.T) {
	everyFS(t, func(t *testing.T, fsys vfs.FS) {
		write(t, fsys, "f", "x")
		must(t, fsys.Chmod("f", 0o444))
		info, err := fsys.Stat("f")
		must(t, err)
		if info.Mode() != 0o444 || info.Name() != "f" {
			t.Fatalf("%s has mode %v", info.Name(), info.Mode())
		}
		wantErr(t, fsys.Chmod("none", 0o444), fs.ErrNotExist)
	})
}

func TestLockIsExclusive(t *testing.T) {
	everyFS(t, func(t *testing.T, fsys vfs.FS) {
		lock, err := fsys.Lock("LOCK")
		must(t, err)
		_, err = fsys.Lock("LOCK")
		wantErr(t, err, vfs.ErrLocked)
		other, err := fsys.Lock("OTHER")
		must(t, err)
		defer other.Close()
		must(t, lock.Close())
		again, err := fsys.Lock("LOCK")
		must(t, err)
		must(t, again.Close())
	})
}

func TestFreeIsPositive(t *testing.T) {
	everyFS(t, func(t *testing.T, fsys vfs.FS) {
		free, err := fsys.Free()
		must(t, err)
		if free <= 0 {
			t.Fatalf("%d bytes free", free)
		}
		if fsys.String() == "" {
			t.Fatal("the root has no name")
		}
	})
}

func TestWholeFiles(t *testing.T) {
	everyFS(t, func(t *testing.T, fsys vfs.FS) {
		must(t, vfs.WriteFile(fsys, "f", []byte("one")))
		must(t, vfs.WriteFile(fsys, "f", []byte("two")))
		must(t, vfs.WriteFile(fsys, "empty", nil))
		if got := read(t, fsys, "f") + read(t, fsys, "empty"); got != "two" {
			t.Fatalf("got %q", got)
		}
		if got := list(t, fsys, "."); got != "empty f" {
			t.Fatalf("left: %s", got)
		}
		if _, err := vfs.ReadFile(fsys, "f", 2); err == nil {
			t.Fatal("read a file larger than allowed")
		}
		_, err := vfs.ReadFile(fsys, "none", 10)
		wantErr(t, err, fs.ErrNotExist)
	})
}
