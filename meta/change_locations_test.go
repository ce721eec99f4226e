package meta_test

import (
	"cmp"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/internal/config"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
)

// copies is a committed segment and the reports of its nodes.
type copies struct {
	*metatest.Log
	t   *testing.T
	key meta.SegmentKey
	seq map[string]int64
	// unconfirmed are the nodes and URIs that nobody has confirmed in this epoch.
	unconfirmed []string
}

func newCopies(t *testing.T, change func(cfg *meta.Config)) *copies {
	l := metatest.NewLog(t)
	for _, id := range []string{"n1", "n2", "n3"} {
		l.AddNode(t, id, "zone of "+id)
	}
	cfg := metatest.Config("flights")
	cfg.Replication = 3
	if change != nil {
		change(cfg)
	}
	k := meta.PartitionKey{Table: l.AddTable(t, cfg, 1)}
	l.Do(t, meta.CommitSegment(l.Commit(t, k, 40)))
	return &copies{Log: l, t: t, key: k.Segment(0), seq: map[string]int64{}}
}

func (c *copies) ref() meta.CopyRef {
	return meta.CopyRef{Table: c.key.Table, Seq: c.key.Seq, Digest: c.Image.Segment(c.key).Digest}
}

// report sends a report of the node with the next sequence.
func (c *copies) report(node string, change func(r *meta.LocationReport)) meta.LocationVerdicts {
	c.t.Helper()
	c.seq[node]++
	return c.send(node, c.seq[node], change)
}

func (c *copies) send(node string, seq int64, change func(r *meta.LocationReport)) (v meta.LocationVerdicts) {
	c.t.Helper()
	n := c.Image.Node(node)
	r := &meta.LocationReport{Node: node, Incarnation: n.Incarnation, StoreID: n.StoreID, Sequence: seq}
	change(r)
	c.Do(c.t, meta.Locations(r, c.confirmed, &v))
	return v
}

func (c *copies) confirmed(l meta.Location, k meta.SegmentKey) bool {
	return k == c.key && !slices.Contains(c.unconfirmed, l.Node+l.URI)
}

func (c *copies) add(node string) meta.Verdict {
	c.t.Helper()
	return c.report(node, func(r *meta.LocationReport) { r.Add = []meta.CopyRef{c.ref()} }).Add[0]
}

func (c *copies) release(node string) meta.Verdict {
	c.t.Helper()
	return c.report(node, func(r *meta.LocationReport) { r.Release = []meta.CopyRef{c.ref()} }).Release[0]
}

func (c *copies) nodes() (nodes []string) {
	for _, l := range c.Image.Segment(c.key).Locations {
		nodes = append(nodes, l.Node+l.URI)
	}
	return nodes
}

var accepted = meta.Verdict{Accepted: true}

func TestALocationIsAddedOnceAndTheMomentsAreKept(t *testing.T) {
	c := newCopies(t, nil)
	if v := c.add("n2"); v != accepted {
		t.Fatalf("got %+v", v)
	}
	second := c.Now
	c.add("n3")
	third := c.Now
	c.add("n3")
	s := c.Image.Segment(c.key)
	if got := c.nodes(); !slices.Equal(got, []string{"n1", "n2", "n3"}) {
		t.Errorf("got locations %v", got)
	}
	if s.Times.SecondCopy != second || s.Times.Replicated != third || s.Times.LastLocation != third {
		t.Errorf("got %+v, want the second copy at %d and the third at %d", s.Times, second, third)
	}
	if n := c.Image.Node("n3"); n.LocationsSeq != 2 {
		t.Errorf("the sequence is %d", n.LocationsSeq)
	}
	if meta.IsSingleCopy(c.Image, s) {
		t.Error("with three copies it is at risk")
	}
}

