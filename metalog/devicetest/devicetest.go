// Package devicetest is the behaviour that every metalog.Device must show. An
// implementation's test calls Run with a way to make an empty device.
package devicetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
)

// Harness is how the suite reaches an implementation.
type Harness struct {
	// New returns an empty device. The suite's batches are appended to it in order;
	// together they are the log of a cluster of jobs.
	New func(t *testing.T) metalog.Device
}

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, metalog.Device)
	}{
		{"an empty device begins and ends at 0", testEmpty},
		{"what was appended is read, whole and from any offset", testRead},
		{"a read has one batch at least, and no more than fit", testReadLimit},
		{"what was read belongs to the reader", testReadOwned},
		{"an offset outside is refused", testOutOfRange},
		{"a batch that does not follow is refused", testOrder},
		{"a batch that is too large is refused", testTooLarge},
		{"an ended context appends nothing", testContext},
		{"trimming keeps what it may not drop", testTrim},
		{"readers see whole batches while others are appended", testConcurrent},
		{"nothing is appended after Close", testClose},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := h.New(t)
			defer func() {
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			}()
			test.run(t, d)
		})
	}
}

var cluster = uuid.MustParse("00000000-0000-4000-8000-0000000000c1")

func termOf(epoch int64) uuid.UUID {
	return uuid.MustParse(fmt.Sprintf("00000000-0000-4000-8000-%012d", epoch))
}

// Batch is the batch at an offset, one job of about size bytes. It opens its epoch if
// opens says so; the first one also founds the cluster.
func Batch(offset, epoch int64, opens bool, size int) *meta.Batch {
	b := &meta.Batch{Offset: offset, Epoch: epoch, Term: termOf(epoch), Time: 1000 + offset}
	if offset == 0 {
		b.Upserts = append(b.Upserts, &meta.Cluster{ID: cluster, FormatVersion: meta.FormatVersion})
	}
	if opens {
		b.Upserts = append(b.Upserts, &meta.Leader{Epoch: epoch, Term: termOf(epoch), Controller: "c", URL: "http://c"})
	}
	b.Upserts = append(b.Upserts, &meta.Job{
		ID:   uuid.NewSHA1(cluster, fmt.Append(nil, "job ", offset)),
		Kind: "test", State: meta.JobRunning, Created: offset + 1,
		Args: map[string]string{"filler": strings.Repeat("x", size)},
	})
	return b
}

// Batches is a log of n batches, of which the first opens epoch 1 and every third
// after it another epoch.
func Batches(n int64) (out []*meta.Batch) {
	for i := range n {
		out = append(out, Batch(i, 1+i/3, i%3 == 0, 10*int(i)))
	}
	return out
}

