package node

import (
	"slices"
	"testing"
	"time"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/meta"
)

// holding is what comes of the row limit of the first segment.
const holding = "send 0 segmentConsumed at 10; 0 is HOLDING; feed 1 reads ahead; roll over feed 1"

// held is the rig once the first segment's run is HOLDING at 10, with rows up to
// 15 waiting.
func heldConsumption(t *testing.T) *consumptionRig {
	t.Helper()
	b := startedConsumption(t, 5)
	b.rows(1, 15, holding)
	b.holds(1, 0, 10)
	return b
}

func TestCommitterHandsTheFeedOverAsItIs(t *testing.T) {
	b := heldConsumption(t)
	b.want("seal 0 at 10; 0 is COMMITTING", b.reply(1, commit.Reply{Status: commit.Commit, Offset: 10, BuildTimeSec: 126}))
	b.want("send 0 segmentCommitStart at 10", b.done(1, sealed(0, 10, "file")))
	b.want("send 0 segmentCommitEnd at 10", b.reply(1, commit.Reply{Status: commit.CommitContinue}))
	b.want("drop 0; 0 is COMMITTED; end 0; unclaim 0", b.reply(1, commit.Reply{Status: commit.CommitSuccess}))

	b.want("", b.image()) // it shows the segment IN_PROGRESS still
	if b.c.Done() {
		t.Fatal("the image names this node for a segment that is over, so it will for another")
	}
	b.committed(10)
	b.want("rolled over to feed 1; build 1; claim 1; feed 1 is steady", b.image())
	b.rows(1, 17, "")
	b.holds(2, 10, 17)
}

func TestToldToCatchUpItHasTheFeedStill(t *testing.T) {
	b := heldConsumption(t)
	b.want("0 is CATCHING_UP; feed 1 is steady", b.reply(1, commit.Reply{Status: commit.CatchUp, Offset: 12}))
	b.carried("send 0 segmentConsumed at 12; 0 is HOLDING; feed 1 reads ahead; roll over feed 1")
	b.holds(1, 0, 12)
}

func TestSuccessorWaitsForTheRowsThatTheOlderStillTakes(t *testing.T) {
	b := startedConsumption(t, 5)
	b.reads(1, 15)
	s := b.committed(10)
	b.want("0 is RETAINING", b.image())
	b.carried("roll over feed 1; seal 0 at 10; rolled over to feed 1; build 1; claim 1")
	b.holds(2, 10, 15)
	b.want("download 0", b.done(1, sealed(0, 10, "another file")))
	b.want("drop 0; 0 is DISCARDED; end 0; unclaim 0", b.done(1, commit.Downloaded{Digest: s.Digest}))
	b.want("", b.image())
}

func TestFeedThatIsNotWhereTheSuccessorStartsIsOpenedAnew(t *testing.T) {
	t.Run("beyond", func(t *testing.T) {
		b := startedConsumption(t, 9)
		b.committed(7)
		b.want("roll over feed 1; download 0; 0 is RETAINING; close feed 1; open feed 2 at 7; rolled over to feed 2; build 1; claim 1", b.image())
		b.rows(2, 12, "")
		b.holds(2, 7, 12)
	})
	t.Run("not there yet", func(t *testing.T) {
		b := startedConsumption(t, 5)
		s := b.committed(20_000)
		b.want("download 0; 0 is RETAINING", b.image()) // and it reads on
		b.want("drop 0; roll over feed 1; 0 is DISCARDED; end 0; unclaim 0; close feed 1; open feed 2 at 20000; rolled over to feed 2; build 1; claim 1",
			b.done(1, commit.Downloaded{Digest: s.Digest}))
	})
	t.Run("broken", func(t *testing.T) {
		b := startedConsumption(t, 5)
		b.rows(1, 10, holding)
		b.feeds[1].Err = errTest
		b.want("", b.feeds[1].FeedMoved) // whoever takes its rows next hears of it
		b.committed(10)
		b.want("seal 0 at 10; 0 is RETAINING; close feed 1; open feed 2 at 10; rolled over to feed 2; build 1; claim 1", b.image())
	})
}

