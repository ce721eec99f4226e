package segment

import (
	"reflect"

	"github.com/parquet-go/parquet-go"
)

// leaf is a physical column of a file.
type leaf struct {
	path []string
	node parquet.Node
	// rep and def are the levels of a value that is there; 0, 0 is a required
	// column's.
	rep, def int
	// dictionary columns are encoded as RLE_DICTIONARY as long as that pays.
	dictionary bool
	// bounded columns have their least and greatest value in the footer.
	bounded bool
	binary  bool
}

// The leaves that every file starts with; the declared columns follow.
const (
	leafPartition = iota
	leafOffset
	leafTimestamp
	leafKey
	leafHeaderKey
	leafHeaderValue
	leafDeclared
)

// fileSchema lays out the columns of a format. Only encodings that every reader
// has are used: PLAIN, and RLE_DICTIONARY for the two kinds of column in which
// values repeat by nature, the partition and declared strings.
//
// _value is bytes without a UTF8 or JSON annotation, in a json table too:
// rows that do not decode are kept in it, and engines refuse a whole file for
// one annotated value that is not valid. For the same reason the header's key is
// bytes. Declared strings and json carry their annotation, because only
// validated text gets there.
func fileSchema(f *Format) (*parquet.Schema, []leaf) {
	var (
		leaves []leaf
		root   = newGroup()
	)
	add := func(name string, node parquet.Node, l leaf) {
		if l.def > 0 {
			node = parquet.Optional(node)
		}
		l.path, l.node = []string{name}, node
		l.binary = node.Type().Kind() == parquet.ByteArray
		leaves = append(leaves, l)
		root.fields = append(root.fields, &schemaField{node, name})
	}
	plain := func(t parquet.Node) parquet.Node { return parquet.Encoded(t, &parquet.Plain) }
	bytes := func() parquet.Node { return plain(parquet.Leaf(parquet.ByteArrayType)) }

	add(columnPartition, parquet.Encoded(parquet.Leaf(parquet.Int32Type), &parquet.RLEDictionary), leaf{dictionary: true, bounded: true})
	add(columnOffset, plain(parquet.Leaf(parquet.Int64Type)), leaf{bounded: true})
	add(columnTimestamp, plain(parquet.Timestamp(parquet.Millisecond)), leaf{def: 1, bounded: true})
	add(columnKey, bytes(), leaf{def: 1, bounded: true})

	root.fields = append(root.fields, &schemaField{parquet.Optional(parquet.List(newGroup(
		&schemaField{bytes(), "key"},
		&schemaField{parquet.Optional(bytes()), "value"},
	))), columnHeaders})
	list := []string{columnHeaders, "list", "element"}
	leaves = append(leaves,
		leaf{path: append(list[:3:3], "key"), rep: 1, def: 2, binary: true},
		leaf{path: append(list[:3:3], "value"), rep: 1, def: 3, binary: true})

	for _, c := range f.Columns {
		l := leaf{def: 1, bounded: true}
		var node parquet.Node
		switch c.Type {
		case TypeBool:
			node = plain(parquet.Leaf(parquet.BooleanType))
		case TypeInt32:
			node = plain(parquet.Leaf(parquet.Int32Type))
		case TypeInt64:
			node = plain(parquet.Leaf(parquet.Int64Type))
		case TypeFloat64:
			node = plain(parquet.Leaf(parquet.DoubleType))
		case TypeDate:
			node = plain(parquet.Date())
		case TypeTimestamp:
			node = plain(parquet.Timestamp(parquet.Millisecond))
		case TypeString:
			node, l.dictionary = parquet.Encoded(parquet.String(), &parquet.RLEDictionary), true
		case TypeJSON:
			node, l.bounded = plain(parquet.JSON()), false
		}
		add(c.Name, node, l)
	}
	add(columnValue, bytes(), leaf{def: 1})
	if f.Type == FormatJSON {
		add(columnError, plain(parquet.String()), leaf{def: 1})
	}
	return parquet.NewSchema("segment", root), leaves
}

// group is a parquet.Group that keeps its fields in the order they are given;
// the library's own sorts them by name.
type group struct {
	parquet.Group // nil: what a group is, without fields
	fields        []parquet.Field
}

func newGroup(fields ...parquet.Field) *group { return &group{fields: fields} }

func (g *group) Fields() []parquet.Field { return g.fields }

func (g *group) GoType() reflect.Type { return reflect.TypeFor[struct{}]() }

type schemaField struct {
	parquet.Node
	name string
}

func (f *schemaField) Name() string { return f.name }

// Value is for rows that are Go structs, which no code here writes.
func (f *schemaField) Value(reflect.Value) reflect.Value { return reflect.Value{} }
