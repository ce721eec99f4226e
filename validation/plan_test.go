package validation_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
	"github.com/shoalstore/shoal/validation"
)

// fleet is a log with nodes a, b and c.
type fleet struct {
	*metatest.Log
	t rapid.TB
}

func newFleet(t rapid.TB) *fleet {
	f := &fleet{metatest.NewLog(t), t}
	for _, n := range []string{"a", "b", "c"} {
		f.AddNode(t, n, "zone")
	}
	return f
}

func deep(c *meta.Config)  { c.DeepStore = &meta.DeepStoreConfig{URI: "file:///deep"} }
func peers(c *meta.Config) { c.DeepStore = nil }

func (f *fleet) table(name string, partitions int, change func(*meta.Config)) uuid.UUID {
	cfg := metatest.Config(name)
	change(cfg)
	return f.AddTable(f.t, cfg, partitions)
}

// commit ends the partition's segment, with other copies at the nodes.
func (f *fleet) commit(id uuid.UUID, p int32, others ...string) meta.SegmentKey {
	c := f.Commit(f.t, meta.PartitionKey{Table: id, Partition: p}, 10)
	f.Do(f.t, meta.CommitSegment(c))
	for _, n := range others {
		f.copy(c.Key, n)
	}
	return c.Key
}

func (f *fleet) segment(k meta.SegmentKey) *meta.Segment { return f.Image.Segment(k) }

func (f *fleet) copy(k meta.SegmentKey, node string) {
	n, s := f.Image.Node(node), f.segment(k)
	var v meta.LocationVerdicts
	f.Do(f.t, meta.Locations(&meta.LocationReport{
		Node: node, Incarnation: n.Incarnation, StoreID: n.StoreID, Sequence: n.LocationsSeq + 1,
		Add: []meta.CopyRef{{Table: k.Table, Partition: k.Partition, Seq: k.Seq, Digest: s.Digest}},
	}, func(meta.Location, meta.SegmentKey) bool { return true }, &v))
}

// others are the nodes but the committer.
func (f *fleet) others(k meta.SegmentKey) []string {
	return slices.DeleteFunc([]string{"a", "b", "c"}, func(n string) bool { return n == f.segment(k).Committer })
}

func (f *fleet) uploaded(k meta.SegmentKey) {
	f.Do(f.t, meta.SetDeepStoreLocation(k, f.segment(k).Digest, "file:///deep/"+f.segment(k).Name, true))
}

func (f *fleet) set(node string, state meta.NodeState) {
	f.Do(f.t, meta.SetNodeState(node, meta.AnyIncarnation, state))
}

func short(s *meta.Segment) string { return s.Name[:strings.LastIndex(s.Name, "__")] }

func names(segments []*meta.Segment) (out []string) {
	for _, s := range segments {
		out = append(out, short(s))
	}
	return out
}

var most = validation.Request{Most: 100}

func TestSurveyFindsWhatAwaitsTheDeepStoreRiskiestFirst(t *testing.T) {
	f := newFleet(t)
	id := f.table("t", 5, deep)
	old := f.commit(id, 0)
	safe := f.commit(id, 1)
	f.copy(safe, f.others(safe)[0]) // replication 2: it has its copies
	f.commit(id, 2)
	f.uploaded(f.commit(id, 3))
	gone := f.commit(id, 4)
	f.set(f.segment(gone).Committer, meta.NodeDown)
	// Those of the node that is DOWN have no copy that counts; those that have one
	// follow, and then the one that is not at risk.
	found := validation.Survey(f.Image, most)
	for i, s := range found.Awaiting {
		for _, after := range found.Awaiting[i+1:] {
			if meta.RiskOf(f.Image, s).Compare(meta.RiskOf(f.Image, after)) > 0 {
				t.Errorf("%s comes before %s", s.Name, after.Name)
			}
		}
	}
	if len(found.Awaiting) != 4 || found.Awaiting[0].Status != meta.SegmentDone {
		t.Fatalf("%v", names(found.Awaiting))
	}
	if total := found.Tables[0].Awaiting; total.Segments != 4 || total.Bytes != 4000 || total.Oldest != f.segment(old).Times.Committed {
		t.Errorf("%+v", total)
	}
	if single := found.Tables[0].SingleCopy; int(single.Segments) != len(found.SingleCopy) || single.Segments < 3 {
		t.Errorf("%+v, %v", single, names(found.SingleCopy))
	}
}

func TestSurveyOfATableOfPeersOnlyFindsWhatIsShortOfCopies(t *testing.T) {
	f := newFleet(t)
	id := f.table("t", 2, peers)
	f.commit(id, 0)
	whole := f.commit(id, 1)
	for _, n := range f.others(whole) {
		f.copy(whole, n)
	}
	found := validation.Survey(f.Image, most)
	if got := names(found.SingleCopy); !slices.Equal(got, []string{"t__0__0"}) || len(found.Awaiting) != 0 || found.Tables[0].Awaiting.Segments != 0 {
		t.Errorf("%v, %v", got, names(found.Awaiting))
	}
}

func TestNothingIsFoundWhereNothingIsWrong(t *testing.T) {
	f := newFleet(t)
	id := f.table("t", 1, deep)
	f.uploaded(f.commit(id, 0))
	doomed := f.table("doomed", 2, deep)
	f.commit(doomed, 0)
	f.Do(t, meta.DeleteTable(doomed))
	found := validation.Survey(f.Image, most)
	if len(found.Tables)+len(found.SingleCopy)+len(found.Awaiting)+len(found.Idle)+len(found.Stopped) != 0 {
		t.Errorf("%+v", found)
	}
}

