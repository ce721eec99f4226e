package sim

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/segment"
)

// checker knows the truth: the one history of the metadata, what every disk really
// holds, what was ever said. It compares what happens with the invariants of DESIGN
// §9, at the moment it happens: a violation is found by the event that makes it.
type checker struct {
	c       *cluster
	image   *meta.Image // of everything that is durable
	history []batchID   // by offset
	batches []*meta.Batch
	images  []*meta.Image // every imagesEvery-th, from the empty one on
	// snapshots are what those have to be that there were.
	snapshots map[metalog.SnapshotID]snapshotTruth
	// claims are what nodes have said of their copies, with the incarnation under
	// which they said it: a location has to go back to one.
	claims  map[claim]bool
	commits map[commitClaim]bool
	configs map[configVersion]*meta.Config // every one there ever was
	shown   map[string]int64               // next offset of each node's image, unless its disk was touched
	// newest is the next offset of the newest image that a reader was ever shown.
	newest int64
	// refused are the writes that their function refused, by what they were.
	refused map[string]bool
	// digests are those of every segment that was ever committed; expired are the
	// segments whose tombstone's grace has ended.
	digests map[meta.SegmentKey]segment.Digest
	expired map[meta.SegmentKey]bool
	rounds  map[roundKey]*round // what each leader was told and said of a segment
	epochs  map[int64]string    // who has claimed each
	// withdrawn and releases are what nodes have said of copies that go.
	withdrawn, releases map[letGo]bool
	// mayGo are the tables that somebody wants deleted; late are the objects that were
	// uploaded when their segment had gone.
	mayGo map[uuid.UUID]bool
	late  map[string]bool
	// behind are the segments, by name, of which an object was ever deleted behind our back.
	behind map[string]bool
}

type configVersion struct {
	table   uuid.UUID
	version int
}

type batchID struct {
	epoch int64
	term  uuid.UUID
}

type claim struct {
	store       uuid.UUID
	incarnation int64
	segment     meta.SegmentKey
	digest      segment.Digest
}

type commitClaim struct {
	instance    string
	incarnation int64
	segment     meta.SegmentKey
	digest      segment.Digest
	end         int64
}

func newChecker(c *cluster) *checker {
	return &checker{
		c: c, image: meta.Empty(), claims: map[claim]bool{}, commits: map[commitClaim]bool{},
		configs: map[configVersion]*meta.Config{}, shown: map[string]int64{}, refused: map[string]bool{}, digests: map[meta.SegmentKey]segment.Digest{}, expired: map[meta.SegmentKey]bool{},
		rounds: map[roundKey]*round{}, epochs: map[int64]string{},
		withdrawn: map[letGo]bool{}, releases: map[letGo]bool{},
		mayGo: map[uuid.UUID]bool{}, late: map[string]bool{}, behind: map[string]bool{},
		images: []*meta.Image{meta.Empty()}, snapshots: map[metalog.SnapshotID]snapshotTruth{},
	}
}

func (k *checker) fail(invariant, format string, args ...any) { k.c.w.fail(invariant, format, args...) }

// apply takes a batch at the moment at which it is durable, and part of history.
func (k *checker) apply(b *meta.Batch) {
	if b.Offset != k.image.Next() || b.Epoch < k.image.Epoch() {
		k.fail("I4", "a batch of epoch %d at offset %d became durable; the history is at epoch %d, offset %d", b.Epoch, b.Offset, k.image.Epoch(), k.image.Next())
		return
	}
	if n := len(k.history); n > 0 && k.history[n-1].epoch == b.Epoch && k.history[n-1].term != b.Term {
		k.fail("I4", "two leaders write under epoch %d", b.Epoch)
		return
	}
	before := k.image
	im, err := before.Apply(b)
	if err != nil {
		k.fail("I1", "batch %d does not apply: %v", b.Offset, err)
		return
	}
	k.image = im
	k.history = append(k.history, batchID{b.Epoch, b.Term})
	k.batches = append(k.batches, b)
	if im.Next()%imagesEvery == 0 {
		k.images = append(k.images, im)
	}
	for key := range b.Keys() {
		k.changed(before, key)
	}
	// The whole image is looked at now and then: what changes is looked at when it
	// does, by Apply and by changed.
	if len(k.history)%8 == 0 {
		k.checkImage()
	}
}

