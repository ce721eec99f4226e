package segment

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/parquet-go/parquet-go"
	"pgregory.net/rapid"
)

func TestDecodeByType(t *testing.T) {
	for _, test := range []struct {
		typ   ColumnType
		value string
		want  string // the value, or "!" and the problem
	}{
		{TypeBool, `true`, "true"},
		{TypeBool, `false`, "false"},
		{TypeBool, `null`, "<null>"},
		{TypeBool, `1`, "!want bool, found an integer"},
		{TypeBool, `"true"`, "!want bool, found a string"},

		{TypeInt32, `0`, "0"},
		{TypeInt32, `-0`, "0"},
		{TypeInt32, `2147483647`, "2147483647"},
		{TypeInt32, `-2147483648`, "-2147483648"},
		{TypeInt32, `2147483648`, "!the number is out of range of int32"},
		{TypeInt32, `-2147483649`, "!the number is out of range of int32"},
		{TypeInt32, `1.0`, "!want int32, found a decimal number"},
		{TypeInt32, `1e3`, "!want int32, found a decimal number"},
		{TypeInt32, `[]`, "!want int32, found an array"},

		{TypeInt64, `9223372036854775807`, "9223372036854775807"},
		{TypeInt64, `-9223372036854775808`, "-9223372036854775808"},
		{TypeInt64, `9223372036854775808`, "!the number is out of range of int64"},
		{TypeInt64, `-9223372036854775809`, "!the number is out of range of int64"},
		{TypeInt64, `99999999999999999999`, "!the number is out of range of int64"},
		{TypeInt64, `9007199254740993`, "9007199254740993"}, // float64 would round it
		{TypeInt64, `"1"`, "!want int64, found a string"},

		{TypeFloat64, `1`, "1"},
		{TypeFloat64, `-1.5e-3`, "-0.0015"},
		{TypeFloat64, `1e400`, "!the number is out of range of float64"},
		{TypeFloat64, `"NaN"`, "!want float64, found a string"},

		{TypeString, `""`, ""},
		{TypeString, `"a\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00\u0000"`, "a\"\\/\b\f\n\r\té😀\x00"},
		{TypeString, `1`, "!want string, found an integer"},
		{TypeString, `{}`, "!want string, found an object"},

		{TypeDate, `"1970-01-01"`, "0"},
		{TypeDate, `"1969-12-31"`, "-1"},
		{TypeDate, `"2024-02-29"`, "19782"},
		{TypeDate, `"0000-01-01"`, "-719528"},
		{TypeDate, `"9999-12-31"`, "2932896"},
		{TypeDate, `"2014\u002d01-01"`, "16071"},
		{TypeDate, `"2023-02-29"`, "!the text is not a date like 2006-01-02"},
		{TypeDate, `"2023-13-01"`, "!the text is not a date like 2006-01-02"},
		{TypeDate, `"2023-00-10"`, "!the text is not a date like 2006-01-02"},
		{TypeDate, `"2023-01-00"`, "!the text is not a date like 2006-01-02"},
		{TypeDate, `"2023-1-1"`, "!the text is not a date like 2006-01-02"},
		{TypeDate, `"2023-01-01 "`, "!the text is not a date like 2006-01-02"},
		{TypeDate, `"+202-01-01"`, "!the text is not a date like 2006-01-02"},
		{TypeDate, `16071`, "!want date, found an integer"},

		{TypeTimestamp, `"2021-07-21T06:00:00Z"`, "1626847200000"},
		{TypeTimestamp, `"2021-07-21T06:00:00.9999+02:00"`, "1626840000999"},
		{TypeTimestamp, `"1969-12-31T23:59:59.9999Z"`, "-1"}, // rounded down, not to zero
		{TypeTimestamp, `1626847200000`, "1626847200000"},
		{TypeTimestamp, `-62167219200000`, "-62167219200000"},
		{TypeTimestamp, `253402300799999`, "253402300799999"},
		{TypeTimestamp, `253402300800000`, "!the number of milliseconds is beyond the years 0 to 9999"},
		{TypeTimestamp, `9223372036854775808`, "!the number of milliseconds is beyond the years 0 to 9999"},
		{TypeTimestamp, `"0000-01-01T00:00:00+01:00"`, "!the text is not a time of RFC 3339"},
		{TypeTimestamp, `"2021-07-21 06:00:00Z"`, "!the text is not a time of RFC 3339"},
		{TypeTimestamp, `"2021-07-21T6:00:00Z"`, "!the text is not a time of RFC 3339"},
		{TypeTimestamp, `"2021-07-21T06:00:00,5Z"`, "!the text is not a time of RFC 3339"},
		{TypeTimestamp, `"2021-02-30T06:00:00Z"`, "!the text is not a time of RFC 3339"},
		{TypeTimestamp, `"2021-07-21T24:00:00Z"`, "!the text is not a time of RFC 3339"},
		{TypeTimestamp, `"2021-07-21T06:00:60Z"`, "!the text is not a time of RFC 3339"},
		{TypeTimestamp, `"2021-07-21T06:00:00"`, "!the text is not a time of RFC 3339"},
		{TypeTimestamp, `"2021-07-21T06:00:00.Z"`, "!the text is not a time of RFC 3339"},
		{TypeTimestamp, `"2021-07-21T06:00:00+99:00"`, "!the text is not a time of RFC 3339"},
		{TypeTimestamp, `"2021-07-21T06:00:00-0100"`, "!the text is not a time of RFC 3339"},
		{TypeTimestamp, `"2021-07-21T06:00:00.1-01:30"`, "1626852600100"},
		{TypeTimestamp, `1.5`, "!want timestamp, found a decimal number"},

		{TypeJSON, `[1, {"a": "\u00e9"} ]`, `[1, {"a": "\u00e9"} ]`},
		{TypeJSON, `"s\n"`, `"s\n"`},
		{TypeJSON, `1.50`, `1.50`},
		{TypeJSON, `null`, "<null>"},
	} {
		d := newDecoder([]Column{{Name: "c", Type: test.typ}})
		value := ` {"c": ` + test.value + `}`
		got := ""
		if d.decode([]byte(value)) {
			got = d.row[0].String()
		} else {
			got = "!" + strings.TrimPrefix(d.explain(), "column c at byte 7: ")
		}
		if got != test.want {
			t.Errorf("%s %s: got %s, want %s", test.typ, test.value, got, test.want)
		}
	}
}

