package segment

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestInferredTypesHoldTheSample(t *testing.T) {
	for _, test := range []struct {
		values string // of one field, one per row
		want   ColumnType
	}{
		{"true false null", TypeBool},
		{"1 2 null", TypeInt64},
		{"1 9007199254740993", TypeInt64},
		{"1 2.5", TypeFloat64},
		{"1.0", TypeFloat64},
		{"9007199254740992 0.5", TypeFloat64},
		{"9007199254740993 0.5", TypeJSON}, // float64 would round the first
		{"9223372036854775808", TypeJSON},
		{"1 true", TypeJSON},
		{`"a" "2014-01-01"`, TypeString},
		{`"2014-01-01" null "2014-02-28"`, TypeDate},
		{`"2014-01-01" "2014-02-29"`, TypeString},
		{`"2021-07-21T06:00:00Z" "2021-07-21T06:00:00.5+01:00"`, TypeTimestamp},
		{`"2021-07-21T06:00:00Z" "2014-01-01"`, TypeString},
		{`"\u0032014-01-01"`, TypeDate},
		{`"a" 1`, TypeJSON},
		{"[] null", TypeJSON},
		{"{} 1", TypeJSON},
		{"null null", TypeJSON},
	} {
		var sample [][]byte
		for _, v := range strings.Fields(test.values) {
			sample = append(sample, []byte(`{"c":`+v+`}`))
		}
		columns := InferColumns(sample)
		if want := []Column{{Name: "c", Type: test.want}}; !reflect.DeepEqual(columns, want) {
			t.Errorf("%s: %v, want %v", test.values, columns, want)
		}
		d := newDecoder(columns)
		for _, value := range sample {
			if !d.decode(value) {
				t.Errorf("%s does not decode: %s", value, d.explain())
			}
		}
	}
}

func TestInferredNamesAreValid(t *testing.T) {
	sample := [][]byte{
		[]byte(`not json`),
		[]byte(`{"bad":1`),
		[]byte(`[1]`),
		[]byte(`{"Id":1,"_offset":2,"id":3,"id_2":4,"":5,"a.b":6,"A.B":7,"line\nbreak":8,"ID":9,"_Key":10,"_id":11}`),
		[]byte(`{"late":true,"long` + strings.Repeat("g", maxNameBytes) + `":1}`),
	}
	columns := InferColumns(sample)
	want := []Column{
		{Name: "Id", Type: TypeInt64},
		{Name: "_offset_2", Type: TypeInt64, Path: "_offset"},
		{Name: "id_3", Type: TypeInt64, Path: "id"},
		{Name: "id_2", Type: TypeInt64},
		{Name: "a.b", Type: TypeInt64},
		{Name: "ID_4", Type: TypeInt64, Path: "ID"},
		{Name: "_Key_2", Type: TypeInt64, Path: "_Key"},
		{Name: "_id", Type: TypeInt64},
		{Name: "late", Type: TypeBool},
	}
	if !reflect.DeepEqual(columns, want) {
		t.Errorf("got %v\nwant %v", columns, want)
	}
	(&Format{Type: FormatJSON, Columns: columns}).Validate(func(field string, value any, format string, args ...any) {
		t.Errorf("%s %v %s", field, value, fmt.Sprintf(format, args...))
	})
	d := newDecoder(columns)
	if !d.decode(sample[3]) {
		t.Fatal(d.explain())
	}
	if got := fmt.Sprint(d.row); got != "[1 2 3 4 6 9 10 11 <null>]" {
		t.Errorf("decoded as %s", got)
	}
}

func TestInferenceStopsAtTheMostColumns(t *testing.T) {
	var b strings.Builder
	for i := range MaxColumns + 5 {
		fmt.Fprintf(&b, `,"f%d":1`, i)
	}
	columns := InferColumns([][]byte{[]byte("{" + b.String()[1:] + "}")})
	if len(columns) != MaxColumns {
		t.Errorf("%d columns", len(columns))
	}
}

// The types inferred from the first rows of real data hold all of it.
func TestInferredTypesHoldRealRows(t *testing.T) {
	for _, name := range []string{"flights.ndjson.gz", "events.ndjson.gz"} {
		lines := sharedLines(t, name)
		columns := InferColumns(lines[:min(200, len(lines))])
		d := newDecoder(columns)
		for i, line := range lines {
			if !d.decode(line) {
				t.Errorf("%s, line %d: %s", name, i+1, d.explain())
			}
			d.arena.reset()
		}
	}
}
