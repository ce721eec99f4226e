package deepstore_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/deepstore/deepstoretest"
	"github.com/shoalstore/shoal/internal/vfs"
)

// An upload may be killed, or fail, between its rename and the fsync of the directory.
// The next one finds the object, and what it promises is that it is durable.
func TestDirWhatIsAdoptedIsDurable(t *testing.T) {
	o := deepstoretest.NewObject(t, "flights", 7, 9000)
	put := func(s deepstore.Store) error {
		return s.Put(t.Context(), o.Key, bytes.NewReader(o.Data), int64(len(o.Data)), o.Digest)
	}
	away := errors.New("away")
	for _, kind := range []vfs.Kind{vfs.OpSync, vfs.OpSyncDir} {
		t.Run(string(kind), func(t *testing.T) {
			mem, failing := vfs.NewMem(), false
			broken, err := deepstore.NewDir(vfs.WithFaults(mem, func(op vfs.Op) error {
				if failing && op.Kind == kind {
					return away
				}
				return nil
			}), "p", "file:///mem/p")
			must(t, err)
			s, err := deepstore.NewDir(mem, "p", "file:///mem/p")
			must(t, err)
			failing = true
			if kind == vfs.OpSyncDir {
				if err := put(broken); !errors.Is(err, away) {
					t.Fatal(err)
				}
			} else { // put there by hand, without a thought of power cuts
				must(t, mem.MkdirAll(filepath.Dir("p/"+o.Key), 0o755))
				must(t, write(mem, "p/"+o.Key, o.Data))
			}
			must(t, s.Verify(t.Context(), o.Key, int64(len(o.Data)), o.Digest)) // it is there
			if err := put(broken); !errors.Is(err, away) {
				t.Errorf("adopted without an fsync: %v", err)
			}
			must(t, put(s))
			after, err := deepstore.NewDir(mem.CrashClone(nil), "p", "file:///mem/p")
			must(t, err)
			if err := after.Verify(t.Context(), o.Key, int64(len(o.Data)), o.Digest); err != nil {
				t.Errorf("after a power cut: %v", err)
			}
		})
	}
}

func write(fsys vfs.FS, name string, data []byte) error {
	f, err := fsys.Create(name)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// Somebody tidied up, and took a directory along that has no meaning to people.
func TestDirPutsWithoutItsDirectoryOfUploads(t *testing.T) {
	o := deepstoretest.NewObject(t, "flights", 7, 9000)
	mem := vfs.NewMem()
	s, err := deepstore.NewDir(mem, "p", "file:///mem/p")
	must(t, err)
	must(t, mem.RemoveAll("p/.uploads"))
	_, err = deepstore.Upload(t.Context(), s, o.Name, bytes.NewReader(o.Data), o.Pieces)
	must(t, err)
}

// What cannot be swept, because it is another user's or a directory that somebody made
// there, is told by Sweep. It keeps neither the store from being used nor the rest from
// being swept.
func TestDirWithLeftoversThatStay(t *testing.T) {
	dir := t.TempDir()
	uploads := filepath.Join(dir, ".uploads")
	must(t, os.MkdirAll(filepath.Join(uploads, "mine", "here"), 0o755))
	must(t, os.WriteFile(filepath.Join(uploads, "old"), []byte("half"), 0o644))
	past := time.Now().Add(-25 * time.Hour)
	for _, name := range []string{"mine", "old"} {
		must(t, os.Chtimes(filepath.Join(uploads, name), past, past))
	}
	fsys, err := vfs.OS(dir)
	must(t, err)
	s, err := deepstore.NewDir(fsys, ".", "file://"+dir)
	must(t, err)
	if _, err := os.Stat(filepath.Join(uploads, "old")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a day-old upload is still there: %v", err)
	}
	must(t, os.WriteFile(filepath.Join(uploads, "old"), []byte("half"), 0o644))
	must(t, os.Chtimes(filepath.Join(uploads, "old"), past, past))
	if swept, err := s.(deepstore.Sweeper).Sweep(context.Background(), deepstore.SweepAge); swept != 1 || err == nil {
		t.Errorf("%d swept, %v", swept, err)
	}
}
