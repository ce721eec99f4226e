package zkmeta

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
	"github.com/shoalstore/shoal/metalog"
)

// znodes is a tree in memory that takes a multi as ZooKeeper does, versions apart.
type znodes struct {
	data     map[string][]byte
	children map[string]int
}

func newZnodes(dirs ...string) *znodes {
	z := &znodes{data: map[string][]byte{}, children: map[string]int{}}
	for _, dir := range dirs {
		z.data[dir] = nil
	}
	return z
}

// do carries out one operation. The parent of a name without a slash is there.
func (z *znodes) do(op Op) error {
	_, there := z.data[op.Path]
	parent := path.Dir(op.Path)
	switch op.Kind {
	case OpCreate:
		if _, ok := z.data[parent]; !ok && parent != "." {
			return ErrNoNode
		}
		if there {
			return ErrNodeExists
		}
		z.children[parent]++
		z.data[op.Path] = op.Data
	case OpSet:
		if !there {
			return ErrNoNode
		}
		z.data[op.Path] = op.Data
	case OpDelete:
		if !there {
			return ErrNoNode
		}
		if z.children[op.Path] > 0 {
			return ErrNotEmpty
		}
		z.children[parent]--
		delete(z.data, op.Path)
	default:
		return errors.New("no such operation")
	}
	return nil
}

// multi carries out all of them, or fails the test: what recordOps asks for is
// never refused.
func (z *znodes) multi(t rapid.TB, ops []Op) {
	t.Helper()
	for i, op := range ops {
		if op.Kind != OpCreate && op.Version != -1 {
			t.Fatalf("operation %d on %s is for version %d", i, op.Path, op.Version)
		}
		if err := z.do(op); err != nil {
			t.Fatalf("operation %d (kind %d) on %s: %v", i, op.Kind, op.Path, err)
		}
	}
}

// wantImage checks that the tree is the image, no znode more and none less.
func (z *znodes) wantImage(t rapid.TB, im *meta.Image) {
	t.Helper()
	want := map[string]bool{}
	for _, dir := range fixedDirs {
		want[dir] = true
	}
	for r := range im.Records() {
		rel := recordPath(r.Key())
		for dir := path.Dir(rel); dir != "."; dir = path.Dir(dir) {
			want[dir] = true
		}
		want[rel] = true
		wantRecord(t, rel, z.data[rel], r)
	}
	for rel := range want {
		if _, ok := z.data[rel]; !ok {
			t.Fatalf("znode %s is missing", rel)
		}
	}
	for rel := range z.data {
		if !want[rel] {
			t.Fatalf("znode %s is left over", rel)
		}
	}
}

// wantRecord checks that a znode is its record: from the JSON to the record, from
// there to CBOR and back, nothing changes.
func wantRecord(t rapid.TB, rel string, data []byte, want meta.Record) {
	t.Helper()
	got, err := decodeRecord(want.Key().Kind, rel, data)
	if err != nil {
		t.Fatalf("%s: %v", rel, err)
	}
	cbor, err := meta.EncodeRecord(got)
	if err != nil {
		t.Fatal(err)
	}
	again, err := meta.DecodeRecord(want.Key().Kind, cbor)
	if err != nil {
		t.Fatal(err)
	}
	wantCBOR, err := meta.EncodeRecord(want)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(again, want) || !bytes.Equal(cbor, wantCBOR) {
		t.Fatalf("%s holds %s", rel, data)
	}
}

// history is a random one: a walk through the functions of a leader, and then what
// those do not do, the ends of jobs, nodes and tables.
func history(t *rapid.T, steps int) *metatest.Log {
	l := metatest.Walk(t, steps, nil)
	for range rapid.IntRange(0, 6).Draw(t, "jobs") {
		changeJobs(t, l)
	}
	for table := range l.Image.Tables() {
		if rapid.Bool().Draw(t, "delete table") {
			deleteTable(t, l, table)
		}
	}
	return l
}

// changeJobs makes some jobs, removes some, and replaces one in the batch that
// removes it. Their ids share few first bytes.
func changeJobs(t *rapid.T, l *metatest.Log) {
	var c meta.Change
	for j := range l.Image.Jobs() {
		switch rapid.IntRange(0, 3).Draw(t, "job") {
		case 0:
			c.Removals = append(c.Removals, j.Key())
		case 1:
			c.Removals = append(c.Removals, j.Key())
			c.Upserts = append(c.Upserts, &meta.Job{ID: j.ID, Kind: "again", State: meta.JobRunning})
		}
	}
	for range rapid.IntRange(0, 3).Draw(t, "new jobs") {
		id := metatest.ID(fmt.Sprint("job ", l.Image.Next(), len(c.Upserts)))
		id[0] %= 3
		c.Upserts = append(c.Upserts, &meta.Job{ID: id, Kind: "test", State: meta.JobRunning})
	}
	l.Do(t, func(*meta.Image, int64) (meta.Change, error) { return c, nil })
}

