package controller

import (
	"cmp"
	"slices"
	"time"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/validation"
)

const (
	// checksMax bounds the looks into deep stores that are under way at once,
	// checksPerTable those of one table.
	checksMax      = 32
	checksPerTable = 8
	// urisMax bounds the places where one segment is looked for.
	urisMax = 4
	// A check that got no answer is tried again after a while that doubles.
	checkRetryMin = time.Second
	checkRetryMax = time.Minute
)

// checks are the deep-store copies that somebody says are there and that the
// leader has to see for itself before they count. One is waiting, or busy: the
// store is being asked, or what it said is being written.
type checks struct {
	of      map[meta.SegmentKey]map[string]*check // by URI
	waiting *checkQueue
	running int // looks under way
}

type checkKey struct {
	segment meta.SegmentKey
	uri     string
}

func (k checkKey) compare(o checkKey) int {
	return cmp.Or(k.segment.Compare(o.segment), cmp.Compare(k.uri, o.uri))
}

type check struct {
	busy bool
	wait time.Duration // before the last try that was put off
}

func newChecks() checks {
	return checks{of: map[meta.SegmentKey]map[string]*check{}, waiting: newCheckQueue()}
}

// get returns the check, nil if there is none, or none any more.
func (c *checks) get(k checkKey) *check { return c.of[k.segment][k.uri] }

func (c *checks) drop(k checkKey) {
	c.waiting.Remove(k)
	delete(c.of[k.segment], k.uri)
	if len(c.of[k.segment]) == 0 {
		delete(c.of, k.segment)
	}
}

// forget drops the checks of a segment. A look that is under way comes back to
// nothing.
func (c *checks) forget(k meta.SegmentKey) {
	for uri := range c.of[k] {
		c.drop(checkKey{k, uri})
	}
}

// retry puts off a check that came to nothing.
func (c *checks) retry(now time.Duration, k checkKey, ch *check) {
	ch.busy = false
	ch.wait = min(max(2*ch.wait, checkRetryMin), checkRetryMax)
	c.waiting.Set(k, now+ch.wait)
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
	m.manage(validation.Changed{Segment: s.SegmentKey()})
}

// check has the segment's copy at the URI looked at as soon as there is room.
// Said of one that waits for its next try, perhaps it is there now.
func (m *Machine) check(s *meta.Segment, uri string) {
	k := checkKey{s.SegmentKey(), uri}
	uris := m.checks.of[k.segment]
	switch ch := uris[uri]; {
	case ch == nil && len(uris) == urisMax:
		return // whoever says so says it again
	case ch == nil && uris == nil:
		m.checks.of[k.segment] = map[string]*check{uri: {}}
	case ch == nil:
		uris[uri] = &check{}
	case ch.busy:
		return
	}
	m.checks.waiting.Set(k, m.now.Mono)
}

// startChecks starts the looks that are due, while there is room.
func (m *Machine) startChecks() {
	for m.checks.running < checksMax {
		k, ok := m.checks.waiting.Due(m.now.Mono)
		if !ok {
			return
		}
		m.startCheck(k)
	}
}

// startCheck looks for a copy. One that is not in the table's deep store, or no
// longer, cannot become a source, and is not looked for.
func (m *Machine) startCheck(k checkKey) {
	s, store := m.image.Segment(k.segment), ""
	if cfg := m.image.CurrentConfig(k.segment.Table); cfg != nil && cfg.DeepStore != nil {
		store = cfg.DeepStore.URI
	}
	if _, err := deepstore.KeyOf(store, k.uri); s == nil || s.Status != meta.SegmentDone || store == "" || err != nil {
		m.checks.drop(k)
		return
	}
	m.checks.waiting.Remove(k)
	m.checks.get(k).busy = true
	m.checks.running++
	m.checks.waiting.ran(k.segment.Table, 1)
	m.do(CheckDeepStore{
		ID:      m.begin(effect{purpose: forLook, segment: k.segment, uri: k.uri, digest: s.Digest}),
		Segment: k.segment, Name: s.Name, Store: store, URI: k.uri, SizeBytes: s.SizeBytes, Digest: s.Digest,
	})
}

// checked takes the store's answer: a copy that is right becomes a verified
// location, one that is not there is withdrawn, so that it is uploaded again.
func (m *Machine) checked(e effect, ev Checked) {
	m.checks.running--
	m.checks.waiting.ran(e.segment.Table, -1)
	k := checkKey{e.segment, e.uri}
	ch, s := m.checks.get(k), m.image.Segment(e.segment)
	switch {
	case ch == nil: // forgotten meanwhile
	case s == nil || s.Digest != e.digest:
		m.checks.drop(k)
	case ev.Err != nil:
		m.checks.retry(m.now.Mono, k, ch)
	case ev.Found:
		m.write(effect{purpose: forCopy, segment: e.segment, uri: e.uri, found: true}, "verified deep-store copy of "+s.Name,
			meta.SetDeepStoreLocation(e.segment, e.digest, e.uri, true))
	default:
		if isVerifiedAt(s, e.uri) {
			m.validation.lost++
			m.surveySoon()
		}
		m.confirmed.withdrawDeep(e.segment, e.uri)
		m.write(effect{purpose: forCopy, segment: e.segment, uri: e.uri}, "missing deep-store copy of "+s.Name,
			meta.WithdrawDeepStoreLocation(e.segment, e.uri))
	}
}

// copyWrote ends a check, unless nobody knows what became of it. A copy that is not
// there and was the last place of its segment is looked for again.
func (m *Machine) copyWrote(e effect, ev Wrote) {
	k := checkKey{e.segment, e.uri}
	ch := m.checks.get(k)
	switch {
	case ch == nil: // forgotten meanwhile
	case ev.Outcome == commit.WriteFailed, !e.found && m.isListed(k):
		m.checks.retry(m.now.Mono, k, ch)
	default:
		m.checks.drop(k)
		if e.found && ev.Outcome == commit.Written {
			m.confirmed.confirmDeep(k.segment, k.uri)
		}
	}
}

// isListed reports whether the record has the location, verified or not.
func (m *Machine) isListed(k checkKey) bool {
	s := m.image.Segment(k.segment)
	return s != nil && slices.ContainsFunc(s.Locations, func(l meta.Location) bool { return l.URI == k.uri })
}
