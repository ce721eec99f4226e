package segment

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth is how deep arrays and objects may nest. Rows of real streams stay
// below 20; the limit is there for rows made to exhaust a stack.
const maxDepth = 512

// scanner reads one JSON text and accepts exactly what RFC 8259 and I-JSON
// (RFC 7493) allow: valid UTF-8 and paired surrogates everywhere, no name twice
// in an object, nothing but spaces after the value, and nesting up to maxDepth.
// Strictness is not pedantry here. A lenient reader lets a row into the typed
// columns whose _value another engine then refuses, or reads differently.
//
// It is written by hand because it has to be strict, exact and fast at once.
// (docs/format/segment.md gives the comparison with two libraries; the tests
// check it against one of them.)
//
// Methods return false once something is wrong; problem and at say what and
// where. A scanner is reused from row to row and keeps no text after reset.
type scanner struct {
	data []byte
	pos  int

	names nameSet

	problem string
	at      int
}

func (s *scanner) reset(data []byte) {
	s.data, s.pos = data, 0
	s.names.reset()
	s.problem, s.at = "", 0
}

func (s *scanner) fail(at int, problem string) bool {
	s.at, s.problem = at, problem
	return false
}

// text is a string of the text: data[start:end] lies between the quotes.
type text struct {
	start, end int
	escaped    bool
}

func (s *scanner) raw(t text) []byte { return s.data[t.start:t.end:t.end] }

