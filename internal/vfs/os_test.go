package vfs_test

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/shoalstore/shoal/internal/vfs"
)

// lockEnv makes the test binary a process that locks a directory and waits.
const lockEnv = "VFS_TEST_LOCK_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(lockEnv); dir != "" {
		fsys, err := vfs.OS(dir)
		if err == nil {
			_, err = fsys.Lock("LOCK")
		}
		if err != nil {
			os.Stdout.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Stdout.WriteString("locked\n")
		io.Copy(io.Discard, os.Stdin) // until killed, or the parent is gone
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestLockEndsWithItsProcess(t *testing.T) {
	dir := t.TempDir()
	other := exec.Command(os.Args[0])
	other.Env = append(os.Environ(), lockEnv+"="+dir)
	stdin, err := other.StdinPipe()
	must(t, err)
	defer stdin.Close()
	stdout, err := other.StdoutPipe()
	must(t, err)
	must(t, other.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if line != "locked\n" {
		t.Fatalf("the other process says %q, %v", line, err)
	}
	fsys, err := vfs.OS(dir)
	must(t, err)
	_, err = fsys.Lock("LOCK")
	wantErr(t, err, vfs.ErrLocked)
	must(t, other.Process.Kill())
	other.Wait() // an error: it was killed
	lock, err := fsys.Lock("LOCK")
	must(t, err)
	must(t, lock.Close())
}

func TestRootIsMade(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	for range 2 {
		fsys, err := vfs.OS(dir)
		must(t, err)
		must(t, vfs.WriteFile(fsys, "f", []byte("x")))
		must(t, fsys.(io.Closer).Close())
	}
	if _, err := vfs.OS(filepath.Join(dir, "f")); err == nil {
		t.Fatal("a file serves as root")
	}
	if _, err := vfs.OS(filepath.Join(dir, "f", "below")); err == nil {
		t.Fatal("a root was made below a file")
	}
}

func TestLinksDoNotLeadOutside(t *testing.T) {
	outside := t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("x"), 0o644))
	root := t.TempDir()
	must(t, os.Symlink(outside, filepath.Join(root, "link")))
	fsys, err := vfs.OS(root)
	must(t, err)
	if _, err := fsys.Open("link/secret"); err == nil {
		t.Fatal("read through a link out of the root")
	}
	if _, err := fsys.Create("link/new"); err == nil {
		t.Fatal("wrote through a link out of the root")
	}
	if err := fsys.RemoveAll("link"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(outside, "secret")); err != nil {
		t.Fatal("removing the link removed what it pointed to")
	}
}

func TestFilesAreTheOperatingSystemsOwn(t *testing.T) {
	fsys := newOS(t)
	write(t, fsys, "f", "x")
	f, err := fsys.Open("f")
	must(t, err)
	defer f.Close()
	if _, ok := f.(*os.File); !ok {
		t.Fatalf("%T: the kernel cannot send it", f)
	}
	if f, err := fsys.Open("none"); f != nil || err == nil {
		t.Fatalf("a missing file opens as %v, %v", f, err)
	}
}

// A lock whose file each holder removes is held by one at a time all the same.
func TestLockThatIsRemovedByItsHolder(t *testing.T) {
	fsys, err := vfs.OS(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	const tries = 5000
	var holders, together, taken atomic.Int32
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range tries {
				lock, err := fsys.Lock("L")
				if errors.Is(err, vfs.ErrLocked) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				taken.Add(1)
				if holders.Add(1) > 1 {
					together.Add(1)
				}
				runtime.Gosched()
				holders.Add(-1)
				if err := errors.Join(fsys.Remove("L"), lock.Close()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if together.Load() != 0 || taken.Load() == 0 {
		t.Errorf("taken %d times, %d of them while another had it", taken.Load(), together.Load())
	}
}
