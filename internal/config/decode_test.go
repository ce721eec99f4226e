package config_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/shoalstore/shoal/internal/config"
)

type mode string

type column struct {
	Name string `json:"name"`
	Type mode   `json:"type"`
}

type limits struct {
	MaxRows  int64           `json:"maxRows"`
	MaxBytes config.Bytes    `json:"maxBytes"`
	MaxAge   config.Duration `json:"maxAge"`
}

type Shared struct {
	Zone string `yaml:"zone"`
}

type table struct {
	Shared
	Name    string            `json:"name"`
	Segment limits            `json:"segment"`
	Columns []column          `json:"columns"`
	Deep    *limits           `json:"deep,omitempty"`
	Keep    *bool             `json:"keep"`
	Tags    map[string]string `json:"tags"`
	Ratio   float64           `json:"ratio"`
	Small   int8              `json:"small"`
	Port    uint16            `json:"port"`
	Extra   any               `json:"extra"`
	Hidden  string            `json:"-"`
	private string
}

func defaults() table {
	return table{Segment: limits{MaxRows: 10, MaxBytes: 1 << 20}, Hidden: "mine", private: "mine"}
}

const goodYAML = `
# A table, as a person writes it.
name: flights
zone: "a"
segment: {maxRows: 1_000_000, maxBytes: 256MiB}
columns:
  - name: Carrier
    type: string
  - {name: "on", type: bool}
deep:
  maxAge: 1h30m
keep: false
tags: {disk: ssd, rack: "7"}
ratio: 0.5
small: -3
port: 7070
extra: {a: [1, null, true, x]}
`

const goodJSON = "{\t\"name\": \"flights\", \"zone\": \"\\u0061\",\n" + `"segment": {"maxRows": 1000000, "maxBytes": "256MiB"},
"columns": [{"name": "Carrier", "type": "string"}, {"name": "on", "type": "bool"}], "deep": {"maxAge": "1h30m"}, "keep": false,
"tags": {"disk": "ssd", "rack": "7"}, "ratio": 5e-1, "small": -3, "port": 7070, "extra": {"a": [1, null, true, "x"]}}`