func TestFeedPastAGapStandsAtEachOffsetOfTheGap(t *testing.T) {
	for _, end := range []int64{10, 13, 15} {
		b := startedConsumption(t, 5)
		b.rows(1, 10, holding)
		b.feeds[1].Fetched = 15 // the reader moved on without a row
		b.reads(1, 20)
		b.committed(end)
		b.step(b.image())
		b.pump()
		if len(b.feeds) != 1 || b.feeds[1] == nil {
			t.Errorf("at the end %d the feed is opened anew", end)
		}
		b.holds(2, 15, 20)
	}
}

func TestWaitingRowsBelowTheSuccessorsStartAreSkipped(t *testing.T) {
	b := startedConsumption(t, 5)
	b.reads(1, 15)
	b.want("send 0 segmentStoppedConsuming at 5; 0 is ERROR; feed 1 reads ahead; roll over feed 1",
		BuilderFailed{Segment: b.key(0, 0), Run: 1, Err: errTest})
	b.committed(10)
	b.want("download 0; 0 is RETAINING; skip feed 1 to 10; rolled over to feed 1; build 1; claim 1; feed 1 is steady", b.image())
	b.carried("")
	b.holds(2, 10, 15)
}

func TestBuilderThatFailsIsSaidOnce(t *testing.T) {
	b := startedConsumption(t, 5)
	failed := BuilderFailed{Segment: b.key(0, 0), Run: 1, Err: errTest}
	b.want("send 0 segmentStoppedConsuming at 5; 0 is ERROR; feed 1 reads ahead; roll over feed 1", failed)
	b.want("", failed)
	if views := b.c.Runs(); len(views) != 1 || views[0].LastError != errTest.Error() {
		t.Errorf("%+v", views)
	}
	b.log.Do(t, meta.RaiseAttempt(b.key(0, 0), 0))
	b.want("close feed 1; open feed 2 at 0; rolled over to feed 2; build 0; 0 is INITIAL_CONSUMING", b.image())
	b.rows(2, 8, "")
	b.holds(1, 0, 8)
}

func TestRebuildingHasAFeedOfItsOwn(t *testing.T) {
	b := startedConsumption(t, 9)
	b.committed(7)
	b.want("roll over feed 1; download 0; 0 is RETAINING; close feed 1; open feed 2 at 7; rolled over to feed 2; build 1; claim 1", b.image())
	b.want("", b.done(1, commit.NoSource{}))
	b.later(30*time.Second, "download 0; open private feed 3 at 0; build 0")
	b.rows(3, 5, "")
	b.holds(1, 0, 5)
	b.rows(2, 12, "")
	b.rows(3, 9, "seal 0 at 7; feed 3 reads ahead")
	b.holds(2, 7, 12)
	b.want("", b.done(1, sealed(0, 7, "another file")))
	b.want("drop 0; close feed 3; 0 is DISCARDED; end 0; unclaim 0",
		b.done(1, commit.Downloaded{Digest: b.log.Image.Segment(b.key(0, 0)).Digest}))
	b.rows(2, 13, "")
	b.holds(2, 7, 13)
}

func TestRunIsKeptUntilTheDownloadThatItStoppedHasComeBack(t *testing.T) {
	b := startedConsumption(t, 5)
	s := b.committed(20_000)
	b.want("download 0; 0 is RETAINING", b.image())
	b.feeds[1].Fetched = 20_000 // over a long gap
	b.feeds[1].stand()
	b.want("roll over feed 1; seal 0 at 20000; rolled over to feed 1; build 1; claim 1", b.feeds[1].FeedMoved)
	b.rows(1, 20_005, "")
	same := sealed(0, 20_000, "")
	same.Info.Digest = s.Digest
	b.want("stop download 0; drop 0; 0 is RETAINED; end 0", b.done(1, same))
	b.want("unclaim 0", b.done(1, commit.NoSource{}))
	b.holds(2, 20_000, 20_005)
}

