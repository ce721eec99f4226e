package controller

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/meta"
)

const (
	// checksMax bounds the looks into deep stores that are under way at once.
	checksMax = 8
	// A check that got no answer is tried again after a while that doubles.
	checkRetryMin = time.Second
	checkRetryMax = time.Minute
)

// checks are the deep-store copies that somebody says are there and that the
// leader has to see for itself before they count.
type checks struct {
	waiting map[checkKey]*check
	running int
}

type checkKey struct {
	segment meta.SegmentKey
	uri     string
}

func (k checkKey) compare(o checkKey) int {
	return cmp.Or(k.segment.Compare(o.segment), cmp.Compare(k.uri, o.uri))
}

type check struct {
	due     time.Duration
	wait    time.Duration // before the next try
	running bool          // the store is being asked, or the result is being written
}

func newChecks() checks { return checks{waiting: map[checkKey]*check{}} }

// forget drops what waits for a segment. A look that is under way comes back to
// nothing.
func (c *checks) forget(k meta.SegmentKey) {
	for key, ch := range c.waiting {
		if key.segment == k && !ch.running {
			delete(c.waiting, key)
		}
	}
}

// retry puts a check off that got no answer.
func (c *checks) retry(now time.Duration, k checkKey) {
	ch := c.waiting[k]
	ch.running = false
	ch.wait = min(max(2*ch.wait, checkRetryMin), checkRetryMax)
	ch.due = now + ch.wait
}

// reviewSegment takes up the unverified deep-store locations of a DONE segment.
func (m *Machine) reviewSegment(s *meta.Segment) {
	if s.Status == meta.SegmentLost {
		m.completed(m.completion.Step(m.now.Mono, commit.SegmentGone{Key: commitKey(s.SegmentKey())}))
		m.forgetSegment(s.SegmentKey())
		return
	}
	for _, l := range s.Locations {
		if l.URI != "" && !l.Verified {
			m.check(s, l.URI)
		}
	}
}

// check looks for the segment's copy at the URI, now or as soon as there is room.
func (m *Machine) check(s *meta.Segment, uri string) {
	k := checkKey{s.SegmentKey(), uri}
	if ch := m.checks.waiting[k]; ch == nil {
		m.checks.waiting[k] = &check{due: m.now.Mono}
	} else if !ch.running {
		ch.due = m.now.Mono // said again: perhaps it is there now
	}
	m.startChecks()
}

// startChecks starts the looks that are due, while there is room.
func (m *Machine) startChecks() {
	if m.checks.running >= checksMax || len(m.checks.waiting) == m.checks.running {
		return
	}
	for _, k := range slices.SortedFunc(maps.Keys(m.checks.waiting), checkKey.compare) {
		ch := m.checks.waiting[k]
		if ch.running || ch.due > m.now.Mono {
			continue
		}
		s := m.image.Segment(k.segment)
		if s == nil || s.Status != meta.SegmentDone {
			delete(m.checks.waiting, k)
			continue
		}
		if m.checks.running >= checksMax {
			return
		}
		ch.running = true
		m.checks.running++
		a := CheckDeepStore{Segment: k.segment, Name: s.Name, URI: k.uri, SizeBytes: s.SizeBytes, Digest: s.Digest}
		if cfg := m.image.CurrentConfig(s.Table); cfg != nil && cfg.DeepStore != nil {
			a.Store = cfg.DeepStore.URI
		}
		m.do(a)
	}
}

// checked takes the store's answer: a copy that is right becomes a verified
// location, one that is not there is withdrawn, so that it is uploaded again.
func (m *Machine) checked(ev Checked) {
	k := checkKey{ev.Segment, ev.URI}
	if ch := m.checks.waiting[k]; ch == nil || !ch.running {
		return // of an earlier leadership
	}
	m.checks.running--
	s := m.image.Segment(ev.Segment)
	switch {
	case s == nil:
		delete(m.checks.waiting, k)
	case ev.Err != nil:
		m.checks.retry(m.now.Mono, k)
	case ev.Found:
		m.write(writing{purpose: forCheck, segment: ev.Segment, uri: ev.URI}, "verified deep-store copy of "+s.Name,
			meta.SetDeepStoreLocation(ev.Segment, s.Digest, ev.URI, true))
	default:
		m.write(writing{purpose: forCheck, segment: ev.Segment, uri: ev.URI}, "missing deep-store copy of "+s.Name,
			meta.WithdrawDeepStoreLocation(ev.Segment, ev.URI))
	}
	m.startChecks()
}

func (m *Machine) checkWrote(w writing, ev Wrote) {
	k := checkKey{w.segment, w.uri}
	if ev.Outcome == commit.WriteFailed {
		m.checks.retry(m.now.Mono, k)
		return
	}
	delete(m.checks.waiting, k)
	if s := m.image.Segment(w.segment); s != nil && s.DeepStoreVerified() {
		m.confirmed.confirmDeep(w.segment, w.uri)
	}
}
