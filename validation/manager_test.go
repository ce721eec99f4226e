package validation_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/shoalstore/shoal/internal/schedule"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/validation"
)

var timing = validation.Timing{
	Patience: 30 * time.Second, Poll: 5 * time.Second, Least: time.Minute,
	Retry: schedule.BackOff{Min: 30 * time.Second, Max: 4 * time.Minute},
	Table: schedule.BackOff{Min: time.Second, Max: 8 * time.Second},
}

// office is a manager, and the asks that were not answered yet.
type office struct {
	*fleet
	m    *validation.Manager
	now  time.Duration
	open []validation.Ask
}

func newOffice(t rapid.TB, l validation.Limits) *office {
	return &office{fleet: newFleet(t), m: validation.NewManager(timing, l)}
}

var roomy = validation.Limits{Pool: 4, PerTable: 2, Failing: 2, Most: 100}

func (o *office) step(ev validation.Event) string {
	asks := o.m.Step(o.now, o.Image, ev)
	o.open = append(o.open, asks...)
	return o.describe(asks)
}

func (o *office) describe(asks []validation.Ask) string {
	var out []string
	for _, a := range asks {
		what := "ask"
		if a.Poll {
			what = "poll"
		}
		out = append(out, fmt.Sprintf("%s %s for %s", what, a.Node, short(o.segment(a.Segment))))
	}
	return strings.Join(out, "; ")
}

func (o *office) want(asks string, ev validation.Event) {
	o.t.Helper()
	if got := o.step(ev); got != asks {
		o.t.Fatalf("at %s, %T: %q, want %q", o.now, ev, got, asks)
	}
}

func (o *office) later(d time.Duration, asks string) {
	o.t.Helper()
	o.now += d
	o.want(asks, validation.Tick{})
}

// says has the oldest ask answered.
func (o *office) says(answer validation.Answer, err error) string {
	a := o.open[0]
	o.open = o.open[1:]
	return o.step(validation.Answered{Segment: a.Segment, Node: a.Node, Answer: answer, Err: err})
}

func (o *office) survey() validation.Surveyed {
	return validation.Surveyed{Findings: validation.Survey(o.Image, most)}
}

func TestNobodyIsAskedBeforeThePatienceIsOver(t *testing.T) {
	o := newOffice(t, roomy)
	k := o.commit(o.table("t", 1, deep), 0)
	o.want("", validation.Changed{Segment: k})
	o.later(timing.Patience-1, "")
	o.later(1, "ask "+o.segment(k).Committer+" for t__0__0")
	o.want("", o.survey()) // it is known already
	o.says(validation.Answer{}, nil)
	o.uploaded(k)
	o.want("", validation.Changed{Segment: k})
	o.later(time.Hour, "")
	if c := o.m.Counts(); c != (validation.Counts{Asked: 1, Done: 1}) {
		t.Errorf("%+v", c)
	}
	if p := o.m.Pool(); p.Running+p.Waiting+len(p.Failing) != 0 {
		t.Errorf("%+v", p)
	}
}

func TestWhatIsUploadedMeanwhileIsAskedOfNobody(t *testing.T) {
	o := newOffice(t, roomy)
	k := o.commit(o.table("t", 1, deep), 0)
	o.step(validation.Changed{Segment: k})
	o.uploaded(k)
	o.step(validation.Changed{Segment: k})
	o.later(time.Hour, "")
}

func TestAnotherHolderIsAskedAfterAFailure(t *testing.T) {
	o := newOffice(t, roomy)
	k := o.commit(o.table("t", 1, deep), 0)
	first, others := o.segment(k).Committer, o.others(k)
	o.copy(k, others[0])
	o.step(o.survey())
	o.later(timing.Patience, "ask "+first+" for t__0__0")
	if got := o.says(validation.Answer{Failures: 7, LastError: "before"}, nil); got != "" {
		t.Fatal(got) // what failed before it was asked is no answer
	}
	o.later(timing.Poll, "poll "+first+" for t__0__0")
	if got := o.says(validation.Answer{Failures: 7}, nil); got != "" {
		t.Fatal(got)
	}
	o.later(timing.Poll, "poll "+first+" for t__0__0")
	o.says(validation.Answer{Failures: 8, LastError: "503"}, nil)
	st, _ := o.m.Status(k)
	if st.Node != "" || st.LastNode != first || st.LastError != "503" || st.Failed != 1 {
		t.Fatalf("%+v", st)
	}
	o.later(timing.Table.Min, "ask "+others[0]+" for t__0__0")
	o.says(validation.Answer{}, errors.New("connection refused"))
	// Everybody was asked: all of them are let be for a while.
	o.later(timing.Retry.Min/2-timing.Table.Min, "")
	o.later(timing.Retry.Min/2+timing.Table.Min, "ask "+first+" for t__0__0")
}

