package stream

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dir is a stream under test: a root directory with one stream "s" in it.
type dir struct {
	t    testing.TB
	root string
	src  *Files
}

func newDir(t testing.TB) *dir {
	t.Helper()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "s"), 0o777); err != nil {
		t.Fatal(err)
	}
	src, err := OpenFiles(root, "s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close() })
	return &dir{t: t, root: root, src: src}
}

func (d *dir) path(partition int32) string {
	return filepath.Join(d.root, "s", FileName(partition))
}

// write appends to a partition's file.
func (d *dir) write(partition int32, text string) {
	d.t.Helper()
	f, err := os.OpenFile(d.path(partition), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o666)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		d.t.Fatal(err)
	}
}

func (d *dir) truncate(partition int32, size int64) {
	d.t.Helper()
	if err := os.Truncate(d.path(partition), size); err != nil {
		d.t.Fatal(err)
	}
}

func (d *dir) setEpoch(text string) {
	d.t.Helper()
	if err := os.WriteFile(filepath.Join(d.root, "s", IDFile), []byte(text), 0o666); err != nil {
		d.t.Fatal(err)
	}
}

func (d *dir) open(partition int32, offset int64) Reader {
	d.t.Helper()
	r, err := d.src.Open(context.Background(), partition, offset)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { r.Close() })
	return r
}

// wants reads rows until there are as many as wanted, and checks them against
// the values wanted, from offset on.
func wants(t testing.TB, r Reader, offset int64, want ...string) {
	t.Helper()
	for len(want) > 0 {
		b, err := r.Read(context.Background())
		if err != nil {
			t.Fatalf("at offset %d: %v", offset, err)
		}
		if err := check(b, offset, want); err != nil {
			t.Fatal(err)
		}
		offset, want = b.Next, want[len(b.Rows):]
	}
}

// check compares a batch with the values that are wanted from offset on.
func check(b Batch, offset int64, want []string) error {
	if len(b.Rows) == 0 || len(b.Rows) > len(want) {
		return fmt.Errorf("at offset %d: %d rows, want 1 to %d", offset, len(b.Rows), len(want))
	}
	if b.Next != offset+int64(len(b.Rows)) || b.End < b.Next {
		return fmt.Errorf("at offset %d: %d rows, Next %d, End %d", offset, len(b.Rows), b.Next, b.End)
	}
	for i, row := range b.Rows {
		if row.Offset != offset+int64(i) || string(row.Value) != want[i] {
			return fmt.Errorf("row %d is %d %.80q, want %.80q", offset+int64(i), row.Offset, row.Value, want[i])
		}
		if row.Value == nil || row.Key != nil || row.Headers != nil || row.Timestamp != -1 || row.LeaderEpoch != -1 {
			return fmt.Errorf("row %d: a files row has a value and nothing else: %+v", row.Offset, row)
		}
	}
	return nil
}
