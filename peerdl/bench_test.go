package peerdl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// BenchmarkToDisk compares the ways to get a served file onto a disk, each
// ending with an fsync of the file: the verified download from one source and
// from three, a plain unverified Go copy, and curl. The server is in the same
// process for all of them. Files go below $TMPDIR; put that on the disk that is
// to be measured.
func BenchmarkToDisk(b *testing.B) {
	const size = 256 << 20
	src := newBlob(b, mustOS(b), size)
	one := src.peer(b, "one", nil)
	three := []Source{one, src.peer(b, "two", nil), src.peer(b, "three", nil)}
	dir := b.TempDir()

	each := func(name string, get func(file string) error) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(size)
			var n int
			for b.Loop() {
				n++
				file := filepath.Join(dir, fmt.Sprintf("%s-%d", name, n))
				if err := get(file); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				os.Remove(file)
				b.StartTimer()
			}
		})
	}
	each("curl", func(file string) error {
		path, err := exec.LookPath("curl")
		if err != nil {
			return errors.New("curl is not installed")
		}
		if err := exec.Command(path, "-s", "-o", file, one.URL).Run(); err != nil {
			return err
		}
		return fsyncFile(file)
	})
	each("plain", func(file string) error { return plainCopy(one.URL, file) })
	fsys := mustOS(b)
	d := NewDownloader(testConfig(b))
	verified := func(sources ...Source) func(string) error {
		return func(string) error {
			res, err := d.Download(context.Background(), src.request(fsys, sources...))
			if err != nil {
				return err
			}
			b.StopTimer()
			defer b.StartTimer()
			return errors.Join(res.File.Close(), Forget(fsys, "x.part"))
		}
	}
	each("verified", verified(one))
	each("verified3", verified(three...))
}

func plainCopy(url, file string) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{f}, resp.Body, make([]byte, 256<<10))
	return errors.Join(err, f.Sync(), f.Close())
}

func fsyncFile(file string) error {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
