package config

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxSize is the largest document in bytes that Decode reads; the largest one
// that a person would write is far below. YAML has narrower bounds, see parse.
const MaxSize = 1 << 20

// Decode reads a YAML or JSON document into the struct that into points to.
// Settings that the document does not have keep the value they had, so that
// defaults are put in before. Keys are those of the json tags, else the yaml
// tags, else the Go names, and case counts.
//
// It is strict: unknown and duplicate keys, values of another type (nothing is
// converted but numbers to what has UnmarshalText) and values out of range are
// faults. All of them are reported, as Faults; what has no fault is set all the
// same, so that the caller can check it and add what it finds. name, a file
// name or "request body", says where in the faults; a name that ends in .json
// is read as JSON only.
func Decode(name string, data []byte, into any) error {
	v := reflect.ValueOf(into)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		panic("config: Decode needs a pointer to a value")
	}
	d := &decoder{name: name}
	if len(data) > MaxSize {
		d.fault("", 0, "", fmt.Sprintf("%d bytes, more than %d", len(data), MaxSize))
		return d.faults.Err()
	}
	if !utf8.Valid(data) {
		d.fault("", 0, "", "not text in UTF-8")
		return d.faults.Err()
	}
	n, err := parse(name, data)
	if err != nil {
		line := 0
		if e, ok := errors.AsType[*syntaxError](err); ok {
			line = e.line
		}
		d.fault("", line, "", err.Error())
		return d.faults.Err()
	}
	d.value(n, v.Elem(), "")
	return d.faults.Err()
}

// decoder walks a document and a Go value side by side.
type decoder struct {
	name   string
	faults Faults
}

func (d *decoder) fault(path string, line int, value, problem string) {
	where := d.name
	if line > 0 {
		where += ":" + strconv.Itoa(line)
	}
	d.faults.add(Fault{Field: path, Value: value, Problem: problem, Where: where})
}

// wrongType says what is there and what was expected.
func (d *decoder) wrongType(n *node, path string, want kind) {
	problem := fmt.Sprintf("%s is expected here", want)
	switch {
	case n.kind == kindNull:
		problem = fmt.Sprintf("has no value; %s", problem)
	case want == kindString && (n.kind == kindNumber || n.kind == kindBool):
		problem += ": put it in quotes"
	}
	d.fault(path, n.line, n.show(), problem)
}

func (d *decoder) value(n *node, v reflect.Value, path string) {
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok && v.Kind() != reflect.Pointer {
		d.text(n, u, path)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		d.pointer(n, v, path)
	case reflect.Struct:
		d.structure(n, v, path)
	case reflect.Map:
		d.mapping(n, v, path)
	case reflect.Slice:
		d.list(n, v, path)
	case reflect.Interface:
		if n.kind == kindNull {
			v.SetZero()
		} else {
			v.Set(reflect.ValueOf(plain(n)))
		}
	default:
		d.scalar(n, v, path)
	}
}

// text gives a scalar to a type that parses itself.
func (d *decoder) text(n *node, u encoding.TextUnmarshaler, path string) {
	if n.kind != kindString && n.kind != kindNumber {
		d.wrongType(n, path, kindString)
		return
	}
	if err := u.UnmarshalText([]byte(n.text)); err != nil {
		d.fault(path, n.line, n.show(), err.Error())
	}
}

// pointer allocates when needed; a key without a value unsets it.
func (d *decoder) pointer(n *node, v reflect.Value, path string) {
	if n.kind == kindNull {
		v.SetZero()
		return
	}
	if v.IsNil() {
		v.Set(reflect.New(v.Type().Elem()))
	}
	d.value(n, v.Elem(), path)
}

func (d *decoder) structure(n *node, v reflect.Value, path string) {
	if n.kind == kindNull {
		return // "segment:" with every line below commented out
	}
	if n.kind != kindMap {
		d.wrongType(n, path, kindMap)
		return
	}
	known := fieldsOf(v.Type())
	for f, at := range d.unique(n, path) {
		index, ok := known[f.key]
		if !ok {
			d.fault(at, f.line, f.value.show(), "unknown setting"+suggest(f.key, known))
			continue
		}
		d.value(f.value, v.FieldByIndex(index), at)
	}
}

