package deepstore_test

import (
	"bytes"
	"testing"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/deepstore/deepstoretest"
	"github.com/shoalstore/shoal/deepstore/s3test"
)

// BenchmarkS3Put uploads an object in parts to the gateway: both hashes, both
// readings of the source, and what the gateway does with it.
func BenchmarkS3Put(b *testing.B) {
	g := s3test.Start(b)
	s, err := deepstore.Open("s3://"+s3test.Bucket+"/bench", []string{"s3://" + s3test.Bucket}, deepstore.S3Config{Endpoint: g.Endpoint(), Credentials: g.Credentials()})
	if err != nil {
		b.Fatal(err)
	}
	o := deepstoretest.NewObject(b, "flights", 1, 128<<20)
	b.SetBytes(int64(len(o.Data)))
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Put(b.Context(), o.Key, bytes.NewReader(o.Data), int64(len(o.Data)), o.Digest); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := s.Delete(b.Context(), o.Key); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