func TestUploadThatIsNotDoneInItsTimeIsAskedOfAnother(t *testing.T) {
	o := newOffice(t, roomy)
	k := o.commit(o.table("t", 1, deep), 0)
	first, others := o.segment(k).Committer, o.others(k)
	o.copy(k, others[0])
	o.step(o.survey())
	o.later(timing.Patience, "ask "+first+" for t__0__0")
	o.says(validation.Answer{}, nil)
	for range timing.Least/timing.Poll - 1 {
		o.later(timing.Poll, "poll "+first+" for t__0__0")
		o.says(validation.Answer{}, nil)
	}
	o.later(timing.Poll, "poll "+first+" for t__0__0")
	o.says(validation.Answer{}, nil)
	o.later(timing.Table.Min, "ask "+others[0]+" for t__0__0")
}

func TestNodeThatForgotWhatItWasAskedIsNotWaitedFor(t *testing.T) {
	o := newOffice(t, roomy)
	k := o.commit(o.table("t", 1, deep), 0)
	o.copy(k, o.others(k)[0])
	o.step(o.survey())
	o.later(timing.Patience, "ask "+o.segment(k).Committer+" for t__0__0")
	o.says(validation.Answer{Failures: 2}, nil)
	o.later(timing.Poll, "poll "+o.segment(k).Committer+" for t__0__0")
	if got := o.says(validation.Answer{}, nil); got != "ask "+o.others(k)[0]+" for t__0__0" {
		t.Fatal(got)
	}
}

func TestRetriesAreCappedAndJitteredAndGoOnForEver(t *testing.T) {
	o := newOffice(t, roomy)
	k := o.commit(o.table("t", 1, deep), 0)
	o.step(o.survey())
	o.now = timing.Patience
	o.step(validation.Tick{})
	wait := time.Duration(0)
	different := map[time.Duration]bool{}
	for range 20 {
		o.says(validation.Answer{}, errors.New("connection refused"))
		wait = timing.Retry.Next(wait)
		st, _ := o.m.Status(k)
		if d := st.Due - o.now; d < wait/2 || d > wait {
			t.Fatalf("after %s: %s", wait, d)
		} else {
			different[d] = true
		}
		o.later(st.Due-o.now-1, "")
		o.later(1, "ask "+o.segment(k).Committer+" for t__0__0")
	}
	if len(different) < 15 {
		t.Errorf("%d different waits of 20", len(different))
	}
}

func TestWithoutAHolderItIsSaidAndLookedForAgain(t *testing.T) {
	o := newOffice(t, roomy)
	k := o.commit(o.table("t", 1, deep), 0)
	o.set(o.segment(k).Committer, meta.NodeDown)
	o.step(o.survey())
	o.later(timing.Patience, "")
	if st, _ := o.m.Status(k); st.LastError != "no node that is up has a copy that counts" {
		t.Errorf("%+v", st)
	}
	o.copy(k, o.others(k)[0])
	o.later(timing.Patience, "ask "+o.others(k)[0]+" for t__0__0")
}

