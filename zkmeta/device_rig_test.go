package zkmeta

import (
	"bytes"
	"context"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/zkmeta/zktest"
)

// treeTimeout is for sessions that no test waits for the end of: a call may take a
// third of it, and the machine may be very busy.
const treeTimeout = 40 * time.Second

// startServer runs a server that grants it. The shortest session is 4 s.
func startServer(t testing.TB, opts ...zktest.Option) *zktest.Server {
	t.Helper()
	return zktest.Start(t, append(opts, zktest.WithTickTime(treeTimeout/20))...)
}

// dialRoot connects to the tree at a root, until the test ends.
func dialRoot(t *testing.T, root string, servers ...string) *Conn {
	t.Helper()
	return dialTo(t, func(cfg *ConnConfig) { cfg.Address.Root = root }, servers...)
}

// foundTree founds a cluster at a root of the test's own, and connects to it.
func foundTree(t *testing.T, root string, servers ...string) *Conn {
	t.Helper()
	c := dialRoot(t, root, servers...)
	if err := Found(t.Context(), c, testCluster); err != nil {
		t.Fatal(err)
	}
	return c
}

var testCluster = metatest.ID("cluster") // as in metatest's logs

// leader is a device with the image that it has made.
type leader struct {
	*Device
	image *meta.Image
}

