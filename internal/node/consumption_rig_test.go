package node

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
	"github.com/shoalstore/shoal/segment"
)

// consumptionRig is the Consumption of node "me" on a workbench: the log of a
// rig, feeds whose rows the test reads, and builders that remember what was
// appended. It fails the test when an action makes no sense to a shell.
type consumptionRig struct {
	*rig
	c        *Consumption
	feeds    map[FeedID]*rigFeed
	builders map[uint64][]int64 // of each run that has one
	claimed  map[meta.SegmentKey]bool
	sent     map[uint64]uint64 // run → ID of its last Send
	behind   bool              // the image has not caught up
}

type rigFeed struct {
	FeedMoved
	rows []int64 // waiting
}

func newConsumptionRig(t rapid.TB, change ...func(*meta.Config)) *consumptionRig {
	t.Helper()
	b := &consumptionRig{
		rig:   newRig(t, append([]func(*meta.Config){func(c *meta.Config) { c.Segment.MaxRows = 10 }}, change...)...),
		feeds: map[FeedID]*rigFeed{}, builders: map[uint64][]int64{}, claimed: map[meta.SegmentKey]bool{}, sent: map[uint64]uint64{},
	}
	b.c = NewConsumption(ConsumptionConfig{Node: "me", Key: b.partition()})
	return b
}

func (b *consumptionRig) partition() meta.PartitionKey {
	return meta.PartitionKey{Table: b.table, Partition: 0}
}

func (b *consumptionRig) image() ImageSeen {
	return ImageSeen{Image: b.log.Image, CaughtUp: !b.behind, Incarnation: 1}
}

// want hands in an event and fails unless exactly these actions come of it.
func (b *consumptionRig) want(actions string, ev ConsumptionEvent) {
	b.Helper()
	if got := b.step(ev); got != actions {
		b.Fatalf("at %s, %T:\n got %s\nwant %s", b.now, ev, quoted(got), quoted(actions))
	}
}

func (b *consumptionRig) step(ev ConsumptionEvent) string {
	b.Helper()
	var said []string
	for _, a := range b.c.Step(b.now, ev) {
		said = append(said, b.perform(a))
	}
	return strings.Join(said, "; ")
}

func (b *consumptionRig) perform(a ConsumptionAction) string {
	b.Helper()
	switch a := a.(type) {
	case OpenFeed:
		b.feeds[a.Feed] = &rigFeed{FeedMoved: FeedMoved{Feed: a.Feed, Position: a.Offset, Fetched: a.Offset, Taken: a.Offset}}
		if a.Private {
			return fmt.Sprintf("open private feed %d at %d", a.Feed, a.Offset)
		}
		return fmt.Sprintf("open feed %d at %d", a.Feed, a.Offset)
	case CloseFeed:
		b.feed(a.Feed)
		delete(b.feeds, a.Feed)
		return fmt.Sprintf("close feed %d", a.Feed)
	case SkipFeed:
		f := b.feed(a.Feed)
		for len(f.rows) > 0 && f.rows[0] < a.Offset {
			f.take()
		}
		return fmt.Sprintf("skip feed %d to %d", a.Feed, a.Offset)
	case LimitFeed:
		b.feed(a.Feed)
		if a.RollOver {
			return fmt.Sprintf("feed %d reads ahead", a.Feed)
		}
		return fmt.Sprintf("feed %d is steady", a.Feed)
	case OpenBuilder:
		b.builders[a.Run] = []int64{}
		return fmt.Sprintf("build %d", a.Segment.Seq)
	case DropBuilder:
		delete(b.builders, a.Run)
		return fmt.Sprintf("drop %d", a.Segment.Seq)
	case Effect:
		return b.effect(a)
	case Claim:
		b.claimed[a.Segment] = true
		return fmt.Sprintf("claim %d", a.Segment.Seq)
	case Unclaim:
		if !b.claimed[a.Segment] {
			b.Fatalf("%s is unclaimed and was not claimed", a.Segment)
		}
		delete(b.claimed, a.Segment)
		return fmt.Sprintf("unclaim %d", a.Segment.Seq)
	case RollOverBegan:
		b.feed(a.Feed)
		return fmt.Sprintf("roll over feed %d", a.Feed)
	case RollOverEnded:
		b.feed(a.Feed)
		return fmt.Sprintf("rolled over to feed %d", a.Feed)
	case RunMoved:
		return fmt.Sprintf("%d is %s", a.Segment.Seq, a.State)
	case Ended:
		return fmt.Sprintf("end %d", a.Segment.Seq)
	case ConfigMissing:
		return fmt.Sprintf("no config for %d", a.Segment.Seq)
	}
	return fmt.Sprintf("%T?", a)
}

func (b *consumptionRig) effect(a Effect) string {
	b.Helper()
	switch do := a.Do.(type) {
	case commit.Send:
		b.sent[a.Run] = do.ID
		return fmt.Sprintf("send %d %s at %d", a.Segment.Seq, do.Message.Kind, do.Message.Offset)
	case commit.Seal:
		if b.builders[a.Run] == nil {
			b.Fatalf("run %d has no builder to seal", a.Run)
		}
		delete(b.builders, a.Run)
		return fmt.Sprintf("seal %d at %d", a.Segment.Seq, do.End)
	case commit.Upload:
		return fmt.Sprintf("upload %d", a.Segment.Seq)
	case commit.Download:
		return fmt.Sprintf("download %d", a.Segment.Seq)
	case commit.StopDownload:
		return fmt.Sprintf("stop download %d", a.Segment.Seq)
	}
	return fmt.Sprintf("%T?", a.Do)
}

