package node

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
	"github.com/shoalstore/shoal/segment"
)

var errTest = errors.New("it failed")

// Of a copy that no record explains.

func TestAbsenceFromAnImageThatIsBehindRemovesNothing(t *testing.T) {
	b := newRig(t)
	k := b.key(0, 7) // no record has it
	b.want("", holds(k, other(k, "build")))
	b.later(time.Hour, "")
	reg := b.register()
	reg.HighWatermark += 5 // the log is longer than what this image has
	b.want("", reg)
	b.later(time.Hour, "")
	b.want("", ImageChanged{Image: b.log.Image})
}

func TestAllCachesWipedRemovesNothingAndWithdrawsNothing(t *testing.T) {
	b := newRig(t)
	s := b.commit(0)
	b.lists(s, "b", "c")
	b.m = b.machine(good(s))
	reg := b.register()
	b.want("", reg) // its image is empty
	b.later(time.Hour, "")
	// The log comes again from its start, a batch at a time.
	im := meta.Empty()
	for _, batch := range b.log.Batches {
		next, err := im.Apply(batch)
		if err != nil {
			t.Fatal(err)
		}
		im = next
		got := b.step(ImageChanged{Image: im, Touched: keysOf(batch)})
		if got != "" && got != "report 1 confirm 0/0" && got != "report 1 add 0/0" {
			t.Fatalf("at offset %d: %s", im.Next(), got)
		}
	}
}

func keysOf(b *meta.Batch) (keys []meta.Key) {
	for k := range b.Keys() {
		keys = append(keys, k)
	}
	return keys
}

func TestUnexplainedCopyIsSetAsideOnceTheImageHasCaughtUp(t *testing.T) {
	b := newRig(t)
	k := b.key(0, 7)
	b.want("", holds(k, other(k, "build")))
	b.want("set aside 0/7", b.register())
	b.want("", RemoveDone{Held: other(k, "build"), Err: errTest})
	b.later(999*time.Millisecond, "")
	b.later(time.Millisecond, "set aside 0/7")
	b.want("", holds(k))
	b.want("", RemoveDone{Held: other(k, "build")})
	b.later(time.Hour, "")
}

// The registration's answer may come after the last batch: nothing more will
// come to say that the image has caught up.
func TestAnIdleLogIsCaughtUpWith(t *testing.T) {
	b := newRig(t)
	k := b.key(0, 7)
	b.want("", holds(k, other(k, "build")))
	b.want("", ImageChanged{Image: b.log.Image, Touched: []meta.Key{}})
	b.want("set aside 0/7", b.register())
}

func TestImageOfAnEarlierEpochHasNotCaughtUp(t *testing.T) {
	b := newRig(t)
	k := b.key(0, 7)
	b.want("", holds(k, other(k, "build")))
	reg := b.register()
	reg.Epoch++
	b.want("", reg)
	b.log.TakeOver(t)
	b.want("set aside 0/7", b.image())
}

func TestQuarantinedCopyThatNoRecordExplainsStays(t *testing.T) {
	b := newRig(t)
	k := b.key(0, 7)
	b.want("", b.register())
	h := other(k, "build")
	h.State = segment.StateQuarantined
	b.want("", holds(k, h))
	b.later(time.Hour, "")
}

func TestTombstoneExplainsACopyAndLetsItGoWhenExpired(t *testing.T) {
	b := newRig(t)
	s := b.commit(0)
	k := s.SegmentKey()
	b.show()
	b.step(holds(k, good(s)))
	b.step(b.register())
	b.delete(k, false)
	b.want("", b.image())
	b.later(100*time.Hour, "")
	b.delete(k, true)
	b.want("remove 0/0", b.image())
}

// delete replaces the record by a tombstone, as the leader will.
func (b *rig) delete(k meta.SegmentKey, expired bool) {
	b.Helper()
	b.log.Do(b, func(im *meta.Image, now int64) (meta.Change, error) {
		c := meta.Change{Upserts: []meta.Record{&meta.Tombstone{Table: k.Table, Partition: k.Partition, Seq: k.Seq, DeletedAt: now, Expired: expired}}}
		if s := im.Segment(k); s != nil {
			p := im.Partition(k.Table, k.Partition).Clone()
			p.FirstRetained = s.End
			c.Upserts, c.Removals = append(c.Upserts, p), []meta.Key{s.Key()}
		}
		return c, nil
	})
}

