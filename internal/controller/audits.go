package controller

import (
	"errors"
	"time"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/schedule"
	"github.com/shoalstore/shoal/meta"
)

// AuditTiming says how the leader looks through the deep stores for copies that were
// verified once and are gone: a bucket has other users, and its own rules.
type AuditTiming struct {
	// Every is the least time between the beginnings of two passes through a table.
	Every time.Duration
	// PerMinute is how many pages are listed in a minute, of all tables.
	PerMinute int
	// Retry is how long a table is let be whose store gave no answer, jittered.
	Retry schedule.BackOff
}

// DefaultAudit is the timing of a real leader: a page has 500 segments, so that
// 50,000 are looked at in a minute.
var DefaultAudit = AuditTiming{Every: time.Minute, PerMinute: 100, Retry: schedule.BackOff{Min: 5 * time.Second, Max: 5 * time.Minute}}

const (
	// auditsMax bounds the tables whose stores are being listed at once.
	auditsMax = 4
	// auditPages is how many pages one listing has at most.
	auditPages = 10
	// Listing waits while so many copies of the table are to be looked at singly.
	auditBacklog     = 1000
	auditBacklogWait = 5 * time.Second
)

var errNodeGone = errors.New("the node is not registered any more")

// audits are the passes through the deep stores, table by table, each in parts. What
// a listing does not show is looked at singly (checks.go), and only that withdraws it.
type audits struct {
	timing  AuditTiming
	next    time.Duration // when the tables are looked at for new ones
	of      map[tableID]*audit
	due     *schedule.Queue[tableID] // those that are not being listed
	running int
	free    time.Duration // when the budget allows the next listing
	pages   int64         // that were listed
}

// audit is the pass through one table's store.
type audit struct {
	after    string        // where it is
	began    time.Duration // this pass
	wait     time.Duration // before the last listing that was put off
	tries    int64
	finished time.Duration // the last pass, 0: none yet
	err      string        // why the last listing did not end well
}

func newAudits(t AuditTiming) audits {
	return audits{timing: t, of: map[tableID]*audit{}, due: schedule.New(compareIDs)}
}

// audit begins the listings that are due, within the budget.
func (m *Machine) audit() {
	a := &m.audits
	if m.now.Mono >= a.next {
		a.next = m.now.Mono + 10*time.Second
		for t := range m.image.Tables() {
			if a.of[t.ID] == nil && m.storeOf(t.ID) != "" {
				a.of[t.ID] = &audit{began: m.now.Mono}
				a.due.Set(t.ID, m.now.Mono)
			}
		}
	}
	for a.running < auditsMax && m.now.Mono >= a.free {
		id, ok := a.due.Due(m.now.Mono)
		if !ok {
			return
		}
		if m.checks.waiting.of(id) >= auditBacklog {
			a.due.Set(id, m.now.Mono+auditBacklogWait)
			continue
		}
		a.due.Remove(id)
		m.list(id, a.of[id])
	}
}

// storeOf is the deep store that a table has, "" for none, or none that is looked
// through.
func (m *Machine) storeOf(id tableID) string {
	t, cfg := m.image.Table(id), m.image.CurrentConfig(id)
	if !isRetained(t) || cfg == nil || cfg.DeepStore == nil {
		return ""
	}
	return cfg.DeepStore.URI
}

func (m *Machine) list(id tableID, au *audit) {
	a := &m.audits
	store := m.storeOf(id)
	if store == "" {
		delete(a.of, id)
		return
	}
	if au.after == "" {
		au.began = m.now.Mono
	}
	a.running++
	m.do(ListDeepStore{
		ID: m.begin(effect{purpose: forAudit, id: id, began: m.now}), Image: m.image,
		Table: id, Name: m.image.Table(id).Name, Store: store, After: au.after, Pages: auditPages,
	})
}

// objectsListed has looked at singly what a listing does not show. Until then it
// stands for nothing: no release is granted on it.
func (m *Machine) objectsListed(e effect, ev ObjectsListed) {
	a := &m.audits
	a.running--
	a.pages += int64(ev.Pages)
	a.free = max(a.free, m.now.Mono) + time.Duration(ev.Pages)*time.Minute/time.Duration(a.timing.PerMinute)
	for _, missing := range ev.Missing {
		if s := m.image.Segment(missing.Segment); s != nil && isVerifiedAt(s, missing.URI) {
			m.confirmed.withdrawDeep(missing.Segment, missing.URI)
			m.check(s, missing.URI)
		}
	}
	au := a.of[e.id]
	au.after = ev.After
	switch {
	case ev.Err != nil:
		au.err, au.tries = ev.Err.Error(), au.tries+1
		au.wait = a.timing.Retry.Next(au.wait)
		a.due.Set(e.id, m.now.Mono+schedule.Jitter(au.wait, schedule.Seed(e.id[:], au.tries)))
		return
	case ev.Done:
		au.after, au.finished = "", m.now.Mono
		a.due.Set(e.id, max(m.now.Mono, au.began+a.timing.Every))
	default: // a store that is slow has as long a rest
		a.due.Set(e.id, m.now.Mono+(m.now.Mono-e.began.Mono))
	}
	au.err, au.wait = "", 0
}

func isVerifiedAt(s *meta.Segment, uri string) bool {
	for _, l := range s.Locations {
		if l.URI == uri && l.Verified {
			return true
		}
	}
	return false
}

// auditView shows how far the passes are.
func (m *Machine) auditView() api.ValidationDeepStore {
	v := api.ValidationDeepStore{PagesListed: m.audits.pages, Lost: m.validation.lost, Tables: []api.ValidationAudit{}}
	for t := range m.image.Tables() {
		if au := m.audits.of[t.ID]; au != nil {
			v.Tables = append(v.Tables, api.ValidationAudit{Table: t.Name, LastPass: m.wallOf(au.finished), LastError: au.err})
		}
	}
	return v
}
