package segment

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// ErrDamaged says that a file is not a segment, or not a whole one: its footer,
// schema or pages do not read as a Builder wrote them. It is a cheap judgement
// on the way; what proves a file is its digest.
var ErrDamaged = errors.New("segment: not a readable segment file")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrDamaged}, args...)...)
}

// Properties is what the footer of a file says about it.
type Properties struct {
	Table      string
	Partition  int32
	Start, End int64 // end exclusive
	// ConfigVersion is the version of the table's configuration.
	ConfigVersion int
	// WriterVersion is that of the builder; see the constant.
	WriterVersion string
}

// Reader reads a sealed file back, row by row. It is for people and repairs, not
// for queries, which engines do better. It may be used by one goroutine at a
// time, and does not own the file.
type Reader struct {
	file       *parquet.File
	properties Properties
	format     FormatType
	columns    []Column
	leaves     []leaf
}

// StoredRow is a row as a file has it. Its memory is the caller's.
type StoredRow struct {
	// Row.Timestamp is _timestamp, which may be the declared column's. The leader
	// epoch is not in the file: it is NoLeaderEpoch. Row.Value is nil, too, for a
	// row that decoded in a table that does not keep values. Row.Headers is nil
	// for a row without.
	Row
	// Columns are the values of Reader.Columns, nil for null: bool, int32, int64,
	// float64, string, Date, time.Time (in UTC) or json.RawMessage.
	Columns []any
	// Error says why the row did not decode; empty if it did.
	Error string
}

// Date is a day without a time or a zone, in days since 1970-01-01.
type Date int32

// String returns the date as 2006-01-02.
func (d Date) String() string { return time.Unix(int64(d)*24*60*60, 0).UTC().Format(time.DateOnly) }

// MarshalText is String, for JSON.
func (d Date) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// OpenFile reads the footer of a sealed file of the given size in bytes. It
// fails with ErrDamaged for anything but the file of a Builder, and never
// panics, whatever the bytes.
func OpenFile(file io.ReaderAt, size int64) (_ *Reader, err error) {
	defer recoverDamage(&err)
	if err := checkFrame(file, size); err != nil {
		return nil, err
	}
	f, err := parquet.OpenFile(file, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return nil, damaged("%w", err)
	}
	r := &Reader{file: f}
	if err := r.readProperties(); err != nil {
		return nil, err
	}
	if err := r.readSchema(); err != nil {
		return nil, err
	}
	return r, r.checkRowGroups()
}

// recoverDamage turns a panic into an error: the library panics on some damage.
func recoverDamage(err *error) {
	if p := recover(); p != nil {
		*err = damaged("reading it: %v", p)
	}
}

// checkFrame looks at both ends. The library would believe any length of footer.
func checkFrame(file io.ReaderAt, size int64) error {
	const ends = 4 + 4 // length and magic
	if size < int64(len(parquetMagic))+ends {
		return damaged("%d bytes are too short", size)
	}
	var tail [ends]byte
	if n, err := file.ReadAt(tail[:], size-ends); n < ends {
		return fmt.Errorf("segment: reading the end of the file: %w", err)
	}
	if string(tail[4:]) != parquetMagic {
		return damaged("it ends with %q", tail[4:])
	}
	if n := int64(binary.LittleEndian.Uint32(tail[:])); n > size-ends-int64(len(parquetMagic)) {
		return damaged("a footer of %d bytes in a file of %d", n, size)
	}
	return nil
}

func (r *Reader) readProperties() error {
	var err error
	lookup := func(key string) string {
		v, ok := r.file.Lookup(key)
		if !ok && err == nil {
			err = damaged("the footer has no %s", key)
		}
		return v
	}
	number := func(key string, bits int) int64 {
		s := lookup(key)
		n, e := strconv.ParseInt(s, 10, bits)
		if e != nil && err == nil {
			err = damaged("%s is %q", key, s)
		}
		return n
	}
	r.properties = Properties{
		Table:         lookup(propertyTable),
		Partition:     int32(number(propertyPartition, 32)),
		Start:         number(propertyStart, 64),
		End:           number(propertyEnd, 64),
		ConfigVersion: int(number(propertyConfigVersion, strconv.IntSize)),
		WriterVersion: lookup(propertyWriterVersion),
	}
	if p := &r.properties; err == nil && (p.End <= p.Start || r.NumRows() < 1 || r.NumRows() > p.End-p.Start) {
		err = damaged("%d rows in [%d, %d)", r.NumRows(), p.Start, p.End)
	}
	return err
}

