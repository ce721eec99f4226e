package node

import (
	"errors"
	"fmt"
	"testing"

	"github.com/shoalstore/shoal/meta"
)

func TestRingsOfEventsAreBoundedAndKeepTheNewest(t *testing.T) {
	e := newEvents("n1")
	k := func(seq int) meta.SegmentKey { return meta.SegmentKey{Seq: int64(seq)} }
	for i := range eventsPerSegment + 5 {
		e.add(k(0), "tried", fmt.Sprint(i), nil)
	}
	got := e.of(k(0))
	if len(got) != eventsPerSegment || got[0].Detail != "5" || got[len(got)-1].Detail != fmt.Sprint(eventsPerSegment+4) {
		t.Fatalf("%d events, from %s to %s", len(got), got[0].Detail, got[len(got)-1].Detail)
	}
	got[0].Detail = "mine now"
	if again := e.of(k(0)); again[0].Detail != "5" {
		t.Fatal("what was handed out is the ring itself")
	}
	for seq := 1; seq < segmentsWithRing+10; seq++ {
		e.add(k(seq), "verify", "", errors.New("damaged"))
	}
	if len(e.rings) != segmentsWithRing || len(e.order) != segmentsWithRing {
		t.Fatalf("%d rings, %d in order", len(e.rings), len(e.order))
	}
	if old := e.of(k(0)); old == nil || len(old) != 0 {
		t.Fatalf("the oldest ring is kept: %v", old)
	}
	if last := e.of(k(segmentsWithRing + 9)); len(last) != 1 || last[0].Error != "damaged" || last[0].Node != "n1" {
		t.Fatalf("%+v", last)
	}
}
