package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/segment"
)

// prove brings the table to its end and proves, from the bytes that are served
// and not from what anybody says of them, that each row of the stream is in
// exactly one committed segment, that every node has the same bytes of each, and
// the deep store too if the table has one; and that nothing else lies around.
// All processes must be up, and the producer at rest.
func (f *fleet) prove(table string, p *producer) {
	f.t.Helper()
	f.awaitComplete(table, p.ends(), f.urls())
	var tv api.TableView
	f.get("/tables/"+table, &tv)
	at, rows, lines := map[int32]int64{}, int64(0), map[int32][][]byte{}
	for partition, end := range p.ends() {
		lines[partition] = p.lines(partition)
		if n := int64(len(lines[partition])); n != end {
			f.t.Fatalf("the producer lost count in partition %d: %d of %d", partition, n, end)
		}
	}
	for _, s := range f.committedSegments(table) {
		if s.Start != at[s.Partition] {
			f.t.Errorf("%s starts at %d, its predecessor ended at %d", s.Name, s.Start, at[s.Partition])
		}
		at[s.Partition] = s.End
		rows += s.Rows
		var first []byte
		for _, n := range f.nodes {
			body := f.fetch(n.url, s)
			if first == nil {
				first = body
				compareRows(f.t, p.columns, lines[s.Partition], s, body)
			}
		}
		if tv.Config.DeepStore != nil {
			f.checkDeepStore(f.storeDir(tv.Config.DeepStore.URI), s)
		}
		if s.LastError != nil {
			f.t.Errorf("%s is done and has the error %+v", s.Name, s.LastError)
		}
	}
	for partition, end := range p.ends() {
		if at[partition] != end {
			f.t.Errorf("partition %d is in segments up to %d of %d rows", partition, at[partition], end)
		}
	}
	f.checkLeftovers(table)
	f.t.Logf("proved: %d rows in %d segments, each on %d nodes", rows, len(f.committedSegments(table)), len(f.nodes))
}

// awaitServed waits until each node serves what is committed of a table, and checks it.
func (f *fleet) awaitServed(table string) {
	f.t.Helper()
	for _, s := range f.committedSegments(table) {
		for _, n := range f.nodes {
			f.fetch(n.url, s)
		}
	}
}

// fetch reads a segment from a node and checks that its bytes are the digest's. A node
// that has committed it may have to hear first that it did.
func (f *fleet) fetch(base string, s api.SegmentView) []byte {
	f.t.Helper()
	url := base + "/segments/" + s.TableName + "/" + s.Name
	var res *http.Response
	var body []byte
	f.await("the end of "+s.Name+" at "+base, func() (bool, string) {
		var err error
		if res, err = http.Get(url); err != nil {
			f.t.Fatal(err)
		}
		defer res.Body.Close()
		if body, err = io.ReadAll(res.Body); err != nil {
			f.t.Fatal(err)
		}
		return res.StatusCode != http.StatusNotFound || !strings.Contains(string(body), "it is served once it is committed"), string(body)
	})
	if res.StatusCode != http.StatusOK {
		f.t.Fatalf("GET %s: %s: %.300s", url, res.Status, body)
	}
	if res.Header.Get("ETag") != s.Digest.ETag() || digestOf(body) != s.Digest {
		f.t.Errorf("GET %s: ETag %s, bytes hash to %s, the record says %s", url, res.Header.Get("ETag"), digestOf(body), s.Digest)
	}
	return body
}

func digestOf(body []byte) segment.Digest {
	var h segment.PieceHasher
	_, _ = h.Write(body)
	_, d := h.Sum()
	return d
}

// compareRows compares a segment with the stream, row by row.
func compareRows(t *testing.T, columns []column, lines [][]byte, s api.SegmentView, body []byte) {
	t.Helper()
	r, err := segment.OpenFile(bytes.NewReader(body), int64(len(body)))
	if err != nil {
		t.Errorf("%s: %v", s.Name, err)
		return
	}
	if got := r.Properties(); got.Start != s.Start || got.End != s.End || got.Partition != s.Partition || got.Table != s.TableName {
		t.Errorf("the footer of %s says %+v", s.Name, got)
	}
	next := s.Start
	for row, err := range r.Rows() {
		if err != nil {
			t.Errorf("%s: %v", s.Name, err)
			return
		}
		if problem := compareRow(columns, lines, next, row); problem != "" {
			t.Errorf("%s: %s", s.Name, problem)
			return
		}
		next++
	}
	if next != s.End || s.Rows != s.End-s.Start {
		t.Errorf("%s has rows up to %d, its record says [%d, %d) and %d rows", s.Name, next, s.Start, s.End, s.Rows)
	}
}

// compareRow says what is wrong with a row that should be the line at offset.
func compareRow(columns []column, lines [][]byte, offset int64, row *segment.StoredRow) string {
	if row.Offset != offset {
		return fmt.Sprintf("has offset %d where %d belongs", row.Offset, offset)
	}
	if offset >= int64(len(lines)) {
		return fmt.Sprintf("has a row at %d; the stream ends at %d", offset, len(lines))
	}
	line := lines[offset]
	if !bytes.Equal(row.Value, line) {
		return fmt.Sprintf("row %d is %.100q, in the stream it is %.100q", offset, row.Value, line)
	}
	want, err := columnsOf(columns, line)
	if (row.Error == "") != (err == nil) || !slices.Equal(row.Columns, want) {
		return fmt.Sprintf("row %d has columns %.100v and the error %q, want %.100v and %v", offset, row.Columns, row.Error, want, err)
	}
	return ""
}

