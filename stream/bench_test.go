package stream

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
)

// BenchmarkRead reads a file from its beginning to its end, rows cut and owned,
// as a node that catches up does; the index is made on the way.
func BenchmarkRead(b *testing.B) {
	for _, size := range []int{100, 1600} {
		b.Run(fmt.Sprintf("row=%dB", size), func(b *testing.B) {
			d := newDir(b)
			rows := benchFile(b, d, size)
			b.SetBytes(rows * int64(size))
			b.ReportAllocs()
			for b.Loop() {
				src, err := OpenFiles(d.root, "s")
				if err != nil {
					b.Fatal(err)
				}
				r, err := src.Open(b.Context(), 0, 0)
				if err != nil {
					b.Fatal(err)
				}
				for next := int64(0); next < rows; {
					batch, err := r.Read(b.Context())
					if err != nil {
						b.Fatal(err)
					}
					next = batch.Next
				}
				forgetIndex(d.path(0), r.(*tail).index)
				r.Close()
				src.Close()
			}
		})
	}
}

// BenchmarkCountLines is what a seek into the unknown costs.
func BenchmarkCountLines(b *testing.B) {
	d := newDir(b)
	rows := benchFile(b, d, 1600)
	f, err := os.Open(d.path(0))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	b.SetBytes(rows * 1600)
	for b.Loop() {
		if n, _, err := CountLines(b.Context(), f, rows*1600); err != nil || n != rows {
			b.Fatal(n, err)
		}
	}
}

// BenchmarkPartitions is the call that tells the lag, with nothing new to count.
func BenchmarkPartitions(b *testing.B) {
	d := newDir(b)
	for p := range int32(3) {
		d.write(p, "a\nb\n")
	}
	for b.Loop() {
		if _, err := d.src.Partitions(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// benchFile writes 128 MiB of rows of size bytes each, newline included.
func benchFile(b *testing.B, d *dir, size int) (rows int64) {
	b.Helper()
	row := strings.Repeat("x", size-1) + "\n"
	block := bytes.Repeat([]byte(row), 128<<20/size)
	d.write(0, string(block))
	return int64(len(block) / size)
}
