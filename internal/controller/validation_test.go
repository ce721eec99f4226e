package controller

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/validation"
)

// newValidating is a rig whose validation is at work.
func newValidating(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	r.m = NewMachine()
	r.uploads = map[string]validation.Answer{}
	r.lead()
	return r
}

// passes lets time pass in steps of a second, nodes beat, and effects end well. It
// returns what happened but for surveys, polls and listings.
func (r *rig) passes(d time.Duration) string {
	r.Helper()
	var seen []string
	for end := r.now + d; r.now < end; {
		r.now += time.Second
		r.ready("n1", "n2", "n3")
		r.step(Tick{})
		for rounds := 0; len(r.flying) > 0 || r.shown < len(r.log.Batches); rounds++ {
			if rounds > 1000 {
				r.Fatalf("it does not come to rest: %s", describe(r.flying))
			}
			for len(r.flying) > 0 {
				a := r.land()
				what := describe([]Action{a})
				if !strings.HasPrefix(what, "survey") && !strings.HasPrefix(what, "poll") && !strings.HasPrefix(what, "list ") {
					seen = append(seen, what)
				}
				r.step(r.result(a))
			}
			r.step(r.committed())
		}
	}
	return strings.Join(seen, "; ")
}

// tell hands in a request and returns what it is answered.
func (r *rig) tell(ev Event) ValidationSeen {
	r.Helper()
	for _, a := range r.m.Step(Now{Mono: r.now, Wall: r.log.Now}, ev) {
		switch a := a.(type) {
		case ValidationSeen:
			return a
		case Survey:
			return r.tell(r.result(a))
		case AskUpload, ListDeepStore:
			r.flying = append(r.flying, a)
		}
	}
	r.Fatalf("%T is not answered", ev)
	return ValidationSeen{}
}

// verified has a copy in the deep store that the leader has seen.
func (r *rig) verified(s *meta.Segment) {
	r.Helper()
	r.deep[uri(s)] = true
	r.says(r.uploaded(s, uri(s)))
	r.settle()
	if !r.log.Image.Segment(s.SegmentKey()).DeepStoreVerified() {
		r.Fatalf("%s is not verified", s.Name)
	}
}

func TestUploadThatDoesNotComeIsAskedForOfOneHolderAfterTheOther(t *testing.T) {
	r := newValidating(t)
	s := r.done(r.table("t", 1, withDeepStore), 0)
	other := s.Replicas[1]
	r.held(s, other)
	r.settle()
	first, second := "ask "+s.Committer+" t__0__0", "ask "+other+" t__0__0"
	if got := r.passes(29 * time.Second); got != "" {
		t.Fatal(got)
	}
	if got := r.passes(2 * time.Second); got != first {
		t.Fatal(got)
	}
	r.uploads[s.Committer] = validation.Answer{Failures: 1, LastError: "503 Slow Down"}
	if got := r.passes(10 * time.Second); got != second {
		t.Fatal(got)
	}
	v := r.tell(LookAtValidation{Ticket: r.next(), Limit: 10}).View
	if len(v.Awaiting) != 1 || v.Awaiting[0].AskedOf != other || v.Awaiting[0].LastNode != s.Committer || v.Awaiting[0].LastError != "503 Slow Down" ||
		v.Pool.Running != 1 || v.Pool.Asked != 2 || v.Pool.Failed != 1 || len(v.Pool.FailingTables) != 1 {
		t.Fatalf("%+v", v)
	}
	r.verified(s)
	if got := r.passes(10 * time.Minute); got != "" {
		t.Fatal(got)
	}
	v = r.tell(LookAtValidation{Ticket: r.next(), Limit: 10}).View
	if len(v.Awaiting)+len(v.SingleCopy)+len(v.Tables)+v.Pool.Running+v.Pool.Waiting != 0 || v.Pool.Done != 1 {
		t.Fatalf("%+v", v)
	}
}

