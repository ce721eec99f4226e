package metalog

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
	"github.com/shoalstore/shoal/segment"
)

// segmentsImage is an image of n DONE segments in 12 partitions, each with three node
// copies and one in the deep store.
func segmentsImage(tb testing.TB, n int) *meta.Image {
	tb.Helper()
	const partitions = 12
	table := metatest.ID("flights")
	cfg := metatest.Config("flights")
	im, err := meta.Restore(meta.Position{Next: int64(n), Epoch: 3, Time: 1_793_500_000_000}, func(yield func(meta.Record) bool) {
		records := []meta.Record{
			&meta.Cluster{ID: testCluster, FormatVersion: meta.FormatVersion},
			&meta.Leader{Epoch: 3, Term: termOf(3), Controller: "controller-1", URL: "http://127.0.0.1:7070"},
			&meta.Table{ID: table, Name: "flights", State: meta.TableActive, ConfigVersion: 1},
			&meta.TableConfig{Table: table, Version: 1, Config: *cfg},
		}
		per := int64(n / partitions)
		for p := range int32(partitions) {
			records = append(records, &meta.Partition{
				Table: table, Partition: p, Replicas: []string{"node-1", "node-2", "node-3"}, State: meta.PartitionEnded,
				NextSeq: per, NextOffset: per * rowsEach, StreamEpoch: "0",
			})
		}
		for _, r := range records {
			if !yield(r) {
				return
			}
		}
		for i := range per * partitions {
			if !yield(benchSegment(table, int32(i/per), i%per)) {
				return
			}
		}
	})
	if err != nil {
		tb.Fatal(err)
	}
	return im
}

const rowsEach = 1_000_000

func benchSegment(table uuid.UUID, p int32, seq int64) *meta.Segment {
	name := fmt.Sprintf("flights__%d__%d__20261101T120000Z", p, seq)
	digest := metatest.DigestOf(name)
	s := &meta.Segment{
		Table: table, Partition: p, Seq: seq, Name: name, Status: meta.SegmentDone,
		Start: seq * rowsEach, End: (seq + 1) * rowsEach, Rows: rowsEach, SizeBytes: 80 << 20,
		MinTimestamp: 1_790_000_000_000, MaxTimestamp: 1_790_000_360_000,
		Digest: digest, SHA256: segment.SHA256(digest), RowsDigest: segment.RowsDigest(digest[:16]),
		LastLeaderEpoch: -1, ConfigVersion: 1, StreamEpoch: "0", LeaderEpoch: 3,
		Replicas: []string{"node-1", "node-2", "node-3"}, Committer: "node-2",
	}
	at := int64(1_793_400_000_000) + seq
	s.Times = meta.Times{Created: at, FirstConsumed: at, WinnerDecided: at, CommitStarted: at, Committed: at, SecondCopy: at,
		Replicated: at, Uploaded: at, DeepStore: at, LastLocation: at}
	for _, node := range s.Replicas {
		s.Locations = append(s.Locations, meta.Location{Node: node, StoreID: metatest.ID(node), Since: at})
	}
	s.Locations = append(s.Locations, meta.Location{
		URI: fmt.Sprintf("s3://backups/shoal/flights/%d/%s-%s.parquet", p, name, digest.Short()), Since: at, Verified: true,
	})
	return s
}

const benchSegments = 100_000

// BenchmarkWriteSnapshot writes 100,000 segments to the operating system's disk.
func BenchmarkWriteSnapshot(b *testing.B) {
	im := segmentsImage(b, benchSegments)
	fsys, err := vfs.OS(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	var ref SnapshotRef
	n := 0
	for b.Loop() {
		n++
		if ref, err = WriteSnapshot(context.Background(), fsys, fmt.Sprintf("s%d", n), im); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(ref.SizeBytes)
	b.ReportMetric(float64(ref.SizeBytes)/benchSegments, "bytes/segment")
}

// BenchmarkLoadSnapshot verifies them and makes the image.
func BenchmarkLoadSnapshot(b *testing.B) {
	fsys, err := vfs.OS(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	ref := writeSnapshot(b, fsys, segmentsImage(b, benchSegments))
	s, err := OpenSnapshots(fsys, "", zerolog.Nop())
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(ref.SizeBytes)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Load(ref.SnapshotID); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(ref.SizeBytes)/benchSegments, "bytes/segment")
}
