package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
)

// uploaded is a report that the committer has put the segment into the deep store.
func (r *rig) uploaded(s *meta.Segment, uris ...string) Located {
	report := r.report(s.Committer)
	for _, u := range uris {
		report.Uploaded = append(report.Uploaded, meta.UploadRef{CopyRef: refOf(s), URI: u})
	}
	return r.located(report)
}

// says hands in a report and has it written: what is left in the air are the looks.
func (r *rig) says(report Located) {
	r.Helper()
	r.step(report)
	var looks []Action
	for _, a := range r.flying {
		if w, ok := a.(Write); ok {
			r.step(r.result(w))
		} else {
			looks = append(looks, a)
		}
	}
	r.flying = looks
}

// look takes the oldest look into a deep store out of the air.
func (r *rig) look() Action {
	r.Helper()
	for i, a := range r.flying {
		if _, ok := a.(CheckDeepStore); ok {
			r.flying = append(r.flying[:i:i], r.flying[i+1:]...)
			return a
		}
	}
	r.Fatalf("no look is under way")
	return nil
}

func TestUploadCountsOnceTheLeaderHasSeenIt(t *testing.T) {
	r := newRig(t)
	s := r.done(r.table("t", 1, withDeepStore), 0)
	r.says(r.uploaded(s, uri(s)))
	if look := r.flying[0].(CheckDeepStore); look.Digest != s.Digest || look.SizeBytes != s.SizeBytes || look.URI != uri(s) || look.Store != "file:///deep" {
		t.Fatalf("%+v", look)
	}
	r.deep[uri(s)] = true
	if got := r.well(); got != "write verified deep-store copy of "+s.Name {
		t.Fatal(got)
	}
	r.settle()
	if s := r.log.Image.Segment(s.SegmentKey()); !s.DeepStoreVerified() || !r.m.confirmed.has(s.Locations[1], s.SegmentKey()) {
		t.Fatalf("%+v", s.Locations)
	}
	if len(r.m.checks.of) != 0 || r.m.checks.waiting.Len() != 0 {
		t.Fatal("the check is kept")
	}
}

func TestCopyThatIsNotThereIsWithdrawn(t *testing.T) {
	r := newRig(t)
	s := r.done(r.table("t", 1, withDeepStore), 0)
	if got := r.do(meta.SetDeepStoreLocation(s.SegmentKey(), s.Digest, uri(s), false)); got != "check t__0__0" {
		t.Fatal(got)
	}
	r.settle()
	if s := r.log.Image.Segment(s.SegmentKey()); len(s.Locations) != 1 || len(r.m.confirmed.deep) != 0 {
		t.Fatalf("%+v, confirmed %v", s.Locations, r.m.confirmed.deep)
	}
	r.later(heartbeatTimeout, "")
}

func TestPlaceIsLookedAtOnceAtATime(t *testing.T) {
	r := newRig(t)
	s := r.done(r.table("t", 1, withDeepStore), 0)
	for range 3 {
		r.says(r.uploaded(s, uri(s)))
	}
	if got := describe(r.flying); got != "check t__0__0" {
		t.Fatal(got)
	}
	r.deep[uri(s)] = true
	r.want("write verified deep-store copy of "+s.Name, r.result(r.look()))
	verified := r.flying[0]
	r.flying = nil
	r.says(r.uploaded(s, uri(s))) // what was found is being written
	if len(r.flying) != 0 {
		t.Fatal(describe(r.flying))
	}
	r.want("", r.result(verified))
}

// What was found is true of the bytes that were looked for, and of no others.
func TestLookAtBytesThatWereReplacedMeanwhileComesToNothing(t *testing.T) {
	r := newRig(t)
	s := r.done(r.table("t", 1, withDeepStore), 0)
	r.says(r.uploaded(s, uri(s)))
	r.do(func(im *meta.Image, now int64) (meta.Change, error) {
		again := im.Segment(s.SegmentKey()).Clone()
		again.Generation, again.Digest = 1, metatest.DigestOf("recommitted")
		return meta.Change{Upserts: []meta.Record{again}}, nil
	})
	r.deep[uri(s)] = true
	r.want("", r.result(r.look()))
	if r.m.checks.running != 0 || len(r.m.checks.of) != 0 {
		t.Fatalf("%+v", r.m.checks)
	}
}

