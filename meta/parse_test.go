package meta_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/shoalstore/shoal/internal/config"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

const minimal = "name: flights\nstream: {type: files, path: flights}\n"

func TestAConfigNeedsOnlyANameAndAStream(t *testing.T) {
	got, err := meta.ParseConfig("flights.yaml", []byte(minimal))
	if err != nil {
		t.Fatal(err)
	}
	want := meta.DefaultConfig()
	want.Name, want.Stream.Path = "flights", "flights"
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
}

func TestAConfigWithEverything(t *testing.T) {
	got, err := meta.ParseConfig("flights.yaml", []byte(`
name: flights
stream:    {type: files, path: in/flights}
format:    {type: json, timestamp: FlightDate, onError: keep, keepValue: false, columns: [{name: Carrier, type: string}, {name: FlightDate, type: timestamp}]}
replication: 1
segment:   {maxRows: 1000, maxBytes: 64MiB, maxAge: 20s, compression: snappy, rowGroupRows: 500, rowGroupBytes: 1MiB}
completion: {mode: download, holdTime: 300ms, commitTimeout: 12s}
deepStore: {uri: "s3://bucket/prefix/of/keys", uploadWait: 5s}
download: both
retention: {age: 48h, localAge: 1h}
`))
	if err != nil {
		t.Fatal(err)
	}
	no := false
	want := &meta.Config{
		Name: "flights", Stream: meta.StreamConfig{Type: "files", Path: "in/flights"},
		Format: segment.Format{Type: "json", Timestamp: "FlightDate", OnError: "keep", KeepValue: &no,
			Columns: []segment.Column{{Name: "Carrier", Type: "string"}, {Name: "FlightDate", Type: "timestamp"}}},
		Replication: 1,
		Segment: meta.SegmentConfig{MaxRows: 1000, MaxBytes: 64 << 20, MaxAge: config.Duration(20 * time.Second),
			Compression: "snappy", RowGroupRows: 500, RowGroupBytes: 1 << 20},
		Completion: meta.CompletionConfig{Mode: meta.CompletionDownload, HoldTime: config.Duration(300 * time.Millisecond),
			CommitTimeout: config.Duration(12 * time.Second)},
		DeepStore: &meta.DeepStoreConfig{URI: "s3://bucket/prefix/of/keys", UploadWait: config.Duration(5 * time.Second)},
		Download:  meta.BothAtOnce,
		Retention: meta.RetentionConfig{Age: config.Duration(48 * time.Hour), LocalAge: config.Duration(time.Hour)},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestAllFaultsOfAConfigAreNamedAtOnce(t *testing.T) {
	_, err := meta.ParseConfig("bad.yaml", []byte(`
name: my__table
stream: {type: files, path: ../elsewhere}
replication: 0
segment: {maxRows: -1, maxBytes: 12 parsecs}
downlaod: peersFirst
`))
	var faults config.Faults
	if !errors.As(err, &faults) {
		t.Fatalf("got %v", err)
	}
	for field, value := range map[string]string{
		"name": "my__table", "stream.path": "../elsewhere", "replication": "0", "segment.maxRows": "-1",
		"segment.maxBytes": "12 parsecs", "downlaod": "peersFirst",
	} {
		if !hasFault(faults, field, value) {
			t.Errorf("nothing about %s %s", field, value)
		}
	}
	if len(faults) != 6 {
		t.Errorf("six mistakes give\n%v", err)
	}
}

func hasFault(faults config.Faults, field, value string) bool {
	for _, f := range faults {
		if f.Field == field && strings.Contains(f.Value, value) {
			return true
		}
	}
	return false
}

// TestEachRuleOfAConfig changes one line of a good configuration.
func TestEachRuleOfAConfig(t *testing.T) {
	for line, field := range map[string]string{
		"name: ''":                                                "name",
		"name: -flights":                                          "name",
		"name: a__b":                                              "name",
		"name: fl/ghts":                                           "name",
		"name: flights.":                                          "name",
		"name: [flights]":                                         "name",
		"name: " + strings.Repeat("x", 129):                       "name",
		"stream: {type: kafka, path: x}":                          "stream.type",
		"stream: {type: files}":                                   "stream.path",
		"stream: {type: files, path: /abs}":                       "stream.path",
		"stream: {type: files, path: a/../b}":                     "stream.path",
		"stream: {type: files, path: .}":                          "stream.path",
		`stream: {type: files, path: "a\\b"}`:                     "stream.path",
		"stream: {type: files, path: x, topic: y}":                "stream.topic",
		"format: {type: xml}":                                     "format.type",
		"format: {type: raw, columns: [{name: a, type: string}]}": "format.columns",
		"format: {type: json, onError: drop}":                     "format.onError",
		"format: {type: json, columns: [{name: a, type: text}]}":  "format.columns[0].type",
		"format: {type: json, columns: [{name: a, type: string}, {name: A, type: string}]}": "format.columns[1].name",
		"format: {type: json, timestamp: b, columns: [{name: a, type: timestamp}]}":         "format.timestamp",
		"replication: 0":                                  "replication",
		"replication: -3":                                 "replication",
		"replication: 1":                                  "replication", // peers only
		"replication: three":                              "replication",
		"segment: {maxRows: 0}":                           "segment.maxRows",
		"segment: {maxBytes: 0}":                          "segment.maxBytes",
		"segment: {maxAge: 0s}":                           "segment.maxAge",
		"segment: {maxAge: 5}":                            "segment.maxAge",
		"segment: {compression: lz4}":                     "segment.compression",
		"segment: {rowGroupRows: 0}":                      "segment.rowGroupRows",
		"segment: {rowGroupBytes: 0}":                     "segment.rowGroupBytes",
		"segment: {maxSize: 1}":                           "segment.maxSize",
		"completion: {mode: copy}":                        "completion.mode",
		"completion: {holdTime: 0s}":                      "completion.holdTime",
		"completion: {holdTime: 9ms}":                     "completion.holdTime",
		"completion: {holdTime: 25h}":                     "completion.holdTime",
		"replication: 11":                                 "replication",
		"completion: {commitTimeout: 999ms}":              "completion.commitTimeout",
		"completion: {commitTimeout: 2562047h}":           "completion.commitTimeout",
		"completion: {commitTimeout: 0s}":                 "completion.commitTimeout",
		"deepStore: {}":                                   "deepStore.uri",
		"deepStore: {uri: /backups}":                      "deepStore.uri",
		"deepStore: {uri: 'http://h/b'}":                  "deepStore.uri",
		"deepStore: {uri: 'file://backups'}":              "deepStore.uri",
		"deepStore: {uri: 'file:///a/../b'}":              "deepStore.uri",
		"deepStore: {uri: 'file:backups'}":                "deepStore.uri",
		"deepStore: {uri: 's3://'}":                       "deepStore.uri",
		"deepStore: {uri: 's3://u:p@b/x'}":                "deepStore.uri",
		"deepStore: {uri: 's3://b/x?y=1'}":                "deepStore.uri",
		"deepStore: {uri: 's3://b/x//y'}":                 "deepStore.uri",
		"deepStore: {uri: 's3://b/../y'}":                 "deepStore.uri",
		"deepStore: {uri: 'file:///b', uploadWait: -1s}":  "deepStore.uploadWait",
		"deepStore: {uri: 'file:///b', uploadWait: 120s}": "deepStore.uploadWait",
		"download: fastest":                               "download",
		"retention: {age: 0s}":                            "retention.age",
		"retention: {localAge: 1h}":                       "retention.localAge", // peers only
		"unknown: 1":                                      "unknown",
		"retention: {age: 1h, keep: 2h}":                  "retention.keep",
		"completion: {mode: build, holdTime: 3 s}":        "completion.holdTime",
	} {
		_, err := meta.ParseConfig("x.yaml", []byte(withLine(minimal, line)))
		var faults config.Faults
		if !errors.As(err, &faults) || len(faults) != 1 || faults[0].Field != field {
			t.Errorf("%s: want one fault of %s, got:\n%v", line, field, err)
		}
	}
	localAge := withLine(minimal, "deepStore: {uri: 'file:///b'}\nretention: {age: 1h, localAge: 2h}")
	if _, err := meta.ParseConfig("x.yaml", []byte(localAge)); err == nil || !strings.Contains(err.Error(), "retention.localAge") {
		t.Errorf("localAge beyond age: got %v", err)
	}
}

func TestGoodConfigs(t *testing.T) {
	for _, line := range []string{
		"name: a", "name: A.b-c_d", "stream: {type: files, path: a/b c/d}",
		"replication: 1\ndeepStore: {uri: 'file:///b'}", "replication: 10",
		"deepStore: {uri: 'file:///b/c/'}", "deepStore: {uri: 's3://bucket'}", "deepStore: {uri: 's3://bucket/p/'}",
		"deepStore:", "format: {type: json}", "segment: {compression: none, maxBytes: 1}", "download: peersFirst",
	} {
		if _, err := meta.ParseConfig("x.yaml", []byte(withLine(minimal, line))); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	if _, err := meta.ParseConfig("x.json", []byte(`{"name": "a", "stream": {"type": "files", "path": "a"}}`)); err != nil {
		t.Error(err)
	}
}

// withLine puts the line in, in place of the one with the same key.
func withLine(doc, line string) string {
	key, _, _ := strings.Cut(line, ":")
	var kept strings.Builder
	for l := range strings.Lines(doc) {
		if !strings.HasPrefix(l, key+":") {
			kept.WriteString(l)
		}
	}
	return fmt.Sprintf("%s%s\n", kept.String(), line)
}

// Whoever reads the faults need not be who wrote the file.
func TestFaultsShowNoCredentials(t *testing.T) {
	_, err := meta.ParseConfig("table.yaml", []byte("name: a\nstream: {type: files, path: a}\ndeepStore: {uri: \"s3://key:hunter2@bucket/x\"}\n"))
	if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "@bucket/x") {
		t.Errorf("got %v", err)
	}
}