// deleteTable removes a table and all that is of it, a partition at a time.
func deleteTable(t *rapid.T, l *metatest.Log, table *meta.Table) {
	remove := func(keys []meta.Key, upserts ...meta.Record) {
		l.Do(t, func(*meta.Image, int64) (meta.Change, error) {
			return meta.Change{Removals: keys, Upserts: upserts}, nil
		})
	}
	going := table.Clone()
	going.State, going.Pause = meta.TableDeleting, nil
	remove(nil, going)
	for p := range l.Image.Partitions(table.ID) {
		keys := slices.Collect(keysOf(l.Image.Segments(table.ID, p.Partition)))
		for tomb := range l.Image.Tombstones() {
			if tomb.SegmentKey().PartitionKey() == p.PartitionKey() {
				keys = append(keys, tomb.Key())
			}
		}
		remove(append(keys, p.Key()))
	}
	remove(append(slices.Collect(keysOf(l.Image.TableConfigs(table.ID))), table.Key()))
}

// TestTreeIsTheImage: after each batch of any history the record znodes are exactly
// the records of the image, and a directory is there exactly while it has one.
func TestTreeIsTheImage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		im, tree := meta.Empty(), newZnodes(fixedDirs...)
		for _, b := range history(t, 60).Batches {
			ops, err := recordOps(im, b)
			if err != nil {
				t.Fatal(err)
			}
			tree.multi(t, ops)
			if im, err = im.Apply(b); err != nil {
				t.Fatal(err)
			}
			tree.wantImage(t, im)
		}
	})
}

// TestTreeOfManySegments crosses the borders of the directories of a thousand, where
// a batch makes a directory and another one leaves it empty.
func TestTreeOfManySegments(t *testing.T) {
	im, tree := meta.Empty(), newZnodes(fixedDirs...)
	l := metatest.NewLog(t)
	l.AddNode(t, "n1", "a")
	l.AddNode(t, "n2", "a")
	table := l.AddTable(t, metatest.Config("many"), 2)
	k := meta.PartitionKey{Table: table, Partition: 1}
	for range bucketSeqs + 5 {
		l.Do(t, meta.CommitSegment(l.Commit(t, k, 7)))
	}
	wall := l.Now + 10*time.Duration(l.Image.CurrentConfig(table).Retention.Age).Milliseconds()
	for _, through := range []int64{3, bucketSeqs - 1, bucketSeqs} {
		for { // in as many batches as it takes
			before := l.Image.Next()
			l.Do(t, meta.ExpireSegments(k, through, wall, metatest.ObjectKey))
			if l.Image.Next() == before {
				break
			}
		}
		var keys []meta.SegmentKey
		for tomb := range l.Image.Tombstones() {
			keys = append(keys, tomb.SegmentKey())
		}
		l.Do(t, meta.ExpireTombstones(keys))
		l.Do(t, meta.RemoveTombstones(keys))
	}
	first := slices.Collect(l.Image.Segments(k.Table, k.Partition))[0]
	if first.Seq != bucketSeqs+1 {
		t.Fatalf("the first segment left is %d", first.Seq)
	}
	for _, b := range l.Batches {
		ops, err := recordOps(im, b)
		if err != nil {
			t.Fatal(err)
		}
		tree.multi(t, ops)
		if im, err = im.Apply(b); err != nil {
			t.Fatal(err)
		}
	}
	tree.wantImage(t, im)
}

