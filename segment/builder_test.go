package segment

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/cpu"
	"pgregory.net/rapid"
)

// readBack opens a file and returns its rows.
func readBack(tb testing.TB, data []byte) (*Reader, []*StoredRow) {
	tb.Helper()
	r, err := OpenFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		tb.Fatal(err)
	}
	var rows []*StoredRow
	for row, err := range r.Rows() {
		if err != nil {
			tb.Fatal(err)
		}
		rows = append(rows, row)
	}
	return r, rows
}

func TestRowsComeBackAsTheyWere(t *testing.T) {
	cfg := BuilderConfig{
		Table: "t", Partition: 7, Start: 10, ConfigVersion: 4,
		Format: Format{Type: FormatJSON, Columns: []Column{
			{Name: "b", Type: TypeBool},
			{Name: "i", Type: TypeInt32},
			{Name: "l", Type: TypeInt64},
			{Name: "f", Type: TypeFloat64},
			{Name: "s", Type: TypeString},
			{Name: "d", Type: TypeDate},
			{Name: "t", Type: TypeTimestamp},
			{Name: "j", Type: TypeJSON},
			{Name: "deep", Type: TypeString, Path: "o.p.q"},
			{Name: "x.y", Type: TypeInt64},
		}},
	}
	rows := []Row{
		{Offset: 10, Timestamp: 1000, LeaderEpoch: 3, Key: []byte("k"), Value: []byte(
			`{"b":true,"i":-5,"l":9223372036854775807,"f":1.5,"s":"é\n\ud83d\ude00","d":"1969-12-31","t":"2021-07-21T06:00:00.1239+02:00","j": [1, {"a":null}] ,"o":{"p":{"q":"in"}},"x.y":1,"other":{"z":[]}}`)},
		{Offset: 11, Timestamp: NoTimestamp, LeaderEpoch: 3, Key: []byte{}, Value: []byte(`{}`), Headers: []Header{{Key: "", Value: nil}, {Key: "h", Value: []byte{}}, {Key: "h", Value: []byte{0xff}}}},
		{Offset: 15, Timestamp: -5, LeaderEpoch: 4, Value: []byte(`not json`)},
		{Offset: 16, Timestamp: math.MaxInt64, LeaderEpoch: 4, Value: nil},
		{Offset: 17, Timestamp: 2000, LeaderEpoch: 5, Value: []byte{}},
		{Offset: 18, Timestamp: 2000, LeaderEpoch: 5, Value: []byte(`{"b":null,"i":null,"o":null,"s":"","t":-1000}`)},
	}
	f := new(memFile)
	b, err := NewBuilder(f, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		if err := b.Append(&rows[i]); err != nil {
			t.Fatal(err)
		}
	}
	sealed, err := b.Seal(25)
	if err != nil {
		t.Fatal(err)
	}
	r, got := readBack(t, f.data)
	if want := (Properties{Table: "t", Partition: 7, Start: 10, End: 25, ConfigVersion: 4, WriterVersion: WriterVersion}); r.Properties() != want {
		t.Errorf("properties %+v, want %+v", r.Properties(), want)
	}
	var raw int64
	for i := range rows {
		raw += rows[i].RawBytes()
	}
	info := sealed.Info
	if info.Start != 10 || info.End != 25 || info.Rows != 6 || info.RawBytes != raw || info.MinTimestamp != -5 || info.MaxTimestamp != 2000 || info.LastLeaderEpoch != 5 {
		t.Errorf("info %+v", info)
	}

	null := make([]any, len(cfg.Format.Columns))
	want := []StoredRow{
		{Columns: []any{true, int32(-5), int64(math.MaxInt64), 1.5, "é\n😀", Date(-1), time.UnixMilli(1626840000123).UTC(), json.RawMessage(`[1, {"a":null}]`), "in", int64(1)}},
		{Columns: null},
		{Columns: null, Error: "at byte 0: not a JSON value"},
		{Columns: null},
		{Columns: null, Error: "at byte 0: the value is empty"},
		{Columns: []any{nil, nil, nil, nil, "", nil, time.UnixMilli(-1000).UTC(), nil, nil, nil}},
	}
	for i := range want {
		want[i].Row = rows[i]
		want[i].LeaderEpoch = NoLeaderEpoch
	}
	want[3].Timestamp = NoTimestamp // engines could not read it
	for i := range want {
		if !reflect.DeepEqual(*got[i], want[i]) {
			t.Errorf("row %d:\n got %#v\nwant %#v", i, *got[i], want[i])
		}
	}
}

