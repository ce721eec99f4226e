package e2e

import (
	"context"
	"fmt"
	"math/rand"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/commit/commithttp"
	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/segment"
)

// standins are nodes without rows: they register, beat, follow the log and end what
// they are asked to end, by the protocol's messages. Ten thousand partitions are
// nothing to them, so that a test can be about the controllers and the metadata.
type standins struct {
	t           *testing.T
	control     *api.Client
	protocol    *commithttp.Client
	follower    *metalog.Follower
	incarnation map[string]int64

	mu   sync.Mutex
	seen func(*meta.Image) // told of each image, nil: nobody
}

// standinRegistration is how a stand-in introduces itself.
func standinRegistration(i int) meta.Registration {
	id := fmt.Sprintf("stand-in-%d", i+1)
	return meta.Registration{
		ID: id, URL: fmt.Sprintf("http://127.0.0.1:%d", i+1), Zone: "zone",
		StoreID: metatest.ID("store of " + id), BootID: metatest.ID("boot of " + id),
	}
}

// startStandins has n of them live until the test ends.
func startStandins(t *testing.T, n int, controllers []string) *standins {
	t.Helper()
	h := &httpx.Client{Timeout: 5 * time.Second}
	t.Cleanup(h.Close)
	s := &standins{
		t: t, control: api.NewClient(h, controllers...), protocol: commithttp.NewClient(controllers, ""),
		incarnation: map[string]int64{},
	}
	t.Cleanup(s.protocol.Close)
	fs, err := vfs.OS(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	feed := &httpx.Client{}
	t.Cleanup(feed.Close)
	s.follower, err = metalog.OpenFollower(metalog.FollowerConfig{
		FS: fs, Dir: "cache", Client: feed, Logger: zerolog.Nop(), Rand: rand.New(rand.NewSource(1)),
		Find: func(ctx context.Context) (metalog.LeaderRef, error) {
			var v api.LeaderView
			err := s.control.Get(ctx, "/leader", &v)
			return metalog.LeaderRef{URL: v.Leader, Epoch: v.Epoch}, err
		},
		Deliver: func(im *meta.Image, _ []meta.Key) {
			s.mu.Lock()
			seen := s.seen
			s.mu.Unlock()
			if seen != nil {
				seen(im)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		r := standinRegistration(i)
		var out api.Registered
		if err := s.control.Post(t.Context(), api.PathRegister, api.Register{
			Node: r.ID, URL: r.URL, Zone: r.Zone, StoreID: r.StoreID, BootID: r.BootID,
		}, &out); err != nil {
			t.Fatal(err)
		}
		s.incarnation[r.ID] = out.Incarnation
	}
	ctx, stop := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() {
		if err := s.follower.Run(ctx); err != nil && ctx.Err() == nil {
			t.Errorf("the stand-ins follow no more: %v", err)
		}
	})
	for id, incarnation := range s.incarnation {
		work.Go(func() { s.beat(ctx, id, incarnation) })
	}
	work.Go(func() { s.work(ctx) })
	t.Cleanup(func() {
		stop()
		work.Wait()
		if err := s.follower.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// watch has fn told of each image from now on, by the goroutine that follows.
func (s *standins) watch(fn func(*meta.Image)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = fn
}

// beat says that a stand-in lives; nobody to say it to is no matter.
func (s *standins) beat(ctx context.Context, id string, incarnation int64) {
	for every(ctx, time.Second) {
		_ = s.control.Post(ctx, api.PathHeartbeat, api.Heartbeat{
			Node: id, Incarnation: incarnation, AppliedOffset: s.follower.Image().Next(), WallClock: time.Now().UnixMilli(),
		}, nil)
	}
}

// work reports, again and again, what the image asks to end: at its start, for there
// are no rows.
func (s *standins) work(ctx context.Context) {
	for every(ctx, 100*time.Millisecond) {
		im := s.follower.Image()
		var wanted []commit.Message
		for id := range s.incarnation {
			for seg := range im.SegmentsConsuming(id) {
				if seg.EndRequested != nil {
					m := s.message(commit.SegmentConsumed, seg, id)
					m.Reason = commit.ForceCommit
					wanted = append(wanted, m)
				}
			}
		}
		var senders sync.WaitGroup
		for i := range 32 {
			senders.Go(func() {
				for n := i; n < len(wanted) && ctx.Err() == nil; n += 32 {
					_, _ = s.protocol.Send(ctx, wanted[n]) // said again if it is still asked for
				}
			})
		}
		senders.Wait()
	}
}

// every waits for d, and reports whether to go on.
func every(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func (s *standins) message(kind commit.Kind, seg *meta.Segment, instance string) commit.Message {
	return commit.Message{
		Kind: kind, Table: seg.Table, Partition: seg.Partition, Seq: seg.Seq, Segment: seg.Name,
		Instance: instance, Incarnation: s.incarnation[instance], StreamEpoch: seg.StreamEpoch, Offset: seg.Start,
	}
}

// commit has a replica commit what a partition consumes, as if it had rows. It says
// each message until the leader, whoever that is by then, gives the answer.
func (s *standins) commit(k meta.PartitionKey, rows int64) {
	s.t.Helper()
	seg := s.follower.Image().InProgress(k)
	if seg == nil {
		s.t.Fatalf("partition %s consumes nothing", k)
	}
	instance := seg.Replicas[0]
	m := s.message(commit.SegmentConsumed, seg, instance)
	m.Reason, m.Rows, m.Bytes, m.Offset = commit.RowLimit, rows, 100*rows, seg.Start+rows
	m.Digest, m.SHA256 = metatest.DigestOf(seg.Name), segment.SHA256(metatest.DigestOf("sha256 "+seg.Name))
	m.SizeBytes, m.MinTimestamp, m.MaxTimestamp = 100*rows, segment.NoTimestamp, segment.NoTimestamp
	m.StoreID = s.follower.Image().Node(instance).StoreID
	said := ""
	for deadline := time.Now().Add(awaitMax); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		r, err := s.protocol.Send(s.t.Context(), m)
		said = asJSON(r, err)
		switch r.Status { // a successor knows nothing of the round: from the beginning
		case commit.Hold:
			m.Kind = commit.SegmentConsumed
		case commit.Commit:
			m.Kind = commit.SegmentCommitStart
		case commit.CommitContinue:
			m.Kind = commit.SegmentCommitEnd
		case commit.CommitSuccess, commit.Keep:
			return
		}
	}
	s.t.Fatalf("%s is not committed: %s", seg.Name, said)
}

// seedMetadata writes, as a leader of its own and before there are controllers, a table
// of that many partitions with so many committed segments, all of a stand-in.
func seedMetadata(l *league, cluster uuid.UUID, name string, partitions, segments, nodes int) {
	l.t.Helper()
	conn := l.dial(l.t)
	defer conn.Close()
	w := leadByHand(l.t, conn, cluster)
	defer w.stop()
	for i := range nodes {
		w.submit(meta.RegisterNode(standinRegistration(i), new(int64)))
	}
	id := metatest.ID("table " + name)
	cfg := metatest.Config(name)
	w.submit(meta.CreateTable(cfg, id))
	var inits []meta.PartitionInit
	var numbers []int32
	for p := range int32(partitions) {
		inits, numbers = append(inits, meta.PartitionInit{Partition: p, StreamEpoch: "0"}), append(numbers, p)
	}
	w.submit(meta.AddPartitions(id, inits))
	w.submit(meta.ActivateTable(id, numbers))
	var work sync.WaitGroup
	for p := range partitions {
		work.Go(func() {
			k := meta.PartitionKey{Table: id, Partition: int32(p)}
			for range (segments - p + partitions - 1) / partitions {
				w.submit(func(im *meta.Image, now int64) (meta.Change, error) {
					log := metatest.Log{Image: im, Now: now}
					return meta.CommitSegment(log.Commit(l.t, k, 1000))(im, now)
				})
			}
		})
	}
	work.Wait()
}