func TestALocationIsAddedOnlyForWhatWasCommitted(t *testing.T) {
	c := newCopies(t, nil)
	unknown, current, other := c.ref(), c.ref(), c.ref()
	unknown.Seq, current.Seq = 9, 1
	other.Digest[0]++
	v := c.report("n2", func(r *meta.LocationReport) { r.Add = []meta.CopyRef{unknown, current, other, c.ref()} })
	want := []meta.Verdict{
		{Code: meta.CodeUnknownSegment}, {Code: meta.CodeNotDone}, {Code: meta.CodeDigestDiffers}, accepted,
	}
	if !reflect.DeepEqual(v.Add, want) {
		t.Errorf("got %+v", v.Add)
	}
}

func TestAReportThatIsNotNewerChangesNothing(t *testing.T) {
	c := newCopies(t, nil)
	c.add("n2")
	before := c.Image
	again := c.send("n2", 1, func(r *meta.LocationReport) {
		r.Add = []meta.CopyRef{c.ref()}
		r.Withdraw = []meta.CopyRef{c.ref()}
	})
	want := meta.LocationVerdicts{Ignored: true, Add: []meta.Verdict{accepted}, Withdraw: []meta.Verdict{{Code: meta.CodeStaleSequence}}}
	if !reflect.DeepEqual(again, want) || c.Image != before {
		t.Errorf("got %+v", again)
	}
	late := c.send("n3", 0, func(r *meta.LocationReport) { r.Add = []meta.CopyRef{c.ref()} })
	if !late.Ignored || late.Add[0].Code != meta.CodeStaleSequence || c.Image != before {
		t.Errorf("got %+v", late)
	}
}

func TestAReportFromThePastIsRefused(t *testing.T) {
	c := newCopies(t, nil)
	n := c.Image.Node("n2")
	for name, r := range map[string]struct {
		code   string
		report meta.LocationReport
	}{
		"unknown node":    {meta.CodeUnknownNode, meta.LocationReport{Node: "n9", Incarnation: 1, StoreID: n.StoreID}},
		"old incarnation": {meta.CodeStaleIncarnation, meta.LocationReport{Node: "n2", Incarnation: 0, StoreID: n.StoreID}},
		"another store":   {meta.CodeWrongStore, meta.LocationReport{Node: "n2", Incarnation: 1}},
	} {
		r.report.Sequence = 1
		wantRefusal(t, name, c.Try(t, meta.Locations(&r.report, c.confirmed, new(meta.LocationVerdicts))), r.code)
	}
}

