package segment

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

const (
	parquetMagic = "PAR1"
	// runBytes is how much of a column of byte strings goes to the encoder at
	// once, and so the size of its pages: those of _value, mostly. Pages of a
	// megabyte compress JSON a good deal better than pages of a quarter (on the
	// flights 10:1 against 8:1), and are what other writers make.
	runBytes = 1 << 20
	// A column of a row group gives up its dictionary beyond dictionaryBytesMax,
	// or its share of dictionaryBytesAll if there are many: the library keeps an
	// index of some 60 bytes for each value, however short. Codes and names stay
	// below; ids and free text do not, and gain nothing from a dictionary.
	dictionaryBytesMin = 2 << 10
	dictionaryBytesMax = 64 << 10
	dictionaryBytesAll = 1 << 20
	// boundBytes is how long values may be for the footer to have bounds of them.
	boundBytes = 64

	pageBytesMin = 8 << 10
	pageBytesMax = 128 << 10
	// pageBytesAll is shared by the pages that all columns are filling, so that
	// a table of a thousand columns needs no more memory than one of thirty.
	pageBytesAll = 4 << 20

	maxRowGroups = math.MaxInt16
)

// pageBuffers keep the encoded pages of a row group until it ends. Small chunks,
// because a file may have many columns with little in each.
var pageBuffers = parquet.NewChunkBufferPool(8 << 10)

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
	// pending counts the bytes of a dictionary column since its last page, bounds
	// are those of columns of byte strings. Both are by leaf.
	pending []int64
	bounds  []bounds
	// dictionaryBytes is the limit of each dictionary.
	dictionaryBytes int64
	// file collects the row groups; schema and column orders come with the first.
	file format.FileMetaData
}

func newGroupWriter(out *hashingWriter, schema *parquet.Schema, leaves []leaf, codec compress.Codec) *groupWriter {
	g := &groupWriter{out: out, leaves: leaves, pending: make([]int64, len(leaves)), bounds: make([]bounds, len(leaves))}
	g.sink.out = out
	dictionaries := 0
	for _, l := range leaves {
		if l.dictionary {
			dictionaries++
		}
	}
	g.dictionaryBytes = int64(min(max(dictionaryBytesAll/dictionaries, dictionaryBytesMin), dictionaryBytesMax))
	g.w = parquet.NewWriter(&g.sink, schema, &parquet.WriterConfig{
		CreatedBy:          createdBy,
		ColumnPageBuffers:  pageBuffers,
		PageBufferSize:     min(max(pageBytesAll/len(leaves), pageBytesMin), pageBytesMax),
		DataPageVersion:    1,
		Compression:        codec,
		DictionaryMaxBytes: g.dictionaryBytes,
		SkipPageBounds:     unbounded(leaves),
	},
		// Off must be said by an option, as the zero of a WriterConfig means "as
		// usual". Statistics of a page would repeat whole values in its header.
		parquet.DataPageStatistics(false),
		parquet.WriteBufferSize(0),
	)
	return g
}

// unbounded are the columns whose bounds are not the library's matter.
func unbounded(leaves []leaf) (paths [][]string) {
	for _, l := range leaves {
		if l.binary || !l.bounded {
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
	if l.bounded {
		g.bounds[column].add(values)
	}
	if l.dictionary {
		return g.writeDictionary(c, values, &g.pending[column])
	}
	for len(values) > 0 {
		n := runLength(values, runBytes)
		// A run of this size is more than a page: the library ends one here.
		if _, err := c.WriteRowValues(values[:n]); err != nil {
			return err
		}
		values = values[n:]
	}
	return nil
}

// runLength counts the first values that have no more than limit bytes together;
// one at least, if there is one.
func runLength(values []parquet.Value, limit int64) int {
	var size int64
	for i := range values {
		if size += int64(len(values[i].ByteArray())); size > limit && i > 0 {
			return i
		}
	}
	return len(values)
}

// writeDictionary ends pages itself: the library goes by the size of the
// references, and only when a page ends does it see that a dictionary has become
// too large to pay.
func (g *groupWriter) writeDictionary(c *parquet.ColumnWriter, values []parquet.Value, pending *int64) error {
	start := 0
	for i := range values {
		if *pending += int64(len(values[i].ByteArray())); *pending < g.dictionaryBytes {
			continue
		}
		if _, err := c.WriteRowValues(values[start : i+1]); err != nil {
			return err
		}
		if err := c.Flush(); err != nil {
			return err
		}
		*pending, start = 0, i+1
	}
	if start == len(values) {
		return nil
	}
	_, err := c.WriteRowValues(values[start:])
	return err
}

// bounds are the least and greatest of a row group's byte strings, as long as
// all of them are short. The library would find them too, but keeps several
// copies of each page's, however long they are.
type bounds struct {
	min, max []byte
	any      bool
	tooLong  bool
}

func (b *bounds) add(values []parquet.Value) {
	for i := range values {
		v := values[i].ByteArray()
		switch {
		case values[i].IsNull() || b.tooLong:
		case len(v) > boundBytes:
			b.tooLong = true
		case !b.any:
			b.min, b.max, b.any = append(b.min[:0], v...), append(b.max[:0], v...), true
		case bytes.Compare(v, b.min) < 0:
			b.min = append(b.min[:0], v...)
		case bytes.Compare(v, b.max) > 0:
			b.max = append(b.max[:0], v...)
		}
	}
}

// take returns copies for the footer, nil if there are none, and starts afresh.
func (b *bounds) take() (least, greatest []byte) {
	if b.any && !b.tooLong {
		least = append(make([]byte, 0, len(b.min)), b.min...) // not nil if empty
		greatest = append(make([]byte, 0, len(b.max)), b.max...)
	}
	b.any, b.tooLong = false, false
	return least, greatest
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
		settle(&group.Columns[i], base)
		if l := &g.leaves[i]; l.binary && l.bounded {
			s := &group.Columns[i].MetaData.Statistics
			s.MinValue, s.MaxValue = g.bounds[i].take()
		}
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
// drops what points nowhere now.
func settle(c *format.ColumnChunk, base int64) {
	c.ColumnIndexOffset, c.ColumnIndexLength = 0, 0
	c.OffsetIndexOffset, c.OffsetIndexLength = 0, 0
	m := &c.MetaData
	m.SizeStatistics = format.SizeStatistics{}
	m.DataPageOffset += base
	if m.DictionaryPageOffset > 0 {
		m.DictionaryPageOffset += base
	}
	// Which of two equal zeros is the least depends on the processor's vector
	// unit. The specification settles it: −0 as a minimum, +0 as a maximum.
	if s := &m.Statistics; m.Type == format.Double && len(s.MinValue) == 8 && len(s.MaxValue) == 8 {
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
