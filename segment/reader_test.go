package segment

import (
	"bytes"
	"errors"
	"io"
	"math/rand"
	"os"
	"testing"
)

// smallFile has every kind of column, two row groups, and rows that do not
// decode, in a few kilobytes.
func smallFile(tb testing.TB) []byte {
	cfg := flightConfig()
	cfg.RowGroupRows = 8
	cfg.Format.Columns = append(cfg.Format.Columns, Column{Name: "t", Type: TypeTimestamp}, Column{Name: "j", Type: TypeJSON}, Column{Name: "b", Type: TypeBool})
	rows := rowsOf(generatedLines(12), cfg.Start)
	rnd := rand.New(rand.NewSource(1))
	for i := range rows {
		decorate(&rows[i], rnd)
		rows[i].Value = rows[i].Value[:min(len(rows[i].Value), 300)]
	}
	data, _ := build(tb, cfg, rows)
	return data
}

// readAll reads a file that may be damaged, to the end or the first error.
func readAll(data []byte) error {
	r, err := OpenFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return err
	}
	for _, err := range r.Rows() {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestDamageIsAnErrorAndNeverAPanic(t *testing.T) {
	whole := smallFile(t)
	if err := readAll(whole); err != nil {
		t.Fatal(err)
	}
	for n := range len(whole) {
		if err := readAll(whole[:n]); !errors.Is(err, ErrDamaged) {
			t.Fatalf("cut to %d of %d bytes: %v", n, len(whole), err)
		}
	}
	// A flipped bit may go unnoticed here, where it changes a value and no
	// checksum covers it; what counts is that nothing worse happens.
	for i := range whole {
		data := bytes.Clone(whole)
		data[i] ^= 1 << (i % 8)
		if err := readAll(data); err != nil && !errors.Is(err, ErrDamaged) {
			t.Fatalf("bit flipped in byte %d: %v", i, err)
		}
	}
}

// A Parquet file that is not a segment is told from one.
func TestOpenFileRefusesWhatIsNoSegment(t *testing.T) {
	for name, data := range map[string][]byte{
		"nothing":            {},
		"magic only":         []byte("PAR1PAR1"),
		"a huge footer":      []byte("PAR1\xff\xff\xff\x7fPAR1"),
		"an empty footer":    []byte("PAR1\x00\x00\x00\x00PAR1"),
		"encrypted":          []byte("PAREPARE\x00\x00\x00\x00PARE"),
		"another kind":       bytes.Repeat([]byte("text "), 100),
		"another file's end": append([]byte("XXXX"), smallFile(t)[4:]...),
	} {
		if err := readAll(data); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A failing disk is not damage of the file.
func TestReadErrorsAreNotDamage(t *testing.T) {
	_, err := OpenFile(failingReader{}, 1000)
	if !errors.Is(err, os.ErrPermission) || errors.Is(err, ErrDamaged) {
		t.Errorf("got %v", err)
	}
}

type failingReader struct{}

func (failingReader) ReadAt([]byte, int64) (int, error) { return 0, os.ErrPermission }

func TestRowsCanBeLeftEarly(t *testing.T) {
	data := smallFile(t)
	r, err := OpenFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // and read again
		n := 0
		for _, err := range r.Rows() {
			if err != nil {
				t.Fatal(err)
			}
			if n++; n == 3 {
				break
			}
		}
		if n != 3 {
			t.Errorf("%d rows", n)
		}
	}
}

// FuzzOpenFile changes a good file in a few places, as it would take a fuzzer
// very long to find one.
func FuzzOpenFile(f *testing.F) {
	whole := smallFile(f)
	f.Add(uint32(0), uint32(len(whole)), []byte{})
	f.Add(uint32(len(whole)-8), uint32(len(whole)), []byte{0xff, 0xff})
	f.Add(uint32(len(whole)-300), uint32(len(whole)), []byte{0xff, 0x01, 0x80})
	f.Add(uint32(20), uint32(len(whole)), []byte{0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, at, size uint32, patch []byte) {
		data := bytes.Clone(whole)
		copy(data[int(at)%len(data):], patch)
		data = data[:int(size)%(len(data)+1)]
		if err := readAll(data); err != nil && !errors.Is(err, ErrDamaged) && !errors.Is(err, io.ErrNoProgress) {
			t.Fatal(err)
		}
	})
}
