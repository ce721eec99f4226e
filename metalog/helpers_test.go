package metalog

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var testCluster = uuid.MustParse("00000000-0000-4000-8000-0000000000c1")

// termOf is the term of the leader of an epoch in these tests.
func termOf(epoch int64) uuid.UUID {
	return uuid.MustParse(fmt.Sprintf("00000000-0000-4000-8000-%012d", epoch))
}

func jobID(n int64) uuid.UUID {
	return uuid.MustParse(fmt.Sprintf("10000000-0000-4000-8000-%012d", n))
}

// job is a record of about size bytes that says which batch it is of.
func job(n int64, size int) *meta.Job {
	return &meta.Job{
		ID: jobID(n), Kind: "test", State: meta.JobRunning, Created: n + 1,
		Args: map[string]string{"filler": strings.Repeat("x", size)},
	}
}

// batchAt is the batch at offset in a log whose epochs change where run says.
func batchAt(offset, epoch int64, opens bool) *meta.Batch {
	b := &meta.Batch{Offset: offset, Epoch: epoch, Term: termOf(epoch), Time: 1000 + offset}
	if offset == 0 {
		b.Upserts = append(b.Upserts, &meta.Cluster{ID: testCluster, FormatVersion: meta.FormatVersion})
	}
	if opens {
		b.Upserts = append(b.Upserts, &meta.Leader{Epoch: epoch, Term: termOf(epoch), Controller: "c", URL: "http://c"})
	}
	b.Upserts = append(b.Upserts, job(offset, 10))
	return b
}

// run is how many batches one epoch has.
type run struct{ epoch, batches int64 }

// batchesOf makes a log's batches.
func batchesOf(runs ...run) (out []*meta.Batch) {
	for _, r := range runs {
		for i := range r.batches {
			out = append(out, batchAt(int64(len(out)), r.epoch, i == 0))
		}
	}
	return out
}

func entryOf(t testing.TB, b *meta.Batch) Entry {
	t.Helper()
	e, err := NewEntry(b)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func framesOf(t testing.TB, batches ...*meta.Batch) (frames []byte) {
	t.Helper()
	for _, b := range batches {
		frames = append(frames, entryOf(t, b).Frame...)
	}
	return frames
}

func openLog(t testing.TB, fs vfs.FS, fileBytes int64) *Log {
	t.Helper()
	l, err := OpenLog(fs, LogOptions{FileBytes: fileBytes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func appendAll(t testing.TB, l *Log, batches ...*meta.Batch) {
	t.Helper()
	for _, b := range batches {
		if err := l.Append(context.Background(), b); err != nil {
			t.Fatal(err)
		}
	}
}

// logOf is an open log with these batches.
func logOf(t testing.TB, runs ...run) *Log {
	t.Helper()
	l := openLog(t, vfs.NewMem(), 0)
	appendAll(t, l, batchesOf(runs...)...)
	return l
}

// onePerFile makes every batch of the tests start a new file.
const onePerFile = 1

// readAll reads a log from its start and checks that the offsets are consecutive.
func readAll(t testing.TB, l *Log) (batches []*meta.Batch) {
	t.Helper()
	for at := l.Start(); ; {
		frames, err := l.Read(at, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if len(frames) == 0 {
			return batches
		}
		entries, err := DecodeEntries(frames)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.Batch.Offset != at {
				t.Fatalf("batch %d where %d comes next", e.Batch.Offset, at)
			}
			batches = append(batches, e.Batch)
			at++
		}
	}
}

// offsets checks that l holds exactly [start, end).
func wantRange(t testing.TB, l *Log, start, end int64) {
	t.Helper()
	if l.Start() != start || l.End() != end {
		t.Fatalf("the log is [%d, %d), want [%d, %d)", l.Start(), l.End(), start, end)
	}
	if got := readAll(t, l); int64(len(got)) != end-start {
		t.Fatalf("read %d batches of [%d, %d)", len(got), start, end)
	}
}
