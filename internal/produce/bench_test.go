package produce

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shoalstore/shoal/internal/vfs"
)

// BenchmarkRun writes a stream of 64 MiB from a plain file, fsync included.
func BenchmarkRun(b *testing.B) {
	row := `{"k":"` + strings.Repeat("v", 12) + `","pad":"` + strings.Repeat("x", 1500) + `"}` + "\n"
	text := strings.Repeat(row, 64<<20/len(row))
	in := file(b, "in.ndjson", text)
	for name, cfg := range map[string]Config{"round robin": {}, "key": {Key: "k"}} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				root := filepath.Join(b.TempDir(), "stream")
				fsys, err := vfs.OS(root)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := produce(fsys, cfg, in, Options{}); err != nil {
					b.Fatal(err)
				}
				os.RemoveAll(root)
			}
		})
	}
}
