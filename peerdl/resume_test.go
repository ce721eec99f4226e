package peerdl

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"testing"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/segment"
)

// The power goes at every fsync of a download. Whatever the disk kept, the next
// start continues to the right bytes, and of the pieces that had been fetched no
// more than the unsynced window (here two) is fetched again. A download that
// had reported success is there in full.
func TestDownloadSurvivesPowerCuts(t *testing.T) {
	b := newBlob(t, vfs.NewMem(), 3*piece+1000)
	cfg := testConfig(t)
	cfg.Unsynced = 2
	d := NewDownloader(cfg)
	var fetched int64
	work := func(fsys vfs.FS) error {
		fetched = 0
		src := &memSource{blob: b}
		if err := fsys.MkdirAll("dir", 0o755); err != nil {
			return err
		}
		req := b.request(fsys, Source{Fetcher: src})
		req.Part = "dir/x.part"
		req.Progress = func(p Progress) { fetched = p.HeldBytes }
		res, err := d.Download(context.Background(), req)
		if err != nil {
			return err
		}
		return res.File.Close()
	}
	for crash := range vfs.CrashPoints(vfs.NewMem(), work) {
		had := fetched
		if err := crash.Disk.MkdirAll("dir", 0o755); err != nil {
			t.Fatal(err)
		}
		req := b.request(crash.Disk, Source{Fetcher: &memSource{blob: b}})
		req.Part = "dir/x.part"
		res := download(t, d, b, req)
		if lost := had - res.Stats.ResumedBytes; lost > 2*piece {
			t.Errorf("%s: %d bytes are fetched again", crash, lost)
		}
		if crash.Done && res.Stats.ResumedBytes != b.Size() {
			t.Errorf("%s: only %d bytes were durable", crash, res.Stats.ResumedBytes)
		}
	}
}

// partial leaves a download of b with the first pieces held, and not a byte more:
// the source falls silent behind them, until the download is given up.
func partial(t *testing.T, b *blob, fsys vfs.FS, pieces int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	src := &memSource{blob: b}
	src.fetch = func(ctx context.Context, off, n int64) (io.ReadCloser, error) {
		if off >= int64(pieces)*piece {
			return hang{ctx}, nil
		}
		return src.good(off, n), nil
	}
	req := b.request(fsys, Source{Fetcher: src})
	req.Progress = func(p Progress) {
		if p.HeldBytes >= int64(pieces)*piece {
			cancel()
		}
	}
	cfg := testConfig(t)
	cfg.Workers, cfg.Unsynced = 1, 1
	if _, err := NewDownloader(cfg).Download(ctx, req); !errors.Is(err, context.Canceled) {
		t.Fatalf("the first part of the download: %v", err)
	}
}

func TestResume(t *testing.T) {
	b := newBlob(t, vfs.NewMem(), 3*piece+5)
	other := newBlob(t, vfs.NewMem(), 3*piece+6)
	journal := JournalName("x.part")
	for _, test := range []struct {
		name   string
		change func(*vfs.Mem) error
		pieces int  // held and believed
		list   bool // the piece list is asked for again
	}{
		{"as it was left", func(*vfs.Mem) error { return nil }, 2, false},
		{"a bit has flipped in the .part", func(m *vfs.Mem) error { return poke(m, "x.part", piece+77) }, 1, false},
		{"the .part is cut", func(m *vfs.Mem) error { return resize(m, "x.part", 2*piece-1) }, 1, false},
		{"the .part is too long", func(m *vfs.Mem) error { return resize(m, "x.part", 9*piece) }, 2, false},
		{"the .part is gone", func(m *vfs.Mem) error { return m.Remove("x.part") }, 0, false},
		{"the journal is gone", func(m *vfs.Mem) error { return m.Remove(journal) }, 2, true},
		{"a bit has flipped in the journal", func(m *vfs.Mem) error { return poke(m, journal, 70) }, 2, true},
		{"the journal is cut", func(m *vfs.Mem) error { return resize(m, journal, 20) }, 2, true},
		{"the journal is of something else", func(m *vfs.Mem) error { return writeJournal(m, "x.part", other.digest, other.pieces) }, 2, true},
		{"the .part holds something else", func(m *vfs.Mem) error { return vfs.WriteFile(m, "x.part", other.data) }, 0, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			mem := vfs.NewMem()
			partial(t, b, mem, 2)
			if err := test.change(mem); err != nil {
				t.Fatal(err)
			}
			src := &memSource{blob: b}
			var reserved int64
			req := b.request(mem, Source{Fetcher: &countingLists{memSource: src}})
			req.Reserve = func(n int64) (func(), error) { reserved = n; return func() {}, nil }
			res := download(t, NewDownloader(testConfig(t)), b, req)
			if want := int64(test.pieces) * piece; res.Stats.ResumedBytes != want || res.Stats.FetchedBytes != b.Size()-want || reserved != b.Size()-want {
				t.Errorf("stats %+v, reserved %d, want %d resumed", res.Stats, reserved, want)
			}
			lists := req.Sources[0].Fetcher.(*countingLists).lists
			if (lists > 0) != test.list {
				t.Errorf("the piece list was fetched %d times", lists)
			}
		})
	}
}

