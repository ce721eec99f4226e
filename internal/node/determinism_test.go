package node

import (
	"bytes"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/segment"
)

// Three replicas of one segment meet the rows and the protocol in three orders:
// other fetch batches, a stop at an own limit and a CATCH_UP, a restart in the
// middle, a file that was sealed short of the end and had to be built anew. What
// they seal at the committed end is the same file.

const determinismRows = 2600 // more than two blocks of the builder

// replicaRig is a replica's machine with a real builder and a stream in memory.
type replicaRig struct {
	t       *rapid.T
	name    string
	fs      *vfs.Mem
	m       *commit.Replica
	b       *segment.Builder
	f       vfs.File
	files   int
	next    int64 // of the reader
	now     time.Duration
	sealed  map[int64][]byte // by end
	pending []commit.Send
}

func determinismRow(offset int64) segment.Row {
	return segment.Row{
		Offset: offset, Timestamp: segment.NoTimestamp, LeaderEpoch: segment.NoLeaderEpoch,
		Value: fmt.Appendf(nil, `{"id":%d,"name":"row %d","half":%g}`, offset, offset%97, float64(offset)/2),
	}
}

func newReplicaRig(t *rapid.T, name string, maxRows int64) *replicaRig {
	r := &replicaRig{t: t, name: name, fs: vfs.NewMem(), sealed: map[int64][]byte{}}
	r.m = commit.NewReplica(commit.ReplicaConfig{
		Key: commit.Key{Table: uuid.UUID{1}}, Segment: "t__0__0__20261129T171245Z", Instance: name, Incarnation: 1,
		StoreID: uuid.UUID{2}, StreamEpoch: "0", MaxRows: maxRows, Timing: commit.DefaultTiming,
	})
	r.build()
	r.step(commit.ImageChanged{Record: commit.Record{Mine: true, LeaderEpoch: 1}})
	return r
}

// build begins a builder at the segment's start.
func (r *replicaRig) build() {
	r.files++
	f, err := r.fs.Create(fmt.Sprintf("build-%d", r.files))
	if err != nil {
		r.t.Fatal(err)
	}
	b, err := segment.NewBuilder(f, segment.BuilderConfig{
		Table: "t", ConfigVersion: 1, RowGroupRows: 1700,
		Format: segment.Format{Type: segment.FormatJSON, Columns: []segment.Column{
			{Name: "id", Type: segment.TypeInt64}, {Name: "name", Type: segment.TypeString}, {Name: "half", Type: segment.TypeFloat64},
		}},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.b, r.f, r.next = b, f, 0
}

func (r *replicaRig) step(ev commit.ReplicaEvent) {
	for _, a := range r.m.Step(r.now, ev) {
		switch a := a.(type) {
		case commit.Send:
			r.pending = append(r.pending, a)
		case commit.Seal:
			r.seal(a.End)
		case commit.Restart:
			r.build()
		}
	}
}

func (r *replicaRig) seal(end int64) {
	sealed, err := r.b.Seal(end)
	if err != nil {
		r.t.Fatalf("%s: seal at %d: %v", r.name, end, err)
	}
	data := make([]byte, sealed.SizeBytes)
	if _, err := io.ReadFull(io.NewSectionReader(r.f, 0, sealed.SizeBytes), data); err != nil {
		r.t.Fatal(err)
	}
	r.sealed[end] = data
	r.step(commit.Sealed{Info: sealed.Info})
}

// feed reads one batch of a drawn size and offers its rows.
func (r *replicaRig) feed() {
	if !r.m.Consuming() {
		return
	}
	upTo := min(r.next+int64(rapid.IntRange(1, 900).Draw(r.t, r.name+" fetches")), determinismRows)
	for r.next < upTo {
		row := determinismRow(r.next)
		verdict := r.m.Offer(r.now, row.Offset, row.RawBytes())
		if verdict == commit.LeaveRow {
			break
		}
		if verdict == commit.AppendRow {
			if err := r.b.Append(&row); err != nil {
				r.t.Fatalf("%s: %v", r.name, err)
			}
		}
		r.next++
	}
	r.step(commit.Fed{Next: r.next, Fetched: upTo})
}

// consume feeds until the machine wants no more.
func (r *replicaRig) consume() {
	for range 2 * determinismRows {
		if !r.m.Consuming() {
			return
		}
		r.feed()
	}
	r.t.Fatalf("%s does not stop at offset %d", r.name, r.next)
}

// answer answers the last message.
func (r *replicaRig) answer(reply commit.Reply) {
	last := r.pending[len(r.pending)-1]
	r.now += time.Second
	r.step(commit.Answered{ID: last.ID, Reply: reply})
}

func TestThreeOrdersOfEventsGiveTheSameFile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		short := rapid.Int64Range(1, determinismRows-1).Draw(t, "a replica's own stop")
		end := rapid.Int64Range(short+1, determinismRows).Draw(t, "committed end")

		// Straight to the end.
		straight := newReplicaRig(t, "straight", end)
		straight.consume()
		straight.answer(commit.Reply{Status: commit.Commit, Offset: end, BuildTimeSec: 126})

		// Stops short of it, and is told to catch up.
		behind := newReplicaRig(t, "behind", short)
		behind.consume()
		behind.answer(commit.Reply{Status: commit.CatchUp, Offset: end})
		behind.consume()
		behind.answer(commit.Reply{Status: commit.Commit, Offset: end, BuildTimeSec: 126})

		// Seals short of it as the committer, loses that round, and is told to go on.
		lost := newReplicaRig(t, "lost", short)
		lost.consume()
		lost.answer(commit.Reply{Status: commit.Commit, Offset: short, BuildTimeSec: 126})
		lost.answer(commit.Reply{Status: commit.Hold}) // to its commitStart
		lost.now += time.Minute
		lost.step(commit.Tick{})
		lost.answer(commit.Reply{Status: commit.CatchUp, Offset: end})
		lost.consume()
		lost.answer(commit.Reply{Status: commit.Commit, Offset: end, BuildTimeSec: 126})

		want := straight.sealed[end]
		if want == nil {
			t.Fatalf("the straight replica sealed nothing at %d", end)
		}
		for _, r := range []*replicaRig{behind, lost} {
			if !bytes.Equal(r.sealed[end], want) {
				t.Fatalf("%s sealed %d bytes at %d, straight %d, and they differ", r.name, len(r.sealed[end]), end, len(want))
			}
		}
		if lost.sealed[short] == nil || bytes.Equal(lost.sealed[short], want) {
			t.Fatalf("the lost round left no file of its own at %d", short)
		}
	})
}
