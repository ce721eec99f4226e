package segment

import (
	"errors"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/shoalstore/shoal/internal/vfs"
)

func TestStagingIsSweptExceptDownloadsThatCanGoOn(t *testing.T) {
	disk := vfs.NewMem()
	s := openTestStore(t, disk)
	f, _, err := stage(s, testName(1), randomBytes(10))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	download := func(seq int64) string {
		part, err := s.DownloadPath(testTable, 3, testName(seq), Digest{byte(seq)})
		if err != nil {
			t.Fatal(err)
		}
		return part
	}
	good, bare, alone := download(2), download(3), download(4)
	writeRaw(t, disk, good, randomBytes(77))
	writeRaw(t, disk, good+".journal", []byte("x"))
	writeRaw(t, disk, bare, randomBytes(10))
	writeRaw(t, disk, alone+".journal", []byte("x"))
	writeRaw(t, disk, path.Dir(good)+"/else.tmp", nil)

	s = openTestStore(t, disk)
	if got, want := filesBelow(t, disk, "staging"), []string{good, good + ".journal"}; !slices.Equal(got, want) {
		t.Errorf("left: %v, want %v", got, want)
	}
	downloads, err := s.Downloads()
	if err != nil {
		t.Fatal(err)
	}
	want := []Download{{testTable, 3, testName(2), Digest{2}.Short(), good, 77}}
	if !slices.Equal(downloads, want) {
		t.Errorf("downloads: %+v, want %+v", downloads, want)
	}
	for range 2 {
		if err := s.Discard(good); err != nil {
			t.Fatal(err)
		}
	}
	if left := filesBelow(t, disk, "staging"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestFullDiskInPublishNamesTheFileSystemAndKeepsTheBytes(t *testing.T) {
	disk := vfs.NewMem()
	space := vfs.WithSpace(disk, 1<<20)
	s := openTestStore(t, space)
	data := randomBytes(1000)
	f, staged, err := stage(s, testName(1), data)
	if err != nil {
		t.Fatal(err)
	}
	free, _ := space.Free()
	space.Add(-free)
	pieces, digest := hashBytes(data)
	_, err = s.Publish(f, staged, testTable, 3, testName(1), pieces, digest)
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), " on "+disk.String()) {
		t.Fatalf("got %v", err)
	}
	mustNotHold(t, s, testName(1), data)

	space.Add(1 << 20)
	if f, err = disk.Open(staged); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Publish(f, staged, testTable, 3, testName(1), pieces, digest); err != nil {
		t.Fatal(err)
	}
	mustHold(t, s, testName(1), data)
	mustBeTidy(t, disk, s)
}
