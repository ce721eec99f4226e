package segment

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"testing"

	"github.com/shoalstore/shoal/internal/vfs"
)

// sharedLines reads a file of real rows from beside the repository. Where there
// is none the test goes on with generated rows of the same shape, and says so;
// in CI that is a failure.
func sharedLines(tb testing.TB, name string) [][]byte {
	tb.Helper()
	f, err := os.Open(filepath.Join("..", "..", "shared", "data", name))
	if err != nil {
		if os.Getenv("CI") == "true" {
			tb.Fatalf("the shared data must be there in CI: %v", err)
		}
		tb.Logf("using generated rows: %v", err)
		return generatedLines(2000)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		tb.Fatal(err)
	}
	var lines [][]byte
	s := bufio.NewScanner(z)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		lines = append(lines, bytes.Clone(s.Bytes()))
	}
	if err := s.Err(); err != nil {
		tb.Fatal(err)
	}
	return lines
}

// generatedLines are rows that look like the flights: 79 fields, some null.
func generatedLines(n int) [][]byte {
	rnd := rand.New(rand.NewSource(1))
	lines := make([][]byte, n)
	for i := range lines {
		b := fmt.Appendf(nil, `{"Carrier":%q,"Origin":%q,"FlightDate":"2014-01-%02d","ArrDelay":%d,"AirTime":%d,"Distance":%d,"TailNum":"N%03dAA","Cancelled":%d,"DepTime":%d,"FlightNum":%d`,
			[]string{"AA", "DL", "UA"}[rnd.Intn(3)], []string{"JFK", "LAX"}[rnd.Intn(2)], 1+rnd.Intn(31), rnd.Intn(100)-20, rnd.Intn(400), rnd.Intn(3000), rnd.Intn(999), rnd.Intn(2), rnd.Intn(2400), rnd.Intn(5000))
		for f := range 69 {
			switch f % 3 {
			case 0:
				b = fmt.Appendf(b, `,"Field%d":null`, f)
			case 1:
				b = fmt.Appendf(b, `,"Field%d":%d`, f, rnd.Intn(100000))
			default:
				b = fmt.Appendf(b, `,"Field%d":"text %d"`, f, rnd.Intn(100))
			}
		}
		lines[i] = append(b, '}')
	}
	return lines
}

// flightColumns are ten typed columns of the flights.
func flightColumns() []Column {
	return []Column{
		{Name: "Carrier", Type: TypeString},
		{Name: "Origin", Type: TypeString},
		{Name: "FlightDate", Type: TypeDate},
		{Name: "ArrDelay", Type: TypeInt32},
		{Name: "AirTime", Type: TypeInt32},
		{Name: "Distance", Type: TypeFloat64},
		{Name: "TailNum", Type: TypeString},
		{Name: "Cancelled", Type: TypeInt64},
		{Name: "DepTime", Type: TypeInt32},
		{Name: "FlightNum", Type: TypeInt64},
	}
}

func flightConfig() BuilderConfig {
	return BuilderConfig{
		Table: "flights", Partition: 3, Start: 100, ConfigVersion: 1,
		Format: Format{Type: FormatJSON, Timestamp: "FlightDate", Columns: flightColumns()},
	}
}

// rowsOf makes a stream of lines, from an offset on, without keys.
func rowsOf(lines [][]byte, start int64) []Row {
	rows := make([]Row, len(lines))
	for i, line := range lines {
		rows[i] = Row{Offset: start + int64(i), Timestamp: NoTimestamp, LeaderEpoch: NoLeaderEpoch, Value: line}
	}
	return rows
}

// memFile is a file in memory that only grows. The embedded File is nil: a
// builder that did anything but write would panic.
type memFile struct {
	vfs.File
	data    []byte
	onWrite func() error
	closed  int
}

func (f *memFile) Write(b []byte) (int, error) {
	if f.onWrite != nil {
		if err := f.onWrite(); err != nil {
			return 0, err
		}
	}
	f.data = append(f.data, b...)
	return len(b), nil
}

func (f *memFile) Close() error { f.closed++; return nil }

// fatal is what build needs of a test, a benchmark, or a property.
type fatal interface {
	Helper()
	Fatal(args ...any)
}

// build seals rows into a file in memory, which ends after the last row.
func build(tb fatal, cfg BuilderConfig, rows []Row) ([]byte, *Sealed) {
	tb.Helper()
	f := new(memFile)
	b, err := NewBuilder(f, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	for i := range rows {
		if err := b.Append(&rows[i]); err != nil {
			tb.Fatal(err)
		}
	}
	sealed, err := b.Seal(b.Position())
	if err != nil {
		tb.Fatal(err)
	}
	return f.data, sealed
}
