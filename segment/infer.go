package segment

import (
	"bytes"
	"strconv"
	"strings"
)

// InferColumns proposes columns for a json table from its first values: one for
// each field of the outermost objects, in the order in which the fields appear.
// Values that are not JSON objects say nothing.
//
// The type is the narrowest that holds every value seen, and wide enough for
// what is likely to come, because a value that does not fit costs its row all
// its columns:
//
//	booleans only                    bool
//	integers only                    int64, never int32: a sample shows no limits
//	integers and decimals            float64, if it holds every integer exactly
//	dates only                       date
//	RFC 3339 times only              timestamp
//	other texts                      string
//	null only, objects, arrays,
//	integers beyond int64, mixtures  json, which takes anything
//
// A field whose name a column cannot have, since every file has such a column or
// another field differs from it only in case, gets "_2" and so on appended, with
// its own name as the path. Fields beyond MaxColumns, and those whose name no
// path can tell, stay in _value alone.
func InferColumns(sample [][]byte) []Column {
	var in inference
	for _, value := range sample {
		in.observe(value)
	}
	return in.columns()
}

// inference is what is known so far.
type inference struct {
	scanner scanner
	fields  []*seenField
	byName  map[string]*seenField
	arena   arena
}

// seenField counts what kinds of value a field had.
type seenField struct {
	name                        string
	bools, ints, decimals, text int
	dates, times                int
	other                       int // arrays, objects, integers beyond int64
	inexact                     int // integers that float64 would round
}

func (in *inference) observe(value []byte) {
	s := &in.scanner
	s.reset(value)
	s.space()
	if s.peek() != '{' || !s.skip(0) || !s.end() {
		return
	}
	// It is valid: go through it again for what it says.
	s.reset(value)
	s.space()
	more, _ := s.begin('}', 0)
	object := s.names.object()
	for more {
		name, _ := s.name(object)
		start := s.pos
		s.skip(1)
		in.field(name).observe(s.data[start:s.pos], &in.arena)
		more, _ = s.next('}')
	}
	in.arena.reset()
}

func (in *inference) field(name []byte) *seenField {
	if f, ok := in.byName[string(name)]; ok {
		return f
	}
	if in.byName == nil {
		in.byName = make(map[string]*seenField)
	}
	f := &seenField{name: string(name)}
	in.byName[f.name] = f
	in.fields = append(in.fields, f)
	return f
}

func (f *seenField) observe(value []byte, a *arena) {
	switch value[0] {
	case 'n':
	case 't', 'f':
		f.bools++
	case '"':
		f.text++
		text := value[1 : len(value)-1]
		if bytes.IndexByte(text, '\\') >= 0 {
			text = a.unescape(text)
		}
		if _, ok := parseDate(text); ok {
			f.dates++
		}
		if _, ok := parseTimestamp(text); ok {
			f.times++
		}
	case '[', '{':
		f.other++
	default:
		f.observeNumber(value)
	}
}

func (f *seenField) observeNumber(value []byte) {
	const exact = 1 << 53 // float64 holds every integer up to here
	if bytes.ContainsAny(value, ".eE") {
		f.decimals++
		return
	}
	n, ok := parseInteger(value)
	switch {
	case !ok:
		f.other++
	case n > exact || n < -exact:
		f.inexact++
		fallthrough
	default:
		f.ints++
	}
}

// columnType is the type that holds all that was seen.
func (f *seenField) columnType() ColumnType {
	numbers := f.ints + f.decimals
	switch all := f.bools + numbers + f.text + f.other; {
	case all == 0:
		return TypeJSON
	case f.bools == all:
		return TypeBool
	case f.ints == all:
		return TypeInt64
	case numbers == all && f.inexact == 0:
		return TypeFloat64
	case f.dates == all:
		return TypeDate
	case f.times == all:
		return TypeTimestamp
	case f.text == all:
		return TypeString
	}
	return TypeJSON
}

func (in *inference) columns() []Column {
	var columns []Column
	taken := make(map[string]bool)
	for _, f := range in.fields {
		c := Column{Type: f.columnType()}
		if nameProblem(f.name) == "" && !taken[foldName(f.name)] {
			c.Name = f.name
			taken[foldName(f.name)] = true
		} else if canBePath(f.name) {
			c.Path = f.name
		} else {
			continue
		}
		if columns = append(columns, c); len(columns) == MaxColumns {
			break
		}
	}
	// Only now the new names: they must not take that of a field further down.
	for i := range columns {
		c := &columns[i]
		for n := 2; c.Name == ""; n++ {
			if name := c.Path + "_" + strconv.Itoa(n); !taken[foldName(name)] {
				c.Name = name
				taken[foldName(name)] = true
			}
		}
	}
	return columns
}

// canBePath says that a name works as the path of a column with another name: it
// has no dots, which a path takes for levels, and would be a fine name with a
// number appended.
func canBePath(name string) bool {
	return name != "" && !strings.Contains(name, ".") && nameProblem(name+"_1000") == ""
}
