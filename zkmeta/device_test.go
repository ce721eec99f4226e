package zkmeta

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/metalog/devicetest"
	"github.com/shoalstore/shoal/zkmeta/zktest"
)

func TestDeviceIsALogDevice(t *testing.T) {
	s := startServer(t)
	var roots atomic.Int64
	devicetest.Run(t, devicetest.Harness{New: func(t *testing.T) metalog.Device {
		return newLeader(t, foundTree(t, fmt.Sprintf("/shoal%d", roots.Add(1)), s.Addr()), nil)
	}})
}

// TestAppendIsOneRequest: what an append does is there at once or not at all, and it
// takes one round trip.
func TestAppendIsOneRequest(t *testing.T) {
	p := zktest.NewWireProxy(t, startServer(t).Addr())
	c := foundTree(t, "/shoal", p.Addr())
	var heard []time.Duration
	l := opened(t, c, func(cfg *DeviceConfig) { cfg.Heard = func(sentAt time.Duration) { heard = append(heard, sentAt) } })
	before := p.Requests()
	began := c.Now()
	heard = nil
	l.put(t, jobOf("a", "made", 10), jobOf("b", "made", 10), &meta.Node{ID: "n1", State: meta.NodeUp})
	after := p.Requests()
	for op, n := range after {
		if want := before[op] + map[bool]int{true: 1}[op == zktest.OpMulti]; n != want && op != opPing {
			t.Errorf("%d requests of opcode %d, want %d", n, op, want)
		}
	}
	if len(heard) != 1 || heard[0] < began || heard[0] > c.Now() {
		t.Errorf("heard %v, began at %v", heard, began)
	}
	head, version, err := readHead(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if head.Offset != 1 || head.Epoch != 1 || head.Term != l.image.LastTerm() || head.Time != l.image.LastTime() || head.Operation == (uuid.UUID{}) || version != 2 {
		t.Errorf("head %+v, version %d", head, version)
	}
	l.put(t, jobOf("a", "set", 10))
	if next, _, err := readHead(t.Context(), c); err != nil || next.Operation == head.Operation {
		t.Errorf("two multis of one operation id, %v", err)
	}
	wantOneHistory(t, c)
}

// TestDeviceIsFencedByAnothersWrite: whoever wrote first leaves the other one
// without effect, for good.
func TestDeviceIsFencedByAnothersWrite(t *testing.T) {
	s := startServer(t)
	c := foundTree(t, "/shoal", s.Addr())
	old := opened(t, c, nil)
	old.put(t, jobOf("a", "by the old one", 10))
	next := opened(t, dialRoot(t, "/shoal", s.Addr()), nil)
	wantUnchanged(t, c, func() {
		for range 2 {
			err := old.Append(t.Context(), old.batch(jobOf("a", "too late", 10)))
			if !errors.Is(err, ErrFenced) || OutcomeOf(err) != BadVersion {
				t.Fatalf("a deposed leader's append: %v", err)
			}
		}
	})
	next.put(t, jobOf("a", "by the next one", 10))
	im, batches := wantOneHistory(t, c)
	if im.Epoch() != 2 || len(batches) != 4 {
		t.Errorf("epoch %d, %d batches", im.Epoch(), len(batches))
	}
}

// TestHeadIsMadeAnew before its version runs out, in the multi of an append; a
// deposed leader is fenced across that.
func TestHeadIsMadeAnew(t *testing.T) {
	c := foundTree(t, "/shoal", startServer(t).Addr())
	l := newLeader(t, c, nil)
	l.limits.headVersions = 3
	var versions []int32
	for i := range 10 {
		if i == 0 {
			if err := l.open(t); err != nil {
				t.Fatal(err)
			}
		} else {
			l.put(t, jobOf("a", fmt.Sprint(i), 10))
		}
		_, version, err := readHead(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		versions = append(versions, version)
	}
	if got, want := fmt.Sprint(versions), "[1 2 3 0 1 2 3 0 1 2]"; got != want {
		t.Errorf("versions %s, want %s", got, want)
	}
	l.put(t, jobOf("a", "before", 10)) // version 3: the next one makes it anew
	deposed := newLeader(t, c, nil)
	deposed.limits.headVersions = 3
	l.put(t, jobOf("a", "anew", 10))
	wantUnchanged(t, c, func() {
		if err := deposed.open(t); !errors.Is(err, ErrFenced) {
			t.Errorf("by the version of a head that was made anew: %v", err)
		}
	})
	wantOneHistory(t, c)
}

func TestTailIsTrimmed(t *testing.T) {
	s := startServer(t)
	t.Run("by number", func(t *testing.T) {
		c := foundTree(t, "/number", s.Addr())
		l := opened(t, c, nil)
		l.limits.tailEntries = 5
		for i := range 12 {
			l.put(t, jobOf("a", fmt.Sprint(i), i))
			if names, err := c.Children(t.Context(), c.Path(entriesDir)); err != nil || len(names) > 5 {
				t.Fatalf("%d entries, %v", len(names), err)
			}
		}
		if l.Start() != 8 || l.End() != 13 {
			t.Errorf("[%d, %d)", l.Start(), l.End())
		}
		wantOneHistory(t, c)
	})
	t.Run("by bytes", func(t *testing.T) {
		c := foundTree(t, "/bytes", s.Addr())
		l := opened(t, c, nil)
		l.limits.tailBytes = 10_000
		for i := range 20 {
			l.put(t, jobOf("a", fmt.Sprint(i), 1000+100*i))
			if head, _, err := readHead(t.Context(), c); err != nil || head.TailBytes > 10_000 {
				t.Fatalf("%d bytes, %v", head.TailBytes, err)
			}
		}
		if n := l.End() - l.Start(); n < 2 || n > 5 {
			t.Errorf("[%d, %d)", l.Start(), l.End())
		}
		wantOneHistory(t, c)
	})
	t.Run("of earlier leaders", func(t *testing.T) {
		c := foundTree(t, "/inherited", s.Addr())
		l := opened(t, c, nil)
		for i := range 10 {
			l.put(t, jobOf("a", fmt.Sprint(i), 10*i))
		}
		next := opened(t, c, nil)
		next.limits.tailEntries = 4
		for i := range 3 {
			next.put(t, jobOf("a", fmt.Sprint("next ", i), 10))
			if want := int64(min(trimMax*(i+1), 11)); next.Start() != want && next.End()-next.Start() != 4 {
				t.Errorf("after %d appends [%d, %d)", i+1, next.Start(), next.End())
			}
		}
		if next.End()-next.Start() != 4 {
			t.Errorf("[%d, %d)", next.Start(), next.End())
		}
		wantOneHistory(t, c)
	})
	t.Run("an entry larger than the tail may be is kept alone", func(t *testing.T) {
		c := foundTree(t, "/large", s.Addr())
		l := opened(t, c, nil)
		l.limits.tailBytes = 1000
		for i := range 4 {
			l.put(t, jobOf("a", fmt.Sprint(i), 5000))
		}
		if l.End()-l.Start() != 1 {
			t.Errorf("[%d, %d)", l.Start(), l.End())
		}
		wantOneHistory(t, c)
	})
	t.Run("past an entry that somebody has removed", func(t *testing.T) {
		c := foundTree(t, "/removed", s.Addr())
		l := opened(t, c, nil)
		l.put(t, jobOf("a", "0", 10))
		l.put(t, jobOf("a", "1", 10))
		if err := c.Delete(t.Context(), c.Path(entryName(1)), -1); err != nil {
			t.Fatal(err)
		}
		next := opened(t, c, nil)
		next.limits.tailEntries = 2
		for i := range 4 {
			next.put(t, jobOf("a", fmt.Sprint("next ", i), 10))
		}
		if next.End()-next.Start() != 2 {
			t.Errorf("[%d, %d)", next.Start(), next.End())
		}
	})
}

// TestReadTail: what is in ZooKeeper is read in pieces; what is not there any more
// is named.
func TestReadTail(t *testing.T) {
	c := foundTree(t, "/shoal", startServer(t).Addr())
	l := opened(t, c, nil)
	l.limits.tailEntries = 100
	for i := range 119 {
		l.put(t, jobOf("a", fmt.Sprint(i), 10))
	}
	head := TailHead{l.head}
	if head.Next() != 120 || head.LogStart != 20 {
		t.Fatalf("head %+v", head)
	}
	var offsets []int64
	for at := head.LogStart; at < head.Next(); {
		frames, err := ReadTail(t.Context(), c, head, at, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		entries, err := metalog.DecodeEntries(frames)
		if err != nil || len(entries) == 0 || len(entries) > readAtOnce {
			t.Fatalf("%d entries, %v", len(entries), err)
		}
		for _, e := range entries {
			offsets = append(offsets, e.Batch.Offset)
			at++
		}
	}
	if len(offsets) != 100 || offsets[0] != 20 || offsets[99] != 119 {
		t.Errorf("offsets %v", offsets)
	}
	if frames, err := ReadTail(t.Context(), c, head, 120, 1000); err != nil || len(frames) != 0 {
		t.Errorf("at the end: %d bytes, %v", len(frames), err)
	}
	var missing *EntryMissingError
	if _, err := ReadTail(t.Context(), c, head, 19, 1000); !errors.As(err, &missing) || missing.Offset != 19 {
		t.Errorf("before the start: %v", err)
	}
	// Trimmed since the head was read.
	for i := range 5 {
		l.put(t, jobOf("a", fmt.Sprint("more ", i), 10))
	}
	if _, err := ReadTail(t.Context(), c, head, 22, 1000); !errors.As(err, &missing) || missing.Offset < 22 || missing.Offset > 24 || missing.Path != c.Path(entryName(missing.Offset)) {
		t.Errorf("trimmed: %v", err)
	}
	var outside *metalog.OutOfRangeError
	if _, err := l.Read(22, 1000); !errors.As(err, &outside) || outside.Start != 25 {
		t.Errorf("trimmed: %v", err)
	}
	for what, data := range map[string][]byte{"garbage": []byte("garbage"), "another batch": mustGet(t, c, entryName(31)), "nothing": {}} {
		if _, err := c.Set(t.Context(), c.Path(entryName(30)), data, -1); err != nil {
			t.Fatal(err)
		}
		var fault *TreeError
		if _, err := l.Read(30, 1); !errors.As(err, &fault) || fault.Path != c.Path(entryName(30)) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func mustGet(t *testing.T, c *Conn, rel string) []byte {
	t.Helper()
	data, _, err := c.Get(t.Context(), c.Path(rel))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestZnodeThatIsNotAsTheLogLeftIt is named, and nothing is appended, by this device
// or by the one after it.
func TestZnodeThatIsNotAsTheLogLeftIt(t *testing.T) {
	s := startServer(t)
	job := jobOf("a", "made", 10)
	rel := recordPath(job.Key())
	other := jobOf("other", "made", 10)
	for i, c := range []struct {
		what string
		rel  string // of the znode that is named
		do   func(c *Conn) error
		then func(l *leader) *meta.Batch
	}{
		{"a record that was removed", rel,
			func(c *Conn) error { return c.Delete(t.Context(), c.Path(rel), -1) },
			func(l *leader) *meta.Batch { return l.batch(jobOf("a", "set", 10)) }},
		{"a record that was removed, to be removed", rel,
			func(c *Conn) error { return c.Delete(t.Context(), c.Path(rel), -1) },
			func(l *leader) *meta.Batch { b := l.batch(); b.Removals = []meta.Key{job.Key()}; return b }},
		{"a directory that is there already", recordDir(other.Key()),
			func(c *Conn) error { return c.Create(t.Context(), c.Path(recordDir(other.Key())), nil) },
			func(l *leader) *meta.Batch { return l.batch(other) }},
		{"a child of a record", rel,
			func(c *Conn) error { return c.Create(t.Context(), c.Path(rel, "child"), nil) },
			func(l *leader) *meta.Batch { b := l.batch(); b.Removals = []meta.Key{job.Key()}; return b }},
		{"a stranger among the records", recordDir(job.Key()),
			func(c *Conn) error { return c.Create(t.Context(), c.Path(recordDir(job.Key()), "stranger"), nil) },
			func(l *leader) *meta.Batch { b := l.batch(); b.Removals = []meta.Key{job.Key()}; return b }},
		{"an entry that is there already", entryName(2),
			func(c *Conn) error { return c.Create(t.Context(), c.Path(entryName(2)), nil) },
			func(l *leader) *meta.Batch { return l.batch(jobOf("a", "set", 10)) }},
		{"no head", headName,
			func(c *Conn) error { return c.Delete(t.Context(), c.Path(headName), -1) },
			func(l *leader) *meta.Batch { return l.batch(jobOf("a", "set", 10)) }},
	} {
		t.Run(c.what, func(t *testing.T) {
			conn := foundTree(t, fmt.Sprintf("/broken%d", i), s.Addr())
			l := opened(t, conn, nil)
			l.put(t, job)
			next := newLeader(t, conn, nil)
			if err := c.do(conn); err != nil {
				t.Fatal(err)
			}
			wantUnchanged(t, conn, func() {
				for _, l := range []*leader{l, next} {
					err := l.Append(t.Context(), c.then(l))
					var broken *BrokenTreeError
					if !errors.As(err, &broken) || broken.Path != conn.Path(c.rel) || OutcomeOf(err) == Written {
						t.Errorf("appended: %v", err)
					}
				}
			})
		})
	}
}

// TestBatchThatIsTooLargeIsNotSent: the device goes on after it.
func TestBatchThatIsTooLargeIsNotSent(t *testing.T) {
	p := zktest.NewWireProxy(t, startServer(t).Addr())
	c := foundTree(t, "/shoal", p.Addr())
	l := opened(t, c, nil)
	var upserts []meta.Record
	for i := range 11 {
		upserts = append(upserts, jobOf(fmt.Sprint(i), "large", 60_000))
	}
	large := l.batch(upserts...)
	if size, err := BatchSize(large); err != nil || size <= BatchBytesMax {
		t.Fatalf("it is not large: %d, %v", size, err)
	}
	before := p.Requests()[zktest.OpMulti]
	if err := l.Append(t.Context(), large); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("appended: %v", err)
	}
	if n := p.Requests()[zktest.OpMulti]; n != before {
		t.Errorf("%d requests were sent", n-before)
	}
	// The largest that the writer makes is taken.
	fits := l.batch()
	for i := range 11 {
		more := l.batch(append(fits.Upserts, jobOf(fmt.Sprint(i), "large", 34_000))...)
		if size, err := BatchSize(more); err != nil {
			t.Fatal(err)
		} else if size <= BatchBytesMax {
			fits = more
		}
	}
	if err := l.Append(t.Context(), fits); err != nil {
		t.Fatal(err)
	}
	if m := p.MaxRequest(); m.Op != zktest.OpMulti || m.Bytes > MultiBytesMax || m.Bytes < MultiBytesMax*8/10 {
		t.Errorf("the largest request is %+v", m)
	}
	wantOneHistory(t, c)
}

// TestLocalLogFollowsTheAcknowledgement: what ZooKeeper has not acknowledged is not in
// the controller's own log.
func TestLocalLogFollowsTheAcknowledgement(t *testing.T) {
	p := zktest.NewWireProxy(t, startServer(t).Addr())
	c := foundTree(t, "/shoal", p.Addr())
	local, err := metalog.OpenLog(vfs.NewMem(), metalog.LogOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := local.Close(); err != nil {
			t.Error(err)
		}
	})
	l := opened(t, c, func(cfg *DeviceConfig) { cfg.Local = local })
	if local.End() != 1 {
		t.Fatalf("the local log ends at %d", local.End())
	}
	trap := p.On(zktest.OpMulti, nil, zktest.HoldReply)
	done := make(chan error, 1)
	b := l.batch(jobOf("a", "held", 10))
	go func() { done <- l.Append(t.Context(), b) }()
	trap.WaitHit()
	trap.Answer() // it is in ZooKeeper
	if local.End() != 1 || l.End() != 1 {
		t.Errorf("before the acknowledgement the logs end at %d and %d", local.End(), l.End())
	}
	trap.Release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if local.End() != 2 || l.End() != 2 {
		t.Errorf("after it they end at %d and %d", local.End(), l.End())
	}
	p.On(zktest.OpMulti, nil, zktest.DropReply)
	if err := l.Append(t.Context(), l.batch(jobOf("a", "lost", 10))); OutcomeOf(err) != Unknown {
		t.Fatalf("the answer was lost: %v", err)
	}
	if local.End() != 2 {
		t.Errorf("after an answer that was lost the local log ends at %d", local.End())
	}
	if err := l.Append(t.Context(), l.batch(jobOf("a", "blindly", 10))); err == nil || !strings.Contains(err.Error(), ErrNoAnswer.Error()) {
		t.Errorf("after an unknown outcome it goes on: %v", err)
	}
}