func (k *checker) checkImage() {
	if vs := meta.CheckInvariants(k.image); len(vs) > 0 {
		k.fail("I1", "%v", vs)
	}
}

// changed looks at one record of a batch.
func (k *checker) changed(before *meta.Image, key meta.Key) {
	switch key.Kind {
	case meta.KindSegment:
		sk := meta.SegmentKey{Table: key.Table, Partition: key.Partition, Seq: key.Num}
		if s := k.image.Segment(sk); s != nil {
			k.c.names[sk] = s.Name
		}
		k.segmentChanged(before, before.Segment(sk), k.image.Segment(sk))
	case meta.KindTable:
		k.tableChanged(before, key.Name)
	case meta.KindPartition:
		k.partitionChanged(before, meta.PartitionKey{Table: key.Table, Partition: key.Partition})
	case meta.KindTombstone:
		k.tombstoneChanged(meta.SegmentKey{Table: key.Table, Partition: key.Partition, Seq: key.Num})
	case meta.KindTableConfig:
		for v := range k.image.TableConfigs(key.Table) {
			k.configs[configVersion{key.Table, v.Version}] = &v.Config
		}
	case meta.KindNode:
		was, is := before.Node(key.Name), k.image.Node(key.Name)
		if was != nil && is != nil && is.Incarnation < was.Incarnation {
			k.fail("I4", "the incarnation of %s went back from %d to %d", key.Name, was.Incarnation, is.Incarnation)
		}
	}
}

func (k *checker) segmentChanged(before *meta.Image, was, is *meta.Segment) {
	switch {
	case is == nil:
		if was != nil && was.Status == meta.SegmentDone {
			k.retired(before, was)
		}
		return
	case was == nil && k.isDeleting(before, is.Table):
		k.fail("I1", "%s is opened, and its table is being deleted", is.Name)
		return
	case is.Status != meta.SegmentDone:
		if was != nil && was.Status == meta.SegmentDone {
			k.fail("I2", "%s was DONE and is %s", is.Name, is.Status)
		}
		return
	case was != nil && was.Status == meta.SegmentDone:
		if was.Generation == is.Generation && (was.End != is.End || was.Digest != is.Digest) {
			k.fail("I2", "%s was committed twice: [%d, %d) %s, then [%d, %d) %s", is.Name, was.Start, was.End, was.Digest.Short(), is.Start, is.End, is.Digest.Short())
		}
	default:
		k.c.w.count.outcomes["segment committed"]++
		k.c.w.trace.notef(k.c.w.now, "%s [%d, %d) %s is committed by %s", is.Name, is.Start, is.End, is.Digest.Short(), is.Committer)
		k.committedNow(before, is)
	}
	k.checkLocations(before, was, is)
	k.checkGone(before, was, is)
}

// committedNow: the file that is committed holds exactly the rows of the stream in
// its range, built by the configuration that its record names, and its committer was
// who it says.
func (k *checker) committedNow(before *meta.Image, s *meta.Segment) {
	k.digests[s.SegmentKey()] = s.Digest
	if !k.rightContent(s) {
		k.fail("I2", "%s [%d, %d) is committed with a file that does not hold exactly those rows:\n%s", s.Name, s.Start, s.End, k.c.contents[s.Digest])
	}
	n := before.Node(s.Committer)
	if n == nil || !k.commits[commitClaim{s.Committer, n.Incarnation, s.SegmentKey(), s.Digest, s.End}] {
		k.fail("I4", "%s is committed for %s, whose current incarnation did not ask for it", s.Name, s.Committer)
	}
}

func (k *checker) rightContent(s *meta.Segment) bool {
	cfg := k.configs[configVersion{s.Table, s.ConfigVersion}]
	data := k.c.contents[s.Digest]
	if cfg == nil || data == nil {
		return false
	}
	rows := k.c.topic.partitions[s.Partition].between(s.Start, s.End)
	for class := range 2 {
		want, _ := k.c.content(s.SegmentKey(), class, cfg, s.Start, s.End, rows)
		if bytes.Equal(want, data) {
			return int64(len(rows)) == s.Rows
		}
	}
	return false
}

