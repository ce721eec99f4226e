package metatest

import (
	"fmt"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

// Log is a metadata log in memory, with its leader: each accepted change
// becomes a batch and is applied at once.
type Log struct {
	Image   *meta.Image
	Batches []*meta.Batch
	// Now is the leader's clock, in milliseconds; Do advances it by a second.
	Now  int64
	term uuid.UUID
}

// startTime is where the clock of a Log starts, in milliseconds.
const startTime = 1_793_500_000_000

// NewLog founds a cluster with a leader of epoch 1.
func NewLog(tb rapid.TB) *Log {
	tb.Helper()
	l := &Log{Image: meta.Empty(), Now: startTime}
	l.open(tb, 1, meta.NewCluster(ID("cluster")))
	return l
}

// ID returns the identifier that stands for the name, the same each time.
func ID(name string) uuid.UUID { return uuid.NewSHA1(uuid.NameSpaceOID, []byte(name)) }

// TakeOver makes another leader open the next epoch.
func (l *Log) TakeOver(tb rapid.TB) {
	tb.Helper()
	l.open(tb, l.Image.Epoch()+1)
}

// open appends the first batch of the epoch: what comes before, and the leader.
func (l *Log) open(tb rapid.TB, epoch int64, before ...meta.Func) {
	tb.Helper()
	l.term = ID(fmt.Sprintf("term %d", epoch))
	var changes []meta.Change
	for _, f := range before {
		changes = append(changes, l.change(tb, f))
	}
	changes = append(changes, l.change(tb, meta.NewLeader(meta.Leader{
		Epoch: epoch, Term: l.term, Controller: "controller-1", URL: "http://127.0.0.1:7070",
	})))
	l.append(tb, epoch, l.Image.Merge(changes...))
}

// Do makes the change and fails the test if it is refused.
func (l *Log) Do(tb rapid.TB, f meta.Func) meta.Change {
	tb.Helper()
	c := l.change(tb, f)
	if !c.Empty() {
		l.append(tb, l.Image.Epoch(), c)
	}
	return c
}

// Try makes the change and reports whether it was accepted.
func (l *Log) Try(tb rapid.TB, f meta.Func) error {
	tb.Helper()
	l.Now += 1000
	c, err := f(l.Image, l.Now)
	if err == nil && !c.Empty() {
		l.append(tb, l.Image.Epoch(), c)
	}
	return err
}

func (l *Log) change(tb rapid.TB, f meta.Func) meta.Change {
	tb.Helper()
	l.Now += 1000
	c, err := f(l.Image, l.Now)
	if err != nil {
		tb.Fatalf("refused: %v", err)
	}
	return c
}

// append applies the change by way of its encoding, as a follower sees it.
func (l *Log) append(tb rapid.TB, epoch int64, c meta.Change) {
	tb.Helper()
	data, err := meta.EncodeBatch(&meta.Batch{
		Offset: l.Image.Next(), Epoch: epoch, Term: l.term,
		Time:    meta.NextTime(l.Image.LastTime(), l.Now),
		Upserts: c.Upserts, Removals: c.Removals, SnapshotHere: c.SnapshotHere,
	})
	if err != nil {
		tb.Fatalf("encode: %v", err)
	}
	b, err := meta.DecodeBatch(data)
	if err != nil {
		tb.Fatalf("decode: %v", err)
	}
	next, err := l.Image.Apply(b)
	if err != nil {
		tb.Fatalf("apply: %v", err)
	}
	l.Image, l.Batches = next, append(l.Batches, b)
}

// Config returns a valid configuration of a table of that name: raw rows,
// replication 2, no deep store.
func Config(name string) *meta.Config {
	c := meta.DefaultConfig()
	c.Name, c.Stream.Path, c.Replication = name, name, 2
	return c
}

// AddNode registers node id in zone with a store and boot of its own, and
// returns its incarnation.
func (l *Log) AddNode(tb rapid.TB, id, zone string) int64 {
	tb.Helper()
	var incarnation int64
	l.Do(tb, meta.RegisterNode(meta.Registration{
		ID: id, URL: "http://" + id, Zone: zone, StoreID: ID("store of " + id), BootID: ID("boot of " + id),
	}, &incarnation))
	return incarnation
}

// AddTable creates the table with that many partitions, and activates it.
func (l *Log) AddTable(tb rapid.TB, cfg *meta.Config, partitions int) uuid.UUID {
	tb.Helper()
	return l.AddTableAs(tb, ID("table "+cfg.Name), cfg, partitions)
}

// AddTableAs is AddTable under an id of the caller's.
func (l *Log) AddTableAs(tb rapid.TB, id uuid.UUID, cfg *meta.Config, partitions int) uuid.UUID {
	tb.Helper()
	l.Do(tb, meta.CreateTable(cfg, id))
	var inits []meta.PartitionInit
	var numbers []int32
	for p := range int32(partitions) {
		inits = append(inits, meta.PartitionInit{Partition: p, StreamEpoch: "0"})
		numbers = append(numbers, p)
	}
	l.Do(tb, meta.AddPartitions(id, inits))
	l.Do(tb, meta.ActivateTable(id, numbers))
	return id
}

// Commit returns what the first replica of the partition's IN_PROGRESS segment
// would send to commit it with that many rows, one for each offset.
func (l *Log) Commit(tb rapid.TB, k meta.PartitionKey, rows int64) meta.Commit {
	tb.Helper()
	s := l.Image.InProgress(k)
	if s == nil || len(s.Replicas) == 0 {
		tb.Fatalf("partition %s has no segment IN_PROGRESS, or nobody consumes it", k)
	}
	n := l.Image.Node(s.Replicas[0])
	return meta.Commit{
		Key: s.SegmentKey(), Instance: n.ID, Incarnation: n.Incarnation, StoreID: n.StoreID,
		StreamEpoch: s.StreamEpoch,
		Info: segment.Info{
			Digest: DigestOf(s.Name), SHA256: segment.SHA256(DigestOf("sha256 " + s.Name)),
			Start: s.Start, End: s.Start + rows, Rows: rows, SizeBytes: 100 * rows,
			MinTimestamp: l.Now, MaxTimestamp: l.Now, LastLeaderEpoch: segment.NoLeaderEpoch,
		},
	}
}

// DigestOf returns the digest that stands for the text, the same each time.
func DigestOf(text string) (d segment.Digest) {
	first, second := ID(text), ID(text+" again")
	copy(d[:], first[:])
	copy(d[len(first):], second[:])
	return d
}
