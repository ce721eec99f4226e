package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// kind is what a node of a document is.
type kind string

const (
	kindNull   kind = "nothing"
	kindBool   kind = "true or false"
	kindNumber kind = "a number"
	kindString kind = "text"
	kindList   kind = "a list"
	kindMap    kind = "a group of settings"
)

// node is a value of a document, YAML or JSON, with its place. Maps keep their
// order and their duplicate keys.
type node struct {
	kind   kind
	text   string  // of a scalar
	items  []*node // of a list
	fields []field // of a map
	line   int
}

type field struct {
	key   string
	line  int
	value *node
}

// show is the value as a fault names it.
func (n *node) show() string {
	switch n.kind {
	case kindNull:
		return ""
	case kindString:
		return show(n.text)
	case kindList, kindMap:
		return string(n.kind)
	}
	return clip(n.text)
}

// maxDepth bounds the nesting of a document.
const maxDepth = 32

// The bounds of a YAML document. The parser's time grows with the square of the
// lines and worse: 64 KiB of empty lines in a text block took it 23 s. Whoever
// has more to say than this has a program to say it, which can write JSON.
const (
	maxYAMLSize  = 128 << 10 // bytes
	maxYAMLLines = 5000
	// maxLineMarks bounds the characters in a line that could open a block.
	maxLineMarks = 1000
)

// syntaxError ends the parse: the rest of the document cannot be trusted.
type syntaxError struct {
	line    int
	problem string
}

func (e *syntaxError) Error() string { return e.problem }

// parse reads a document. JSON goes to a JSON parser, because YAML would read
// some of its escapes otherwise.
func parse(name string, data []byte) (n *node, err error) {
	if path.Ext(name) == ".json" || json.Valid(data) {
		return parseJSON(data)
	}
	return parseYAML(data)
}

func parseJSON(data []byte) (*node, error) {
	p := &jsonParser{data: data, dec: json.NewDecoder(bytes.NewReader(data))}
	p.dec.UseNumber()
	n, err := p.value(0)
	if err == nil {
		if _, more := p.dec.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("more after the end of the JSON value")
		}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the JSON ends too early")
	}
	if err != nil {
		return nil, &syntaxError{line: p.line(), problem: err.Error()}
	}
	return n, nil
}

type jsonParser struct {
	data []byte
	dec  *json.Decoder
	// The offset up to which lines have been counted, and their number.
	counted int64
	lines   int
}

// line is the number of the line that the decoder has come to.
func (p *jsonParser) line() int {
	at := p.dec.InputOffset()
	p.lines += bytes.Count(p.data[p.counted:at], []byte("\n"))
	p.counted = at
	return p.lines + 1
}

func (p *jsonParser) value(depth int) (*node, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("nested more than %d deep", maxDepth)
	}
	token, err := p.dec.Token()
	if err != nil {
		return nil, err
	}
	n := &node{line: p.line()}
	switch t := token.(type) {
	case nil:
		n.kind = kindNull
	case bool:
		n.kind, n.text = kindBool, fmt.Sprint(t)
	case json.Number:
		n.kind, n.text = kindNumber, t.String()
	case string:
		n.kind, n.text = kindString, t
	case json.Delim:
		if t == '[' {
			return n, p.list(n, depth)
		}
		return n, p.object(n, depth)
	}
	return n, nil
}

func (p *jsonParser) list(n *node, depth int) error {
	n.kind = kindList
	for p.dec.More() {
		item, err := p.value(depth + 1)
		if err != nil {
			return err
		}
		n.items = append(n.items, item)
	}
	_, err := p.dec.Token()
	return err
}

func (p *jsonParser) object(n *node, depth int) error {
	n.kind = kindMap
	for p.dec.More() {
		key, err := p.dec.Token()
		if err != nil {
			return err
		}
		line := p.line()
		value, err := p.value(depth + 1)
		if err != nil {
			return err
		}
		n.fields = append(n.fields, field{key: key.(string), line: line, value: value})
	}
	_, err := p.dec.Token()
	return err
}

