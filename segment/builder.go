package segment

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"github.com/shoalstore/shoal/internal/vfs"
)

// WriterVersion names everything that decides the bytes of a file besides its
// rows and its table's configuration, except for the class of machine: the
// layout, and the libraries that encode and compress. Two builders of one
// version give the same file for the same rows. Raise the first number when the
// layout changes; a test holds the rest to go.mod.
const WriterVersion = "1+parquet-go.v0.32.0+compress.v1.20.4"

// createdBy has the form that readers parse for known bugs of known writers.
const createdBy = "shoal version 1 (build " + WriterVersion + ")"

// The limits of a row group where the configuration gives none.
const (
	DefaultRowGroupRows  = 100_000
	DefaultRowGroupBytes = 16 << 20
)

const (
	// blockRows is how many rows reach the encoder together. Blocks count from
	// the first row of each row group, so that they are the same however the
	// rows came in.
	blockRows = 1000
	// blockValues make the blocks of very wide tables, of more than 200 columns,
	// shorter, since a block holds 24 bytes for each value.
	blockValues = 200_000
	// blockBytes of raw rows end a block early: rows of a megabyte would
	// otherwise be held by the thousand.
	blockBytes = 4 << 20
)

var (
	// ErrSealed says that a builder was used after Seal or Abort.
	ErrSealed = errors.New("segment: the builder is sealed or aborted")
	// ErrNoRows says that a segment without rows was to be sealed.
	ErrNoRows = errors.New("segment: a segment without rows is not sealed")
)

// OffsetError says that an offset lies below the position of a builder.
type OffsetError struct{ Offset, Position int64 }

func (e *OffsetError) Error() string {
	return fmt.Sprintf("segment: offset %d is below the builder's position %d", e.Offset, e.Position)
}

// Footer key-values, under which a file says what it is.
const (
	propertyTable         = "shoal.table"
	propertyPartition     = "shoal.partition"
	propertyStart         = "shoal.start"
	propertyEnd           = "shoal.end"
	propertyConfigVersion = "shoal.configVersion"
	propertyWriterVersion = "shoal.writerVersion"
)

// BuilderConfig is what a file depends on besides its rows.
type BuilderConfig struct {
	Table     string
	Partition int32
	// Start is the first offset that the segment covers.
	Start         int64
	ConfigVersion int
	// Format must have passed Validate.
	Format Format
	// Compression is one of the Compression constants; empty is zstd.
	Compression string
	// A row group ends when it has RowGroupRows rows or RowGroupBytes raw bytes,
	// whichever is first; 0 means the default. It ends, too, when its columns
	// hold twice RowGroupBytes, as they may if they repeat most of _value. The
	// builder's memory grows with RowGroupBytes.
	RowGroupRows, RowGroupBytes int64
}

// Builder writes the rows of one segment to a file, as Parquet. The same rows
// and configuration give the same bytes, whatever the calls of other builders
// and however the rows were spread over time; docs/format/segment.md says how.
//
// A Builder belongs to one goroutine at a time.
type Builder struct {
	file vfs.File
	cfg  BuilderConfig

	out    *hashingWriter
	group  *groupWriter
	decode *decoder // nil for raw
	stamp  int      // index of the declared column that becomes _timestamp, or -1
	value  int      // leaf of _value
	rows   RowsHasher
	info   Info

	// block holds the values of the rows not yet encoded, by leaf. They point
	// into the rows.
	block        [][]parquet.Value
	blockRows    int // after which a block is full
	inBlock      int
	inBlockBytes int64
	inGroup      int64
	inGroupBytes int64
	// encoded counts the bytes of the group's byte strings in all columns: what
	// the encoded pages may take if they do not compress.
	encoded  int64
	finished bool
	err      error // the first failure to write, after which all is refused
}

// Sealed is a finished file: what it is, and its piece list.
type Sealed struct {
	Info
	Pieces *Pieces
}