// TestBatchSizeBoundsTheMulti: the writer's measure of a batch, and what BatchBytesMax
// leaves for the head and the trimming, is no less than the real request.
func TestBatchSizeBoundsTheMulti(t *testing.T) {
	root := "/" + string(bytes.Repeat([]byte("r"), rootBytesMax-1))
	rapid.Check(t, func(t *rapid.T) {
		im := meta.Empty()
		for _, b := range history(t, 25).Batches {
			size, err := BatchSize(b)
			if err != nil {
				t.Fatal(err)
			}
			ops := wholeMulti(t, root, im, b)
			if n := MultiSize(ops...); n > size+MultiBytesMax-BatchBytesMax {
				t.Fatalf("batch %d takes %d bytes in %d operations, measured as %d", b.Offset, n, len(ops), size)
			}
			if im, err = im.Apply(b); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// wholeMulti is the largest multi that a batch can become: the head made anew with
// the largest numbers, and the most that one append trims.
func wholeMulti(t rapid.TB, root string, base *meta.Image, b *meta.Batch) []Op {
	t.Helper()
	records, err := recordOps(base, b)
	if err != nil {
		t.Fatal(err)
	}
	e, err := metalog.NewEntry(b)
	if err != nil {
		t.Fatal(err)
	}
	const large = int64(1) << 62
	head := headRecord{Epoch: large, Term: uuid.New(), Offset: large, Operation: uuid.New(), Time: large, LogStart: large, TailBytes: large}
	ops := []Op{
		{Kind: OpDelete, Path: headName}, {Kind: OpCreate, Path: headName, Data: head.encode()},
		{Kind: OpCreate, Path: entryName(b.Offset), Data: e.Frame},
	}
	for i := range trimMax {
		ops = append(ops, Op{Kind: OpDelete, Path: entryName(int64(i))})
	}
	return under(root, append(ops, records...))
}

func TestRecordsOfAnyKindSurviveTheTree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Other names are never written.
		named := metatest.Record().Filter(func(r meta.Record) bool { return namesAPath(r.Key()) })
		r := named.Draw(t, "record")
		data, err := meta.EncodeRecordJSON(r)
		if err != nil {
			t.Fatal(err)
		}
		wantRecord(t, recordPath(r.Key()), data, r)
	})
}

func TestZnodeOfAnotherRecordIsNamed(t *testing.T) {
	data, err := meta.EncodeRecordJSON(&meta.Node{ID: "n1", State: meta.NodeUp})
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		kind meta.Kind
		rel  string
		data string
	}{
		"another record":    {meta.KindNode, "nodes/n2", string(data)},
		"another kind":      {meta.KindTable, "tables/n1", string(data)},
		"an unknown field":  {meta.KindNode, "nodes/n1", `{"id":"n1","colour":"red"}`},
		"half a record":     {meta.KindNode, "nodes/n1", string(data[:len(data)-2])},
		"nothing":           {meta.KindNode, "nodes/n1", ""},
		"no text":           {meta.KindNode, "nodes/n1", "\xff\xfe"},
		"another directory": {meta.KindNode, "tables/n1", string(data)},
		"more than a log takes": {meta.KindNode, "nodes/n1",
			`{"id":"n1","url":"` + string(bytes.Repeat([]byte("u"), meta.MaxRecordSize)) + `"}`},
	} {
		_, err := decodeRecord(c.kind, c.rel, []byte(c.data))
		var fault *TreeError
		if !errors.As(err, &fault) || fault.Path != c.rel {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func FuzzDecodeRecord(f *testing.F) {
	l := metatest.NewLog(f)
	l.AddNode(f, "n1", "a")
	l.AddNode(f, "n2", "a")
	l.AddTable(f, metatest.Config("t"), 1)
	for r := range l.Image.Records() {
		data, err := meta.EncodeRecordJSON(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(r.Key().Kind), recordPath(r.Key()), data)
	}
	f.Fuzz(func(t *testing.T, kind uint8, rel string, data []byte) {
		k := meta.KindCluster + meta.Kind(kind)%meta.KindJob
		r, err := decodeRecord(k, rel, data)
		if err != nil {
			var fault *TreeError
			if !errors.As(err, &fault) {
				t.Fatalf("an error without the znode: %v", err)
			}
			return
		}
		if r.Key().Kind != k || recordPath(r.Key()) != rel {
			t.Fatalf("%s was read from %s", r.Key(), rel)
		}
		canonical, err := meta.EncodeRecordJSON(r)
		if err != nil {
			t.Fatal(err)
		}
		wantRecord(t, rel, canonical, r)
	})
}

func FuzzDecodeHead(f *testing.F) {
	f.Add(headRecord{}.encode())
	f.Add(headRecord{Epoch: 1, Term: uuid.UUID{1}, Offset: 7, LogStart: 3, TailBytes: 900, Time: 5}.encode())
	f.Add([]byte(`{"epoch":9223372036854775807,"offset":9223372036854775807,"term":"00000000-0000-4000-8000-000000000001"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decodeHead(data)
		if err != nil {
			var fault *TreeError
			if !errors.As(err, &fault) || fault.Path != headName {
				t.Fatalf("an error without the znode: %v", err)
			}
			return
		}
		if r.next() < 0 || r.LogStart < 0 || r.LogStart > r.next() || r.TailBytes < 0 {
			t.Fatalf("taken: %+v", r)
		}
		if again, err := decodeHead(r.encode()); err != nil || again != r {
			t.Fatalf("%+v came back as %+v, %v", r, again, err)
		}
	})
}

func TestHeadThatContradictsItselfIsRefused(t *testing.T) {
	good := headRecord{Epoch: 2, Term: uuid.UUID{2}, Offset: 9, LogStart: 4, TailBytes: 10}
	if r, err := decodeHead(good.encode()); err != nil || r != good {
		t.Fatalf("%+v, %v", r, err)
	}
	for what, change := range map[string]func(*headRecord){
		"negative epoch":       func(r *headRecord) { r.Epoch = -1 },
		"negative offset":      func(r *headRecord) { r.Offset = -1 },
		"start past the end":   func(r *headRecord) { r.LogStart = 11 },
		"negative start":       func(r *headRecord) { r.LogStart = -1 },
		"negative bytes":       func(r *headRecord) { r.TailBytes = -1 },
		"epoch without a term": func(r *headRecord) { r.Term = uuid.UUID{} },
		"term without epoch":   func(r *headRecord) { r.Epoch = 0 },
		"no room behind it":    func(r *headRecord) { r.Offset = 1<<63 - 1 },
	} {
		bad := good
		change(&bad)
		if _, err := decodeHead(bad.encode()); err == nil {
			t.Errorf("%s: taken", what)
		}
	}
}
