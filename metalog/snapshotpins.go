package metalog

import (
	"errors"
	"time"
)

// ErrSnapshotPinned refuses to remove a snapshot that is being sent.
var ErrSnapshotPinned = errors.New("metalog: the snapshot is being sent")

const (
	// pinIdleMax is how long after a chunk the next one is waited for.
	pinIdleMax = int64(time.Minute / time.Millisecond)
	// pinMax ends the pin of a snapshot that is asked for without a pause.
	pinMax = int64(time.Hour / time.Millisecond)
)

// pins tell which snapshots are being sent. Several followers may fetch one snapshot; it
// has one pin. Times are in milliseconds since the Unix epoch.
type pins map[SnapshotID]pin

// pin is one use of a snapshot: it lasts as long as chunks are asked for.
type pin struct{ first, last int64 }

// use begins a use of a snapshot or renews it.
func (p pins) use(id SnapshotID, now int64) {
	u, ok := p[id]
	if !ok || !u.current(now) {
		u.first = now
	}
	u.last = now
	p[id] = u
}

// pinned reports whether the snapshot must stay.
func (p pins) pinned(id SnapshotID, now int64) bool {
	u, ok := p[id]
	return ok && u.current(now) && now-u.first < pinMax
}

// current reports whether the use may go on. A now that is earlier than the last chunk
// counts like a later one: cleaning takes the time before it begins, and a clock that was
// set back by days must not make a pin of days.
func (u pin) current(now int64) bool {
	return max(now-u.last, u.last-now) <= pinIdleMax
}

// Use is Get for whoever is about to send a chunk: the snapshot stays for another minute,
// but not longer than an hour in all; now is in milliseconds since the Unix epoch.
func (s *Snapshots) Use(id SnapshotID, now int64) (SnapshotRef, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, found := s.find(id)
	if !found {
		return SnapshotRef{}, false
	}
	s.pins.use(id, now)
	return s.refs[i], true
}

// Pinned returns the snapshots that are being sent, the oldest first.
func (s *Snapshots) Pinned(now int64) (ids []SnapshotID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.refs {
		if s.pins.pinned(r.SnapshotID, now) {
			ids = append(ids, r.SnapshotID)
		}
	}
	return ids
}
