package controller

import (
	"time"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/validation"
)

// ValidationTiming says how often the leader looks at everything, and what follows.
// All of it is the leader's monotonic time.
type ValidationTiming struct {
	// First is how long after it began to lead it looks first: every node had the
	// time by then in which it may be silent.
	First time.Duration
	// Every is the time between two looks at the whole image; Soon is the least, when
	// something happened that calls for one.
	Every, Soon time.Duration
	Manager     validation.Timing
	Limits      validation.Limits
	Audit       AuditTiming
}

// DefaultValidation is the timing of a real leader.
var DefaultValidation = ValidationTiming{
	First: heartbeatTimeout, Every: time.Minute, Soon: 5 * time.Second,
	Manager: validation.DefaultTiming, Limits: validation.DefaultLimits, Audit: DefaultAudit,
}

const (
	// findingsMax bounds each list of what is found.
	findingsMax = 4096
	// surveysMax bounds the looks at everything that are under way at once.
	surveysMax = 4
)

// validator is what the leader knows of package validation's work: the findings of
// the last survey, and the manager of what follows from them.
type validator struct {
	timing   ValidationTiming
	manager  *validation.Manager
	next     time.Duration // when the next survey begins
	began    time.Duration // when the last one did
	running  int           // surveys under way
	regular  bool          // one of them is not somebody's who asked for a run
	findings *validation.Findings
	at       Now           // of the image of the findings
	took     time.Duration // the survey
	lost     int64         // verified copies that proved to be gone
}

func newValidator(t ValidationTiming) validator {
	return validator{timing: t, manager: validation.NewManager(t.Manager, t.Limits)}
}

// SetValidation gives the machine another timing than DefaultValidation, for tests
// and simulations. It is for a machine that does not lead.
func (m *Machine) SetValidation(t ValidationTiming) {
	m.validation = newValidator(t)
	m.audits = newAudits(t.Audit)
}

// beginValidation begins to look after a leadership has begun.
func (m *Machine) beginValidation() {
	m.validation.next = m.now.Mono + m.validation.timing.First
	m.audits.next = m.validation.next
}

// validate begins a survey that is due, and lets the manager see its deadlines.
func (m *Machine) validate() {
	v := &m.validation
	if m.now.Mono >= v.next && !v.regular && v.running < surveysMax {
		v.regular = true
		v.next = m.now.Mono + v.timing.Every
		m.survey(effect{purpose: forSurvey})
	}
	m.manage(validation.Tick{})
}

// surveySoon has everything looked at before its time.
func (m *Machine) surveySoon() {
	v := &m.validation
	v.next = min(v.next, max(m.now.Mono, v.began+v.timing.Soon))
}

func (m *Machine) survey(e effect) {
	v := &m.validation
	v.running++
	v.began = m.now.Mono
	e.began = m.now
	m.do(Survey{
		ID: m.begin(e), Image: m.image,
		Request: validation.Request{Most: findingsMax, Silent: m.live.silent(m.now.Mono)},
	})
}

// surveyed takes the findings to the manager, and to whoever asked for them. Those of
// a dry run change nothing.
func (m *Machine) surveyed(e effect, ev Surveyed) {
	v := &m.validation
	v.running--
	asked := e.ticket != 0
	if !asked {
		v.regular = false
	}
	if e.dryRun {
		asks := v.manager.Preview(m.now.Mono, m.image, ev.Findings)
		m.do(ValidationSeen{Ticket: e.ticket, View: m.validationView(ev.Findings, e.began, m.now.Mono-e.began.Mono, asks, e.limit)})
		return
	}
	if v.findings == nil || ev.Findings.Image >= v.findings.Image {
		v.findings, v.at, v.took = ev.Findings, e.began, m.now.Mono-e.began.Mono
	}
	asks := m.manage(validation.Surveyed{Findings: ev.Findings, AtOnce: asked})
	if asked {
		m.do(ValidationSeen{Ticket: e.ticket, View: m.validationView(ev.Findings, e.began, m.now.Mono-e.began.Mono, asks, e.limit)})
	}
}

// runValidation has everything looked at for somebody who asked for it.
func (m *Machine) runValidation(ev RunValidation) {
	switch {
	case !m.leading:
		m.do(ValidationSeen{Ticket: ev.Ticket, Refuse: RefuseNotLeader})
	case m.validation.running >= surveysMax:
		m.do(ValidationSeen{Ticket: ev.Ticket, Refuse: RefuseBusy})
	default:
		m.survey(effect{purpose: forSurvey, ticket: ev.Ticket, dryRun: ev.DryRun, limit: ev.Limit})
	}
}

func (m *Machine) lookAtValidation(ev LookAtValidation) {
	if !m.leading {
		m.do(ValidationSeen{Ticket: ev.Ticket, Refuse: RefuseNotLeader})
		return
	}
	v := &m.validation
	m.do(ValidationSeen{Ticket: ev.Ticket, View: m.validationView(v.findings, v.at, v.took, nil, ev.Limit)})
}

// manage hands the manager an event and has asked whom it wants asked.
func (m *Machine) manage(ev validation.Event) []validation.Ask {
	asks := m.validation.manager.Step(m.now.Mono, m.image, ev)
	for _, a := range asks {
		m.ask(a)
	}
	return asks
}

