package node

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
	"github.com/shoalstore/shoal/segment"
)

// rig is the machine of node "me" on a workbench: a log that the test writes,
// the node's store as the test says it is, and a clock that stands still until
// the test moves it.
type rig struct {
	rapid.TB
	log   *metatest.Log
	m     *Machine
	now   time.Duration
	shown int // batches of the log that the machine has seen
	table uuid.UUID
}

// newRig founds a cluster of me, b, c and d with a table of two partitions,
// replication 3 on me, b and c, and shows the machine all of it.
func newRig(t rapid.TB, change ...func(*meta.Config)) *rig {
	t.Helper()
	b := &rig{TB: t, log: metatest.NewLog(t)}
	for _, n := range []string{"me", "b", "c", "d"} {
		b.log.AddNode(t, n, "zone")
	}
	cfg := metatest.Config("t")
	cfg.Replication = 3
	for _, c := range change {
		c(cfg)
	}
	b.table = metatest.ID("table t")
	b.log.Do(t, meta.CreateTable(cfg, b.table))
	b.log.Do(t, meta.AddPartitions(b.table, []meta.PartitionInit{
		{Partition: 0, StreamEpoch: "0", Replicas: []string{"me", "b", "c"}[:min(3, cfg.Replication)]},
		{Partition: 1, StreamEpoch: "0", Replicas: []string{"me", "b", "c"}[:min(3, cfg.Replication)]},
	}))
	b.log.Do(t, meta.ActivateTable(b.table, []int32{0, 1}))
	b.m = b.machine()
	b.show()
	return b
}

func withDeepStore(c *meta.Config) { c.DeepStore = &meta.DeepStoreConfig{URI: "file:///deep"} }

func (b *rig) machine(held ...segment.Held) *Machine {
	return NewMachine(MachineConfig{Node: "me", StoreID: metatest.ID("store of me")}, held)
}

func (b *rig) key(partition int32, seq int64) meta.SegmentKey {
	return meta.SegmentKey{Table: b.table, Partition: partition, Seq: seq}
}

// step hands in an event and returns the actions, one word or a few for each.
func (b *rig) step(ev Event) string { return describe(b.m.Step(b.now, ev)) }

// want hands in an event and fails unless exactly these actions come of it.
func (b *rig) want(actions string, ev Event) {
	b.Helper()
	if got := b.step(ev); got != actions {
		b.Fatalf("at %s, %s:\n got %s\nwant %s", b.now, eventName(ev), quoted(got), quoted(actions))
	}
}

// later moves the clock and wants the actions of a Tick then.
func (b *rig) later(d time.Duration, actions string) {
	b.Helper()
	b.now += d
	b.want(actions, Tick{})
}

// run hands in an event and then a Tick each second for d. Each action goes to
// perform, and what that returns, if anything, to the machine again.
func (b *rig) run(ev Event, d time.Duration, perform func(Action) Event) {
	for end := b.now + d; ; ev = Event(Tick{}) {
		for events := []Event{ev}; len(events) > 0; events = events[1:] {
			for _, a := range b.m.Step(b.now, events[0]) {
				if done := perform(a); done != nil {
					events = append(events, done)
				}
			}
		}
		if b.now >= end {
			return
		}
		b.now += time.Second
	}
}

func quoted(s string) string {
	if s == "" {
		return "nothing"
	}
	return s
}

func eventName(ev Event) string { return fmt.Sprintf("%T", ev)[len("node."):] }

// image is the event that shows the machine what the log has beyond what it saw.
func (b *rig) image() ImageChanged {
	ev := ImageChanged{Image: b.log.Image, Touched: []meta.Key{}}
	for _, batch := range b.log.Batches[b.shown:] {
		for k := range batch.Keys() {
			ev.Touched = append(ev.Touched, k)
		}
	}
	b.shown = len(b.log.Batches)
	return ev
}

func (b *rig) show() string { return b.step(b.image()) }

// register makes the machine known to the leader of the log's epoch.
func (b *rig) register() Registered {
	return Registered{Incarnation: b.log.Image.Node("me").Incarnation, Epoch: b.log.Image.Epoch(), HighWatermark: b.log.Image.Next()}
}

// commit commits the partition's consuming segment with the first replica as its
// committer, and returns its record.
func (b *rig) commit(partition int32) *meta.Segment { return b.commitBy(partition, "") }

func (b *rig) commitBy(partition int32, node string) *meta.Segment {
	b.Helper()
	k := meta.PartitionKey{Table: b.table, Partition: partition}
	c := b.log.Commit(b, k, 10)
	if n := b.log.Image.Node(node); n != nil {
		c.Instance, c.Incarnation, c.StoreID = n.ID, n.Incarnation, n.StoreID
	}
	b.log.Do(b, meta.CommitSegment(c))
	return b.log.Image.Segment(c.Key)
}

// lists has nodes report copies of the segment, as if each had fetched it.
func (b *rig) lists(s *meta.Segment, nodes ...string) {
	b.Helper()
	for _, id := range nodes {
		n := b.log.Image.Node(id)
		b.log.Do(b, meta.Locations(&meta.LocationReport{
			Node: id, Incarnation: n.Incarnation, StoreID: n.StoreID, Sequence: n.LocationsSeq + 1,
			Add: []meta.CopyRef{copyRef(s.SegmentKey(), s.Digest)},
		}, nil, &meta.LocationVerdicts{}))
	}
}