// The digests that the builder computes while it writes are those of the bytes.
func TestSealNamesTheBytes(t *testing.T) {
	data, sealed := build(t, flightConfig(), rowsOf(generatedLines(20000), 100))
	if len(data) < PieceSize/8 {
		t.Fatalf("only %d bytes", len(data))
	}
	pieces, digest, err := HashFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	if digest != sealed.Digest || !reflect.DeepEqual(pieces, sealed.Pieces) || sealed.SizeBytes != int64(len(data)) {
		t.Errorf("sealed as %v, %d bytes; the file is %v, %d bytes", sealed.Digest, sealed.SizeBytes, digest, len(data))
	}
	if sum := sha256.Sum256(data); sealed.SHA256 != sum {
		t.Errorf("sha256 %v, want %x", sealed.SHA256, sum)
	}
	if err := sealed.Pieces.Check(sealed.Digest); err != nil {
		t.Error(err)
	}
}

// Rows, however they come in, give the same file: in batches, by builders that
// run side by side and share pools, on files that write little at a time, from
// rows whose memory is laid out in another way.
func TestSameRowsGiveSameBytes(t *testing.T) {
	lines := generatedLines(3000)
	rapid.Check(t, func(t *rapid.T) {
		rnd := rand.New(rand.NewSource(rapid.Int64().Draw(t, "seed")))
		cfg := flightConfig()
		cfg.RowGroupRows = rapid.Int64Range(1, 3000).Draw(t, "rowGroupRows")
		cfg.RowGroupBytes = rapid.Int64Range(1000, 8<<20).Draw(t, "rowGroupBytes")
		cfg.Compression = rapid.SampledFrom([]string{"", CompressionNone, CompressionSnappy}).Draw(t, "compression")
		n := rapid.IntRange(1, len(lines)).Draw(t, "rows")
		if cfg.RowGroupRows < 50 || cfg.RowGroupBytes < 100_000 {
			n = min(n, 300) // thousands of tiny row groups only take time
		}
		rows := rowsOf(lines[:n], cfg.Start)
		for i := range rows {
			decorate(&rows[i], rnd)
		}

		first, sealed := build(t, cfg, rows)
		second, again := buildInterleaved(t, cfg, rows, rnd)
		if !bytes.Equal(first, second) {
			t.Fatalf("%d bytes and %d bytes differ", len(first), len(second))
		}
		if !reflect.DeepEqual(sealed, again) {
			t.Fatalf("sealed as %+v and %+v", sealed.Info, again.Info)
		}
	})
}

// decorate gives a row what a file of lines does not have, and spoils some.
func decorate(row *Row, rnd *rand.Rand) {
	if rnd.Intn(3) == 0 {
		row.Key = fmt.Appendf(nil, "key %d", rnd.Intn(100))
	}
	for range rnd.Intn(3) {
		row.Headers = append(row.Headers, Header{Key: "h", Value: make([]byte, rnd.Intn(5))})
	}
	switch rnd.Intn(20) {
	case 0:
		row.Value = row.Value[:len(row.Value)/2]
	case 1:
		row.Value = nil
	case 2:
		row.Value = bytes.Replace(row.Value, []byte(`"Carrier":"`), []byte(`"Carrier":"\u00e9\n`), 1)
	case 3:
		row.Value = append([]byte(`{"Added":1,`), row.Value[1:]...)
	}
}

