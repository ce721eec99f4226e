package meta_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

// decodedImage returns an image of n DONE segments with three node copies and
// one in the deep store, every record as a follower gets it: decoded.
func decodedImage(tb testing.TB, n int) *meta.Image {
	tb.Helper()
	const partitions = 12
	table := uuid.UUID{1}
	im := meta.Empty()
	seq, next := make([]int64, partitions), make([]int64, partitions)
	for done := 0; done < n; {
		var b meta.Batch
		b.Offset = im.Next()
		if done == 0 {
			b.Upserts = append(b.Upserts, &meta.Table{ID: table, Name: "flights", State: meta.TableDeleting})
		}
		for p := range partitions {
			s := doneSegment(table, int32(p), seq[p], next[p])
			b.Upserts = append(b.Upserts, s)
			seq[p]++
			next[p] = s.End
			done++
		}
		data, err := meta.EncodeBatch(&b)
		if err != nil {
			tb.Fatal(err)
		}
		decoded, err := meta.DecodeBatch(data)
		if err != nil {
			tb.Fatal(err)
		}
		if im, err = im.Apply(decoded); err != nil {
			tb.Fatal(err)
		}
	}
	return im
}

func doneSegment(table uuid.UUID, p int32, seq, start int64) *meta.Segment {
	name := fmt.Sprintf("flights__%d__%d__20261101T120000Z", p, seq)
	s := &meta.Segment{
		Table: table, Partition: p, Seq: seq, Name: name, Status: meta.SegmentDone,
		Start: start, End: start + 1_000_000, Rows: 1_000_000, SizeBytes: 80 << 20,
		MinTimestamp: 1_790_000_000_000, MaxTimestamp: 1_790_000_360_000,
		Digest: segment.Digest{byte(seq), byte(p), 1}, SHA256: segment.SHA256{2}, RowsDigest: segment.RowsDigest{3},
		LastLeaderEpoch: -1, ConfigVersion: 1, StreamEpoch: "6ba7b810-9dad-11d1-80b4-00c04fd430c8", LeaderEpoch: 3,
		Replicas: []string{"node-1", "node-2", "node-3"}, Committer: "node-2",
		Times: meta.Times{Created: 1, FirstConsumed: 2, WinnerDecided: 3, CommitStarted: 4, Committed: 5, SecondCopy: 6,
			Replicated: 7, Uploaded: 8, DeepStore: 9, LastLocation: 9},
	}
	for i, node := range s.Replicas {
		s.Locations = append(s.Locations, meta.Location{Node: node, StoreID: uuid.UUID{byte(i + 1)}, Since: 5})
	}
	s.Locations = append(s.Locations, meta.Location{
		URI: fmt.Sprintf("s3://backups/shoal/flights/%d/%s-0123456789abcdef.parquet", p, name), Since: 9, Verified: true,
	})
	return s
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestASegmentCostsAFollowerAboutAKibibyte(t *testing.T) {
	const n = 24_000
	before := heap()
	im := decodedImage(t, n)
	each := (heap() - before) / n
	runtime.KeepAlive(im)
	t.Logf("%d bytes for each DONE segment with four locations", each)
	if each > 1024 {
		t.Errorf("a DONE segment with four locations takes %d bytes, more than 1 KiB", each)
	}
}