// NewBuilder starts a file on f, which is empty. It writes nothing yet. The
// caller keeps f, and closes it after Seal; Abort closes it.
func NewBuilder(f vfs.File, cfg BuilderConfig) (*Builder, error) {
	codec, err := codec(cfg.Compression)
	if err != nil {
		return nil, err
	}
	var faults []error
	cfg.Format.Validate(func(field string, value any, format string, args ...any) {
		faults = append(faults, fmt.Errorf("segment: format.%s %v %s", field, value, fmt.Sprintf(format, args...)))
	})
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	if cfg.RowGroupRows <= 0 {
		cfg.RowGroupRows = DefaultRowGroupRows
	}
	if cfg.RowGroupBytes <= 0 {
		cfg.RowGroupBytes = DefaultRowGroupBytes
	}
	schema, leaves := fileSchema(&cfg.Format)
	b := &Builder{
		file:  f,
		cfg:   cfg,
		out:   newHashingWriter(f),
		stamp: -1,
		value: leafDeclared + len(cfg.Format.Columns),
		block: make([][]parquet.Value, len(leaves)),

		blockRows: min(blockRows, blockValues/len(leaves)),
		info: Info{
			Start: cfg.Start, End: cfg.Start,
			MinTimestamp: NoTimestamp, MaxTimestamp: NoTimestamp,
			LastLeaderEpoch: NoLeaderEpoch,
		},
	}
	b.group = newGroupWriter(b.out, schema, leaves, codec)
	if cfg.Format.Type == FormatJSON {
		b.decode = newDecoder(cfg.Format.Columns)
		for i, c := range cfg.Format.Columns {
			if c.Name == cfg.Format.Timestamp {
				b.stamp = i
			}
		}
	}
	return b, nil
}

// Position is the least offset that Append takes: the last row's plus one, or
// the start.
func (b *Builder) Position() int64 { return b.info.End }

// Rows is the number of rows appended.
func (b *Builder) Rows() int64 { return b.info.Rows }

// RawBytes is the sum of the rows' Row.RawBytes.
func (b *Builder) RawBytes() int64 { return b.info.RawBytes }

// Append adds a row, and keeps its bytes for up to a block. A row that does not
// decode is no error: it is kept, with the reason. An offset below Position is
// an *OffsetError and changes nothing. After any other error, which is that of
// the file, the builder is of no further use.
func (b *Builder) Append(row *Row) error {
	switch {
	case b.finished:
		return ErrSealed
	case b.err != nil:
		return b.err
	case row.Offset < b.info.End:
		return &OffsetError{Offset: row.Offset, Position: b.info.End}
	}
	b.rows.Write(row)
	b.add(row)

	size := row.RawBytes()
	b.info.Rows++
	b.info.RawBytes += size
	b.info.End = row.Offset + 1
	b.info.LastLeaderEpoch = row.LeaderEpoch
	b.inBlock++
	b.inBlockBytes += size
	b.inGroup++
	b.inGroupBytes += size
	switch {
	case b.inGroup >= b.cfg.RowGroupRows || b.inGroupBytes >= b.cfg.RowGroupBytes || b.encoded >= 2*b.cfg.RowGroupBytes:
		b.err = b.flushGroup()
	case b.inBlock >= b.blockRows || b.inBlockBytes >= blockBytes:
		b.err = b.flushBlock()
	}
	return b.err
}

// add puts the row's values into the block.
func (b *Builder) add(row *Row) {
	b.put(leafPartition, parquet.Int32Value(b.cfg.Partition))
	b.put(leafOffset, parquet.Int64Value(row.Offset))
	b.putBytes(leafKey, row.Key)
	b.addHeaders(row.Headers)
	if b.decode == nil {
		b.addTimestamp(row.Timestamp)
		b.putBytes(b.value, row.Value)
		return
	}

	// A null value (a tombstone) has no fields, which is no fault.
	decoded := row.Value == nil || b.decode.decode(row.Value)
	var problem []byte
	if row.Value == nil || !decoded {
		if !decoded {
			problem = []byte(b.decode.explain())
		}
		clear(b.decode.row)
	}
	for i, v := range b.decode.row {
		b.putNullable(leafDeclared+i, v)
	}
	b.putBytes(b.value+1, problem)
	if decoded && !b.cfg.Format.keepsValue() {
		b.putBytes(b.value, nil)
	} else {
		b.putBytes(b.value, row.Value)
	}
	if b.stamp < 0 {
		b.addTimestamp(row.Timestamp)
		return
	}
	b.addTimestamp(timestampOf(b.decode.row[b.stamp]))
}

// timestampOf is the _timestamp that a declared column stands for. A null one
// is not replaced by the stream's: the column would then mix two clocks.
func timestampOf(v parquet.Value) int64 {
	switch {
	case v.IsNull():
		return NoTimestamp
	case v.Kind() == parquet.Int32: // a date
		return int64(v.Int32()) * dayMillis
	}
	return v.Int64()
}

// addTimestamp adds a _timestamp, null for NoTimestamp and for what engines
// cannot read. The rows' digest has the stream's own in any case.
func (b *Builder) addTimestamp(ms int64) {
	if ms == NoTimestamp || !validTimestamp(ms) {
		b.putNullable(leafTimestamp, parquet.Value{})
		return
	}
	b.putNullable(leafTimestamp, parquet.Int64Value(ms))
	if b.info.MinTimestamp == NoTimestamp || ms < b.info.MinTimestamp {
		b.info.MinTimestamp = ms
	}
	if b.info.MaxTimestamp == NoTimestamp || ms > b.info.MaxTimestamp {
		b.info.MaxTimestamp = ms
	}
}