func appendAll(t *testing.T, d metalog.Device, batches ...*meta.Batch) {
	t.Helper()
	for _, b := range batches {
		if err := d.Append(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if d.End() != b.Offset+1 {
			t.Fatalf("after batch %d the end is %d", b.Offset, d.End())
		}
	}
}

func frame(t *testing.T, b *meta.Batch) []byte {
	t.Helper()
	e, err := metalog.NewEntry(b)
	if err != nil {
		t.Fatal(err)
	}
	return e.Frame
}

// wantLog reads all that the device holds, and compares it with the batches from
// Start on.
func wantLog(t *testing.T, d metalog.Device, batches []*meta.Batch) {
	t.Helper()
	if d.End() != int64(len(batches)) {
		t.Fatalf("the end is %d, want %d", d.End(), len(batches))
	}
	for at := d.Start(); at < d.End(); {
		frames, err := d.Read(at, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		entries, err := metalog.DecodeEntries(frames)
		if err != nil || len(entries) == 0 {
			t.Fatalf("%d entries at %d: %v", len(entries), at, err)
		}
		for _, e := range entries {
			if !bytes.Equal(e.Frame, frame(t, batches[at])) {
				t.Fatalf("batch %d is another", at)
			}
			at++
		}
	}
}

func testEmpty(t *testing.T, d metalog.Device) {
	if d.Start() != 0 || d.End() != 0 {
		t.Fatalf("[%d, %d)", d.Start(), d.End())
	}
	if frames, err := d.Read(0, 1000); err != nil || len(frames) != 0 {
		t.Fatalf("%d bytes, %v", len(frames), err)
	}
}

func testRead(t *testing.T, d metalog.Device) {
	batches := Batches(8)
	appendAll(t, d, batches...)
	wantLog(t, d, batches)
	for from := range int64(8) {
		frames, err := d.Read(from, 1)
		if err != nil || !bytes.Equal(frames, frame(t, batches[from])) {
			t.Fatalf("from %d: %d bytes, %v", from, len(frames), err)
		}
	}
	if frames, err := d.Read(8, 1000); err != nil || len(frames) != 0 {
		t.Fatalf("at the end: %d bytes, %v", len(frames), err)
	}
}

func testReadLimit(t *testing.T, d metalog.Device) {
	batches := Batches(6)
	appendAll(t, d, batches...)
	two := len(frame(t, batches[1])) + len(frame(t, batches[2]))
	for _, c := range []struct{ maxBytes, most int }{
		{-1, 1}, {0, 1}, {1, 1}, {two - 1, 1}, {two, 2}, {two + 1, 2}, {1 << 20, 5},
	} {
		frames, err := d.Read(1, c.maxBytes)
		if err != nil {
			t.Fatal(err)
		}
		entries, err := metalog.DecodeEntries(frames)
		if err != nil || len(entries) < 1 || len(entries) > c.most {
			t.Errorf("at most %d bytes: %d batches, %v; want 1 to %d", c.maxBytes, len(entries), err, c.most)
		}
	}
}

func testReadOwned(t *testing.T, d metalog.Device) {
	batches := Batches(3)
	appendAll(t, d, batches...)
	frames, err := d.Read(0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	clear(frames)
	wantLog(t, d, batches)
}

func testOutOfRange(t *testing.T, d metalog.Device) {
	appendAll(t, d, Batches(3)...)
	for _, from := range []int64{-1, 4, 1 << 40} {
		_, err := d.Read(from, 1000)
		var outside *metalog.OutOfRangeError
		if !errors.As(err, &outside) || outside.Offset != from || outside.Start != d.Start() || outside.End != 3 {
			t.Errorf("from %d: %v", from, err)
		}
	}
}

func testOrder(t *testing.T, d metalog.Device) {
	batches := append(Batches(3), Batch(3, 4, true, 5), Batch(4, 4, false, 5))
	refused := func(what string, b *meta.Batch) {
		t.Helper()
		if err := d.Append(t.Context(), b); err == nil {
			t.Fatalf("%s is taken", what)
		}
	}
	refused("one that leaves room before it", Batch(1, 1, true, 5))
	appendAll(t, d, batches[:4]...)
	refused("one that is there", batches[3])
	refused("one from the past", batches[1])
	refused("one that leaves a hole", Batch(5, 4, false, 5))
	refused("one of an older epoch", Batch(4, 3, false, 5))
	refused("one of no epoch", Batch(4, 0, false, 5))
	other := Batch(4, 4, false, 5)
	other.Term = termOf(99)
	refused("one of another term in the epoch", other)
	none := Batch(4, 5, false, 5)
	none.Term = uuid.UUID{}
	refused("one of no term", none)
	appendAll(t, d, batches[4])
	wantLog(t, d, batches)
}

// testTooLarge also appends a record that alone is larger than the log takes.
func testTooLarge(t *testing.T, d metalog.Device) {
	batches := Batches(3)
	appendAll(t, d, batches[:2]...)
	large := Batch(2, 1, false, 0)
	for i := range int64(20) {
		large.Upserts = append(large.Upserts, Batch(100+i, 1, false, meta.MaxRecordSize-1000).Upserts...)
	}
	var tooLarge *metalog.BatchTooLargeError
	if err := d.Append(t.Context(), large); !errors.As(err, &tooLarge) {
		t.Fatalf("appended: %v", err)
	}
	var record *meta.RecordTooLargeError
	if err := d.Append(t.Context(), Batch(2, 1, false, meta.MaxRecordSize)); !errors.As(err, &record) {
		t.Fatalf("appended: %v", err)
	}
	appendAll(t, d, batches[2])
	wantLog(t, d, batches)
}

func testContext(t *testing.T, d metalog.Device) {
	batches := Batches(2)
	appendAll(t, d, batches[0])
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Append(ended, batches[1]); !errors.Is(err, context.Canceled) {
		t.Fatalf("appended: %v", err)
	}
	wantLog(t, d, batches[:1])
	appendAll(t, d, batches[1])
	wantLog(t, d, batches)
}

func testTrim(t *testing.T, d metalog.Device) {
	batches := Batches(9)
	appendAll(t, d, batches[:8]...)
	var furthest int64
	for _, before := range []int64{0, 3, 2, 8, 100} {
		furthest = max(furthest, min(before, 8))
		if err := d.Trim(before); err != nil {
			t.Fatal(err)
		}
		if d.Start() > furthest || d.End() != 8 {
			t.Fatalf("trimmed below %d: [%d, %d)", before, d.Start(), d.End())
		}
		if start := d.Start(); start > 0 {
			var outside *metalog.OutOfRangeError
			if _, err := d.Read(start-1, 1000); !errors.As(err, &outside) {
				t.Fatalf("read what was trimmed: %v", err)
			}
		}
		wantLog(t, d, batches[:8])
	}
	appendAll(t, d, batches[8])
	wantLog(t, d, batches)
}

// testConcurrent reads to the end and from its beginning while batches are appended;
// a Device must not show one before it is there.
func testConcurrent(t *testing.T, d metalog.Device) {
	batches := Batches(30)
	appendAll(t, d, batches[0])
	var readers sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		readers.Go(func() {
			for at := d.Start(); ; {
				select {
				case <-stop:
					return
				default:
				}
				frames, err := d.Read(at, 4000)
				if err != nil {
					t.Errorf("read at %d: %v", at, err)
					return
				}
				entries, err := metalog.DecodeEntries(frames)
				if err != nil {
					t.Error(err)
					return
				}
				for _, e := range entries {
					if e.Batch.Offset != at {
						t.Errorf("batch %d at %d", e.Batch.Offset, at)
					}
					at++
				}
				if len(entries) == 0 {
					at = d.Start()
				}
			}
		})
	}
	for _, b := range batches[1:] {
		if err := d.Append(t.Context(), b); err != nil {
			t.Error(err)
			break
		}
	}
	close(stop)
	readers.Wait()
	wantLog(t, d, batches)
}

func testClose(t *testing.T, d metalog.Device) {
	batches := Batches(2)
	appendAll(t, d, batches[0])
	for range 2 {
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Append(t.Context(), batches[1]); !errors.Is(err, metalog.ErrClosed) {
		t.Fatalf("after Close: %v", err)
	}
	if d.End() != 1 {
		t.Fatalf("the end is %d", d.End())
	}
}
