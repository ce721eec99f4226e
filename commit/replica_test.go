package commit

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func newTestReplica(c ReplicaConfig) *Replica {
	c.Key, c.Segment, c.Instance, c.Incarnation, c.StoreID = testKey, testSegment, "s1", 1, testStore
	c.Timing = DefaultTiming
	r := NewReplica(c)
	r.Step(0, ImageChanged{Record{Mine: true}})
	return r
}

// TestTheEndDoesNotDependOnTheBatches: however the rows were fetched, a row or a
// size limit ends the segment behind the same row.
func TestTheEndDoesNotDependOnTheBatches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gaps := rapid.SliceOfN(rapid.Int64Range(1, 3), 1, 60).Draw(t, "gaps")
		sizes := rapid.SliceOfN(rapid.Int64Range(0, 20), len(gaps), len(gaps)).Draw(t, "sizes")
		cfg := ReplicaConfig{MaxRows: rapid.Int64Range(1, 40).Draw(t, "maxRows"), MaxBytes: rapid.Int64Range(1, 300).Draw(t, "maxBytes")}

		var offsets []int64
		next, wantEnd, rows, bytes := int64(0), int64(0), int64(0), int64(0)
		for i, gap := range gaps {
			next += gap
			offsets = append(offsets, next)
			if rows < cfg.MaxRows && bytes < cfg.MaxBytes {
				rows++
				bytes += sizes[i]
				wantEnd = next + 1
			}
		}
		full := rows == cfg.MaxRows || bytes >= cfg.MaxBytes

		r := newTestReplica(cfg)
		var appended []int64
		var reports []Message
		for i := 0; i < len(offsets); {
			batch := min(rapid.IntRange(1, 10).Draw(t, "batch"), len(offsets)-i)
			waits := offsets[min(i+batch, len(offsets))-1] + 1
			for end := i + batch; i < end; i++ {
				if r.Offer(0, offsets[i], sizes[i]) != AppendRow {
					waits = offsets[i]
					i = len(offsets)
					break
				}
				appended = append(appended, offsets[i])
			}
			for _, a := range r.Step(0, Fed{Next: waits, Fetched: next + 1}) {
				if send, ok := a.(Send); ok {
					reports = append(reports, send.Message)
				}
			}
		}
		if int64(len(appended)) != rows || !slices.Equal(appended, offsets[:rows]) {
			t.Fatalf("appended %v of %v, want the first %d", appended, offsets, rows)
		}
		switch {
		case !full && len(reports) != 0:
			t.Fatalf("reported %+v before any limit", reports)
		case full && (len(reports) != 1 || reports[0].Offset != wantEnd || reports[0].Rows != rows || reports[0].Bytes != bytes):
			t.Fatalf("reported %+v, want end %d with %d rows of %d bytes", reports, wantEnd, rows, bytes)
		}
	})
}

// TestANewIncarnationIsSpokenUnder: the node was registered anew in the middle of a
// segment, and what it says under the old incarnation is refused from then on.
func TestANewIncarnationIsSpokenUnder(t *testing.T) {
	r := newTestReplica(ReplicaConfig{MaxRows: 1})
	r.Step(0, ImageChanged{Record{Mine: true, Incarnation: 3}})
	r.Step(0, ImageChanged{Record{Mine: true}}) // says nothing of it
	if r.Offer(0, 0, 10) != AppendRow {
		t.Fatal("the row was not to be appended")
	}
	for _, a := range r.Step(0, Fed{Next: 1, Fetched: 1}) {
		if send, ok := a.(Send); ok && send.Message.Incarnation == 3 {
			return
		}
	}
	t.Error("no report under the new incarnation")
}

func TestOfferDoesNotAllocate(t *testing.T) {
	r := newTestReplica(ReplicaConfig{MaxRows: 1 << 40, MaxBytes: 1 << 50, MaxAge: time.Hour})
	offset := int64(0)
	if n := testing.AllocsPerRun(1000, func() {
		if r.Offer(0, offset, 100) != AppendRow {
			t.Fatalf("row %d was not to be appended", offset)
		}
		offset++
	}); n != 0 {
		t.Errorf("%g allocations a row", n)
	}
}

func BenchmarkOffer(b *testing.B) {
	r := newTestReplica(ReplicaConfig{MaxRows: 1 << 40, MaxBytes: 1 << 50, MaxAge: time.Hour})
	for i := range b.N {
		r.Offer(0, int64(i), 100)
	}
}

// TestALongErrorIsCutToWhatAMessageMayCarry, between two runes.
func TestALongErrorIsCutToWhatAMessageMayCarry(t *testing.T) {
	r := newTestReplica(ReplicaConfig{})
	for _, a := range r.Step(0, ReaderFailed{"x" + strings.Repeat("ä", maxErrorBytes)}) {
		send, ok := a.(Send)
		if !ok {
			continue
		}
		if err := send.Message.Validate(); err != nil || !utf8.ValidString(send.Message.Error) {
			t.Errorf("%d bytes, valid UTF-8: %t, %v", len(send.Message.Error), utf8.ValidString(send.Message.Error), err)
		}
		return
	}
	t.Error("nothing was sent")
}