// The heart of it: an object that somebody deleted is found by a listing, proven gone
// by a look, withdrawn, and uploaded again from whoever has it.
func TestDeletedObjectIsNoticedAndUploadedAgainFromAnyHolder(t *testing.T) {
	r := newValidating(t)
	s := r.done(r.table("t", 1, withDeepStore), 0)
	other := s.Replicas[1]
	r.held(s, other)
	r.verified(s)
	if got := r.passes(3 * time.Minute); got != "" {
		t.Fatal(got)
	}
	r.log.Do(r, meta.SetNodeState(s.Committer, meta.AnyIncarnation, meta.NodeDown))
	r.step(r.committed())
	delete(r.deep, uri(s))
	var seen []string
	began := r.now
	for r.log.Image.Segment(s.SegmentKey()).DeepStoreVerified() {
		if r.now-began > 2*time.Minute {
			t.Fatalf("not noticed: %v", seen)
		}
		r.now += time.Second
		r.ready(other)
		r.step(Tick{})
		for len(r.flying) > 0 {
			a := r.land()
			seen = append(seen, describe([]Action{a}))
			r.step(r.result(a))
		}
		r.step(r.committed())
	}
	if r.m.confirmed.has(meta.Location{URI: uri(s)}, s.SegmentKey()) {
		t.Error("it is counted on still")
	}
	if v := r.tell(LookAtValidation{Ticket: r.next(), Limit: 10}).View; v.DeepStore.Lost != 1 {
		t.Errorf("%+v", v.DeepStore)
	}
	asked := false
	for range 60 {
		r.now += time.Second
		r.ready(other)
		r.step(Tick{})
		for len(r.flying) > 0 {
			a := r.land()
			asked = asked || describe([]Action{a}) == "ask "+other+" t__0__0"
			r.step(r.result(a))
		}
		r.step(r.committed())
	}
	if !asked {
		t.Errorf("%s is not asked", other)
	}
}

func TestListingAloneWithdrawsNothing(t *testing.T) {
	r := newValidating(t)
	s := r.done(r.table("t", 1, withDeepStore), 0)
	r.verified(s)
	r.passes(2 * time.Minute)
	for range 200 {
		r.now += time.Second
		r.ready("n1", "n2", "n3")
		r.step(Tick{})
		for len(r.flying) > 0 {
			switch a := r.land().(type) {
			case ListDeepStore: // it shows nothing
				r.step(ObjectsListed{ID: a.ID, Pages: 1, Done: true, Missing: []MissingCopy{{s.SegmentKey(), uri(s)}}})
				if r.m.confirmed.has(meta.Location{URI: uri(s)}, s.SegmentKey()) {
					t.Fatal("a copy that may be gone is counted on for a release")
				}
			default:
				r.step(r.result(a))
			}
		}
		r.step(r.committed())
		if !r.log.Image.Segment(s.SegmentKey()).DeepStoreVerified() {
			t.Fatal("withdrawn")
		}
	}
	if !r.m.confirmed.has(meta.Location{URI: uri(s)}, s.SegmentKey()) {
		t.Error("the look did not confirm it again")
	}
}

func TestStoreThatAnswersWithErrorsWithdrawsNothing(t *testing.T) {
	r := newValidating(t)
	s := r.done(r.table("t", 1, withDeepStore), 0)
	r.verified(s)
	delete(r.deep, uri(s))
	lists := 0
	for range 600 {
		r.now += time.Second
		r.ready("n1", "n2", "n3")
		r.step(Tick{})
		for len(r.flying) > 0 {
			switch a := r.land().(type) {
			case ListDeepStore:
				lists++
				r.step(failure(a))
			case CheckDeepStore:
				r.step(failure(a))
			default:
				r.step(r.result(a))
			}
		}
		r.step(r.committed())
	}
	if !r.log.Image.Segment(s.SegmentKey()).DeepStoreVerified() {
		t.Fatal("withdrawn")
	}
	if lists < 3 || lists > 20 {
		t.Errorf("%d listings in ten minutes of errors", lists)
	}
	if v := r.tell(LookAtValidation{Ticket: r.next(), Limit: 1}).View; v.DeepStore.Tables[0].LastError == "" {
		t.Errorf("%+v", v.DeepStore)
	}
}

// A copy that is the last place of its segment is looked for until it is there again.
func TestLastPlaceIsLookedForUntilItIsThereAgain(t *testing.T) {
	r := newValidating(t)
	s := r.done(r.table("t", 1, withDeepStore), 0)
	r.verified(s)
	report := r.report(s.Committer)
	report.Withdraw = append(report.Withdraw, refOf(s))
	r.says(r.located(report))
	r.step(r.committed())
	delete(r.deep, uri(s))
	r.passes(5 * time.Minute)
	if is := r.log.Image.Segment(s.SegmentKey()); is.DeepStoreVerified() || len(is.Locations) != 1 {
		t.Fatalf("%+v", is.Locations)
	}
	r.deep[uri(s)] = true
	r.passes(checkRetryMax + 10*time.Second)
	if !r.log.Image.Segment(s.SegmentKey()).DeepStoreVerified() {
		t.Fatal("it is back, and not counted")
	}
}

