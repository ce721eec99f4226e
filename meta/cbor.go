package meta

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"sync"
	"unicode/utf8"
	"unique"
)

// cborReader takes the usual encoding apart, fast: that of cborEnc without its rarer
// shapes. It judges nothing. Once something else comes, bad is true, everything reads as
// zero, and the general decoder has to be asked what the bytes are. What it does read, that
// one reads in the same way: FuzzDecodeSegment compares the two.
type cborReader struct {
	b   []byte
	bad bool
	*cborMemory
}

// cborMemory is what a reader remembers of records that it read before: they have many
// strings in common.
type cborMemory struct {
	words map[string]string
	// The last list of words, and its encoding.
	list        []string
	listEncoded []byte
}

// memories has the memory of whoever decodes at the moment.
var memories = sync.Pool{New: func() any { return &cborMemory{words: map[string]string{}} }}

// cborWriter writes what cborEnc would: core deterministic encoding.
type cborWriter struct{ b []byte }

// head writes the first bytes of an item, as few as its number takes.
func (w *cborWriter) head(major byte, n uint64) {
	switch {
	case n < 24:
		w.b = append(w.b, major<<5|byte(n))
	case n <= math.MaxUint8:
		w.b = append(w.b, major<<5|24, byte(n))
	case n <= math.MaxUint16:
		w.b = binary.BigEndian.AppendUint16(append(w.b, major<<5|25), uint16(n))
	case n <= math.MaxUint32:
		w.b = binary.BigEndian.AppendUint32(append(w.b, major<<5|26), uint32(n))
	default:
		w.b = binary.BigEndian.AppendUint64(append(w.b, major<<5|27), n)
	}
}

func (w *cborWriter) int(v int64) {
	if v < 0 {
		w.head(cborNint, uint64(-1-v))
	} else {
		w.head(cborUint, uint64(v))
	}
}

func (w *cborWriter) text(s string) {
	w.head(cborText, uint64(len(s)))
	w.b = append(w.b, s...)
}

// mapInWriting is a map whose fields are not all written yet: how many there are is not
// known before.
type mapInWriting struct {
	at int // of its head
	n  int // fields so far
}

func (w *cborWriter) beginMap() mapInWriting {
	w.b = append(w.b, 0)
	return mapInWriting{at: len(w.b) - 1}
}

func (w *cborWriter) endMap(m mapInWriting) {
	w.b[m.at] = cborMap<<5 | byte(m.n)
	if m.n >= 24 {
		w.b[m.at] = cborMap<<5 | 24
		w.b = slices.Insert(w.b, m.at+1, byte(m.n))
	}
}

// field writes the key of a field, whose value comes next. Keys rise.
func (w *cborWriter) field(m *mapInWriting, key uint64) {
	m.n++
	w.head(cborUint, key)
}

func (w *cborWriter) intField(m *mapInWriting, key uint64, v int64) {
	w.field(m, key)
	w.int(v)
}

// intFieldIf leaves a zero out.
func (w *cborWriter) intFieldIf(m *mapInWriting, key uint64, v int64) {
	if v != 0 {
		w.intField(m, key, v)
	}
}

func (w *cborWriter) textField(m *mapInWriting, key uint64, s string) {
	w.field(m, key)
	w.text(s)
}

// textFieldIf leaves an empty text out.
func (w *cborWriter) textFieldIf(m *mapInWriting, key uint64, s string) {
	if s != "" {
		w.textField(m, key, s)
	}
}

func (w *cborWriter) bytesField(m *mapInWriting, key uint64, b []byte) {
	w.field(m, key)
	w.head(cborBytes, uint64(len(b)))
	w.b = append(w.b, b...)
}

// The major types of CBOR that occur here.
const (
	cborUint  = 0
	cborNint  = 1
	cborBytes = 2
	cborText  = 3
	cborList  = 4
	cborMap   = 5

	cborFalse = 0xf4
	cborTrue  = 0xf5
)

