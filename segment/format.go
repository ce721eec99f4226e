package segment

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Format says how the rows of a table become the columns of its files. It is
// part of a table's configuration and never changes within a segment.
type Format struct {
	// Type is "json" or "raw".
	Type FormatType `json:"type" cbor:"1,keyasint"`
	// Timestamp names the declared column that becomes _timestamp; empty means
	// the stream's own timestamp.
	Timestamp string `json:"timestamp,omitempty" cbor:"2,keyasint,omitempty"`
	// OnError says what becomes of a row that does not decode; the only value
	// is "keep": keep _value, leave the columns null, say why in _error.
	OnError string `json:"onError,omitempty" cbor:"3,keyasint,omitempty"`
	// KeepValue false leaves _value out of rows that do decode. Nil is true.
	KeepValue *bool `json:"keepValue,omitempty" cbor:"4,keyasint,omitempty"`
	// Columns are the declared columns of a json table, in file order.
	Columns []Column `json:"columns,omitempty" cbor:"5,keyasint,omitempty"`
}

// FormatType is how the value of a row is read.
type FormatType string

// The formats.
const (
	FormatJSON FormatType = "json"
	FormatRaw  FormatType = "raw"
)

// Column is a declared column: a top-level field of the JSON object, or, with
// dots, a field of nested objects.
type Column struct {
	Name string     `json:"name" cbor:"1,keyasint"`
	Type ColumnType `json:"type" cbor:"2,keyasint"`
	// Path is where the value is in the object, dots between the names of
	// nested objects; empty means Name itself, taken whole.
	Path string `json:"path,omitempty" cbor:"3,keyasint,omitempty"`
}

// ColumnType is the type of a declared column.
type ColumnType string

// The column types. Every declared column is nullable.
const (
	TypeBool      ColumnType = "bool"
	TypeInt32     ColumnType = "int32"
	TypeInt64     ColumnType = "int64"
	TypeFloat64   ColumnType = "float64"
	TypeString    ColumnType = "string"
	TypeDate      ColumnType = "date"      // "2006-01-02"
	TypeTimestamp ColumnType = "timestamp" // RFC 3339 text, or a number of milliseconds since the epoch
	TypeJSON      ColumnType = "json"      // any value, kept as JSON text
)

var columnTypes = []ColumnType{TypeBool, TypeInt32, TypeInt64, TypeFloat64, TypeString, TypeDate, TypeTimestamp, TypeJSON}

// MaxColumns is how many columns a table may declare. A builder holds buffers
// for each, and the share of one column must not become too small to be useful.
const MaxColumns = 500

const (
	maxNameBytes = 128
	onErrorKeep  = "keep"
)

// The columns that every file has, whatever the table declares.
const (
	columnPartition = "_partition"
	columnOffset    = "_offset"
	columnTimestamp = "_timestamp"
	columnKey       = "_key"
	columnHeaders   = "_headers"
	columnValue     = "_value"
	columnError     = "_error"
)

var reservedColumns = []string{columnPartition, columnOffset, columnTimestamp, columnKey, columnHeaders, columnValue, columnError}

// FaultFunc takes one fault of a configuration: the field, relative to the
// Format ("columns[2].type"), its value, and what is wrong with it.
type FaultFunc func(field string, value any, format string, args ...any)

// Validate reports every fault of the format, not only the first.
func (f *Format) Validate(report FaultFunc) {
	if f.OnError != "" && f.OnError != onErrorKeep {
		report("onError", f.OnError, "must be %q", onErrorKeep)
	}
	switch f.Type {
	case FormatJSON:
		f.validateColumns(report)
		f.validateTimestamp(report)
		if !f.keepsValue() && len(f.Columns) == 0 {
			report("keepValue", false, "would keep nothing of a row, as no columns are declared")
		}
	case FormatRaw:
		if len(f.Columns) > 0 {
			report("columns", len(f.Columns), "are for type %q; type %q keeps the value as it is", FormatJSON, FormatRaw)
		}
		if f.Timestamp != "" {
			report("timestamp", f.Timestamp, "names a column, and type %q declares none", FormatRaw)
		}
		if !f.keepsValue() {
			report("keepValue", false, "would keep nothing of a row of type %q", FormatRaw)
		}
	default:
		report("type", f.Type, "must be %q or %q", FormatJSON, FormatRaw)
	}
}

