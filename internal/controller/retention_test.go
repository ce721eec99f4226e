package controller

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/internal/config"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
	"github.com/shoalstore/shoal/segment"
)

const retained = 24 * time.Hour // how long the tables of these tests keep segments

func forADay(c *meta.Config) { c.Retention.Age = config.Duration(retained) }

// full makes a table with so many committed segments in each of its partitions.
func (r *rig) full(name string, partitions, segments int, change ...func(*meta.Config)) uuid.UUID {
	r.Helper()
	id := r.table(name, partitions, append(change, forADay)...)
	for range segments {
		for p := range int32(partitions) {
			r.done(id, p)
		}
	}
	r.settle()
	return id
}

// age lets so much wall time pass at once.
func (r *rig) age(d time.Duration) { r.log.Now += d.Milliseconds() }

// run has the nodes heard of and the next run begin, and returns the change that it
// asks for, nil for none.
func (r *rig) run() *Write {
	r.Helper()
	r.now += r.m.retention.timing.Every
	r.ready("n1", "n2", "n3")
	r.step(Tick{})
	return r.taking()
}

// taking is the change under way that takes segments, nil for none.
func (r *rig) taking() *Write {
	r.Helper()
	var found *Write
	for _, a := range r.flying {
		if w, ok := a.(Write); ok && strings.HasPrefix(w.What, "retention takes ") {
			if found != nil {
				r.Fatal("two at once")
			}
			found = &w
		}
	}
	return found
}

func (r *rig) wantTaking(w *Write, what string) {
	r.Helper()
	switch {
	case w == nil && what != "":
		r.Fatalf("nothing goes, want %s; blocked: %q", what, r.blocked)
	case w != nil && w.What != "retention takes "+what:
		r.Fatalf("%s, want %s", w.What, quoted(what))
	}
}

// seqs are those of the partition's committed segments.
func (r *rig) seqs(table uuid.UUID, partition int32) (seqs []int64) {
	for s := range r.log.Image.Segments(table, partition) {
		if s.Status != meta.SegmentInProgress {
			seqs = append(seqs, s.Seq)
		}
	}
	return seqs
}

func TestOneInTenGoesEachRunTheLongestCommittedFirst(t *testing.T) {
	r := newRig(t)
	id := r.full("t", 2, 12) // committed in turns
	r.age(retained - time.Minute)
	r.wantTaking(r.run(), "")
	r.age(time.Hour)
	for _, want := range []struct {
		what        string
		first       [2]int64
		firstOffset int64 // of partition 0
	}{
		{"2 segments of t", [2]int64{1, 1}, 10},
		{"2 segments of t", [2]int64{2, 2}, 20},
		{"2 segments of t", [2]int64{3, 3}, 30},
		{"1 segments of t", [2]int64{4, 3}, 40}, // one in ten of 18
		{"1 segments of t", [2]int64{4, 4}, 40},
	} {
		r.wantTaking(r.run(), want.what)
		r.settle()
		for p := range int32(2) {
			if got := r.seqs(id, p); got[0] != want.first[p] || got[len(got)-1] != 11 {
				t.Fatalf("partition %d has %v", p, got)
			}
		}
		if got := r.log.Image.Partition(id, 0).FirstRetained; got != want.firstOffset {
			t.Fatalf("firstRetained is %d", got)
		}
	}
	if r.expired != 8 {
		t.Fatalf("%d are said to have gone", r.expired)
	}
}

func TestRunGoesOnInBoundedBatchesOneAtATime(t *testing.T) {
	r := newRig(t)
	id := r.full("t", 4, 300)
	r.age(retained)
	r.wantTaking(r.run(), "100 segments of t")
	r.wantTaking(r.run(), "100 segments of t") // the same: it is under way
	r.step(r.result(r.pick("retention takes")))
	r.wantTaking(r.taking(), "20 segments of t")
	r.settle()
	left := 0
	for p := range int32(4) {
		left += len(r.seqs(id, p))
	}
	if left != 1080 || len(r.m.retention.runs) != 0 {
		t.Fatalf("%d are left, runs %v", left, r.m.retention.runs)
	}
}

