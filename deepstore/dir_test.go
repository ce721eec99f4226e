package deepstore_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/deepstore/deepstoretest"
	"github.com/shoalstore/shoal/internal/vfs"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestDirOnTheOperatingSystem(t *testing.T) {
	roots := map[deepstore.Store]string{}
	deepstoretest.Run(t, deepstoretest.Harness{
		New: func(t *testing.T) deepstore.Store {
			root := t.TempDir()
			uri, err := deepstore.FileURI(filepath.Join(root, "deep", "store"))
			must(t, err)
			s, err := deepstore.Open(uri, []string{t.TempDir(), root}, deepstore.S3Config{})
			must(t, err)
			roots[s] = filepath.Join(root, "deep", "store")
			return s
		},
		Damage: func(t *testing.T, s deepstore.Store, key string) {
			name := filepath.Join(roots[s], key)
			data, err := os.ReadFile(name)
			must(t, err)
			data[len(data)/2] ^= 0x10
			must(t, os.WriteFile(name, data, 0o644))
		},
	})
}

func TestDirInMemory(t *testing.T) {
	disks := map[deepstore.Store]*vfs.Mem{}
	deepstoretest.Run(t, deepstoretest.Harness{
		New: func(t *testing.T) deepstore.Store {
			mem := vfs.NewMem()
			s, err := deepstore.NewDir(mem, "p", "file:///mem/p")
			must(t, err)
			disks[s] = mem
			return s
		},
		Damage: func(t *testing.T, s deepstore.Store, key string) { flip(t, disks[s], "p/"+key) },
	})
}

func flip(t *testing.T, fsys vfs.FS, name string) {
	f, err := fsys.OpenFile(name, os.O_RDWR, 0)
	must(t, err)
	var b [1]byte
	_, err = f.ReadAt(b[:], 3)
	must(t, err)
	b[0] ^= 1
	_, err = f.WriteAt(b[:], 3)
	must(t, err)
	must(t, f.Close())
}

// Whenever the power goes during an upload, what stands afterwards is right or
// absent, data never stands without its sidecar, what an upload promised is
// there, and another upload finishes the job.
func TestDirSurvivesPowerCuts(t *testing.T) {
	o := deepstoretest.NewObject(t, "flights", 7, 9000)
	upload := func(fsys vfs.FS) error {
		s, err := deepstore.NewDir(fsys, ".", "file:///mem")
		if err != nil {
			return err
		}
		_, err = deepstore.Upload(context.Background(), s, o.Name, bytes.NewReader(o.Data), o.Pieces)
		return err
	}
	for crash := range vfs.CrashPoints(vfs.NewMem(), upload) {
		s, err := deepstore.NewDir(crash.Disk, ".", "file:///mem")
		must(t, err)
		ctx := context.Background()
		err = deepstore.VerifySegment(ctx, s, o.Key, 9000, o.Digest)
		dataErr := s.Verify(ctx, o.Key, 9000, o.Digest)
		switch {
		case err == nil:
		case crash.Done:
			t.Errorf("%s: the upload had succeeded: %v", crash, err)
		case !errors.Is(dataErr, deepstore.ErrNotFound):
			t.Errorf("%s: data stands (%v) but the segment does not verify: %v", crash, dataErr, err)
		}
		if err := upload(crash.Disk); err != nil {
			t.Errorf("%s: uploading again: %v", crash, err)
		}
		must(t, deepstore.VerifySegment(ctx, s, o.Key, 9000, o.Digest))
	}
}

func TestDirWithFullDisk(t *testing.T) {
	mem := vfs.NewMem()
	space := vfs.WithSpace(mem, 4000)
	s, err := deepstore.NewDir(space, ".", "file:///mem")
	must(t, err)
	o := deepstoretest.NewObject(t, "flights", 7, 9000)
	_, err = deepstore.Upload(context.Background(), s, o.Name, bytes.NewReader(o.Data), o.Pieces)
	if err == nil || !strings.Contains(err.Error(), "no space left") || !strings.Contains(err.Error(), o.Key) {
		t.Errorf("on a full disk: %v", err)
	}
	if entries, err := mem.ReadDir(".uploads"); err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	space.Add(20_000)
	_, err = deepstore.Upload(context.Background(), s, o.Name, bytes.NewReader(o.Data), o.Pieces)
	must(t, err)
}