func TestAWithdrawalIsAlwaysAccepted(t *testing.T) {
	c := newCopies(t, nil)
	v := c.report("n1", func(r *meta.LocationReport) { // the only copy
		unknown := c.ref()
		unknown.Seq = 9
		r.Withdraw = []meta.CopyRef{unknown, c.ref()}
	})
	if !reflect.DeepEqual(v.Withdraw, []meta.Verdict{accepted, accepted}) || len(c.nodes()) != 0 {
		t.Errorf("got %+v, %v", v, c.nodes())
	}
	// What was there before a recommit is not what is listed now.
	c.add("n1")
	old := c.ref()
	old.Digest[0]++
	c.report("n1", func(r *meta.LocationReport) { r.Withdraw = []meta.CopyRef{old} })
	if got := c.nodes(); !slices.Equal(got, []string{"n1"}) {
		t.Errorf("got %v", got)
	}
	old.Digest = [32]byte{}
	c.report("n1", func(r *meta.LocationReport) { r.Withdraw = []meta.CopyRef{old} })
	if got := c.nodes(); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

// TestAReleaseLeavesEnoughCopies goes through DESIGN §4.5.
func TestAReleaseLeavesEnoughCopies(t *testing.T) {
	const uri = "file:///backups/x"
	deepStore := func(c *copies, verified bool) {
		c.Do(c.t, meta.SetDeepStoreLocation(c.key, c.Image.Segment(c.key).Digest, uri, verified))
	}
	withDeepStore := func(localAge time.Duration) func(cfg *meta.Config) {
		return func(cfg *meta.Config) {
			cfg.DeepStore = &meta.DeepStoreConfig{URI: "file:///backups"}
			cfg.Retention.LocalAge = config.Duration(localAge)
		}
	}
	alone := func(localAge time.Duration) func(cfg *meta.Config) {
		return func(cfg *meta.Config) { withDeepStore(localAge)(cfg); cfg.Replication = 1 }
	}
	for _, c := range []struct {
		name   string
		config func(cfg *meta.Config)
		before func(c *copies)
		grant  bool
	}{
		{name: "the only copy"},
		{name: "one other", before: func(c *copies) { c.add("n2") }},
		{name: "two others", grant: true, before: func(c *copies) { c.add("n2"); c.add("n3") }},
		{name: "two others, one not confirmed", before: func(c *copies) {
			c.add("n2")
			c.add("n3")
			c.unconfirmed = []string{"n3"}
		}},
		{name: "two others, and its own not confirmed", grant: true, before: func(c *copies) {
			c.add("n2")
			c.add("n3")
			c.unconfirmed = []string{"n1"}
		}},
		{name: "two others, one down", before: func(c *copies) {
			c.add("n2")
			c.add("n3")
			c.Do(c.t, meta.SetNodeState("n3", 1, meta.NodeDown))
		}},
		{name: "two others, one draining", before: func(c *copies) {
			c.add("n2")
			c.add("n3")
			c.Do(c.t, meta.SetNodeState("n3", 1, meta.NodeDraining))
		}},
		{name: "two others, one on a disk that was replaced", before: func(c *copies) {
			c.add("n2")
			c.add("n3")
			c.Do(c.t, meta.SetNodeState("n3", 1, meta.NodeDown))
			c.Do(c.t, meta.RegisterNode(meta.Registration{ID: "n3", URL: "x", StoreID: uuid.UUID{7}, BootID: uuid.UUID{7}}, new(int64)))
		}},
		{name: "one other and the deep store", config: withDeepStore(0), grant: true,
			before: func(c *copies) { c.add("n2"); deepStore(c, true) }},
		{name: "one other and the deep store, not verified", config: withDeepStore(0),
			before: func(c *copies) { c.add("n2"); deepStore(c, false) }},
		{name: "one other and the deep store, not looked at in this epoch", config: withDeepStore(0), before: func(c *copies) {
			c.add("n2")
			deepStore(c, true)
			c.unconfirmed = []string{uri}
		}},
		{name: "the deep store alone", config: withDeepStore(0), before: func(c *copies) { deepStore(c, true) }},
		{name: "the deep store alone, before its local age", config: withDeepStore(time.Hour),
			before: func(c *copies) { deepStore(c, true) }},
		{name: "the deep store alone, past its local age", config: withDeepStore(time.Hour), grant: true,
			before: func(c *copies) { deepStore(c, true); c.Now += time.Hour.Milliseconds() }},
		{name: "the deep store alone, past its local age, not looked at", config: withDeepStore(time.Hour), before: func(c *copies) {
			deepStore(c, true)
			c.Now += time.Hour.Milliseconds()
			c.unconfirmed = []string{uri}
		}},
		{name: "past its local age without the deep store", config: withDeepStore(time.Hour),
			before: func(c *copies) { c.Now += time.Hour.Milliseconds() }},
		{name: "replication 1: the deep store is the other", config: alone(0), grant: true,
			before: func(c *copies) { deepStore(c, true) }},
		{name: "replication 1: the only copy", config: alone(0)},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newCopies(t, c.config)
			if c.before != nil {
				c.before(x)
			}
			v := x.release("n1")
			listed := slices.Contains(x.nodes(), "n1")
			if v.Accepted != c.grant || listed == c.grant || !c.grant && v.Code != meta.CodeTooFewCopies {
				t.Errorf("got %+v, locations %v", v, x.nodes())
			}
			// The answer is lost. What is granted is granted again while it is true.
			if v := x.release("n1"); v.Accepted != c.grant {
				t.Errorf("repeated: got %+v", v)
			}
		})
	}
}