func TestYoungerSegmentKeepsThoseBehindIt(t *testing.T) {
	r := newRig(t)
	id := r.full("t", 1, 3)
	r.age(retained)
	r.do(func(im *meta.Image, now int64) (meta.Change, error) {
		s := im.Segment(meta.SegmentKey{Table: id, Seq: 1}).Clone()
		s.Times.Committed = now
		return meta.Change{Upserts: []meta.Record{s}}, nil
	})
	for range 3 {
		r.run()
		r.settle()
	}
	if got := r.seqs(id, 0); !slices.Equal(got, []int64{1, 2}) {
		t.Fatalf("left: %v", got)
	}
}

func TestNothingGoesUnlessTheLeadersClockAgreesWithTheMedian(t *testing.T) {
	for _, c := range []struct {
		name    string
		leader  time.Duration // ahead
		nodes   map[string]time.Duration
		silent  []string
		blocked string
	}{
		{name: "all agree"},
		{name: "within a minute", leader: time.Minute},
		{name: "the leader is ahead", leader: 2 * time.Hour, blocked: "2h0m0s off the median of 3"},
		{name: "the leader is behind", leader: -2 * time.Hour, blocked: "-2h0m0s off"},
		{name: "one crazy node", nodes: map[string]time.Duration{"n1": -1000 * time.Hour}},
		{name: "two crazy nodes", nodes: map[string]time.Duration{"n1": time.Hour, "n3": time.Hour}, blocked: "-1h0m0s off"},
		{name: "two that contradict each other", nodes: map[string]time.Duration{"n1": -3 * time.Hour, "n2": 3 * time.Hour}},
		{name: "one of two", nodes: map[string]time.Duration{"n1": time.Hour}, silent: []string{"n3"}, blocked: "of 2 nodes"},
		{name: "nobody", silent: []string{"n1", "n2", "n3"}, blocked: "no node"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.full("t", 1, 3)
			r.age(retained + 3*time.Hour)
			r.leaderAhead, r.nodesAhead = c.leader, c.nodes
			r.now += time.Minute
			for _, n := range []string{"n1", "n2", "n3"} {
				if !slices.Contains(c.silent, n) {
					r.ready(n)
				}
			}
			r.step(Tick{})
			if w := r.taking(); (w == nil) != (c.blocked != "") || (r.blocked == "") != (c.blocked == "") || !strings.Contains(r.blocked, c.blocked) {
				t.Fatalf("%+v, blocked: %q", w, r.blocked)
			}
			r.leaderAhead, r.nodesAhead = 0, nil // they agree again
			if r.run() == nil || r.blocked != "" {
				t.Fatalf("still blocked: %q", r.blocked)
			}
		})
	}
}

func TestWhoseClocksCount(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(r *rig) // before the heartbeats
		after   time.Duration
		blocked bool
	}{
		{name: "heard of ten seconds ago", after: heartbeatTimeout},
		{name: "heard of longer ago", after: heartbeatTimeout + 1, blocked: true},
		{name: "a node that is DRAINING does not", blocked: true, change: func(r *rig) {
			r.do(meta.SetNodeState("n1", meta.AnyIncarnation, meta.NodeDraining))
			r.nodesAhead = map[string]time.Duration{"n2": time.Hour}
		}},
		{name: "what passes since is no skew", after: 9 * time.Second, change: func(r *rig) { r.leaderAhead = 55 * time.Second }},
	} {
		r := newRig(t)
		r.full("t", 1, 3)
		r.age(retained + time.Minute)
		if c.change != nil {
			c.change(r)
		}
		r.now += time.Minute - c.after
		r.ready("n1", "n2", "n3")
		r.now += c.after
		r.age(c.after)
		r.step(Tick{})
		if (r.blocked != "") != c.blocked || (r.taking() == nil) != c.blocked {
			t.Errorf("%s: blocked: %q", c.name, r.blocked)
		}
	}
}

func TestARunEachInterval(t *testing.T) {
	r := newRig(t)
	id := r.full("t", 1, 5)
	r.age(retained)
	for went := 1; went <= 3; went++ {
		r.wantTaking(r.run(), "1 segments of t")
		r.settle()
		for range 5 { // within the interval
			r.now += 10 * time.Second
			r.ready("n1", "n2", "n3")
			r.step(Tick{})
			r.settle()
		}
		if got := 5 - len(r.seqs(id, 0)); got != went {
			t.Fatalf("%d went in %d runs", got, went)
		}
	}
}

