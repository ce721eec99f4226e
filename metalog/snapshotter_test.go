package metalog

import (
	"context"
	"errors"
	"math"
	"math/rand"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"
	"pgregory.net/rapid"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
)

func TestWhenASnapshotIsDue(t *testing.T) {
	hour := time.Hour.Milliseconds()
	for _, c := range []struct {
		name string
		g    Growth
		now  int64
		want bool
	}{
		{"nothing came since", Growth{Bytes: 0, Since: 0}, 100 * hour, false},
		{"a little, and not for long", Growth{Batches: 1, Bytes: 100}, hour - 1, false},
		{"a little, for an hour", Growth{Batches: 1, Bytes: 100}, hour, true},
		{"a clock that went back", Growth{Batches: 1, Bytes: 100, Since: 5 * hour}, hour, false},
		{"no snapshot, and no beginning of the log", Growth{Bare: true, Since: 100 * hour}, hour, true},
		{"a damaged batch that no snapshot holds", Growth{Batches: 1, Damaged: true, Since: 100 * hour}, hour, true},
		{"20 MiB", Growth{Batches: 9, Bytes: 20 << 20}, 1, true},
		{"just less", Growth{Batches: 9, Bytes: 20<<20 - 1}, 1, false},
		{"as much as the last one", Growth{Batches: 9, Bytes: 50 << 20, Snapshot: 50 << 20}, 1, true},
		{"less than the last one", Growth{Batches: 9, Bytes: 50<<20 - 1, Snapshot: 50 << 20}, 1, false},
	} {
		if got := (GenerationPolicy{}).IsDue(c.g, c.now); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestBytesFrom(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(0, 60).Draw(rt, "batches")
		l := openLog(t, vfs.NewMem(), 2000)
		defer l.Close()
		var sizes []int64
		for i := range int64(n) {
			e, err := NewEntry(batchAt(i, 1, i == 0))
			if err != nil {
				rt.Fatal(err)
			}
			sizes = append(sizes, int64(len(e.Frame)))
			if err := l.AppendEntries(context.Background(), []Entry{e}); err != nil {
				rt.Fatal(err)
			}
		}
		from := rapid.IntRange(0, n+1).Draw(rt, "from")
		want := int64(0)
		for _, s := range sizes[min(from, n):] {
			want += s
		}
		if got := l.bytesFrom(int64(from)); got != want {
			rt.Fatalf("%d bytes from %d of %d on, want %d", got, from, n, want)
		}
	})
}

// generating is a writer over a log on disk, and what makes its snapshots.
type generating struct {
	log     *Log
	snaps   *Snapshots
	s       *Snapshotter
	w       *Writer
	now     atomic.Int64
	applied atomic.Int64 // of the local consumer
	written chan SnapshotRef
	stop    func()
}

