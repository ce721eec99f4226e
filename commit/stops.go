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
	stopped   map[string]bool
	attempt   int           // the record's when the stops were said
	lastError time.Duration // when the record last took one
	noted     bool          // lastError means something
	raiseAt   time.Duration // never unless all replicas have stopped
	wait      time.Duration // before the next raise; 0 = the first
}

func newStops() *stops { return &stops{stopped: map[string]bool{}, raiseAt: never} }

func (s *stops) has(instance string) bool { return s.stopped[instance] }

// count is how many of the replicas have stopped.
func (s *stops) count(replicas []string) (n int) {
	for _, r := range replicas {
		if s.stopped[r] {
			n++
		}
	}
	return n
}

// add notes a stop and returns the note for the record, at most one a minute.
func (s *stops) add(now time.Duration, key Key, ev Received) []Action {
	s.stopped[ev.Message.Instance] = true
	s.attempt = ev.Facts.Attempt
	if s.raiseAt == never && s.count(ev.Facts.Replicas) == len(ev.Facts.Replicas) {
		if s.wait == 0 {
			s.wait = ev.Facts.Timing.patience()
		}
		s.raiseAt = now + s.wait
	}
	if s.noted && now < s.lastError+errorEvery {
		return nil
	}
	s.lastError, s.noted = now, true
	return []Action{RecordError{key, ev.Message.Instance, ev.Message.Error}}
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
