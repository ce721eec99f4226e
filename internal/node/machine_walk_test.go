package node

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
	"github.com/shoalstore/shoal/segment"
)

// world is a rig in which everything happens at random: the log moves on and is
// seen late, effects end in any order, well or badly, copies rot, leaders and
// incarnations change. It checks each action against the rules as DESIGN §4.5 and
// §4.4 have them, restated on the world's own state.
type world struct {
	*rig
	t        *rapid.T
	image    *meta.Image // what the machine has seen
	reg      Registered
	store    map[meta.SegmentKey][]segment.Held
	claimed  map[meta.SegmentKey]bool
	flying   []Action
	sequence int64
	trace    []traced
	builds   int
}

type traced struct {
	now     time.Duration
	event   Event
	actions []Action
}

func newWorld(t *rapid.T) *world {
	w := &world{t: t, rig: newRig(t, withDeepStore), store: map[meta.SegmentKey][]segment.Held{}, claimed: map[meta.SegmentKey]bool{}}
	w.m, w.image, w.shown = w.machine(), meta.Empty(), 0
	return w
}

// happens hands in an event, checks what comes of it, and lets it fly.
func (w *world) happens(ev Event) {
	actions := w.m.Step(w.now, ev)
	w.trace = append(w.trace, traced{w.now, ev, actions})
	for _, a := range actions {
		w.check(a)
		switch a.(type) {
		case ListDownloads:
			defer w.happens(w.begun())
		case DropDownload, UploadTold:
		default:
			w.flying = append(w.flying, a)
		}
	}
	count := map[string]int{}
	for _, a := range w.flying {
		count[fmt.Sprintf("%T", a)]++
	}
	for kind, most := range map[string]int{"node.Fetch": 4, "node.Rebuild": 1, "node.Upload": 4, "node.Report": 1} {
		if count[kind] > most {
			w.t.Fatalf("%d of %s under way", count[kind], kind)
		}
	}
}

func (w *world) caughtUp() bool {
	return w.reg.Incarnation > 0 && w.image.Next() >= w.reg.HighWatermark && w.image.Epoch() >= w.reg.Epoch
}

// good finds the committed copy among what the store has.
func (w *world) good(k meta.SegmentKey) bool {
	s := w.image.Segment(k)
	return s != nil && slices.ContainsFunc(w.store[k], func(h segment.Held) bool { return isCopy(h, s.Digest) })
}

func (w *world) check(a Action) {
	w.t.Helper()
	fail := func(why string) { w.t.Fatalf("%s: %s", describe([]Action{a}), why) }
	busyWith := func(k meta.SegmentKey) {
		for _, f := range w.flying {
			switch f := f.(type) {
			case Fetch:
				if f.Segment == k {
					fail("it is being fetched")
				}
			case Rebuild:
				if f.Segment == k {
					fail("it is being rebuilt")
				}
			}
		}
	}
	if _, told := a.(UploadTold); w.reg.Incarnation == 0 && !told {
		fail("the node is not registered")
	}
	switch a := a.(type) {
	case DropDownload:
		k, _ := heldKey(segment.Held{Table: a.Download.Table, Partition: a.Download.Partition, Name: a.Download.Name})
		s := w.image.Segment(k)
		busyWith(k)
		switch {
		case w.claimed[k] || !w.caughtUp():
			fail("it is claimed, or the image has not caught up")
		case s != nil && s.Status == meta.SegmentDone && a.Download.Short == s.Digest.Short() && slices.Contains(s.Replicas, "me") && !w.good(k):
			fail("it is wanted")
		}
	case Remove:
		k, _ := heldKey(a.Held)
		s, tomb := w.image.Segment(k), w.image.Tombstone(k)
		switch {
		case !slices.Contains(w.store[k], a.Held):
			fail("it is not held")
		case w.claimed[k]:
			fail("it is claimed")
		case !w.caughtUp():
			fail("the image has not caught up")
		case s == nil && (tomb == nil || !tomb.Expired):
			fail("no expired tombstone says so")
		case s != nil && (s.Status != meta.SegmentDone || isCopy(a.Held, s.Digest)):
			fail("it is the committed copy, or its segment is not committed")
		case s != nil && !w.twice(s):
			fail("the committed bytes are not twice elsewhere or in the deep store")
		}
	case SetAside:
		k, _ := heldKey(a.Held)
		switch {
		case !slices.Contains(w.store[k], a.Held) || a.Held.State != segment.StateSealed:
			fail("it is not held, or aside already")
		case w.claimed[k] || !w.caughtUp():
			fail("it is claimed, or the image has not caught up")
		case w.image.Segment(k) != nil || w.image.Tombstone(k) != nil:
			fail("a record explains it")
		}
	case Fetch:
		s := w.image.Segment(a.Segment)
		busyWith(a.Segment)
		if s == nil || s.Status != meta.SegmentDone || !slices.Contains(s.Replicas, "me") || w.good(a.Segment) || w.claimed[a.Segment] || a.Digest != s.Digest {
			fail("it is not wanted, or held")
		}
	case Rebuild:
		busyWith(a.Segment)
		if s := w.image.Segment(a.Segment); s == nil || s.Status != meta.SegmentDone || w.good(a.Segment) || w.claimed[a.Segment] || a.End != s.End {
			fail("it is not wanted, or held")
		}
	case Upload:
		if s := w.image.Segment(a.Segment); !w.good(a.Segment) || s.DeepStoreVerified() {
			fail("it is not held, or verified already")
		}
	case Report:
		w.checkReport(&a.Report, fail)
	}
}

