package segment

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestValidateReportsEveryFault(t *testing.T) {
	no := false
	many := make([]Column, MaxColumns+1)
	for i := range many {
		many[i] = Column{Name: fmt.Sprint("c", i), Type: TypeBool}
	}
	for _, test := range []struct {
		name   string
		format Format
		want   []string
	}{
		{"json", Format{Type: FormatJSON, OnError: "keep", Timestamp: "t", KeepValue: &no, Columns: []Column{{Name: "t", Type: TypeTimestamp}, {Name: "x.y", Type: TypeJSON, Path: "x.y"}}}, nil},
		{"json without columns", Format{Type: FormatJSON}, nil},
		{"raw", Format{Type: FormatRaw}, nil},
		{"nothing", Format{}, []string{"type"}},
		{"unknown", Format{Type: "avro", OnError: "drop"}, []string{"onError", "type"}},
		{"raw with what is for json", Format{Type: FormatRaw, Timestamp: "t", KeepValue: &no, Columns: flightColumns()}, []string{"columns", "timestamp", "keepValue"}},
		{"keeps nothing", Format{Type: FormatJSON, KeepValue: &no}, []string{"keepValue"}},
		{"names", Format{Type: FormatJSON, Columns: []Column{
			{Name: "", Type: TypeBool},
			{Name: "_offset", Type: TypeBool},
			{Name: "_VALUE", Type: TypeBool},
			{Name: "ok", Type: TypeBool},
			{Name: "OK", Type: TypeBool},
			{Name: "a\x01", Type: TypeBool},
			{Name: "\xff", Type: TypeBool},
			{Name: strings.Repeat("n", 129), Type: TypeBool},
			{Name: "_id", Type: TypeBool},
			{Name: "x, y \"z\"", Type: TypeBool},
		}}, []string{"columns[0].name", "columns[1].name", "columns[2].name", "columns[4].name", "columns[5].name", "columns[6].name", "columns[7].name"}},
		{"types", Format{Type: FormatJSON, Columns: []Column{{Name: "a", Type: "int"}, {Name: "b"}}}, []string{"columns[0].type", "columns[1].type"}},
		{"paths", Format{Type: FormatJSON, Columns: []Column{
			{Name: "a", Type: TypeInt64},
			{Name: "b", Type: TypeInt64, Path: "a.b"},
			{Name: "c", Type: TypeInt64, Path: "c..d"},
			{Name: "j", Type: TypeJSON},
			{Name: "k", Type: TypeInt64, Path: "j.k"},
			{Name: "a.x", Type: TypeInt64},
		}}, []string{"columns[2].path", "columns[1].path"}},
		{"timestamp missing", Format{Type: FormatJSON, Timestamp: "T", Columns: []Column{{Name: "t", Type: TypeTimestamp}}}, []string{"timestamp"}},
		{"timestamp of another type", Format{Type: FormatJSON, Timestamp: "t", Columns: []Column{{Name: "t", Type: TypeInt64}}}, []string{"timestamp"}},
		{"too many", Format{Type: FormatJSON, Columns: many}, []string{"columns"}},
		{"five mistakes", Format{Type: FormatJSON, OnError: "x", Timestamp: "none", Columns: []Column{{Name: "_key", Type: "text"}, {Name: "p", Type: TypeBool, Path: "."}}},
			[]string{"onError", "columns[0].name", "columns[0].type", "columns[1].path", "timestamp"}},
	} {
		var got []string
		test.format.Validate(func(field string, value any, format string, args ...any) {
			got = append(got, field)
			if s := fmt.Sprintf(format, args...); s == "" || strings.Contains(s, "%!") {
				t.Errorf("%s: %s: %q", test.name, field, s)
			}
		})
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: faults %q, want %q", test.name, got, test.want)
		}
	}
}

// Whatever Validate accepts can be built and read back.
func TestOddNamesAreBuilt(t *testing.T) {
	columns := []Column{{Name: "a b", Type: TypeInt64}, {Name: "x, y \"z\"", Type: TypeInt64}, {Name: "x.y", Type: TypeInt64}, {Name: "日本", Type: TypeInt64}, {Name: "list", Type: TypeInt64}, {Name: "_", Type: TypeInt64}}
	data, _ := build(t, BuilderConfig{Format: Format{Type: FormatJSON, Columns: columns}}, []Row{
		{Value: []byte(`{"a b":1,"x, y \"z\"":2,"x.y":3,"日本":4,"list":5,"_":6}`)},
	})
	r, rows := readBack(t, data)
	if !slices.Equal(r.Columns(), columns) {
		t.Errorf("columns %v", r.Columns())
	}
	if got := fmt.Sprint(rows[0].Columns); got != "[1 2 3 4 5 6]" {
		t.Errorf("values %s, %s", got, rows[0].Error)
	}
}
