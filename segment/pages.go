package segment

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/compress/snappy"
	"github.com/parquet-go/parquet-go/compress/uncompressed"
	"github.com/parquet-go/parquet-go/compress/zstd"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

const (
	parquetMagic = "PAR1"
	// runBytes is how much of a column of byte strings goes to the encoder at
	// once, and so the size of its pages. It bounds the buffers that hold a page
	// while it is encoded, of which there are four.
	runBytes = 1 << 20
	// dictionaryBytes is the size beyond which a column of a row group gives up
	// its dictionary. Codes and names stay far below; ids and free text do not.
	dictionaryBytes = 256 << 10
	// boundBytes is the longest value that the footer repeats as a bound.
	boundBytes = 64

	pageBytesMin = 8 << 10
	pageBytesMax = 128 << 10
	// pageBytesAll is shared by the pages that all columns are filling, so that
	// a table of a thousand columns needs no more memory than one of thirty.
	pageBytesAll = 4 << 20

	maxRowGroups = math.MaxInt16
)

// The codecs have pools of encoders inside, which all builders share. The level
// of zstd is part of the writer version: another one gives other bytes.
var (
	codecZstd   = &zstd.Codec{Level: zstd.SpeedFastest, Concurrency: 1}
	codecSnappy = &snappy.Codec{}
	codecNone   = &uncompressed.Codec{}
	// pageBuffers keep the encoded pages of a row group until it ends. Small
	// chunks, because a file may have many columns with little in each.
	pageBuffers = parquet.NewChunkBufferPool(8 << 10)
)

func codec(compression string) (compress.Codec, error) {
	switch compression {
	case "", CompressionZstd:
		return codecZstd, nil
	case CompressionSnappy:
		return codecSnappy, nil
	case CompressionNone:
		return codecNone, nil
	}
	return nil, fmt.Errorf("segment: compression %q is not %s, %s or %s", compression, CompressionZstd, CompressionSnappy, CompressionNone)
}

// groupWriter encodes row groups through parquet-go and writes the file around
// them. The library encodes each row group as a file of its own; its pages go
// straight to out, its footer is taken apart and becomes an entry of ours.
//
// Why not one parquet.Writer for the file: it keeps, for every row group and
// column until the end, the least and greatest value at whatever length, and
// page indexes, which for columns without bounds say "all values are empty" to a
// reader that trusts them. So the file has no page indexes (which are optional;
// a row group has few pages), and bounds only where they are short.
type groupWriter struct {
	out    *hashingWriter
	w      *parquet.Writer
	sink   footerSplitter
	leaves []leaf
	// pending counts the bytes of a dictionary column since its last page.
	pending []int64
	// file collects the row groups; schema and column orders come with the first.
	file format.FileMetaData
}

func newGroupWriter(out *hashingWriter, schema *parquet.Schema, leaves []leaf, codec compress.Codec) *groupWriter {
	g := &groupWriter{out: out, leaves: leaves, pending: make([]int64, len(leaves))}
	g.sink.out = out
	g.w = parquet.NewWriter(&g.sink, schema, &parquet.WriterConfig{
		CreatedBy:          createdBy,
		ColumnPageBuffers:  pageBuffers,
		PageBufferSize:     min(max(pageBytesAll/len(leaves), pageBytesMin), pageBytesMax),
		DataPageVersion:    1,
		Compression:        codec,
		DictionaryMaxBytes: dictionaryBytes,
		SkipPageBounds:     unbounded(leaves),
	}, parquet.WriteBufferSize(0))
	return g
}

func unbounded(leaves []leaf) (paths [][]string) {
	for _, l := range leaves {
		if !l.bounded {
			paths = append(paths, l.path)
		}
	}
	return paths
}

// write appends values of a column, in rows: whole rows only, for a column of
// the header list. The file depends on how they are cut into calls, because
// pages end there; see Builder.flushBlock.
func (g *groupWriter) write(column int, values []parquet.Value) error {
	c := g.w.ColumnWriters()[column]
	l := &g.leaves[column]
	if !l.binary || l.rep > 0 {
		_, err := c.WriteRowValues(values)
		return err
	}
	var size int64
	start := 0
	for i := range values {
		if size += int64(len(values[i].ByteArray())); size < runBytes {
			continue
		}
		if _, err := c.WriteRowValues(values[start : i+1]); err != nil {
			return err
		}
		g.pending[column] += size
		start, size = i+1, 0
	}
	if start < len(values) {
		if _, err := c.WriteRowValues(values[start:]); err != nil {
			return err
		}
		g.pending[column] += size
	}
	// The library looks at the size of a dictionary only when a page ends, and a
	// page of references to long strings takes long to fill.
	if l.dictionary && g.pending[column] >= dictionaryBytes {
		g.pending[column] = 0
		return c.Flush()
	}
	return nil
}

