package meta_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

// TestTheFormatIsDocumented holds docs/format/records.md to the struct tags:
// each type has a row with its fields, in order, by number and name.
func TestTheFormatIsDocumented(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "format", "records.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{} // name of the type → its fields
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		name := strings.TrimSpace(cells[0])
		if len(cells) == 4 {
			name = strings.TrimSpace(cells[1])
		}
		rows[name] = strings.TrimSpace(cells[len(cells)-1])
	}
	for _, v := range []any{
		meta.Cluster{}, meta.Leader{}, meta.Table{}, meta.Pause{}, meta.TableConfig{}, meta.Partition{}, meta.Hole{},
		meta.Segment{}, meta.EndRequested{}, meta.LastError{}, meta.Times{}, meta.Location{}, meta.Tombstone{},
		meta.Node{}, meta.Job{}, meta.Config{}, meta.StreamConfig{}, meta.SegmentConfig{}, meta.CompletionConfig{},
		meta.DeepStoreConfig{}, meta.RetentionConfig{}, segment.Format{}, segment.Column{},
	} {
		typ := reflect.TypeOf(v)
		documented := strings.Split(rows[typ.Name()], " · ")
		if len(documented) != typ.NumField() {
			t.Errorf("%s has %d fields, and %d are documented", typ.Name(), typ.NumField(), len(documented))
			continue
		}
		for i, row := range documented {
			field := typ.Field(i)
			number, _, _ := strings.Cut(field.Tag.Get("cbor"), ",")
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if row != number+" "+name && !strings.HasPrefix(row, number+" "+name+" ") {
				t.Errorf("%s: %q is documented, the field is %s %s", typ.Name(), row, number, name)
			}
		}
	}
}