func TestPagesOfListingsAreWithinTheirBudget(t *testing.T) {
	r := newValidating(t)
	for i := range 40 {
		r.table(fmt.Sprintf("t%02d", i), 1, withDeepStore)
	}
	r.passes(time.Minute)
	before := r.m.audits.pages
	running := 0
	pages := func(a ListDeepStore) ObjectsListed {
		running = max(running, r.m.audits.running)
		return ObjectsListed{ID: a.ID, Pages: a.Pages, After: a.Name + "/0/x"} // and never done
	}
	for range 300 {
		r.now += time.Second
		r.ready("n1", "n2", "n3")
		r.step(Tick{})
		for len(r.flying) > 0 {
			switch a := r.land().(type) {
			case ListDeepStore:
				r.step(pages(a))
			default:
				r.step(r.result(a))
			}
		}
	}
	if n := r.m.audits.pages - before; n < 400 || n > 5*100+auditsMax*auditPages {
		t.Errorf("%d pages in five minutes", n)
	}
	if running > auditsMax {
		t.Errorf("%d listings at once", running)
	}
	listed := 0
	for _, au := range r.m.audits.of {
		if au.after != "" {
			listed++
		}
	}
	if listed != 40 {
		t.Errorf("%d of 40 tables had a turn", listed)
	}
}

func TestRunIsAnsweredWithWhatItAskedAndADryRunAsksNothing(t *testing.T) {
	r := newValidating(t)
	s := r.done(r.table("t", 2, withDeepStore), 0)
	want := api.ValidationAsk{Table: "t", Segment: s.Name, Node: s.Committer}
	dry := r.tell(RunValidation{Ticket: r.next(), DryRun: true, Limit: 10})
	if len(dry.View.Asks) != 1 || dry.View.Asks[0] != want || len(r.flying) != 0 || dry.View.Pool.Asked != 0 {
		t.Fatalf("%+v, %s", dry.View, describe(r.flying))
	}
	if len(dry.View.SingleCopy) != 1 || dry.View.SingleCopy[0].SizeBytes != s.SizeBytes || dry.View.Tables[0].SingleCopy.Bytes != s.SizeBytes || dry.View.RanAt.IsZero() {
		t.Errorf("%+v", dry.View)
	}
	if look := r.tell(LookAtValidation{Ticket: r.next(), Limit: 10}); !look.View.RanAt.IsZero() {
		t.Error("a dry run is kept as the last run")
	}
	real := r.tell(RunValidation{Ticket: r.next(), Limit: 10})
	if len(real.View.Asks) != 1 || real.View.Asks[0] != want || describe(r.flying) != "ask "+s.Committer+" t__0__0" {
		t.Fatalf("%+v, %s", real.View, describe(r.flying))
	}
	if look := r.tell(LookAtValidation{Ticket: r.next(), Limit: 10}); look.View.RanAt.IsZero() || look.View.Awaiting[0].AskedOf != s.Committer {
		t.Errorf("%+v", look.View)
	}
}

func TestRunsAtOnceAreBoundedAndEndWithTheLeadership(t *testing.T) {
	r := newValidating(t)
	for range surveysMax {
		r.want("survey", RunValidation{Ticket: r.next(), Limit: 1})
	}
	r.want(fmt.Sprintf("%d validation BUSY", r.ticket+1), RunValidation{Ticket: r.next(), Limit: 1})
	got := r.step(Depose{})
	for _, ticket := range []Ticket{1, 2, 3, 4} {
		if !strings.Contains(got, fmt.Sprintf("%d validation NOT_LEADER", ticket)) {
			t.Errorf("%s", got)
		}
	}
	r.want(fmt.Sprintf("%d validation NOT_LEADER", r.ticket+1), LookAtValidation{Ticket: r.next()})
	r.want(fmt.Sprintf("%d validation NOT_LEADER", r.ticket+1), RunValidation{Ticket: r.next()})
}

func TestNodeThatIsDownHasEverythingLookedAtSoon(t *testing.T) {
	r := newValidating(t)
	r.passes(time.Minute + 11*time.Second) // just after a survey
	at := r.m.validation.began
	r.log.Do(r, meta.SetNodeState("n3", meta.AnyIncarnation, meta.NodeDown)) // it is heard of: UP again
	r.step(r.committed())
	r.passes(10 * time.Second)
	if r.m.validation.began-at > 20*time.Second || r.m.validation.began == at {
		t.Errorf("looked at %s, then %s", at, r.m.validation.began)
	}
}

func TestAnswerOfANodeThatIsNotReachedIsAFailureOfIt(t *testing.T) {
	r := newValidating(t)
	s := r.done(r.table("t", 1, withDeepStore), 0)
	r.held(s, s.Replicas[1])
	r.settle()
	r.passes(29 * time.Second)
	for len(r.flying) == 0 {
		r.now += time.Second
		r.ready("n1", "n2", "n3")
		r.step(Tick{})
	}
	a := r.land()
	got := r.step(UploadAnswered{ID: idOf(a), Err: errors.New("connection refused")})
	if got != "ask "+s.Replicas[1]+" t__0__0" {
		t.Fatal(got)
	}
}
