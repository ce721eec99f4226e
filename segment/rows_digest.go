package segment

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// RowsHasher computes a RowsDigest: XXH3-128 over the rows as the stream
// delivered them, so that two files can be known to hold the same rows although
// their bytes differ. The zero value is ready.
//
// Each row goes in as
//
//	offset, timestamp   int64
//	key, value          byte strings
//	header count        int64
//	header key, value   byte strings, for each header
//
// with integers little-endian and byte strings preceded by their length as an
// int64. Null has length −1 and no bytes; empty has length 0. The timestamp is
// the stream's own (NoTimestamp if it has none), never the declared column's.
type RowsHasher struct {
	h   xxh3.Hasher
	buf []byte
}

// Write adds a row. It keeps nothing of it.
func (r *RowsHasher) Write(row *Row) {
	r.int64(row.Offset)
	r.int64(row.Timestamp)
	r.bytes(row.Key)
	r.bytes(row.Value)
	r.int64(int64(len(row.Headers)))
	for _, h := range row.Headers {
		r.int64(int64(len(h.Key)))
		r.buf = append(r.buf, h.Key...)
		r.bytes(h.Value)
	}
	r.flush()
}

// Sum is the digest of the rows so far; more may follow.
func (r *RowsHasher) Sum() RowsDigest { return r.h.Sum128().Bytes() }

func (r *RowsHasher) int64(v int64) { r.buf = binary.LittleEndian.AppendUint64(r.buf, uint64(v)) }

// bytes adds a byte string. A long one goes to the hash without a copy.
func (r *RowsHasher) bytes(b []byte) {
	if b == nil {
		r.int64(-1)
		return
	}
	r.int64(int64(len(b)))
	if len(b) < 256 {
		r.buf = append(r.buf, b...)
		return
	}
	r.flush()
	_, _ = r.h.Write(b) // a hash never fails
}

func (r *RowsHasher) flush() {
	_, _ = r.h.Write(r.buf)
	r.buf = r.buf[:0]
}
