package e2e

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"testing"
)

// flightColumns are some of the flights' 79 fields.
var flightColumns = []column{
	{"Carrier", "string"}, {"FlightNum", "int32"}, {"Origin", "string"}, {"Dest", "string"},
	{"DepDelay", "int64"}, {"Distance", "float64"}, {"CancellationCode", "string"},
}

// newFlights makes a stream of the main job's input: the flights, one after another
// into partitions in turns, as shoal up does it.
func newFlights(t *testing.T, root, name string, partitions int) *producer {
	t.Helper()
	p := newProducer(t, root, name, partitions)
	p.columns = flightColumns
	for i, row := range flightRows(t) {
		p.raw(int32(i%partitions), row)
	}
	return p
}

// flightRows reads the flights from beside the repository. Where they are not the test
// goes on with generated rows of that shape, and says so; in CI that is a failure.
func flightRows(t *testing.T) (rows [][]byte) {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "..", "..", "shared", "data", "flights.ndjson.gz"))
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("the shared data must be there in CI: %v", err)
		}
		t.Logf("using generated rows: %v", err)
		return generatedFlights(9746)
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	s := bufio.NewScanner(unzipped)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		rows = append(rows, append([]byte(nil), s.Bytes()...))
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return rows
}

func generatedFlights(n int) (rows [][]byte) {
	rnd := rand.New(rand.NewSource(1))
	for range n {
		row := fmt.Appendf(nil, `{"Carrier":"A%c","FlightNum":%d,"Origin":"JF%c","Dest":"LA%c","DepDelay":%d,"Distance":%d,"CancellationCode":null`,
			'A'+rnd.Intn(20), rnd.Intn(5000), 'A'+rnd.Intn(26), 'A'+rnd.Intn(26), rnd.Intn(100)-20, rnd.Intn(3000))
		for f := range 72 {
			row = fmt.Appendf(row, `,"GeneratedField%02d":%d`, f, rnd.Intn(1000))
		}
		rows = append(rows, append(row, '}'))
	}
	return rows
}