// readSchema works out the format from the schema, and holds the schema to it.
func (r *Reader) readSchema() error {
	fields := r.file.Schema().Fields()
	last := len(fields) - 1
	r.format = FormatRaw
	if last >= 0 && fields[last].Name() == columnError {
		r.format = FormatJSON
		last--
	}
	const fixed = 5 // _partition to _headers
	if last < fixed || fields[last].Name() != columnValue {
		return damaged("the schema has no %s where it should be", columnValue)
	}
	for _, f := range fields[fixed:last] {
		t, err := columnTypeOf(f)
		if err != nil {
			return err
		}
		r.columns = append(r.columns, Column{Name: f.Name(), Type: t})
	}
	want, leaves := fileSchema(&Format{Type: r.format, Columns: r.columns})
	if !parquet.EqualNodes(want, r.file.Schema()) {
		return damaged("the schema is not that of a segment")
	}
	r.leaves = leaves
	return nil
}

// columnTypeOf is the declared type that a column of the file stands for.
func columnTypeOf(f parquet.Field) (ColumnType, error) {
	if !f.Leaf() {
		return "", damaged("column %q is not a plain one", f.Name())
	}
	t := f.Type()
	if logical := t.LogicalType(); logical != nil {
		switch logical.Value.(type) {
		case *format.StringType:
			return TypeString, nil
		case *format.DateType:
			return TypeDate, nil
		case *format.TimestampType:
			return TypeTimestamp, nil
		case *format.JsonType:
			return TypeJSON, nil
		}
	}
	switch t.Kind() {
	case parquet.Boolean:
		return TypeBool, nil
	case parquet.Int32:
		return TypeInt32, nil
	case parquet.Int64:
		return TypeInt64, nil
	case parquet.Double:
		return TypeFloat64, nil
	}
	return "", damaged("column %q has type %s", f.Name(), t)
}

// checkRowGroups looks for lengths and places that the file cannot have, before
// anything allocates memory for them.
func (r *Reader) checkRowGroups() error {
	var rows int64
	for i, group := range r.file.Metadata().RowGroups {
		if len(group.Columns) != len(r.leaves) {
			return damaged("row group %d has %d columns, not %d", i, len(group.Columns), len(r.leaves))
		}
		if group.NumRows < 1 || group.NumRows > math.MaxInt32 {
			return damaged("row group %d has %d rows", i, group.NumRows)
		}
		for j := range group.Columns {
			if err := checkChunk(&group.Columns[j].MetaData, &r.leaves[j], group.NumRows, r.file.Size()); err != nil {
				return fmt.Errorf("row group %d, column %v: %w", i, r.leaves[j].path, err)
			}
		}
		rows += group.NumRows
	}
	if rows != r.NumRows() {
		return damaged("%d rows in the row groups, %d in the footer", rows, r.NumRows())
	}
	return nil
}

// Properties returns what the footer says about the file.
func (r *Reader) Properties() Properties { return r.properties }

// NumRows is the number of rows.
func (r *Reader) NumRows() int64 { return r.file.NumRows() }

// Format is that of the table.
func (r *Reader) Format() FormatType { return r.format }

// Columns are the declared columns, without paths, which a file does not have.
func (r *Reader) Columns() []Column { return slices.Clone(r.columns) }

// Rows yields the rows in order. An error, which is the last thing yielded, is
// that of reading or ErrDamaged.
func (r *Reader) Rows() iter.Seq2[*StoredRow, error] {
	return func(yield func(*StoredRow, error) bool) {
		next := r.properties.Start
		var count int64
		for i := range r.file.RowGroups() {
			for row, err := range r.groupRows(i) {
				if err == nil && (row.Offset < next || row.Offset >= r.properties.End) {
					err = damaged("offset %d is not in [%d, %d)", row.Offset, next, r.properties.End)
				}
				if err != nil {
					yield(nil, err)
					return
				}
				next = row.Offset + 1
				count++
				if !yield(row, nil) {
					return
				}
			}
		}
		if count != r.NumRows() {
			yield(nil, damaged("%d rows of %d are there", count, r.NumRows()))
		}
	}
}

