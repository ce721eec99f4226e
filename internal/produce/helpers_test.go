package produce

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// produce opens the stream, runs one input, and closes.
func produce(fsys vfs.FS, cfg Config, name string, opts Options) (Progress, error) {
	return produceFrom(context.Background(), fsys, cfg, name, opts)
}

func produceFrom(ctx context.Context, fsys vfs.FS, cfg Config, name string, opts Options) (Progress, error) {
	cfg.Path = "s"
	p, err := Open(fsys, cfg)
	if err != nil {
		return Progress{}, err
	}
	in, err := OpenInput(name, nil)
	if err != nil {
		p.Close()
		return Progress{}, err
	}
	progress, err := p.Run(ctx, in, opts)
	if closeErr := p.Close(); err == nil {
		err = closeErr
	}
	return progress, err
}

// contents reads the partition files.
func contents(t testing.TB, fsys vfs.FS) []string {
	t.Helper()
	entries, err := fsys.ReadDir("s")
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, e := range entries {
		if _, ok := stream.ParseFileName(e.Name()); ok {
			text, err := readFile(fsys, "s/"+e.Name())
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, string(text))
		}
	}
	return files
}

func wantContents(t testing.TB, fsys vfs.FS, want ...string) {
	t.Helper()
	if got := contents(t, fsys); !slices.Equal(got, want) {
		t.Fatalf("got %.300q\nwant %.300q", got, want)
	}
}

func file(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	rewrite(t, path, text)
	return path
}

func rewrite(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

func zipped(texts ...string) string {
	var b bytes.Buffer
	for _, text := range texts {
		z := gzip.NewWriter(&b)
		z.Write([]byte(text))
		z.Close()
	}
	return b.String()
}

// numbered makes rows {"k":i%7,"n":i,...}; some are longer than a buffer.
func numbered(rows int) string {
	var b strings.Builder
	for i := range rows {
		pad := i % 50
		if i%250 == 5 {
			pad = partBytes + i
		}
		fmt.Fprintf(&b, `{"k":%d,"n":%d,"pad":"%s"}`+"\n", i%7, i, strings.Repeat("x", pad))
	}
	return b.String()
}
