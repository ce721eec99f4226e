package meta

import (
	"math"
	"sync"
	"unicode/utf8"
	"unique"
)

// cborReader takes the usual encoding apart, fast: that of cborEnc without its rarer
// shapes. It judges nothing. Once something else comes, bad is true, everything reads as
// zero, and the general decoder has to be asked what the bytes are. What it does read, that
// one reads in the same way: FuzzDecodeSegment compares the two.
type cborReader struct {
	b     []byte
	words words
	bad   bool
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
	for _, c := range r.b[:size] {
		n = n<<8 | uint64(c)
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

// word reads text that many records share.
func (r *cborReader) word() string { return r.words.of(r.text()) }

func (r *cborReader) wordList() []string {
	n := r.count(cborList)
	if n == 0 {
		return nil
	}
	list := make([]string, n)
	for i := range list {
		list[i] = r.word()
	}
	return list
}

// words are strings that have been interned lately, found by their bytes without making a
// string first.
type words map[string]string

// wordsMax bounds them. There are as many as there are nodes, and a few.
const wordsMax = 4096

func (w words) of(b []byte) string {
	if s, ok := w[string(b)]; ok {
		return s
	}
	if len(w) == wordsMax {
		clear(w)
	}
	s := unique.Make(string(b)).Value()
	w[s] = s
	return s
}

// wordPool has the words of whoever decodes at the moment.
var wordPool = sync.Pool{New: func() any { return words{} }}