func TestCheckWithoutAnAnswerIsRepeatedWithBackOff(t *testing.T) {
	r := newRig(t)
	s := r.done(r.table("t", 1, withDeepStore), 0)
	r.says(r.uploaded(s, uri(s)))
	for _, wait := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		r.want("", failure(r.look()))
		r.alive(wait*time.Second-1, "")
		r.alive(1, "check t__0__0")
	}
	r.want("", failure(r.look()))
	r.says(r.uploaded(s, uri(s))) // said again: perhaps it is there now
	r.deep[uri(s)] = true
	r.want("write verified deep-store copy of "+s.Name, r.result(r.look()))
	r.want("", failure(r.flying[len(r.flying)-1])) // nobody knows whether it was written
	r.alive(time.Minute, "check t__0__0")
	r.want("write verified deep-store copy of "+s.Name, r.result(r.look()))
	r.want("", r.result(r.flying[len(r.flying)-1]))
	if !r.log.Image.Segment(s.SegmentKey()).DeepStoreVerified() {
		t.Fatal("not verified")
	}
}

func TestChecksAtOnceAreBoundedAndAllGetTheirTurn(t *testing.T) {
	r := newRig(t)
	id := r.table("t", 30, withDeepStore)
	var segments []*meta.Segment
	for p := range int32(30) {
		segments = append(segments, r.done(id, p))
		r.deep[uri(segments[p])] = true
	}
	for _, s := range segments {
		r.says(r.uploaded(s, uri(s)))
	}
	if len(r.flying) != checksPerTable {
		t.Fatalf("%d looks at once", len(r.flying))
	}
	r.settle()
	for _, s := range segments {
		if !r.log.Image.Segment(s.SegmentKey()).DeepStoreVerified() {
			t.Fatalf("%s is not verified", s.Name)
		}
	}
	if r.m.checks.running != 0 {
		t.Fatalf("%d are said to run", r.m.checks.running)
	}
}

// One table whose store hangs does not hold up the others.
func TestLooksOfATableThatHangLeaveRoomForOthers(t *testing.T) {
	r := newRig(t)
	hangs, well := r.table("hangs", 20, withDeepStore), r.table("well", 20, withDeepStore)
	for p := range int32(20) {
		s := r.done(hangs, p)
		r.says(r.uploaded(s, uri(s)))
	}
	hanging := r.flying
	if len(hanging) != checksPerTable {
		t.Fatalf("%d looks at once", len(hanging))
	}
	r.flying = nil
	for p := range int32(20) {
		s := r.done(well, p)
		r.deep[uri(s)] = true
		r.says(r.uploaded(s, uri(s)))
	}
	r.settle()
	for s := range r.log.Image.TableSegments(well) {
		if s.Status == meta.SegmentDone && !s.DeepStoreVerified() {
			t.Fatalf("%s is not verified", s.Name)
		}
	}
	if got := r.m.checks.running; got != len(hanging) {
		t.Fatalf("%d are said to run", got)
	}
	for _, a := range hanging {
		r.step(failure(a))
	}
	if got := describe(r.flying); len(r.flying) != checksPerTable || strings.Contains(got, "well") {
		t.Fatal(got)
	}
	if n := r.m.checks.waiting.Len(); n != r.m.checks.waiting.of(hangs) || n != 20-checksPerTable {
		t.Fatalf("%d wait", n)
	}
}

func TestCheckOfASegmentThatGoesComesToNothing(t *testing.T) {
	r := newRig(t)
	s := r.done(r.table("t", 1, withDeepStore), 0)
	r.says(r.uploaded(s, uri(s), uri(s)+"x"))
	looks := r.flying
	r.flying = nil
	r.held(s, "n1", "n2")
	r.m.confirmed.confirmDeep(s.SegmentKey(), uri(s))
	r.m.rounds[s.SegmentKey()] = &roundTimes{}
	r.flying = looks
	r.do(expire(r.log, s))
	r.deep[uri(s)] = true
	for range len(r.flying) {
		if got := r.well(); got != "" {
			t.Fatal(got)
		}
	}
	if len(r.m.checks.of) != 0 || r.m.checks.waiting.Len() != 0 || r.m.checks.running != 0 {
		t.Fatalf("%+v", r.m.checks)
	}
	for at, held := range r.m.confirmed.nodes {
		if len(held) != 0 {
			t.Fatalf("%v: %v", at, held)
		}
	}
	if len(r.m.confirmed.deep)+len(r.m.rounds) != 0 {
		t.Fatalf("%v, %v", r.m.confirmed.deep, r.m.rounds)
	}
}

