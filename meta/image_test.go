package meta_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
)

// TestARandomWalkKeepsEveryInvariant makes random changes as a leader does, and
// after each compares the image with what can be told without its trees and
// indexes.
func TestARandomWalkKeepsEveryInvariant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := metatest.Walk(t, 60, func(l *metatest.Log) {
			if v := meta.CheckInvariants(l.Image); len(v) > 0 {
				t.Fatalf("%v", v)
			}
		})
		records := slices.Collect(l.Image.Records())
		if !slices.IsSortedFunc(records, func(a, b meta.Record) int { return a.Key().Compare(b.Key()) }) {
			t.Fatal("the records are not sorted")
		}
		if len(records) != l.Image.Len() {
			t.Fatalf("%d records, Len is %d", len(records), l.Image.Len())
		}
		checkIndexes(t, l.Image, records)
		checkReplay(t, l)
		at := meta.Position{Next: l.Image.Next(), Epoch: l.Image.Epoch(), Time: l.Image.LastTime()}
		shuffled := rapid.Permutation(records).Draw(t, "order")
		for _, order := range [][]meta.Record{records, shuffled} {
			restored, err := meta.Restore(at, slices.Values(order))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(records, slices.Collect(restored.Records())) || restored.LastTerm() != l.Image.LastTerm() {
				t.Fatal("restored from its records, the image is another")
			}
			checkIndexes(t, restored, records)
		}
	})
}

// checkIndexes compares the answers of the index with a scan.
func checkIndexes(t *rapid.T, im *meta.Image, records []meta.Record) {
	t.Helper()
	naming, consuming, listed := map[string][]*meta.Segment{}, map[string][]*meta.Segment{}, map[string][]*meta.Segment{}
	var awaiting []*meta.Segment
	for _, r := range records {
		if im.Lookup(r.Key()) != r {
			t.Fatalf("%s is not found under its key", r.Key())
		}
		s, ok := r.(*meta.Segment)
		if !ok {
			continue
		}
		if s.Status == meta.SegmentDone && !s.DeepStoreVerified() {
			awaiting = append(awaiting, s)
		}
		for n := range im.Nodes() {
			isReplica, isListed := slices.Contains(s.Replicas, n.ID), s.NodeLocation(n.ID) != nil
			if isReplica || isListed {
				naming[n.ID] = append(naming[n.ID], s)
			}
			if isListed {
				listed[n.ID] = append(listed[n.ID], s)
			}
			if isReplica && s.Status == meta.SegmentInProgress {
				consuming[n.ID] = append(consuming[n.ID], s)
			}
		}
	}
	for n := range im.Nodes() {
		if got := slices.Collect(im.SegmentsNaming(n.ID)); !slices.Equal(got, naming[n.ID]) {
			t.Fatalf("%s is named by %d segments, not %d", n.ID, len(naming[n.ID]), len(got))
		}
		if got := slices.Collect(im.SegmentsConsuming(n.ID)); !slices.Equal(got, consuming[n.ID]) {
			t.Fatalf("%s consumes %d segments, not %d", n.ID, len(consuming[n.ID]), len(got))
		}
		if got := slices.Collect(im.SegmentsListed(n.ID)); !slices.Equal(got, listed[n.ID]) {
			t.Fatalf("%s is listed in %d segments, not %d", n.ID, len(listed[n.ID]), len(got))
		}
	}
	if got := slices.Collect(im.SegmentsAwaitingDeepStore()); !slices.Equal(got, awaiting) {
		t.Fatalf("%d segments wait for the deep store, not %d", len(awaiting), len(got))
	}
	for table := range im.Tables() {
		of := slices.DeleteFunc(slices.Clone(awaiting), func(s *meta.Segment) bool { return s.Table != table.ID })
		if got := slices.Collect(im.TableSegmentsAwaitingDeepStore(table.ID)); !slices.Equal(got, of) {
			t.Fatalf("%d segments of table %q wait for the deep store, not %d", len(of), table.Name, len(got))
		}
		if im.Table(table.ID) != table || im.TableByName(table.Name) != table {
			t.Fatalf("table %q is not found by id and name", table.Name)
		}
	}
}

