package metalog

import (
	"errors"
	"fmt"
	"math/rand"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/shoalstore/shoal/meta"
)

var testTiming = FollowTiming{Poll: 5 * time.Second, BackOffMin: 100 * time.Millisecond, BackOffMax: 5 * time.Second}

// bench is a machine on a table: what it asked for last, and what it delivered.
type bench struct {
	t         testing.TB
	m         *FollowerMachine
	now       time.Duration
	next      FollowAction
	delivered []DeliverImage
	cut       []*meta.Image
}

// machineAt is a machine whose log holds batches, all of them committed.
func machineAt(t testing.TB, batches ...*meta.Batch) *bench {
	t.Helper()
	im, end := meta.Empty(), Position{}
	for _, b := range batches {
		var err error
		if im, err = im.Apply(b); err != nil {
			t.Fatal(err)
		}
		end = after(b)
	}
	b := &bench{t: t, m: NewFollowerMachine(testTiming, rand.New(rand.NewSource(1)), uuid.Nil, end, im)}
	b.step(FollowStart{})
	return b
}

// step steps the machine and checks that it asks for exactly one effect.
func (b *bench) step(ev FollowEvent) *bench {
	b.t.Helper()
	b.next = nil
	for _, a := range b.m.Step(b.now, ev) {
		if d, ok := a.(DeliverImage); ok {
			b.delivered = append(b.delivered, d)
			continue
		}
		if c, ok := a.(CutSnapshot); ok {
			b.cut = append(b.cut, c.Image)
			continue
		}
		if b.next != nil {
			b.t.Fatalf("%T and %T at once", b.next, a)
		}
		b.next = a
	}
	if b.next == nil {
		b.t.Fatalf("nothing to do after %T", ev)
	}
	return b
}

func (b *bench) want(state FollowState, action string) *bench {
	b.t.Helper()
	if got := show(b.next); b.m.state != state || got != action {
		b.t.Fatalf("%s, %s; want %s, %s (%v)", b.m.state, got, state, action, b.m.lastErr)
	}
	return b
}

func show(a FollowAction) string {
	switch a := a.(type) {
	case FindLeader:
		return "find"
	case FetchLog:
		return fmt.Sprintf("fetch %d after %d from %s as of %d", a.Query.Offset, a.Query.LastEpoch, a.URL, *a.Query.LeaderEpoch)
	case StoreEntries:
		return fmt.Sprintf("store %d..%d", a.Entries[0].Batch.Offset, a.Entries[len(a.Entries)-1].Batch.Offset)
	case TruncateLog:
		return fmt.Sprintf("truncate to %d", a.To)
	case FetchSnapshot:
		return fmt.Sprintf("fetch snapshot %d-%d from %s", a.Snapshot.EndOffset, a.Snapshot.Epoch, a.Leader.URL)
	case ResetLog:
		return fmt.Sprintf("reset to %d after %d", a.To.Offset, a.To.LastEpoch)
	case WaitUntil:
		return "wait"
	}
	return fmt.Sprintf("%T", a)
}

var leader1 = LeaderRef{URL: "http://one", Epoch: 1}

func leaderAt(epoch int64) LeaderRef {
	return LeaderRef{URL: fmt.Sprintf("http://%d", epoch), Epoch: epoch}
}

// frames is an answer of the leader of epoch with these batches.
func (b *bench) frames(epoch, highWatermark int64, batches ...*meta.Batch) FollowEvent {
	return Fetched{FetchAnswer{Leader: leaderAt(epoch), HighWatermark: highWatermark, Frames: framesOf(b.t, batches...)}}
}

func TestFollowerFetchesStoresAndDelivers(t *testing.T) {
	log := batchesOf(run{1, 3}, run{2, 2})
	b := machineAt(t).want(FollowFinding, "find")
	b.step(LeaderFound{leaderAt(2)}).want(FollowFetching, "fetch 0 after 0 from http://2 as of 2")
	b.step(b.frames(2, 5, log[:3]...)).want(FollowStoring, "store 0..2")
	if len(b.delivered) != 0 || b.m.image.Next() != 0 {
		t.Fatal("delivered before it was stored")
	}
	b.step(Stored{}).want(FollowFetching, "fetch 3 after 1 from http://2 as of 2")
	b.step(b.frames(2, 5, log[3:]...)).want(FollowStoring, "store 3..4")
	b.step(Stored{}).want(FollowFetching, "fetch 5 after 2 from http://2 as of 2")
	if len(b.delivered) != 2 || b.delivered[1].Image.Next() != 5 || b.m.image != b.delivered[1].Image {
		t.Fatalf("%d deliveries", len(b.delivered))
	}
	want := []meta.Key{{Kind: meta.KindCluster}, {Kind: meta.KindLeader}, job(0, 0).Key(), job(1, 0).Key(), job(2, 0).Key()}
	if got := b.delivered[0].Touched; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("touched %v", got)
	}
	b.now += 5 * time.Second
	b.step(b.frames(2, 5)).want(FollowFetching, "fetch 5 after 2 from http://2 as of 2")
}

