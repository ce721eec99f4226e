package vfs_test

import (
	"errors"
	"io/fs"
	"math/rand"
	"strings"
	"syscall"
	"testing"

	"github.com/shoalstore/shoal/internal/vfs"
)

// stageAndPublish writes content under staging/ and publishes it as final/f.
func stageAndPublish(fsys vfs.FS, content string) error {
	for _, dir := range []string{"staging", "final"} {
		if err := fsys.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	f, err := fsys.Create("staging/f")
	if err != nil {
		return err
	}
	for chunk := range strings.SplitSeq(content, " ") {
		if _, err := f.Write([]byte(chunk)); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return vfs.Publish(fsys, f, "staging/f", "final/f")
}

func TestPublishSurvivesEveryPowerCut(t *testing.T) {
	before := vfs.NewMem()
	must(t, stageAndPublish(before, "old"))
	content := strings.Repeat("new ", 1000)
	whole := strings.ReplaceAll(content, " ", "")
	crashes, ends := 0, 0
	for crash := range vfs.CrashPoints(before, func(fsys vfs.FS) error { return stageAndPublish(fsys, content) }) {
		got := holds("final/f")(crash.Disk)
		switch {
		case crash.Done:
			ends++
			must(t, crash.Err)
			if got != whole {
				t.Fatalf("%s: %.20q", crash, got)
			}
		default:
			crashes++
			wantErr(t, crash.Err, vfs.ErrPowerCut)
			if got != "old" && got != whole {
				t.Fatalf("%s: %.20q is neither the old nor the new file", crash, got)
			}
		}
	}
	// Two MkdirAll, the file's fsync, those of the two directories.
	if crashes%5 != 0 || crashes == 0 || ends != crashes/5 {
		t.Fatalf("%d crashes and %d ends: not five points and the end", crashes, ends)
	}
}

func TestWriteFileSurvivesEveryPowerCut(t *testing.T) {
	before := vfs.NewMem()
	must(t, vfs.WriteFile(before, "f", []byte("old")))
	for crash := range vfs.CrashPoints(before, func(fsys vfs.FS) error { return vfs.WriteFile(fsys, "f", []byte("new")) }) {
		if got := read(t, crash.Disk, "f"); got != "new" && (crash.Done || got != "old") {
			t.Fatalf("%s: %q", crash, got)
		}
		must(t, vfs.WriteFile(crash.Disk, "f", []byte("again"))) // a left-over f.tmp is in nobody's way
	}
}

// TestCrashPointsFindsAMissingFsync: the loop must fail those who leave out a
// step, or it would prove nothing of those who do not.
func TestCrashPointsFindsAMissingFsync(t *testing.T) {
	for _, omit := range []vfs.Kind{vfs.OpSync, vfs.OpSyncDir} {
		found := false
		for crash := range vfs.CrashPoints(vfs.NewMem(), func(fsys vfs.FS) error {
			return stageAndPublish(without(fsys, omit), "new")
		}) {
			found = found || crash.Done && holds("final/f")(crash.Disk) != "new"
		}
		if !found {
			t.Errorf("publishing without %s passes", omit)
		}
	}
}

// without returns fsys with operations of a kind that do nothing and say that
// all is well.
func without(fsys vfs.FS, kind vfs.Kind) vfs.FS { return lazyFS{fsys, kind} }

type lazyFS struct {
	vfs.FS
	omit vfs.Kind
}

func (l lazyFS) SyncDir(name string) error {
	if l.omit == vfs.OpSyncDir {
		return nil
	}
	return l.FS.SyncDir(name)
}

func (l lazyFS) Create(name string) (vfs.File, error) {
	f, err := l.FS.Create(name)
	return lazyFile{f, l.omit}, err
}

type lazyFile struct {
	vfs.File
	omit vfs.Kind
}

func (l lazyFile) Sync() error {
	if l.omit == vfs.OpSync {
		return nil
	}
	return l.File.Sync()
}

func TestPublishNamesTheStepThatFailed(t *testing.T) {
	for _, c := range []struct {
		kind  vfs.Kind
		says  string
		fatal bool
	}{
		{vfs.OpSync, "fsync", true},
		{vfs.OpClose, "close", false},
		{vfs.OpRename, "rename", false},
		{vfs.OpSyncDir, "fsync directory", true},
	} {
		mem := vfs.NewMem()
		closed := false
		fsys := vfs.WithFaults(mem, func(op vfs.Op) error {
			closed = closed || op.Kind == vfs.OpClose
			if op.Kind == c.kind {
				return syscall.EIO
			}
			return nil
		})
		err := stageAndPublish(fsys, "new")
		wantErr(t, err, syscall.EIO)
		if !strings.Contains(err.Error(), "publish final/f: ") || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.kind, err)
		}
		if vfs.IsSyncError(err) != c.fatal {
			t.Errorf("%s: fatal %v, want %v", c.kind, vfs.IsSyncError(err), c.fatal)
		}
		if !closed {
			t.Errorf("%s: the file is left open", c.kind)
		}
		if _, err := mem.Stat("final/f"); (err == nil) != (c.kind == vfs.OpSyncDir) {
			t.Errorf("%s: final file: %v", c.kind, err)
		}
	}
}