func TestDecodeYAMLAndJSON(t *testing.T) {
	keep := false
	want := defaults()
	want.Name, want.Zone, want.Keep, want.Ratio, want.Small, want.Port = "flights", "a", &keep, 0.5, -3, 7070
	want.Segment.MaxRows, want.Segment.MaxBytes = 1_000_000, 256<<20
	want.Columns = []column{{"Carrier", "string"}, {"on", "bool"}}
	want.Deep = &limits{MaxAge: config.Duration(90 * time.Minute)}
	want.Tags = map[string]string{"disk": "ssd", "rack": "7"}
	want.Extra = map[string]any{"a": []any{"1", nil, true, "x"}}
	for name, doc := range map[string]string{"table.yaml": goodYAML, "table.json": goodJSON, "request body": goodJSON, "crlf": strings.ReplaceAll(goodYAML, "\n", "\r\n")} {
		got := defaults()
		if err := config.Decode(name, []byte(doc), &got); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
}

func TestEmptyDocumentsKeepTheDefaults(t *testing.T) {
	for _, doc := range []string{"", "\n\n", "# nothing yet\n", "---\n", "{}", "null", "segment:\n#  maxRows: 5\n", "deep:\n", "columns: []\n", "extra:\n", "tags:\n"} {
		got := defaults()
		if err := config.Decode("x", []byte(doc), &got); err != nil {
			t.Errorf("%q: %v", doc, err)
		}
		got.Columns = nil // an empty list is a list
		if !reflect.DeepEqual(got, defaults()) {
			t.Errorf("%q changed the defaults: %+v", doc, got)
		}
	}
}

func TestAllFaultsAtOnce(t *testing.T) {
	const doc = `name: 2024
nmae: flights
segment:
  maxRows: many
  maxBytes: 10 parsecs
  maxAge: 30
columns:
  - name: a
    typ: int
  - b
keep: yes
tags: [x]
ratio: .inf
small: 300
port: -1
name: again
deep: 7
zone:
completely: {different: 1}
private: x
Hidden: x
`
	got := defaults()
	err := config.Decode("flights.yaml", []byte(doc), &got)
	var faults config.Faults
	if !errors.As(err, &faults) {
		t.Fatalf("got %v", err)
	}
	want := []string{
		`flights.yaml:1: name: 2024: text is expected here: put it in quotes`,
		`flights.yaml:2: nmae: "flights": unknown setting; is it name?`,
		`flights.yaml:4: segment.maxRows: "many": a number is expected here`,
		`flights.yaml:5: segment.maxBytes: "10 parsecs": unknown unit "parsecs": use KiB, MiB, GiB, TiB, KB, MB, GB, TB or B`,
		`flights.yaml:6: segment.maxAge: 30: not a duration such as "1h30m", "10s" or "250ms"`,
		`flights.yaml:9: columns[0].typ: "int": unknown setting; is it type?`,
		`flights.yaml:10: columns[1]: "b": a group of settings is expected here`,
		`flights.yaml:11: keep: "yes": true or false is expected here`,
		`flights.yaml:12: tags: a list: a group of settings is expected here`,
		`flights.yaml:13: ratio: .inf: must be a finite number`,
		`flights.yaml:14: small: 300: out of range for 8 bits`,
		`flights.yaml:15: port: -1: must be a whole number, not negative`,
		`flights.yaml:16: name: "again": set twice, first in line 1`,
		`flights.yaml:17: deep: 7: a group of settings is expected here`,
		`flights.yaml:18: zone: has no value; text is expected here`,
		`flights.yaml:19: completely: a group of settings: unknown setting`,
		`flights.yaml:20: private: "x": unknown setting`,
		`flights.yaml:21: Hidden: "x": unknown setting`,
	}
	if lines := strings.Split(err.Error(), "\n"); !reflect.DeepEqual(lines, want) {
		t.Fatalf("got\n%s\nwant\n%s", err, strings.Join(want, "\n"))
	}
	if got.Segment.MaxRows != 10 || got.Hidden != "mine" || got.Columns[0].Name != "a" {
		t.Errorf("what is faulty must keep its value and the rest be set: %+v", got)
	}
	for field, want := range map[string]bool{"segment.maxRows": true, "segment": true, "tags.x": true, "columns[1].name": true, "columns[1]": true, "segment.max": false, "format": false, "columns[10]": false} {
		if faults.Has(field) != want {
			t.Errorf("Has(%s) is %v", field, !want)
		}
	}
}

func TestDocumentsThatAreRefused(t *testing.T) {
	deep := strings.Repeat("[", 100000)
	var indented strings.Builder
	for i := range 100 {
		fmt.Fprintf(&indented, "%sextra:\n", strings.Repeat(" ", i))
	}
	for doc, says := range map[string]string{
		"name: [":                  "t:1",
		"\tname: x":                "t",
		"name: x\n  segment: y: z": "t:",
		`{"name": "x"`:             "t",
		"- a\n- b":                 "a group of settings is expected",
		"just text":                "a group of settings is expected",
		"name: a\n---\nname: b":    "second document",
		"extra: &a [1]\nname: *a":  "not allowed",
		"extra: {<<: {name: a}}":   "t:1",
		"name: !!str 5":            "not allowed",
		"? [a, b]\n: c":            "t:2: ",
		"extra: " + deep:           "deep",
		`{"extra": ` + deep[:5000] + strings.Repeat("]", 5000) + "}": "deep",
		"extra: " + strings.Repeat("- ", 5000) + "x":                 "deep",
		indented.String(): "deep",
		"name: " + strings.Repeat("x", config.MaxSize): "more than",
		"name: \xff\xfe": "UTF-8",
		"name: |\n" + strings.Repeat("\n", 60000): "more than 5000 lines",
		"name: " + strings.Repeat("x", 200000):    "bytes of YAML",
	} {
		var got table
		err := config.Decode("t", []byte(doc), &got)
		var faults config.Faults
		if !errors.As(err, &faults) || !strings.Contains(err.Error(), says) || len(err.Error()) > 500 {
			t.Errorf("%.40q: got %v, want faults that say %q", doc, err, says)
		}
	}
	for doc, says := range map[string]string{
		"name: x":          "t.json:1: invalid character",
		`{"name": "x"`:     "t.json:1: the JSON ends too early",
		"{\n\"name\": 1,}": "t.json:2: ",
		`{} {}`:            "more after the end",
		``:                 "ends too early",
	} {
		var got table
		if err := config.Decode("t.json", []byte(doc), &got); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: got %v, want %q", doc, err, says)
		}
	}
}