// end ends the row group, which has rows.
func (g *groupWriter) end() error {
	n := len(g.file.RowGroups)
	if n == maxRowGroups {
		return fmt.Errorf("segment: more than %d row groups in a file", maxRowGroups)
	}
	if n == 0 {
		if _, err := io.WriteString(g.out, parquetMagic); err != nil {
			return err
		}
	}
	// The library's offsets count from its own magic, which is not written.
	base := g.out.size - int64(len(parquetMagic))
	g.sink.pages()
	if err := g.w.Flush(); err != nil {
		return err
	}
	g.sink.footer()
	if err := g.w.Close(); err != nil {
		return err
	}
	var meta format.FileMetaData
	if err := thrift.Unmarshal(new(thrift.CompactProtocol), g.sink.metadata(), &meta); err != nil {
		return fmt.Errorf("segment: reading back the footer of a row group: %w", err)
	}
	if len(meta.RowGroups) != 1 {
		return fmt.Errorf("segment: parquet-go made %d row groups of one", len(meta.RowGroups))
	}
	if n == 0 {
		g.file.Version, g.file.CreatedBy = meta.Version, meta.CreatedBy
		g.file.Schema, g.file.ColumnOrders = meta.Schema, meta.ColumnOrders
	}
	group := meta.RowGroups[0]
	group.Ordinal = int16(n)
	group.FileOffset += base
	for i := range group.Columns {
		g.leaves[i].settle(&group.Columns[i], base)
	}
	g.file.RowGroups = append(g.file.RowGroups, group)
	g.file.NumRows += group.NumRows
	g.w.Reset(&g.sink)
	clear(g.pending)
	return nil
}

// close writes the footer of the file.
func (g *groupWriter) close(properties []format.KeyValue) error {
	g.file.KeyValueMetadata = properties
	b, err := thrift.Marshal(new(thrift.CompactProtocol), &g.file)
	if err != nil {
		return fmt.Errorf("segment: encoding the footer: %w", err)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(b)))
	b = append(b, parquetMagic...)
	_, err = g.out.Write(b)
	return err
}

// settle moves the description of a column chunk to its place in the file, and
// keeps of its statistics what is right and small.
func (l *leaf) settle(c *format.ColumnChunk, base int64) {
	c.ColumnIndexOffset, c.ColumnIndexLength = 0, 0
	c.OffsetIndexOffset, c.OffsetIndexLength = 0, 0
	m := &c.MetaData
	m.SizeStatistics = format.SizeStatistics{}
	m.DataPageOffset += base
	if m.DictionaryPageOffset > 0 {
		m.DictionaryPageOffset += base
	}
	s := &m.Statistics
	s.Min, s.Max = nil, nil
	switch {
	case !l.bounded || len(s.MinValue) > boundBytes || len(s.MaxValue) > boundBytes:
		s.MinValue, s.MaxValue = nil, nil
	case m.Type == format.Double && len(s.MinValue) == 8 && len(s.MaxValue) == 8:
		// Which of two equal zeros is the least depends on the processor's vector
		// unit. The specification settles it: −0 as a minimum, +0 as a maximum.
		if isZero(s.MinValue) {
			binary.LittleEndian.PutUint64(s.MinValue, math.Float64bits(math.Copysign(0, -1)))
		}
		if isZero(s.MaxValue) {
			binary.LittleEndian.PutUint64(s.MaxValue, 0)
		}
	}
}

func isZero(float []byte) bool {
	return math.Float64frombits(binary.LittleEndian.Uint64(float)) == 0
}

// footerSplitter is what the library writes to: first its magic, which is
// dropped, then pages, which go through, then what follows them, which is held.
type footerSplitter struct {
	out     io.Writer
	skip    int
	holding bool
	held    bytes.Buffer
}

func (s *footerSplitter) pages() {
	s.skip, s.holding = len(parquetMagic), false
}

func (s *footerSplitter) footer() {
	s.holding = true
	s.held.Reset()
}

func (s *footerSplitter) Write(b []byte) (int, error) {
	if s.holding {
		return s.held.Write(b)
	}
	n := min(s.skip, len(b))
	s.skip -= n
	m, err := s.out.Write(b[n:])
	return n + m, err
}

// metadata is the encoded FileMetaData within what was held.
func (s *footerSplitter) metadata() []byte {
	b := s.held.Bytes()
	tail := len(b) - 4 - len(parquetMagic)
	if tail < 0 {
		return nil
	}
	n := int(binary.LittleEndian.Uint32(b[tail:]))
	return b[max(0, tail-n):tail]
}
