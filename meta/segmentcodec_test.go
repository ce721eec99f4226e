package meta_test

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
)

// Both encoders write the same, after whatever is there.
func TestBothEncodersOfSegmentsAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := metatest.Segment().Draw(t, "segment")
		before := []byte("before")
		want, err := meta.AppendRecordSlow(slices.Clone(before), s)
		if err != nil {
			t.Fatal(err)
		}
		if got := meta.AppendSegmentFast(before, s); !bytes.Equal(got, want) {
			t.Fatalf("%+v\nfast %x\nslow %x", s, got, want)
		}
	})
}

// Lengths and counts that take one more byte each, in the places that have one.
func TestBothEncodersOfSegmentsAgreeOnLongOnes(t *testing.T) {
	for _, n := range []int{0, 1, 22, 23, 24, 25, 255, 256, 257} {
		s := doneSegment([16]byte{1}, 3, 17, 1000)
		s.Name, s.StreamEpoch = strings.Repeat("n", n), strings.Repeat("e", n)
		s.Replicas, s.Locations = make([]string, n), make([]meta.Location, n)
		s.EndRequested, s.LastError = &meta.EndRequested{Reason: "x"}, &meta.LastError{Node: "n"}
		s.Generation, s.Attempt, s.LastLeaderEpoch = n, -n, int32(n)
		want, err := meta.AppendRecordSlow(nil, s)
		if err != nil {
			t.Fatal(err)
		}
		if got := meta.AppendSegmentFast(nil, s); !bytes.Equal(got, want) {
			t.Errorf("%d: %+v\nfast %x\nslow %x", n, s, got, want)
		}
	}
}

func TestTheUsualSegmentIsDecodedTheFastWay(t *testing.T) {
	s := doneSegment([16]byte{1}, 3, 17, 1000)
	consuming := &meta.Segment{
		Table: s.Table, Partition: 3, Seq: 18, Name: "flights__3__18__20261101T120000Z", Status: meta.SegmentInProgress,
		Start: s.End, ConfigVersion: 1, StreamEpoch: "0", LeaderEpoch: 3, Replicas: s.Replicas, Times: meta.Times{Created: 7},
	}
	for _, want := range []*meta.Segment{s, consuming} {
		data, err := meta.EncodeRecord(want)
		if err != nil {
			t.Fatal(err)
		}
		if got := meta.DecodeSegmentFast(data); !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

// Whatever the fast decoder takes, the general one takes too, and reads the same.
func TestBothDecodersOfSegmentsAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data, err := meta.EncodeRecord(metatest.Segment().Draw(t, "segment"))
		if err != nil {
			t.Fatal(err)
		}
		compareDecoders(t, data)
		// What a changed byte makes of it.
		at := rapid.IntRange(0, len(data)-1).Draw(t, "at")
		data[at] = rapid.Byte().Draw(t, "byte")
		compareDecoders(t, data)
	})
}

// Of the same segments each time, so that it does not hang on the draw: many have what
// the fast decoder leaves to the other one.
func TestTheFastDecoderTakesSegments(t *testing.T) {
	const of = 200
	fast := 0
	for seed := range of {
		data, err := meta.EncodeRecord(metatest.Segment().Example(seed))
		if err != nil {
			t.Fatal(err)
		}
		if compareDecoders(t, data) {
			fast++
		}
	}
	t.Logf("%d of %d", fast, of)
	if fast == 0 {
		t.Error("the fast decoder has taken none")
	}
}

func FuzzDecodeSegment(f *testing.F) {
	for seed := range 20 {
		if data, err := meta.EncodeRecord(metatest.Segment().Example(seed)); err == nil {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) { compareDecoders(t, data) })
}

// compareDecoders reports whether the fast decoder has taken the bytes.
func compareDecoders(t rapid.TB, data []byte) bool {
	t.Helper()
	got := meta.DecodeSegmentFast(data)
	if got == nil {
		return false
	}
	want, err := meta.DecodeRecordSlow(meta.KindSegment, data)
	if err != nil {
		t.Fatalf("only the fast decoder takes %x: %v", data, err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%x\nfast %+v\nslow %+v", data, got, want)
	}
	return true
}