// By the leader's clock they are old enough, and by no other.
func TestLeaderThatIsTwoHoursAheadTakesNothingTooEarly(t *testing.T) {
	r := newRig(t)
	id := r.full("t", 1, 3)
	r.age(retained - time.Hour)
	r.leaderAhead = 2 * time.Hour
	for range 10 {
		r.wantTaking(r.run(), "")
	}
	r.leaderAhead = 0
	r.wantTaking(r.run(), "")
	if r.blocked != "" || len(r.seqs(id, 0)) != 3 {
		t.Fatalf("%q, %v", r.blocked, r.seqs(id, 0))
	}
}

func TestClockThatIsSetAfterTheHeartbeatsIsSeen(t *testing.T) {
	r := newRig(t)
	r.full("t", 1, 3)
	r.age(retained - time.Hour)
	r.now += time.Minute
	r.ready("n1", "n2", "n3")
	r.leaderAhead = 2 * time.Hour
	r.step(Tick{})
	r.wantTaking(r.taking(), "")
	if r.blocked == "" {
		t.Fatal("not blocked")
	}
}

// A clock that is set between two batches of a run ends the run.
func TestClockIsLookedAtForEachBatch(t *testing.T) {
	r := newRig(t)
	id := r.full("t", 1, 1200)
	r.age(retained)
	r.wantTaking(r.run(), "100 segments of t")
	r.leaderAhead = 2 * time.Hour
	r.settle()
	if got := r.seqs(id, 0); got[0] != 100 || r.blocked == "" || len(r.m.retention.runs) != 0 {
		t.Fatalf("the first left is %d, blocked: %q", got[0], r.blocked)
	}
}

func TestRetentionOfATableInEachState(t *testing.T) {
	for state, want := range map[meta.TableState]int{
		meta.TableActive: 1, meta.TablePaused: 1, meta.TableCreating: 0, meta.TableDeleting: 0,
	} {
		r := newRig(t)
		id := r.full("t", 1, 3)
		r.age(retained)
		r.do(func(im *meta.Image, now int64) (meta.Change, error) {
			table := im.Table(id).Clone()
			table.State = state
			return meta.Change{Upserts: []meta.Record{table}}, nil
		})
		r.run()
		r.settle()
		if r.expired != want {
			t.Errorf("%s: %d went", state, r.expired)
		}
	}
}

// What the operator says meanwhile holds, not what the leader saw before.
func TestAgeThatIsRaisedMeanwhileKeepsTheSegments(t *testing.T) {
	r := newRig(t)
	id := r.full("t", 1, 3)
	r.age(retained)
	w := r.run()
	r.log.Do(t, func(im *meta.Image, now int64) (meta.Change, error) {
		cfg := im.CurrentConfig(id).Clone()
		cfg.Retention.Age *= 2
		return meta.UpdateTableConfig(id, cfg)(im, now)
	})
	if ev := r.result(*w).(Wrote); ev.Outcome != commit.WriteRefused {
		t.Fatalf("%+v", ev)
	}
	r.settle()
	if len(r.seqs(id, 0)) != 3 || len(r.m.retention.runs) != 0 {
		t.Fatalf("%v, %v", r.seqs(id, 0), r.m.retention.runs)
	}
}

func TestDeposedInMidRun(t *testing.T) {
	r := newRig(t)
	id := r.full("t", 1, 3)
	r.age(retained)
	w := r.run()
	r.leaderAhead = 2 * time.Hour
	r.run()
	r.step(Depose{})
	if r.blocked != "" {
		t.Fatal("who does not lead is not blocked")
	}
	r.leaderAhead = 0
	r.flying = nil
	r.log.TakeOver(t)
	r.lead()
	r.step(Wrote{ID: w.ID, Outcome: commit.Written, Image: r.log.Image}) // nobody's
	if r.expired != 0 {
		t.Fatal("another leadership's work is counted")
	}
	r.now += time.Minute - 1
	r.ready("n1", "n2", "n3")
	r.step(Tick{})
	r.wantTaking(r.taking(), "") // not before one full interval: nodes have to be heard of
	r.now++
	r.step(Tick{})
	r.wantTaking(r.taking(), "1 segments of t")
	r.settle()
	if got := r.seqs(id, 0); !slices.Equal(got, []int64{1, 2}) {
		t.Fatalf("left: %v", got)
	}
}

