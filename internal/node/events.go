package node

import (
	"sync"
	"time"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/meta"
)

// The rings of events: what this node did to a segment, kept where it was done
// and bounded, not in the record (DESIGN §4.1).
const (
	eventsPerSegment = 32
	segmentsWithRing = 4096
)

// events are the rings of the segments that something was done to last.
type events struct {
	node string

	mu    sync.Mutex
	rings map[meta.SegmentKey][]api.SegmentEvent
	order []meta.SegmentKey // by first event; the oldest ring goes first
}

func newEvents(node string) *events {
	return &events{node: node, rings: map[meta.SegmentKey][]api.SegmentEvent{}}
}

// add keeps that something was done to a segment.
func (e *events) add(k meta.SegmentKey, what, detail string, err error) {
	ev := api.SegmentEvent{At: time.Now().UTC(), Node: e.node, What: what, Detail: detail}
	if err != nil {
		ev.Error = err.Error()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	ring, known := e.rings[k]
	if !known {
		if len(e.order) == segmentsWithRing {
			delete(e.rings, e.order[0])
			e.order = e.order[1:]
		}
		e.order = append(e.order, k)
	}
	if len(ring) == eventsPerSegment {
		ring = append(ring[:0:0], ring[1:]...)
	}
	e.rings[k] = append(ring, ev)
}

// of returns what was done to a segment, oldest first.
func (e *events) of(k meta.SegmentKey) []api.SegmentEvent {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]api.SegmentEvent{}, e.rings[k]...)
}