// newLeader makes the device of whoever has read the tree. change, if not nil, is for its
// configuration.
func newLeader(t testing.TB, c *Conn, change func(*DeviceConfig)) *leader {
	t.Helper()
	im, err := Rebuild(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	head, version, err := readHead(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	l := &leader{image: im}
	cfg := DeviceConfig{Conn: c, Head: TailHead{head}, Version: version, Base: func() *meta.Image { return l.image }}
	if change != nil {
		change(&cfg)
	}
	l.Device = NewDevice(cfg)
	return l
}

func (l *leader) Append(ctx context.Context, b *meta.Batch) error {
	if err := l.Device.Append(ctx, b); err != nil {
		return err
	}
	im, err := l.image.Apply(b)
	if err == nil {
		l.image = im
	}
	return err
}

// put appends a batch with changes, of the epoch that the device writes in.
func (l *leader) put(t *testing.T, upserts ...meta.Record) {
	t.Helper()
	if err := l.Append(t.Context(), l.batch(upserts...)); err != nil {
		t.Fatal(err)
	}
}

func (l *leader) batch(upserts ...meta.Record) *meta.Batch {
	return &meta.Batch{
		Offset: l.End(), Epoch: l.image.Epoch(), Term: l.image.LastTerm(),
		Time: meta.NextTime(l.image.LastTime(), 0), Upserts: upserts,
	}
}

// open appends the batch that opens the next epoch.
func (l *leader) open(t *testing.T) error {
	t.Helper()
	b := l.batch()
	b.Epoch, b.Term = b.Epoch+1, uuid.New()
	if b.Offset == 0 {
		b.Upserts = append(b.Upserts, &meta.Cluster{ID: testCluster, FormatVersion: meta.FormatVersion})
	}
	b.Upserts = append(b.Upserts, &meta.Leader{Epoch: b.Epoch, Term: b.Term, Controller: "c", URL: "http://c"})
	return l.Append(t.Context(), b)
}

// opened is newLeader with its epoch open.
func opened(t *testing.T, c *Conn, change func(*DeviceConfig)) *leader {
	t.Helper()
	l := newLeader(t, c, change)
	if err := l.open(t); err != nil {
		t.Fatal(err)
	}
	return l
}

// jobOf is a record of about size bytes; what tells jobs of one name apart.
func jobOf(name, what string, size int) *meta.Job {
	return &meta.Job{
		ID: uuid.NewSHA1(testCluster, []byte(name)), Kind: what, State: meta.JobRunning,
		Args: map[string]string{"filler": strings.Repeat("x", size)},
	}
}

// dump reads the whole tree.
func dump(t *testing.T, c *Conn) *znodes {
	t.Helper()
	z := newZnodes()
	var walk func(rel string)
	walk = func(rel string) {
		names, err := c.Children(t.Context(), c.Path(rel))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			child := path.Join(rel, name)
			data, _, err := c.Get(t.Context(), c.Path(child))
			if err != nil {
				t.Fatal(err)
			}
			z.data[child] = data
			walk(child)
		}
	}
	walk("")
	return z
}

// wantOneHistory checks a tree that nobody writes to: the head says what there is of
// the tail, the record znodes are the image that Rebuild makes, and if the tail
// reaches back to the beginning, its replay makes the same. It returns the image, and
// the batches of the tail.
func wantOneHistory(t *testing.T, c *Conn) (*meta.Image, []*meta.Batch) {
	t.Helper()
	head, _, err := readHead(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	z := dump(t, c)
	var (
		batches []*meta.Batch
		size    int64
	)
	for offset := head.LogStart; offset < head.next(); offset++ {
		data, ok := z.data[entryName(offset)]
		if !ok {
			t.Fatalf("batch %d of [%d, %d) is missing", offset, head.LogStart, head.next())
		}
		entries, err := metalog.DecodeEntries(data)
		if err != nil || len(entries) != 1 || entries[0].Batch.Offset != offset {
			t.Fatalf("entry %d: %v", offset, err)
		}
		batches, size = append(batches, entries[0].Batch), size+int64(len(data))
		delete(z.data, entryName(offset))
	}
	if size != head.TailBytes {
		t.Fatalf("the tail has %d bytes, the head says %d", size, head.TailBytes)
	}
	im, err := Rebuild(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	delete(z.data, idName)
	delete(z.data, headName)
	for rel := range z.data {
		if strings.HasPrefix(rel, electionDir+"/") {
			delete(z.data, rel)
		}
	}
	z.wantImage(t, im) // no entry is left over either
	if head.LogStart == 0 {
		wantReplay(t, batches, im)
	}
	return im, batches
}

// wantReplay checks that the batches make the image.
func wantReplay(t *testing.T, batches []*meta.Batch, want *meta.Image) {
	t.Helper()
	im := meta.Empty()
	for _, b := range batches {
		var err error
		if im, err = im.Apply(b); err != nil {
			t.Fatal(err)
		}
	}
	wantSameImage(t, im, want)
}

func wantSameImage(t *testing.T, got, want *meta.Image) {
	t.Helper()
	if got.Next() != want.Next() || got.Epoch() != want.Epoch() || got.LastTerm() != want.LastTerm() || got.LastTime() != want.LastTime() {
		t.Fatalf("the image stands at %d, epoch %d, time %d; want %d, %d, %d",
			got.Next(), got.Epoch(), got.LastTime(), want.Next(), want.Epoch(), want.LastTime())
	}
	a, b := slices.Collect(got.Records()), slices.Collect(want.Records())
	for i := range min(len(a), len(b)) {
		x, err := meta.EncodeRecord(a[i])
		if err != nil {
			t.Fatal(err)
		}
		y, err := meta.EncodeRecord(b[i])
		if err != nil {
			t.Fatal(err)
		}
		if a[i].Key() != b[i].Key() || !bytes.Equal(x, y) {
			t.Fatalf("record %s is %x, want %s, %x", a[i].Key(), x, b[i].Key(), y)
		}
	}
	if len(a) != len(b) {
		t.Fatalf("%d records, want %d", len(a), len(b))
	}
}

// wantUnchanged checks that do has written nothing.
func wantUnchanged(t *testing.T, c *Conn, do func()) {
	t.Helper()
	before := dump(t, c)
	do()
	after := dump(t, c)
	for rel, data := range after.data {
		if old, ok := before.data[rel]; !ok || !bytes.Equal(old, data) {
			t.Errorf("znode %s was written: %s", rel, data)
		}
	}
	for rel := range before.data {
		if _, ok := after.data[rel]; !ok {
			t.Errorf("znode %s was removed", rel)
		}
	}
}
