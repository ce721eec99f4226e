package deepstore_test

import (
	"bytes"
	"io/fs"
	"slices"
	"testing"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/deepstore/deepstoretest"
	"github.com/shoalstore/shoal/internal/vfs"
)

// readDirs notes which directories are read.
type readDirs struct {
	vfs.FS
	names []string
}

func (r *readDirs) ReadDir(name string) ([]fs.DirEntry, error) {
	r.names = append(r.names, name)
	return r.FS.ReadDir(name)
}

// A page costs the directories that it has keys of, however many others there are: the
// leader pages through each table of each store, for ever.
func TestAPageReadsItsOwnDirectories(t *testing.T) {
	disk := &readDirs{FS: vfs.NewMem()}
	s, err := deepstore.NewDir(disk, "p", "file:///mem/p")
	must(t, err)
	var keys []string
	for _, table := range []string{"a", "a-b", "b"} {
		for seq := range int64(3) {
			o := deepstoretest.NewObject(t, table, seq, 10)
			_, err := deepstore.Upload(t.Context(), s, o.Name, bytes.NewReader(o.Data), o.Pieces)
			must(t, err)
			keys = append(keys, o.Key)
		}
	}
	for _, c := range []struct {
		prefix, after string
		limit, found  int
		want          []string
	}{
		{"", "", 100, 18, []string{"p", "p/a-b", "p/a-b/0", "p/a", "p/a/0", "p/b", "p/b/0"}},
		{"a/", "", 100, 6, []string{"p", "p/a", "p/a/0"}},
		{"a", "", 100, 12, []string{"p", "p/a-b", "p/a-b/0", "p/a", "p/a/0"}},
		{"", "", 6, 6, []string{"p", "p/a-b", "p/a-b/0"}},
		{"", keys[2], 3, 3, []string{"p", "p/a", "p/a/0", "p/b", "p/b/0"}}, // after a's last data: its sidecar, and two of b's
		{"none/", "", 5, 0, []string{"p"}},
		{"a/0/x", "", 5, 0, []string{"p", "p/a", "p/a/0"}},
		{"", "z", 5, 0, []string{"p"}},
		{"", "", 0, 0, nil},
	} {
		disk.names = nil
		page, err := s.List(t.Context(), c.prefix, c.after, c.limit)
		if err != nil || len(page) != c.found || !slices.Equal(disk.names, c.want) {
			t.Errorf("prefix %q after %q, %d: %d found, %v; read %q, want %q", c.prefix, c.after, c.limit, len(page), err, disk.names, c.want)
		}
	}
}