// A check that can come to nothing is not repeated for ever.
func TestPlacesThatAreNotInTheTablesStoreAreNotLookedAt(t *testing.T) {
	for name, change := range map[string]func(*meta.Config){
		"no store":      func(*meta.Config) {},
		"another store": func(c *meta.Config) { c.DeepStore = &meta.DeepStoreConfig{URI: "file:///elsewhere"} },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			id := r.table("t", 1, withDeepStore)
			s := r.done(id, 0)
			r.says(r.uploaded(s, uri(s)))
			r.fail() // it waits for its next try
			cfg := metatest.Config("t")
			change(cfg)
			r.do(meta.UpdateTableConfig(id, cfg))
			r.alive(time.Second, "")
			if len(r.m.checks.of) != 0 || r.m.checks.waiting.Len() != 0 {
				t.Fatal("it waits for ever")
			}
			r.says(r.uploaded(s, uri(s), "file:///etc/passwd", "nonsense"))
			if len(r.flying) != 0 || len(r.m.checks.of) != 0 {
				t.Fatal(describe(r.flying))
			}
		})
	}
}

func TestPlacesOfOneSegmentAreBounded(t *testing.T) {
	r := newRig(t)
	s := r.done(r.table("t", 1, withDeepStore), 0)
	var uris []string
	for range 100 {
		uris = append(uris, fmt.Sprintf("file:///deep/t/0/%s-%s.parquet", s.Name, metatest.DigestOf(uuid.NewString()).Short()))
	}
	r.says(r.uploaded(s, uris...))
	if len(r.flying) != urisMax {
		t.Fatalf("looked for in %d places", len(r.flying))
	}
}

// The result of an earlier leadership's look is not taken for this one's.
func TestLookOfAnEarlierLeadershipIsNobodys(t *testing.T) {
	r := newRig(t)
	s := r.done(r.table("t", 1, withDeepStore), 0)
	r.do(meta.SetDeepStoreLocation(s.SegmentKey(), s.Digest, uri(s), false))
	old := r.land()
	r.step(Depose{})
	r.log.TakeOver(t)
	r.lead()
	r.want("", r.result(old)) // it found nothing, long ago
	if r.m.checks.running != 1 {
		t.Fatalf("%d are said to run", r.m.checks.running)
	}
	r.deep[uri(s)] = true
	r.settle()
	if !r.log.Image.Segment(s.SegmentKey()).DeepStoreVerified() || r.m.checks.running != 0 {
		t.Fatalf("not verified, or %d are said to run", r.m.checks.running)
	}
}

// Of copies on nodes, and releases.

func (r *rig) release(node string, s *meta.Segment) (meta.Verdict, Refusal) {
	r.Helper()
	report := r.report(node)
	report.Release = []meta.CopyRef{refOf(s)}
	return r.verdict(r.located(report))
}

// verdict hands in a report, has its write written, and returns what the leader
// says to the release in it.
func (r *rig) verdict(ev Located) (meta.Verdict, Refusal) {
	r.Helper()
	r.step(ev)
	for i, a := range r.flying {
		if w, ok := a.(Write); ok && r.m.effects[w.ID].ticket == ev.Ticket {
			r.flying = append(r.flying[:i:i], r.flying[i+1:]...)
			for _, a := range r.m.Step(Now{Mono: r.now}, r.result(w)) {
				if a, ok := a.(AnswerLocations); ok {
					if a.Refuse != "" {
						return meta.Verdict{}, a.Refuse
					}
					return a.Verdicts.Release[0], ""
				}
			}
		}
	}
	r.Fatalf("no answer")
	return meta.Verdict{}, ""
}

// held has nodes report and so confirm a copy of the segment.
func (r *rig) held(s *meta.Segment, nodes ...string) {
	r.Helper()
	for _, n := range nodes {
		report := r.report(n)
		report.Add = []meta.CopyRef{refOf(s)}
		r.step(r.located(report))
		r.settle()
	}
}

func TestReleaseIsGrantedOnCopiesConfirmedToThisLeader(t *testing.T) {
	r := newRig(t)
	s := r.done(r.table("t", 1), 0)
	r.held(s, "n1", "n2", "n3")
	refused := meta.Verdict{Code: meta.CodeTooFewCopies}
	r.step(Depose{})
	r.log.TakeOver(t)
	r.lead()
	r.settle()
	if v, _ := r.release("n1", s); v != refused {
		t.Fatalf("%+v: nobody has confirmed anything in this epoch", v)
	}
	r.held(s, "n2")
	if v, _ := r.release("n1", s); v != refused {
		t.Fatalf("%+v: one other copy is confirmed", v)
	}
	r.held(s, "n3")
	if v, _ := r.release("n1", s); !v.Accepted {
		t.Fatalf("%+v", v)
	}
	if v, _ := r.release("n2", s); v != refused {
		t.Fatalf("%+v: n1's copy is gone", v)
	}
}

