package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
	"github.com/shoalstore/shoal/stream"
)

// ingestJob reads the first Rows of partition 0 of a stream and puts them into
// sealed segments of the default size, published in a store: what a node does
// between the stream and the commit, without the commit.
type ingestJob struct {
	StreamRoot, Store string
	Rows              int64
	Profile           string // file for a processor profile; "" is none
}

// ingestResult is what it took. Raw bytes are the rows' values, without newlines.
type ingestResult struct {
	Rows, RawBytes, FileBytes int64
	Segments                  int
	Wall, CPU                 time.Duration
}

const streamName = "flights"

func (j *ingestJob) run(ctx context.Context) (res ingestResult, err error) {
	source, err := stream.OpenFiles(j.StreamRoot, streamName)
	if err != nil {
		return res, err
	}
	defer source.Close()
	fsys, err := vfs.OS(j.Store)
	if err != nil {
		return res, err
	}
	store, err := segment.OpenStore(fsys, zerolog.Nop())
	if err != nil {
		return res, err
	}
	if j.Profile != "" {
		stop, err := startProfile(j.Profile)
		if err != nil {
			return res, err
		}
		defer stop()
	}
	began, cpu := time.Now(), cpuTime()
	reader, err := source.Open(ctx, 0, 0)
	if err != nil {
		return res, err
	}
	defer reader.Close()
	in := &rowReader{reader: reader, limit: j.Rows}
	for !in.done() {
		sealed, err := buildSegment(ctx, store, in, int64(res.Segments))
		if err != nil {
			return res, err
		}
		res.Segments++
		res.Rows += sealed.Rows
		res.RawBytes += sealed.RawBytes
		res.FileBytes += sealed.SizeBytes
	}
	res.Wall, res.CPU = time.Since(began), cpuTime()-cpu
	return res, nil
}

// startProfile profiles the process until stop.
func startProfile(file string) (stop func(), err error) {
	f, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { pprof.StopCPUProfile(); f.Close() }, nil
}

// rowReader yields the rows of a reader one by one, up to the offset limit.
type rowReader struct {
	reader stream.Reader
	limit  int64
	next   int64
	batch  []segment.Row
}

func (r *rowReader) done() bool { return r.next >= r.limit }

func (r *rowReader) row(ctx context.Context) (*segment.Row, error) {
	for len(r.batch) == 0 {
		b, err := r.reader.Read(ctx)
		if err != nil {
			return nil, err
		}
		r.batch = b.Rows
	}
	row := &r.batch[0]
	r.batch, r.next = r.batch[1:], row.Offset+1
	return row, nil
}

// buildSegment fills a segment up to a limit of a table that has the defaults,
// or to the end of the rows, and publishes it.
func buildSegment(ctx context.Context, store *segment.Store, in *rowReader, seq int64) (*segment.Sealed, error) {
	limits, table := meta.DefaultConfig().Segment, uuid.UUID{1}
	name := segment.Name{Table: streamName, Seq: seq, Created: time.Now()}.String()
	f, path, err := store.Stage(table, 0, name)
	if err != nil {
		return nil, err
	}
	b, err := segment.NewBuilder(f, segment.BuilderConfig{
		Table: streamName, Start: in.next, ConfigVersion: 1, Format: flightFormat(), Compression: limits.Compression,
		RowGroupRows: limits.RowGroupRows, RowGroupBytes: int64(limits.RowGroupBytes),
	})
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	for !in.done() && b.Rows() < limits.MaxRows && b.RawBytes() < int64(limits.MaxBytes) {
		row, err := in.row(ctx)
		if err == nil {
			err = b.Append(row)
		}
		if err != nil {
			return nil, errors.Join(err, b.Abort())
		}
	}
	sealed, err := b.Seal(in.next)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	_, err = store.Publish(f, path, table, 0, name, sealed.Pieces, sealed.Digest)
	return sealed, err
}