// Of a segment that is consuming, or claimed.

func TestFilesOfAConsumingSegmentAreTheConsumers(t *testing.T) {
	b := newRig(t)
	k := b.key(0, 0)
	b.want("", b.register())
	b.want("", holds(k, other(k, "sealed, not committed"), other(k, "at another offset")))
	b.later(time.Hour, "")
}

func TestClaimedSegmentIsLeftAlone(t *testing.T) {
	b := newRig(t)
	b.want("", b.register())
	gone, k := b.key(1, 9), b.key(0, 0)
	b.want("", Claimed{gone})
	b.want("", holds(gone, other(gone, "build")))
	b.want("", Claimed{k})
	b.want("", holds(k, other(k, "build")))
	s := b.commitBy(0, "b")
	b.lists(s, "c", "d")
	b.want("", b.image()) // neither fetched nor removed
	b.later(time.Hour, "")
	// What the run installs is reported all the same: it counts from now on.
	b.want("report 1 add 0/0", holds(k, good(s), other(k, "build")))
	b.want("set aside 1/9", Unclaimed{gone})
	b.want("remove 0/0", Unclaimed{k})
}

func TestClaimStopsAFetchThatWaits(t *testing.T) {
	b := newRig(t)
	s := b.commitBy(0, "b")
	b.show()
	b.want("fetch 0/0", b.register())
	b.want("", FetchDone{Segment: s.SegmentKey(), Err: errTest})
	b.want("", Claimed{s.SegmentKey()})
	b.later(time.Hour, "")
	b.want("fetch 0/0", Unclaimed{s.SegmentKey()})
}

// Of fetching.

func TestWantedCopyIsFetchedAndReported(t *testing.T) {
	b := newRig(t)
	b.want("", b.register())
	s := b.commitBy(0, "b")
	k := s.SegmentKey()
	b.want("fetch 0/0", b.image())
	b.want("report 1 add 0/0", holds(k, good(s)))
	b.want("", FetchDone{Segment: k})
	b.lists(s, "me")
	b.want("", b.image())
	b.want("", ReportDone{Sequence: 1, Verdicts: meta.LocationVerdicts{Add: []meta.Verdict{{Accepted: true}}}})
	b.later(time.Hour, "")
}

func TestFetchIsRetriedWithBackOffAndAtOnceWhenSomethingChanged(t *testing.T) {
	b := newRig(t)
	s := b.commitBy(0, "b")
	k := s.SegmentKey()
	b.show()
	b.want("fetch 0/0", b.register())
	for _, wait := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		b.want("", FetchDone{Segment: k, Err: errTest})
		b.later(wait*time.Second-1, "")
		b.later(1, "fetch 0/0")
	}
	b.want("", FetchDone{Segment: k, Err: errTest})
	b.lists(s, "c") // another source
	b.want("fetch 0/0", b.image())
	b.want("", FetchDone{Segment: k, Err: errTest})
	b.down("c")
	b.want("fetch 0/0", b.image())
	b.want("", FetchDone{Segment: k, Err: errTest})
	b.lists(b.commitBy(1, "c"), "b") // b's record changes, but not what its copies are worth
	b.want("fetch 1/0", b.image())
	b.later(999*time.Millisecond, "")
}

func TestNothingIsStartedBeforeTheNodeIsRegistered(t *testing.T) {
	b := newRig(t)
	s := b.commit(0)
	b.want("", b.image())
	b.want("", holds(s.SegmentKey(), damaged(s)))
	b.later(time.Hour, "")
	b.want("fetch 0/0; report 1 withdraw 0/0", b.register())
}

func TestNobodyFetchesWhatDoesNotNameIt(t *testing.T) {
	b := newRig(t)
	b.log.Do(t, meta.SetReplicas(meta.PartitionKey{Table: b.table, Partition: 0}, []string{"b", "c", "d"}, nil))
	b.commit(0) // the successor has the new replicas
	s := b.commit(0)
	b.show()
	b.step(b.register())
	if s.Seq != 1 || s.Replicas[0] != "b" {
		t.Fatalf("%d on %v", s.Seq, s.Replicas)
	}
	if n := b.m.judge(s.SegmentKey()); n != (need{digest: s.Digest}) {
		t.Fatalf("%+v", n)
	}
}

