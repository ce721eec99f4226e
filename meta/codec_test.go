package meta_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

func TestARecordSurvivesJSONAndThenCBOR(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := metatest.Record().Draw(t, "record")
		kind := r.Key().Kind
		text, err := meta.EncodeRecordJSON(r)
		if err != nil {
			t.Fatal(err)
		}
		fromJSON, err := meta.DecodeRecordJSON(kind, text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		data, err := meta.EncodeRecord(fromJSON)
		if err != nil {
			t.Fatal(err)
		}
		if appended, err := meta.AppendRecord([]byte("x"), fromJSON); err != nil || string(appended) != "x"+string(data) {
			t.Fatalf("%v\nappended %x\nencoded    %x", err, appended, data)
		}
		back, err := meta.DecodeRecord(kind, data)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(back, r) {
			t.Fatalf("JSON and CBOR made\n%+v of\n%+v\nby way of %s", back, r, text)
		}
		again, err := meta.EncodeRecordJSON(back)
		if err != nil || !bytes.Equal(again, text) {
			t.Fatalf("the JSON is not canonical: %v\n%s\n%s", err, text, again)
		}
	})
}

func TestABatchSurvivesItsEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := metatest.Batch().Draw(t, "batch")
		data, err := meta.EncodeBatch(b)
		if err != nil {
			t.Fatal(err)
		}
		back, err := meta.DecodeBatch(data)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(back, b) {
			t.Fatalf("got %+v\nof  %+v", back, b)
		}
		again, err := meta.EncodeBatch(back)
		if err != nil || !bytes.Equal(again, data) {
			t.Fatalf("the encoding is not deterministic: %v\n%x\n%x", err, data, again)
		}
		want := &meta.Batch{Offset: b.Offset, Epoch: b.Epoch, Term: b.Term, Time: b.Time}
		if head, err := meta.DecodeBatchHead(data); err != nil || !reflect.DeepEqual(head, want) {
			t.Fatalf("%v: its head is %+v, want %+v", err, head, want)
		}
	})
}