// buildInterleaved builds from copies of the rows, in turns with a builder of
// other rows, and lets go of each row's memory as soon as its batch is over.
func buildInterleaved(t fatal, cfg BuilderConfig, rows []Row, rnd *rand.Rand) ([]byte, *Sealed) {
	f, otherFile := new(memFile), new(memFile)
	b, err := NewBuilder(f, cfg)
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewBuilder(otherFile, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(rows); {
		for range 1 + rnd.Intn(500) {
			if i == len(rows) {
				break
			}
			row := rows[i]
			row.Key = bytes.Clone(row.Key)
			row.Value = bytes.Clone(row.Value)
			if err := b.Append(&row); err != nil {
				t.Fatal(err)
			}
			i++
		}
		for range rnd.Intn(20) {
			row := rows[rnd.Intn(len(rows))]
			row.Offset = other.Position()
			if err := other.Append(&row); err != nil {
				t.Fatal(err)
			}
		}
	}
	sealed, err := b.Seal(b.Position())
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Abort(); err != nil {
		t.Fatal(err)
	}
	return f.data, sealed
}

// goldenDigest is of the file that golden builds. When it changes, files of the
// old and the new version differ for the same rows: raise WriterVersion.
const goldenDigest = "f1aab1eb9eeacddf7da452bef239c18bb46e74c0cf9d8478b40f23a005d094e5"

func golden(t *testing.T) (*Sealed, []byte) {
	cfg := flightConfig()
	cfg.RowGroupRows = 2500
	rows := rowsOf(generatedLines(6000), cfg.Start)
	rnd := rand.New(rand.NewSource(7))
	for i := range rows {
		decorate(&rows[i], rnd)
	}
	data, sealed := build(t, cfg, rows)
	return sealed, data
}

func TestGoldenDigest(t *testing.T) {
	if !cpu.X86.HasAVX2 {
		t.Skip("the golden digest is that of machines with AVX2: the runs of dictionary indexes are cut differently without it")
	}
	sealed, _ := golden(t)
	if got := sealed.Digest.String(); got != goldenDigest {
		t.Errorf("digest %s, want %s: is WriterVersion to be raised?", got, goldenDigest)
	}
}

// The writer version names the libraries whose versions decide the bytes.
func TestWriterVersionNamesTheLibraries(t *testing.T) {
	mod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	want := "1"
	for _, lib := range []string{"parquet-go/parquet-go", "klauspost/compress"} {
		m := regexp.MustCompile(`github.com/` + lib + ` (v\S+)`).FindSubmatch(mod)
		if m == nil {
			t.Fatalf("%s is not in go.mod", lib)
		}
		want += "+" + lib[strings.Index(lib, "/")+1:] + "." + string(m[1])
	}
	if WriterVersion != want {
		t.Errorf("WriterVersion is %q; go.mod says %q", WriterVersion, want)
	}
}

// A row group ends at its limit of rows or bytes, inside a block too.
func TestRowGroupsEndAtTheirLimits(t *testing.T) {
	lines := generatedLines(2500)
	for _, test := range []struct {
		name        string
		rows, bytes int64
		want        []int64
	}{
		{"neither", 0, 0, []int64{2500}},
		{"rows", 1100, 0, []int64{1100, 1100, 300}},
		{"rows, exactly", 1250, 0, []int64{1250, 1250}},
		{"one row", 1, 0, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := flightConfig()
			cfg.RowGroupRows, cfg.RowGroupBytes = test.rows, test.bytes
			n := len(lines)
			if test.want == nil {
				n = 5
				test.want = []int64{1, 1, 1, 1, 1}
			}
			data, _ := build(t, cfg, rowsOf(lines[:n], 100))
			if got := rowGroups(t, data); !reflect.DeepEqual(got, test.want) {
				t.Errorf("row groups of %v rows, want %v", got, test.want)
			}
			readBack(t, data)
		})
	}
	t.Run("bytes", func(t *testing.T) {
		cfg := flightConfig()
		cfg.RowGroupBytes = 100_000
		rows := rowsOf(lines, 100)
		var want []int64
		var n, size int64
		for i := range rows {
			n++
			if size += rows[i].RawBytes(); size >= cfg.RowGroupBytes || i == len(rows)-1 {
				want = append(want, n)
				n, size = 0, 0
			}
		}
		data, _ := build(t, cfg, rows)
		if got := rowGroups(t, data); !reflect.DeepEqual(got, want) {
			t.Errorf("row groups of %v rows, want %v", got, want)
		}
	})
}

func rowGroups(t *testing.T, data []byte) (rows []int64) {
	r, err := OpenFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range r.file.Metadata().RowGroups {
		rows = append(rows, g.NumRows)
	}
	return rows
}