func TestWhatIsUnderWayIsBounded(t *testing.T) {
	b := newRig(t, withDeepStore)
	var segments []*meta.Segment
	for range 20 {
		segments = append(segments, b.commit(0))
	}
	b.show()
	got := b.step(b.register())
	want := "fetch 0/0; fetch 0/1; fetch 0/2; fetch 0/3; report 1 withdraw"
	if got[:len(want)] != want {
		t.Fatal(got)
	}
	if fetches, _ := b.m.Waiting(); fetches != 16 || b.m.Busy() != 4 {
		t.Fatalf("%d wait, %d under way", fetches, b.m.Busy())
	}
	b.want("fetch 0/4", FetchDone{Segment: b.key(0, 2), Err: errTest})
	b.want("fetch 0/5", FetchDone{Segment: b.key(0, 0), Err: errTest})
}

func TestCostOfAStepDoesNotGrowWithWhatWaits(t *testing.T) {
	b := newRig(t)
	for range 3000 {
		b.commitBy(0, "b")
	}
	b.show()
	b.step(b.register())
	allocs := testing.AllocsPerRun(50, func() { b.step(FetchDone{Segment: b.key(1, 99), Err: errTest}) })
	if fetches, _ := b.m.Waiting(); fetches != 2996 {
		t.Fatalf("%d wait", fetches)
	}
	if allocs > 50 {
		t.Fatalf("a step that has nothing to start makes %v allocations while 3000 segments wait", allocs)
	}
}

// Of damage.

func TestDamagedCopyIsWithdrawnFetchedAgainAndLetGo(t *testing.T) {
	b := newRig(t)
	s := b.commit(0) // by me
	k := s.SegmentKey()
	b.lists(s, "b")
	b.show()
	b.step(holds(k, good(s)))
	b.want("report 1 confirm 0/0", b.register())
	b.step(b.deliver(b.m.reports.sent))
	b.show()

	b.want("fetch 0/0; report 2 withdraw 0/0", holds(k, damaged(s)))
	b.step(b.deliver(b.m.reports.sent))
	b.want("", b.image())
	if l := b.log.Image.Segment(k).NodeLocation("me"); l != nil {
		t.Fatal("it is listed still")
	}
	// One counted copy is left, at b: the damaged file may have pieces that it has
	// not.
	b.want("report 3 add 0/0", holds(k, good(s), damaged(s)))
	b.want("", FetchDone{Segment: k})
	b.step(b.deliver(b.m.reports.sent))
	b.want("remove 0/0 damaged", b.image())
}

func TestCopyThatCameBackBeforeItWasWithdrawnStaysListed(t *testing.T) {
	b := newRig(t)
	s := b.commit(0)
	k := s.SegmentKey()
	b.show()
	b.step(holds(k, good(s)))
	b.want("report 1 confirm 0/0", b.register())
	b.want("fetch 0/0", holds(k, damaged(s))) // the report is under way
	b.want("", holds(k, good(s), damaged(s)))
	b.want("", FetchDone{Segment: k})
	b.want("report 2 confirm 0/0", b.deliver(b.m.reports.sent)) // it is another copy
	b.want("", b.deliver(b.m.reports.sent))
	b.later(time.Hour, "")
}

