package zkmeta

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
	"github.com/shoalstore/shoal/zkmeta/zktest"
)

// filler appends what a log in memory has made to a tree, so that the two hold the
// same.
type filler struct {
	*leader
	t      *testing.T
	log    *metatest.Log
	tables []uuid.UUID
	wrote  int
	images map[int64]*meta.Image // by where they end
}

// newFiller fills a tree with tables of that many partitions.
func newFiller(t *testing.T, c *Conn, tables, partitions int) *filler {
	t.Helper()
	f := &filler{leader: newLeader(t, c, nil), t: t, log: metatest.NewLog(t), images: map[int64]*meta.Image{}}
	f.log.AddNode(t, "n1", "a")
	f.log.AddNode(t, "n2", "a")
	for i := range tables {
		f.tables = append(f.tables, f.log.AddTable(t, metatest.Config(fmt.Sprintf("table%d", i)), partitions))
	}
	f.flush()
	return f
}

// flush appends what the log has gained.
func (f *filler) flush() {
	f.t.Helper()
	for ; f.wrote < len(f.log.Batches); f.wrote++ {
		if err := f.Append(f.t.Context(), f.log.Batches[f.wrote]); err != nil {
			f.t.Fatal(err)
		}
		f.images[f.image.Next()] = f.image
	}
}

// write makes one change after another: commits, jobs that come and go, segments that
// expire, tombstones that go.
func (f *filler) write(i int) {
	f.t.Helper()
	l, k := f.log, meta.PartitionKey{Table: f.tables[i%len(f.tables)], Partition: int32(i / len(f.tables) % 3)}
	l.Do(f.t, meta.CommitSegment(l.Commit(f.t, k, 5)))
	switch {
	case i%5 == 1:
		l.Do(f.t, meta.CreateJob(jobID(fmt.Sprint(i)), "test", nil))
	case i%5 == 3:
		l.Do(f.t, func(im *meta.Image, _ int64) (c meta.Change, _ error) {
			for j := range im.Jobs() {
				c.Removals = append(c.Removals, j.Key())
			}
			return c, nil
		})
	case i%7 == 2:
		wall := l.Now + 10*time.Duration(l.Image.CurrentConfig(k.Table).Retention.Age).Milliseconds()
		through := l.Image.InProgress(k).Seq - 1
		l.Do(f.t, meta.ExpireSegments(k, through, wall, metatest.ObjectKey))
	case i%7 == 5:
		var keys []meta.SegmentKey
		for tomb := range l.Image.Tombstones() {
			keys = append(keys, tomb.SegmentKey())
		}
		l.Do(f.t, meta.ExpireTombstones(keys))
		l.Do(f.t, meta.RemoveTombstones(keys))
	}
	f.flush()
}

type rebuilt struct {
	image *meta.Image
	err   error
}

// rebuild rebuilds beside the test.
func rebuild(ctx context.Context, c *Conn) <-chan rebuilt {
	done := make(chan rebuilt, 1)
	go func() {
		im, err := Rebuild(ctx, c)
		done <- rebuilt{im, err}
	}()
	return done
}

// TestRebuildWhileAWriterGoesOn: the record znodes are read over some time, while
// they change; the image is that of one moment all the same.
func TestRebuildWhileAWriterGoesOn(t *testing.T) {
	s := startServer(t)
	tables := 8
	if testing.Short() { // the race detector's run
		tables = 2
	}
	f := newFiller(t, foundTree(t, "/shoal", s.Addr()), tables, 150)
	if n := f.image.Len(); n < tables*300 {
		t.Fatalf("the tree has only %d records", n)
	}
	c := dialRoot(t, "/shoal", s.Addr())
	meanwhile, i := int64(0), 0
	for round := 0; round < 2 || meanwhile < 10; round++ { // a slow disk lets few batches by
		before, done := f.End(), rebuild(t.Context(), c)
	writing:
		for {
			select {
			case r := <-done:
				if r.err != nil {
					t.Fatal(r.err)
				}
				wantSameImage(t, r.image, f.images[r.image.Next()])
				meanwhile += r.image.Next() - before
				break writing
			default:
				f.write(i)
				i++
			}
		}
	}
	wantOneHistory(t, c)
}

// held rebuilds a tree through a proxy that holds the list of the segments of the
// first table until meanwhile has happened.
func (f *filler) held(p *zktest.WireProxy, c *Conn, meanwhile func()) rebuilt {
	f.t.Helper()
	dir := c.Path(segmentsDir, f.tables[0].String())
	trap := p.On(zktest.OpGetChildren2, zktest.Mentions(dir), zktest.HoldReply)
	done := rebuild(f.t.Context(), c)
	trap.WaitHit()
	trap.Answer()
	meanwhile()
	trap.Release()
	return <-done
}