// TestGoldenBatches reads what earlier builds wrote: a log outlives them.
func TestGoldenBatches(t *testing.T) {
	path := filepath.Join("testdata", "batches-v1.hex")
	if *rewrite {
		var lines []string
		for _, b := range sampleLog(t).Batches {
			data, err := meta.EncodeBatch(b)
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, hex.EncodeToString(data))
		}
		if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	im := meta.Empty()
	for line := range strings.Lines(string(golden)) {
		data, err := hex.DecodeString(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		b, err := meta.DecodeBatch(data)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := meta.EncodeBatch(b); err != nil || !bytes.Equal(again, data) {
			t.Errorf("batch %d is written differently now: %v", b.Offset, err)
		}
		if im, err = im.Apply(b); err != nil {
			t.Fatal(err)
		}
	}
	want := jsonOf(t, sampleLog(t).Image)
	if got := jsonOf(t, im); got != want {
		t.Errorf("the golden log makes\n%s\nnot\n%s", got, want)
	}
}

// sampleLog is a short log with a record of every kind but tombstones.
func sampleLog(t *testing.T) *metatest.Log {
	l := metatest.NewLog(t)
	l.AddNode(t, "n1", "a")
	l.AddNode(t, "n2", "b")
	cfg := metatest.Config("flights")
	cfg.DeepStore = &meta.DeepStoreConfig{URI: "s3://bucket/prefix"}
	id := l.AddTable(t, cfg, 2)
	k := meta.PartitionKey{Table: id}
	c := l.Commit(t, k, 40)
	c.DeepStoreURI = "s3://bucket/prefix/flights/0/x.parquet"
	l.Do(t, meta.CommitSegment(c))
	l.Do(t, meta.CreateJob(metatest.ID("job"), "forceCommit", map[string]string{"table": "flights"}))
	l.Do(t, meta.RequestEnd(id, nil, meta.EndForceCommit, metatest.ID("job")))
	l.Do(t, meta.RecordError(k.Segment(1), "n1", "cannot read partition-00000.ndjson", true))
	return l
}

func jsonOf(t *testing.T, im *meta.Image) string {
	var b strings.Builder
	for r := range im.Records() {
		text, err := meta.EncodeRecordJSON(r)
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString(r.Key().String() + " " + string(text) + "\n")
	}
	return b.String()
}

func TestARecordTooLargeIsRefusedWithItsSize(t *testing.T) {
	s := &meta.Segment{Table: uuid.UUID{1}, Name: strings.Repeat("x", meta.MaxRecordSize)}
	_, err := meta.EncodeBatch(&meta.Batch{Upserts: []meta.Record{s}})
	var tooLarge *meta.RecordTooLargeError
	if !errors.As(err, &tooLarge) || tooLarge.Size <= meta.MaxRecordSize || tooLarge.Key != s.Key() {
		t.Fatalf("got %v", err)
	}
}

func TestTextThatIsNotUTF8IsNeverWritten(t *testing.T) {
	n := &meta.Node{ID: "n1", URL: "http://\xff"}
	if _, err := meta.EncodeBatch(&meta.Batch{Upserts: []meta.Record{n}}); err == nil {
		t.Fatal("a record that cannot be read again was encoded")
	}
	if _, err := meta.EncodeRecordJSON(n); err == nil {
		t.Fatal("the same as JSON")
	}
}

func TestJSONFromOutsideIsStrict(t *testing.T) {
	for name, text := range map[string]string{
		"unknown name":   `{"id":"6ba7b810-9dad-11d1-80b4-00c04fd430c8","formatVersion":1,"extra":1}`,
		"doubled name":   `{"formatVersion":1,"formatVersion":2}`,
		"another case":   `{"FormatVersion":1}`,
		"trailing bytes": `{"formatVersion":1}{}`,
		"no object":      `[]`,
		"fraction":       `{"formatVersion":1.5}`,
	} {
		if r, err := meta.DecodeRecordJSON(meta.KindCluster, []byte(text)); !errors.Is(err, meta.ErrMalformed) {
			t.Errorf("%s: got %+v, %v", name, r, err)
		}
	}
	if _, err := meta.DecodeRecordJSON(meta.Kind(77), []byte(`{}`)); !errors.Is(err, meta.ErrMalformed) {
		t.Errorf("unknown kind: %v", err)
	}
}

func FuzzDecodeBatch(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0xbf, 0xff})
	for seed := range 20 {
		if data, err := meta.EncodeBatch(metatest.Batch().Example(seed)); err == nil {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := meta.DecodeBatch(data)
		if err != nil {
			if !errors.Is(err, meta.ErrMalformed) {
				t.Fatalf("not said to be malformed: %v", err)
			}
			return
		}
		encoded, err := meta.EncodeBatch(b)
		if err != nil {
			var tooLarge *meta.RecordTooLargeError // a shorter spelling was read
			if errors.As(err, &tooLarge) {
				return
			}
			t.Fatalf("read but not written: %v", err)
		}
		again, err := meta.DecodeBatch(encoded)
		if err != nil || !reflect.DeepEqual(again, b) {
			t.Fatalf("%v\n%+v\n%+v", err, again, b)
		}
		head, err := meta.DecodeBatchHead(data)
		if err != nil || head.Offset != b.Offset || head.Epoch != b.Epoch || head.Term != b.Term || head.Time != b.Time {
			t.Fatalf("%v: its head is %+v\n%+v", err, head, b)
		}
		_, _ = meta.Empty().Apply(b) // no panic, whatever it says
	})
}

func FuzzDecodeRecordJSON(f *testing.F) {
	for seed := range 20 {
		r := metatest.Record().Example(seed)
		if text, err := meta.EncodeRecordJSON(r); err == nil {
			f.Add(uint8(r.Key().Kind), text)
		}
	}
	f.Fuzz(func(t *testing.T, kind uint8, text []byte) {
		r, err := meta.DecodeRecordJSON(meta.Kind(kind), text)
		if err != nil {
			if !errors.Is(err, meta.ErrMalformed) {
				t.Fatalf("not said to be malformed: %v", err)
			}
			return
		}
		canonical, err := meta.EncodeRecordJSON(r)
		if err != nil {
			t.Fatal(err)
		}
		again, err := meta.DecodeRecordJSON(meta.Kind(kind), canonical)
		if err != nil || !reflect.DeepEqual(again, r) {
			t.Fatalf("%v\n%+v\n%+v", err, again, r)
		}
	})
}