// loses has a node withdraw its copy of the segment.
func (b *rig) loses(s *meta.Segment, node string) {
	b.Helper()
	n := b.log.Image.Node(node)
	b.log.Do(b, meta.Locations(&meta.LocationReport{
		Node: node, Incarnation: n.Incarnation, StoreID: n.StoreID, Sequence: n.LocationsSeq + 1,
		Withdraw: []meta.CopyRef{copyRef(s.SegmentKey(), s.Digest)},
	}, nil, &meta.LocationVerdicts{}))
}

func (b *rig) down(nodes ...string) {
	for _, n := range nodes {
		b.log.Do(b, meta.SetNodeState(n, meta.AnyIncarnation, meta.NodeDown))
	}
}

// deliver writes a report into the log as the leader would, and returns its answer.
func (b *rig) deliver(r meta.LocationReport) ReportDone {
	var v meta.LocationVerdicts
	err := b.log.Try(b, meta.Locations(&r, func(meta.Location, meta.SegmentKey) bool { return true }, &v))
	return ReportDone{Sequence: r.Sequence, Verdicts: v, Err: err}
}

// good is the committed copy; other and damaged are files that are not.
func good(s *meta.Segment) segment.Held { return copyOf(s.SegmentKey(), s.Digest, segment.StateSealed) }

func other(k meta.SegmentKey, text string) segment.Held {
	return copyOf(k, metatest.DigestOf(text), segment.StateSealed)
}

func damaged(s *meta.Segment) segment.Held {
	return copyOf(s.SegmentKey(), s.Digest, segment.StateQuarantined)
}

func copyOf(k meta.SegmentKey, d segment.Digest, state segment.State) segment.Held {
	name := segment.NewName("t", k.Partition, k.Seq, time.UnixMilli(0)).String()
	return segment.Held{Table: k.Table, Partition: k.Partition, Name: name, Digest: d, State: state}
}

// begunDownload is a .part in the store.
func begunDownload(k meta.SegmentKey, d segment.Digest) segment.Download {
	h := copyOf(k, d, segment.StateSealed)
	return segment.Download{Table: h.Table, Partition: h.Partition, Name: h.Name, Short: d.Short()}
}

func holds(k meta.SegmentKey, held ...segment.Held) StoreChanged {
	return StoreChanged{Segment: k, Held: held}
}

func describe(actions []Action) string {
	var words []string
	for _, a := range actions {
		switch a := a.(type) {
		case Fetch:
			words = append(words, "fetch "+short(a.Segment))
		case Rebuild:
			words = append(words, fmt.Sprintf("rebuild %s to %d", short(a.Segment), a.End))
		case Upload:
			words = append(words, "upload "+short(a.Segment))
		case Remove:
			words = append(words, "remove "+shortHeld(a.Held))
		case SetAside:
			words = append(words, "set aside "+shortHeld(a.Held))
		case Report:
			words = append(words, describeReport(&a.Report))
		case UploadTold:
			words = append(words, strings.TrimSpace(fmt.Sprintf("told %s %s", a.State, a.LastError)))
			if a.Failures > 0 {
				words[len(words)-1] += fmt.Sprint(" ", a.Failures)
			}
		case DropDownload:
			k, _ := heldKey(segment.Held{Table: a.Download.Table, Partition: a.Download.Partition, Name: a.Download.Name})
			words = append(words, "drop download "+short(k)+" "+a.Download.Short[:4])
		}
	}
	return strings.Join(words, "; ")
}

func describeReport(r *meta.LocationReport) string {
	text := fmt.Sprintf("report %d", r.Sequence)
	for _, part := range []struct {
		what string
		refs []meta.CopyRef
	}{{"add", r.Add}, {"withdraw", r.Withdraw}, {"confirm", r.Confirm}, {"release", r.Release}} {
		if len(part.refs) > 0 {
			text += " " + part.what
		}
		for _, ref := range part.refs {
			text += " " + short(ref.SegmentKey())
		}
	}
	for _, up := range r.Uploaded {
		text += " uploaded " + short(up.SegmentKey())
	}
	return text
}

func short(k meta.SegmentKey) string { return fmt.Sprintf("%d/%d", k.Partition, k.Seq) }

func shortHeld(h segment.Held) string {
	k, _ := heldKey(h)
	if h.State == segment.StateQuarantined {
		return short(k) + " damaged"
	}
	return short(k)
}

func TestRigDescribes(t *testing.T) {
	b := newRig(t)
	s := b.commit(0)
	got := describe([]Action{Fetch{Segment: s.SegmentKey()}, Remove{Held: damaged(s)}, Report{meta.LocationReport{
		Sequence: 7, Add: []meta.CopyRef{copyRef(s.SegmentKey(), s.Digest)},
	}}})
	if want := "fetch 0/0; remove 0/0 damaged; report 7 add 0/0"; got != want {
		t.Fatalf("%q, want %q", got, want)
	}
}
