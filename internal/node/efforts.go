package node

import (
	"time"

	"github.com/shoalstore/shoal/meta"
)

// effort is a kind of thing that is tried for a segment until it is so.
type effort int

const (
	fetch effort = iota
	rebuild
	upload
	removal
	efforts // how many there are
)

// tryMin is how long the first try that fails puts off the second; from then on
// it doubles.
const tryMin = time.Second

// paces say how each effort is repeated.
var paces = [efforts]struct {
	max   time.Duration // between tries that fail
	again time.Duration // after one that succeeded, if it is called for still
}{
	fetch: {max: time.Minute, again: tryMin},
	// A rebuild reads the whole segment again, and what it came to once it comes
	// to again, as a rule.
	rebuild: {max: 30 * time.Minute, again: tryMin},
	// The leader has to look at the object before the image shows it. Which of those
	// that are due comes first, and how many at once: uploads.go.
	upload:  {max: time.Minute, again: time.Minute},
	removal: {max: time.Minute},
}

// removalsMax bounds the files on their way out.
const removalsMax = 4

// limit is how many of an effort are under way at most.
func (m *Machine) limit(e effort) int {
	return [efforts]int{
		fetch: m.cfg.FetchesMax, rebuild: m.cfg.RebuildsMax, upload: m.cfg.UploadsMax, removal: removalsMax,
	}[e]
}

// work is what is under way or waits for one segment. The zero work is nothing,
// and not kept.
type work struct {
	tries [efforts]try
	// sourceless is since when nobody has had the bytes to give, 0: not so.
	sourceless time.Duration
	asked      bool // the leader, or an operator, asked for the upload
}

// try is an effort for one segment, repeated with back-off.
type try struct {
	wanted  bool
	running bool
	due     time.Duration
	wait    time.Duration // before the last try that failed was to be repeated
}

// soon lets the next try be made at once: something changed.
func (t *try) soon() {
	if !t.running {
		t.due, t.wait = 0, 0
	}
}

// failed puts the next try off.
func (t *try) failed(now, most time.Duration) {
	t.wait = min(max(2*t.wait, tryMin), most)
	t.due = now + t.wait
}

func (m *Machine) work(k meta.SegmentKey) *work {
	w := m.works[k]
	if w == nil {
		w = &work{}
		m.works[k] = w
	}
	return w
}

// review brings what is tried and what is to be told in line with what the
// segment calls for.
func (m *Machine) review(k meta.SegmentKey) {
	n, w := m.judge(k), m.works[k]
	if w == nil {
		w = &work{}
	}
	m.reports.want(k, n)
	m.dropStaleUpload(k)
	w.asked = w.asked && n.upload
	if !n.fetch {
		w.sourceless = 0
	}
	if w.sourceless > 0 {
		r := &w.tries[rebuild]
		r.due = max(r.due, w.sourceless+m.patience(k))
	}
	// A fetch and a rebuild of one segment exclude each other.
	fetching, rebuilding := w.tries[fetch].running, w.tries[rebuild].running
	m.enqueue(k, w, fetch, n.fetch, rebuilding)
	m.enqueue(k, w, rebuild, n.fetch && w.sourceless > 0, fetching)
	m.enqueue(k, w, upload, n.upload, false)
	m.enqueue(k, w, removal, n.remove != nil, false)
	if *w == (work{}) {
		delete(m.works, k)
	} else {
		m.works[k] = w
	}
}

// enqueue queues an effort that is wanted, or takes it out of the queue: for a
// while, when it is blocked, or with all that is remembered of it.
func (m *Machine) enqueue(k meta.SegmentKey, w *work, e effort, wanted, blocked bool) {
	t := &w.tries[e]
	t.wanted = wanted
	switch {
	case wanted && !t.running && !blocked:
		m.queue(k, w, e, t.due)
		return
	case !wanted && !t.running:
		*t = try{}
	}
	if e == upload {
		m.uploads.remove(k)
	} else {
		m.queues[e].Remove(k)
	}
}

func (m *Machine) queue(k meta.SegmentKey, w *work, e effort, due time.Duration) {
	if e != upload {
		m.queues[e].Set(k, due)
		return
	}
	s := m.image.Segment(k)
	m.uploads.set(m.now, k, due, uploadEntry{risk: meta.RiskOf(m.image, s), asked: w.asked, bytes: s.SizeBytes})
}

// start starts what is due, while there is room.
func (m *Machine) start() {
	if m.incarnation == 0 {
		return // nobody to report to, and the image may be of another time
	}
	for e := range efforts {
		for m.running[e] < m.limit(e) {
			k, ok := m.due(e)
			if !ok {
				break
			}
			m.begin(k, e)
		}
	}
}

// due is what is to be started next.
func (m *Machine) due(e effort) (meta.SegmentKey, bool) {
	if e == upload {
		return m.uploads.next(m.now)
	}
	return m.queues[e].Due(m.now)
}

// begin starts an effort, if it is still called for.
func (m *Machine) begin(k meta.SegmentKey, e effort) {
	if a := m.action(k, e); a != nil {
		m.work(k).tries[e].running = true
		m.running[e]++
		if e == upload {
			m.uploads.began(k)
		}
		m.do(a)
	}
	m.review(k) // takes it out of the queue, either way
}

// action is what an effort comes to now, nil if it is not called for any more.
func (m *Machine) action(k meta.SegmentKey, e effort) Action {
	n, s := m.judge(k), m.image.Segment(k)
	switch {
	case e == fetch && n.fetch:
		return Fetch{Segment: k, Digest: n.digest}
	case e == rebuild && n.fetch:
		return Rebuild{Segment: k, End: s.End}
	case e == upload && n.upload:
		return Upload{Segment: k, Digest: n.digest}
	case e == removal && n.remove != nil:
		return n.remove
	}
	return nil
}

// done takes the result of an effort. One that nobody waits for is no news.
func (m *Machine) done(k meta.SegmentKey, e effort, err error) {
	w := m.works[k]
	if w == nil || !w.tries[e].running {
		return
	}
	m.running[e]--
	t := &w.tries[e]
	t.running = false
	if err != nil {
		t.failed(m.now, paces[e].max)
		if e == upload {
			t.due = m.now + m.uploads.jitter(m.now, k, t.wait)
		}
	} else {
		t.wait, t.due = 0, m.now+paces[e].again
	}
	m.review(k)
}

// fetchDone: from when on nobody has had the bytes is what a rebuild waits by.
func (m *Machine) fetchDone(ev FetchDone) {
	if w := m.works[ev.Segment]; w != nil {
		switch {
		case !ev.NoSource:
			w.sourceless = 0
		case w.sourceless == 0:
			w.sourceless = max(m.now, 1)
		}
	}
	m.done(ev.Segment, fetch, ev.Err)
}

// uploadDone: what was uploaded is reported; the leader looks for itself.
func (m *Machine) uploadDone(ev UploadDone) {
	if w := m.works[ev.Segment]; w != nil {
		w.asked = false
		if w.tries[upload].running {
			m.uploads.ended(m.now, ev)
		}
	}
	m.done(ev.Segment, upload, ev.Err)
	if ev.Err == nil {
		m.reports.uploads[ev.Segment] = meta.UploadRef{CopyRef: copyRef(ev.Segment, ev.Digest), URI: ev.URI}
		m.dropStaleUpload(ev.Segment)
	}
}