// One table whose store is away does not hold up the others: it has one upload under
// way, however many wait.
func TestTableWhoseStoreIsAwayDoesNotHoldUpOthers(t *testing.T) {
	o := newOffice(t, roomy)
	away := o.table("away", 1, deep)
	for range 20 {
		o.commit(away, 0)
	}
	o.step(o.survey())
	o.now += timing.Patience
	if got := o.step(validation.Tick{}); strings.Count(got, "ask") != roomy.PerTable {
		t.Fatal(got)
	}
	for range 2 {
		o.says(validation.Answer{}, nil)
	}
	o.now += timing.Poll
	if got := o.step(validation.Tick{}); strings.Count(got, "poll") != 2 {
		t.Fatal(got)
	}
	for range 2 {
		o.says(validation.Answer{Failures: 1, LastError: "503"}, nil)
	}
	if p := o.m.Pool(); len(p.Failing) != 1 || p.Failing[0] != away || p.Running != 0 {
		t.Fatalf("%+v", p)
	}
	// From now on it has one, after ever longer waits.
	tries := 0
	for range 120 {
		o.now += time.Second
		o.step(validation.Tick{})
		if o.m.Pool().Running > 1 {
			t.Fatalf("%+v", o.m.Pool())
		}
		for len(o.open) > 0 {
			if o.open[0].Poll {
				tries++
				o.says(validation.Answer{Failures: 1, LastError: "503"}, nil)
			} else {
				o.says(validation.Answer{}, nil)
			}
		}
	}
	if tries < 8 || tries > 30 {
		t.Errorf("%d tries in two minutes", tries)
	}
	well := o.table("well", 2, deep)
	a, b := o.commit(well, 0), o.commit(well, 1)
	o.step(validation.Changed{Segment: a})
	o.step(validation.Changed{Segment: b})
	o.now += timing.Patience
	got := o.step(validation.Tick{})
	if !strings.Contains(got, "for well__0__0") || !strings.Contains(got, "for well__1__0") {
		t.Fatal(got)
	}
	// Its store is back with the first upload that succeeds.
	for s := range o.Image.TableSegments(away) {
		if st, ok := o.m.Status(s.SegmentKey()); ok && st.Node != "" || s.Seq == 0 {
			o.uploaded(s.SegmentKey())
			o.step(validation.Changed{Segment: s.SegmentKey()})
		}
	}
	if p := o.m.Pool(); len(p.Failing) != 0 {
		t.Errorf("%+v", p)
	}
}

// A segment that is not kept in mind, for want of room, may be uploaded by whoever has it:
// its table does not fail for ever.
func TestTableOfWhichNothingWaitsDoesNotFail(t *testing.T) {
	o := newOffice(t, validation.Limits{Pool: 1, PerTable: 1, Failing: 1, Most: 1})
	away, well := o.table("away", 1, deep), o.table("well", 1, deep)
	k := o.commit(away, 0)
	o.step(o.survey())
	o.later(timing.Patience, "ask "+o.segment(k).Committer+" for away__0__0")
	o.says(validation.Answer{}, nil)
	o.later(timing.Poll, "poll "+o.segment(k).Committer+" for away__0__0")
	o.says(validation.Answer{Failures: 1, LastError: "503"}, nil)
	o.copy(k, o.others(k)[0]) // the other table's is at more of a risk
	other := o.commit(well, 0)
	o.step(o.survey())
	if _, known := o.m.Status(k); known || len(o.m.Pool().Failing) != 1 {
		t.Fatalf("known %t, %+v", known, o.m.Pool())
	}
	o.uploaded(k)
	o.step(validation.Changed{Segment: k})
	o.step(o.survey())
	if p := o.m.Pool(); len(p.Failing) != 0 || p.Waiting != 1 {
		t.Errorf("%+v, %s waits", p, o.segment(other).Name)
	}
}

// Other bytes under a segment's key are no reason for its table to wait.
func TestOtherBytesUnderSomeKeysHoldUpNobody(t *testing.T) {
	o := newOffice(t, roomy)
	id := o.table("t", 1, deep)
	for range 6 {
		o.commit(id, 0)
	}
	o.step(o.survey())
	o.now += timing.Patience
	if got := o.step(validation.Tick{}); strings.Count(got, "ask") != roomy.PerTable {
		t.Fatal(got)
	}
	for range 2 {
		o.says(validation.Answer{}, nil)
	}
	o.now += timing.Poll
	o.step(validation.Tick{})
	var next string
	for range 2 {
		next = o.says(validation.Answer{Failures: 1, LastError: "100 bytes, want 3313", Different: true}, nil)
	}
	if p := o.m.Pool(); len(p.Failing) != 0 || p.Running != roomy.PerTable {
		t.Errorf("%+v, then %q", p, next)
	}
}

func TestRunAtOnceWaitsForNothing(t *testing.T) {
	o := newOffice(t, roomy)
	k := o.commit(o.table("t", 1, deep), 0)
	ev := o.survey()
	before := o.describe(o.m.Preview(o.now, o.Image, ev.Findings))
	if want := "ask " + o.segment(k).Committer + " for t__0__0"; before != want {
		t.Fatal(before)
	}
	if _, known := o.m.Status(k); known || o.m.Counts().Asked != 0 {
		t.Fatal("a preview has changed something")
	}
	ev.AtOnce = true
	o.want(before, ev)
	o.says(validation.Answer{}, errors.New("connection refused"))
	o.want(before, ev) // it would have waited
}