// A publish that was killed after it made the .part read-only, before its rename.
func TestResumeOfAReadOnlyPart(t *testing.T) {
	b := newBlob(t, vfs.NewMem(), 100)
	mem := vfs.NewMem()
	if err := vfs.WriteFile(mem, "x.part", b.data); err != nil {
		t.Fatal(err)
	}
	if err := mem.Chmod("x.part", 0o444); err != nil {
		t.Fatal(err)
	}
	// As the operating system does for anyone but root.
	fsys := vfs.WithFaults(mem, func(op vfs.Op) error {
		if info, err := mem.Stat("x.part"); op.Name == "x.part" && op.Kind == vfs.OpCreate && err == nil && info.Mode()&0o200 == 0 {
			return fs.ErrPermission
		}
		return nil
	})
	res := download(t, NewDownloader(testConfig(t)), b, b.request(fsys, Source{Fetcher: &memSource{blob: b}}))
	if res.Stats.ResumedBytes != 100 {
		t.Errorf("stats %+v", res.Stats)
	}
}

func poke(m *vfs.Mem, name string, off int64) error {
	f, err := m.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	var b [1]byte
	_, err = f.ReadAt(b[:], off)
	if err == nil {
		b[0] ^= 0x80
		_, err = f.WriteAt(b[:], off)
	}
	return errors.Join(err, f.Close())
}

func resize(m *vfs.Mem, name string, size int64) error {
	f, err := m.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(size), f.Close())
}

func TestJournalRoundTrips(t *testing.T) {
	b := newBlob(t, vfs.NewMem(), 2*piece+1)
	mem := vfs.NewMem()
	if err := writeJournal(mem, "x.part", b.digest, b.pieces); err != nil {
		t.Fatal(err)
	}
	pieces, err := readJournal(mem, "x.part", b.digest, b.Size())
	if err != nil || pieces.Count() != 3 {
		t.Fatalf("%v, %v", pieces, err)
	}
	if _, err := readJournal(mem, "x.part", b.digest, b.Size()-1); err == nil {
		t.Error("a journal of another size was taken")
	}
}

func FuzzJournal(f *testing.F) {
	pieces, digest, err := segment.HashFile(bytes.NewReader([]byte("some bytes")), 10)
	if err != nil {
		f.Fatal(err)
	}
	good, err := encodeJournal(digest, pieces)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:journalHeaderSize])
	f.Add([]byte(journalMagic))
	f.Fuzz(func(t *testing.T, data []byte) {
		digest, pieces, err := decodeJournal(data)
		if err != nil {
			return
		}
		if root, err := pieces.Root(); err != nil || root != digest {
			t.Fatalf("accepted a list of %s for %s", root, digest)
		}
		if again, err := encodeJournal(digest, pieces); err != nil || !bytes.Equal(again, data) {
			t.Fatalf("%x decodes, and encodes as %x (%v)", data, again, err)
		}
	})
}

// countingLists counts how often the piece list is asked for.
type countingLists struct {
	*memSource
	lists int
}

func (c *countingLists) Pieces(ctx context.Context) (io.ReadCloser, error) {
	c.lists++
	return c.memSource.Pieces(ctx)
}
