package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"pgregory.net/rapid"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
	"github.com/shoalstore/shoal/segment"
)

// shelf is a store that lists keys, in pages that are smaller than was asked for if
// the test says so.
type shelf struct {
	sizes map[string]int64
	fails int // the n-th page; 0: none
	pages int
}

func (s *shelf) List(_ context.Context, prefix, after string, limit int) ([]deepstore.Info, error) {
	if s.pages++; s.pages == s.fails {
		return nil, errors.New("503")
	}
	var all []deepstore.Info
	for key, size := range s.sizes {
		if strings.HasPrefix(key, prefix) && key > after {
			all = append(all, deepstore.Info{Key: key, SizeBytes: size})
		}
	}
	slices.SortFunc(all, func(a, b deepstore.Info) int { return strings.Compare(a.Key, b.Key) })
	return all[:min(len(all), limit)], nil
}

// shelved is an image whose table has so many verified segments in each partition,
// and a store that has them all.
func shelved(t rapid.TB, partitions, segments int) (*meta.Image, uuid.UUID, *shelf) {
	l := metatest.NewLog(t)
	for _, n := range []string{"a", "b"} {
		l.AddNode(t, n, "zone")
	}
	cfg := metatest.Config("t")
	withDeepStore(cfg)
	id := l.AddTable(t, cfg, partitions)
	store := &shelf{sizes: map[string]int64{}}
	for p := range int32(partitions) {
		for range segments {
			c := l.Commit(t, meta.PartitionKey{Table: id, Partition: p}, 10)
			l.Do(t, meta.CommitSegment(c))
			s := l.Image.Segment(c.Key)
			l.Do(t, meta.SetDeepStoreLocation(c.Key, s.Digest, uri(s), true))
			store.put(t, s)
		}
	}
	return l.Image, id, store
}

func keyOf(t rapid.TB, s *meta.Segment) string {
	key, err := deepstore.DataKey(s.Name, s.Digest)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (s *shelf) put(t rapid.TB, seg *meta.Segment) {
	s.sizes[keyOf(t, seg)] = seg.SizeBytes
	s.sizes[deepstore.PiecesKey(keyOf(t, seg))] = segment.SidecarSize(seg.SizeBytes)
}

// pass lists a table from its beginning to its end, and returns what is missing.
func pass(t rapid.TB, im *meta.Image, id uuid.UUID, store *shelf, pages int) (missing []string) {
	a := ListDeepStore{Image: im, Table: id, Name: "t", Store: "file:///deep", Pages: pages}
	for rounds := 0; ; rounds++ {
		if rounds > 1000 {
			t.Fatal("it does not end")
		}
		out := ListObjects(context.Background(), a, store)
		if out.Err != nil || out.Pages > pages || len(out.Missing) > missingMax {
			t.Fatalf("%d pages, %d missing, %v", out.Pages, len(out.Missing), out.Err)
		}
		for _, m := range out.Missing {
			name := im.Segment(m.Segment).Name
			if n := len(missing); n == 0 || missing[n-1] != name { // a part may end between its two objects
				missing = append(missing, name)
			}
		}
		if out.Done {
			return missing
		}
		if out.After <= a.After {
			t.Fatalf("from %q to %q", a.After, out.After)
		}
		a.After = out.After
	}
}

func TestListingFindsWhatIsNotThereAndNothingElse(t *testing.T) {
	im, id, store := shelved(t, 12, 11) // partitions and numbers of two digits: keys sort as texts
	store.sizes["t/3/t__3__99__20260101T000000Z-0123456789abcdef.parquet"] = 7
	store.sizes["t/99/t__99__0__20260101T000000Z-0123456789abcdef.parquet"] = 7
	store.sizes["t2/0/t2__0__0__20260101T000000Z-0123456789abcdef.parquet"] = 7
	if got := pass(t, im, id, store, 10); len(got) != 0 {
		t.Fatalf("%v", got)
	}
	var want []string
	for i, s := range slices.Collect(im.TableSegments(id)) {
		if s.Status != meta.SegmentDone {
			continue
		}
		key := keyOf(t, s)
		switch i % 20 {
		case 0:
			delete(store.sizes, key)
		case 5:
			delete(store.sizes, deepstore.PiecesKey(key))
		case 10:
			store.sizes[key]--
		case 15:
			delete(store.sizes, key)
			delete(store.sizes, deepstore.PiecesKey(key))
		default:
			continue
		}
		want = append(want, s.Name)
	}
	got := pass(t, im, id, store, 10)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) || len(want) < 20 {
		t.Errorf("missing %v, want %v", got, want)
	}
}

// A bucket that was emptied is found out in bounded parts.
func TestListingOfAnEmptyStoreComesInParts(t *testing.T) {
	im, id, store := shelved(t, 3, 500)
	clear(store.sizes)
	if got := pass(t, im, id, store, 10); len(got) != 1500 {
		t.Errorf("%d of 1,500 are missing", len(got))
	}
	store.sizes["t/9/t__9__0__20260101T000000Z-0123456789abcdef.parquet"] = 7 // behind them all
	if got := pass(t, im, id, store, 10); len(got) != 1500 {
		t.Errorf("%d of 1,500 are missing", len(got))
	}
}