func TestRiskiestAreAskedForFirst(t *testing.T) {
	o := newOffice(t, validation.Limits{Pool: 1, PerTable: 1, Failing: 1, Most: 100})
	id := o.table("t", 3, deep)
	safe := o.commit(id, 0)
	o.copy(safe, o.others(safe)[0])
	old, young := o.commit(id, 1), o.commit(id, 2)
	o.step(o.survey())
	o.now += timing.Patience
	for _, k := range []meta.SegmentKey{old, young, safe} {
		o.want("ask "+o.segment(k).Committer+" for "+short(o.segment(k)), validation.Tick{})
		o.uploaded(k)
		o.step(validation.Changed{Segment: k})
	}
}

// Whatever happens in whatever order: bounds hold, no segment is asked of two nodes
// at once, the books are right; and once everything goes well, all is uploaded.
func TestManagerUnderAnyAnswers(t *testing.T) {
	limits := validation.Limits{Pool: 3, PerTable: 2, Failing: 1, Most: 6}
	rapid.Check(t, func(t *rapid.T) {
		o := newOffice(t, limits)
		tables := []meta.PartitionKey{{Table: o.table("x", 1, deep)}, {Table: o.table("y", 1, deep)}, {Table: o.table("z", 1, deep)}}
		var keys []meta.SegmentKey
		failures := map[string]int{}
		check := func() {
			p := o.m.Pool()
			if p.Running > limits.Pool || p.Running+p.Waiting > limits.Most+limits.Pool {
				t.Fatalf("%+v", p)
			}
			running, of := 0, map[meta.SegmentKey]string{}
			for _, k := range keys {
				if st, ok := o.m.Status(k); ok && st.Node != "" {
					running++
					of[k] = st.Node
				}
			}
			if running != p.Running {
				t.Fatalf("%d are asked, %+v", running, p)
			}
		}
		answer := func(i int, a validation.Answer, err error) {
			ask := o.open[i]
			o.open = slices.Delete(o.open, i, i+1)
			o.step(validation.Answered{Segment: ask.Segment, Node: ask.Node, Answer: a, Err: err})
		}
		for range rapid.IntRange(0, 80).Draw(t, "steps") {
			switch rapid.IntRange(0, 6).Draw(t, "what") {
			case 0:
				p := rapid.SampledFrom(tables).Draw(t, "table")
				k := o.commit(p.Table, 0)
				keys = append(keys, k)
				if rapid.Bool().Draw(t, "second copy") {
					o.copy(k, o.others(k)[0])
				}
				o.step(validation.Changed{Segment: k})
			case 1:
				o.step(o.survey())
			case 2:
				o.now += time.Duration(rapid.IntRange(0, 60_000).Draw(t, "ms")) * time.Millisecond
				o.step(validation.Tick{})
			case 3, 4:
				if len(o.open) > 0 {
					i := rapid.IntRange(0, len(o.open)-1).Draw(t, "ask")
					node := o.open[i].Node
					failures[node] += rapid.IntRange(0, 1).Draw(t, "failures")
					if rapid.IntRange(0, 4).Draw(t, "error") == 0 {
						answer(i, validation.Answer{}, errors.New("no route to host"))
					} else {
						answer(i, validation.Answer{Failures: failures[node], LastError: "503"}, nil)
					}
				}
			case 5:
				if len(keys) > 0 {
					k := rapid.SampledFrom(keys).Draw(t, "segment")
					o.uploaded(k)
					o.step(validation.Changed{Segment: k})
				}
			case 6:
				ev := o.survey()
				ev.AtOnce = true
				o.m.Preview(o.now, o.Image, ev.Findings)
				o.step(ev)
			}
			check()
		}
		for rounds := 0; ; rounds++ {
			if rounds == 20_000 {
				t.Fatalf("it does not end: %+v", o.m.Pool())
			}
			if len(validation.Survey(o.Image, most).Awaiting) == 0 {
				break
			}
			for len(o.open) > 0 {
				a := o.open[0]
				answer(0, validation.Answer{Failures: failures[a.Node]}, nil)
				if !a.Poll && o.Image.Segment(a.Segment) != nil {
					o.uploaded(a.Segment)
					o.step(validation.Changed{Segment: a.Segment})
				}
			}
			o.now += time.Second
			if rounds%60 == 0 {
				o.step(o.survey())
			}
			o.step(validation.Tick{})
			check()
		}
		o.step(o.survey())
		if p := o.m.Pool(); p.Running+p.Waiting+len(p.Failing) != 0 {
			t.Fatalf("left: %+v", p)
		}
	})
}