// twice restates how many copies have to be there before another file may go.
func (w *world) twice(s *meta.Segment) bool {
	counted := meta.CountedCopies(w.image, s)
	if len(counted.DeepStore) > 0 {
		return true
	}
	copies, elsewhere := 0, false
	for _, l := range counted.Nodes {
		if l.Node != "me" {
			copies, elsewhere = copies+1, true
		} else if w.good(s.SegmentKey()) {
			copies++
		}
	}
	return elsewhere && copies >= 2
}

func (w *world) checkReport(r *meta.LocationReport, fail func(string)) {
	if r.Sequence <= w.sequence || r.Incarnation != w.reg.Incarnation {
		fail("its sequence does not rise, or its incarnation is another")
	}
	w.sequence = r.Sequence
	said := map[meta.SegmentKey]bool{}
	for _, refs := range [][]meta.CopyRef{r.Add, r.Confirm, r.Withdraw} {
		for _, ref := range refs {
			if said[ref.SegmentKey()] {
				fail("a segment is in it twice")
			}
			said[ref.SegmentKey()] = true
		}
	}
	for _, refs := range [][]meta.CopyRef{r.Add, r.Confirm} {
		for _, ref := range refs {
			if s := w.image.Segment(ref.SegmentKey()); !w.good(ref.SegmentKey()) || s.Digest != ref.Digest {
				fail("it names a copy that is not held")
			}
		}
	}
	for _, ref := range r.Withdraw {
		if w.good(ref.SegmentKey()) {
			fail("it withdraws a copy that is held")
		}
	}
	if len(r.Release) > 0 {
		fail("nothing asks for a release yet")
	}
}

// stored changes what the store has of a segment and says so.
func (w *world) stored(k meta.SegmentKey, change func([]segment.Held) []segment.Held) {
	w.store[k] = change(slices.Clone(w.store[k]))
	w.happens(holds(k, w.store[k]...))
}

func (w *world) put(h segment.Held) {
	k, _ := heldKey(h)
	w.stored(k, func(held []segment.Held) []segment.Held {
		if slices.Contains(held, h) {
			return held
		}
		return append(held, h)
	})
}

// begun is a download of each committed segment, and one that nobody knows.
func (w *world) begun() DownloadsFound {
	var found DownloadsFound
	for s := range w.log.Image.TableSegments(w.table) {
		if s.Status == meta.SegmentDone {
			found.Downloads = append(found.Downloads, begunDownload(s.SegmentKey(), s.Digest))
		}
	}
	k := meta.SegmentKey{Table: w.table, Partition: 0, Seq: 1 << 20}
	found.Downloads = append(found.Downloads, begunDownload(k, segment.Digest{1}))
	return found
}

// ends ends an effect, well or badly.
func (w *world) ends(a Action, well bool) {
	w.flying = slices.DeleteFunc(w.flying, func(o Action) bool { return reflect.DeepEqual(o, a) })
	var err error
	if !well {
		err = errTest
	}
	switch a := a.(type) {
	case Fetch:
		s := w.log.Image.Segment(a.Segment)
		done := FetchDone{Segment: a.Segment, Err: err}
		switch {
		case s == nil:
			done.Err = errTest
		case len(meta.Sources(w.log.Image, s, meta.PeersFirst, "me")) == 0:
			done.Err, done.NoSource = errTest, true
		case well:
			w.put(copyOf(a.Segment, a.Digest, segment.StateSealed))
		}
		w.happens(done)
	case Rebuild:
		if s := w.log.Image.Segment(a.Segment); s != nil && well {
			w.put(good(s))
		} else if s != nil && rapid.Bool().Draw(w.t, "differs") {
			w.put(other(a.Segment, "rebuilt"))
		}
		w.happens(RebuildDone{Segment: a.Segment, Err: err})
	case Upload:
		w.happens(UploadDone{Segment: a.Segment, Digest: a.Digest, URI: "file:///deep/" + short(a.Segment), Err: err})
	case Remove:
		w.ends1(a.Held, well)
	case SetAside:
		w.ends1(a.Held, well)
	case Report:
		done := ReportDone{Sequence: a.Report.Sequence, Err: errTest}
		if well || rapid.Bool().Draw(w.t, "only the answer was lost") {
			answer := w.deliver(a.Report)
			for _, up := range a.Report.Uploaded {
				_ = w.log.Try(w.t, meta.SetDeepStoreLocation(up.SegmentKey(), up.Digest, up.URI, true))
			}
			if well {
				done = answer
			}
		}
		w.happens(done)
	}
}

