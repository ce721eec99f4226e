package segment

import (
	"encoding/binary"
	"testing"

	"github.com/zeebo/xxh3"
)

// The digest is over exactly the bytes that the format says, written out here
// by hand.
func TestRowsDigestIsOverTheBytesOfTheFormat(t *testing.T) {
	rows := []Row{
		{Offset: 1, Timestamp: -1},
		{Offset: 2, Timestamp: 1626847200000, Key: []byte{}, Value: []byte("v")},
		{Offset: 300, Timestamp: 0, Key: []byte("key"), Value: make([]byte, 1000), Headers: []Header{{Key: "a", Value: nil}, {Key: "", Value: []byte{}}, {Key: "b", Value: []byte("x")}}},
	}
	var want []byte
	n := func(v int64) { want = binary.LittleEndian.AppendUint64(want, uint64(v)) }
	n(1)
	n(-1)
	n(-1) // null key
	n(-1) // null value
	n(0)
	n(2)
	n(1626847200000)
	n(0) // empty key
	n(1)
	want = append(want, 'v')
	n(0)
	n(300)
	n(0)
	n(3)
	want = append(want, "key"...)
	n(1000)
	want = append(want, make([]byte, 1000)...)
	n(3)
	n(1)
	want = append(want, 'a')
	n(-1)
	n(0)
	n(0)
	n(1)
	want = append(want, 'b')
	n(1)
	want = append(want, 'x')

	var h RowsHasher
	for i := range rows {
		h.Write(&rows[i])
	}
	if got := h.Sum(); got != RowsDigest(xxh3.Hash128(want).Bytes()) {
		t.Errorf("digest %s", got)
	}
}

// Known answers: they may never change, as records of old segments hold them.
func TestRowsDigestVectors(t *testing.T) {
	sum := func(rows ...Row) string {
		var h RowsHasher
		for i := range rows {
			h.Write(&rows[i])
		}
		return h.Sum().String()
	}
	for _, test := range []struct {
		name, want string
		rows       []Row
	}{
		{"no rows", "99aa06d3014798d86001c324468d497f", nil},
		{"null value", "651ccdd65c50c6cff1e7410ef1456702", []Row{{Offset: 1, Timestamp: -1, Key: []byte("k")}}},
		{"empty value", "46acaf8aa116c1b830d9f5d0fc3e75f9", []Row{{Offset: 1, Timestamp: -1, Key: []byte("k"), Value: []byte{}}}},
		{"header", "3c324fc40ca6b3abcb8e7ebaf29424b1", []Row{{Offset: 1, Timestamp: -1, Headers: []Header{{Key: "h"}}}}},
	} {
		if got := sum(test.rows...); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

// Every part of a row counts, and what is between two parts does too.
func TestRowsDigestTellsRowsApart(t *testing.T) {
	rows := map[string][]Row{
		"base":           {{Offset: 1, Timestamp: 2, Key: []byte("k"), Value: []byte("v")}},
		"offset":         {{Offset: 2, Timestamp: 2, Key: []byte("k"), Value: []byte("v")}},
		"timestamp":      {{Offset: 1, Timestamp: 3, Key: []byte("k"), Value: []byte("v")}},
		"null key":       {{Offset: 1, Timestamp: 2, Value: []byte("v")}},
		"empty key":      {{Offset: 1, Timestamp: 2, Key: []byte{}, Value: []byte("v")}},
		"null value":     {{Offset: 1, Timestamp: 2, Key: []byte("k")}},
		"empty value":    {{Offset: 1, Timestamp: 2, Key: []byte("k"), Value: []byte{}}},
		"moved":          {{Offset: 1, Timestamp: 2, Key: []byte("kv"), Value: []byte{}}},
		"header":         {{Offset: 1, Timestamp: 2, Key: []byte("k"), Value: []byte("v"), Headers: []Header{{}}}},
		"empty header":   {{Offset: 1, Timestamp: 2, Key: []byte("k"), Value: []byte("v"), Headers: []Header{{Value: []byte{}}}}},
		"two headers":    {{Offset: 1, Timestamp: 2, Key: []byte("k"), Value: []byte("v"), Headers: []Header{{}, {}}}},
		"the row, twice": {{Offset: 1, Timestamp: 2, Key: []byte("k"), Value: []byte("v")}, {Offset: 1, Timestamp: 2, Key: []byte("k"), Value: []byte("v")}},
	}
	seen := make(map[RowsDigest]string)
	for name, rows := range rows {
		var h RowsHasher
		for i := range rows {
			h.Write(&rows[i])
		}
		if other, ok := seen[h.Sum()]; ok {
			t.Errorf("%s and %s have one digest", name, other)
		}
		seen[h.Sum()] = name
	}
	// The leader epoch is not of the row but of who led when it was read.
	var a, b RowsHasher
	a.Write(&Row{LeaderEpoch: 1})
	b.Write(&Row{LeaderEpoch: 2})
	if a.Sum() != b.Sum() {
		t.Error("the leader epoch counts")
	}
}
