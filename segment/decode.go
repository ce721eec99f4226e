package segment

import (
	"bytes"
	"fmt"

	"github.com/parquet-go/parquet-go"
)

// decoder turns the value of a row into the declared columns. It reads the text
// once: fields that no column wants are checked, not built.
//
// A value decodes as a whole or not at all. The first fault, in the order of the
// text, ends it; which fault that is depends on nothing but the bytes, because
// its wording is stored in the file.
type decoder struct {
	scanner
	types []ColumnType
	names []string
	root  *field
	// row receives the values, by column. Strings point into the row's bytes, or
	// into arena if they had escapes.
	row   []parquet.Value
	arena arena
	// column is the one that the fault belongs to, or -1.
	column int
	order  memberOrder
}

// field is a name that columns are below: where to go on in an object.
type field struct {
	children map[string]*field
	columns  []int // that take the value at this place
}

func newDecoder(columns []Column) *decoder {
	d := &decoder{root: new(field), row: make([]parquet.Value, len(columns))}
	for i, c := range columns {
		d.types = append(d.types, c.Type)
		d.names = append(d.names, c.Name)
		f := d.root
		for _, name := range c.path() {
			f = f.child(name)
		}
		f.columns = append(f.columns, i)
	}
	return d
}

func (f *field) child(name string) *field {
	if f.children == nil {
		f.children = make(map[string]*field)
	}
	c := f.children[name]
	if c == nil {
		c = new(field)
		f.children[name] = c
	}
	return c
}

// decode reads a value into d.row, which holds null (the zero Value) for a
// column whose field is missing or null. On false d.row means nothing, and
// explain says why.
func (d *decoder) decode(value []byte) bool {
	clear(d.row)
	d.column = -1
	d.reset(value)
	d.space()
	switch {
	case len(value) == 0:
		return d.fail(0, "the value is empty")
	case d.peek() == '{':
		return d.top() && d.end()
	case d.skip(0) && d.end():
		return d.fail(0, "the value is not a JSON object")
	}
	return false
}

// explain says why decode failed.
func (d *decoder) explain() string {
	if d.column >= 0 {
		return fmt.Sprintf("column %s at byte %d: %s", d.names[d.column], d.at, d.problem)
	}
	return fmt.Sprintf("at byte %d: %s", d.at, d.problem)
}

// top reads the outermost object. Rows of one stream mostly have the same names
// in the same order; while they do, comparing with the order of an earlier row
// is all that a name costs.
func (d *decoder) top() bool {
	more, ok := d.begin('}', 0)
	object := d.scanner.names.object()
	i := 0
	for ; ok && more && i < len(d.order.members); i++ {
		m := &d.order.members[i]
		if !bytes.HasPrefix(d.data[d.pos:], m.text) {
			break
		}
		d.pos += len(m.text)
		d.space()
		if ok = d.value(m.field, 1); ok {
			more, ok = d.next('}')
		}
	}
	if !ok || !more {
		return ok
	}
	// Out of step: the names so far are distinct, but must be known from here on.
	for _, m := range d.order.members[:i] {
		d.scanner.names.add(object, m.name)
	}
	learning := d.order.missed(i)
	for ok && more {
		start := d.pos
		var name []byte
		if name, ok = d.name(object); !ok {
			break
		}
		f := d.root.children[string(name)]
		learning = learning && d.order.learn(d.data[start:d.pos], name, f)
		if ok = d.value(f, 1); ok {
			more, ok = d.next('}')
		}
	}
	return ok
}

// members reads an object inside, for the columns below f.
func (d *decoder) members(f *field, depth int) bool {
	more, ok := d.begin('}', depth)
	object := d.scanner.names.object()
	for ok && more {
		var name []byte
		if name, ok = d.name(object); !ok {
			break
		}
		if ok = d.value(f.children[string(name)], depth+1); ok {
			more, ok = d.next('}')
		}
	}
	return ok
}

