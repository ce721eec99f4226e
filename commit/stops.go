package commit

import (
	"maps"
	"slices"
	"time"
)

// stops is what the leader remembers of a segment's stopped replicas from round
// to round: who has stopped, when it last noted an error, and when to raise the
// attempt because nobody is left.
type stops struct {
	stopped   map[string]string // instance → its error
	attempt   int               // the record's when the stops were said
	lastError time.Duration     // when the record last took one
	noted     bool              // lastError means something
	raiseAt   time.Duration     // never unless all replicas have stopped
	wait      time.Duration     // before the next raise; 0 = the first
}

func newStops() *stops { return &stops{stopped: map[string]string{}, raiseAt: never} }

func (s *stops) has(instance string) bool {
	_, ok := s.stopped[instance]
	return ok
}

// count is how many of the replicas have stopped.
func (s *stops) count(replicas []string) (n int) {
	for _, r := range replicas {
		if s.has(r) {
			n++
		}
	}
	return n
}

// add notes a stop and returns the note for the record: at most one a minute,
// and none for a repeat, of which there are many while a replica is in ERROR. The
// stop that leaves nobody is always noted, once in each attempt: with it the
// partition becomes ERROR. Usually all replicas stop within a moment, at the same
// row, and if the minute counted then no record would ever say so.
func (s *stops) add(now time.Duration, key Key, ev Received) []Action {
	m := &ev.Message
	repeat := s.has(m.Instance) && s.stopped[m.Instance] == m.Error
	s.stopped[m.Instance] = m.Error
	s.attempt = ev.Facts.Attempt
	last := s.raiseAt == never && s.count(ev.Facts.Replicas) == len(ev.Facts.Replicas)
	if last {
		if s.wait == 0 {
			s.wait = ev.Facts.Timing.patience()
		}
		s.raiseAt = now + s.wait
	}
	if !last && (repeat || s.noted && now < s.lastError+errorEvery) {
		return nil
	}
	s.lastError, s.noted = now, true
	return []Action{RecordError{key, m.Instance, m.Error}}
}

// remove notes that an instance is consuming again: somebody is alive, and the
// waits start over.
func (s *stops) remove(instance string) {
	delete(s.stopped, instance)
	s.raiseAt, s.wait = never, 0
}

// due returns the raise whose time has come, and sets the time of the next one
// in case it fails: doubling, up to ten minutes.
func (s *stops) due(now time.Duration, key Key) []Action {
	if now < s.raiseAt {
		return nil
	}
	s.wait = min(2*s.wait, raiseMax)
	s.raiseAt = now + s.wait
	return []Action{RaiseAttempt{key, s.attempt}}
}

// raised takes the outcome of a raise: after a write or a refusal the replicas
// start afresh, and whoever fails again will say so.
func (s *stops) raised(o Outcome) {
	if o == WriteFailed {
		return
	}
	clear(s.stopped)
	s.raiseAt = never
}

// names lists the stopped instances, sorted.
func (s *stops) names() []string { return slices.Sorted(maps.Keys(s.stopped)) }
