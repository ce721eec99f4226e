package segment

import (
	"io"
	"testing"

	"github.com/shoalstore/shoal/internal/vfs"
)

// BenchmarkBuilder seals flights, 1.6 KB a row, with ten typed columns. MB/s are
// of the rows' raw bytes; the file goes nowhere, so that the disk is not measured.
func BenchmarkBuilder(b *testing.B) {
	lines := sharedLines(b, "flights.ndjson.gz")
	for _, bench := range []struct {
		name string
		cfg  func(*BuilderConfig)
	}{
		{"zstd", func(*BuilderConfig) {}},
		{"none", func(c *BuilderConfig) { c.Compression = CompressionNone }},
		{"snappy", func(c *BuilderConfig) { c.Compression = CompressionSnappy }},
		{"zstd/raw", func(c *BuilderConfig) { c.Format = Format{Type: FormatRaw} }},
		{"zstd/all79", func(c *BuilderConfig) { c.Format = Format{Type: FormatJSON, Columns: InferColumns(lines[:1000])} }},
	} {
		b.Run(bench.name, func(b *testing.B) {
			cfg := flightConfig()
			bench.cfg(&cfg)
			rows := rowsOf(lines, cfg.Start)
			var raw int64
			for i := range rows {
				raw += rows[i].RawBytes()
			}
			b.SetBytes(raw)
			b.ReportAllocs()
			var size int64
			for b.Loop() {
				builder, err := NewBuilder(discard{}, cfg)
				if err != nil {
					b.Fatal(err)
				}
				for i := range rows {
					if err := builder.Append(&rows[i]); err != nil {
						b.Fatal(err)
					}
				}
				sealed, err := builder.Seal(builder.Position())
				if err != nil {
					b.Fatal(err)
				}
				size = sealed.SizeBytes
			}
			b.ReportMetric(float64(raw)/float64(size), "ratio")
			b.ReportMetric(float64(len(rows))*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

type discard struct{ vfs.File }

func (discard) Write(b []byte) (int, error) { return io.Discard.Write(b) }
