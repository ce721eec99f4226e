package stream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestALineCountsOnceItsNewlineIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDir(t)
		d.write(0, `{"a":`)
		r := d.open(0, 0)
		got := make(chan Batch)
		go func() {
			defer close(got)
			for {
				b, err := r.Read(t.Context())
				if err != nil {
					return
				}
				got <- b
			}
		}()
		quiet := func() {
			t.Helper()
			time.Sleep(10 * pollMax) // of the bubble's time: ten looks of the reader
			select {
			case b := <-got:
				t.Fatalf("got %q of a line that is not complete", b.Rows[0].Value)
			default:
			}
		}
		quiet()
		d.write(0, `1}`)
		quiet()
		d.write(0, "\n\n{\"b\"")
		if err := check(<-got, 0, []string{`{"a":1}`, ""}); err != nil {
			t.Fatal(err)
		}
		quiet()
		d.write(0, ":2}\r\n")
		if err := check(<-got, 2, []string{"{\"b\":2}\r"}); err != nil {
			t.Fatal(err)
		}
		r.Close()
		if b, more := <-got; more {
			t.Fatalf("got %v after Close", b)
		}
	})
}

// A producer that starts again cuts the torn line and writes another. Of equal
// length, it leaves a file of the same size, and the reader must still see it.
func TestATornLineMayBeReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDir(t)
		d.write(0, "a\ntorn torn")
		r := d.open(0, 0)
		wants(t, r, 0, "a")
		ctx, cancel := context.WithTimeout(t.Context(), 10*pollMax)
		defer cancel()
		if _, err := r.Read(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		d.truncate(0, 2)
		d.write(0, "b\nc\nd\ne\n\n")
		wants(t, r, 1, "b", "c", "d", "e", "")
	})
}

func TestReadersSeeExactlyWhatAWriterWrites(t *testing.T) {
	const rows = 20_000
	d := newDir(t)
	d.write(0, "")
	want := make([]string, rows)
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range want {
		want[i] = fmt.Sprintf(`{"n":%d,"pad":"%s"}`, i, strings.Repeat("x", rnd.IntN(200)))
	}
	var wg sync.WaitGroup
	for range 3 {
		r := d.open(0, 0)
		wg.Go(func() {
			for next := int64(0); next < rows; {
				b, err := r.Read(t.Context())
				if err == nil {
					err = check(b, next, want[next:])
				}
				if err != nil {
					t.Error(err)
					return
				}
				next = b.Next
			}
		})
	}
	text := strings.Join(want, "\n") + "\n"
	for len(text) > 0 {
		n := min(1+rnd.IntN(20_000), len(text))
		d.write(0, text[:n])
		text = text[n:]
	}
	wg.Wait()
	if got, err := d.src.Partitions(t.Context()); err != nil || got[0].End != rows {
		t.Fatal(got, err)
	}
}

func TestRowsGoneAreNoticed(t *testing.T) {
	const epoch = "6f1b2c7e-0b1d-4f0a-9c55-0123456789ab"
	truncated := func(lines int64, rewritten bool) func(*dir, error) bool {
		return func(d *dir, err error) bool {
			e, ok := errors.AsType[*TruncatedError](err)
			return ok && *e == TruncatedError{File: d.path(0), Lines: lines, Offset: 3, Rewritten: rewritten}
		}
	}
	replace := func(d *dir, text string) {
		if err := os.Remove(d.path(0)); err != nil {
			d.t.Fatal(err)
		}
		d.write(0, text)
	}
	for name, c := range map[string]struct {
		change func(*dir)
		is     func(*dir, error) bool
	}{
		"cut short":               {func(d *dir) { d.truncate(0, 3) }, truncated(1, false)},
		"emptied":                 {func(d *dir) { d.truncate(0, 0) }, truncated(0, false)},
		"cut within the last row": {func(d *dir) { d.truncate(0, 5) }, truncated(2, false)},
		"replaced by a shorter":   {func(d *dir) { replace(d, "x\n") }, truncated(1, true)},
		"replaced by a longer":    {func(d *dir) { replace(d, "1\n2\n3\n4\n5\n") }, truncated(5, true)},
		"removed":                 {func(d *dir) { os.Remove(d.path(0)) }, truncated(0, true)},
		"rewritten in place":      {func(d *dir) { d.truncate(0, 0); d.write(0, "longer than before\nx\n") }, truncated(2, true)},
		"made anew":               {func(d *dir) { d.setEpoch(strings.Replace(epoch, "6", "7", 1)) }, epochChanged},
		"without its id":          {func(d *dir) { os.Remove(filepath.Join(d.root, "s", IDFile)) }, epochChanged},
		"the id is damaged":       {func(d *dir) { d.setEpoch("?") }, func(_ *dir, err error) bool { return strings.Contains(err.Error(), IDFile) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDir(t)
				d.setEpoch(epoch)
				d.write(0, "1\n2\n3\n")
				r := d.open(0, 0)
				wants(t, r, 0, "1", "2", "3")
				c.change(d)
				_, err := r.Read(t.Context())
				if err == nil || !c.is(d, err) {
					t.Fatalf("got %v", err)
				}
				if _, again := r.Read(t.Context()); again != err {
					t.Fatalf("the error is not final: %v", again)
				}
			})
		})
	}
}