func (w *world) ends1(h segment.Held, well bool) {
	k, _ := heldKey(h)
	done := RemoveDone{Held: h}
	if well {
		w.stored(k, func(held []segment.Held) []segment.Held {
			return slices.DeleteFunc(held, func(o segment.Held) bool { return o == h })
		})
	} else {
		done.Err = errTest
	}
	w.happens(done)
}

// see shows the machine the log up to a batch, or, all at once, whatever changed.
func (w *world) see(batches int, everything bool) {
	ev := ImageChanged{Touched: []meta.Key{}}
	im := w.image
	for _, b := range w.log.Batches[w.shown : w.shown+batches] {
		next, err := im.Apply(b)
		if err != nil {
			w.t.Fatal(err)
		}
		im = next
		ev.Touched = append(ev.Touched, keysOf(b)...)
	}
	if everything {
		ev.Touched = nil
	}
	w.shown += batches
	w.image, ev.Image = im, im
	w.happens(ev)
}

// meet has the leader know the node: of the log's epoch, or in a new incarnation.
func (w *world) meet() {
	reg := w.register()
	if reg.Incarnation != w.reg.Incarnation {
		w.sequence = 0
	}
	if reg.Epoch == w.reg.Epoch && reg.Incarnation == w.reg.Incarnation {
		reg.HighWatermark = w.reg.HighWatermark // the machine keeps the first, too
	}
	w.reg = reg
	w.happens(reg)
}

func (w *world) anyKey() meta.SegmentKey {
	return w.key(rapid.Int32Range(0, 1).Draw(w.t, "partition"), rapid.Int64Range(0, 5).Draw(w.t, "seq"))
}

func (w *world) step() {
	t := w.t
	node := func() string { return rapid.SampledFrom([]string{"b", "c", "d"}).Draw(t, "node") }
	switch what := rapid.IntRange(0, 15).Draw(t, "what"); what {
	case 0: // the log moves on
		p := rapid.Int32Range(0, 1).Draw(t, "partition")
		if s := w.log.Image.InProgress(meta.PartitionKey{Table: w.table, Partition: p}); s.Seq < 5 {
			by := rapid.SampledFrom([]string{"b", "c"}).Draw(t, "committer")
			if n := w.log.Image.Node(by); n != nil {
				w.commitBy(p, by)
			}
		}
	case 1: // another node has, or has lost, a copy
		if s := w.log.Image.Segment(w.anyKey()); s != nil && s.Status == meta.SegmentDone {
			n := w.log.Image.Node(node())
			r := meta.LocationReport{Node: n.ID, Incarnation: n.Incarnation, StoreID: n.StoreID, Sequence: n.LocationsSeq + 1}
			refs := []meta.CopyRef{copyRef(s.SegmentKey(), s.Digest)}
			if rapid.Bool().Draw(t, "has") {
				r.Add = refs
			} else {
				r.Withdraw = refs
			}
			w.deliver(r)
		}
	case 2:
		state := rapid.SampledFrom([]meta.NodeState{meta.NodeUp, meta.NodeDown}).Draw(t, "state")
		w.log.Do(t, meta.SetNodeState(node(), meta.AnyIncarnation, state))
	case 3: // the segment is deleted, or its tombstone expires
		k := w.anyKey()
		if s := w.log.Image.Segment(k); s != nil && s.Status == meta.SegmentDone && w.log.Image.Segment(w.key(k.Partition, k.Seq-1)) == nil {
			w.delete(k, false)
		} else if tomb := w.log.Image.Tombstone(k); tomb != nil {
			w.delete(k, true)
		}
	case 4:
		if s := w.log.Image.Segment(w.anyKey()); s != nil && s.Status == meta.SegmentDone {
			_ = w.log.Try(t, meta.SetDeepStoreLocation(s.SegmentKey(), s.Digest, "file:///deep/x", rapid.Bool().Draw(t, "verified")))
		}
	case 5, 6: // the machine sees some of it
		w.see(rapid.IntRange(0, len(w.log.Batches)-w.shown).Draw(t, "batches"), rapid.IntRange(0, 9).Draw(t, "all") == 0)
	case 7: // a leader, or an incarnation, follows another
		switch rapid.IntRange(0, 3).Draw(t, "which") {
		case 0:
			w.log.TakeOver(t)
		case 1:
			var incarnation int64
			w.log.Do(t, meta.RegisterNode(meta.Registration{
				ID: "me", URL: "http://me", StoreID: metatest.ID("store of me"), BootID: metatest.ID(fmt.Sprint("boot ", w.log.Now)),
			}, &incarnation))
		}
		w.meet()
	case 8: // a copy turns up
		w.put(other(w.anyKey(), fmt.Sprint("build ", rapid.IntRange(0, 2).Draw(t, "build"))))
	case 9:
		if s := w.log.Image.Segment(w.anyKey()); s != nil && s.Status == meta.SegmentDone {
			w.put(good(s))
		}
	case 10: // a copy rots, or is gone
		k := w.anyKey()
		w.stored(k, func(held []segment.Held) []segment.Held {
			if len(held) == 0 {
				return held
			}
			i := rapid.IntRange(0, len(held)-1).Draw(t, "copy")
			if h := held[i]; rapid.Bool().Draw(t, "rots") {
				w.builds++
				h.State, h.Reason = segment.StateQuarantined, fmt.Sprint("damage ", w.builds)
				held = append(held, h)
			}
			return slices.Delete(held, i, i+1)
		})
	case 11:
		if k := w.anyKey(); w.claimed[k] {
			delete(w.claimed, k)
			w.happens(Unclaimed{k})
		} else {
			w.claimed[k] = true
			w.happens(Claimed{k})
		}
	case 12:
		w.happens(UploadAsked{Segment: w.anyKey(), Poll: rapid.Bool().Draw(t, "poll")})
	case 13, 14:
		if len(w.flying) > 0 {
			w.ends(w.flying[rapid.IntRange(0, len(w.flying)-1).Draw(t, "effect")], rapid.Bool().Draw(t, "well"))
		}
	case 15:
		w.now += time.Duration(rapid.IntRange(0, 40_000).Draw(t, "ms")) * time.Millisecond
		w.happens(Tick{})
	}
}