func TestAppendRefusesOffsetsBelowItsPosition(t *testing.T) {
	b, err := NewBuilder(new(memFile), flightConfig())
	if err != nil {
		t.Fatal(err)
	}
	appendAt := func(offset int64) error { return b.Append(&Row{Offset: offset, Value: []byte("{}")}) }
	for _, step := range []struct {
		offset, position int64
		ok               bool
	}{{99, 100, false}, {100, 101, true}, {100, 101, false}, {105, 106, true}, {104, 106, false}} {
		err := appendAt(step.offset)
		var below *OffsetError
		if step.ok != (err == nil) || !step.ok && !errors.As(err, &below) {
			t.Errorf("append at %d: %v", step.offset, err)
		}
		if b.Position() != step.position {
			t.Errorf("position %d after %d, want %d", b.Position(), step.offset, step.position)
		}
	}
	if b.Rows() != 2 || b.RawBytes() != 4 {
		t.Errorf("%d rows, %d bytes", b.Rows(), b.RawBytes())
	}
	var below *OffsetError
	if _, err := b.Seal(105); !errors.As(err, &below) {
		t.Errorf("seal below the position: %v", err)
	}
	if _, err := b.Seal(106); err != nil {
		t.Error(err)
	}
}

func TestSealIsTheEnd(t *testing.T) {
	f := new(memFile)
	b, err := NewBuilder(f, flightConfig())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Seal(200); !errors.Is(err, ErrNoRows) {
		t.Errorf("seal without rows: %v", err)
	}
	if err := b.Append(&Row{Offset: 100, Value: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Seal(200); err != nil {
		t.Fatal(err)
	}
	size := len(f.data)
	if err := b.Append(&Row{Offset: 300}); !errors.Is(err, ErrSealed) {
		t.Errorf("append after seal: %v", err)
	}
	if _, err := b.Seal(400); !errors.Is(err, ErrSealed) {
		t.Errorf("second seal: %v", err)
	}
	if err := b.Abort(); err != nil || f.closed != 0 {
		t.Errorf("abort after seal: %v, closed %d times", err, f.closed)
	}
	if len(f.data) != size {
		t.Error("the file changed after the seal")
	}
}

func TestAbortClosesTheFileOnce(t *testing.T) {
	f := new(memFile)
	b, err := NewBuilder(f, flightConfig())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := b.Abort(); err != nil {
			t.Fatal(err)
		}
	}
	if f.closed != 1 {
		t.Errorf("closed %d times", f.closed)
	}
	if err := b.Append(&Row{Offset: 100}); !errors.Is(err, ErrSealed) {
		t.Errorf("append after abort: %v", err)
	}
}

// A full disk stays the builder's error, wherever it strikes.
func TestWriteErrorsStay(t *testing.T) {
	full := errors.New("disk full")
	rows := rowsOf(generatedLines(3000), 100)
	whole, _ := build(t, BuilderConfig{Start: 100, Format: Format{Type: FormatRaw}, RowGroupRows: 500, Compression: CompressionNone}, rows)
	for _, limit := range []int{0, len(whole) / 2, len(whole) - 10} {
		f := new(memFile)
		f.onWrite = func() error {
			if len(f.data)+fileBuffer > limit {
				return full
			}
			return nil
		}
		b, err := NewBuilder(f, BuilderConfig{Start: 100, Format: Format{Type: FormatRaw}, RowGroupRows: 500, Compression: CompressionNone})
		if err != nil {
			t.Fatal(err)
		}
		for i := range rows {
			if err = b.Append(&rows[i]); err != nil {
				break
			}
		}
		if err == nil {
			_, err = b.Seal(b.Position())
		}
		if !errors.Is(err, full) {
			t.Errorf("full at %d: %v", limit, err)
		}
		if _, err := b.Seal(1 << 40); !errors.Is(err, full) {
			t.Errorf("seal after the error: %v", err)
		}
	}
}

func TestNewBuilderRefusesABadConfig(t *testing.T) {
	for name, cfg := range map[string]BuilderConfig{
		"format":      {},
		"compression": {Format: Format{Type: FormatRaw}, Compression: "lz4"},
	} {
		if _, err := NewBuilder(new(memFile), cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// Rows far beyond the usual size are rows all the same.
func TestHugeRowsAreAccepted(t *testing.T) {
	const size = 32 << 20
	huge := []byte(`{"Carrier":"` + strings.Repeat("ü", (size-14)/2) + `"}`)
	rows := []Row{
		{Offset: 100, Value: []byte(`{"Carrier":"a"}`)},
		{Offset: 101, Value: huge},
		{Offset: 102, Value: []byte(`{"Carrier":"b"}`)},
	}
	data, _ := build(t, flightConfig(), rows)
	_, got := readBack(t, data)
	for i, row := range got {
		if !bytes.Equal(row.Value, rows[i].Value) || row.Error != "" {
			t.Errorf("row %d: %d bytes, %s", i, len(row.Value), row.Error)
		}
	}
	if s := got[1].Columns[0].(string); len(s) != size-14 || len(data) > size/8 {
		t.Errorf("a column of %d bytes in a file of %d", len(s), len(data))
	}
}

// With keepValue off, _value is only there for rows that do not decode.
func TestKeepValueOff(t *testing.T) {
	cfg := flightConfig()
	cfg.Format.KeepValue = new(bool)
	data, _ := build(t, cfg, []Row{
		{Offset: 100, Value: []byte(`{"Carrier":"AA"}`)},
		{Offset: 101, Value: []byte(`{"Carrier":1}`)},
	})
	_, rows := readBack(t, data)
	if rows[0].Value != nil || rows[0].Columns[0] != "AA" || rows[0].Error != "" {
		t.Errorf("row 0: %+v", rows[0])
	}
	if string(rows[1].Value) != `{"Carrier":1}` || rows[1].Columns[0] != nil || rows[1].Error == "" {
		t.Errorf("row 1: %+v", rows[1])
	}
}

// The stream's timestamp is not used where a column is declared, not even for a
// row that has none there.
func TestDeclaredTimestamp(t *testing.T) {
	data, sealed := build(t, flightConfig(), []Row{
		{Offset: 100, Timestamp: 5, Value: []byte(`{"FlightDate":"2014-01-02"}`)},
		{Offset: 101, Timestamp: 5, Value: []byte(`{}`)},
		{Offset: 102, Timestamp: 5, Value: []byte(`bad`)},
		{Offset: 103, Timestamp: 5, Value: []byte(`{"FlightDate":"2014-01-01"}`)},
	})
	_, rows := readBack(t, data)
	day := time.Date(2014, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	for i, want := range []int64{day + dayMillis, NoTimestamp, NoTimestamp, day} {
		if rows[i].Timestamp != want {
			t.Errorf("row %d: timestamp %d, want %d", i, rows[i].Timestamp, want)
		}
	}
	if sealed.MinTimestamp != day || sealed.MaxTimestamp != day+dayMillis {
		t.Errorf("timestamps from %d to %d", sealed.MinTimestamp, sealed.MaxTimestamp)
	}
}

// Bounds are there where they are short, and right; page indexes are not.
func TestStatistics(t *testing.T) {
	cfg := BuilderConfig{Format: Format{Type: FormatJSON, Columns: []Column{
		{Name: "i", Type: TypeInt32}, {Name: "f", Type: TypeFloat64}, {Name: "s", Type: TypeString}, {Name: "long", Type: TypeString}, {Name: "j", Type: TypeJSON},
	}}}
	long := strings.Repeat("x", boundBytes+1)
	data, _ := build(t, cfg, []Row{
		{Offset: 0, Value: []byte(`{"i":3,"f":0.0,"s":"b","long":"` + long + `","j":1}`)},
		{Offset: 1, Value: []byte(`{"i":-2,"f":-0.0,"s":"a","long":"y","j":2}`)},
		{Offset: 2, Value: []byte(`{}`)},
	})
	r, _ := readBack(t, data)
	columns := r.file.Metadata().RowGroups[0].Columns
	hexOf := func(leaf int) string {
		s := columns[leaf].MetaData.Statistics
		return fmt.Sprintf("%s..%s %d", hex.EncodeToString(s.MinValue), hex.EncodeToString(s.MaxValue), s.NullCount)
	}
	for i, want := range []string{
		"feffffff..03000000 1",
		"0000000000000080..0000000000000000 1", // -0 to +0, whichever came first
		"61..62 1",
		".. 1",
		".. 1",
		".. 0",
	} {
		if got := hexOf(leafDeclared + i); got != want {
			t.Errorf("%v: %s, want %s", columns[leafDeclared+i].MetaData.PathInSchema, got, want)
		}
	}
	for _, c := range columns {
		if c.ColumnIndexOffset != 0 || c.OffsetIndexOffset != 0 {
			t.Errorf("%v has a page index", c.MetaData.PathInSchema)
		}
	}
}