func TestFollowerShowsOnlyWhatIsCommitted(t *testing.T) {
	log := batchesOf(run{1, 2}, run{2, 2})
	b := machineAt(t)
	b.step(LeaderFound{leaderAt(2)})
	b.step(b.frames(2, 1, log...)).want(FollowStoring, "store 0..3")
	b.step(Stored{}).want(FollowFetching, "fetch 4 after 2 from http://2 as of 2")
	if len(b.delivered) != 1 || b.m.image.Next() != 1 {
		t.Fatalf("the image is at %d, the high watermark at 1", b.m.image.Next())
	}
	b.step(b.frames(2, 3)).want(FollowFetching, "fetch 4 after 2 from http://2 as of 2")
	if len(b.delivered) != 2 || b.m.image.Next() != 3 {
		t.Fatalf("the image is at %d, the high watermark at 3", b.m.image.Next())
	}
}

func TestFollowerAnswersToFailures(t *testing.T) {
	failed := func(code string) FetchFailed { return FetchFailed{Code: code, Err: errors.New(code)} }
	for _, c := range []struct {
		code   string
		state  FollowState
		action string
	}{
		{CodeFencedLeaderEpoch, FollowFinding, "find"},
		{CodeNotLeader, FollowFinding, "find"},
		{CodeUnknownLeaderEpoch, FollowWaiting, "wait"},
		{CodeNotAvailable, FollowWaiting, "wait"},
		{"", FollowWaiting, "wait"},
		{"INTERNAL", FollowWaiting, "wait"},
		{CodeInvalidRequest, FollowWaiting, "wait"},
		{CodeInconsistentClusterID, FollowFault, "wait"},
	} {
		t.Run(c.code, func(t *testing.T) {
			b := machineAt(t, batchesOf(run{1, 3})...)
			b.step(LeaderFound{leader1})
			b.step(failed(c.code)).want(c.state, c.action)
			if b.m.lastErr == nil {
				t.Fatal("nothing is said of it")
			}
			if c.action == "wait" {
				b.step(FollowTick{}).want(FollowFinding, "find")
			}
			b.step(LeaderFound{leader1}).want(FollowFetching, "fetch 3 after 1 from http://one as of 1")
			// Twice in a row is never a circle without a wait.
			b.step(failed(c.code))
			if show(b.next) != "wait" {
				t.Fatalf("again at once: %s", show(b.next))
			}
		})
	}
	b := machineAt(t)
	b.step(LeaderNotFound{errors.New("nobody")}).want(FollowWaiting, "wait").step(FollowTick{}).want(FollowFinding, "find")
}

func TestFollowerBacksOffWithJitterUpToItsMost(t *testing.T) {
	b := machineAt(t)
	seen := map[time.Duration]bool{}
	for i := range 20 {
		b.step(LeaderNotFound{errors.New("nobody")})
		d := b.next.(WaitUntil).At - b.now
		most := min(testTiming.BackOffMin<<i, testTiming.BackOffMax)
		if d < most/2 || d > most {
			t.Fatalf("wait %d is %s, want between %s and %s", i, d, most/2, most)
		}
		seen[d] = true
		b.now += d
		b.step(FollowTick{})
	}
	if len(seen) < 15 {
		t.Fatalf("%d different waits of 20", len(seen))
	}
	b.step(LeaderFound{leader1})
	b.step(b.frames(1, 1, batchesOf(run{1, 1})...)).step(Stored{})
	b.step(FetchFailed{Err: errors.New("away")})
	if d := b.next.(WaitUntil).At - b.now; d > testTiming.BackOffMin {
		t.Fatalf("after a success it waits %s", d)
	}
}

func TestFollowerDoesNotSpinOnALeaderThatDoesNotHoldThePoll(t *testing.T) {
	b := machineAt(t, batchesOf(run{1, 1})...)
	b.step(LeaderFound{leader1})
	b.step(b.frames(1, 1)).want(FollowWaiting, "wait")
	if b.m.lastErr != nil || b.m.failures != 0 {
		t.Fatal("it is no failure")
	}
}