// groupRows yields the rows of one row group. The panics it recovers are the
// library's only: yield is called outside.
func (r *Reader) groupRows(group int) iter.Seq2[*StoredRow, error] {
	return func(yield func(*StoredRow, error) bool) {
		if err := r.checkGroup(group); err != nil {
			yield(nil, err)
			return
		}
		rows := r.file.RowGroups()[group].Rows()
		defer rows.Close()
		buf := make([]parquet.Row, 64)
		for {
			stored, err := r.readRows(rows, buf)
			for i := range stored {
				if !yield(&stored[i], nil) {
					return
				}
			}
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

func (r *Reader) checkGroup(group int) (err error) {
	defer recoverDamage(&err)
	columns := r.file.Metadata().RowGroups[group].Columns
	for i := range columns {
		if err := checkPages(r.file, &columns[i].MetaData); err != nil {
			return fmt.Errorf("row group %d, column %v: %w", group, r.leaves[i].path, err)
		}
	}
	return nil
}

func (r *Reader) readRows(rows parquet.Rows, buf []parquet.Row) (stored []StoredRow, err error) {
	defer recoverDamage(&err)
	n, err := rows.ReadRows(buf)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, damaged("%w", err)
	}
	if n == 0 && err == nil {
		return nil, io.ErrNoProgress
	}
	stored = make([]StoredRow, n)
	for i := range stored {
		if e := r.restore(&stored[i], buf[i]); e != nil {
			return stored[:i], e
		}
	}
	return stored, err
}

// restore makes a row of its values, copying what they point to.
func (r *Reader) restore(row *StoredRow, values parquet.Row) error {
	row.Timestamp, row.LeaderEpoch = NoTimestamp, NoLeaderEpoch
	row.Columns = make([]any, len(r.columns))
	valueLeaf := leafDeclared + len(r.columns)
	header := 0
	for _, v := range values {
		switch leaf := v.Column(); {
		case leaf == leafPartition:
			if v.Int32() != r.properties.Partition {
				return damaged("a row of partition %d", v.Int32())
			}
		case leaf == leafOffset:
			row.Offset = v.Int64()
		case v.IsNull() && leaf != leafHeaderValue:
		case leaf == leafTimestamp:
			row.Timestamp = v.Int64()
		case leaf == leafKey:
			row.Key = cloneBytes(v)
		case leaf == leafHeaderKey:
			row.Headers = append(row.Headers, Header{Key: string(v.ByteArray())})
		case leaf == leafHeaderValue:
			// The keys came before, as a row's values are ordered by column.
			if v.DefinitionLevel() == 0 {
				continue
			}
			if header >= len(row.Headers) {
				return damaged("a header without a key")
			}
			if !v.IsNull() {
				row.Headers[header].Value = cloneBytes(v)
			}
			header++
		case leaf == valueLeaf:
			row.Value = cloneBytes(v)
		case leaf == valueLeaf+1:
			row.Error = string(v.ByteArray())
		default:
			row.Columns[leaf-leafDeclared] = restoreColumn(r.columns[leaf-leafDeclared].Type, v)
		}
	}
	return nil
}

func restoreColumn(t ColumnType, v parquet.Value) any {
	switch t {
	case TypeBool:
		return v.Boolean()
	case TypeInt32:
		return v.Int32()
	case TypeInt64:
		return v.Int64()
	case TypeFloat64:
		return v.Double()
	case TypeDate:
		return Date(v.Int32())
	case TypeTimestamp:
		return time.UnixMilli(v.Int64()).UTC()
	case TypeJSON:
		return json.RawMessage(cloneBytes(v))
	}
	return string(v.ByteArray())
}

// cloneBytes copies a value that is not null, and so never returns nil.
func cloneBytes(v parquet.Value) []byte {
	return append(make([]byte, 0, len(v.ByteArray())), v.ByteArray()...)
}