// One table's outage must not crowd another's segment out of the bounded list.
func TestEachTableHasAShareOfTheList(t *testing.T) {
	f := newFleet(t)
	big := f.table("big", 1, deep)
	for range 40 {
		f.commit(big, 0)
	}
	small := f.table("small", 1, deep)
	k := f.commit(small, 0)
	f.copy(k, f.others(k)[0]) // the least urgent of all
	found := validation.Survey(f.Image, validation.Request{Most: 4})
	if got := names(found.Awaiting); !slices.Equal(got, []string{"big__0__0", "big__0__1", "small__0__0"}) {
		t.Errorf("%v", got)
	}
	if len(found.SingleCopy) != 4 || found.Tables[0].SingleCopy.Segments != 40 {
		t.Errorf("%v, %+v", names(found.SingleCopy), found.Tables)
	}
}

func TestPartitionsThatNobodyConsumesAreFound(t *testing.T) {
	f := newFleet(t)
	id := f.table("t", 3, peers)
	if found := validation.Survey(f.Image, most); len(found.Idle) != 0 {
		t.Fatalf("%+v", found.Idle)
	}
	s := f.Image.InProgress(meta.PartitionKey{Table: id, Partition: 0})
	f.Do(t, meta.RecordError(s.SegmentKey(), "a", "no such offset", true))
	for _, n := range []string{"a", "b", "c"} {
		f.set(n, meta.NodeDraining)
	}
	// A node that is DRAINING consumes until its segment has ended, unless it is gone.
	if found := validation.Survey(f.Image, most); len(found.Idle) != 0 || len(found.Stopped) != 1 || found.Stopped[0].Why != "every replica has stopped: a: no such offset" {
		t.Fatalf("%+v, %+v", found.Idle, found.Stopped)
	}
	gone := validation.Request{Most: 1, Silent: []string{"a", "b", "c"}}
	found := validation.Survey(f.Image, gone)
	if found.IdleTotal != 2 || len(found.Idle) != 1 || found.Idle[0].Partition != 1 || found.Idle[0].Why != "no replica of its segment is UP" || found.StoppedTotal != 1 {
		t.Errorf("%+v", found)
	}
}

func TestHoldersAreTheCommitterThenTheOthersThenThoseThatDrain(t *testing.T) {
	f := newFleet(t)
	id := f.table("t", 1, deep)
	k := f.commit(id, 0)
	others := f.others(k)
	f.copy(k, others[0])
	f.copy(k, others[1])
	f.uploaded(k)
	committer := f.segment(k).Committer
	holders := func() string {
		var ids []string
		for _, n := range validation.Holders(f.Image, f.segment(k)) {
			ids = append(ids, n.ID)
		}
		return strings.Join(ids, " ")
	}
	if got, want := holders(), fmt.Sprint(committer, " ", others[0], " ", others[1]); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	f.set(committer, meta.NodeDraining)
	f.set(others[0], meta.NodeDown)
	if got, want := holders(), fmt.Sprint(others[1], " ", committer); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A survey of any image agrees with the rules, one segment at a time.
func TestSurveyAgreesWithTheRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFleet(t)
		ids := []uuid.UUID{f.table("d", 2, deep), f.table("p", 2, peers)}
		for range rapid.IntRange(0, 30).Draw(t, "steps") {
			id := rapid.SampledFrom(ids).Draw(t, "table")
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				if s := f.Image.InProgress(meta.PartitionKey{Table: id}); len(s.Replicas) > 0 && f.Image.Node(s.Replicas[0]).State != meta.NodeDown {
					f.commit(id, 0)
				}
			case 1:
				for s := range f.Image.TableSegments(id) {
					if n := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "node"); s.Status == meta.SegmentDone && f.Image.Node(n).State == meta.NodeUp {
						f.copy(s.SegmentKey(), n)
					}
				}
			case 2:
				for s := range f.Image.TableSegments(id) {
					if s.Status == meta.SegmentDone && rapid.Bool().Draw(t, "uploaded") {
						f.uploaded(s.SegmentKey())
					}
				}
			case 3:
				f.set(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "node"), rapid.SampledFrom([]meta.NodeState{meta.NodeUp, meta.NodeDown}).Draw(t, "state"))
			}
		}
		found := validation.Survey(f.Image, validation.Request{Most: 1000})
		single, awaiting := map[string]bool{}, map[string]bool{}
		for _, s := range found.SingleCopy {
			single[s.Name] = true
		}
		for _, s := range found.Awaiting {
			awaiting[s.Name] = true
		}
		for _, id := range ids {
			for s := range f.Image.TableSegments(id) {
				if single[s.Name] != meta.IsSingleCopy(f.Image, s) {
					t.Fatalf("%s: at risk %v, found %v", s.Name, meta.IsSingleCopy(f.Image, s), single[s.Name])
				}
				if want := id == ids[0] && s.Status == meta.SegmentDone && !s.DeepStoreVerified(); awaiting[s.Name] != want {
					t.Fatalf("%s: found %v", s.Name, awaiting[s.Name])
				}
			}
		}
	})
}