// checkLocations: each new location goes back to a node that said so under its
// current incarnation, at a moment at which the bytes were durable (claimed).
func (k *checker) checkLocations(before *meta.Image, was, is *meta.Segment) {
	for _, l := range is.Locations {
		switch {
		case l.URI != "":
			if l.Verified && !k.behind[is.Name] && !k.c.objects.has(is.Name, is.Digest) {
				k.fail("I3", "%s is listed in the deep store, and is not there", is.Name)
			}
			continue
		case was != nil && slices.ContainsFunc(was.Locations, func(o meta.Location) bool { return o.Node == l.Node && o.StoreID == l.StoreID }):
			continue
		}
		n := before.Node(l.Node)
		if n == nil || n.StoreID != l.StoreID || !k.claims[claim{l.StoreID, n.Incarnation, is.SegmentKey(), is.Digest}] {
			k.fail("I3", "%s is listed at %s, whose current incarnation and store did not report it", is.Name, l.Node)
		}
		k.listedNow(is, l)
	}
}

// claimed checks what a node says of its own copy: it has to be durable by then.
func (k *checker) claimed(n *simNode, key meta.SegmentKey, d segment.Digest, incarnation int64, store uuid.UUID) {
	k.claims[claim{store, incarnation, key, d}] = true
	if k.expired[key] {
		return // it may go, and a report that is on its way says nothing any more
	}
	if n.store == nil || n.store.StoreID() != store {
		k.fail("I3", "%s reports a copy in store %s, and has another", n.name, store)
		return
	}
	if !n.holdsDurably(key, d) && !n.rotted[d] {
		k.fail("I3", "%s reports a copy of %s (%s) that a power cut would take", n.name, key, d.Short())
	}
}

// reported checks a report of locations as it leaves the node.
func (k *checker) reported(n *simNode, r *meta.LocationReport) {
	k.givenUp(r)
	for _, refs := range [][]meta.CopyRef{r.Add, r.Confirm} {
		for _, ref := range refs {
			k.claimed(n, ref.SegmentKey(), ref.Digest, r.Incarnation, r.StoreID)
		}
	}
}

// sent checks a message of the protocol as it leaves the node.
func (k *checker) sent(n *simNode, m *commit.Message) {
	if m.Kind != commit.SegmentCommitEnd {
		return
	}
	key := meta.SegmentKey{Table: m.Table, Partition: m.Partition, Seq: m.Seq}
	k.commits[commitClaim{m.Instance, m.Incarnation, key, m.Digest, m.Offset}] = true
	k.claimed(n, key, m.Digest, m.Incarnation, m.StoreID)
}

// answered checks what the leader says: that a segment is committed, only of one
// that is.
func (k *checker) answered(n *simNode, m *commit.Message, r commit.Reply) {
	switch r.Status {
	case commit.Keep, commit.Discard, commit.CommitSuccess:
	default:
		return
	}
	if _, was := k.digests[meta.SegmentKey{Table: m.Table, Partition: m.Partition, Seq: m.Seq}]; !was {
		k.fail("I2", "%s is told %s of %s, which is not committed", n.name, r.Status, m.Segment)
	}
}

// committed checks what a leader takes for committed against history.
func (k *checker) committed(s *simController, b *meta.Batch) {
	if b.Offset >= int64(len(k.history)) || k.history[b.Offset] != (batchID{b.Epoch, b.Term}) {
		k.fail("I5", "%s takes batch %d of epoch %d for committed, which is not in the history", s.name, b.Offset, b.Epoch)
	}
}

// reopened compares a log that a controller found on its disk with history: what
// was durable is there. A batch that became durable without an acknowledgement
// becomes part of history now.
func (k *checker) reopened(s *simController, image *meta.Image) {
	if image.Next() < k.image.Next() {
		k.fail("I5", "%s has lost committed batches: its log ends at %d, %d were committed", s.name, image.Next(), k.image.Next())
		return
	}
	if image.Next() > k.image.Next() {
		k.c.w.count.outcomes["batch found that nobody was told of"]++
		for k.c.w.failure == nil && k.image.Next() < image.Next() {
			frames, err := s.files.log.Read(k.image.Next(), 1<<20)
			var entries []metalog.Entry
			if err == nil {
				entries, err = metalog.DecodeEntries(frames)
			}
			if err != nil {
				k.fail("I5", "%s cannot read its own log: %v", s.name, err)
				return
			}
			for _, e := range entries {
				k.apply(e.Batch)
			}
		}
	}
	k.same(s.name, image)
}