// mapping reads a map with text keys, such as tags.
func (d *decoder) mapping(n *node, v reflect.Value, path string) {
	switch {
	case v.Type().Key().Kind() != reflect.String:
		panic(fmt.Sprintf("config: %s: cannot decode into %s", path, v.Type()))
	case n.kind == kindNull:
		v.SetZero()
		return
	case n.kind != kindMap:
		d.wrongType(n, path, kindMap)
		return
	}
	out := reflect.MakeMapWithSize(v.Type(), len(n.fields))
	for f, at := range d.unique(n, path) {
		elem := reflect.New(v.Type().Elem()).Elem()
		d.value(f.value, elem, at)
		out.SetMapIndex(reflect.ValueOf(f.key).Convert(v.Type().Key()), elem)
	}
	v.Set(out)
}

// unique yields the fields of n with their paths; of duplicates only the first.
func (d *decoder) unique(n *node, path string) func(yield func(field, string) bool) {
	return func(yield func(field, string) bool) {
		seen := make(map[string]int, len(n.fields))
		for _, f := range n.fields {
			at := clip(f.key)
			if path != "" {
				at = path + "." + at
			}
			if line, ok := seen[f.key]; ok {
				d.fault(at, f.line, f.value.show(), fmt.Sprintf("set twice, first in line %d", line))
				continue
			}
			seen[f.key] = f.line
			if !yield(f, at) {
				return
			}
		}
	}
}

func (d *decoder) list(n *node, v reflect.Value, path string) {
	if n.kind == kindNull {
		v.SetZero()
		return
	}
	if n.kind != kindList {
		d.wrongType(n, path, kindList)
		return
	}
	out := reflect.MakeSlice(v.Type(), len(n.items), len(n.items))
	for i, item := range n.items {
		d.value(item, out.Index(i), fmt.Sprintf("%s[%d]", path, i))
	}
	v.Set(out)
}

// scalar sets bool, string and the number kinds.
func (d *decoder) scalar(n *node, v reflect.Value, path string) {
	want := kindNumber
	switch v.Kind() {
	case reflect.Bool:
		want = kindBool
	case reflect.String:
		want = kindString
	}
	if n.kind != want {
		d.wrongType(n, path, want)
		return
	}
	if problem := setScalar(v, n.text); problem != "" {
		d.fault(path, n.line, n.show(), problem)
	}
}

// setScalar sets v from the text of a scalar of the right kind, or says why not.
func setScalar(v reflect.Value, text string) (problem string) {
	bits := 0
	if v.CanInt() || v.CanUint() || v.CanFloat() {
		bits = v.Type().Bits()
	}
	var err error
	switch {
	case v.Kind() == reflect.Bool:
		v.SetBool(text == "true")
	case v.Kind() == reflect.String:
		v.SetString(text)
	case v.CanInt():
		var i int64
		if i, err = strconv.ParseInt(text, 10, bits); err == nil {
			v.SetInt(i)
		}
	case v.CanUint():
		var u uint64
		if u, err = strconv.ParseUint(text, 10, bits); err == nil {
			v.SetUint(u)
		}
	case v.CanFloat():
		var f float64
		if f, err = strconv.ParseFloat(strings.ReplaceAll(text, "_", ""), bits); err == nil && f-f == 0 {
			v.SetFloat(f)
			return ""
		}
		return "must be a finite number"
	default:
		panic(fmt.Sprintf("config: cannot decode into %s", v.Type()))
	}
	switch {
	case errors.Is(err, strconv.ErrRange):
		return fmt.Sprintf("out of range for %d bits", bits)
	case err != nil && v.CanUint():
		return "must be a whole number, not negative"
	case err != nil:
		return "must be a whole number"
	}
	return ""
}

// plain is a node as encoding/json would have it in an any, numbers as written.
func plain(n *node) any {
	switch n.kind {
	case kindBool:
		return n.text == "true"
	case kindList:
		out := make([]any, len(n.items))
		for i, item := range n.items {
			out[i] = plain(item)
		}
		return out
	case kindMap:
		out := make(map[string]any, len(n.fields))
		for _, f := range n.fields {
			out[f.key] = plain(f.value)
		}
		return out
	case kindNull:
		return nil
	}
	return n.text
}

// fieldsOf maps the keys of a struct to its fields; embedded structs without a
// tag give theirs.
func fieldsOf(t reflect.Type) map[string][]int {
	out := map[string][]int{}
	for _, f := range reflect.VisibleFields(t) {
		if !f.IsExported() || f.Anonymous && tagName(f) == "" {
			continue
		}
		key := tagName(f)
		switch key {
		case "-":
			continue
		case "":
			key = f.Name
		}
		out[key] = f.Index
	}
	return out
}

func tagName(f reflect.StructField) string {
	for _, tag := range []string{"json", "yaml"} {
		if name, _, _ := strings.Cut(f.Tag.Get(tag), ","); name != "" {
			return name
		}
	}
	return ""
}
