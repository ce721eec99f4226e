package zkmeta

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
)

// BenchmarkDeviceAppend commits segments: the segment becomes DONE, its successor is
// made and the partition moves on, in one multi of its own one after another (plain),
// and by many callers whose commits share the multis of one writer. All on one
// server; ratio is to plain.
func BenchmarkDeviceAppend(b *testing.B) {
	s := startServer(b)
	var plain float64
	b.Run("plain", func(b *testing.B) {
		l, parts := benchTree(b, s.Addr(), "/plain")
		took := make([]time.Duration, 0, b.N)
		began := time.Now()
		b.ResetTimer()
		for i := range b.N {
			at := time.Now()
			batch := l.batch()
			c, err := commitNext(b, parts[i%len(parts)])(l.image, batch.Time)
			if err != nil {
				b.Fatal(err)
			}
			batch.Upserts = c.Upserts
			if err := l.Append(b.Context(), batch); err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(at))
		}
		b.StopTimer()
		plain = reportAppends(b, began, took, 0)
	})
	for _, callers := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			l, parts := benchTree(b, s.Addr(), fmt.Sprintf("/callers%d", callers))
			w := takeOver(b, l.cfg.Conn)
			first := w.device.End()
			var (
				n    atomic.Int64
				wg   sync.WaitGroup
				mu   sync.Mutex
				took = make([]time.Duration, 0, b.N)
			)
			began := time.Now()
			b.ResetTimer()
			for i := range callers {
				wg.Go(func() {
					for n.Add(1) <= int64(b.N) {
						at := time.Now()
						if _, err := w.Submit(b.Context(), commitNext(b, parts[i])); err != nil {
							b.Error(err)
							return
						}
						d := time.Since(at)
						mu.Lock()
						took = append(took, d)
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			reportAppends(b, began, took, plain)
			b.ReportMetric(float64(b.N)/float64(w.device.End()-first), "commits/multi")
			w.stop(b)
		})
	}
}

// benchTree is a tree with 256 partitions that consume.
func benchTree(b *testing.B, server, root string) (*leader, []meta.PartitionKey) {
	b.Helper()
	c, err := Connect(ConnConfig{
		Address: Address{Servers: []string{server}, Root: fmt.Sprintf("%s-%d", root, time.Now().UnixNano())}, SessionTimeout: treeTimeout, Logger: zerolog.Nop(),
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	if err := Found(b.Context(), c, testCluster); err != nil {
		b.Fatal(err)
	}
	l, log := newLeader(b, c, nil), metatest.NewLog(b)
	log.AddNode(b, "n1", "a")
	log.AddNode(b, "n2", "b")
	table := log.AddTable(b, metatest.Config("bench"), 256)
	for _, batch := range log.Batches {
		if err := l.Append(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
	var parts []meta.PartitionKey
	for p := range l.image.Partitions(table) {
		parts = append(parts, p.PartitionKey())
	}
	return l, parts
}

// commitNext commits the partition's segment with a thousand rows.
func commitNext(b *testing.B, k meta.PartitionKey) meta.Func {
	return func(im *meta.Image, now int64) (meta.Change, error) {
		log := metatest.Log{Image: im, Now: now}
		return meta.CommitSegment(log.Commit(b, k, 1000))(im, now)
	}
}

// reportAppends returns the commits per second.
func reportAppends(b *testing.B, began time.Time, took []time.Duration, plain float64) float64 {
	b.Helper()
	rate := float64(b.N) / time.Since(began).Seconds()
	slices.Sort(took)
	if len(took) == 0 {
		b.Fatal("nothing was appended")
	}
	b.ReportMetric(rate, "appends/s")
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
	if plain > 0 {
		b.ReportMetric(rate/plain, "ratio")
	}
	return rate
}