func TestPrivateFeedThatBreaksEndsTheRebuild(t *testing.T) {
	b := startedConsumption(t, 9)
	b.committed(7)
	b.want("roll over feed 1; download 0; 0 is RETAINING; close feed 1; open feed 2 at 7; rolled over to feed 2; build 1; claim 1", b.image())
	b.want("", b.done(1, commit.NoSource{}))
	b.later(30*time.Second, "download 0; open private feed 3 at 0; build 0")
	b.feeds[3].Err = errTest
	b.want("feed 3 reads ahead", b.feeds[3].FeedMoved)
	b.rows(2, 12, "")
	b.holds(2, 7, 12)
}

func TestSegmentThatIsNotOursIsLetGoOnceTheImageHasCaughtUp(t *testing.T) {
	b := heldConsumption(t)
	b.replaced("me", "d")
	b.behind = true
	b.want("", b.image())
	b.behind = false
	b.want("drop 0; 0 is DISCARDED; end 0", b.image())
	if b.c.Done() {
		t.Error("its message is under way")
	}
	b.want("unclaim 0; close feed 1", b.done(1, commit.NoAnswer{}))
	if !b.c.Done() || len(b.feeds) != 0 {
		t.Errorf("%d feeds are left", len(b.feeds))
	}
}

func TestSegmentWithoutARecordIsLetGoOnceTheImageHasCaughtUp(t *testing.T) {
	b := startedConsumption(t, 5)
	b.want("", ImageSeen{Image: meta.Empty(), Incarnation: 1}) // a young image knows nothing
	b.rows(1, 8, "")
	b.want("drop 0; 0 is DISCARDED; end 0; unclaim 0; close feed 1", ImageSeen{Image: meta.Empty(), CaughtUp: true, Incarnation: 1})
}

func TestLateResultOfAnOldRunIsDropped(t *testing.T) {
	b := heldConsumption(t)
	b.replaced("me", "d")
	b.want("drop 0; 0 is DISCARDED; end 0", b.image())
	b.replaced("d", "me")
	b.want("", b.image()) // not before the message of the old one has come back
	late := b.reply(1, commit.Reply{Status: commit.Commit, Offset: 10, BuildTimeSec: 126})
	b.want("unclaim 0; close feed 1; open feed 2 at 0; rolled over to feed 2; build 0; claim 0", late)
	b.want("", late)
	b.want("", BuilderFailed{Segment: b.key(0, 0), Run: 1, Err: errTest})
	b.want("", FeedMoved{Feed: 1, Position: 99, Fetched: 99, Taken: 99, Err: errTest})
	b.rows(2, 7, "")
	b.holds(2, 0, 7)
}

func TestRunThatIsOverLeavesTheFeedToAnother(t *testing.T) {
	b := heldConsumption(t)
	b.replaced("me", "d")
	b.want("drop 0; 0 is DISCARDED; end 0", b.image())
	b.log.Do(t, meta.SetReplicas(b.partition(), []string{"me", "b", "c"}, nil))
	b.committed(10)
	b.want("rolled over to feed 1; build 1; claim 1; feed 1 is steady", b.image())
	b.carried("")
	b.holds(2, 10, 15)
	b.want("unclaim 0", b.done(1, commit.NoAnswer{}))
}

func TestAnotherStreamUnderTheOldNameIsNotRead(t *testing.T) {
	b := startedConsumption(t, 5)
	b.reads(1, 8)
	moved := b.feeds[1].FeedMoved
	moved.Epoch = "1"
	b.want("send 0 segmentStoppedConsuming at 5; 0 is ERROR; feed 1 reads ahead; roll over feed 1", moved)
	b.want("", moved)
	b.carried("")
	b.holds(1, 0, 5)
}

func TestBrokenFeedIsGoodForTheRowsThatWait(t *testing.T) {
	b := startedConsumption(t, 5)
	b.feeds[1].Err = errTest
	b.rows(1, 8, "send 0 segmentStoppedConsuming at 8; 0 is ERROR; feed 1 reads ahead; roll over feed 1")
	b.holds(1, 0, 8)
	b.want("", b.feeds[1].FeedMoved)
}