func TestNumbersInYAML(t *testing.T) {
	for text, want := range map[string]int64{"17": 17, "017": 17, "-17": -17, "0o17": 15, "0x1F": 31, "1_000": 1000, "0": 0} {
		var got table
		if err := config.Decode("t", []byte("segment: {maxRows: "+text+"}"), &got); err != nil || got.Segment.MaxRows != want {
			t.Errorf("%s: got %d, %v, want %d", text, got.Segment.MaxRows, err, want)
		}
	}
	for _, text := range []string{"1.0", "99999999999999999999999", "9223372036854775808", "1e3"} {
		var got table
		if err := config.Decode("t", []byte("segment: {maxRows: "+text+"}"), &got); err == nil {
			t.Errorf("%s is read as %d", text, got.Segment.MaxRows)
		}
	}
}

func TestDuplicatesInJSON(t *testing.T) {
	var got table
	err := config.Decode("body", []byte("{\"name\": \"a\",\n\"name\": \"b\", \"tags\": {\"x\": \"1\", \"x\": \"2\"}}"), &got)
	const want = `body:2: name: "b": set twice, first in line 1` + "\n" + `body:2: tags.x: "2": set twice, first in line 2`
	if err == nil || err.Error() != want {
		t.Fatalf("got %v, want %s", err, want)
	}
}

func TestFaultsAreBounded(t *testing.T) {
	var doc strings.Builder
	for i := range 500 {
		fmt.Fprintf(&doc, "unknown%d: %s\n", i, strings.Repeat("long", 50))
	}
	var got table
	err := config.Decode("t", []byte(doc.String()), &got)
	var faults config.Faults
	if !errors.As(err, &faults) || len(faults) != 101 || !strings.Contains(faults[100].Problem, "more") {
		t.Fatalf("%d faults, the last %v", len(faults), faults[len(faults)-1])
	}
	if n := len(faults[0].Value); n > 100 {
		t.Fatalf("a value of %d bytes is shown", n)
	}
}

func TestFaultsOfTheCaller(t *testing.T) {
	var faults config.Faults
	if faults.Err() != nil {
		t.Fatal("no fault is an error")
	}
	faults.Addf("replication", 0, "must be at least %d", 1)
	faults.Addf("segment.maxBytes", config.Bytes(1024), "too small")
	faults.Addf("name", "a\nb", "not a name")
	faults.Addf("stream", nil, "is missing")
	const want = "replication: 0: must be at least 1\nsegment.maxBytes: 1KiB: too small\nname: \"a\\nb\": not a name\nstream: is missing"
	if err := faults.Err(); err == nil || err.Error() != want {
		t.Fatalf("got %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, doc := range []string{goodYAML, goodJSON, "name: [", "a: &x b\nc: *x", "? a\n: b", "- - - a", "{<<: a}", "name: |\n  x\n", "\"\\u12", "%YAML 1.2\n---\nname: a", "name: !!binary x"} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		var got table
		err := config.Decode("t", doc, &got)
		var faults config.Faults
		if err != nil && (!errors.As(err, &faults) || len(faults) == 0) {
			t.Fatalf("an error that is not faults: %v", err)
		}
		for _, fault := range faults {
			if strings.Contains(fault.Field+fault.Value, "\n") || len(fault.String()) > 1000 {
				t.Fatalf("a fault that is not a line: %q", fault)
			}
		}
	})
}