// same checks that an image is one of history.
func (k *checker) same(who string, im *meta.Image) {
	next := im.Next()
	switch {
	case next == 0:
	case next > int64(len(k.history)):
		k.fail("I5", "%s shows an image at offset %d, committed is up to %d", who, next, len(k.history))
	case k.history[next-1] != (batchID{im.Epoch(), im.LastTerm()}):
		k.fail("I5", "%s shows an image of another history at offset %d", who, next)
	}
}

// served checks an image at the moment at which a leader shows it to a reader.
func (k *checker) served(s *simController, im *meta.Image) {
	k.same(s.name, im)
	if z, ok := s.keeper.(*zooKeeperKeeper); ok && z.cutShort() {
		return
	}
	if im.Next() < k.newest {
		k.fail("I5", "%s shows a reader offset %d, after offset %d was shown", s.name, im.Next(), k.newest)
	}
	k.newest = max(k.newest, im.Next())
}

// delivered checks an image that a node acts on from now on.
func (k *checker) delivered(n *simNode, im *meta.Image) {
	k.same(n.name, im)
	if im.Next() < k.shown[n.name] {
		k.fail("I5", "%s went back from offset %d to %d", n.name, k.shown[n.name], im.Next())
	}
	k.shown[n.name] = im.Next()
}

// opened checks a store that was opened: what was durable before is there.
func (k *checker) opened(n *simNode) {
	for key, d := range n.durableBefore {
		if _, ok := n.store.Get(key.table, key.partition, key.name, d); !ok && !n.rotted[d] {
			k.fail("I3", "%s has lost its copy of %s at a start", n.name, key.name)
		}
	}
	n.durableBefore = nil
}

// removing checks a copy that a node is about to delete or set aside.
func (k *checker) removing(n *simNode, h segment.Held, why string) {
	if h.State != segment.StateSealed {
		return
	}
	s := k.image.Segment(heldKey(h))
	switch {
	case s == nil:
		k.removingRetired(n, h, why)
	case s.Status != meta.SegmentDone:
		k.fail("I3", "%s removes a sealed file of %s, which is %s: %s", n.name, s.Name, s.Status, why)
	case s.Digest == h.Digest:
		k.fail("I3", "%s removes its committed copy of %s without a release: %s", n.name, s.Name, why)
	case k.goodCopies(s, nil) == 0:
		k.fail("I3", "%s removes a build of %s that differs, while nobody has the committed bytes: %s", n.name, s.Name, why)
	}
}

// released checks a grant: somebody else really has the bytes.
func (k *checker) released(n *simNode, s *meta.Segment) {
	if k.goodCopies(s, n) == 0 {
		k.fail("I3", "%s may delete its copy of %s, and nobody else has a good one", n.name, s.Name)
	}
}

// freed checks that a run gives up its rows only when they are not needed any more
// (PROTOCOL §4).
func (k *checker) freed(n *simNode, key meta.SegmentKey) {
	s := k.image.Segment(key)
	if s == nil || s.Status != meta.SegmentDone || !slices.Contains(s.Replicas, n.name) || n.disk.off || n.rotted[s.Digest] {
		return
	}
	if _, ok := n.store.Get(s.Table, s.Partition, s.Name, s.Digest); !ok {
		k.fail("I3", "%s frees the rows of %s before it has a copy of the committed file", n.name, s.Name)
	}
}

// goodCopies counts the places where the committed bytes really are, durable and
// undamaged: disks of nodes that can come back, and the deep store.
func (k *checker) goodCopies(s *meta.Segment, except *simNode) (count int) {
	for _, n := range k.c.nodes {
		if n != except && !n.vanished && n.holdsDurably(s.SegmentKey(), s.Digest) {
			count++
		}
	}
	if k.c.objects.has(s.Name, s.Digest) {
		count++
	}
	return count
}

func (id batchID) String() string { return fmt.Sprintf("%d/%s", id.epoch, id.term) }