// ask has a node asked for the upload of a segment. What goes between the manager's
// decision and this is all in one step: both records are there.
func (m *Machine) ask(a validation.Ask) {
	s, n := m.image.Segment(a.Segment), m.image.Node(a.Node)
	e := effect{purpose: forUpload, segment: a.Segment, node: a.Node}
	if s == nil || n == nil {
		m.uploadAnswered(e, UploadAnswered{Err: errNodeGone})
		return
	}
	m.do(AskUpload{
		ID: m.begin(e), Node: n.ID, URL: n.URL, Table: m.tableName(s.Table), Segment: s.Name, Poll: a.Poll,
	})
}

func (m *Machine) tableName(id tableID) string {
	if t := m.image.Table(id); t != nil {
		return t.Name
	}
	return id.String()
}

func (m *Machine) uploadAnswered(e effect, ev UploadAnswered) {
	m.manage(validation.Answered{Segment: e.segment, Node: e.node, Answer: ev.Answer, Err: ev.Err})
}

// validationView shows findings with what has been done about them since. asks are
// what the run has just asked for, or in a dry run would.
func (m *Machine) validationView(f *validation.Findings, at Now, took time.Duration, asks []validation.Ask, limit int) api.ValidationView {
	mgr := m.validation.manager
	pool, counts := mgr.Pool(), mgr.Counts()
	v := api.ValidationView{
		Pool: api.ValidationPool{
			Running: pool.Running, Most: m.validation.timing.Limits.Pool, Waiting: pool.Waiting, FailingTables: []string{},
			Asked: counts.Asked, Failed: counts.Failed, Done: counts.Done,
		},
		DeepStore: m.auditView(),
		Tables:    []api.ValidationTable{}, SingleCopy: []api.ValidationSegment{}, Awaiting: []api.ValidationSegment{},
		NotConsuming: []api.ValidationPartition{}, Stopped: []api.ValidationPartition{}, Asks: []api.ValidationAsk{},
	}
	for _, id := range pool.Failing {
		v.Pool.FailingTables = append(v.Pool.FailingTables, m.tableName(id))
	}
	for _, a := range asks {
		if s := m.image.Segment(a.Segment); s != nil && !a.Poll && len(v.Asks) < limit {
			v.Asks = append(v.Asks, api.ValidationAsk{Table: m.tableName(s.Table), Segment: s.Name, Node: a.Node})
		}
	}
	if f == nil {
		return v // it leads since a moment ago
	}
	v.RanAt, v.Took, v.Image = millis(at.Wall), took.Seconds(), f.Image
	for _, t := range f.Tables {
		v.Tables = append(v.Tables, api.ValidationTable{Table: t.Name, SingleCopy: total(t.SingleCopy), Awaiting: total(t.Awaiting)})
	}
	v.SingleCopy = m.validationSegments(f.SingleCopy, limit)
	v.Awaiting = m.validationSegments(f.Awaiting, limit)
	v.NotConsuming = m.validationPartitions(f.Idle, limit)
	v.Stopped = m.validationPartitions(f.Stopped, limit)
	v.NotConsumingTotal, v.StoppedTotal = f.IdleTotal, f.StoppedTotal
	return v
}

func total(t validation.Total) api.ValidationTotal {
	return api.ValidationTotal{Segments: t.Segments, Bytes: t.Bytes, Oldest: millis(t.Oldest)}
}

func (m *Machine) validationSegments(segments []*meta.Segment, limit int) []api.ValidationSegment {
	out := []api.ValidationSegment{}
	for _, s := range segments[:min(len(segments), limit)] {
		v := api.ValidationSegment{
			Table: m.tableName(s.Table), Segment: s.Name, Partition: s.Partition, SizeBytes: s.SizeBytes,
			Committed: millis(s.Times.Committed), CountedCopies: len(meta.CountedCopies(m.image, s).Nodes), Replication: meta.Replication(m.image, s),
			SingleCopy: meta.IsSingleCopy(m.image, s),
		}
		for _, n := range validation.Holders(m.image, s) {
			v.Holders = append(v.Holders, n.ID)
		}
		if st, ok := m.validation.manager.Status(s.SegmentKey()); ok {
			v.AskedOf, v.AskedAt = st.Node, m.wallOf(st.AskedAt)
			v.Failures, v.LastNode, v.LastError, v.LastErrorAt = st.Failed, st.LastNode, st.LastError, m.wallOf(st.LastAt)
			if st.Node == "" {
				v.AskedAt, v.NextAt = time.Time{}, m.wallOf(st.Due)
			}
		}
		out = append(out, v)
	}
	return out
}

func (m *Machine) validationPartitions(ps []validation.Partition, limit int) []api.ValidationPartition {
	out := []api.ValidationPartition{}
	for _, p := range ps[:min(len(ps), limit)] {
		out = append(out, api.ValidationPartition{Table: m.tableName(p.Table), Partition: p.Partition, Segment: p.Segment, Why: p.Why})
	}
	return out
}

// wallOf shows a moment of the machine's own clock; 0 is none.
func (m *Machine) wallOf(mono time.Duration) time.Time {
	if mono == 0 {
		return time.Time{}
	}
	return millis(m.now.Wall - (m.now.Mono - mono).Milliseconds())
}
