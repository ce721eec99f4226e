package segment

import (
	"encoding/base64"
	"math/rand"
	"runtime"
	"runtime/debug"
	"testing"
)

// A builder stays within 64 MiB however long its segment gets, with the limits
// of row groups at their defaults and rows of up to 1 MiB that do not compress.
// What is measured is the heap in use above what was there before, at every
// write of the file, which is when the buffers are fullest.
func TestBuilderMemoryIsBounded(t *testing.T) {
	for _, test := range []struct {
		name    string
		rowSize int
		total   int64
		cfg     BuilderConfig
	}{
		{"rows of 1.6 KB", 1600, 64 << 20, flightConfig()},
		{"rows of 1 MiB, declared as a string", 1 << 20, 96 << 20, BuilderConfig{Format: Format{Type: FormatJSON, Columns: []Column{{Name: "s", Type: TypeString}}}}},
		{"rows of 1 MiB, as json and kept", 1 << 20, 96 << 20, BuilderConfig{Format: Format{Type: FormatJSON, Columns: []Column{{Name: "s", Type: TypeJSON}, {Name: "again", Type: TypeString, Path: "s"}}}}},
		{"rows of 1 MiB, uncompressed", 1 << 20, 96 << 20, BuilderConfig{Format: Format{Type: FormatRaw}, Compression: CompressionNone}},
		{"as many columns as there may be", 8 << 10, 32 << 20, BuilderConfig{Format: Format{Type: FormatJSON, Columns: manyColumns()}}},
		{"tiny rows", 16, 16 << 20, BuilderConfig{Format: Format{Type: FormatJSON, Columns: flightColumns()}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			total := test.total
			if testing.Short() {
				total /= 8
			}
			peak, raw := measureBuilder(t, test.cfg, test.rowSize, total)
			t.Logf("%d MiB of rows: at most %.1f MiB", raw>>20, float64(peak)/(1<<20))
			if peak > builderMemory {
				t.Errorf("%d bytes in use above the baseline", peak)
			}
		})
	}
}

const builderMemory = 64 << 20

func manyColumns() []Column {
	columns := make([]Column, MaxColumns)
	types := []ColumnType{TypeInt64, TypeString, TypeFloat64, TypeJSON}
	for i := range columns {
		columns[i] = Column{Name: "f" + string(rune('a'+i/100)) + string(rune('a'+i/10%10)) + string(rune('a'+i%10)), Type: types[i%len(types)]}
	}
	return columns
}

func measureBuilder(t *testing.T, cfg BuilderConfig, rowSize int, total int64) (peak, raw int64) {
	rnd := rand.New(rand.NewSource(3))
	random := make([]byte, 2<<20)
	rnd.Read(random)
	// Little garbage may pile up between collections: the test is about what is
	// held, and GOGC is the operator's.
	defer debug.SetGCPercent(debug.SetGCPercent(10))

	row := func(offset int64) *Row {
		n := max(rowSize*3/4-12, 0)
		at := rnd.Intn(len(random) - n)
		var value []byte
		switch {
		case len(cfg.Format.Columns) == MaxColumns:
			value = append(value, '{')
			for i, c := range cfg.Format.Columns {
				if i > 0 {
					value = append(value, ',')
				}
				value = append(value, `"`+c.Name+`":`...)
				if c.Type == TypeString {
					value = append(value, `"`+base64.StdEncoding.EncodeToString(random[at:at+6])+`"`...)
				} else {
					value = append(value, '1', byte('0'+i%10))
				}
			}
			value = append(value, '}')
		case rowSize < 100:
			value = []byte(`{"ArrDelay":12}`)
		default:
			value = make([]byte, 0, base64.StdEncoding.EncodedLen(n)+16)
			value = append(value, `{"s":"`...)
			value = base64.StdEncoding.AppendEncode(value, random[at:at+n])
			value = append(value, `"}`...)
		}
		return &Row{Offset: offset, Timestamp: offset, Value: value}
	}
	heap := func() int64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapInuse)
	}
	runtime.GC()
	debug.FreeOSMemory() // empties the pools, too
	base := heap()

	observe := func() error {
		now := heap() - base
		if now > builderMemory { // with many processors the collector may be behind, and this is about what is held
			runtime.GC()
			now = heap() - base
		}
		peak = max(peak, now)
		return nil
	}
	b, err := NewBuilder(observedFile{onWrite: observe}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for offset := int64(0); b.RawBytes() < total; offset++ {
		if offset == 0 && cfg.Start > 0 {
			offset = cfg.Start
		}
		if err := b.Append(row(offset)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Seal(b.Position()); err != nil {
		t.Fatal(err)
	}
	return peak, total
}

// observedFile keeps nothing and tells of each write.
type observedFile struct {
	discard
	onWrite func() error
}

func (f observedFile) Write(b []byte) (int, error) { return len(b), f.onWrite() }