func (b *bench) measureIngest(ctx context.Context) error {
	root := filepath.Join(b.dir, "stream")
	if err := os.MkdirAll(filepath.Join(root, streamName), 0o755); err != nil {
		return err
	}
	rows := b.ingestBytes*int64(len(b.rows.lines))/b.rows.bytes() + 1
	if err := b.rows.writeFile(filepath.Join(root, streamName, stream.FileName(0)), rows); err != nil {
		return err
	}
	var cpu, wall, perSecond []float64
	var last ingestResult
	for round := range max(3, b.rounds-2) {
		j := ingestJob{StreamRoot: root, Store: filepath.Join(b.dir, "ingest"), Rows: rows}
		if round == 0 {
			j.Profile = b.profile
		}
		if err := runChild(ctx, job{Ingest: &j}, &last, "GOMAXPROCS=1"); err != nil {
			return err
		}
		if err := os.RemoveAll(j.Store); err != nil {
			return err
		}
		mb := float64(last.RawBytes) / 1e6
		cpu, wall = append(cpu, mb/last.CPU.Seconds()), append(wall, mb/last.Wall.Seconds())
		perSecond = append(perSecond, float64(last.Rows)/last.CPU.Seconds())
	}
	rate := median(cpu)
	b.table.add("stream file → sealed, published segment, per core-second",
		fmt.Sprintf("**%.0f MB/s** of JSON, %.0f rows/s", rate, median(perSecond)),
		aim(rate >= 100, "≥ 100 MB/s"),
		fmt.Sprintf("`GOMAXPROCS=1`; processor time of the whole process, its kernel time and collector included. Median of %d rounds of %.0f MB (%.0f…%.0f) into %d segments, %.1f : 1",
			len(cpu), float64(last.RawBytes)/1e6, least(cpu), most(cpu), last.Segments, float64(last.RawBytes)/float64(last.FileBytes)))
	b.table.add("the same by the clock", fmt.Sprintf("%.0f MB/s", median(wall)), "",
		"what other processes took and the waits for fsync included")
	return os.RemoveAll(root)
}

// memoryJob builds one segment of incompressible rows of up to 1 MiB.
type memoryJob struct{ Bytes int64 }

type memoryResult struct{ Held, Heap int64 }

// run builds it twice: with a collector that runs all the time, which shows
// what the builder holds, and as processes usually run.
func (j *memoryJob) run() (res memoryResult, err error) {
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	if res.Held, err = j.build(); err != nil {
		return res, err
	}
	debug.SetGCPercent(100)
	res.Heap, err = j.build()
	return res, err
}

// build returns the largest heap in use above what there was before, looked at
// whenever the builder writes, which is when its buffers are fullest.
func (j *memoryJob) build() (peak int64, err error) {
	rnd := rand.New(rand.NewSource(1))
	random := make([]byte, 2<<20)
	rnd.Read(random)
	heap := func() int64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapInuse)
	}
	runtime.GC()
	debug.FreeOSMemory()
	base := heap()
	b, err := segment.NewBuilder(observedFile{onWrite: func() { peak = max(peak, heap()-base) }}, segment.BuilderConfig{
		Table: "memory", Format: segment.Format{Type: segment.FormatJSON, Columns: []segment.Column{{Name: "s", Type: segment.TypeString}}},
	})
	if err != nil {
		return 0, err
	}
	const most = 1<<20*3/4 - 8 // 1 MiB in base64, with the name around it
	for offset := int64(0); b.RawBytes() < j.Bytes; offset++ {
		n := most
		if offset%2 == 1 {
			n = 1 + rnd.Intn(most)
		}
		at := rnd.Intn(len(random) - n)
		value := make([]byte, 0, base64.StdEncoding.EncodedLen(n)+8)
		value = append(value, `{"s":"`...)
		value = base64.StdEncoding.AppendEncode(value, random[at:at+n])
		value = append(value, `"}`...)
		if err := b.Append(&segment.Row{Offset: offset, Timestamp: segment.NoTimestamp, LeaderEpoch: segment.NoLeaderEpoch, Value: value}); err != nil {
			return 0, err
		}
	}
	_, err = b.Seal(b.Position())
	return peak, err
}

// observedFile keeps nothing and tells of each write.
type observedFile struct {
	vfs.File
	onWrite func()
}

func (f observedFile) Write(b []byte) (int, error) {
	f.onWrite()
	return io.Discard.Write(b)
}

func (b *bench) measureMemory(ctx context.Context) error {
	var res memoryResult
	if err := runChild(ctx, job{Memory: &memoryJob{Bytes: b.memoryBytes}}, &res); err != nil {
		return err
	}
	mib := func(n int64) float64 { return float64(n) / (1 << 20) }
	b.table.add("memory of one builder over the baseline", fmt.Sprintf("**%.0f MiB** held", mib(res.Held)),
		aim(res.Held <= 64<<20, "≤ 64 MiB"),
		fmt.Sprintf("one segment of %.0f MiB, rows up to 1 MiB that do not compress; with `GOGC=100` the heap reaches %.0f MiB, garbage included. `TestBuilderMemoryIsBounded` has other kinds of rows",
			mib(b.memoryBytes), mib(res.Heap)))
	return nil
}