// value reads the value at f; a nil f is one that no column wants.
func (d *decoder) value(f *field, depth int) bool {
	if f == nil {
		return d.skip(depth)
	}
	start := d.pos
	var (
		k  kind
		t  text
		ok bool
	)
	switch d.peek() {
	case '"':
		k = kindString
		t, ok = d.str()
	case '{':
		k = kindObject
		if f.children != nil {
			ok = d.members(f, depth)
		} else {
			ok = d.skip(depth)
		}
	case '[':
		k, ok = kindArray, d.skip(depth)
	case 't', 'f':
		k, ok = kindBool, d.skip(depth)
	case 'n':
		k, ok = kindNull, d.skip(depth)
	default:
		var integer bool
		integer, ok = d.number()
		k = kindDecimal
		if integer {
			k = kindInteger
		}
	}
	if !ok || k == kindNull {
		return ok
	}
	return d.set(f, k, start, t)
}

// set gives the value that was just read, from start on, to its columns.
func (d *decoder) set(f *field, k kind, start int, t text) bool {
	if f.children != nil && k != kindObject && !d.takesAnything(f) {
		d.column = f.below()
		return d.fail(start, "want an object on the way to it, found "+k.String())
	}
	all := d.data[start:d.pos:d.pos]
	inner := all
	if k == kindString {
		inner = d.raw(t)
		if t.escaped && d.wantsText(f) {
			inner = d.arena.unescape(inner)
		}
	}
	for _, c := range f.columns {
		if d.types[c] == TypeJSON {
			d.row[c] = parquet.ByteArrayValue(all)
			continue
		}
		v, problem := convert(d.types[c], k, inner)
		if problem != "" {
			d.column = c
			return d.fail(start, problem)
		}
		d.row[c] = v
	}
	return true
}

// takesAnything says that a json column stands where other columns go through
// it: then a value that is not an object is that column's, and null for them.
func (d *decoder) takesAnything(f *field) bool {
	for _, c := range f.columns {
		if d.types[c] == TypeJSON {
			return true
		}
	}
	return false
}

func (d *decoder) wantsText(f *field) bool {
	for _, c := range f.columns {
		if d.types[c] != TypeJSON {
			return true
		}
	}
	return false
}

// below is the first declared of the columns under f.
func (f *field) below() int {
	first := -1
	for _, c := range f.columns {
		first = lower(first, c)
	}
	for _, child := range f.children { // the order does not matter to a minimum
		first = lower(first, child.below())
	}
	return first
}

func lower(a, b int) int {
	if a < 0 || b < a {
		return b
	}
	return a
}

// memberOrder remembers the names of an earlier row, in their order. It makes
// decoding faster and never changes what comes out.
type memberOrder struct {
	members []member
	misses  int
}

type member struct {
	text  []byte // `"name":`, as it stood in the row
	name  []byte
	field *field
}

const (
	// missesMax rows out of step make the decoder learn a new order.
	missesMax  = 64
	membersMax = 4096
)

// missed notes that a row went out of step after its first i members, and says
// whether the rest of it should be learnt. What was right is kept.
func (o *memberOrder) missed(i int) (learn bool) {
	if o.misses++; len(o.members) > 0 && o.misses < missesMax {
		return false
	}
	o.misses = 0
	clear(o.members[i:])
	o.members = o.members[:i]
	return true
}

// learn appends a member; upTo is the text of its name up to the value. It
// returns false when the order ends here: a name that is spelled in an unusual
// way must be unescaped each time, and a bomb of names is not worth keeping.
func (o *memberOrder) learn(upTo, name []byte, f *field) bool {
	upTo = bytes.TrimRight(upTo, " \t\r\n")
	plain := len(upTo) == len(name)+len(`"":`) && bytes.Equal(upTo[1:1+len(name)], name)
	if !plain || len(o.members) == membersMax {
		return false
	}
	t := bytes.Clone(upTo)
	o.members = append(o.members, member{text: t, name: t[1 : 1+len(name)], field: f})
	return true
}

// arena holds unescaped strings until the block that uses them is encoded.
type arena struct{ chunk []byte }

const arenaChunk = 64 << 10

// unescape returns the text that src stands for, which is never longer.
func (a *arena) unescape(src []byte) []byte {
	if cap(a.chunk)-len(a.chunk) < len(src) {
		// Values still point into the old chunk; it goes when they do.
		a.chunk = make([]byte, 0, max(arenaChunk, len(src)))
	}
	start := len(a.chunk)
	a.chunk = unescape(a.chunk, src)
	return a.chunk[start:len(a.chunk):len(a.chunk)]
}

// reset makes the chunk free again. No value may be in use.
func (a *arena) reset() {
	if a.chunk = a.chunk[:0]; cap(a.chunk) > arenaChunk {
		a.chunk = nil
	}
}