func (f *Format) keepsValue() bool { return f.KeepValue == nil || *f.KeepValue }

func (f *Format) validateColumns(report FaultFunc) {
	if n := len(f.Columns); n > MaxColumns {
		report("columns", n, "are more than %d", MaxColumns)
	}
	taken := make(map[string]string, len(f.Columns)) // folded name → name
	for i, c := range f.Columns {
		field := "columns[" + strconv.Itoa(i) + "]"
		if problem := nameProblem(c.Name); problem != "" {
			report(field+".name", c.Name, "%s", problem)
		} else if other, ok := taken[foldName(c.Name)]; ok {
			report(field+".name", c.Name, "is declared already, as %q: readers such as DuckDB and Spark do not tell names apart by case", other)
		} else {
			taken[foldName(c.Name)] = c.Name
		}
		if !slices.Contains(columnTypes, c.Type) {
			report(field+".type", c.Type, "must be one of %s", joinTypes(columnTypes))
		}
		if c.Path != "" && slices.Contains(strings.Split(c.Path, "."), "") {
			report(field+".path", c.Path, "has an empty name between its dots")
		}
	}
	f.validatePaths(report)
}

// validatePaths finds columns that contradict one another: a value cannot be a
// number for one column and an object with fields for another. Only json takes
// anything.
func (f *Format) validatePaths(report FaultFunc) {
	scalar := make(map[string]string)
	for _, c := range f.Columns {
		if c.Type != TypeJSON {
			scalar[pathKey(c.path())] = c.Name
		}
	}
	for i, c := range f.Columns {
		path := c.path()
		for n := 1; n < len(path); n++ {
			if name, ok := scalar[pathKey(path[:n])]; ok {
				report("columns["+strconv.Itoa(i)+"].path", c.Path, "goes through the value of column %q, which is not an object", name)
				break
			}
		}
	}
}

func (f *Format) validateTimestamp(report FaultFunc) {
	if f.Timestamp == "" {
		return
	}
	i := slices.IndexFunc(f.Columns, func(c Column) bool { return c.Name == f.Timestamp })
	switch {
	case i < 0:
		report("timestamp", f.Timestamp, "is not a declared column")
	case f.Columns[i].Type != TypeTimestamp && f.Columns[i].Type != TypeDate:
		report("timestamp", f.Timestamp, "is a column of type %q; it must be %q or %q", f.Columns[i].Type, TypeTimestamp, TypeDate)
	}
}

// path is where the column's value is, one name per level.
func (c *Column) path() []string {
	if c.Path == "" {
		return []string{c.Name}
	}
	return strings.Split(c.Path, ".")
}

// pathKey is a path as one string that no other path shares: a name may hold a
// dot, but nothing stops it from holding any other character either, so each
// goes with its length.
func pathKey(path []string) string {
	var b strings.Builder
	for _, name := range path {
		b.WriteString(strconv.Itoa(len(name)))
		b.WriteByte(':')
		b.WriteString(name)
	}
	return b.String()
}

// nameProblem says why a name cannot be a column's, or nothing.
func nameProblem(name string) string {
	switch {
	case name == "":
		return "is empty"
	case len(name) > maxNameBytes:
		return "is longer than " + strconv.Itoa(maxNameBytes) + " bytes"
	case !utf8.ValidString(name):
		return "is not valid UTF-8"
	case strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "has a control character"
	case isReserved(name):
		return "is a column that every file has; choose another name and give this one as the path"
	}
	return ""
}

func isReserved(name string) bool { return slices.Contains(reservedColumns, foldName(name)) }

// foldName is the name as a reader sees it that ignores case.
func foldName(name string) string { return strings.ToLower(name) }

func joinTypes(types []ColumnType) string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = string(t)
	}
	return strings.Join(names, ", ")
}