// What may be removed of a committed segment's files, and what not.
func TestFilesThatAreNotTheCommittedOne(t *testing.T) {
	for _, c := range []struct {
		name      string
		elsewhere []string // nodes that list it, of which those in down are DOWN
		down      []string
		own       bool // the node holds and lists the committed copy
		deep      bool // a verified copy is in the deep store
		behind    bool // the image has not caught up
		goes      bool
	}{
		{name: "nobody else has it"},
		{name: "one other has it", elsewhere: []string{"b"}},
		{name: "one other and this node have it", elsewhere: []string{"b"}, own: true, goes: true},
		{name: "only this node has it", own: true},
		{name: "two others have it", elsewhere: []string{"b", "d"}, goes: true},
		{name: "two others have it, one is DOWN", elsewhere: []string{"b", "d"}, down: []string{"b"}},
		{name: "two others have it, one is DOWN, this node has it", elsewhere: []string{"b", "d"}, down: []string{"b"}, own: true, goes: true},
		{name: "two others have it, by an image of another time", elsewhere: []string{"b", "d"}, behind: true},
		{name: "it is in the deep store", deep: true, goes: true},
		{name: "it is in the deep store, by an image of another time", deep: true, behind: true},
	} {
		for _, file := range []string{"another build", "a damaged copy"} {
			t.Run(c.name+", "+file, func(t *testing.T) {
				b := newRig(t, withDeepStore)
				s := b.commitBy(0, "c")
				k := s.SegmentKey()
				b.lists(s, c.elsewhere...)
				held := []segment.Held{damaged(s)}
				if file == "another build" {
					held[0] = other(k, "build")
				}
				if c.own {
					b.lists(s, "me")
					held = append(held, good(s))
				}
				if c.deep {
					b.log.Do(t, meta.SetDeepStoreLocation(k, s.Digest, "file:///deep/x", true))
				}
				b.down(append(c.down, "c")...)
				b.m = b.machine(held...)
				b.show()
				reg := b.register()
				if c.behind {
					reg.HighWatermark++
				}
				b.step(ImageChanged{Image: b.log.Image})
				removed := false
				for _, a := range b.m.Step(b.now, reg) {
					if r, ok := a.(Remove); ok {
						removed = true
						if isCopy(r.Held, s.Digest) {
							t.Fatal("the committed copy goes")
						}
					}
				}
				if removed != c.goes {
					t.Fatalf("removed: %v", removed)
				}
			})
		}
	}
}

func TestRemovalThatFailsIsNotRepeatedAtOnce(t *testing.T) {
	b := newRig(t)
	s := b.commitBy(0, "b")
	k := s.SegmentKey()
	b.lists(s, "c")
	b.show()
	b.step(holds(k, other(k, "one"), other(k, "two")))
	b.want("fetch 0/0; remove 0/0", b.register())
	for _, wait := range []time.Duration{1, 2, 4} {
		b.want("", RemoveDone{Held: other(k, "one"), Err: segment.ErrPinned})
		b.lists(s, "d") // something else about the segment changes
		b.want("", b.image())
		b.later(wait*time.Second-1, "")
		b.later(1, "remove 0/0")
	}
	b.want("", holds(k, other(k, "two")))
	b.want("remove 0/0", RemoveDone{Held: other(k, "one")}) // and the next
}

// Of a segment that nobody has.

func TestSegmentWithoutASourceIsRebuiltAfter10H(t *testing.T) {
	b := newRig(t)
	for range 60 { // many more than are fetched at once
		b.commitBy(0, "b")
	}
	b.down("b")
	b.show()
	rebuilt := map[meta.SegmentKey]time.Duration{}
	b.run(b.register(), 40*time.Second, func(a Action) Event {
		switch a := a.(type) {
		case Fetch:
			return FetchDone{Segment: a.Segment, NoSource: true, Err: errTest}
		case Rebuild:
			if rebuilt[a.Segment] == 0 {
				rebuilt[a.Segment] = b.now
			}
			return RebuildDone{Segment: a.Segment, Err: errTest}
		}
		return nil
	})
	if len(rebuilt) != 60 {
		t.Fatalf("%d rebuilt", len(rebuilt))
	}
	for k, at := range rebuilt {
		if at < 30*time.Second || at > 32*time.Second {
			t.Fatalf("%s rebuilt at %s, without a source since 0 s", short(k), at)
		}
	}
}

func TestRebuildAndFetchOfASegmentExcludeEachOther(t *testing.T) {
	b := newRig(t)
	s := b.commitBy(0, "b")
	k := s.SegmentKey()
	b.show()
	b.want("fetch 0/0", b.register())
	b.want("", FetchDone{Segment: k, NoSource: true, Err: errTest})
	b.later(30*time.Second-1, "fetch 0/0") // a source is looked for until the end
	b.later(10*time.Second, "")            // it is being looked for still
	b.want("rebuild 0/0 to 10", FetchDone{Segment: k, NoSource: true, Err: errTest})
	b.lists(s, "c")
	b.want("", b.image()) // there is a source now, but the rebuild is under way
	b.want("fetch 0/0", RebuildDone{Segment: k, Err: errTest})
	b.want("report 1 add 0/0", holds(k, good(s)))
	b.want("", FetchDone{Segment: k})
	b.step(b.deliver(b.m.reports.sent))
	b.image()
	b.later(time.Hour, "")
}

