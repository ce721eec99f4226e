package segment

import (
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// A page header has no checksum, and the library allocates what it asks for. So
// before a row group is read, its headers are walked and held to what the footer
// and the file allow; then nothing in a file can ask for more memory than the
// file's own footer says its pages have.

// checkChunk holds the description of a column chunk to the file.
func checkChunk(m *format.ColumnMetaData, leaf *leaf, rows, fileSize int64) error {
	switch m.Codec {
	case format.Uncompressed, format.Snappy, format.Zstd:
	default:
		return damaged("codec %s", m.Codec)
	}
	for _, e := range m.Encoding {
		if !knownEncoding(e) {
			return damaged("encoding %s", e)
		}
	}
	start, size := chunkRange(m)
	switch {
	case start < int64(len(parquetMagic)) || size <= 0 || size > fileSize || start > fileSize-size:
		return damaged("pages at %d, %d bytes long, in a file of %d", start, size, fileSize)
	case m.NumValues < rows || leaf.rep == 0 && m.NumValues != rows:
		return damaged("%d values in %d rows", m.NumValues, rows)
	case m.TotalUncompressedSize < 0 || m.TotalUncompressedSize/maxRatio > fileSize:
		return damaged("%d bytes of pages in a file of %d", m.TotalUncompressedSize, fileSize)
	}
	return nil
}

// maxRatio is beyond what any codec here does to bytes, repeated as they may be.
const maxRatio = 1 << 15

func knownEncoding(e format.Encoding) bool {
	return e == format.Plain || e == format.RLE || e == format.RLEDictionary
}

// chunkRange is where the pages of a column chunk are.
func chunkRange(m *format.ColumnMetaData) (start, size int64) {
	if m.DictionaryPageOffset > 0 {
		return m.DictionaryPageOffset, m.TotalCompressedSize
	}
	return m.DataPageOffset, m.TotalCompressedSize
}

// checkPages walks the page headers of a column chunk.
func checkPages(file io.ReaderAt, m *format.ColumnMetaData) error {
	// Headers without statistics are far smaller than this.
	var buf [256]byte
	at, size := chunkRange(m)
	end := at + size
	left := m.TotalUncompressedSize
	var values int64
	for first := true; at < end; first = false {
		b := buf[:min(int64(len(buf)), end-at)]
		if n, err := file.ReadAt(b, at); n < len(b) {
			return fmt.Errorf("segment: reading a page header: %w", err)
		}
		var (
			h        format.PageHeader
			protocol thrift.CompactProtocol
		)
		r := protocol.NewReaderFromBytes(b)
		if err := thrift.NewDecoder(r).Decode(&h); err != nil {
			return damaged("a page header at %d: %w", at, err)
		}
		switch {
		case h.Type == format.DictionaryPage && h.DictionaryPageHeader.Valid:
			d := &h.DictionaryPageHeader.V
			if !first || m.DictionaryPageOffset == 0 || d.Encoding != format.Plain || d.NumValues < 0 || int64(d.NumValues) > m.NumValues {
				return damaged("a dictionary page at %d", at)
			}
		case h.Type == format.DataPage && h.DataPageHeader.Valid:
			d := &h.DataPageHeader.V
			if !knownEncoding(d.Encoding) || d.NumValues < 0 {
				return damaged("a data page at %d", at)
			}
			values += int64(d.NumValues)
		default:
			return damaged("a page at %d of a kind that no segment has", at)
		}
		length := int64(r.BytesRead())
		left -= length + int64(h.UncompressedPageSize)
		at += length + int64(h.CompressedPageSize)
		if h.CompressedPageSize < 0 || h.UncompressedPageSize < 0 || left < 0 || at > end {
			return damaged("a page at %d is longer than its column", at)
		}
	}
	if values != m.NumValues {
		return damaged("%d values in the pages of a column of %d", values, m.NumValues)
	}
	return nil
}