// head reads the first bytes of an item: its major type and its number.
func (r *cborReader) head() (major byte, n uint64) {
	if r.bad || len(r.b) == 0 {
		return r.fail()
	}
	first := r.b[0]
	r.b = r.b[1:]
	short := first & 0x1f
	if short < 24 {
		return first >> 5, uint64(short)
	}
	size := 1 << (short - 24) // 24 to 27: 1, 2, 4 or 8 bytes
	if short > 27 || len(r.b) < size {
		return r.fail()
	}
	switch size {
	case 1:
		n = uint64(r.b[0])
	case 2:
		n = uint64(binary.BigEndian.Uint16(r.b))
	case 4:
		n = uint64(binary.BigEndian.Uint32(r.b))
	default:
		n = binary.BigEndian.Uint64(r.b)
	}
	r.b = r.b[size:]
	return first >> 5, n
}

func (r *cborReader) fail() (major byte, n uint64) {
	r.bad = true
	return 0, 0
}

// count reads the head of a map or list of a few items.
func (r *cborReader) count(major byte) int {
	const most = 64 // so that a length that lies makes no large slice
	m, n := r.head()
	if m != major || n > most {
		r.bad = true
		return 0
	}
	return int(n)
}

// key reads the key of a field, which comes after the last one.
func (r *cborReader) key(last uint64) uint64 {
	if len(r.b) > 0 && r.b[0] < 24 && uint64(r.b[0]) > last && !r.bad {
		n := uint64(r.b[0])
		r.b = r.b[1:]
		return n
	}
	m, n := r.head()
	if m != cborUint || n <= last {
		r.bad = true
		return 0
	}
	return n
}

func (r *cborReader) int() int64 {
	m, n := r.head()
	if m > cborNint || n > math.MaxInt64 {
		r.bad = true
		return 0
	}
	if m == cborNint {
		return -1 - int64(n)
	}
	return int64(n)
}

func (r *cborReader) int32() int32 {
	n := r.int()
	if n != int64(int32(n)) {
		r.bad = true
		return 0
	}
	return int32(n)
}

func (r *cborReader) bool() bool {
	if r.bad || len(r.b) == 0 || r.b[0] != cborFalse && r.b[0] != cborTrue {
		r.bad = true
		return false
	}
	v := r.b[0] == cborTrue
	r.b = r.b[1:]
	return v
}

// take returns the bytes of a string, within the input.
func (r *cborReader) take(major byte) []byte {
	m, n := r.head()
	if m != major || n > uint64(len(r.b)) {
		r.bad = true
		return nil
	}
	s := r.b[:n]
	r.b = r.b[n:]
	return s
}

// bytes fills dst, of which it must be all.
func (r *cborReader) bytes(dst []byte) {
	s := r.take(cborBytes)
	if len(s) != len(dst) {
		r.bad = true
		return
	}
	copy(dst, s)
}

// text returns text within the input.
func (r *cborReader) text() []byte {
	s := r.take(cborText)
	if !utf8.Valid(s) {
		r.bad = true
		return nil
	}
	return s
}

// word reads text that many records share: one of likely, most of the time.
func (r *cborReader) word(likely ...string) string {
	b := r.take(cborText)
	for _, s := range likely {
		if string(b) == s {
			return s
		}
	}
	if s, ok := r.words[string(b)]; ok {
		return s
	}
	if !utf8.Valid(b) {
		r.bad = true
		return ""
	}
	// There are as many words as there are nodes, and a few.
	const most = 4096
	if len(r.words) == most {
		clear(r.words)
	}
	s := unique.Make(string(b)).Value()
	r.words[s] = s
	return s
}

// wordList reads a list of words. Records that have the same one share it.
func (r *cborReader) wordList() []string {
	if n := len(r.listEncoded); n > 0 && !r.bad && bytes.HasPrefix(r.b, r.listEncoded) {
		r.b = r.b[n:]
		return r.list
	}
	before := r.b
	n := r.count(cborList)
	if n == 0 {
		return nil
	}
	list := make([]string, n)
	for i := range list {
		list[i] = r.word()
	}
	if !r.bad {
		r.list, r.listEncoded = list, append(r.listEncoded[:0], before[:len(before)-len(r.b)]...)
	}
	return list
}