func TestRunWithoutAKnownOutcomeIsLeftToTheNext(t *testing.T) {
	r := newRig(t)
	id := r.full("t", 1, 3)
	r.age(retained)
	r.step(failure(*r.run()))
	r.flying = nil
	if len(r.m.retention.runs) != 0 {
		t.Fatal("the run goes on")
	}
	r.wantTaking(r.run(), "1 segments of t")
	r.settle()
	if got := r.seqs(id, 0); !slices.Equal(got, []int64{1, 2}) {
		t.Fatalf("left: %v", got)
	}
}

// quiet lets time pass with the nodes alive, and returns what is done about
// tombstones at its end.
func (r *rig) quiet(d time.Duration) string {
	r.Helper()
	r.now += d - 1
	r.ready("n1", "n2", "n3")
	r.now++
	actions := r.step(Tick{})
	var found []string
	for _, a := range strings.Split(actions, "; ") {
		if strings.Contains(a, "tombstones") || strings.HasPrefix(a, "delete ") {
			found = append(found, a)
		}
	}
	return strings.Join(found, "; ")
}

// pick takes the oldest effect of which what is said out of the air.
func (r *rig) pick(what string) Action {
	r.Helper()
	for i, a := range r.flying {
		if strings.Contains(describe([]Action{a}), what) {
			r.flying = slices.Delete(r.flying, i, i+1)
			return a
		}
	}
	r.Fatalf("no %s is under way", what)
	return nil
}

func (r *rig) wantTombstones(waiting, expired int) {
	r.Helper()
	n := map[bool]int{}
	for t := range r.log.Image.Tombstones() {
		n[t.Expired]++
	}
	if n[false] != waiting || n[true] != expired {
		r.Fatalf("%d tombstones are waiting, %d expired; want %d, %d", n[false], n[true], waiting, expired)
	}
}

func TestLifeOfATombstone(t *testing.T) {
	r := newRig(t)
	id := r.full("t", 1, 3, withDeepStore)
	first := r.log.Image.Segment(meta.SegmentKey{Table: id})
	r.deep[uri(first)] = true
	r.do(expire(r.log, first))
	if got := r.quiet(DefaultRetention.Grace - 1); got != "" {
		t.Fatal(got)
	}
	r.settle()
	r.step(Depose{}) // a new leader begins anew
	r.log.TakeOver(t)
	r.lead()
	if got := r.quiet(DefaultRetention.Grace - 1); got != "" {
		t.Fatal(got)
	}
	if got := r.quiet(1); got != "write 1 tombstones expire" {
		t.Fatal(got)
	}
	if got := r.quiet(time.Second); got != "" { // once
		t.Fatal(got)
	}
	r.step(failure(r.pick("tombstones")))
	if got := r.quiet(tombstoneRetry); got != "write 1 tombstones expire" {
		t.Fatal(got)
	}
	if got := r.step(r.result(r.pick("tombstones"))); got != "delete t__0__0" {
		t.Fatal(got)
	}
	r.step(r.committed())
	r.wantTombstones(0, 1)
	for _, wait := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600} {
		r.step(failure(r.pick("delete")))
		if got := r.quiet(wait*time.Second - 1); got != "" {
			t.Fatal(got)
		}
		if got := r.quiet(1); got != "delete t__0__0" {
			t.Fatalf("after %d s: %q", wait, got)
		}
	}
	if !r.deep[uri(first)] {
		t.Fatal("it is gone")
	}
	r.step(r.result(r.pick("delete")))
	if r.deep[uri(first)] {
		t.Fatal("it is there")
	}
	r.deep[uri(first)] = true // an upload that was late
	if got := r.quiet(DefaultRetention.Keep - 1); got != "" {
		t.Fatal(got)
	}
	if got := r.quiet(1); got != "delete t__0__0" {
		t.Fatal(got)
	}
	r.step(failure(r.pick("delete")))
	if got := r.quiet(deleteRetryMin); got != "delete t__0__0" {
		t.Fatal(got)
	}
	if got := r.step(r.result(r.pick("delete"))); got != "write 1 tombstones go" || r.deep[uri(first)] {
		t.Fatal(got, r.deep)
	}
	r.step(failure(r.pick("tombstones")))
	if got := r.quiet(tombstoneRetry); got != "write 1 tombstones go" {
		t.Fatal(got)
	}
	r.settle()
	r.wantTombstones(0, 0)
	if m := &r.m.retention; len(m.tombs)+m.toExpire.Len()+m.toDelete.Len()+m.toRemove.Len() != 0 || m.deletes != 0 || m.writing {
		t.Fatalf("%+v", m)
	}
}