func startGenerating(t *testing.T, disk vfs.FS) *generating {
	t.Helper()
	g := &generating{written: make(chan SnapshotRef, 100)}
	g.now.Store(1_000_000)
	var err error
	if g.log, err = OpenLog(disk, LogOptions{Dir: "log", FileBytes: 2000}); err != nil {
		t.Fatal(err)
	}
	if g.snaps, err = OpenSnapshots(disk, "", zerolog.Nop()); err != nil {
		t.Fatal(err)
	}
	im, err := Recover(g.log, g.snaps, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	g.s = NewSnapshotter(SnapshotterConfig{
		Log: g.log, Snapshots: g.snaps, Clock: g.now.Load, JitterMax: -1, Rand: rand.New(rand.NewSource(1)),
		Generation: GenerationPolicy{BytesMin: 3000}, Retention: RetentionPolicy{BytesMax: 1, TrailingMin: 1}, Applied: g.applied.Load,
		Written: func(_ context.Context, ref SnapshotRef) { g.written <- ref },
	})
	g.w = NewWriter(WriterConfig{
		Device: g.log, Image: im, Cluster: testCluster, Clock: g.now.Load,
		Leader: meta.Leader{Epoch: im.Epoch() + 1, Term: uuid.New(), Controller: "c", URL: "http://c"},
		Committed: func(im *meta.Image, b *meta.Batch) {
			if b.SnapshotHere {
				g.s.Cut(im)
			}
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- g.w.Run(ctx) }()
	go func() { g.s.Run(ctx); ended <- nil }()
	g.stop = func() {
		cancel()
		if err := errors.Join(<-ended, <-ended, g.log.Close()); err != nil {
			t.Error(err)
		}
	}
	return g
}

func (g *generating) submit(t *testing.T, fn meta.Func) int64 {
	t.Helper()
	r, err := g.w.Submit(t.Context(), fn)
	if err != nil {
		t.Fatal(err)
	}
	return r.Offset
}

func (g *generating) due(t *testing.T) bool {
	t.Helper()
	due, err := g.s.IsDue()
	if err != nil {
		t.Fatal(err)
	}
	return due
}

func putJob(n int64) meta.Func {
	return func(*meta.Image, int64) (meta.Change, error) {
		return meta.Change{Upserts: []meta.Record{job(n, 100)}}, nil
	}
}

// A snapshot is made of exactly what the batch that asks for it has left, although the
// log goes on; until it is there, no other is asked for, and a restart asks no sooner
// or later.
func TestSnapshotsAreMadeWhereTheLogAsksForThem(t *testing.T) {
	disk := vfs.NewMem()
	g := startGenerating(t, disk)
	n := int64(0)
	fill := func() {
		t.Helper()
		for ; !g.due(t); n++ {
			if n > 1000 {
				t.Fatal("it is never due")
			}
			g.submit(t, putJob(n))
		}
	}
	fill()
	first := g.submit(t, meta.SnapshotHere) + 1
	g.submit(t, putJob(5000))
	ref := <-g.written
	if ref.EndOffset != first || ref.Epoch != 1 {
		t.Fatalf("snapshot %s, want one that ends at %d", ref, first)
	}
	if im, err := g.snaps.Load(ref.SnapshotID); err != nil || im.Next() != first || im.Lookup(job(5000, 0).Key()) != nil {
		t.Fatalf("it holds an image at %d: %v", im.Next(), err)
	}
	if g.due(t) {
		t.Fatal("the next one is due already")
	}
	g.stop()

	g = startGenerating(t, disk)
	fill()
	second := g.submit(t, meta.SnapshotHere) + 1
	if ref := <-g.written; ref.EndOffset != second || ref.Epoch != 2 {
		t.Fatalf("snapshot %s, want one that ends at %d", ref, second)
	}
	if n := len(g.snaps.List()); n != 2 {
		t.Fatalf("%d snapshots", n)
	}
	g.now.Add(time.Hour.Milliseconds() + 60_000) // the times of batches never go back, and are ahead of this clock
	if g.due(t) {
		t.Fatal("due without a batch since")
	}
	g.submit(t, putJob(6000))
	if !g.due(t) {
		t.Fatal("not due after an hour")
	}
	g.stop()
}

// METALOG §5, 37: a snapshot that cannot be written leaves nothing, harms nobody, and
// another is asked for after a while.
func TestASnapshotThatCannotBeWrittenIsTriedAgain(t *testing.T) {
	var full atomic.Bool
	failed := make(chan struct{}, 100)
	disk := vfs.NewMem()
	g := startGenerating(t, vfs.WithFaults(disk, func(op vfs.Op) error {
		if full.Load() && op.Kind == vfs.OpWrite && strings.HasPrefix(op.Name, SnapshotsDir) {
			failed <- struct{}{}
			return syscall.ENOSPC
		}
		return nil
	}))
	defer g.stop()
	for n := int64(0); !g.due(t); n++ {
		g.submit(t, putJob(n))
	}
	full.Store(true)
	g.submit(t, meta.SnapshotHere)
	<-failed
	synced := func() bool { // make has told of it
		g.s.mu.Lock()
		defer g.s.mu.Unlock()
		return g.s.failed > 0
	}
	for !synced() {
		runtime.Gosched()
	}
	if g.due(t) {
		t.Fatal("asked for again at once")
	}
	entries, err := disk.ReadDir(SnapshotsDir)
	if err != nil || len(entries) != 0 {
		t.Fatalf("left: %v, %v", entries, err)
	}
	full.Store(false)
	g.now.Add(retrySnapshot.Milliseconds())
	if !g.due(t) {
		t.Fatal("not asked for again")
	}
	end := g.submit(t, meta.SnapshotHere) + 1
	if ref := <-g.written; ref.EndOffset != end {
		t.Fatalf("snapshot %s", ref)
	}
}

// A newest snapshot that cannot be read must not be the last one that is ever asked for.
func TestADamagedSnapshotIsNotTheLastOne(t *testing.T) {
	disk := vfs.NewMem()
	g := startGenerating(t, disk)
	defer g.stop()
	n := int64(0)
	next := func() SnapshotRef {
		t.Helper()
		for ; !g.due(t); n++ {
			g.submit(t, putJob(n%40))
		}
		g.submit(t, meta.SnapshotHere)
		return <-g.written
	}
	first, second := next(), next()
	if g.due(t) {
		t.Fatal("the third is due already")
	}
	name := snapshotFile(SnapshotsDir, second.SnapshotID)
	data := readFile(t, disk, name)
	data[frameHeaderSize+20] ^= 1 // in the header
	putFile(t, disk, name, data)
	if !g.due(t) {
		t.Error("nothing is due, and the newest snapshot is damaged")
	}
	if got := g.snaps.List(); !slices.Equal(got, []SnapshotRef{first}) {
		t.Errorf("it lists %v", got)
	}
	if third := next(); third.EndOffset <= second.EndOffset {
		t.Errorf("then came %s, after %s", third, second)
	}
}

// Somebody who empties the directory of a running process must not end its snapshots.
func TestASnapshotWhoseFileIsGoneDoesNotCount(t *testing.T) {
	disk := vfs.NewMem()
	g := startGenerating(t, disk)
	defer g.stop()
	g.applied.Store(math.MaxInt64)
	n := int64(0)
	next := func() SnapshotRef {
		t.Helper()
		for ; !g.due(t); n++ {
			g.submit(t, putJob(n%40))
		}
		g.submit(t, meta.SnapshotHere)
		return <-g.written
	}
	remove := func(ref SnapshotRef) {
		t.Helper()
		if err := disk.Remove(snapshotFile(SnapshotsDir, ref.SnapshotID)); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		next()
	}
	_, _ = g.s.Clean(t.Context())
	if g.log.Start() == 0 {
		t.Fatal("the log begins at 0 still")
	}
	left := g.snaps.List()
	older, newest := left[0], left[len(left)-1]
	remove(newest)
	if !g.due(t) {
		t.Error("nothing is due, and the newest snapshot is gone")
	}
	if got := g.snaps.List(); !slices.Equal(got, left[:len(left)-1]) {
		t.Errorf("it lists %v of %v", got, left)
	}
	for _, ref := range g.snaps.List() {
		remove(ref)
	}
	if !g.due(t) {
		t.Error("nothing is due, and no snapshot holds what the log no longer has")
	}
	if got := g.snaps.Latest(); got != nil {
		t.Errorf("the latest is %s", got)
	}
	if fresh := next(); fresh.EndOffset <= newest.EndOffset {
		t.Errorf("then came %s, after %s", fresh, newest)
	}
	if g.due(t) {
		t.Error("another one is due")
	}
	if _, err := g.s.Clean(t.Context()); err != nil {
		t.Errorf("cleaning, without %s: %v", older, err)
	}
}

// What is old goes when the next snapshot is there, and the log before it: the two newest
// stay, and what the local consumer has not applied.
func TestOldSnapshotsGoWhenANewOneIsThere(t *testing.T) {
	disk := vfs.NewMem()
	g := startGenerating(t, disk)
	g.applied.Store(math.MaxInt64)
	n := int64(0)
	next := func() SnapshotRef {
		t.Helper()
		for ; !g.due(t); n++ {
			g.submit(t, putJob(n%40)) // the snapshots do not grow
		}
		g.submit(t, meta.SnapshotHere)
		return <-g.written
	}
	var all []SnapshotRef
	for range 6 {
		all = append(all, next())
	}
	_, _ = g.s.Clean(t.Context()) // after the one that Run may be at, which goes by the same state
	if got := g.snaps.List(); !slices.Equal(got, all[4:]) {
		t.Fatalf("%v stay of %v", got, all)
	}
	if start := g.log.Start(); start == 0 || start > all[4].EndOffset {
		t.Fatalf("the log begins at %d, the older snapshot ends at %d", start, all[4].EndOffset)
	}
	start := g.log.Start()
	g.applied.Store(start + 1)
	for range 3 {
		next()
	}
	_, _ = g.s.Clean(t.Context())
	if now := g.log.Start(); now > start+1 {
		t.Fatalf("the log begins at %d, its consumer is at %d", now, start+1)
	}
	g.stop()
	g = startGenerating(t, disk)
	if im := g.w.Image(); im.Len() == 0 {
		t.Fatal("nothing is left after a restart")
	}
	g.stop()
}

// A batch that is damaged where it lies holds up whoever has not read it. The leader's image
// has it, and so has the next snapshot: one is due, be it the log's first batch, which tells
// how old the log is, or one that somebody wanted to read.
func TestADamagedBatchMakesASnapshotDue(t *testing.T) {
	for _, offset := range []int64{0, 3} {
		disk := vfs.NewMem()
		g := startGenerating(t, disk)
		for n := range int64(6) {
			g.submit(t, putJob(n))
		}
		if g.due(t) {
			t.Fatal("due before anything is damaged")
		}
		name, at, _, err := g.log.locate(offset, 1)
		if err != nil {
			t.Fatal(err)
		}
		rot(t, disk, name, at+frameHeaderSize+2)
		if offset > 0 {
			if g.due(t) {
				t.Errorf("offset %d: due before anybody has read it", offset)
			}
			if _, err := g.log.Read(offset-1, 1<<20); !errors.As(err, new(*CorruptionError)) {
				t.Fatalf("offset %d: read: %v", offset, err)
			}
		}
		if !g.due(t) {
			t.Errorf("offset %d: not due", offset)
		}
		g.submit(t, meta.SnapshotHere)
		ref := <-g.written
		if g.due(t) {
			t.Errorf("offset %d: due again after %s", offset, ref)
		}
		ask, st := Position{Offset: offset}, g.log.State()
		st.Earliest, st.Latest = &ref, &ref
		if offset > 0 {
			ask.LastEpoch = ref.Epoch
		}
		answer, _, err := g.log.Answer(ask, 1<<20, st)
		if answer.Kind != AnswerSnapshot || answer.Snapshot != ref {
			t.Errorf("offset %d: a follower is answered %+v, %v", offset, answer, err)
		}
		g.stop()
	}
}

// rot flips a bit of a file that is in use.
func rot(t *testing.T, disk vfs.FS, name string, at int64) {
	t.Helper()
	f, err := disk.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0x10
	if _, err := f.WriteAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// The leader asks as soon as one is due.
func TestTheLeaderAsksWhenASnapshotIsDue(t *testing.T) {
	g := startGenerating(t, vfs.NewMem())
	defer g.stop()
	for n := int64(0); !g.due(t); n++ {
		g.submit(t, putJob(n))
	}
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		g.s.AskWhenDue(ctx, func(ctx context.Context) error {
			_, err := g.w.Submit(ctx, meta.SnapshotHere)
			return err
		})
	}()
	<-g.written
	cancel()
	<-asked
}

// A snapshot that was asked for, and not made before its Run ended, the next Run makes.
func TestASnapshotThatAnEndCutShortIsMadeByTheNextRun(t *testing.T) {
	g := startGenerating(t, vfs.NewMem())
	defer g.stop()
	g.submit(t, putJob(1))
	im := g.w.Image()
	s := NewSnapshotter(SnapshotterConfig{
		Log: g.log, Snapshots: g.snaps, Clock: g.now.Load, JitterMax: -1,
		Written: func(_ context.Context, ref SnapshotRef) { g.written <- ref },
	})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	s.Cut(im)
	s.Run(ended)
	if got := g.snaps.List(); len(got) != 0 {
		t.Fatalf("made although it had ended: %v", got)
	}
	if _, err := s.make(ended, im); err == nil {
		t.Fatal("a write whose context has ended goes on")
	}
	s.next = nil
	s.putBack(ended, im) // as Run does when that happens in the middle
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	if ref := <-g.written; ref.EndOffset != im.Next() {
		t.Errorf("snapshot %s", ref)
	}
	stop()
	<-done
}