// columnsOf decodes a line as a table with those columns has to: all of it, or no
// column at all.
func columnsOf(columns []column, line []byte) ([]any, error) {
	values := make([]any, len(columns))
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return values, err
	}
	for i, c := range columns {
		field := fields[c.Name]
		if field == nil || string(field) == "null" {
			continue
		}
		var err error
		switch c.Type {
		case "int32":
			values[i], err = decode[int32](field)
		case "int64":
			values[i], err = decode[int64](field)
		case "float64":
			values[i], err = decode[float64](field)
		case "string":
			values[i], err = decode[string](field)
		default:
			err = fmt.Errorf("no proof knows the type %s of column %s", c.Type, c.Name)
		}
		if err != nil {
			return make([]any, len(columns)), err
		}
	}
	return values, nil
}

func decode[T any](field json.RawMessage) (v T, err error) {
	err = json.Unmarshal(field, &v)
	return v, err
}

// checkDeepStore checks a segment's bytes in the directory that a deep store is, or
// keeps its objects in, and its sidecar.
func (f *fleet) checkDeepStore(dir string, s api.SegmentView) {
	f.t.Helper()
	key, err := deepstore.DataKey(s.Name, s.Digest)
	if err != nil {
		f.t.Fatal(err)
	}
	body, err := os.ReadFile(filepath.Join(dir, key))
	if err != nil || digestOf(body) != s.Digest {
		f.t.Errorf("%s in the deep store: %v, bytes hash to %s, the record says %s", s.Name, err, digestOf(body), s.Digest)
	}
	sidecar, err := os.ReadFile(filepath.Join(dir, deepstore.PiecesKey(key)))
	var pieces segment.Pieces
	if err == nil {
		err = pieces.UnmarshalBinary(sidecar)
	}
	if err == nil {
		err = pieces.Check(s.Digest)
	}
	if err != nil {
		f.t.Errorf("the sidecar of %s in the deep store: %v", s.Name, err)
	}
}

// checkLeftovers waits until each node holds the committed copies and nothing
// else: builds that were not committed, and damaged copies, are gone by then.
// And nothing may have been taken for an orphan.
func (f *fleet) checkLeftovers(table string) {
	f.t.Helper()
	var want []string
	for _, s := range f.committedSegments(table) {
		want = append(want, s.Name+" "+s.Digest.Short())
	}
	slices.Sort(want)
	for _, n := range f.nodes {
		f.await("only committed copies on "+n.name, func() (bool, string) {
			items, err := f.inventory(n.url)
			if err != nil {
				return false, err.Error()
			}
			var have []string
			for _, it := range items {
				if it.Table == table {
					have = append(have, it.Segment+" "+it.Digest.Short())
				}
			}
			slices.Sort(have)
			return slices.Equal(have, want), asJSON(items, nil)
		})
		if files := filesBelow(f.t, filepath.Join(n.data(), "orphans")); len(files) > 0 {
			f.t.Errorf("%s has set aside as orphans: %v", n.name, files)
		}
		f.await("no download left half done on "+n.name, func() (bool, string) {
			files := filesBelow(f.t, filepath.Join(n.data(), "staging", "downloads"))
			return len(files) == 0, asJSON(files, nil)
		})
	}
}

// filesBelow lists the files in a directory and below, none if it is not there.
func filesBelow(t *testing.T, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			files = append(files, path)
		}
		if os.IsNotExist(err) {
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// checkHistory stops everything and goes through the controller's log: the
// invariants of DESIGN §9 held after every single batch, and each node's cache
// is the beginning of that very log.
func (f *fleet) checkHistory() {
	f.t.Helper()
	f.stopNodes()
	f.controller.stop()
	all := readLog(f.t, f.controller.data(), "log")
	im := walkHistory(f.t, all)
	for _, n := range f.nodes {
		compareLogs(f.t, n.name, readLog(f.t, n.data(), "cache"), all)
	}
	f.t.Logf("history: %d batches in %d epochs", len(all), im.Epoch())
}

// walkHistory applies batch after batch, and returns what they come to.
func walkHistory(t *testing.T, all []metalog.Entry) *meta.Image {
	t.Helper()
	im := meta.Empty()
	for _, e := range all {
		next, err := im.Apply(e.Batch)
		if err != nil {
			t.Fatalf("batch %d: %v", e.Batch.Offset, err)
		}
		im = next
		if broken := meta.CheckInvariants(im); len(broken) > 0 {
			t.Fatalf("after batch %d: %v", e.Batch.Offset, broken)
		}
	}
	return im
}

// compareLogs checks that a log is part of the history, which begins with batch 0.
func compareLogs(t *testing.T, name string, log, all []metalog.Entry) {
	t.Helper()
	for _, e := range log {
		at := e.Batch.Offset
		if at >= int64(len(all)) {
			t.Errorf("%s has batch %d, the log ends at %d", name, at, len(all))
			return
		}
		if !bytes.Equal(e.Frame, all[at].Frame) {
			t.Errorf("%s has another batch at %d than the log", name, at)
			return
		}
	}
}

// readLog reads all of a log that nobody has open.
func readLog(t *testing.T, data, dir string) (all []metalog.Entry) {
	t.Helper()
	fs, err := vfs.OS(data)
	if err != nil {
		t.Fatal(err)
	}
	l, err := metalog.OpenLog(fs, metalog.LogOptions{Dir: dir, Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for at := l.Start(); at < l.End(); {
		frames, err := l.Read(at, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		some, err := metalog.DecodeEntries(frames)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, some...)
		at = some[len(some)-1].Batch.Offset + 1
	}
	return all
}