func TestSourceThatWasThereMeanwhileStartsThePatienceAnew(t *testing.T) {
	b := newRig(t)
	k := b.commitBy(0, "b").SegmentKey()
	b.show()
	b.want("fetch 0/0", b.register())
	b.want("", FetchDone{Segment: k, NoSource: true, Err: errTest})
	b.later(20*time.Second, "fetch 0/0")
	b.want("", FetchDone{Segment: k, Err: errTest}) // somebody gave bytes, and the disk was full
	b.later(20*time.Second, "fetch 0/0")
	b.want("", FetchDone{Segment: k, NoSource: true, Err: errTest})
	b.later(29*time.Second, "fetch 0/0")
	b.want("", FetchDone{Segment: k, NoSource: true, Err: errTest})
	b.later(time.Second, "rebuild 0/0 to 10")
}

// The same rows give the same bytes: a rebuild that differs would differ again.
func TestRebuildThatDiffersIsNotRepeatedEachMinute(t *testing.T) {
	b := newRig(t)
	k := b.commitBy(0, "b").SegmentKey()
	b.show()
	b.step(b.register())
	b.step(FetchDone{Segment: k, NoSource: true, Err: errTest})
	rebuilds := 0
	b.run(Tick{}, 4*time.Hour, func(a Action) Event {
		switch a.(type) {
		case Fetch:
			return FetchDone{Segment: k, NoSource: true, Err: errTest}
		case Rebuild:
			rebuilds++
			b.step(holds(k, other(k, "it differs")))
			return RebuildDone{Segment: k, Err: errTest}
		}
		return nil
	})
	if rebuilds < 5 || rebuilds > 25 {
		t.Fatalf("%d rebuilds in 4 hours", rebuilds)
	}
}

func TestRebuildsAreBounded(t *testing.T) {
	b := newRig(t)
	for range 10 {
		b.commitBy(0, "b")
	}
	b.show()
	running := 0
	b.run(b.register(), 5*time.Minute, func(a Action) Event {
		switch a := a.(type) {
		case Fetch:
			return FetchDone{Segment: a.Segment, NoSource: true, Err: errTest}
		case Rebuild:
			running++ // and does not end
		}
		return nil
	})
	if running != 1 {
		t.Fatalf("%d rebuilds at once", running)
	}
}

// Of uploads.

func TestWhoUploads(t *testing.T) {
	for _, c := range []struct {
		name      string
		committer string
		listed    []string
		down      []string
		verified  bool
		again     bool // the committer lost its copy, and has it again
		uploads   bool
	}{
		{name: "the committer", committer: "me", uploads: true},
		{name: "not another while the committer has it", committer: "b", listed: []string{"me"}},
		{name: "not another while the committer has it again", committer: "b", listed: []string{"me"}, again: true},
		{name: "the first that counts when the committer is DOWN", committer: "b", listed: []string{"me", "c"}, down: []string{"b"}, uploads: true},
		{name: "not the second", committer: "b", listed: []string{"c", "me"}, down: []string{"b"}},
		{name: "the second when the first is DOWN too", committer: "b", listed: []string{"c", "me"}, down: []string{"b", "c"}, uploads: true},
		{name: "nobody once it is verified", committer: "me", verified: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newRig(t, withDeepStore)
			s := b.commitBy(0, c.committer)
			b.lists(s, c.listed...)
			if c.again {
				b.loses(s, c.committer)
				b.lists(s, c.committer)
			}
			b.down(c.down...)
			b.log.Do(t, meta.SetDeepStoreLocation(s.SegmentKey(), s.Digest, "file:///deep/x", c.verified))
			b.m = b.machine(good(s))
			b.show()
			b.step(b.register())
			if got := b.m.running[upload] == 1; got != c.uploads {
				t.Fatalf("uploads: %v", got)
			}
		})
	}
}

func TestCommitterWithoutItsCopyLeavesTheUploadToTheNext(t *testing.T) {
	b := newRig(t, withDeepStore)
	s := b.commitBy(0, "b")
	b.lists(s, "me")
	b.m = b.machine(good(s))
	b.show()
	b.want("report 2 confirm 0/0", b.register())
	b.loses(s, "b")
	b.want("upload 0/0", b.image())
}

