package produce

import (
	"strings"

	"github.com/valyala/fastjson"
	"github.com/zeebo/xxh3"
)

// spread chooses the partition of a row. It is a function of the row's number
// and bytes alone: a replay must find the same one again.
type spread struct {
	partitions int
	key        string
	path       []string // key, taken apart at its dots
	parser     fastjson.Parser
	scratch    []byte
}

func newSpread(partitions int, key string) *spread {
	s := &spread{partitions: partitions, key: key}
	if strings.Contains(key, ".") {
		s.path = strings.Split(key, ".")
	}
	return s
}

// byNumber reports whether the row's bytes do not matter.
func (s *spread) byNumber() bool { return s.key == "" }

// number spreads by round robin: all rows without a key, and with one those
// that do not have the field, or are no JSON object, or too large to look into.
func (s *spread) number(n int64) int { return int(n % int64(s.partitions)) }

// of chooses the partition of row n.
func (s *spread) of(n int64, row []byte) int {
	if s.byNumber() {
		return s.number(n)
	}
	if len(row) > partBytes {
		defer func() { s.parser = fastjson.Parser{} }() // it keeps a copy
	}
	v, err := s.parser.ParseBytes(row)
	if err != nil {
		return s.number(n)
	}
	field := v.Get(s.key)
	if field == nil && s.path != nil {
		field = v.Get(s.path...)
	}
	if field == nil || field.Type() == fastjson.TypeNull {
		return s.number(n)
	}
	// A string counts by what it says, however it is escaped; the type is
	// hashed along, so that "1" and 1 are two values.
	s.scratch = append(s.scratch[:0], byte(field.Type()))
	if text, err := field.StringBytes(); err == nil {
		s.scratch = append(s.scratch, text...)
	} else {
		s.scratch = field.MarshalTo(s.scratch)
	}
	return int(xxh3.Hash(s.scratch) % uint64(s.partitions))
}