func TestDirSweepsOldUploadsOnly(t *testing.T) {
	dir := t.TempDir()
	uploads := filepath.Join(dir, ".uploads")
	must(t, os.Mkdir(uploads, 0o755))
	old, young := filepath.Join(uploads, "old"), filepath.Join(uploads, "young")
	for _, name := range []string{old, young} {
		must(t, os.WriteFile(name, []byte("half"), 0o644))
	}
	past := time.Now().Add(-25 * time.Hour)
	must(t, os.Chtimes(old, past, past))
	fsys, err := vfs.OS(dir)
	must(t, err)
	_, err = deepstore.NewDir(fsys, ".", "file://"+dir)
	must(t, err)
	if _, err := os.Stat(old); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a day-old upload is still there")
	}
	if _, err := os.Stat(young); err != nil {
		t.Error("an upload that may still run was swept")
	}
}

func TestOpen(t *testing.T) {
	root := t.TempDir()
	for _, test := range []struct {
		uri  string
		want error // nil: any error
		says string
	}{
		{"s3://bucket/prefix", deepstore.ErrNotAllowed, "s3://bucket/prefix"},
		{"file://" + filepath.Dir(root), deepstore.ErrNotAllowed, root},
		{"file://" + root + "2", deepstore.ErrNotAllowed, root},
		{"file://" + root + "/../x", nil, ".."},
		{"file:///", deepstore.ErrNotAllowed, ""},
		{"file://host/x", nil, "three slashes"},
		{"file://" + root + "?x=1", nil, "nothing after it"},
		{"file:relative", nil, "file:///dir"},
		{"ftp://x/y", nil, "file:///dir"},
		{root, nil, "file:///dir"},
		{"", nil, "file:///dir"},
		{"://", nil, ""},
	} {
		_, err := deepstore.Open(test.uri, []string{root}, deepstore.S3Config{})
		if err == nil || test.want != nil && !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("Open(%q): %v, want %v that says %q", test.uri, err, test.want, test.says)
		}
		if err := deepstore.CheckURI(test.uri, []string{root}); err == nil {
			t.Errorf("CheckURI(%q) finds no fault", test.uri)
		}
	}
	_, err := deepstore.Open("file:///x", nil, deepstore.S3Config{})
	if !errors.Is(err, deepstore.ErrNotAllowed) {
		t.Errorf("Open without roots: %v", err)
	}
	for _, uri := range []string{"file://" + root, "file://" + root + "/a/b/"} {
		must(t, deepstore.CheckURI(uri, []string{root}))
		s, err := deepstore.Open(uri, []string{root}, deepstore.S3Config{})
		must(t, err)
		if s.String() != strings.TrimSuffix(uri, "/") {
			t.Errorf("store of %s calls itself %s", uri, s)
		}
	}
}

// A symbolic link inside the root that points out of it must not let a table's
// configuration write elsewhere.
func TestOpenDoesNotFollowLinksOut(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	must(t, os.Symlink(outside, filepath.Join(root, "link")))
	if _, err := deepstore.Open("file://"+root+"/link", []string{root}, deepstore.S3Config{}); err == nil {
		t.Error("opened a store behind a link that leaves the root")
	}
	if entries, _ := os.ReadDir(outside); len(entries) != 0 {
		t.Errorf("written outside: %v", entries)
	}
}

func TestKeysRoundTrip(t *testing.T) {
	o := deepstoretest.NewObject(t, "a.b-c", 12, 10)
	k, err := deepstore.ParseKey(o.Key)
	must(t, err)
	if k.Name.String() != o.Name || k.Short != o.Digest.Short() || k.Pieces {
		t.Errorf("%s parses as %+v", o.Key, k)
	}
	k, err = deepstore.ParseKey(deepstore.PiecesKey(o.Key))
	must(t, err)
	if k.Name.String() != o.Name || !k.Pieces {
		t.Errorf("sidecar's key parses as %+v", k)
	}
	uri := deepstore.URI("file:///x/", o.Key)
	if uri != "file:///x/"+o.Key {
		t.Errorf("URI is %s", uri)
	}
	key, err := deepstore.KeyOf("file:///x", uri)
	must(t, err)
	if key != o.Key {
		t.Errorf("KeyOf gives %s", key)
	}
	for _, uri := range []string{"file:///y/" + o.Key, "file:///x/../" + o.Key, "file:///x2/" + o.Key, ""} {
		if _, err := deepstore.KeyOf("file:///x", uri); !errors.Is(err, deepstore.ErrBadKey) {
			t.Errorf("KeyOf(%q): %v", uri, err)
		}
	}
}
