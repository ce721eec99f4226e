// Package duckdbtest reads what Shoal wrote with an engine that Shoal's code has
// no part in: DuckDB. It is a module of its own, so that nobody who builds Shoal
// needs DuckDB or a C++ compiler.
//
// The main job is run as a user runs it (internal/up, as `shoal up
// --until-sealed` does); then the Parquet files of the deep store, and of each
// node, are compared with the input row by row, and their columns by sums and
// counts computed here from the input's JSON.
package duckdbtest

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	_ "github.com/duckdb/duckdb-go/v2"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/up"
)

const nodes = 3

// input returns the path of a shared data file, or of one with as many rows made
// here where there is none: a clone does not carry them. CI always does.
func input(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "..", "shared", "data", name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is absent", path)
	}
	t.Logf("%s is absent: running on generated rows", path)
	path = filepath.Join(t.TempDir(), "generated.ndjson")
	var b bytes.Buffer
	for i := range 3000 {
		fmt.Fprintf(&b, `{"id":%d,"half":%g,"name":"räksmörgås %d","on":%t,"none":null,"tags":["a",%d],"day":"2014-01-%02d"}`+"\n",
			i*i*i, float64(i)/2, i, i%3 == 0, i, 1+i%28)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// lines reads an input, one JSON text a line.
func lines(t *testing.T, path string) []string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		if r, err = gzip.NewReader(f); err != nil {
			t.Fatal(err)
		}
	}
	var out []string
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, 64<<20)
	for scanner.Scan() {
		out = append(out, scanner.Text())
	}
	if err := scanner.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestIndependentEngineReadsTheSameRows(t *testing.T) {
	for _, c := range []struct {
		table, file string
		rows        int
	}{
		{"flights", "flights.ndjson.gz", 9746},
		{"events", "events.ndjson.gz", 800},
	} {
		t.Run(c.table, func(t *testing.T) {
			path := input(t, c.file)
			rows := lines(t, path)
			if strings.HasSuffix(path, ".gz") && len(rows) != c.rows {
				t.Fatalf("the input has %d rows, want %d", len(rows), c.rows)
			}
			data := filepath.Join(t.TempDir(), "data")
			result := runMainJob(t, up.Config{Data: data, Nodes: nodes, Table: c.table, Input: path, MaxRows: 1000, UntilSealed: true})
			if !result.Complete || result.Coverage == nil {
				t.Fatalf("the run is not complete: %+v", result.Coverage)
			}
			var covered int64
			for _, p := range result.Coverage.Partitions {
				covered += p.Rows
			}
			if covered != int64(len(rows)) {
				t.Fatalf("the coverage proof counts %d rows, the input has %d", covered, len(rows))
			}
			globs := []string{filepath.Join(data, "deepstore", "**", "*.parquet")}
			for i := range nodes {
				globs = append(globs, filepath.Join(data, fmt.Sprintf("node-%d", i+1), "segments", "**", "*.parquet"))
			}
			for _, glob := range globs {
				compareRows(t, glob, rows)
				compareColumns(t, glob, rows)
			}
		})
	}
}

func runMainJob(t *testing.T, cfg up.Config) up.Result {
	t.Helper()
	var shown, logged bytes.Buffer
	result, err := up.Run(context.Background(), cfg, &shown, zerolog.New(&logged))
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, shown.String(), tail(logged.String(), 5000))
	}
	return result
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

// query runs one SQL statement and hands each row to scan.
func query(t *testing.T, scan func(*sql.Rows) error, text string, args ...any) {
	t.Helper()
	db, err := sql.Open("duckdb", "")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.Query(text, args...)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// compareRows: the values are the input's lines, each once, and offsets run
// without a gap in each partition.
func compareRows(t *testing.T, glob string, want []string) {
	t.Helper()
	var got []string
	next := map[int32]int64{}
	query(t, func(r *sql.Rows) error {
		var partition int32
		var offset int64
		var value []byte
		var failed sql.NullString
		if err := r.Scan(&partition, &offset, &value, &failed); err != nil {
			return err
		}
		if offset != next[partition] {
			t.Fatalf("%s: partition %d has offset %d where %d should be", glob, partition, offset, next[partition])
		}
		if failed.Valid {
			t.Fatalf("%s: partition %d, offset %d: _error %s", glob, partition, offset, failed.String)
		}
		next[partition]++
		got = append(got, string(value))
		return nil
	}, `select _partition, _offset, _value, _error from read_parquet(?) order by _partition, _offset`, glob)
	want = slices.Clone(want)
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Fatalf("%s: %d rows, want %d; they are not the input's", glob, len(got), len(want))
	}
}

// totals are what both sides compute of a column.
type totals struct {
	present int64
	sum     float64 // of numbers
	bytes   int64   // of strings
}

// compareColumns: each declared column has as many values, the same sum, and the
// same number of bytes of text as the input's field.
func compareColumns(t *testing.T, glob string, rows []string) {
	t.Helper()
	want := map[string]totals{}
	for _, line := range rows {
		var object map[string]any
		if err := json.Unmarshal([]byte(line), &object); err != nil {
			t.Fatal(err)
		}
		for name, v := range object {
			if v == nil {
				continue
			}
			sum := want[name]
			sum.present++
			switch v := v.(type) {
			case float64:
				sum.sum += v
			case string:
				sum.bytes += int64(len(v))
			}
			want[name] = sum
		}
	}
	compared := map[string]int{}
	for name, kind := range columns(t, glob) {
		quoted := `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
		var got totals
		sum, text := "0", "0"
		switch {
		case kind == "BIGINT", kind == "INTEGER", kind == "DOUBLE":
			sum = "coalesce(sum(" + quoted + ")::double, 0)"
		case kind == "VARCHAR" || kind == "BLOB":
			text = "coalesce(sum(octet_length(encode(" + quoted + "::varchar))), 0)"
		}
		query(t, func(r *sql.Rows) error { return r.Scan(&got.present, &got.sum, &got.bytes) },
			`select count(`+quoted+`), `+sum+`, `+text+`::bigint from read_parquet(?)`, glob)
		w := want[name]
		switch kind {
		case "VARCHAR", "BLOB":
			if w.bytes == 0 && w.present > 0 { // nested values, kept as JSON text
				w.bytes, got.bytes = 0, 0
			}
			w.sum = 0
		case "BIGINT", "INTEGER", "DOUBLE":
			w.bytes = 0
		default: // dates, times and booleans: counted
			w.sum, w.bytes = 0, 0
		}
		if got != w {
			t.Errorf("%s: column %s (%s) has %+v, the input %+v", glob, name, kind, got, w)
		}
		compared[kind]++
	}
	if len(compared) < 3 {
		t.Fatalf("%s: only columns of %v were compared: that proves little", glob, compared)
	}
}

// columns are the declared columns of the files, with DuckDB's types.
func columns(t *testing.T, glob string) map[string]string {
	t.Helper()
	out := map[string]string{}
	query(t, func(r *sql.Rows) error {
		var name, kind string
		var null, key, dflt, extra sql.NullString
		if err := r.Scan(&name, &kind, &null, &key, &dflt, &extra); err != nil {
			return err
		}
		if !strings.HasPrefix(name, "_") {
			out[name] = kind
		}
		return nil
	}, `describe select * from read_parquet(?)`, glob)
	return out
}