// checkReplay applies the batches again, and in one group, to the same image.
func checkReplay(t *rapid.T, l *metatest.Log) {
	t.Helper()
	im := meta.Empty()
	for i, b := range l.Batches {
		before := slices.Collect(im.Records())
		next, err := im.Apply(b)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(before, slices.Collect(im.Records())) {
			t.Fatalf("batch %d changed the image that it was applied to", i)
		}
		im = next
	}
	want := slices.Collect(l.Image.Records())
	if got := slices.Collect(im.Records()); !slices.Equal(got, want) {
		t.Fatal("the same batches make another image")
	}
	checkGroup(t, l, rapid.IntRange(1, len(l.Batches)).Draw(t, "split"))
}

// checkGroup evaluates the batches from first on as the writer does, one on top
// of the other, and then writes them as one.
func checkGroup(t *rapid.T, l *metatest.Log, first int) {
	t.Helper()
	base := meta.Empty()
	for _, b := range l.Batches[:first] {
		base, _ = base.Apply(b)
	}
	speculative := base
	var changes []meta.Change
	for _, b := range l.Batches[first:] {
		if b.Epoch != base.Epoch() {
			break
		}
		c := meta.Change{Upserts: b.Upserts, Removals: b.Removals}
		changes = append(changes, c)
		var err error
		if speculative, err = speculative.With(c); err != nil {
			t.Fatal(err)
		}
	}
	merged := base.Merge(changes...)
	grouped, err := base.Apply(&meta.Batch{
		Offset: base.Next(), Epoch: base.Epoch(), Term: base.LastTerm(), Time: base.LastTime() + 1,
		Upserts: merged.Upserts, Removals: merged.Removals,
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(slices.Collect(grouped.Records()), slices.Collect(speculative.Records())) {
		t.Fatalf("%d changes in one batch are not the changes one by one", len(changes))
	}
}

// TestReadersOfOldImagesAreNotDisturbed is for the race detector.
func TestReadersOfOldImagesAreNotDisturbed(t *testing.T) {
	l := metatest.NewLog(t)
	l.AddNode(t, "n1", "a")
	l.AddNode(t, "n2", "b")
	id := l.AddTable(t, metatest.Config("flights"), 3)
	var readers sync.WaitGroup
	for range 60 {
		for p := range int32(3) {
			l.Do(t, meta.CommitSegment(l.Commit(t, meta.PartitionKey{Table: id, Partition: p}, 10)))
		}
		im := l.Image
		readers.Go(func() {
			n := 0
			for range im.Records() {
				n++
			}
			for s := range im.SegmentsNaming("n1") {
				_ = im.Segment(s.SegmentKey())
			}
			if n != im.Len() {
				t.Errorf("read %d records of %d", n, im.Len())
			}
		})
		// Another line from the same image: the writer's speculation.
		readers.Go(func() {
			c, err := meta.RequestEnd(id, nil, meta.EndForceCommit, uuid.UUID{})(im, 1)
			if err == nil {
				_, err = im.With(c)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	readers.Wait()
}

func TestApplyRefusesABatchThatDoesNotFollow(t *testing.T) {
	l := metatest.NewLog(t)
	l.TakeOver(t)
	im := l.Image
	follows := func() *meta.Batch {
		return &meta.Batch{Offset: im.Next(), Epoch: im.Epoch(), Term: im.LastTerm(), Time: im.LastTime() + 1}
	}
	if _, err := im.Apply(follows()); err != nil {
		t.Fatalf("an empty batch: %v", err)
	}
	leader := func(epoch int64) meta.Record { return &meta.Leader{Epoch: epoch, Term: uuid.UUID{9}} }
	for name, change := range map[string]func(b *meta.Batch){
		"another offset":             func(b *meta.Batch) { b.Offset++ },
		"an offset again":            func(b *meta.Batch) { b.Offset-- },
		"an older epoch":             func(b *meta.Batch) { b.Epoch-- },
		"another term":               func(b *meta.Batch) { b.Term[0]++ },
		"back in time":               func(b *meta.Batch) { b.Time = im.LastTime() - 1 },
		"new epoch without leader":   func(b *meta.Batch) { b.Epoch++; b.Term = uuid.UUID{9} },
		"leader of another epoch":    func(b *meta.Batch) { b.Epoch++; b.Term = uuid.UUID{9}; b.Upserts = []meta.Record{leader(9)} },
		"leader of another term":     func(b *meta.Batch) { b.Epoch++; b.Upserts = []meta.Record{leader(b.Epoch)} },
		"leader in mid-epoch":        func(b *meta.Batch) { b.Upserts = []meta.Record{leader(b.Epoch)} },
		"another cluster":            func(b *meta.Batch) { b.Upserts = []meta.Record{&meta.Cluster{ID: uuid.UUID{7}}} },
		"a key twice":                func(b *meta.Batch) { j := &meta.Job{}; b.Upserts = []meta.Record{j, j.Clone()} },
		"removal of what is not":     func(b *meta.Batch) { b.Removals = []meta.Key{{Kind: meta.KindNode, Name: "n1"}} },
		"removal of the cluster":     func(b *meta.Batch) { b.Removals = []meta.Key{{Kind: meta.KindCluster}} },
		"removal of an unknown kind": func(b *meta.Batch) { b.Removals = []meta.Key{{Kind: 99}} },
	} {
		b := follows()
		change(b)
		wantBroken(t, name, im, b)
	}
}

func wantBroken(t *testing.T, name string, im *meta.Image, b *meta.Batch) {
	t.Helper()
	next, err := im.Apply(b)
	var broken *meta.InvariantError
	if !errors.As(err, &broken) || next != nil {
		t.Errorf("%s: got %v, not an InvariantError", name, err)
	}
}

// TestApplyRefusesWhatBreaksAnInvariant takes a sound image and one record that
// no function would write.
func TestApplyRefusesWhatBreaksAnInvariant(t *testing.T) {
	l := metatest.NewLog(t)
	l.AddNode(t, "n1", "a")
	l.AddNode(t, "n2", "b")
	id := l.AddTable(t, metatest.Config("flights"), 1)
	k := meta.PartitionKey{Table: id}
	l.Do(t, meta.CommitSegment(l.Commit(t, k, 40)))
	l.Do(t, meta.CommitSegment(l.Commit(t, k, 40)))
	done := func(change func(s *meta.Segment)) meta.Record {
		s := l.Image.Segment(k.Segment(0)).Clone()
		change(s)
		return s
	}
	current := func(change func(s *meta.Segment)) meta.Record {
		s := l.Image.Segment(k.Segment(2)).Clone()
		change(s)
		return s
	}
	partition := func(change func(p *meta.Partition)) meta.Record {
		p := l.Image.Partition(id, 0).Clone()
		change(p)
		return p
	}
	for _, c := range []struct {
		name   string
		change meta.Change
	}{
		{"I2: another end", upsert(done(func(s *meta.Segment) { s.End = 39 }))},
		{"I2: another digest", upsert(done(func(s *meta.Segment) { s.Digest[0]++ }))},
		{"I2: back to IN_PROGRESS", upsert(done(func(s *meta.Segment) { s.Status = meta.SegmentInProgress }))},
		{"I2: another end by a recommit", upsert(done(func(s *meta.Segment) { s.End, s.Generation = 39, 1 }))},
		{"another start", upsert(done(func(s *meta.Segment) { s.Start = 1 }))},
		{"another name", upsert(done(func(s *meta.Segment) { s.Name += "x" }))},
		{"unknown status", upsert(current(func(s *meta.Segment) { s.Status = "ODD" }))},
		{"IN_PROGRESS with a location", upsert(current(func(s *meta.Segment) { s.Locations = []meta.Location{{Node: "n1"}} }))},
		{"I1: done without its successor", upsert(
			current(func(s *meta.Segment) { s.Status, s.End, s.Digest = meta.SegmentDone, 90, metatest.DigestOf("x") }),
			partition(func(p *meta.Partition) { p.NextOffset = 90 }))},
		{"I1: two IN_PROGRESS", upsert(
			current(func(s *meta.Segment) { s.Seq, s.Start = 3, 80 }),
			partition(func(p *meta.Partition) { p.NextSeq = 4 }))},
		{"I1: covers nothing", upsert(current(func(s *meta.Segment) {
			s.Status, s.End, s.Digest = meta.SegmentDone, 80, metatest.DigestOf("x")
		}), partition(func(p *meta.Partition) { p.State = meta.PartitionEnded }))},
		{"I1: paused while consuming", upsert(partition(func(p *meta.Partition) { p.State = meta.PartitionPaused }))},
		{"I1: a segment is taken out of the middle", meta.Change{Removals: []meta.Key{k.Segment(1).Key()}}},
		{"I1: the first is taken out without a word", meta.Change{Removals: []meta.Key{k.Segment(0).Key()}}},
		{"the first is taken out without a tombstone", meta.Change{
			Removals: []meta.Key{k.Segment(0).Key()},
			Upserts:  []meta.Record{partition(func(p *meta.Partition) { p.FirstRetained = 40 })},
		}},
		{"I1: a segment stays below firstRetained", upsert(partition(func(p *meta.Partition) { p.FirstRetained = 40 }))},
		{"I1: nextOffset runs ahead", upsert(partition(func(p *meta.Partition) { p.NextOffset++ }))},
		{"I5: nextOffset goes back", upsert(partition(func(p *meta.Partition) { p.NextOffset-- }))},
		{"I5: nextSeq goes back", upsert(partition(func(p *meta.Partition) { p.NextSeq-- }))},
		{"a name that differs in case", upsert(&meta.Table{ID: uuid.UUID{5}, Name: "FLIGHTS"})},
		{"a name that is taken", upsert(&meta.Table{ID: uuid.UUID{5}, Name: "flights"})},
		{"I4: an older incarnation", upsert(&meta.Node{ID: "n1"})},
		{"re-created beside its tombstone", upsert(&meta.Tombstone{Table: id, Seq: 1},
			done(func(s *meta.Segment) { s.Seq, s.Start, s.End = 1, 40, 80 }))},
	} {
		if _, err := l.Image.With(c.change); err == nil {
			t.Errorf("%s: accepted", c.name)
		} else if broken := new(meta.InvariantError); !errors.As(err, &broken) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	// What retention and a recommit do is allowed.
	for _, c := range []struct {
		name   string
		change meta.Change
	}{
		{"retention", meta.Change{
			Removals: []meta.Key{k.Segment(0).Key()},
			Upserts: []meta.Record{
				partition(func(p *meta.Partition) { p.FirstRetained = 40 }),
				&meta.Tombstone{Table: id, Seq: 0},
			},
		}},
		{"recommit", upsert(done(func(s *meta.Segment) { s.Generation++; s.Digest[0]++ }))},
		{"lost", upsert(done(func(s *meta.Segment) { s.Status = meta.SegmentLost }))},
		{"deleted, with a hole", meta.Change{
			Removals: []meta.Key{k.Segment(1).Key()},
			Upserts: []meta.Record{
				partition(func(p *meta.Partition) { p.Holes = []meta.Hole{{From: 40, To: 80, Why: "asked for"}} }),
				&meta.Tombstone{Table: id, Seq: 1},
			},
		}},
	} {
		if im, err := l.Image.With(c.change); err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if v := meta.CheckInvariants(im); len(v) > 0 {
			t.Errorf("%s: %v", c.name, v)
		}
	}
}

func upsert(records ...meta.Record) meta.Change { return meta.Change{Upserts: records} }

func TestANodeIsForgottenAndComesBackInOneBatch(t *testing.T) {
	l := metatest.NewLog(t)
	l.AddNode(t, "n1", "a")
	again := meta.Registration{ID: "n1", URL: "http://n1", StoreID: uuid.UUID{1}, BootID: uuid.UUID{1}}
	l.Do(t, meta.SetNodeState("n1", meta.AnyIncarnation, meta.NodeDown))
	l.Do(t, meta.RegisterNode(again, new(int64))) // incarnation 2
	l.Do(t, meta.SetNodeState("n1", meta.AnyIncarnation, meta.NodeDown))
	removal, err := meta.RemoveNode("n1")(l.Image, 1)
	if err != nil {
		t.Fatal(err)
	}
	without, err := l.Image.With(removal)
	if err != nil {
		t.Fatal(err)
	}
	registration, err := meta.RegisterNode(again, new(int64))(without, 1)
	if err != nil {
		t.Fatal(err)
	}
	im, err := l.Image.With(l.Image.Merge(removal, registration))
	if err != nil {
		t.Fatal(err)
	}
	if n := im.Node("n1"); n.Incarnation != 1 || n.State != meta.NodeUp {
		t.Errorf("got %+v", n)
	}
	both, err := l.Image.With(l.Image.Merge(removal, registration, removal))
	if err != nil || both.Node("n1") != nil {
		t.Errorf("removed again: %v, %+v", err, both)
	}
}

func TestATableThatIsGoneGivesItsNameToAnotherInOneBatch(t *testing.T) {
	l := metatest.NewLog(t)
	l.Do(t, meta.CreateTable(metatest.Config("flights"), uuid.UUID{1}))
	old := l.Image.TableByName("flights").Clone()
	old.State = meta.TableDeleting
	deleting, err := l.Image.With(upsert(old))
	if err != nil {
		t.Fatal(err)
	}
	last := meta.Change{Removals: []meta.Key{old.Key(), {Kind: meta.KindTableConfig, Table: old.ID, Num: 1}}}
	gone, err := deleting.With(last)
	if err != nil {
		t.Fatal(err)
	}
	created, err := meta.CreateTable(metatest.Config("flights"), uuid.UUID{2})(gone, 1)
	if err != nil {
		t.Fatal(err)
	}
	im, err := deleting.With(deleting.Merge(last, created))
	if err != nil {
		t.Fatal(err)
	}
	if im.Table(uuid.UUID{1}) != nil || im.Table(uuid.UUID{2}) != im.TableByName("Flights") {
		t.Fatal("the old table is still found, or the new one is not")
	}
}

func TestRestoreRefusesABrokenImage(t *testing.T) {
	l := metatest.NewLog(t)
	l.AddNode(t, "n1", "a")
	id := l.AddTable(t, metatest.Config("flights"), 1)
	records := slices.Collect(l.Image.Records())
	without := slices.DeleteFunc(slices.Clone(records), func(r meta.Record) bool {
		return r.Key() == meta.PartitionKey{Table: id}.Segment(0).Key()
	})
	for name, broken := range map[string][]meta.Record{
		"a segment is missing": without,
		"a record twice":       append(slices.Clone(records), records[len(records)-1]),
	} {
		if _, err := meta.Restore(meta.Position{}, slices.Values(broken)); err == nil {
			t.Errorf("%s: restored", name)
		}
	}
}

func TestKeysOrderAndPrint(t *testing.T) {
	keys := []meta.Key{
		{Kind: meta.KindCluster},
		{Kind: meta.KindTable, Name: "a"},
		{Kind: meta.KindTable, Name: "b"},
		{Kind: meta.KindSegment, Table: uuid.UUID{1}, Partition: 2, Num: 10},
		{Kind: meta.KindSegment, Table: uuid.UUID{1}, Partition: 10, Num: 2},
		{Kind: meta.KindSegment, Table: uuid.UUID{2}},
		{Kind: meta.KindJob, Name: "a"},
	}
	if !slices.IsSortedFunc(keys, meta.Key.Compare) {
		t.Error("the keys are not in order")
	}
	if got, want := fmt.Sprint(keys[3]), "segment 01000000-0000-0000-0000-000000000000/2/10"; got != want {
		t.Errorf("got %q, not %q", got, want)
	}
	if got := fmt.Sprint(meta.Kind(99)); got != "kind 99" {
		t.Errorf("got %q", got)
	}
}

func TestCloneSharesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := metatest.Segment().Draw(t, "segment")
		c := s.Clone()
		if !reflect.DeepEqual(c, s) {
			t.Fatal("the clone differs")
		}
		for i := range c.Locations {
			c.Locations[i].Since++
		}
		for i := range c.Replicas {
			c.Replicas[i] += "x"
		}
		if c.EndRequested != nil {
			c.EndRequested.Reason += "x"
		}
		if c.LastError != nil {
			c.LastError.At++
		}
		for i := range s.Locations {
			if s.Locations[i] == c.Locations[i] {
				t.Fatal("locations are shared")
			}
		}
		for i := range s.Replicas {
			if s.Replicas[i] == c.Replicas[i] {
				t.Fatal("replicas are shared")
			}
		}
		if s.EndRequested != nil && s.EndRequested.Reason == c.EndRequested.Reason || s.LastError != nil && s.LastError.At == c.LastError.At {
			t.Fatal("what pointers lead to is shared")
		}
	})
}