// A new leader does not know whether the objects of an expired tombstone are gone:
// it deletes them again, which does no harm.
func TestNewLeaderSeesExpiredTombstonesToTheEnd(t *testing.T) {
	r := newRig(t)
	id := r.full("t", 1, 1, withDeepStore)
	k := meta.SegmentKey{Table: id}
	r.do(expire(r.log, r.log.Image.Segment(k)))
	r.step(Depose{})
	r.log.Do(t, meta.ExpireTombstones([]meta.SegmentKey{k}))
	r.log.TakeOver(t)
	if got := r.lead(); !strings.Contains(got, "delete t__0__0") {
		t.Fatal(got)
	}
	r.settle()
	if got := r.quiet(DefaultRetention.Keep); got != "delete t__0__0" {
		t.Fatal(got)
	}
	r.settle()
	r.wantTombstones(0, 0)
}

func TestObjectsAreDeletedOnlyInTheStoreThatTheTableHas(t *testing.T) {
	for name, c := range map[string]struct {
		before []func(*meta.Config)
		after  *meta.DeepStoreConfig
		want   string
	}{
		"none":            {nil, nil, ""},
		"none any more":   {[]func(*meta.Config){withDeepStore}, nil, ""},
		"another one now": {[]func(*meta.Config){withDeepStore}, &meta.DeepStoreConfig{URI: "file:///elsewhere"}, "file:///elsewhere"},
	} {
		r := newRig(t)
		id := r.full("t", 1, 1, c.before...)
		k := meta.SegmentKey{Table: id}
		r.do(expire(r.log, r.log.Image.Segment(k)))
		cfg := r.log.Image.CurrentConfig(id).Clone()
		cfg.DeepStore = c.after
		r.do(meta.UpdateTableConfig(id, cfg))
		r.do(meta.ExpireTombstones([]meta.SegmentKey{k}))
		got := ""
		for _, a := range r.flying {
			if d, ok := a.(DeleteDeepStore); ok {
				got = d.Store
			}
		}
		if got != c.want {
			t.Errorf("%s: deletes in %q", name, got)
		}
		r.settle()
		r.quiet(DefaultRetention.Keep)
		r.settle()
		r.wantTombstones(0, 0)
	}
}

func TestDeletionsAtOnceAreBoundedAndAllGetTheirTurn(t *testing.T) {
	r := newRig(t)
	id := r.full("t", 1, 30, withDeepStore)
	r.do(expire(r.log, r.log.Image.Segment(meta.SegmentKey{Table: id, Seq: 29})))
	for k := range r.m.retention.tombs {
		r.deep["file:///deep/"+r.log.Image.Tombstone(k).DeepStoreKeys[0]] = true
	}
	r.quiet(DefaultRetention.Grace)
	if got := r.step(r.result(r.pick("tombstones"))); strings.Count(got, "delete ") != deletesMax {
		t.Fatal(got)
	}
	r.settle()
	r.wantTombstones(0, 30)
	for uri, there := range r.deep {
		if there {
			t.Fatalf("%s is there", uri)
		}
	}
}

// A tombstone that goes while its object is being deleted is forgotten.
func TestTombstoneThatGoesMeanwhileIsForgotten(t *testing.T) {
	r := newRig(t)
	id := r.full("t", 1, 1, withDeepStore)
	keys := []meta.SegmentKey{{Table: id}}
	r.do(expire(r.log, r.log.Image.Segment(keys[0])))
	r.do(meta.ExpireTombstones(keys))
	r.do(meta.RemoveTombstones(keys))
	r.settle()
	if m := &r.m.retention; len(m.tombs)+m.toExpire.Len()+m.toDelete.Len()+m.toRemove.Len() != 0 || m.deletes != 0 {
		t.Fatalf("%+v", m)
	}
}