func TestUploadIsReportedUntilTheImageShowsItVerified(t *testing.T) {
	b := newRig(t, withDeepStore)
	s := b.commit(0)
	k := s.SegmentKey()
	b.m = b.machine(good(s))
	b.show()
	b.want("upload 0/0; report 1 confirm 0/0", b.register())
	b.step(ReportDone{Sequence: 1})
	b.want("", UploadDone{Segment: k, Err: errTest})
	b.later(time.Second, "upload 0/0")
	b.want("report 2 uploaded 0/0", UploadDone{Segment: k, Digest: s.Digest, URI: "file:///deep/x"})
	b.want("", ReportDone{Sequence: 2, Err: errTest})
	b.later(time.Second, "report 3 uploaded 0/0")
	b.want("", ReportDone{Sequence: 3})
	b.later(time.Minute-time.Second, "upload 0/0") // the leader that heard of it may be no more
	b.log.Do(t, meta.SetDeepStoreLocation(k, s.Digest, "file:///deep/x", true))
	b.want("", b.image())
	b.want("", UploadDone{Segment: k, Digest: s.Digest, URI: "file:///deep/x"})
	b.later(time.Hour, "")
}

func TestOperatorsUploadIsDoneOnceByWhoeverHasTheCopy(t *testing.T) {
	b := newRig(t, withDeepStore)
	s := b.commitBy(0, "b")
	k := s.SegmentKey()
	b.lists(s, "me")
	b.m = b.machine(good(s))
	b.show()
	b.want("report 2 confirm 0/0", b.register())
	b.step(ReportDone{Sequence: 2})
	b.want("upload 0/0; told running", UploadAsked{Segment: k})
	b.want("told running", UploadAsked{Segment: k})
	b.want("report 3 uploaded 0/0", UploadDone{Segment: k, Digest: s.Digest, URI: "file:///deep/x"})
	b.step(ReportDone{Sequence: 3})
	b.later(time.Hour, "") // b is the uploader; this node does not go on
	b.log.Do(t, meta.SetDeepStoreLocation(k, s.Digest, "file:///deep/x", true))
	b.want("", b.image())
	b.want("told done", UploadAsked{Segment: k}) // nothing is left to do
	b.want("told none", UploadAsked{Segment: b.key(1, 0)})
	if b.m.works[b.key(1, 0)] != nil {
		t.Fatal("a wish that cannot be met is kept")
	}
}

// Of reports.

func TestNewEpochIsToldOfEveryCopyOnce(t *testing.T) {
	b := newRig(t)
	one, two := b.commit(0), b.commit(1)
	b.m = b.machine(good(one), good(two))
	b.show()
	b.want("report 1 confirm 0/0 1/0", b.register())
	b.want("", b.deliver(b.m.reports.sent))
	b.want("", b.image())
	b.want("", b.register())
	b.later(time.Hour, "")

	b.log.TakeOver(t)
	b.want("", b.image())
	b.want("report 2 confirm 0/0 1/0", b.register())
	b.want("", ReportDone{Sequence: 2, Err: errTest})
	b.want("fetch 0/0", holds(one.SegmentKey())) // gone meanwhile
	b.later(time.Second, "report 3 withdraw 0/0 confirm 1/0")
}

// At a start the registration is answered before the cache of the log is read.
func TestCopiesAreConfirmedAlsoWhenTheImageComesLater(t *testing.T) {
	b := newRig(t)
	s := b.commit(0)
	b.m = b.machine(good(s))
	b.want("", b.register())
	b.want("report 1 confirm 0/0", ImageChanged{Image: b.log.Image})
}

// What was confirmed to the leader before, the new one has not heard.
func TestReportThatEndsAfterTheEpochChangedIsSaidAgain(t *testing.T) {
	b := newRig(t)
	s := b.commit(0)
	b.m = b.machine(good(s))
	b.show()
	b.want("report 1 confirm 0/0", b.register())
	b.log.TakeOver(t)
	b.show()
	b.want("", b.register())
	b.want("report 2 confirm 0/0", ReportDone{Sequence: 1})
	b.want("", ReportDone{Sequence: 2})
	b.later(time.Hour, "")
}