func (s *scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// peek is the next byte, or 0 at the end (which is no byte of JSON either).
func (s *scanner) peek() byte {
	if s.pos < len(s.data) {
		return s.data[s.pos]
	}
	return 0
}

// unexpected fails at the current byte.
func (s *scanner) unexpected(problem string) bool {
	if s.pos >= len(s.data) {
		return s.fail(s.pos, "the text ends early")
	}
	return s.fail(s.pos, problem)
}

// end demands that only spaces follow.
func (s *scanner) end() bool {
	s.space()
	if s.pos < len(s.data) {
		return s.fail(s.pos, "something follows the value")
	}
	return true
}

// skip reads a value of any kind. depth counts the arrays and objects around it.
func (s *scanner) skip(depth int) bool {
	switch c := s.peek(); c {
	case '"':
		_, ok := s.str()
		return ok
	case '{':
		return s.skipObject(depth)
	case '[':
		return s.skipArray(depth)
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	default:
		_, ok := s.number()
		return ok
	}
}

func (s *scanner) skipObject(depth int) bool {
	more, ok := s.begin('}', depth)
	object := s.names.object()
	for ok && more {
		if _, ok = s.name(object); !ok {
			break
		}
		if ok = s.skip(depth + 1); !ok {
			break
		}
		more, ok = s.next('}')
	}
	return ok
}

func (s *scanner) skipArray(depth int) bool {
	more, ok := s.begin(']', depth)
	for ok && more {
		if ok = s.skip(depth + 1); !ok {
			break
		}
		more, ok = s.next(']')
	}
	return ok
}

// begin enters the array or object whose first byte is next, and stands before
// its first element or, if it is empty, behind it.
func (s *scanner) begin(closing byte, depth int) (more, ok bool) {
	if depth >= maxDepth {
		return false, s.fail(s.pos, "arrays and objects nest too deep")
	}
	s.pos++
	s.space()
	if s.peek() == closing {
		s.pos++
		return false, true
	}
	return true, true
}

// next follows an element: a comma and another one, or the closing byte.
func (s *scanner) next(closing byte) (more, ok bool) {
	s.space()
	switch s.peek() {
	case ',':
		s.pos++
		s.space()
		return true, true
	case closing:
		s.pos++
		return false, true
	case 0:
		return false, s.unexpected("a control character between values")
	}
	return false, s.fail(s.pos, "a comma or a closing bracket is missing")
}

// name reads the name of a member, and the colon and spaces up to its value.
// The name is new in the object, and unescaped.
func (s *scanner) name(object int) ([]byte, bool) {
	start := s.pos
	if s.peek() != '"' {
		return nil, s.unexpected("a quoted name is missing")
	}
	t, ok := s.str()
	if !ok {
		return nil, false
	}
	name := s.raw(t)
	if t.escaped {
		name = unescape(nil, name)
	}
	if !s.names.add(object, name) {
		return nil, s.fail(start, "a name occurs twice in one object")
	}
	s.space()
	if s.peek() != ':' {
		return nil, s.unexpected("a colon is missing")
	}
	s.pos++
	s.space()
	return name, true
}

func (s *scanner) literal(want string) bool {
	if rest := s.data[s.pos:]; len(rest) < len(want) || string(rest[:len(want)]) != want {
		return s.fail(s.pos, "not a JSON value")
	}
	s.pos += len(want)
	return true
}

// number reads a number; integer says that it has neither fraction nor exponent.
func (s *scanner) number() (integer, ok bool) {
	b, i := s.data, s.pos
	if i < len(b) && b[i] == '-' {
		i++
	}
	switch {
	case i < len(b) && b[i] == '0':
		i++
	case i < len(b) && '1' <= b[i] && b[i] <= '9':
		i = digits(b, i)
	default:
		return false, s.unexpected("not a JSON value")
	}
	integer = true
	if i < len(b) && b[i] == '.' {
		start := i + 1
		if i = digits(b, start); i == start {
			return false, s.fail(i, "a digit is missing after the decimal point")
		}
		integer = false
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		start := i + 1
		if start < len(b) && (b[start] == '+' || b[start] == '-') {
			start++
		}
		if i = digits(b, start); i == start {
			return false, s.fail(i, "a digit is missing in the exponent")
		}
		integer = false
	}
	s.pos = i
	return integer, true
}

func digits(b []byte, i int) int {
	for i < len(b) && '0' <= b[i] && b[i] <= '9' {
		i++
	}
	return i
}

// str reads a string, whose opening quote is next.
func (s *scanner) str() (text, bool) {
	b, i := s.data, s.pos+1
	t := text{start: i}
	for {
		i = plainText(b, i)
		if i >= len(b) {
			return t, s.fail(len(b), "the text ends early")
		}
		switch c := b[i]; {
		case c == '"':
			t.end, s.pos = i, i+1
			return t, true
		case c == '\\':
			n := escapeLen(b[i:])
			if n == 0 {
				return t, s.fail(i, "a bad escape in a string")
			}
			t.escaped = true
			i += n
		case c < ' ':
			return t, s.fail(i, "a control character in a string")
		default:
			r, n := utf8.DecodeRune(b[i:])
			if r == utf8.RuneError && n == 1 {
				return t, s.fail(i, "not valid UTF-8")
			}
			i += n
		}
	}
}

// plainText is the index, from i on, of the first byte that is not plain text:
// a quote, a backslash, a control character, or the start of a longer rune. It
// looks at eight bytes at a time.
func plainText(b []byte, i int) int {
	const (
		ones  = 0x0101010101010101
		highs = 0x8080808080808080
	)
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		quote := w ^ ones*'"'
		slash := w ^ ones*'\\'
		// (x - ones) &^ x has the high bit of the lowest zero byte of x set. Bits
		// above that may be wrong, from a borrow; only the lowest is used.
		hit := ((quote-ones)&^quote | (slash-ones)&^slash | (w-ones*' ')&^w | w) & highs
		if hit != 0 {
			return i + bits.TrailingZeros64(hit)/8
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c == '"' || c == '\\' || c < ' ' || c >= utf8.RuneSelf {
			break
		}
	}
	return i
}

// escapeLen is the length of the escape that b starts with, a surrogate pair
// counted as one; 0 if it is none.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		r, ok := hex4(b)
		switch {
		case !ok:
			return 0
		case !utf16.IsSurrogate(r):
			return 6
		}
		if low, ok := hex4(b[6:]); ok && utf16.DecodeRune(r, low) != utf8.RuneError {
			return 12
		}
	}
	return 0
}

// hex4 reads \uXXXX.
func hex4(b []byte) (r rune, ok bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	for _, c := range b[2:6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// unescape appends the text that src stands for. src was accepted by str.
func unescape(dst, src []byte) []byte {
	for i := 0; i < len(src); {
		if src[i] != '\\' {
			dst = append(dst, src[i])
			i++
			continue
		}
		switch c := src[i+1]; c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r, _ := hex4(src[i:])
			if utf16.IsSurrogate(r) {
				low, _ := hex4(src[i+6:])
				r = utf16.DecodeRune(r, low)
				i += 6
			}
			dst = utf8.AppendRune(dst, r)
			i += 4
		default: // quote, backslash, slash
			dst = append(dst, c)
		}
		i += 2
	}
	return dst
}
