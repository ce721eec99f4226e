package segment

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