func TestWriteFileOnAFullDisk(t *testing.T) {
	mem := vfs.NewMem()
	must(t, vfs.WriteFile(mem, "f", []byte("old")))
	full := vfs.WithSpace(mem, 4)
	err := vfs.WriteFile(full, "f", []byte("12345"))
	wantErr(t, err, syscall.ENOSPC)
	if vfs.IsSyncError(err) {
		t.Fatal("a full disk is not a failed fsync")
	}
	if got := read(t, mem, "f") + " " + list(t, mem, "."); got != "old f" {
		t.Fatalf("left: %s", got)
	}
}

func TestSpaceRunsOutInTheMiddleOfAWrite(t *testing.T) {
	full := vfs.WithSpace(vfs.NewMem(), 10)
	f, err := full.Create("f")
	must(t, err)
	n, err := f.Write([]byte("1234567"))
	if n != 7 || err != nil {
		t.Fatal(n, err)
	}
	n, err = f.WriteAt([]byte("abcdef"), 7)
	wantErr(t, err, syscall.ENOSPC)
	if n != 3 {
		t.Fatalf("wrote %d bytes, there was room for 3", n)
	}
	if free, _ := full.Free(); free != 0 {
		t.Fatalf("%d bytes free", free)
	}
	full.Add(5)
	n, err = f.Write([]byte("ABC"))
	if n != 3 || err != nil {
		t.Fatal(n, err)
	}
	if free, _ := full.Free(); free != 2 {
		t.Fatalf("%d bytes free, want 2", free)
	}
}

func TestFaultsAreAskedBeforeEachOperation(t *testing.T) {
	var seen []string
	fail := false
	mem := vfs.NewMem()
	fsys := vfs.WithFaults(mem, func(op vfs.Op) error {
		seen = append(seen, op.String())
		if fail {
			return fs.ErrPermission
		}
		return nil
	})
	act := func() (errs []error) {
		f, err := fsys.Create("f")
		errs = append(errs, err)
		if err == nil {
			_, w := f.Write([]byte("x"))
			_, r := f.ReadAt(make([]byte, 1), 0)
			errs = append(errs, w, r, f.Truncate(0), f.Sync(), f.Close())
		}
		_, open := fsys.Open("f")
		_, readDir := fsys.ReadDir(".")
		_, stat := fsys.Stat("f")
		_, lock := fsys.Lock("L")
		_, free := fsys.Free()
		return append(errs, open, readDir, stat, lock, free, fsys.Chmod("f", 0o600), fsys.SyncDir("."),
			fsys.Rename("f", "g"), fsys.Remove("g"), fsys.RemoveAll("d"), fsys.MkdirAll("d", 0o755))
	}
	for _, err := range act() {
		must(t, err)
	}
	want := "create f,write f,read f,truncate f,sync f,close f,open f,readdir .,stat f,lock L,free .,chmod f,syncdir .," +
		"rename f to g,remove g,removeall d,mkdirall d"
	if got := strings.Join(seen, ","); got != want {
		t.Fatalf("asked for\n%s\nwant\n%s", got, want)
	}
	before := tree(mem, ".")
	fail = true
	for i, err := range act() {
		if !errors.Is(err, fs.ErrPermission) {
			t.Errorf("operation %d: %v", i, err)
		}
	}
	if got := tree(mem, "."); got != before {
		t.Fatalf("refused operations had an effect: %s", got)
	}
}

// A power cut can leave a file under its temporary and its final name. The next
// write fails, or the power goes again: what was there stays.
func TestAFileUnderBothNamesIsNotWrittenInto(t *testing.T) {
	m := vfs.NewMem()
	if err := vfs.WriteFile(m, "f", []byte("old")); err != nil {
		t.Fatal(err)
	}
	noSync := vfs.WithFaults(m, func(op vfs.Op) error {
		if op.Kind == vfs.OpSyncDir {
			return errors.New("the power is about to go")
		}
		return nil
	})
	_ = vfs.WriteFile(noSync, "f", []byte("new"))
	var both *vfs.Mem
	for seed := int64(0); both == nil; seed++ {
		c := m.CrashClone(rand.New(rand.NewSource(seed)))
		tmp, err1 := vfs.ReadFile(c, "f.tmp", 10)
		f, err2 := vfs.ReadFile(c, "f", 10)
		if err1 == nil && err2 == nil && string(tmp) == "new" && string(f) == "new" {
			both = c
		}
	}
	full := vfs.WithFaults(both, func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite {
			return syscall.ENOSPC
		}
		return nil
	})
	if err := vfs.WriteFile(full, "f", []byte("newer")); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("got %v", err)
	}
	if got, err := vfs.ReadFile(both, "f", 10); err != nil || string(got) != "new" {
		t.Errorf("%q, %v; want what was there", got, err)
	}
}
