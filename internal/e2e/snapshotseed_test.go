package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
	"github.com/shoalstore/shoal/segment"
)

// The metadata of TestSnapshotScale: committed segments with a copy on each of three
// nodes and one in the deep store, in twelve partitions of three tables.
const (
	seedTables     = 3
	seedPartitions = 4 // of a table
	seedRows       = 1_000_000
	seedStore      = "s3://backups/shoal"
	// seedBatch is how many segments are submitted at once: nearly a whole batch.
	seedBatch = 700
)

// seeder makes segments through a leader's writer. The first of each table goes the
// whole way, by the functions of package meta; what it is in the end is the model of the
// others, which are written as they are in the end, many in a batch: a log of all their
// steps would only take longer to make.
type seeder struct {
	t      *testing.T
	writer *byHand
	models map[uuid.UUID]*meta.Segment // by table
}

func (s *seeder) registration(i int) meta.Registration {
	r := standinRegistration(i)
	r.ID, r.Zone = fmt.Sprintf("node-%d", i+1), string(rune('a'+i))
	return r
}

// seed makes the tables, and so many segments.
func (s *seeder) seed(segments int) {
	s.t.Helper()
	for i := range standinCount {
		s.writer.submit(meta.RegisterNode(s.registration(i), new(int64)))
	}
	s.models = map[uuid.UUID]*meta.Segment{}
	for i := range seedTables {
		s.makeTable([]string{"clicks", "flights", "orders"}[i])
	}
	partitions := s.partitions()
	var work sync.WaitGroup
	for i, k := range partitions {
		left := (segments - i + len(partitions) - 1) / len(partitions)
		if s.writer.Image().LastSegment(k).Seq > 0 {
			left-- // the model
		}
		work.Go(func() {
			for left > 0 {
				n := min(left, seedBatch)
				s.writer.submit(s.commitMany(k, n))
				left -= n
			}
		})
	}
	work.Wait()
}

// partitions are all that there are.
func (s *seeder) partitions() (keys []meta.PartitionKey) {
	im := s.writer.Image()
	for t := range im.Tables() {
		for p := range im.Partitions(t.ID) {
			keys = append(keys, p.PartitionKey())
		}
	}
	return keys
}

// makeTable makes a table, and its first segment, step by step.
func (s *seeder) makeTable(name string) {
	s.t.Helper()
	id := metatest.ID("table " + name)
	cfg := metatest.Config(name)
	cfg.Replication, cfg.DeepStore = standinCount, &meta.DeepStoreConfig{URI: seedStore}
	s.writer.submit(meta.CreateTable(cfg, id))
	var inits []meta.PartitionInit
	var numbers []int32
	for p := range int32(seedPartitions) {
		inits, numbers = append(inits, meta.PartitionInit{Partition: p, StreamEpoch: "0"}), append(numbers, p)
	}
	s.writer.submit(meta.AddPartitions(id, inits))
	s.writer.submit(meta.ActivateTable(id, numbers))
	first := meta.PartitionKey{Table: id}
	s.writer.submit(s.commitOne(first))
	k := first.Segment(0)
	done := s.writer.Image().Segment(k)
	for i := range standinCount {
		n := s.writer.Image().Node(s.registration(i).ID)
		if done.NodeLocation(n.ID) != nil {
			continue // the committer
		}
		s.writer.submit(meta.Locations(&meta.LocationReport{
			Node: n.ID, Incarnation: n.Incarnation, StoreID: n.StoreID, Sequence: n.LocationsSeq + 1,
			Add: []meta.CopyRef{{Table: id, Digest: done.Digest}},
		}, nil, new(meta.LocationVerdicts)))
	}
	for _, verified := range []bool{false, true} {
		s.writer.submit(meta.SetDeepStoreLocation(k, done.Digest, s.uri(done), verified))
	}
	done = s.writer.Image().Segment(k)
	if c := meta.CountedCopies(s.writer.Image(), done); c.Total() != standinCount+1 {
		s.t.Fatalf("the first segment of %s has locations %+v", name, done.Locations)
	}
	s.models[id] = done
}

// commitOne commits what a partition consumes.
func (s *seeder) commitOne(k meta.PartitionKey) meta.Func {
	return func(im *meta.Image, now int64) (meta.Change, error) {
		log := metatest.Log{Image: im, Now: now}
		c := log.Commit(s.t, k, seedRows)
		c.Info.RowsDigest = segment.RowsDigest(c.Info.Digest[:16])
		c.FirstConsumed, c.WinnerDecided, c.CommitStarted = now, now, now
		return meta.CommitSegment(c)(im, now)
	}
}

// commitMany has a partition come to n segments more, each as the model is.
func (s *seeder) commitMany(k meta.PartitionKey, n int) meta.Func {
	return func(im *meta.Image, now int64) (meta.Change, error) {
		table := im.Table(k.Table).Name
		p, next := im.Partition(k.Table, k.Partition).Clone(), im.InProgress(k).Clone()
		var c meta.Change
		for range n {
			done := s.models[k.Table].Clone()
			done.Partition, done.Seq, done.Name = next.Partition, next.Seq, next.Name
			done.Start, done.End = next.Start, next.Start+seedRows
			done.Digest, done.SHA256 = metatest.DigestOf(done.Name), segment.SHA256(metatest.DigestOf("sha256 "+done.Name))
			done.RowsDigest = segment.RowsDigest(done.Digest[:16])
			uri := s.uri(done)
			done.Locations[len(done.Locations)-1].URI = uri
			at := strings.Index(uri, done.Name)
			done.Name = uri[at : at+len(done.Name)] // as meta.SetDeepStoreLocation leaves it
			c.Upserts = append(c.Upserts, done)
			next = next.Clone()
			next.Seq++
			next.Name = segment.NewName(table, k.Partition, next.Seq, time.UnixMilli(now)).String()
			next.Start = done.End
		}
		p.NextSeq, p.NextOffset = next.Seq+1, next.Start
		c.Upserts = append(c.Upserts, next, p)
		return c, nil
	}
}

// uri is where a segment is in the deep store.
func (s *seeder) uri(seg *meta.Segment) string {
	key, err := deepstore.DataKey(seg.Name, seg.Digest)
	if err != nil {
		s.t.Error(err)
	}
	return deepstore.URI(seedStore, key)
}