func TestScenario25AnswersThatDoNotContinueTheLog(t *testing.T) { // METALOG §5, 25
	have := batchesOf(run{1, 3})
	wrongTerm := batchAt(3, 1, false)
	wrongTerm.Term = termOf(9)
	back := batchAt(3, 1, false)
	back.Time = 1
	breaks := batchAt(3, 1, false)
	breaks.Removals = []meta.Key{job(77, 0).Key()}
	flipped := func(b *meta.Batch) []byte { f := framesOf(t, b); f[len(f)-9] ^= 1; return f }
	for name, frames := range map[string][]byte{
		"garbage":                  []byte(strings.Repeat("garbage ", 30)),
		"a frame that is cut":      framesOf(t, batchAt(3, 1, false))[:50],
		"a flipped bit":            flipped(batchAt(3, 1, false)),
		"no batch in the frame":    AppendFrame(nil, []byte("what?")),
		"an offset left out":       framesOf(t, batchAt(4, 1, false)),
		"an offset again":          framesOf(t, batchAt(2, 1, false)),
		"good, then an offset out": framesOf(t, batchAt(3, 1, false), batchAt(5, 1, false)),
		"an epoch without leader":  framesOf(t, batchAt(3, 2, false)),
		"another term":             framesOf(t, wrongTerm),
		"time goes back":           framesOf(t, back),
		"a broken invariant":       framesOf(t, breaks),
	} {
		t.Run(name, func(t *testing.T) {
			b := machineAt(t, have...)
			b.step(LeaderFound{leader1})
			b.step(Fetched{FetchAnswer{Leader: leader1, HighWatermark: 9, Frames: frames}}).want(FollowFault, "wait")
			if b.m.lastErr == nil || b.m.end.Offset != 3 || b.m.image.Next() != 3 || len(b.delivered) != 0 {
				t.Fatalf("log at %d, image at %d, error %v", b.m.end.Offset, b.m.image.Next(), b.m.lastErr)
			}
			// Alive: it asks again, and a good answer heals it.
			b.step(FollowTick{}).step(LeaderFound{leader1}).want(FollowFetching, "fetch 3 after 1 from http://one as of 1")
			b.step(b.frames(1, 4, batchAt(3, 1, false))).step(Stored{}).want(FollowFetching, "fetch 4 after 1 from http://one as of 1")
			if b.m.lastErr != nil || b.m.image.Next() != 4 {
				t.Fatalf("image at %d, error %v", b.m.image.Next(), b.m.lastErr)
			}
		})
	}
}

func TestFollowerRefusesTheLogOfAnotherCluster(t *testing.T) {
	m := NewFollowerMachine(testTiming, rand.New(rand.NewSource(1)), uuid.New(), Position{}, meta.Empty())
	b := &bench{t: t, m: m}
	b.step(FollowStart{}).step(LeaderFound{leader1})
	if id := b.next.(FetchLog).Query.ClusterID; id == nil || *id != m.cluster.String() {
		t.Fatal("the fetch does not name the cluster")
	}
	b.step(b.frames(1, 1, batchesOf(run{1, 1})...)).want(FollowFault, "wait")
}

func TestFollowerIgnoresALeaderOfThePast(t *testing.T) {
	b := machineAt(t, batchesOf(run{1, 1})...)
	b.step(LeaderFound{leaderAt(3)})
	b.step(b.frames(2, 2, batchAt(1, 1, false))).want(FollowWaiting, "wait")
	if b.m.end.Offset != 1 {
		t.Fatal("its batch was taken")
	}
}

func TestFollowerThatNeedsASnapshotSaysSoAndKeepsItsImage(t *testing.T) {
	b := machineAt(t, batchesOf(run{1, 3})...)
	b.step(LeaderFound{leaderAt(2)})
	b.step(Fetched{FetchAnswer{Leader: leaderAt(2), HighWatermark: 500, Snapshot: snap(400, 2)}}).want(FollowNeedsSnapshot, "wait")
	if b.m.snapshot.EndOffset != 400 || !strings.Contains(b.m.lastErr.Error(), b.m.snapshot.String()) || b.m.image.Next() != 3 {
		t.Fatalf("snapshot %v, error %v", b.m.snapshot, b.m.lastErr)
	}
	b.step(FollowTick{}).want(FollowFinding, "find").step(LeaderFound{leaderAt(2)}).want(FollowFetching, "fetch 3 after 1 from http://2 as of 2")
	b.step(b.frames(2, 4, batchAt(3, 2, true))).step(Stored{})
	if b.m.snapshot != nil || b.m.lastErr != nil {
		t.Fatal("it still asks for it")
	}
}

