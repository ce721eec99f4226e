package stream

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestFileNamesRoundTripAndNothingElseParses(t *testing.T) {
	for _, n := range []int32{0, 7, 12345, 99999} {
		if got, ok := ParseFileName(FileName(n)); !ok || got != n {
			t.Errorf("%s parses to %d, %v", FileName(n), got, ok)
		}
	}
	for _, name := range []string{"", "partition-1.ndjson", "partition-000001.ndjson", "partition-00001.ndjson.gz",
		"partition-0000a.ndjson", "partition-+0001.ndjson", "partition--0001.ndjson", ".partition-00001.ndjson", "stream.id"} {
		if n, ok := ParseFileName(name); ok {
			t.Errorf("%q parses to %d", name, n)
		}
	}
}

func TestPartitionsAreTheFilesWithTheirCompleteLines(t *testing.T) {
	d := newDir(t)
	d.write(0, "a\nb\nc\n")
	d.write(2, "a\ntorn")
	d.write(10, "")
	d.write(1, "\n\n")
	for _, other := range []string{"input.json", "partition-3.ndjson", "partition-00004.ndjson.tmp"} {
		if err := os.WriteFile(filepath.Join(d.root, "s", other), []byte("x\n"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want := []Partition{{Partition: 0, End: 3, Epoch: "0"}, {Partition: 1, End: 2, Epoch: "0"},
		{Partition: 2, End: 1, Epoch: "0"}, {Partition: 10, End: 0, Epoch: "0"}}
	got, err := d.src.Partitions(t.Context())
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("got %v, %v\nwant %v", got, err, want)
	}

	d.setEpoch("6F1B2C7E-0B1D-4F0A-9C55-0123456789ab\n")
	d.write(2, " no more\nx")
	d.write(0, "d\n")
	want[0].End, want[2].End = 4, 2
	for i := range want {
		want[i].Epoch = "6f1b2c7e-0b1d-4f0a-9c55-0123456789ab"
	}
	got, err = d.src.Partitions(t.Context())
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("after growth got %v, %v\nwant %v", got, err, want)
	}
}

func TestEndFollowsACutAndANewFile(t *testing.T) {
	d := newDir(t)
	end := func(want int64) {
		t.Helper()
		got, err := d.src.Partitions(t.Context())
		if err != nil || len(got) != 1 || got[0].End != want {
			t.Fatalf("got %v, %v, want end %d", got, err, want)
		}
	}
	d.write(0, "1\n2\n3\ntorn")
	end(3)
	d.truncate(0, 6)
	end(3)
	d.write(0, "no\nt") // as long as what was torn, and a line
	end(4)
	d.truncate(0, 2)
	end(1)
	if err := os.Remove(d.path(0)); err != nil {
		t.Fatal(err)
	}
	d.write(0, "1\n2\n")
	end(2)
}

func TestErrorsNameTheThing(t *testing.T) {
	d := newDir(t)
	d.write(0, "a\nb\ntorn")
	elsewhere := t.TempDir()
	if err := os.WriteFile(filepath.Join(elsewhere, FileName(0)), []byte("secret\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(d.root, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(elsewhere, FileName(0)), d.path(3)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(d.path(4), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(d.path(5), 0o666); err != nil {
		t.Fatal(err)
	}
	open := func(path string, partition int32, offset int64) error {
		src, err := OpenFiles(d.root, path)
		if err != nil {
			return err
		}
		defer src.Close()
		r, err := src.Open(t.Context(), partition, offset)
		if err == nil {
			r.Close()
		}
		return err
	}
	list := func(root, path string) error {
		src, err := OpenFiles(root, path)
		if err != nil {
			return err
		}
		defer src.Close()
		_, err = src.Partitions(t.Context())
		return err
	}
	truncated := func(lines, offset int64) func(error) bool {
		return func(err error) bool {
			e, ok := errors.AsType[*TruncatedError](err)
			return ok && e.Lines == lines && e.Offset == offset && e.File == d.path(0) && !e.Rewritten
		}
	}
	noStream := func(err error) bool { return errors.Is(err, ErrNoStream) }
	any := func(error) bool { return true }
	for _, c := range []struct {
		name string
		err  error
		is   func(error) bool
		says string
	}{
		{"root missing", list(filepath.Join(d.root, "none"), "s"), noStream, filepath.Join(d.root, "none")},
		{"directory missing", list(d.root, "none"), noStream, filepath.Join(d.root, "none")},
		{"partition missing", open("s", 9, 0), noStream, d.path(9)},
		{"path upwards", list(d.root, "../s"), any, `"../s"`},
		{"path absolute", list(d.root, elsewhere), any, elsewhere},
		{"path empty", list(d.root, ""), any, `""`},
		{"directory links out", list(d.root, "link"), any, filepath.Join(d.root, "link")},
		{"file links out", open("s", 3, 0), any, d.path(3)},
		{"a directory", open("s", 4, 0), any, d.path(4)},
		{"a named pipe", open("s", 5, 0), any, d.path(5)},
		{"past the end", open("s", 0, 3), truncated(2, 3), d.path(0)},
		{"far past the end", open("s", 0, 1<<40), truncated(2, 1<<40), d.path(0)},
		{"negative", open("s", 0, -1), any, d.path(0)},
	} {
		switch {
		case c.err == nil:
			t.Errorf("%s: no error", c.name)
		case !c.is(c.err):
			t.Errorf("%s: wrong kind of error: %v", c.name, c.err)
		case !strings.Contains(c.err.Error(), c.says):
			t.Errorf("%s: %v does not name %s", c.name, c.err, c.says)
		}
	}
	for _, bad := range []string{"", "not a uuid", strings.Repeat("a", 4096)} {
		d.setEpoch(bad)
		if _, err := d.src.Partitions(t.Context()); err == nil || !strings.Contains(err.Error(), IDFile) {
			t.Errorf("stream.id %.10q: %v", bad, err)
		}
		if _, err := d.src.Open(t.Context(), 0, 0); err == nil {
			t.Errorf("stream.id %.10q: opened", bad)
		}
	}
}

func TestPartitionsEndsWithItsContext(t *testing.T) {
	d := newDir(t)
	d.write(0, "a\n")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.src.Partitions(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}