func TestTwoNodesCannotBothReleaseTheSecondLastCopy(t *testing.T) {
	c := newCopies(t, nil)
	c.add("n2")
	c.add("n3")
	if v := c.release("n1"); v != accepted {
		t.Fatalf("got %+v", v)
	}
	for _, n := range []string{"n2", "n3"} {
		if v := c.release(n); v.Code != meta.CodeTooFewCopies {
			t.Errorf("%s: got %+v", n, v)
		}
	}
	if got := c.nodes(); !slices.Equal(got, []string{"n2", "n3"}) {
		t.Errorf("got %v", got)
	}
}

func TestAReplacedDiskTakesItsPlace(t *testing.T) {
	c := newCopies(t, nil)
	c.Do(t, meta.SetNodeState("n1", 1, meta.NodeDown))
	c.Do(t, meta.RegisterNode(meta.Registration{ID: "n1", URL: "x", StoreID: uuid.UUID{7}, BootID: uuid.UUID{7}}, new(int64)))
	s := c.Image.Segment(c.key)
	if got := meta.CountedCopies(c.Image, s); got.Total() != 0 || !meta.IsSingleCopy(c.Image, s) {
		t.Errorf("a location in the old store counts: %+v", got)
	}
	c.add("n1")
	s = c.Image.Segment(c.key)
	if len(s.Locations) != 1 || s.Locations[0].StoreID != (uuid.UUID{7}) {
		t.Errorf("got %+v", s.Locations)
	}
	if got := meta.CountedCopies(c.Image, s); len(got.Nodes) != 1 {
		t.Errorf("got %+v", got)
	}
}

func TestADeepStoreLocationCountsOnceVerified(t *testing.T) {
	const uri = "file:///backups/x"
	c := newCopies(t, func(cfg *meta.Config) { cfg.DeepStore = &meta.DeepStoreConfig{URI: "file:///backups"} })
	digest := c.Image.Segment(c.key).Digest
	set := func(verified bool) meta.Func { return meta.SetDeepStoreLocation(c.key, digest, uri, verified) }
	c.Do(t, set(false))
	uploaded := c.Now
	s := c.Image.Segment(c.key)
	if s.Times.Uploaded != uploaded || s.Times.DeepStore != 0 || meta.CountedCopies(c.Image, s).Total() != 1 ||
		!meta.IsSingleCopy(c.Image, s) {
		t.Errorf("not verified: got %+v", s)
	}
	c.Do(t, set(true))
	s = c.Image.Segment(c.key)
	if s.Times.Uploaded != uploaded || s.Times.DeepStore != c.Now || meta.CountedCopies(c.Image, s).Total() != 2 ||
		meta.IsSingleCopy(c.Image, s) || len(s.Locations) != 2 {
		t.Errorf("verified: got %+v", s)
	}
	for _, verified := range []bool{false, true} {
		if change := c.Do(t, set(verified)); !change.Empty() {
			t.Errorf("set again with %v: got %+v", verified, change)
		}
	}
	other := digest
	other[0]++
	wantRefusal(t, "digest", c.Try(t, meta.SetDeepStoreLocation(c.key, other, uri, true)), meta.CodeDigestDiffers)
	next := meta.SegmentKey{Table: c.key.Table, Seq: 1}
	wantRefusal(t, "in progress", c.Try(t, meta.SetDeepStoreLocation(next, digest, uri, true)), meta.CodeNotDone)
	c.Do(t, meta.WithdrawDeepStoreLocation(c.key, uri))
	if got := c.nodes(); !slices.Equal(got, []string{"n1"}) {
		t.Errorf("got %v", got)
	}
}