func TestFollowerCutsWhatIsNotCommittedAndNothingElse(t *testing.T) {
	log := batchesOf(run{1, 2}, run{2, 2}, run{4, 3})
	for _, c := range []struct {
		name      string
		committed int64 // of the 7 batches here
		diverging Diverging
		want      string
	}{
		{"the leader's epoch ends in ours", 2, Diverging{2, 3}, "truncate to 3"},
		{"our epoch ends first", 2, Diverging{2, 9}, "truncate to 4"},
		{"an epoch that we do not have", 2, Diverging{3, 6}, "truncate to 4"},
		{"to the high watermark", 3, Diverging{2, 3}, "truncate to 3"},
		{"just below it", 4, Diverging{2, 3}, "fault"},
		{"all the way", 2, Diverging{0, 0}, "fault"},
		{"into an epoch that is committed", 3, Diverging{1, 9}, "fault"},
		{"everything is committed", 7, Diverging{4, 6}, "fault"},
		{"nothing to cut: another leader of that epoch", 2, Diverging{4, 7}, "fault"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := machineAt(t)
			b.step(LeaderFound{leaderAt(4)})
			b.step(b.frames(4, c.committed, log...)).step(Stored{})
			b.step(Fetched{FetchAnswer{Leader: leaderAt(4), HighWatermark: c.committed, Diverging: &c.diverging}})
			if c.want == "fault" {
				b.want(FollowFault, "wait")
				if b.m.image.Next() != c.committed || b.m.end.Offset != 7 {
					t.Fatal("something was cut")
				}
				return
			}
			b.want(FollowTruncating, c.want)
			to := b.next.(TruncateLog).To
			b.step(Truncated{To: to}).want(FollowFetching, fmt.Sprintf("fetch %d after %d from http://4 as of 4", to, log[to-1].Epoch))
			// What replaces it.
			b.step(b.frames(5, to+1, batchAt(to, 5, true))).step(Stored{})
			if b.m.image.Next() != to+1 || b.m.image.Epoch() != 5 {
				t.Fatalf("the image is at %d of epoch %d", b.m.image.Next(), b.m.image.Epoch())
			}
		})
	}
}

func TestFollowerTriesAgainWhenItsDiskRefuses(t *testing.T) {
	b := machineAt(t)
	b.step(LeaderFound{leader1}).step(b.frames(1, 2, batchesOf(run{1, 2})...))
	b.step(Stored{errors.New("disk full")}).want(FollowWaiting, "wait")
	if b.m.end.Offset != 0 || b.m.image.Next() != 0 {
		t.Fatal("taken for stored")
	}
	b.step(FollowTick{}).step(LeaderFound{leader1}).want(FollowFetching, "fetch 0 after 0 from http://one as of 1")
	// It waits longer and longer, although each fetch goes well, and says so once.
	waited := time.Duration(0)
	for range 10 {
		b.step(b.frames(1, 2, batchesOf(run{1, 2})...))
		if b.m.lastErr == nil {
			t.Fatal("a fetch alone is taken for the end of the trouble")
		}
		b.step(Stored{errors.New("disk full")})
		waited = b.next.(WaitUntil).At - b.now
		b.step(FollowTick{}).step(LeaderFound{leader1})
	}
	if waited < testTiming.BackOffMax/2 {
		t.Fatalf("it waits for %s after ten failures", waited)
	}
	b.step(b.frames(1, 2, batchesOf(run{1, 2})...)).step(Stored{})
	if b.m.failures != 0 || b.m.lastErr != nil || b.m.image.Next() != 2 {
		t.Fatalf("%d failures, %v, the image is at %d", b.m.failures, b.m.lastErr, b.m.image.Next())
	}
}