func TestWhatDoesNotDecode(t *testing.T) {
	deep := strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth)
	for _, test := range []struct{ value, want string }{
		{``, "at byte 0: the value is empty"},
		{` `, "at byte 1: the text ends early"},
		{`null`, "at byte 0: the value is not a JSON object"},
		{`[{"a":1}]`, "at byte 0: the value is not a JSON object"},
		{`[{"a":1}`, "at byte 8: the text ends early"},
		{`hello`, "at byte 0: not a JSON value"},
		{`{`, "at byte 1: the text ends early"},
		{`{"a"`, "at byte 4: the text ends early"},
		{`{"a":`, "at byte 5: the text ends early"},
		{`{"a":1`, "at byte 6: the text ends early"},
		{`{"a":1,`, "at byte 7: the text ends early"},
		{`{"a":1,}`, "at byte 7: a quoted name is missing"},
		{`{a:1}`, "at byte 1: a quoted name is missing"},
		{`{"a" 1}`, "at byte 5: a colon is missing"},
		{`{"a":1 "b":2}`, "at byte 7: a comma or a closing bracket is missing"},
		{`{"a":1}}`, "at byte 7: something follows the value"},
		{`{"a":1} {"a":1}`, "at byte 8: something follows the value"},
		{`{"a":01}`, "at byte 6: a comma or a closing bracket is missing"},
		{`{"a":1.}`, "at byte 7: a digit is missing after the decimal point"},
		{`{"a":1e}`, "at byte 7: a digit is missing in the exponent"},
		{`{"a":+1}`, "at byte 5: not a JSON value"},
		{`{"a":NaN}`, "at byte 5: not a JSON value"},
		{`{"a":nul}`, "at byte 5: not a JSON value"},
		{`{"z":[1,]}`, "at byte 8: not a JSON value"},
		{`{"z":[1 2]}`, "at byte 8: a comma or a closing bracket is missing"},
		{"{\"z\":\"a\tb\"}", "at byte 7: a control character in a string"},
		{`{"z":"\x"}`, "at byte 6: a bad escape in a string"},
		{`{"z":"\u12g4"}`, "at byte 6: a bad escape in a string"},
		{`{"z":"\ud800"}`, "at byte 6: a bad escape in a string"},
		{`{"z":"\udc00\ud800"}`, "at byte 6: a bad escape in a string"},
		{"{\"z\":\"\xff\"}", "at byte 6: not valid UTF-8"},
		{"{\"z\":\"\xed\xa0\x80\"}", "at byte 6: not valid UTF-8"},
		{"{\"\xc3\":1}", "at byte 2: not valid UTF-8"},
		{"\ufeff{}", "at byte 0: not a JSON value"},
		{"{\x00}", "at byte 1: a quoted name is missing"},
		{`{"a":1,"b":2,"a":3}`, "at byte 13: a name occurs twice in one object"},
		{`{"a":1,"\u0061":3}`, "at byte 7: a name occurs twice in one object"},
		{`{"z":{"y":1,"x":{"y":1},"y":2}}`, "at byte 24: a name occurs twice in one object"},
		{`{"z":` + deep + `}`, fmt.Sprintf("at byte %d: arrays and objects nest too deep", 5+maxDepth-1)},
		// The first fault in the text counts, whichever kind it is.
		{`{"a":"x","a":1`, "column a at byte 5: want int64, found a string"},
		{`{"o":1,"a":"x"}`, "column deep at byte 5: want an object on the way to it, found an integer"},
		{`{"o":{"p":[]}}`, "column deep at byte 10: want string, found an array"},
	} {
		d := newDecoder([]Column{{Name: "a", Type: TypeInt64}, {Name: "deep", Type: TypeString, Path: "o.p"}})
		for _, state := range []string{"fresh", "used"} {
			if d.decode([]byte(test.value)) {
				t.Errorf("%s: %q decoded as %v", state, test.value, d.row)
			} else if got := d.explain(); got != test.want {
				t.Errorf("%s: %q: got %q, want %q", state, test.value, got, test.want)
			}
			d.decode([]byte(`{"a":1,"b":2,"c":3,"z":4,"o":{}}`))
		}
	}
}

