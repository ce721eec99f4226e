package zkmeta

import "github.com/shoalstore/shoal/meta"

// BatchBytesMax is how large a batch may be by BatchSize.
const BatchBytesMax = MultiBytesMax - 16<<10

// BatchSize is no less than what the multi of a batch with these changes takes: it
// is what the writer bounds its batches by.
func BatchSize(b *meta.Batch) (int, error) {
	encoded, err := meta.EncodeBatch(b)
	if err != nil {
		return 0, err
	}
	size := len(encoded)
	for _, r := range b.Upserts {
		data, err := meta.EncodeRecordJSON(r)
		if err != nil {
			return 0, err
		}
		size += len(data) + keyBytes(r.Key())
	}
	for _, k := range b.Removals {
		size += keyBytes(k)
	}
	return size, nil
}

const (
	// opBytes is no less than what an operation takes besides its path and data.
	opBytes = opHeadBytes + aclBytes
	// rootBytesMax bounds the root, which is in each path.
	rootBytesMax = 256
)

// keyBytes bounds the operations of a record without its data: its own and those of
// its directories.
func keyBytes(k meta.Key) int {
	n := opBytes + rootBytesMax + len(recordPath(k))
	for _, d := range dirsOf(k) {
		n += opBytes + rootBytesMax + len(d.path())
	}
	return n
}
