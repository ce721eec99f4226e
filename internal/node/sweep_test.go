package node

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
)

// A node sweeps the stores of all tables, and one that cannot be opened holds up
// no other.
func TestUploadsThatNeverEndedAreSwept(t *testing.T) {
	root := t.TempDir()
	uri, err := deepstore.FileURI(root)
	if err != nil {
		t.Fatal(err)
	}
	log := metatest.NewLog(t)
	log.AddNode(t, "n", "")
	for name, store := range map[string]string{"a": "file:///elsewhere", "b": uri + "/of-two", "c": uri + "/of-two", "d": ""} {
		cfg := metatest.Config(name)
		if store != "" {
			cfg.DeepStore = &meta.DeepStoreConfig{URI: store}
		}
		log.AddTable(t, cfg, 1)
	}
	var said strings.Builder
	n := &Node{
		log: zerolog.New(&said), image: log.Image, deep: deepstore.NewOpener([]string{root}, deepstore.S3Config{}),
		metrics: &metrics{swept: prometheus.NewCounter(prometheus.CounterOpts{Name: "swept"})},
	}
	n.sweepOnce(t.Context())
	upload := filepath.Join(root, "of-two", ".uploads", "half")
	if err := os.WriteFile(upload, []byte("half"), 0o644); err != nil {
		t.Fatal(err)
	}
	n.sweepOnce(t.Context())
	if _, err := os.Stat(upload); err != nil {
		t.Error("an upload that may still run was swept")
	}
	past := time.Now().Add(-25 * time.Hour)
	if err := os.Chtimes(upload, past, past); err != nil {
		t.Fatal(err)
	}
	n.sweepOnce(t.Context())
	if _, err := os.Stat(upload); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a day-old upload is still there: %v", err)
	}
	var counted dto.Metric
	if err := n.metrics.swept.Write(&counted); err != nil || counted.GetCounter().GetValue() != 1 {
		t.Errorf("counted %v, %v", counted.GetCounter(), err)
	}
	if !strings.Contains(said.String(), "elsewhere") {
		t.Errorf("the store that cannot be opened is not named:\n%s", said.String())
	}
}
