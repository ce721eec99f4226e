package segment

// NoTimestamp is the Timestamp of a row whose stream gave it none. Kafka uses
// the same value for the same thing.
const NoTimestamp int64 = -1

// NoLeaderEpoch is the LeaderEpoch of a row whose stream has no such thing.
const NoLeaderEpoch int32 = -1

// Row is one record of a partition, as the stream delivered it and before any
// decoding. Its byte slices belong to the row and are never changed after the
// reader has yielded it, so a row may be kept, queued and handed on freely.
type Row struct {
	// Offset is the stream's; offsets rise within a partition and may have gaps.
	Offset int64
	// Timestamp is the stream's own, in milliseconds since the Unix epoch, or
	// NoTimestamp. It is never "now".
	Timestamp int64
	// LeaderEpoch is the stream's leader epoch at this row, or NoLeaderEpoch.
	LeaderEpoch int32
	// Key and Value are nil for null, and empty but not nil for empty.
	Key, Value []byte
	Headers    []Header
}

// Header is one header of a row. A nil Value is null.
type Header struct {
	Key   string
	Value []byte
}

// RawBytes is what the row counts towards the size limits of a segment and of
// a row group: its key, value and headers, before any encoding.
func (r *Row) RawBytes() int64 {
	n := len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return int64(n)
}