// parseYAML reads one YAML document. Of YAML's machinery only what a person
// writes into a configuration is taken: no anchors and aliases (which can make
// a small document huge), tags, merge keys, or keys that are not plain text.
func parseYAML(data []byte) (n *node, err error) {
	defer func() {
		// The parser's input comes from outside; a document that breaks it is
		// the document's fault to whoever sent it.
		if r := recover(); r != nil {
			n, err = nil, &syntaxError{problem: "not readable as YAML"}
		}
	}()
	if problem := tooMuch(data); problem != "" {
		return nil, &syntaxError{problem: problem}
	}
	file, err := parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, yamlError(err)
	}
	var bodies []ast.Node
	for _, doc := range file.Docs {
		if doc.Body != nil {
			bodies = append(bodies, doc.Body)
		}
	}
	switch len(bodies) {
	case 0:
		return &node{kind: kindNull, line: 1}, nil
	case 1:
		return fromYAML(bodies[0], 0)
	}
	return nil, &syntaxError{line: lineOf(bodies[1]), problem: "a second document begins here; one is expected"}
}

// tooMuch says which bound a YAML document breaks, before the parser, which
// knows none and recurses as deep as it is led, has seen it.
func tooMuch(data []byte) (problem string) {
	if len(data) > maxYAMLSize {
		return fmt.Sprintf("%d bytes of YAML, more than %d; longer ones are read as JSON", len(data), maxYAMLSize)
	}
	lines, open, marks := 0, 0, 0
	for i, c := range data {
		switch c {
		case '[', '{':
			open++
		case ']', '}':
			open = max(0, open-1)
		case '-', '?', ':':
			marks++
		case '\n', '\r':
			marks = 0
			if c == '\n' || !bytes.HasPrefix(data[i+1:], []byte("\n")) {
				lines++
			}
		}
		switch {
		case open > maxDepth || marks > maxLineMarks:
			return fmt.Sprintf("nested more than %d deep", maxDepth)
		case lines > maxYAMLLines:
			return fmt.Sprintf("more than %d lines of YAML; longer documents are read as JSON", maxYAMLLines)
		}
	}
	return ""
}

func yamlError(err error) error {
	var e yaml.Error
	if !errors.As(err, &e) {
		return &syntaxError{problem: err.Error()}
	}
	out := &syntaxError{problem: e.GetMessage()}
	if t := e.GetToken(); t != nil && t.Position != nil {
		out.line = t.Position.Line
	}
	return out
}

func lineOf(n ast.Node) int {
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 0
}

func fromYAML(a ast.Node, depth int) (*node, error) {
	n := &node{line: lineOf(a)}
	if depth > maxDepth {
		return nil, &syntaxError{line: n.line, problem: fmt.Sprintf("nested more than %d deep", maxDepth)}
	}
	switch a := a.(type) {
	case *ast.NullNode:
		n.kind = kindNull
	case *ast.BoolNode:
		n.kind, n.text = kindBool, fmt.Sprint(a.Value)
	case *ast.IntegerNode:
		n.kind, n.text = kindNumber, fmt.Sprint(a.Value)
		if a.GetToken().Type == token.OctetIntegerType && !strings.Contains(a.GetToken().Value, "o") {
			n.text = a.GetToken().Value // 017 is seventeen since YAML 1.2, whatever the parser thinks
		}
	case *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		n.kind, n.text = kindNumber, a.GetToken().Value
	case *ast.StringNode:
		n.kind, n.text = kindString, a.Value
	case *ast.LiteralNode:
		n.kind, n.text = kindString, a.Value.Value
	case *ast.SequenceNode:
		n.kind = kindList
		for _, value := range a.Values {
			item, err := fromYAML(value, depth+1)
			if err != nil {
				return nil, err
			}
			n.items = append(n.items, item)
		}
	case *ast.MappingNode:
		return n, addYAMLFields(n, a.Values, depth)
	case *ast.MappingValueNode:
		return n, addYAMLFields(n, []*ast.MappingValueNode{a}, depth)
	default:
		return nil, &syntaxError{line: n.line, problem: strings.ToLower(a.Type().String()) + "s are not allowed here"}
	}
	return n, nil
}

func addYAMLFields(n *node, values []*ast.MappingValueNode, depth int) error {
	n.kind = kindMap
	for _, v := range values {
		line := lineOf(v.Key)
		key, err := yamlKey(v.Key)
		if err != nil {
			return err
		}
		value, err := fromYAML(v.Value, depth+1)
		if err != nil {
			return err
		}
		n.fields = append(n.fields, field{key: key, line: line, value: value})
	}
	return nil
}

func yamlKey(k ast.MapKeyNode) (string, error) {
	switch k := k.(type) {
	case *ast.StringNode:
		return k.Value, nil
	case *ast.IntegerNode, *ast.BoolNode, *ast.FloatNode, *ast.NullNode:
		return k.GetToken().Value, nil
	}
	return "", &syntaxError{line: lineOf(k), problem: "the key is not plain text"}
}
