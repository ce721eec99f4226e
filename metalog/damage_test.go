package metalog

import (
	"errors"
	"fmt"
	"math/rand"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
)

// damagedDirectory is a log in several files that begins at an offset above 0, two snapshots
// that it goes on from, and the images of its history.
func damagedDirectory(t *testing.T) (disk *vfs.Mem, history []*meta.Image) {
	t.Helper()
	disk = vfs.NewMem()
	batches := batchesOf(run{1, 6}, run{2, 6})
	l, err := OpenLog(disk, LogOptions{FileBytes: 400})
	if err != nil {
		t.Fatal(err)
	}
	appendAll(t, l, batches...)
	s, _ := storeOf(t, disk, batches, 4, 9)
	if err := l.Trim(4); err != nil {
		t.Fatal(err)
	}
	if l.Start() == 0 || len(l.files) < 3 || len(s.List()) != 2 {
		t.Fatalf("a log from %d on in %d files, %d snapshots", l.Start(), len(l.files), len(s.List()))
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for n := range len(batches) + 1 {
		history = append(history, imageAfter(t, batches[:n]...))
	}
	return disk, history
}

// TestOneFlippedBitOrACutAtAnyFrame: whatever single damage a directory has, a start says
// so and names the file, or comes to an image of the history; and whoever can fetch what is
// missing ends at the end of it.
func TestOneFlippedBitOrACutAtAnyFrame(t *testing.T) {
	whole, history := damagedDirectory(t)
	end := history[len(history)-1]
	leader := logOf(t, run{1, 6}, run{2, 6})
	refused, went := 0, 0
	each := func(file string, last bool, what string, change func([]byte) []byte) {
		t.Helper()
		disk := whole.Clone()
		patch(t, disk, file, change)
		cut := strings.HasPrefix(what, "cut")
		switch im, err := openDirectory(disk.Clone()); {
		case err != nil && !worthless(err):
			t.Errorf("%s, %s: %v", file, what, err)
		case err != nil && !strings.Contains(err.Error(), path.Base(file)) && !missing(err):
			t.Errorf("%s, %s: the error names another file: %v", file, what, err)
		case err != nil:
			refused++
		case !sameImage(im, history[im.Next()]):
			t.Errorf("%s, %s: the image at %d is not that of the history", file, what, im.Next())
		case im.Next() != end.Next() && !(cut && last):
			t.Errorf("%s, %s: it says nothing, and ends at %d of %d", file, what, im.Next(), end.Next())
		default:
			went++
		}
		f, err := OpenFollower(FollowerConfig{
			FS: disk, Dir: "log", SnapshotsDir: SnapshotsDir, FileBytes: 400,
			Rand: rand.New(rand.NewSource(1)), Logger: zerolog.Nop(),
		})
		if err != nil {
			t.Errorf("%s, %s: a node does not start: %v", file, what, err)
			return
		}
		defer f.Close()
		if im := f.Image(); !sameImage(im, history[im.Next()]) {
			t.Errorf("%s, %s: a node's image at %d is not that of the history", file, what, im.Next())
		}
		if _, err := leader.Read(f.Image().Next(), 1<<20); err != nil {
			t.Errorf("%s, %s: a node at %d cannot go on: %v", file, what, f.Image().Next(), err)
		}
	}
	for _, dir := range []string{"log", SnapshotsDir} {
		names := slices.DeleteFunc(fileNames(t, whole, dir), func(name string) bool { return strings.HasSuffix(name, ".pieces") })
		for i, name := range names {
			file, last := path.Join(dir, name), dir == "log" && i == len(names)-1
			data, err := vfs.ReadFile(whole, file, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			head := 0
			if dir == "log" {
				head = logHeaderSize
			}
			for at := range data {
				each(file, last, fmt.Sprint("bit flipped in byte ", at), flip(at))
			}
			for _, at := range append([]int{0}, frameEnds(t, data[head:])...) {
				if head+at < len(data) {
					each(file, last, fmt.Sprint("cut at ", head+at), func(b []byte) []byte { return b[:head+at] })
				}
			}
		}
	}
	t.Logf("%d starts were refused, %d went on", refused, went)
}

// openDirectory is the start of a controller in embedded mode.
func openDirectory(disk vfs.FS) (*meta.Image, error) {
	l, err := OpenLog(disk, LogOptions{})
	if err != nil {
		return nil, err
	}
	s, err := OpenSnapshots(disk, "", zerolog.Nop())
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	im, err := Recover(l, s, zerolog.Nop())
	return im, errors.Join(err, l.Close())
}

func missing(err error) bool {
	var m *SnapshotMissingError
	return errors.As(err, &m)
}