// heal lets everything go well for half an hour.
func (w *world) heal() {
	for _, k := range []int32{0, 1} {
		for seq := range int64(6) {
			if key := w.key(k, seq); w.claimed[key] {
				delete(w.claimed, key)
				w.happens(Unclaimed{key})
			}
		}
	}
	for _, n := range []string{"b", "c", "d", "me"} {
		w.log.Do(w.t, meta.SetNodeState(n, meta.AnyIncarnation, meta.NodeUp))
	}
	w.meet()
	for range 1800 {
		for len(w.flying) > 0 {
			w.ends(w.flying[0], true)
		}
		w.see(len(w.log.Batches)-w.shown, false)
		w.now += time.Second
		w.happens(Tick{})
	}
}

// checkHealed demands that no difference is left.
func (w *world) checkHealed() {
	for s := range w.image.SegmentsNaming("me") {
		k := s.SegmentKey()
		loc := s.NodeLocation("me")
		switch {
		case s.Status != meta.SegmentDone:
		case !w.good(k):
			w.t.Fatalf("%s is wanted and not held", short(k))
		case loc == nil || loc.StoreID != metatest.ID("store of me"):
			w.t.Fatalf("%s is held and not listed", short(k))
		case w.m.reports.told[k] != s.Digest:
			w.t.Fatalf("%s was not confirmed to this leader", short(k))
		case s.Committer == "me" && !s.DeepStoreVerified():
			w.t.Fatalf("%s is not in the deep store", short(k))
		case len(w.store[k]) > 1 && w.twice(s):
			w.t.Fatalf("%s has files that nobody needs: %v", short(k), w.store[k])
		}
	}
	for k, held := range w.store {
		tomb := w.image.Tombstone(k)
		for _, h := range held {
			if w.image.Segment(k) == nil && h.State == segment.StateSealed && (tomb == nil || tomb.Expired) {
				w.t.Fatalf("%s is held and nothing explains it", short(k))
			}
		}
	}
	if len(w.flying) > 0 || w.m.reports.pending.Len()+len(w.m.reports.uploads) > 0 {
		w.t.Fatalf("under way: %s; to be told: %d, %d", describe(w.flying), w.m.reports.pending.Len(), len(w.m.reports.uploads))
	}
	for k, work := range w.m.works {
		w.t.Fatalf("work is left for %s: %+v", short(k), *work)
	}
}

func TestRandomWorld(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		for range rapid.IntRange(0, 150).Draw(t, "steps") {
			w.step()
		}
		w.heal()
		w.checkHealed()

		// The same events give the same actions.
		again := w.machine()
		for i, tr := range w.trace {
			if got := again.Step(tr.now, tr.event); !reflect.DeepEqual(got, tr.actions) {
				t.Fatalf("event %d (%s):\n first %s\n again %s", i, eventName(tr.event), describe(tr.actions), describe(got))
			}
		}
	})
}