func TestSequenceRisesWithinAnIncarnationAndBeginsAnewInTheNext(t *testing.T) {
	b := newRig(t)
	s := b.commit(0)
	b.m = b.machine(good(s))
	b.show()
	b.want("report 1 confirm 0/0", b.register())
	b.want("", ReportDone{Sequence: 1, Err: errTest})
	b.later(time.Second, "report 2 confirm 0/0")
	b.want("", ReportDone{Sequence: 1}) // not the one under way
	var incarnation int64
	b.log.Do(t, meta.RegisterNode(meta.Registration{ID: "me", URL: "http://me", StoreID: metatest.ID("store of me"), BootID: uuid.New()}, &incarnation))
	b.show()
	b.want("", b.register())
	b.want("report 1 confirm 0/0", ReportDone{Sequence: 2, Err: errTest})
	if got := b.m.reports.sent.Incarnation; got != incarnation || incarnation != 2 {
		t.Fatalf("incarnation %d", got)
	}
}

// A sequence that is not higher than the last would be ignored for ever.
func TestSequenceGoesOnFromTheOneInTheImage(t *testing.T) {
	b := newRig(t)
	s := b.commit(0)
	b.lists(s, "me", "me", "me") // sequences 1 to 3
	b.m = b.machine(good(s))
	b.show()
	b.want("report 4 confirm 0/0", b.register())
	b.want("", ReportDone{Sequence: 4, Verdicts: meta.LocationVerdicts{Ignored: true}})
	b.later(time.Second, "report 5 confirm 0/0")
}

func TestReportsAreSaidAtOnceAfterTheNodeMetTheLeader(t *testing.T) {
	b := newRig(t)
	s := b.commit(0)
	b.m = b.machine(good(s))
	b.show()
	b.step(b.register())
	for seq := range int64(4) {
		b.step(ReportDone{Sequence: seq + 1, Err: errTest})
		b.now += time.Minute
		b.step(Tick{})
	}
	b.want("", ReportDone{Sequence: 5, Err: errTest})
	b.later(time.Second, "")
	b.want("report 6 confirm 0/0", b.register())
}

func TestReportThatFailsIsMadeSmaller(t *testing.T) {
	b := newRig(t)
	var held []segment.Held
	for range reportItems + 10 {
		held = append(held, good(b.commitBy(0, "b")))
	}
	b.m = b.machine(held...)
	b.show()
	b.step(b.register())
	for _, want := range []int{500, 250, 125, 62, 31, 15, 7, 3, 1, 1} {
		if got := len(b.m.reports.sent.Add); got != want {
			t.Fatalf("%d items, want %d", got, want)
		}
		b.step(ReportDone{Sequence: b.m.reports.sent.Sequence, Err: errTest})
		b.now += time.Minute
		b.step(Tick{})
	}
	for _, want := range []int{2, 4, 8} {
		b.step(b.deliver(b.m.reports.sent))
		if got := len(b.m.reports.sent.Add); got != want {
			t.Fatalf("%d items, want %d", got, want)
		}
	}
}

func TestReplacedStoreWithdrawsWhatIsListedInTheOldOne(t *testing.T) {
	b := newRig(t)
	s := b.commit(0)
	k := s.SegmentKey()
	b.lists(s, "b")
	b.down("me")
	var incarnation int64
	b.log.Do(t, meta.RegisterNode(meta.Registration{ID: "me", URL: "http://me", StoreID: metatest.ID("new disk"), BootID: uuid.New()}, &incarnation))
	b.m = NewMachine(MachineConfig{Node: "me", StoreID: metatest.ID("new disk")}, nil)
	b.show()
	b.want("fetch 0/0; report 1 withdraw 0/0", b.register())
	b.step(b.deliver(b.m.reports.sent))
	b.show()
	b.want("report 2 add 0/0", holds(k, good(s)))
}

func TestCopyInANewStoreTakesThePlaceOfTheOneInTheOld(t *testing.T) {
	b := newRig(t)
	s := b.commit(0)
	b.down("me")
	var incarnation int64
	b.log.Do(t, meta.RegisterNode(meta.Registration{ID: "me", URL: "http://me", StoreID: metatest.ID("new disk"), BootID: uuid.New()}, &incarnation))
	b.m = NewMachine(MachineConfig{Node: "me", StoreID: metatest.ID("new disk")}, []segment.Held{good(s)})
	b.show()
	b.want("report 1 add 0/0", b.register())
}