func epochChanged(d *dir, err error) bool {
	e, ok := errors.AsType[*EpochChangedError](err)
	return ok && e.Dir == filepath.Join(d.root, "s") && e.Was != e.Now
}

func TestLargeRows(t *testing.T) {
	d := newDir(t)
	big := strings.Repeat("b", 20<<20)
	largest := strings.Repeat("l", MaxRowBytes)
	d.write(0, "first\n"+big+"\nsecond\n"+largest+"\nthird\n"+largest+"+\nnever\n")
	r := d.open(0, 0)
	wants(t, r, 0, "first", big, "second", largest, "third")
	_, err := r.Read(t.Context())
	e, ok := errors.AsType[*RowTooLargeError](err)
	if !ok || *e != (RowTooLargeError{File: d.path(0), Line: 5, Size: MaxRowBytes + 1}) {
		t.Fatalf("got %v", err)
	}
	if _, again := r.Read(t.Context()); again != err {
		t.Fatalf("the error is not final: %v", again)
	}
	wants(t, d.open(0, 6), 6, "never")
}

func TestAHugeRowIsMeasuredWithoutBeingHeld(t *testing.T) {
	d := newDir(t)
	const size = 100 << 20
	d.write(0, "")
	d.truncate(0, size) // a hole reads as zeros
	d.write(0, "\n")
	r := d.open(0, 0)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := r.Read(t.Context())
	runtime.ReadMemStats(&after)
	if e, ok := errors.AsType[*RowTooLargeError](err); !ok || e.Size != size {
		t.Fatalf("got %v", err)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 8<<20 {
		t.Errorf("allocated %d bytes to measure a row", used)
	}
}

func TestRowsOwnTheirMemory(t *testing.T) {
	d := newDir(t)
	d.write(0, "aa\nbb\ncc\n")
	r := d.open(0, 0)
	b, err := r.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first := append(b.Rows[0].Value, "overwritten?"...)
	d.write(0, "dd\n")
	wants(t, r, 3, "dd")
	if string(b.Rows[1].Value) != "bb" || string(first[:2]) != "aa" {
		t.Fatalf("rows share memory they can write to: %q %q", first, b.Rows[1].Value)
	}
}

func TestBatchesAreBounded(t *testing.T) {
	d := newDir(t)
	d.write(0, strings.Repeat("\n", 3*batchRows+1))
	d.write(1, strings.Repeat(strings.Repeat("x", 99_999)+"\n", 30))
	for partition, rows := range map[int32]int64{0: 3*batchRows + 1, 1: 30} {
		r := d.open(partition, 0)
		for next := int64(0); next < rows; {
			b, err := r.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var bytes int64
			for i := range b.Rows {
				bytes += b.Rows[i].RawBytes()
			}
			if len(b.Rows) > batchRows || bytes > batchBytes {
				t.Fatalf("a batch of %d rows and %d bytes", len(b.Rows), bytes)
			}
			if b.End != rows {
				t.Fatalf("end %d, want %d", b.End, rows)
			}
			next = b.Next
		}
	}
}

func TestReadEndsWithItsContextAndTheReaderGoesOn(t *testing.T) {
	d := newDir(t)
	d.write(0, "a\n")
	r := d.open(0, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Read(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	d.write(0, "b\n")
	wants(t, r, 1, "b")
}

func TestCloseEndsARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDir(t)
		d.write(0, "")
		r := d.open(0, 0)
		done := make(chan error)
		go func() {
			_, err := r.Read(t.Context())
			done <- err
		}()
		synctest.Wait()
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, os.ErrClosed) {
			t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			t.Fatalf("second Close: %v", err)
		}
	})
}