// Whatever comes, in whatever order the outside can make of it, the machine asks for
// one effect, never delivers what is not stored or goes back, and ends at the leader's
// log when it is answered properly.
func TestFollowerMachineHoldsItsInvariants(t *testing.T) {
	log := batchesOf(run{1, 4}, run{2, 3}, run{5, 4})
	size := int64(len(log))
	images := []*meta.Image{meta.Empty()} // by the offset after their last batch
	for _, batch := range log {
		im, err := images[len(images)-1].Apply(batch)
		if err != nil {
			t.Fatal(err)
		}
		images = append(images, im)
	}
	rapid.Check(t, func(rt *rapid.T) {
		b := machineAt(t, log[:rapid.IntRange(0, len(log)).Draw(rt, "have")]...)
		if rapid.Bool().Draw(rt, "fetches snapshots") {
			b.m.FetchesSnapshots()
		}
		stored := b.m.end.Offset
		shown := b.m.image.Next()
		answer := func(honest bool) FollowEvent {
			switch a := b.next.(type) {
			case FindLeader:
				if !honest && rapid.Bool().Draw(rt, "no leader") {
					return LeaderNotFound{errors.New("nobody")}
				}
				return LeaderFound{leaderAt(5)}
			case WaitUntil:
				b.now = a.At
				return FollowTick{}
			case StoreEntries:
				if !honest && rapid.Bool().Draw(rt, "disk full") {
					return Stored{errors.New("disk full")}
				}
				stored = after(a.Entries[len(a.Entries)-1].Batch).Offset
				return Stored{}
			case TruncateLog:
				if a.To < shown {
					rt.Fatalf("cut to %d, %d were shown", a.To, shown)
				}
				stored = a.To
				return Truncated{To: a.To}
			case FetchSnapshot:
				if !honest {
					switch rapid.IntRange(0, 3).Draw(rt, "snapshot") {
					case 0:
						return SnapshotFetched{Err: ErrSnapshotNotFound}
					case 1:
						return SnapshotFetched{Err: errors.New("cut off")}
					case 2:
						return SnapshotFetched{Image: images[rapid.Int64Range(0, size).Draw(rt, "another")]}
					}
				}
				return SnapshotFetched{Image: images[a.Snapshot.EndOffset]}
			case ResetLog:
				if !honest && rapid.Bool().Draw(rt, "disk full") {
					return LogReset{errors.New("disk full")}
				}
				stored = a.To.Offset
				return LogReset{}
			}
			at := b.next.(FetchLog).Query.Offset
			if at != stored {
				rt.Fatalf("fetch from %d, the log ends at %d", at, stored)
			}
			kind := 0
			if !honest {
				kind = rapid.IntRange(0, 5).Draw(rt, "answer")
			}
			switch kind {
			case 1:
				return FetchFailed{Code: rapid.SampledFrom([]string{"", CodeNotLeader, CodeFencedLeaderEpoch, CodeUnknownLeaderEpoch}).Draw(rt, "code"), Err: errors.New("no")}
			case 2:
				return Fetched{FetchAnswer{Leader: leaderAt(5), Frames: rapid.SliceOf(rapid.Byte()).Draw(rt, "garbage")}}
			case 3:
				return Fetched{FetchAnswer{Leader: leaderAt(5), Diverging: &Diverging{rapid.Int64Range(0, 6).Draw(rt, "epoch"), rapid.Int64Range(0, size).Draw(rt, "end")}}}
			case 4:
				end := rapid.Int64Range(0, size).Draw(rt, "snapshot's end")
				epoch := images[end].Epoch()
				if rapid.IntRange(0, 3).Draw(rt, "contradicts") == 0 {
					epoch = rapid.Int64Range(0, 6).Draw(rt, "snapshot's epoch")
				}
				return Fetched{FetchAnswer{Leader: leaderAt(5), Snapshot: snap(end, epoch)}}
			}
			n := rapid.Int64Range(min(1, size-at), size-at).Draw(rt, "batches")
			hw := size
			if !honest {
				hw = rapid.Int64Range(0, size).Draw(rt, "high watermark")
			}
			b.now += testTiming.Poll
			return b.frames(5, hw, log[at:at+n]...)
		}
		step := func(honest bool) {
			ev := answer(honest)
			before := len(b.delivered)
			b.step(ev)
			for _, d := range b.delivered[before:] {
				if d.Image.Next() <= shown || d.Image.Next() > stored {
					rt.Fatalf("delivered up to %d after %d; stored up to %d", d.Image.Next(), shown, stored)
				}
				shown = d.Image.Next()
			}
		}
		for range rapid.IntRange(0, 40).Draw(rt, "steps") {
			step(false)
		}
		for range 100 {
			step(true)
		}
		if shown != size || b.m.lastErr != nil {
			rt.Fatalf("in the end the image is at %d of %d: %v", shown, size, b.m.lastErr)
		}
	})
}