func TestRebuildWhatChangesBetweenListAndRead(t *testing.T) {
	s := zktest.Start(t, zktest.WithTickTime(sessionTimeoutMax/20))
	f := newFiller(t, foundTree(t, "/shoal", s.Addr()), 2, 3)
	p := zktest.NewWireProxy(t, s.Addr())
	// The list is held while many batches are written, each with an fsync.
	c := dialTo(t, func(cfg *ConnConfig) { cfg.SessionTimeout = sessionTimeoutMax }, p.Addr())
	t.Run("records and directories come and go", func(t *testing.T) {
		r := f.held(p, c, func() {
			for i := range 24 {
				f.write(i)
			}
		})
		if r.err != nil {
			t.Fatal(r.err)
		}
		wantSameImage(t, r.image, f.image)
	})
	t.Run("the tail is trimmed", func(t *testing.T) {
		f.limits.tailEntries = 3
		r := f.held(p, c, func() {
			for i, end := 24, f.End(); f.Start() <= end; i++ {
				f.write(i)
			}
		})
		var missing *EntryMissingError
		if !errors.As(r.err, &missing) || missing.Offset >= f.Start() {
			t.Fatalf("[%d, %d): %v", f.Start(), f.End(), r.err)
		}
		im, err := Rebuild(t.Context(), c) // the caller begins again
		if err != nil {
			t.Fatal(err)
		}
		wantSameImage(t, im, f.image)
	})
	t.Run("an entry does not decode", func(t *testing.T) {
		var bad string
		r := f.held(p, c, func() {
			f.write(1)
			bad = f.cfg.Conn.Path(entryName(f.End() - 1))
			if _, err := f.cfg.Conn.Set(t.Context(), bad, []byte("garbage"), -1); err != nil {
				t.Fatal(err)
			}
		})
		var fault *TreeError
		if !errors.As(r.err, &fault) || fault.Path != bad {
			t.Fatal(r.err)
		}
	})
}

// TestTreeThatIsNotOurs, or is damaged, is named and refused, and nothing is written.
func TestTreeThatIsNotOurs(t *testing.T) {
	s := startServer(t)
	node := func(id string) string { return fmt.Sprintf(`{"id":%q,"state":"UP"}`, id) }
	set := func(rel, data string) func(*Conn) error {
		return func(c *Conn) error { _, err := c.Set(t.Context(), c.Path(rel), []byte(data), -1); return err }
	}
	create := func(rel, data string) func(*Conn) error {
		return func(c *Conn) error { return c.Create(t.Context(), c.Path(rel), []byte(data)) }
	}
	remove := func(rel string) func(*Conn) error {
		return func(c *Conn) error { return c.Delete(t.Context(), c.Path(rel), -1) }
	}
	table := metatest.ID("table table0").String()
	cluster := `{"product":"shoal","clusterId":"` + testCluster.String() + `"`
	for i, c := range []struct {
		what string
		do   func(c *Conn) error
		want string // in the error
		kind any    // what the error is
	}{
		{"garbage in a record", set("nodes/n1", "\x00garbage"), "nodes/n1", new(*TreeError)},
		{"nothing in a record", set("leader", ""), "leader", new(*TreeError)},
		{"a record under another's path", create("nodes/n9", node("n1")), "nodes/n9", new(*TreeError)},
		{"a record of another kind", create("tables/n9", node("n9")), "tables/n9", new(*TreeError)},
		{"a field that this version does not know", create("nodes/n9", `{"id":"n9","colour":"red"}`), "nodes/n9", new(*TreeError)},
		{"a stranger among the tables' directories", create("segments/lost+found", ""), "segments/lost+found", new(*TreeError)},
		{"a stranger among the partitions", create("segments/"+table+"/x", ""), "segments/" + table + "/x", new(*TreeError)},
		{"a number that is not written as we do", create("segments/"+table+"/00", ""), "segments/" + table + "/00", new(*TreeError)},
		{"a stranger among the jobs", create("jobs/0G", ""), "jobs/0G", new(*TreeError)},
		{"a record too many", create("partitions/"+table+"/77", `{"table":"`+table+`","partition":77,"replicas":[],"nextSeq":0,"nextOffset":0,"streamEpoch":"0","state":"CONSUMING","firstRetained":0}`),
			"partition " + table + "/77", new(*meta.InvariantError)},
		{"a record too few", remove("partitions/" + table + "/1"), table + "/1", new(*meta.InvariantError)},
		{"no record of the leader", remove("leader"), "leader", new(*TreeError)},
		{"no record of the cluster", remove("cluster"), "cluster", new(*TreeError)},
		{"another cluster's id", set(idName, `{"product":"shoal","clusterId":"`+table+`","formatVersion":1}`), "cluster", new(*TreeError)},
		{"garbage in the head", set(headName, "garbage"), "log/head", new(*TreeError)},
		{"a head that contradicts itself", set(headName, `{"epoch":-1}`), "log/head", new(*TreeError)},
		{"no head", remove(headName), "log/head", nil},
		{"no directory of nodes", func(c *Conn) error {
			return errors.Join(remove("nodes/n1")(c), remove("nodes/n2")(c), remove("nodes")(c))
		}, "/nodes", nil},
		{"no id", remove(idName), "no id", new(*ForeignTreeError)},
		{"an id of something else", set(idName, `{"product":"other"}`), "/id", new(*ForeignTreeError)},
		{"an id that is no JSON", set(idName, "42 is the id"), "/id", new(*ForeignTreeError)},
		{"a newer format", set(idName, fmt.Sprintf(`%s,"formatVersion":%d}`, cluster, meta.FormatVersion+1)), fmt.Sprintf("format version %d", meta.FormatVersion+1), new(*ForeignTreeError)},
	} {
		t.Run(c.what, func(t *testing.T) {
			conn := foundTree(t, fmt.Sprintf("/damaged%d", i), s.Addr())
			newFiller(t, conn, 1, 2)
			if err := c.do(conn); err != nil {
				t.Fatal(err)
			}
			wantUnchanged(t, conn, func() {
				_, err := Rebuild(t.Context(), conn)
				if err == nil || !strings.Contains(err.Error(), c.want) || c.kind != nil && !errors.As(err, c.kind) {
					t.Errorf("%v\nwant %q in it, and a %T", err, c.want, c.kind)
				}
				if err := Found(t.Context(), conn, uuid.New()); err == nil {
					t.Error("another cluster was founded there")
				}
			})
		})
	}
}