// TestRetentionDeletesFromARealStore takes a segment through its whole end with a
// directory that the leader deletes from as it does.
func TestRetentionDeletesFromARealStore(t *testing.T) {
	dir := t.TempDir()
	storeURI, err := deepstore.FileURI(dir)
	if err != nil {
		t.Fatal(err)
	}
	c := &Controller{log: zerolog.Nop(), deep: deepstore.NewOpener([]string{dir}, deepstore.S3Config{})}
	store, err := c.deep.Store(storeURI)
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t)
	r.m = NewMachine()
	r.m.SetValidation(noValidation)
	r.m.SetRetention(RetentionTiming{Every: time.Second, Grace: 10 * time.Second, Keep: 20 * time.Second})
	r.lead()
	r.deletes = func(a DeleteDeepStore) Deleted { return c.deleteDeepStore(t.Context(), a) }
	id := r.table("t", 1, forADay, func(cfg *meta.Config) { cfg.DeepStore = &meta.DeepStoreConfig{URI: storeURI} })
	for i := range 2 {
		data := []byte(fmt.Sprint("segment ", i))
		pieces, digest, err := segment.HashFile(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		done := r.log.Commit(t, meta.PartitionKey{Table: id}, 10)
		done.Info.Digest = digest
		r.do(meta.CommitSegment(done))
		if _, err := deepstore.Upload(t.Context(), store, r.log.Image.Segment(done.Key).Name, bytes.NewReader(data), pieces); err != nil {
			t.Fatal(err)
		}
		r.age(retained) // the second is young when the first is old enough
	}
	files := func() (names []string) {
		all, err := filepath.Glob(filepath.Join(dir, "t", "0", "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range all {
			names = append(names, filepath.Base(f)[:len("t__0__0")]+filepath.Ext(f))
		}
		return names
	}
	r.log.Now -= (retained / 2).Milliseconds()
	kept := []string{"t__0__1.parquet", "t__0__1.pieces"}
	if got := files(); len(got) != 4 {
		t.Fatalf("in the store: %v", got)
	}
	second := func() {
		r.now += time.Second
		r.age(time.Second)
		r.ready("n1", "n2", "n3")
		r.step(Tick{})
		r.settle()
	}
	for range 5 {
		second()
	}
	if got := files(); len(got) != 4 || r.expired != 1 {
		t.Fatalf("within the grace: %v, %d expired", got, r.expired)
	}
	for range 10 {
		second()
	}
	if got := files(); !slices.Equal(got, kept) {
		t.Fatalf("after the grace: %v", got)
	}
	r.wantTombstones(0, 1)
	for range 20 {
		second()
	}
	r.wantTombstones(0, 0)
	if got := files(); !slices.Equal(got, kept) || len(r.seqs(id, 0)) != 1 {
		t.Fatalf("in the end: %v, %v", got, r.seqs(id, 0))
	}
}

func TestDeletionThatFailsSaysSo(t *testing.T) {
	dir := t.TempDir()
	storeURI, err := deepstore.FileURI(filepath.Join(dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	c := &Controller{log: zerolog.Nop(), deep: deepstore.NewOpener([]string{dir}, deepstore.S3Config{})}
	key, err := deepstore.DataKey("t__0__0__20260101T000000Z", metatest.DigestOf("x"))
	if err != nil {
		t.Fatal(err)
	}
	for name, a := range map[string]DeleteDeepStore{
		"a store below no root": {Store: "file:///etc", Keys: []string{key}},
		"no key of the layout":  {Store: storeURI, Keys: []string{"../../etc/passwd"}},
		"a sidecar":             {Store: storeURI, Keys: []string{deepstore.PiecesKey(key)}},
	} {
		if got := c.deleteDeepStore(t.Context(), a); got.Err == nil {
			t.Errorf("%s: deleted", name)
		}
	}
	if got := c.deleteDeepStore(t.Context(), DeleteDeepStore{ID: 7, Store: storeURI, Keys: []string{key}}); got.Err != nil || got.ID != 7 {
		t.Errorf("an object that is not there: %+v", got)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
}

func TestRetentionIsShown(t *testing.T) {
	reg := prometheus.NewRegistry()
	c := &Controller{log: zerolog.Nop(), retention: newRetentionMetrics(reg)}
	show := func() string {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, f := range families {
			for _, m := range f.Metric {
				out = append(out, fmt.Sprint(f.GetName(), " ", m.GetCounter().GetValue()+m.GetGauge().GetValue()))
			}
		}
		return strings.Join(out, "; ")
	}
	c.expired(Expired{Table: "t", Segments: 3})
	c.retentionBlocked(RetentionBlocked{Why: "the clocks"})
	if got := show(); got != "shoal_retention_blocked 1; shoal_segments_expired_total 3" {
		t.Error(got)
	}
	c.retentionBlocked(RetentionBlocked{})
	if got := show(); got != "shoal_retention_blocked 0; shoal_segments_expired_total 3" {
		t.Error(got)
	}
}