func TestNestingUpToTheLimitDecodes(t *testing.T) {
	d := newDecoder([]Column{{Name: "z", Type: TypeJSON}})
	n := maxDepth - 1 // the outermost object is a level too
	if !d.decode([]byte(`{"z":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}`)) {
		t.Error(d.explain())
	}
}

func TestPathsLeadIntoObjects(t *testing.T) {
	columns := []Column{
		{Name: "all", Type: TypeJSON, Path: "o"},
		{Name: "x", Type: TypeInt64, Path: "o.x"},
		{Name: "again", Type: TypeTimestamp, Path: "o.x"},
		{Name: "y", Type: TypeString, Path: "o.p.y"},
		{Name: "o.x", Type: TypeInt64},
	}
	for _, test := range []struct{ value, want string }{
		{`{"o":{"x":5,"p":{"y":"in"},"n":1},"o.x":7}`, `[{"x":5,"p":{"y":"in"},"n":1} 5 5 in 7]`},
		{`{"o":{"p":null}}`, `[{"p":null} <null> <null> <null> <null>]`},
		{`{"o":null}`, `[<null> <null> <null> <null> <null>]`},
		{`{"o":"text"}`, `["text" <null> <null> <null> <null>]`}, // all takes anything
		{`{"x":1,"y":2,"p":{"y":3}}`, `[<null> <null> <null> <null> <null>]`},
	} {
		d := newDecoder(columns)
		if !d.decode([]byte(test.value)) {
			t.Errorf("%s: %s", test.value, d.explain())
		} else if got := fmt.Sprint(d.row); got != test.want {
			t.Errorf("%s: got %s, want %s", test.value, got, test.want)
		}
	}
}

// What the decoder remembers of earlier rows changes nothing of what it says.
func TestOrderOfMembersOnlySavesTime(t *testing.T) {
	columns := []Column{{Name: "a", Type: TypeInt64}, {Name: "b", Type: TypeString}, {Name: "c", Type: TypeJSON}}
	shapes := []string{
		`{"a":%d,"b":"x","c":[],"d":0}`,
		`{"a":%d,"b":"x","c":[],"d":0,"e":1}`,
		`{"b":"x","a":%d,"c":[]}`,
		`{ "a" : %d , "b":"y" }`,
		`{"a":%d,"b":"x","a":2}`,
		`{"a":%d,"b":"x","c":[],"d":0,"b":1}`,
		`{"\u0061":%d,"b":"x","c":[],"d":0}`,
		`{"a":%d,"\u0061":1}`,
		`{"a":%d}`, `{}`, `%d`, `{"a":%d,"b"`, `{"a":%d,"b":5}`, "{\x00%d}",
	}
	used := newDecoder(columns)
	for i := range 4000 {
		shape := shapes[(i/97+i%3)%len(shapes)]
		value := []byte(shape)
		if strings.Contains(shape, "%d") {
			value = fmt.Appendf(nil, shape, i)
		}
		fresh := newDecoder(columns)
		if got, want := outcome(used, value), outcome(fresh, value); got != want {
			t.Fatalf("row %d, %s: got %s, want %s", i, value, got, want)
		}
		used.arena.reset()
	}
}

func outcome(d *decoder, value []byte) string {
	if d.decode(value) {
		return fmt.Sprint(d.row)
	}
	return d.explain()
}