func TestWithdrawnCopyIsConfirmedNoMore(t *testing.T) {
	r := newRig(t)
	s := r.done(r.table("t", 1), 0)
	r.held(s, "n1", "n2", "n3")
	report := r.report("n3")
	report.Withdraw = []meta.CopyRef{refOf(s)}
	r.step(r.located(report)) // the write is under way
	if v, _ := r.release("n1", s); v.Accepted {
		t.Fatal("granted on a copy that is being withdrawn")
	}
}

func TestCopyOfOtherBytesConfirmsNothing(t *testing.T) {
	r := newRig(t)
	s := r.done(r.table("t", 1), 0)
	r.held(s, "n1", "n2", "n3")
	r.step(Depose{})
	r.log.TakeOver(t)
	r.lead()
	for _, n := range []string{"n2", "n3"} {
		report := r.report(n)
		ref := refOf(s)
		ref.Digest = metatest.DigestOf("another build")
		report.Confirm = []meta.CopyRef{ref}
		r.step(r.located(report))
		r.settle()
	}
	if v, _ := r.release("n1", s); v.Accepted {
		t.Fatal("granted")
	}
}

// A report that was overtaken confirms nothing.
func TestLateReportConfirmsNothing(t *testing.T) {
	r := newRig(t)
	s := r.done(r.table("t", 1), 0)
	late := r.report("n2")
	late.Confirm = []meta.CopyRef{refOf(s)}
	report := r.report("n2")
	report.Sequence++
	report.Withdraw = []meta.CopyRef{refOf(s)}
	r.step(r.located(report))
	r.settle()
	r.step(r.located(late))
	r.settle()
	if r.m.confirmed.has(meta.Location{Node: "n2", StoreID: late.StoreID}, s.SegmentKey()) {
		t.Fatal("it is confirmed")
	}
}

func TestReplacedStoreConfirmsNothingOfTheOldOne(t *testing.T) {
	r := newRig(t)
	s := r.done(r.table("t", 1), 0)
	r.held(s, "n1", "n2")
	r.do(meta.SetNodeState("n2", meta.AnyIncarnation, meta.NodeDown))
	old := r.report("n2")
	var incarnation int64
	r.do(meta.RegisterNode(meta.Registration{ID: "n2", URL: "http://n2", StoreID: metatest.ID("new disk"), BootID: uuid.New()}, &incarnation))
	if len(r.m.confirmed.nodes) != 1 {
		t.Fatalf("%v", r.m.confirmed.nodes)
	}
	old.Add = []meta.CopyRef{refOf(s)}
	r.want(fmt.Sprintf("%d locations STALE_INCARNATION", r.ticket+1), r.located(old))
	old.Incarnation = incarnation // and of the old store still
	r.want(fmt.Sprintf("%d locations STALE_INCARNATION", r.ticket+1), r.located(old))
}

func TestDeepStoreCopyOfAnEarlierLeaderIsLookedAtBeforeAReleaseCountsOnIt(t *testing.T) {
	r := newRig(t)
	s := r.done(r.table("t", 1, withDeepStore), 0)
	r.do(meta.SetDeepStoreLocation(s.SegmentKey(), s.Digest, uri(s), true))
	r.held(s, "n1", "n2")
	if v, _ := r.release("n1", s); v.Accepted {
		t.Fatal("granted on a deep-store copy that this leader has not seen")
	}
	r.deep[uri(s)] = true
	r.settle()
	if v, _ := r.release("n1", s); !v.Accepted {
		t.Fatalf("%+v", v)
	}
	// One that is found gone is a copy no more.
	r.step(Depose{})
	r.log.TakeOver(t)
	r.lead()
	r.deep[uri(s)] = false
	if v, _ := r.release("n2", s); v.Accepted {
		t.Fatal("granted")
	}
	r.settle()
	if r.log.Image.Segment(s.SegmentKey()).DeepStoreVerified() {
		t.Fatal("it is listed still")
	}
}

func TestReportsAreAnsweredWhateverBecomesOfTheirWrite(t *testing.T) {
	r := newRig(t)
	s := r.done(r.table("t", 1), 0)
	ask := func() Located {
		report := r.report("n2")
		report.Add = []meta.CopyRef{refOf(s)}
		return r.located(report)
	}
	r.step(ask())
	w := r.land().(Write)
	r.want("1 locations", r.result(w))
	r.step(ask())
	r.want("2 locations UNKNOWN", failure(r.land()))
	r.step(ask())
	w = r.land().(Write)
	r.want("3 locations STALE_INCARNATION", Wrote{ID: w.ID, Outcome: commit.WriteRefused})
	r.step(ask())
	w = r.land().(Write)
	r.want("4 locations UNKNOWN", Depose{})
	r.want("", r.result(w))
	r.want("5 locations NOT_LEADER", ask())
}