func TestListingGoesOnWhereItsPagesEnded(t *testing.T) {
	im, id, store := shelved(t, 2, 600) // 2,400 keys
	var gone string
	for s := range im.TableSegments(id) {
		if s.Seq == 300 {
			gone = s.Name
			delete(store.sizes, keyOf(t, s))
			break
		}
	}
	if got := pass(t, im, id, store, 1); !slices.Equal(got, []string{gone}) {
		t.Errorf("%v, want %s", got, gone)
	}
	if store.pages != 3 {
		t.Errorf("%d pages", store.pages)
	}
}

// What was listed before an error counts; what was not says nothing.
func TestListingThatBreaksOffSaysNothingOfTheRest(t *testing.T) {
	im, id, store := shelved(t, 2, 600)
	clear(store.sizes)
	all := slices.Collect(im.TableSegments(id))
	for _, s := range all {
		if s.Status == meta.SegmentDone && s.Partition == 0 {
			store.put(t, s)
		}
	}
	store.fails = 2
	out := ListObjects(context.Background(), ListDeepStore{Image: im, Table: id, Name: "t", Store: "file:///deep", Pages: 10}, store)
	if out.Err == nil || len(out.Missing) != 0 || out.Pages != 1 || out.Done {
		t.Errorf("%+v", out)
	}
	store.fails = 1
	store.pages = 0
	if out := ListObjects(context.Background(), ListDeepStore{Image: im, Table: id, Name: "t", Store: "file:///deep", Pages: 10}, store); out.Err == nil || len(out.Missing) != 0 || out.After != "" {
		t.Errorf("%+v", out)
	}
}

func TestListingAgreesWithASearch(t *testing.T) {
	im, id, full := shelved(t, 11, 3)
	rapid.Check(t, func(t *rapid.T) {
		store := &shelf{sizes: map[string]int64{}}
		want := []string{}
		for s := range im.TableSegments(id) {
			if s.Status != meta.SegmentDone {
				continue
			}
			here := true
			for _, key := range []string{keyOf(t, s), deepstore.PiecesKey(keyOf(t, s))} {
				if rapid.IntRange(0, 3).Draw(t, "there") > 0 {
					store.sizes[key] = full.sizes[key]
				} else {
					here = false
				}
			}
			if !here {
				want = append(want, s.Name)
			}
		}
		got := pass(t, im, id, store, rapid.IntRange(1, 3).Draw(t, "pages"))
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("missing %v, want %v", got, want)
		}
	})
}

// Each segment is observed once, with the time of the batch that it has its copy by.
func TestTimesToCopiesAreObservedOnce(t *testing.T) {
	l := metatest.NewLog(t)
	for _, n := range []string{"a", "b"} {
		l.AddNode(t, n, "zone")
	}
	reg := prometheus.NewRegistry()
	times := newCopyTimes(reg)
	before, shown := l.Image, len(l.Batches)
	id := l.AddTable(t, metatest.Config("t"), 1)
	c := l.Commit(t, meta.PartitionKey{Table: id}, 10)
	l.Do(t, meta.CommitSegment(c))
	s := l.Image.Segment(c.Key)
	other := slices.DeleteFunc([]string{"a", "b"}, func(n string) bool { return n == s.Committer })[0]
	for range 2 { // said twice, and once more as a confirmation
		n := l.Image.Node(other)
		var v meta.LocationVerdicts
		l.Do(t, meta.Locations(&meta.LocationReport{
			Node: other, Incarnation: n.Incarnation, StoreID: n.StoreID, Sequence: n.LocationsSeq + 1, Add: []meta.CopyRef{refOf(s)},
		}, nil, &v))
		l.Do(t, meta.SetDeepStoreLocation(c.Key, s.Digest, "file:///deep/x", true))
		l.Do(t, meta.WithdrawDeepStoreLocation(c.Key, "file:///deep/x"))
	}
	for _, b := range l.Batches[shown:] {
		im, err := before.Apply(b)
		if err != nil {
			t.Fatal(err)
		}
		times.observe(before, im, b)
		before = im
	}
	s = l.Image.Segment(c.Key)
	for _, h := range []struct {
		name string
		at   int64
	}{{"shoal_segment_second_copy_seconds", s.Times.SecondCopy}, {"shoal_segment_deep_store_seconds", s.Times.DeepStore}} {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == h.name })
		got := families[i].GetMetric()[0].GetHistogram()
		if want := float64(h.at-s.Times.Committed) / 1000; got.GetSampleCount() != 1 || got.GetSampleSum() != want || want <= 0 {
			t.Errorf("%s: %d observed, %v s in all, want %v", h.name, got.GetSampleCount(), got.GetSampleSum(), want)
		}
	}
}