// A row with very many names is found out like any other, and does not slow
// down those that follow.
func TestManyNames(t *testing.T) {
	var b bytes.Buffer
	b.WriteByte('{')
	const n = 100_000
	for i := range n {
		fmt.Fprintf(&b, `"n%d":{"n%d":0},`, i, i)
	}
	ok := append(bytes.Clone(b.Bytes()), `"a":1}`...)
	twice := append(bytes.Clone(b.Bytes()), `"n77":1}`...)
	d := newDecoder([]Column{{Name: "a", Type: TypeInt64}})
	if !d.decode(ok) {
		t.Error(d.explain())
	}
	if d.decode(twice) {
		t.Error("a name that occurs twice was not found")
	}
	if !d.decode([]byte(`{"b":1,"a":1}`)) || len(d.scanner.names.table) != minNameTable || len(d.order.members) > membersMax {
		t.Errorf("%d places for names and %d members are kept", len(d.scanner.names.table), len(d.order.members))
	}
}

// The scanner accepts what the strict mode of a well-known library accepts, and
// finds the same strings.
func FuzzScannerAgreesWithALibrary(f *testing.F) {
	for _, line := range generatedLines(2) {
		f.Add(line)
	}
	for _, s := range []string{`{"a":[1,-0.5e+7,true,null,"\ud83d\ude00é"],"b":{"a":{}}}`, `{"a":1,"\u0061":2}`, "{\"\xff\":1}", `[1,2,]`, `01`, ` {} `, `"\ud800"`, `{"":{"":1},"x":""}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var s scanner
		s.reset(data)
		s.space()
		got := s.skip(0) && s.end()
		if s.problem == "arrays and objects nest too deep" {
			return // the library goes deeper
		}
		want := jsontext.Value(data).IsValid()
		if got != want {
			t.Fatalf("%q: got %v (at byte %d: %s), want %v", data, got, s.at, s.problem, want)
		}
		if !want || data[0] != '"' {
			return
		}
		s.reset(data)
		str, _ := s.str()
		unquoted, err := jsontext.AppendUnquote(nil, bytes.TrimSpace(data))
		if text := unescape(nil, s.raw(str)); err != nil || !bytes.Equal(text, unquoted) {
			t.Fatalf("%q is %q, want %q (%v)", data, text, unquoted, err)
		}
	})
}

// The decoder never panics, is deterministic, and agrees with the scanner on
// what is JSON.
func FuzzDecode(f *testing.F) {
	columns := append(flightColumns(), Column{Name: "t", Type: TypeTimestamp}, Column{Name: "j", Type: TypeJSON}, Column{Name: "b", Type: TypeBool}, Column{Name: "deep", Type: TypeString, Path: "o.p"})
	for _, line := range generatedLines(3) {
		f.Add(line)
	}
	f.Add([]byte(`{"t":"2021-07-21T06:00:00Z","j":{"x":1},"b":true,"o":{"p":"\n"}}`))
	used := newDecoder(columns)
	f.Fuzz(func(t *testing.T, data []byte) {
		got, want := outcome(used, data), outcome(newDecoder(columns), data)
		if got != want {
			t.Fatalf("%q: got %s from a used decoder, %s from a new one", data, got, want)
		}
		d := newDecoder(columns)
		if !d.decode(data) {
			return
		}
		if !jsontext.Value(data).IsValid() {
			t.Fatalf("%q decoded, and is not JSON", data)
		}
		for i, v := range d.row {
			if v.Kind() == parquet.Double && math.IsInf(v.Double(), 0) {
				t.Fatalf("column %d is infinite", i)
			}
		}
		used.arena.reset()
	})
}

// Every time that package time writes is read as it means it.
func TestTimestampsAgreeWithPackageTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ns := rapid.Int64Range(0, 999_999_999).Draw(t, "nanoseconds")
		offset := rapid.IntRange(-23*60, 23*60).Draw(t, "offset")
		want := time.Unix(rapid.Int64Range(minTimestamp/1000+24*3600, maxTimestamp/1000-24*3600).Draw(t, "seconds"), ns)
		text := want.In(time.FixedZone("", offset*60)).Format(time.RFC3339Nano)
		got, ok := parseTimestamp([]byte(text))
		if !ok || got != want.UnixMilli() {
			t.Fatalf("%s: got %d %v, want %d", text, got, ok, want.UnixMilli())
		}
	})
}

// BenchmarkDecode is the decoder alone.
func BenchmarkDecode(b *testing.B) {
	lines := sharedLines(b, "flights.ndjson.gz")
	var size int64
	for _, line := range lines {
		size += int64(len(line))
	}
	d := newDecoder(flightColumns())
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		for _, line := range lines {
			if !d.decode(line) {
				b.Fatal(d.explain())
			}
			d.arena.reset()
		}
	}
}
