// Package deepstoretest is the behaviour that every deepstore.Store must show.
// An implementation's test calls Run with a way to make an empty store.
package deepstoretest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/segment"
)

// Harness is how the suite reaches an implementation.
type Harness struct {
	// New returns an empty store.
	New func(t *testing.T) deepstore.Store
	// Damage changes a bit of a stored object behind the store's back, so far as
	// its Verify claims to notice: in a directory by writing into the file, in S3
	// by putting the changed bytes in the object's place, with its metadata. Nil:
	// it cannot be done, and what needs it is left out.
	Damage func(t *testing.T, s deepstore.Store, key string)
}

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, Harness)
	}{
		{"stored bytes come back, whole and in ranges", testRoundTrip},
		{"an object that goes up in parts is whole, once, or not there", testLarge},
		{"what is not there is ErrNotFound", testNotFound},
		{"the same object put again is adopted", testAdopt},
		{"other bytes never replace an object", testNeverReplaced},
		{"a source with other bytes than its digest stores nothing", testBadSource},
		{"keys outside the layout are refused", testBadKeys},
		{"uploads of one object at the same time all succeed", testConcurrent},
		{"Verify tells right, wrong and missing", testVerify},
		{"Verify notices a flipped bit, and Put does not paper over it", testDamage},
		{"List pages in order", testList},
		{"Delete is idempotent and takes only its object", testDelete},
		{"an ended context stores nothing", testContext},
		{"a segment goes up sidecar first and down data first", testOrder},
		{"an upload that fails anywhere is finished by another", testUploadRetried},
		{"a segment without its own sidecar does not verify", testVerifySegment},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, h) })
	}
}

// Object is a made-up segment.
type Object struct {
	Name    string
	Key     string
	Data    []byte
	Digest  segment.Digest
	Pieces  *segment.Pieces
	Sidecar []byte
}

// NewObject makes the segment number seq of partition 0 of a table, with size
// random bytes.
func NewObject(t testing.TB, table string, seq int64, size int) Object {
	t.Helper()
	data := make([]byte, size)
	rand.New(rand.NewSource(seq)).Read(data)
	pieces, digest, err := segment.HashFile(bytes.NewReader(data), int64(size))
	must(t, err)
	name := segment.NewName(table, 0, seq, time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)).String()
	key, err := deepstore.DataKey(name, digest)
	must(t, err)
	sidecar, err := pieces.MarshalBinary()
	must(t, err)
	return Object{Name: name, Key: key, Data: data, Digest: digest, Pieces: pieces, Sidecar: sidecar}
}

// Put puts the object's data.
func (o Object) Put(t testing.TB, s deepstore.Store) {
	t.Helper()
	must(t, o.put(s))
}

func (o Object) put(s deepstore.Store) error {
	return s.Put(context.Background(), o.Key, bytes.NewReader(o.Data), int64(len(o.Data)), o.Digest)
}

