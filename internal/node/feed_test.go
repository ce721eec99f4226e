package node

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/shoalstore/shoal/segment"
	"github.com/shoalstore/shoal/stream"
)

// tape is a stream of one partition that gives these batches, in order, and then
// err, or waits.
type tape struct {
	batches []stream.Batch
	err     error
	openErr error
}

func (s *tape) Partitions(context.Context) ([]stream.Partition, error) { return nil, nil }

func (s *tape) Open(context.Context, int32, int64) (stream.Reader, error) {
	return &tapeReader{s}, s.openErr
}

type tapeReader struct{ *tape }

func (r *tapeReader) Close() error { return nil }

func (r *tapeReader) Read(ctx context.Context) (stream.Batch, error) {
	if len(r.batches) == 0 {
		if r.err != nil {
			return stream.Batch{}, r.err
		}
		<-ctx.Done()
		return stream.Batch{}, ctx.Err()
	}
	b := r.batches[0]
	r.batches = r.batches[1:]
	return b, nil
}

// batch is one of rows at these offsets, each so large, with the stream's end far.
func batch(next int64, valueBytes int, offsets ...int64) stream.Batch {
	b := stream.Batch{Next: next, End: 1000, Epoch: "e"}
	for _, o := range offsets {
		b.Rows = append(b.Rows, segment.Row{Offset: o, Value: make([]byte, valueBytes)})
	}
	return b
}

func TestFeedGivesEachRowOnceAndKnowsWhereItStands(t *testing.T) {
	f := startFeed(t.Context(), &tape{batches: []stream.Batch{batch(13, 1, 10, 11), batch(20, 1), batch(25, 1, 22, 24)}, err: errTest}, 3, 10)
	<-f.done
	at := func(position, fetched, taken int64, waiting bool) {
		t.Helper()
		want := FeedMoved{Position: position, Fetched: fetched, Taken: taken, Waiting: waiting, End: 1000, Epoch: "e", Err: errTest}
		if got := f.standing(); got != want {
			t.Fatalf("stands at %+v, want %+v", got, want)
		}
	}
	at(10, 25, 10, true)
	f.drop(1)
	at(11, 25, 11, true)
	f.drop(1)
	at(22, 25, 12, true) // past the gap
	f.skipTo(24)
	at(24, 25, 23, true)
	f.skipTo(30)
	at(25, 25, 25, false)
	if f.peek() != nil || f.bytes != 0 {
		t.Fatalf("%d rows, %d bytes are left", len(f.peek()), f.bytes)
	}
	f.close()
}

func TestFeedThatCannotOpenSaysSo(t *testing.T) {
	f := startFeed(t.Context(), &tape{openErr: errTest}, 0, 7)
	<-f.done
	if err := f.standing().Err; !errors.Is(err, errTest) {
		t.Fatal(err)
	}
	f.close()
	f = startFeed(t.Context(), &tape{}, 0, 7)
	f.close()
	if err := f.standing().Err; err != nil {
		t.Fatalf("%v: it was closed, and nothing failed", err)
	}
}

// However the stream cuts its rows into batches, and the consumer its takes, each
// row comes out once, in order, and what waits is bounded.
func TestFeedRows(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var batches []stream.Batch
		var want []int64
		next := int64(0)
		for range rapid.IntRange(0, 12).Draw(r, "batches") {
			var offsets []int64
			for range rapid.IntRange(0, 5).Draw(r, "rows") {
				next += rapid.Int64Range(0, 2).Draw(r, "gap")
				offsets = append(offsets, next)
				next++
			}
			next += rapid.Int64Range(0, 1).Draw(r, "tail")
			batches = append(batches, batch(next, 1<<20, offsets...))
			want = append(want, offsets...)
		}
		takes := rapid.SliceOfN(rapid.IntRange(1, 6), len(want)+1, len(want)+1).Draw(r, "takes")
		var got []int64
		var most, left int64
		var stands FeedMoved
		synctest.Test(t, func(*testing.T) {
			f := startFeed(context.Background(), &tape{batches: batches}, 0, 0)
			defer f.close()
			for _, n := range takes {
				synctest.Wait()
				most = max(most, f.bytes)
				rows := f.peek()
				n = min(n, len(rows))
				for i := range rows[:n] {
					got = append(got, rows[i].Offset)
				}
				f.drop(n)
			}
			synctest.Wait()
			left = f.bytes
			stands = f.standing()
		})
		switch {
		case !slices.Equal(got, want):
			r.Fatalf("got %v, want %v", got, want)
		case most > feedSteady+5*(1<<20+rowOverhead):
			r.Fatalf("%d bytes waited", most)
		case stands.Position != next || stands.Fetched != next || left != 0:
			r.Fatalf("stands at %d of %d with %d bytes, want %d", stands.Position, stands.Fetched, left, next)
		}
	})
}

func TestFullFeedWaitsForRoomAndSaysForHowLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var batches []stream.Batch
		for o := range int64(40) {
			batches = append(batches, batch(o+1, 1<<20, o))
		}
		f := startFeed(t.Context(), &tape{batches: batches}, 0, 0)
		fetched := func() int64 { synctest.Wait(); return f.standing().Fetched }
		if n := fetched(); n != 8 {
			t.Fatalf("%d rows of 1 MiB are read ahead", n)
		}
		time.Sleep(3 * time.Second)
		if d := f.blockedFor(); d != 3*time.Second {
			t.Fatalf("blocked for %s", d) // also while it lasts
		}
		f.drop(1)
		if n := fetched(); n != 9 {
			t.Fatalf("%d rows after one was taken", n)
		}
		f.allow(feedRollOver) // a roll-over does not stop reading
		if n := fetched(); n != 33 {
			t.Fatalf("%d rows with more room", n)
		}
		time.Sleep(2 * time.Second)
		if d := f.blockedFor(); d != 5*time.Second {
			t.Fatalf("blocked for %s", d)
		}
		f.allow(feedSteady)
		f.skipTo(20)
		if n := fetched(); n != 33 {
			t.Fatalf("%d rows: it is above its bound still", n)
		}
		f.close() // while it waits
	})
}