// A record without any place would be looked for nowhere, and the store may have
// what it does not have now.
func TestLastPlaceIsNotWithdrawnAndCountsNoLonger(t *testing.T) {
	const uri = "file:///backups/x"
	c := newCopies(t, func(cfg *meta.Config) { cfg.DeepStore = &meta.DeepStoreConfig{URI: "file:///backups"} })
	s := c.Image.Segment(c.key)
	c.Do(t, meta.SetDeepStoreLocation(c.key, s.Digest, uri, true))
	c.Do(t, meta.SetNodeState("n1", 1, meta.NodeDown))
	var incarnation int64
	c.Do(t, meta.RegisterNode(meta.Registration{ // an empty disk: its copy is of another store
		ID: "n1", URL: "http://n1", StoreID: uuid.UUID{9}, BootID: uuid.UUID{9},
	}, &incarnation))
	c.Do(t, meta.WithdrawDeepStoreLocation(c.key, uri))
	s = c.Image.Segment(c.key)
	if len(s.Locations) != 2 || s.DeepStoreVerified() || !meta.IsSingleCopy(c.Image, s) {
		t.Errorf("got %+v", s.Locations)
	}
	if change := c.Do(t, meta.WithdrawDeepStoreLocation(c.key, uri)); !change.Empty() {
		t.Errorf("withdrawn again: got %+v", change)
	}
	c.add("n2")
	c.Do(t, meta.WithdrawDeepStoreLocation(c.key, uri))
	if s = c.Image.Segment(c.key); slices.ContainsFunc(s.Locations, func(l meta.Location) bool { return l.URI != "" }) {
		t.Errorf("with another place: got %+v", s.Locations)
	}
}

func TestRiskOrdersByCopiesAndThenByAge(t *testing.T) {
	sorted := []meta.Risk{
		{Single: true, Copies: 0, Committed: 9}, {Single: true, Copies: 1, Committed: 3}, {Single: true, Copies: 1, Committed: 4},
		{Single: true, Copies: 2, Committed: 1}, {Committed: 1}, {Committed: 2},
	}
	for i, a := range sorted {
		for j, b := range sorted {
			if got := a.Compare(b); got != cmp.Compare(i, j) {
				t.Errorf("%+v and %+v: got %d", a, b, got)
			}
		}
	}
	c := newCopies(t, nil)
	at := func() meta.Risk { return meta.RiskOf(c.Image, c.Image.Segment(c.key)) }
	if r := at(); !r.Single || r.Copies != 1 || r.Committed == 0 {
		t.Errorf("got %+v", r)
	}
	c.add("n2")
	c.add("n3")
	if r := at(); r.Single || r.Copies != 0 {
		t.Errorf("with all its copies: got %+v", r)
	}
}

func TestSourcesComeInTheOrderOfThePolicy(t *testing.T) {
	const uri = "file:///backups/x"
	c := newCopies(t, nil)
	for _, id := range []string{"n4", "n5"} {
		c.AddNode(t, id, "zone of n2") // n2's neighbours
	}
	for _, id := range []string{"n2", "n3", "n4", "n5"} {
		c.add(id)
	}
	digest := c.Image.Segment(c.key).Digest
	c.Do(t, meta.SetDeepStoreLocation(c.key, digest, "file:///backups/unverified", false))
	c.Do(t, meta.SetDeepStoreLocation(c.key, digest, uri, true))
	c.Do(t, meta.SetNodeState("n3", 1, meta.NodeDown))
	c.Do(t, meta.SetNodeState("n4", 1, meta.NodeDraining))
	for _, x := range []struct {
		policy meta.DownloadPolicy
		self   string
		want   []string
	}{
		{meta.DeepStoreFirst, "n2", []string{uri, "n5", "n1", "n4"}},
		{meta.PeersFirst, "n2", []string{"n5", "n1", "n4", uri}},
		{meta.BothAtOnce, "n2", []string{"n5", "n1", "n4", uri}},
		{meta.PeersFirst, "n1", []string{"n2", "n5", "n4", uri}},
		{meta.PeersFirst, "", []string{"n1", "n2", "n5", "n4", uri}},
	} {
		var got []string
		for _, s := range meta.Sources(c.Image, c.Image.Segment(c.key), x.policy, x.self) {
			got = append(got, s.Node+s.URI)
			if s.Node != "" && (s.URL != "http://"+s.Node || s.Zone != c.Image.Node(s.Node).Zone) {
				t.Errorf("got %+v", s)
			}
		}
		if !slices.Equal(got, x.want) {
			t.Errorf("%s for %q: got %v, want %v", x.policy, x.self, got, x.want)
		}
	}
}