func (o Object) verify(s deepstore.Store) error {
	return s.Verify(context.Background(), o.Key, int64(len(o.Data)), o.Digest)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustBe(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
}

func read(s deepstore.Store, key string, off, n int64) ([]byte, error) {
	r, err := s.Open(context.Background(), key, off, n)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(r)
	return data, errors.Join(err, r.Close())
}

func testRoundTrip(t *testing.T, h Harness) {
	s := h.New(t)
	for seq, size := range []int{1, 1000, segment.PieceSize, segment.PieceSize + 1} {
		o := NewObject(t, "flights", int64(seq), size)
		o.Put(t, s)
		info, err := s.Head(context.Background(), o.Key)
		must(t, err)
		if info.Key != o.Key || info.SizeBytes != int64(size) || info.ModTime.IsZero() {
			t.Errorf("Head says %+v", info)
		}
		n := int64(size)
		for _, r := range [][2]int64{{0, -1}, {0, n}, {n - 1, 1}, {n / 2, -1}, {n / 3, n / 3}, {n, 0}} {
			got, err := read(s, o.Key, r[0], r[1])
			must(t, err)
			want := o.Data[r[0]:]
			if r[1] >= 0 {
				want = want[:r[1]]
			}
			if !bytes.Equal(got, want) {
				t.Errorf("size %d, range %v: other bytes (%d)", size, r, len(got))
			}
		}
		for _, r := range [][2]int64{{-1, 1}, {0, n + 1}, {n + 1, -1}, {n, 1}, {1, 1<<63 - 1}} {
			if got, err := read(s, o.Key, r[0], r[1]); err == nil {
				t.Errorf("size %d, range %v leaves the object and gives %d bytes", size, r, len(got))
			}
		}
	}
}

// testLarge has an object that S3 takes in three parts, the last of a byte.
func testLarge(t *testing.T, h Harness) {
	s, ctx := h.New(t), context.Background()
	o := NewObject(t, "flights", 1, 16<<20+1)
	size := int64(len(o.Data))
	wrong := bytes.Clone(o.Data)
	wrong[size-1] ^= 1
	mustBe(t, s.Put(ctx, o.Key, bytes.NewReader(wrong), size, o.Digest), deepstore.ErrBadSource)
	mustBe(t, o.verify(s), deepstore.ErrNotFound)

	var all sync.WaitGroup
	errs := make([]error, 3)
	for i := range errs {
		all.Go(func() { errs[i] = o.put(s) })
	}
	all.Wait()
	must(t, errors.Join(errs...))
	must(t, o.verify(s))
	o.Put(t, s)
	for _, r := range [][2]int64{{0, -1}, {8<<20 - 3, 6}, {size - 2, -1}, {16 << 20, 1}} {
		got, err := read(s, o.Key, r[0], r[1])
		must(t, err)
		want := o.Data[r[0]:]
		if r[1] >= 0 {
			want = want[:r[1]]
		}
		if !bytes.Equal(got, want) {
			t.Errorf("range %v: other bytes (%d)", r, len(got))
		}
	}
	list, err := s.List(ctx, "", "", 10)
	must(t, err)
	if len(list) != 1 || list[0].SizeBytes != size {
		t.Errorf("one object is listed as %v", list)
	}
	if sweeper, ok := s.(deepstore.Sweeper); ok {
		if n, err := sweeper.Sweep(ctx, -time.Hour); err != nil || n != 0 {
			t.Errorf("the uploads left %d things behind, %v", n, err)
		}
	}
	must(t, s.Delete(ctx, o.Key))
	mustBe(t, o.verify(s), deepstore.ErrNotFound)
}

func testNotFound(t *testing.T, h Harness) {
	s, o := h.New(t), NewObject(t, "flights", 1, 10)
	_, err := s.Head(context.Background(), o.Key)
	mustBe(t, err, deepstore.ErrNotFound)
	mustBe(t, err, fs.ErrNotExist)
	_, err = s.Open(context.Background(), o.Key, 0, -1)
	mustBe(t, err, deepstore.ErrNotFound)
	mustBe(t, o.verify(s), deepstore.ErrNotFound)
	list, err := s.List(context.Background(), "", "", 10)
	must(t, err)
	if len(list) != 0 {
		t.Errorf("an empty store lists %v", list)
	}
}

func testAdopt(t *testing.T, h Harness) {
	s, o := h.New(t), NewObject(t, "flights", 1, 5000)
	o.Put(t, s)
	o.Put(t, s)
	must(t, o.verify(s))
}

func testNeverReplaced(t *testing.T, h Harness) {
	s := h.New(t)
	a, b := NewObject(t, "flights", 1, 5000), NewObject(t, "flights", 2, 5000)
	// A sidecar's key does not name the sidecar's own digest, so it can be asked
	// for with other bytes.
	key := deepstore.PiecesKey(a.Key)
	ctx := context.Background()
	must(t, s.Put(ctx, key, bytes.NewReader(a.Data), 5000, a.Digest))
	mustBe(t, s.Put(ctx, key, bytes.NewReader(b.Data), 5000, b.Digest), deepstore.ErrDifferent)
	mustBe(t, s.Put(ctx, key, bytes.NewReader(b.Sidecar), int64(len(b.Sidecar)), digestOf(t, b.Sidecar)), deepstore.ErrDifferent)
	got, err := read(s, key, 0, -1)
	must(t, err)
	if !bytes.Equal(got, a.Data) {
		t.Error("the first object was changed")
	}
}

func digestOf(t *testing.T, data []byte) segment.Digest {
	_, d, err := segment.HashFile(bytes.NewReader(data), int64(len(data)))
	must(t, err)
	return d
}

func testBadSource(t *testing.T, h Harness) {
	s, o := h.New(t), NewObject(t, "flights", 1, 300_000)
	ctx := context.Background()
	wrong := bytes.Clone(o.Data)
	wrong[299_999] ^= 1
	mustBe(t, s.Put(ctx, o.Key, bytes.NewReader(wrong), 300_000, o.Digest), deepstore.ErrBadSource)
	mustBe(t, s.Put(ctx, o.Key, bytes.NewReader(nil), 0, o.Digest), deepstore.ErrBadSource)
	if err := s.Put(ctx, o.Key, bytes.NewReader(o.Data[:1000]), 300_000, o.Digest); err == nil {
		t.Error("a source that ends early was taken")
	}
	_, err := s.Head(ctx, o.Key)
	mustBe(t, err, deepstore.ErrNotFound)
	o.Put(t, s) // nothing that was left stands in the way
}

func testBadKeys(t *testing.T, h Harness) {
	s, o, other := h.New(t), NewObject(t, "flights", 1, 10), NewObject(t, "flights", 2, 10)
	ctx := context.Background()
	dir, file := o.Key[:len("flights/0/")], o.Key[len("flights/0/"):]
	for _, key := range []string{
		"", "/", ".", "..", "x", "../" + o.Key, "/" + o.Key, o.Key + "/", dir, dir + "../0/" + file, "flights/1/" + file,
		"Flights/0/" + file, "flights/00/" + file, dir + "x" + file, o.Key + ".tmp", strings.Replace(o.Key, ".parquet", ".PARQUET", 1),
		"flights/0/" + strings.Repeat("a", 5000), "flights/0/\x00", strings.ReplaceAll(o.Key, "/", `\`),
	} {
		mustBe(t, s.Put(ctx, key, bytes.NewReader(o.Data), 10, o.Digest), deepstore.ErrBadKey)
		mustBe(t, s.Verify(ctx, key, 10, o.Digest), deepstore.ErrBadKey)
		mustBe(t, s.Delete(ctx, key), deepstore.ErrBadKey)
		_, err := s.Head(ctx, key)
		mustBe(t, err, deepstore.ErrBadKey)
		_, err = s.Open(ctx, key, 0, -1)
		mustBe(t, err, deepstore.ErrBadKey)
	}
	// A good key that names other content.
	mustBe(t, s.Put(ctx, o.Key, bytes.NewReader(other.Data), 10, other.Digest), deepstore.ErrBadKey)
}

func testConcurrent(t *testing.T, h Harness) {
	s, o := h.New(t), NewObject(t, "flights", 1, 200_000)
	var all sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		all.Go(func() { errs[i] = o.put(s) })
	}
	all.Wait()
	must(t, errors.Join(errs...))
	must(t, o.verify(s))
	list, err := s.List(context.Background(), "", "", 10)
	must(t, err)
	if len(list) != 1 {
		t.Errorf("one object is listed as %v", list)
	}
}

func testVerify(t *testing.T, h Harness) {
	s, o, other := h.New(t), NewObject(t, "flights", 1, 5000), NewObject(t, "flights", 2, 5000)
	mustBe(t, o.verify(s), deepstore.ErrNotFound)
	o.Put(t, s)
	must(t, o.verify(s))
	ctx := context.Background()
	mustBe(t, s.Verify(ctx, o.Key, 5000, other.Digest), deepstore.ErrDifferent)
	for _, size := range []int64{4999, 5001, 0} {
		mustBe(t, s.Verify(ctx, o.Key, size, o.Digest), deepstore.ErrDifferent)
	}
}

func testDamage(t *testing.T, h Harness) {
	if h.Damage == nil {
		t.Skip("objects cannot be damaged from outside here")
	}
	s, o := h.New(t), NewObject(t, "flights", 1, 5000)
	o.Put(t, s)
	h.Damage(t, s, o.Key)
	mustBe(t, o.verify(s), deepstore.ErrDifferent)
	mustBe(t, o.put(s), deepstore.ErrDifferent)
	// The way out is to delete knowingly and put again.
	must(t, s.Delete(context.Background(), o.Key))
	o.Put(t, s)
	must(t, o.verify(s))
}

func testList(t *testing.T, h Harness) {
	s := h.New(t)
	var want []string
	for seq := range int64(5) {
		for _, table := range []string{"flights", "flights2", "flights-b", "flights.b", "Aa"} {
			o := NewObject(t, table, seq, 10)
			_, err := deepstore.Upload(context.Background(), s, o.Name, bytes.NewReader(o.Data), o.Pieces)
			must(t, err)
			want = append(want, o.Key, deepstore.PiecesKey(o.Key))
		}
	}
	slices.Sort(want)
	for _, prefix := range []string{"", "flights", "flights/", "flights/0/", "Aa/0/Aa__0__3", "none/"} {
		for _, limit := range []int{1, 3, 7, 100} {
			got := listAll(t, s, prefix, limit)
			var wanted []string
			for _, key := range want {
				if strings.HasPrefix(key, prefix) {
					wanted = append(wanted, key)
				}
			}
			if !slices.Equal(got, wanted) {
				t.Errorf("prefix %q in pages of %d:\n got %v\nwant %v", prefix, limit, got, wanted)
			}
		}
	}
}

func listAll(t *testing.T, s deepstore.Store, prefix string, limit int) (keys []string) {
	after := ""
	for {
		page, err := s.List(context.Background(), prefix, after, limit)
		must(t, err)
		if len(page) > limit {
			t.Fatalf("a page of %d has %d", limit, len(page))
		}
		for _, info := range page {
			if info.SizeBytes == 0 || info.ModTime.IsZero() {
				t.Errorf("listed without its facts: %+v", info)
			}
			keys = append(keys, info.Key)
		}
		if len(page) < limit {
			return keys
		}
		after = page[len(page)-1].Key
	}
}

func testDelete(t *testing.T, h Harness) {
	s, o, other := h.New(t), NewObject(t, "flights", 1, 10), NewObject(t, "flights", 2, 10)
	ctx := context.Background()
	must(t, s.Delete(ctx, o.Key))
	o.Put(t, s)
	other.Put(t, s)
	must(t, s.Delete(ctx, o.Key))
	must(t, s.Delete(ctx, o.Key))
	mustBe(t, o.verify(s), deepstore.ErrNotFound)
	must(t, other.verify(s))
}

func testContext(t *testing.T, h Harness) {
	s, o := h.New(t), NewObject(t, "flights", 1, 5000)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Put(ctx, o.Key, bytes.NewReader(o.Data), 5000, o.Digest); !errors.Is(err, context.Canceled) {
		t.Errorf("Put with an ended context: %v", err)
	}
	mustBe(t, o.verify(s), deepstore.ErrNotFound)
	o.Put(t, s)
	ctx, cancel = context.WithCancel(context.Background())
	r, err := s.Open(ctx, o.Key, 0, -1)
	must(t, err)
	defer r.Close()
	cancel()
	if _, err := io.ReadAll(r); !errors.Is(err, context.Canceled) {
		t.Errorf("reading with an ended context: %v", err)
	}
}

func testOrder(t *testing.T, h Harness) {
	o := NewObject(t, "flights", 1, 5000)
	var calls []string
	s := deepstore.WithFaults(h.New(t), deepstore.Faults{Before: func(_ context.Context, op deepstore.Op) error {
		if op.Kind == "put" || op.Kind == "delete" {
			calls = append(calls, op.Kind+" "+op.Key)
		}
		return nil
	}})
	key, err := deepstore.Upload(context.Background(), s, o.Name, bytes.NewReader(o.Data), o.Pieces)
	must(t, err)
	if key != o.Key {
		t.Errorf("key is %s, want %s", key, o.Key)
	}
	must(t, deepstore.Remove(context.Background(), s, key))
	pieces := deepstore.PiecesKey(key)
	want := []string{"put " + pieces, "put " + key, "delete " + key, "delete " + pieces}
	if !slices.Equal(calls, want) {
		t.Errorf("calls were %v, want %v", calls, want)
	}
}

// testUploadRetried breaks an upload before and after each of its two Puts acts,
// and expects that a second one finishes whatever the first left.
func testUploadRetried(t *testing.T, h Harness) {
	broken := errors.New("503")
	for failing := range 2 {
		for _, when := range []string{"before", "after"} {
			t.Run(fmt.Sprintf("put %d fails %s it acts", failing+1, when), func(t *testing.T) {
				real, o := h.New(t), NewObject(t, "flights", 1, 5000)
				puts := 0
				fail := func(_ context.Context, op deepstore.Op) error {
					if op.Kind != "put" {
						return nil
					}
					if puts++; puts == failing+1 {
						return broken
					}
					return nil
				}
				faults := deepstore.Faults{Before: fail}
				if when == "after" {
					faults = deepstore.Faults{After: fail}
				}
				upload := func(s deepstore.Store) error {
					_, err := deepstore.Upload(context.Background(), s, o.Name, bytes.NewReader(o.Data), o.Pieces)
					return err
				}
				mustBe(t, upload(deepstore.WithFaults(real, faults)), broken)
				if o.verify(real) == nil {
					// Data stands: then its sidecar must, too.
					must(t, deepstore.VerifySegment(context.Background(), real, o.Key, 5000, o.Digest))
				}
				must(t, upload(real))
				must(t, deepstore.VerifySegment(context.Background(), real, o.Key, 5000, o.Digest))
			})
		}
	}
}

func testVerifySegment(t *testing.T, h Harness) {
	s := h.New(t)
	ctx := context.Background()
	o, other := NewObject(t, "flights", 1, 5000), NewObject(t, "flights", 2, 5000)
	o.Put(t, s)
	mustBe(t, deepstore.VerifySegment(ctx, s, o.Key, 5000, o.Digest), deepstore.ErrNotFound)
	must(t, s.Put(ctx, deepstore.PiecesKey(o.Key), bytes.NewReader(other.Sidecar), int64(len(other.Sidecar)), digestOf(t, other.Sidecar)))
	mustBe(t, deepstore.VerifySegment(ctx, s, o.Key, 5000, o.Digest), deepstore.ErrDifferent)
	must(t, s.Delete(ctx, deepstore.PiecesKey(o.Key)))
	_, err := deepstore.Upload(ctx, s, o.Name, bytes.NewReader(o.Data), o.Pieces)
	must(t, err)
	must(t, deepstore.VerifySegment(ctx, s, o.Key, 5000, o.Digest))
}