func TestNodeWithoutANameBeginsNothing(t *testing.T) {
	b := newConsumptionRig(t)
	if !b.c.Done() {
		t.Error("nothing is known yet")
	}
	seen := b.image()
	seen.Incarnation = 0
	b.want("", seen)
	if b.c.Done() {
		t.Error("the image names this node")
	}
	b.want("open feed 1 at 0; build 0; claim 0", b.image())
}

func TestSegmentWhoseConfigIsMissingIsNotBegun(t *testing.T) {
	b := newConsumptionRig(t)
	without, err := b.log.Image.With(meta.Change{Removals: []meta.Key{b.log.Image.TableConfig(b.table, 1).Key()}})
	if err != nil {
		t.Fatal(err)
	}
	seen := b.image()
	seen.Image = without
	b.want("no config for 0", seen)
	b.want("", ConsumptionTick{})
	b.want("open feed 1 at 0; build 0; claim 0", b.image())
}

func TestTimerIsTheFirstDeadlineOfARun(t *testing.T) {
	b := startedConsumption(t, 5)
	age := time.Duration(b.log.Image.CurrentConfig(b.table).Segment.MaxAge)
	if at, ok := b.c.Timer(); !ok || at != age {
		t.Fatalf("%s, %t, want %s: the first row is of 0s", at, ok, age)
	}
	b.later(age-1, "")
	b.later(1, "send 0 segmentConsumed at 5; 0 is HOLDING; feed 1 reads ahead; roll over feed 1")
	if at, ok := b.c.Timer(); ok {
		t.Fatalf("%s, and it waits for an answer only", at)
	}
}

func TestRowsAreOfferedByWhoReadsTheirFeedAndAsFarAsItIsKnown(t *testing.T) {
	b := startedConsumption(t, 5)
	b.reads(1, 7)
	at := slices.Clone(b.c.Reading())
	if want := (Reading{Feed: 1, Segment: b.key(0, 0), Run: 1}); len(at) != 1 || at[0] != want {
		t.Fatalf("%v, want %v", at, want)
	}
	for _, c := range []struct {
		at     Reading
		offset int64
		want   commit.Verdict
	}{
		{Reading{Feed: 2, Run: 1}, 5, commit.LeaveRow},
		{Reading{Feed: 1, Run: 2}, 5, commit.LeaveRow},
		{at[0], 4, commit.SkipRow},
		{at[0], 5, commit.AppendRow},
		{at[0], 7, commit.LeaveRow}, // its stream may be another one
		{at[0], 6, commit.AppendRow},
	} {
		if got := b.c.Offer(0, c.at, c.offset, 100); got != c.want {
			t.Errorf("row %d of %+v: verdict %d, want %d", c.offset, c.at, got, c.want)
		}
	}
}

// TestOfferDoesNotAllocate, as it is called for each row.
func TestOfferDoesNotAllocate(t *testing.T) {
	b := startedConsumption(t, 1, func(c *meta.Config) { c.Segment.MaxRows = 1 << 40 })
	b.reads(1, 1000)
	at, offset := b.c.Reading()[0], int64(1)
	if n := testing.AllocsPerRun(500, func() { b.c.Offer(0, at, offset, 100); offset++ }); n != 0 {
		t.Errorf("%g allocations for each row", n)
	}
}

func BenchmarkConsumptionOffer(b *testing.B) {
	rig := newConsumptionRig(b, func(c *meta.Config) { c.Segment.MaxRows = 1 << 40; c.Segment.MaxBytes = 1 << 50 })
	rig.step(rig.image())
	rig.step(FeedMoved{Feed: 1, Fetched: 1 << 40, Epoch: "0", Waiting: true})
	at := rig.c.Reading()[0]
	b.ReportAllocs()
	for i := range b.N {
		if rig.c.Offer(0, at, int64(i), 100) != commit.AppendRow {
			b.Fatal("left")
		}
	}
}
