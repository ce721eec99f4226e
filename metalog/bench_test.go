package metalog

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
)

// BenchmarkSubmit is a change from Submit to its fsync on the operating system's file
// system: one caller at a time, and many at once, whose changes share an fsync.
func BenchmarkSubmit(b *testing.B) {
	for _, callers := range []int{1, 100} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			disk, err := vfs.OS(b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			l, err := OpenLog(disk, LogOptions{})
			if err != nil {
				b.Fatal(err)
			}
			w := NewWriter(WriterConfig{
				Device: l, Image: meta.Empty(), Cluster: testCluster, Leader: meta.Leader{Epoch: 1, Term: termOf(1)},
				Clock: func() int64 { return time.Now().UnixMilli() },
			})
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() { done <- w.Run(ctx) }()
			<-w.Ready()
			var n atomic.Int64
			b.SetParallelism(max(1, callers/runtime.GOMAXPROCS(0)))
			began := time.Now()
			b.ResetTimer()
			submit := func() {
				i := n.Add(1)
				if _, err := w.Submit(ctx, put(i%10000, 200)); err != nil {
					b.Error(err)
				}
			}
			if callers == 1 {
				for range b.N {
					submit()
				}
			} else {
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						submit()
					}
				})
			}
			b.StopTimer()
			b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "changes/s")
			b.ReportMetric(float64(b.N)/float64(l.End()-1), "changes/batch")
			cancel()
			if err := <-done; err != nil {
				b.Error(err)
			}
			if err := l.Close(); err != nil {
				b.Error(err)
			}
		})
	}
}

// noDevice forgets what is appended, at once.
type noDevice struct{ Device }

func (noDevice) Append(context.Context, *meta.Batch) error { return nil }

// BenchmarkWriter is what the writer itself costs a change, without encoding the
// batch and without a disk.
func BenchmarkWriter(b *testing.B) {
	w := NewWriter(WriterConfig{
		Device: noDevice{}, Image: meta.Empty(), Cluster: testCluster, Leader: meta.Leader{Epoch: 1, Term: termOf(1)},
		Clock: func() int64 { return time.Now().UnixMilli() },
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	<-w.Ready()
	var n atomic.Int64
	b.SetParallelism(50)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := w.Submit(ctx, put(n.Add(1)%10000, 200)); err != nil {
				b.Error(err)
			}
		}
	})
	b.StopTimer()
	cancel()
	if err := <-done; err != nil {
		b.Error(err)
	}
}

// BenchmarkReplay is a batch from the disk's cache into the image.
func BenchmarkReplay(b *testing.B) {
	l := openLog(b, vfs.NewMem(), 0)
	const batches = 2000
	appendAll(b, l, batchesOf(run{1, batches})...)
	b.SetBytes(l.Bytes() / batches)
	b.ResetTimer()
	for i := 0; i < b.N; i += batches {
		if _, err := Replay(l, meta.Empty()); err != nil {
			b.Fatal(err)
		}
	}
}
