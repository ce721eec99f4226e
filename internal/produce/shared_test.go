package produce

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/shoalstore/shoal/internal/vfs"
)

func TestTheSharedDataIsProducedWhole(t *testing.T) {
	for name, rows := range map[string]int64{"flights.ndjson.gz": 9746, "events.ndjson.gz": 800} {
		path := filepath.Join("..", "..", "..", "shared", "data", name)
		if _, err := os.Stat(path); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatalf("the shared data must be there in CI: %v", err)
			}
			t.Skipf("no shared data beside the repository: %v", err)
		}
		m := vfs.NewMem()
		if p, err := produce(m, Config{}, path, Options{}); err != nil || p.Rows != rows {
			t.Errorf("%s: %+v, %v; want %d rows", name, p, err, rows)
		}
	}
}