// feed finds one that is open.
func (b *consumptionRig) feed(id FeedID) *rigFeed {
	b.Helper()
	f := b.feeds[id]
	if f == nil {
		b.Fatalf("feed %d is not open", id)
	}
	return f
}

// take takes the row at the front.
func (f *rigFeed) take() {
	f.Taken = f.rows[0] + 1
	f.rows = f.rows[1:]
	f.stand()
}

func (f *rigFeed) stand() {
	f.Position, f.Waiting = f.Fetched, len(f.rows) > 0
	if f.Waiting {
		f.Position = f.rows[0]
	}
}

// reads lets a feed read on up to offset, a row at each, and says so; nothing
// comes of it before a row is offered.
func (b *consumptionRig) reads(id FeedID, upTo int64) {
	b.Helper()
	f := b.feed(id)
	for ; f.Fetched < upTo; f.Fetched++ {
		f.rows = append(f.rows, f.Fetched)
	}
	f.End, f.Epoch = upTo, "0"
	f.stand()
	b.want("", f.FeedMoved)
}

// pump carries what waits to who takes it, as the shell does, and returns what
// came of it.
func (b *consumptionRig) pump() string {
	b.Helper()
	var said []string
	for carried := true; carried; {
		carried = false
		for _, r := range append([]Reading{}, b.c.Reading()...) {
			f := b.feeds[r.Feed]
			if f == nil {
				continue
			}
			carried = b.carry(f, r) || carried
			if text := b.step(f.FeedMoved); text != "" {
				said = append(said, text)
				carried = true // perhaps the feed is another's now
			}
		}
	}
	return strings.Join(said, "; ")
}

func (b *consumptionRig) carry(f *rigFeed, r Reading) (any bool) {
	b.Helper()
	for len(f.rows) > 0 {
		switch b.c.Offer(b.now, r, f.rows[0], 100) {
		case commit.LeaveRow:
			return any
		case commit.AppendRow:
			if b.builders[r.Run] == nil {
				b.Fatalf("run %d has no builder to append to", r.Run)
			}
			b.builders[r.Run] = append(b.builders[r.Run], f.rows[0])
		}
		f.take()
		any = true
	}
	return any
}

// holds fails unless the run's builder holds exactly the rows from start to end.
func (b *consumptionRig) holds(run uint64, start, end int64) {
	b.Helper()
	var want []int64
	for o := start; o < end; o++ {
		want = append(want, o)
	}
	if got := b.builders[run]; fmt.Sprint(got) != fmt.Sprint(want) {
		b.Fatalf("run %d holds %v, want %v", run, got, want)
	}
}

// carried pumps and wants the actions.
func (b *consumptionRig) carried(actions string) {
	b.Helper()
	if got := b.pump(); got != actions {
		b.Fatalf("of the rows that waited came\n     %s\nwant %s", quoted(got), quoted(actions))
	}
}

// rows lets the feed read on to offset, and wants the actions that come of its
// rows.
func (b *consumptionRig) rows(id FeedID, upTo int64, actions string) {
	b.Helper()
	b.reads(id, upTo)
	b.carried(actions)
}

// done is the result of an effect of a run; the run of a sequence number is one
// more, as long as no segment has had two.
func (b *consumptionRig) done(run uint64, ev commit.ReplicaEvent) EffectDone {
	return EffectDone{Segment: b.key(0, int64(run)-1), Run: run, Event: ev}
}

// reply answers the last message of a run.
func (b *consumptionRig) reply(run uint64, r commit.Reply) EffectDone {
	return b.done(run, commit.Answered{ID: b.sent[run], Reply: r})
}

func sealed(start, end int64, text string) commit.Sealed {
	return commit.Sealed{Info: segment.Info{
		Digest: metatest.DigestOf(text), Start: start, End: end, Rows: end - start, RawBytes: 100 * (end - start), SizeBytes: 1, LastLeaderEpoch: segment.NoLeaderEpoch,
	}}
}

// committed commits the partition's segment with that many rows by another node,
// and returns it.
func (b *consumptionRig) committed(rows int64) *meta.Segment {
	b.Helper()
	n := b.log.Image.Node("b")
	c := b.log.Commit(b, b.partition(), rows)
	c.Instance, c.Incarnation, c.StoreID = n.ID, n.Incarnation, n.StoreID
	b.log.Do(b, meta.CommitSegment(c))
	return b.log.Image.Segment(c.Key)
}

// replaced gives the partition's segments to one node in place of another that
// is gone.
func (b *consumptionRig) replaced(gone, by string) {
	b.Helper()
	replicas := []string{by}
	for _, id := range b.log.Image.InProgress(b.partition()).Replicas {
		if id != gone {
			replicas = append(replicas, id)
		}
	}
	b.down(gone)
	b.log.Do(b, meta.SetReplicas(b.partition(), replicas, []string{gone}))
}

// startedConsumption is the rig once the first segment has its run, and rows
// below its limit.
func startedConsumption(t *testing.T, rows int64, change ...func(*meta.Config)) *consumptionRig {
	t.Helper()
	b := newConsumptionRig(t, change...)
	b.want("open feed 1 at 0; build 0; claim 0", b.image())
	b.rows(1, rows, "")
	b.holds(1, 0, rows)
	return b
}

// later moves the clock and wants the actions of a tick then.
func (b *consumptionRig) later(d time.Duration, actions string) {
	b.Helper()
	b.now += d
	b.want(actions, ConsumptionTick{})
}
