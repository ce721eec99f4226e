package metalog

import (
	"bytes"
	"encoding/hex"
	"flag"
	"os"
	"reflect"
	"testing"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// A log that version 1 wrote must be readable for ever. If this test fails, the format
// has changed: give it a new version and read the old one too.
func TestLogOfFormatVersion1IsRead(t *testing.T) {
	const golden = "testdata/log-v1.hex"
	disk := vfs.NewMem()
	l := openLog(t, disk, 0)
	batches := batchesOf(run{1, 2}, run{3, 1})
	batches[2].Removals = []meta.Key{job(0, 0).Key()}
	appendAll(t, l, batches...)
	name := l.files[0].name
	written, err := vfs.ReadFile(disk, name, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	old := wantGolden(t, golden, written)
	disk = vfs.NewMem()
	if err := disk.MkdirAll("log", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := vfs.WriteFile(disk, name, old); err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, openLog(t, disk, 0)); !reflect.DeepEqual(got, batches) {
		t.Errorf("it reads as %+v", got)
	}
}

// wantGolden compares what is written today with the bytes of a golden file, a hex
// dump, and returns those.
func wantGolden(t *testing.T, golden string, written []byte) []byte {
	t.Helper()
	if *rewrite {
		if err := os.WriteFile(golden, []byte(hex.Dump(written)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	dump, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	old := undump(t, dump)
	if !bytes.Equal(old, written) {
		t.Errorf("%s: the same is written as other bytes:\n%s", golden, hex.Dump(written))
	}
	return old
}

// undump is the inverse of hex.Dump.
func undump(t *testing.T, dump []byte) (data []byte) {
	t.Helper()
	for line := range bytes.Lines(dump) {
		digits := line[min(10, len(line)):min(58, len(line))]
		b, err := hex.DecodeString(string(bytes.ReplaceAll(bytes.TrimSpace(digits), []byte(" "), nil)))
		if err != nil {
			t.Fatal(err)
		}
		data = append(data, b...)
	}
	return data
}