// addHeaders adds the list of headers; none is null.
func (b *Builder) addHeaders(headers []Header) {
	if len(headers) == 0 {
		b.put(leafHeaderKey, parquet.Value{}.Level(0, 0, leafHeaderKey))
		b.put(leafHeaderValue, parquet.Value{}.Level(0, 0, leafHeaderValue))
		return
	}
	for i, h := range headers {
		repeats := min(i, 1)
		b.encoded += int64(len(h.Key) + len(h.Value))
		b.put(leafHeaderKey, parquet.ByteArrayValue([]byte(h.Key)).Level(repeats, 2, leafHeaderKey))
		if h.Value == nil {
			b.put(leafHeaderValue, parquet.Value{}.Level(repeats, 2, leafHeaderValue))
		} else {
			b.put(leafHeaderValue, parquet.ByteArrayValue(h.Value).Level(repeats, 3, leafHeaderValue))
		}
	}
}

func (b *Builder) put(leaf int, v parquet.Value) { b.block[leaf] = append(b.block[leaf], v) }

func (b *Builder) putNullable(leaf int, v parquet.Value) {
	level := 1
	if v.IsNull() {
		level = 0
	}
	if b.group.leaves[leaf].binary {
		b.encoded += int64(len(v.ByteArray()))
	}
	b.put(leaf, v.Level(0, level, leaf))
}

// putBytes adds a byte string: nil is null, empty is empty.
func (b *Builder) putBytes(leaf int, s []byte) {
	if s == nil {
		b.putNullable(leaf, parquet.Value{})
		return
	}
	b.putNullable(leaf, parquet.ByteArrayValue(s))
}

// flushBlock hands the block to the encoder, column by column. Pages end at the
// end of a block, so blocks must not depend on anything but the rows.
func (b *Builder) flushBlock() error {
	for i, values := range b.block {
		if err := b.group.write(i, values); err != nil {
			return fmt.Errorf("segment: encoding column %v: %w", b.group.leaves[i].path, err)
		}
		clear(values) // lets go of the rows
		b.block[i] = values[:0]
	}
	if b.decode != nil {
		b.decode.arena.reset()
	}
	b.inBlock, b.inBlockBytes = 0, 0
	return nil
}

func (b *Builder) flushGroup() error {
	if err := b.flushBlock(); err != nil {
		return err
	}
	b.inGroup, b.inGroupBytes, b.encoded = 0, 0, 0
	return b.group.end()
}

// Seal ends the file: the segment covers [start, end), and end is at least
// Position, more if the stream has no rows there. The file is complete, but
// neither synced nor published, and the builder never touches it again.
func (b *Builder) Seal(end int64) (*Sealed, error) {
	switch {
	case b.finished:
		return nil, ErrSealed
	case b.err != nil:
		return nil, b.err
	case end < b.info.End:
		return nil, &OffsetError{Offset: end, Position: b.info.End}
	case b.info.Rows == 0:
		return nil, ErrNoRows
	}
	if b.inGroup > 0 {
		if b.err = b.flushGroup(); b.err != nil {
			return nil, b.err
		}
	}
	b.info.End = end
	if b.err = b.group.close(b.properties()); b.err != nil {
		return nil, b.err
	}
	pieces, digest, sum, err := b.out.finish()
	if err != nil {
		b.err = err
		return nil, err
	}
	b.info.Digest, b.info.SHA256, b.info.RowsDigest = digest, sum, b.rows.Sum()
	b.info.SizeBytes = pieces.Size
	b.release()
	return &Sealed{Info: b.info, Pieces: pieces}, nil
}

func (b *Builder) properties() []format.KeyValue {
	return []format.KeyValue{
		{Key: propertyTable, Value: b.cfg.Table},
		{Key: propertyPartition, Value: strconv.Itoa(int(b.cfg.Partition))},
		{Key: propertyStart, Value: strconv.FormatInt(b.info.Start, 10)},
		{Key: propertyEnd, Value: strconv.FormatInt(b.info.End, 10)},
		{Key: propertyConfigVersion, Value: strconv.Itoa(b.cfg.ConfigVersion)},
		{Key: propertyWriterVersion, Value: WriterVersion},
	}
}

// Abort gives up a file that is not sealed and closes it; removing it is the
// caller's. After Seal, or a second time, it does nothing.
func (b *Builder) Abort() error {
	if b.finished {
		return nil
	}
	b.release()
	return b.file.Close()
}

// release lets go of all memory; only the numbers stay.
func (b *Builder) release() {
	b.finished = true
	b.out, b.group, b.decode, b.block = nil, nil, nil, nil
}
