package main

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand"
	"os"

	"github.com/shoalstore/shoal/segment"
)

// rowSet is the rows that everything is measured with: lines of JSON, newline
// included, used over and over. They are 16 MB, and a page of a segment at most
// 1 MiB: the compressor never sees two copies of a row.
type rowSet struct {
	lines     [][]byte
	generated bool
}

// loadRows reads the flights, or makes rows like them if they are not there.
func loadRows(file string) (rowSet, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return rowSet{lines: generateRows(9746), generated: true}, nil
	}
	if err != nil {
		return rowSet{}, err
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		return rowSet{}, fmt.Errorf("%s: %w", file, err)
	}
	var s rowSet
	for in := bufio.NewReader(unzipped); ; {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return s, nil
		}
		if err != nil {
			return rowSet{}, fmt.Errorf("%s: %w", file, err)
		}
		s.lines = append(s.lines, line)
	}
}

// generateRows makes rows of 79 fields with the names that flightColumns wants.
func generateRows(n int) [][]byte {
	rnd := rand.New(rand.NewSource(1))
	lines := make([][]byte, n)
	for i := range lines {
		b := fmt.Appendf(nil, `{"Carrier":"A%c","Origin":"JF%c","FlightDate":"2014-01-%02d","ArrDelay":%d,"AirTime":%d,"Distance":%d,"TailNum":"N%03dAA","Cancelled":%d,"DepTime":%d,"FlightNum":%d`,
			'A'+rnd.Intn(20), 'A'+rnd.Intn(26), 1+rnd.Intn(31), rnd.Intn(100)-20, rnd.Intn(400), rnd.Intn(3000), rnd.Intn(999), rnd.Intn(2), rnd.Intn(2400), rnd.Intn(5000))
		for f := range 69 {
			b = fmt.Appendf(b, `,"GeneratedField%02d":%d`, f, rnd.Intn(1000))
		}
		lines[i] = append(b, "}\n"...)
	}
	return lines
}

func (s rowSet) String() string {
	what := "flights (`flights.ndjson.gz`)"
	if s.generated {
		what = "generated rows (`flights.ndjson.gz` was not there)"
	}
	return fmt.Sprintf("%s, %d rows of %d bytes on average, repeated for volume; ten typed columns and `_value`, zstd",
		what, len(s.lines), s.bytes()/int64(len(s.lines)))
}

func (s rowSet) bytes() (n int64) {
	for _, l := range s.lines {
		n += int64(len(l))
	}
	return n
}

// line is the row at offset i of a stream of these rows.
func (s rowSet) line(i int64) []byte { return s.lines[i%int64(len(s.lines))] }

// write appends the rows of offsets [from, to) to w.
func (s rowSet) write(w io.Writer, from, to int64) error {
	for i := from; i < to; i++ {
		if _, err := w.Write(s.line(i)); err != nil {
			return err
		}
	}
	return nil
}

// writeFile makes a stream's file of the first n rows. It does not end with an
// fsync: a stream's durability is its producer's.
func (s rowSet) writeFile(name string, n int64) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	return errors.Join(s.write(w, 0, n), w.Flush(), f.Close())
}

// flightFormat has ten typed columns of the 79 fields, and keeps the rows as
// they came in _value.
func flightFormat() segment.Format {
	return segment.Format{Type: segment.FormatJSON, Timestamp: "FlightDate", Columns: []segment.Column{
		{Name: "Carrier", Type: segment.TypeString},
		{Name: "Origin", Type: segment.TypeString},
		{Name: "FlightDate", Type: segment.TypeDate},
		{Name: "ArrDelay", Type: segment.TypeInt32},
		{Name: "AirTime", Type: segment.TypeInt32},
		{Name: "Distance", Type: segment.TypeFloat64},
		{Name: "TailNum", Type: segment.TypeString},
		{Name: "Cancelled", Type: segment.TypeInt64},
		{Name: "DepTime", Type: segment.TypeInt32},
		{Name: "FlightNum", Type: segment.TypeInt64},
	}}
}