// METALOG §5, 19, 21, 26: a follower that is sent to a snapshot fetches it, resets its
// log to where it ends, shows its image instead of the one before, and goes on there.
func TestFollowerGoesOverToASnapshot(t *testing.T) {
	log := batchesOf(run{1, 3}, run{2, 4})
	im := meta.Empty()
	for _, b := range log[:5] {
		var err error
		if im, err = im.Apply(b); err != nil {
			t.Fatal(err)
		}
	}
	b := machineAt(t, log[:2]...)
	b.m.FetchesSnapshots()
	b.step(LeaderFound{leaderAt(2)}).want(FollowFetching, "fetch 2 after 1 from http://2 as of 2")
	sent := Fetched{FetchAnswer{Leader: leaderAt(2), HighWatermark: 7, Snapshot: snap(5, 2)}}
	b.step(sent).want(FollowDownloading, "fetch snapshot 5-2 from http://2")
	b.step(SnapshotFetched{Err: ErrSnapshotNotFound}).want(FollowFetching, "fetch 2 after 1 from http://2 as of 2") // at once
	b.step(sent).step(SnapshotFetched{Err: ErrSnapshotNotFound}).want(FollowWaiting, "wait")                        // but not in a circle
	b.step(FollowTick{}).step(LeaderFound{leaderAt(2)}).step(sent)
	b.step(SnapshotFetched{Err: errors.New("cut off")}).want(FollowWaiting, "wait")
	b.step(FollowTick{}).step(LeaderFound{leaderAt(2)}).step(sent)
	if len(b.delivered) != 0 || b.m.Image().Next() != 2 {
		t.Fatal("the old image does not go on being shown")
	}
	b.step(SnapshotFetched{Image: im}).want(FollowResetting, "reset to 5 after 2")
	b.step(LogReset{errors.New("disk full")}).want(FollowWaiting, "wait")
	b.step(FollowTick{}).step(LeaderFound{leaderAt(2)}).step(sent).step(SnapshotFetched{Image: im})
	b.step(LogReset{}).want(FollowFetching, "fetch 5 after 2 from http://2 as of 2")
	if len(b.delivered) != 1 || b.delivered[0].Image != im || b.delivered[0].Touched != nil {
		t.Fatalf("delivered %+v", b.delivered)
	}
	b.step(b.frames(2, 7, log[5:]...)).step(Stored{})
	if b.m.Image().Next() != 7 {
		t.Fatalf("the image is at %d", b.m.Image().Next())
	}
}

// What a leader says of its snapshots cannot take back what was shown, and what comes
// has to be what was asked for.
func TestFollowerRefusesASnapshotThatContradicts(t *testing.T) {
	log := batchesOf(run{1, 3}, run{2, 4})
	other, err := meta.Empty().Apply(log[0])
	if err != nil {
		t.Fatal(err)
	}
	for name, ref := range map[string]*SnapshotRef{"older": snap(2, 1), "of the same offset": snap(5, 2), "of an epoch that is over": snap(9, 1)} {
		b := machineAt(t, log[:5]...)
		b.m.FetchesSnapshots()
		b.step(LeaderFound{leaderAt(2)}).step(Fetched{FetchAnswer{Leader: leaderAt(2), HighWatermark: 9, Snapshot: ref}})
		if b.m.state != FollowFault || len(b.delivered) != 0 || b.m.Image().Next() != 5 {
			t.Errorf("%s: %s, %v", name, b.m.state, b.m.lastErr)
		}
	}
	b := machineAt(t)
	b.m.FetchesSnapshots()
	b.step(LeaderFound{leaderAt(2)}).step(Fetched{FetchAnswer{Leader: leaderAt(2), HighWatermark: 9, Snapshot: snap(5, 2)}})
	b.step(SnapshotFetched{Image: other}).want(FollowFault, "wait")
}

// Each batch that asks for a snapshot is told of once it is committed, with the image
// that it leaves, also when several batches come at once.
func TestFollowerCutsWhereTheLogSaysSo(t *testing.T) {
	log := batchesOf(run{1, 6})
	log[2].SnapshotHere, log[4].SnapshotHere = true, true
	b := machineAt(t)
	b.step(LeaderFound{leader1}).step(b.frames(1, 4, log...)).step(Stored{})
	if len(b.cut) != 1 || b.cut[0].Next() != 3 {
		t.Fatalf("%d cut", len(b.cut))
	}
	b.step(b.frames(1, 6))
	if len(b.cut) != 2 || b.cut[1].Next() != 5 || b.m.Image().Next() != 6 {
		t.Fatalf("%d cut", len(b.cut))
	}
}
