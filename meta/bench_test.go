package meta_test

import (
	"testing"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
)

// BenchmarkApplyCommit is what a follower does for each committed segment, in
// an image that has many.
func BenchmarkApplyCommit(b *testing.B) {
	im := decodedImage(b, 100_000)
	s := im.LastSegment(meta.PartitionKey{Table: doneSegment([16]byte{1}, 0, 0, 0).Table})
	data, err := meta.EncodeBatch(&meta.Batch{Upserts: []meta.Record{s}})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		batch, err := meta.DecodeBatch(data)
		if err != nil {
			b.Fatal(err)
		}
		batch.Offset = im.Next()
		if im, err = im.Apply(batch); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEvaluateCommit is what the leader's writer does for each: evaluate,
// apply to the speculative image, encode.
func BenchmarkEvaluateCommit(b *testing.B) {
	l := metatest.NewLog(b)
	l.AddNode(b, "n1", "a")
	l.AddNode(b, "n2", "b")
	k := meta.PartitionKey{Table: l.AddTable(b, metatest.Config("flights"), 1)}
	b.ReportAllocs()
	for b.Loop() {
		l.Do(b, meta.CommitSegment(l.Commit(b, k, 10)))
		l.Batches = l.Batches[:0]
	}
}
