package node

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
	"github.com/shoalstore/shoal/segment"
)

// uploader is a machine with tables of one partition each, whose segments this node
// commits and holds. It is confirmed to the leader, so that uploads are all it does.
type uploader struct {
	*rig
	tables map[string]uuid.UUID
	flying []string
	keys   map[string]meta.SegmentKey
}

// newUploader has each table commit so many segments, in turns.
func newUploader(t *testing.T, segments int, tables ...string) *uploader {
	t.Helper()
	u := &uploader{rig: newRig(t), tables: map[string]uuid.UUID{}, keys: map[string]meta.SegmentKey{}}
	for _, name := range tables {
		cfg := metatest.Config(name)
		withDeepStore(cfg)
		cfg.Replication = 4 // all nodes
		u.tables[name] = u.log.AddTable(t, cfg, 1)
	}
	held := []Event{}
	for range segments {
		for _, name := range tables {
			s := u.add(name)
			held = append(held, holds(s.SegmentKey(), good(s)))
		}
	}
	u.show()
	for _, ev := range held {
		u.step(ev)
	}
	u.happens(u.register())
	return u
}

// add commits one more segment of a table.
func (u *uploader) add(table string) *meta.Segment {
	u.Helper()
	c := u.log.Commit(u, meta.PartitionKey{Table: u.tables[table]}, 10)
	n := u.log.Image.Node("me")
	c.Instance, c.Incarnation, c.StoreID = n.ID, n.Incarnation, n.StoreID
	u.log.Do(u, meta.CommitSegment(c))
	u.keys[u.name(c.Key)] = c.Key
	return u.log.Image.Segment(c.Key)
}

func (u *uploader) name(k meta.SegmentKey) string {
	return fmt.Sprintf("%s%d", u.log.Image.Table(k.Table).Name, k.Seq)
}

// happens hands in an event, and has reports answered. It returns what is uploaded.
func (u *uploader) happens(ev Event) string {
	u.Helper()
	var started []string
	for events := []Event{ev}; len(events) > 0; events = events[1:] {
		for _, a := range u.m.Step(u.now, events[0]) {
			switch a := a.(type) {
			case Upload:
				started = append(started, u.name(a.Segment))
			case Report:
				events = append(events, u.deliver(a.Report))
			}
		}
	}
	u.flying = append(u.flying, started...)
	return strings.Join(started, " ")
}

func (u *uploader) wants(started string, ev Event) {
	u.Helper()
	if got := u.happens(ev); got != started {
		u.Fatalf("at %s, %s: %q, want %q; under way: %v", u.now, eventName(ev), got, started, u.flying)
	}
}

// ends ends an upload.
func (u *uploader) ends(name string, err error) UploadDone {
	u.Helper()
	i := slices.Index(u.flying, name)
	if i < 0 {
		u.Fatalf("%s is not under way, but %v", name, u.flying)
	}
	u.flying = slices.Delete(u.flying, i, i+1)
	k := u.keys[name]
	return UploadDone{Segment: k, Digest: u.log.Image.Segment(k).Digest, URI: "file:///deep/" + name, Err: err}
}

var errAway = errors.New("503")

func TestTableBeginsWithOneUploadAndLeavesOneSlotToOthers(t *testing.T) {
	u := newUploader(t, 6, "a")
	if got := strings.Join(u.flying, " "); got != "a0" {
		t.Fatal(got)
	}
	u.wants("a1 a2 a3", u.ends("a0", nil))
	u.wants("a4", u.ends("a2", nil))
	s := u.add("a")
	u.wants("", u.image())
	u.wants("", holds(s.SegmentKey(), good(s)))
	if q := u.m.Uploads(); q.Running != 3 || q.Waiting != 4 || q.WaitingBytes != 4000 || q.FailingTables != 0 {
		t.Errorf("%+v", q) // a0 and a2 wait for the leader to see them
	}
}

// The riskiest goes first: at risk before not, fewer copies, older.
func TestRiskiestIsUploadedFirst(t *testing.T) {
	u := newUploader(t, 5, "a")
	u.lists(u.log.Image.Segment(u.keys["a1"]), "b", "c")
	u.lists(u.log.Image.Segment(u.keys["a2"]), "b")
	u.wants("", u.image())
	u.wants("a3 a4 a2", u.ends("a0", nil))
	u.wants("a1", u.ends("a3", nil))
}

// What the leader asks for waits behind no other.
func TestUploadThatWasAskedForIsNext(t *testing.T) {
	u := newUploader(t, 8, "a")
	u.wants("", UploadAsked{Segment: u.keys["a6"]})
	u.wants("a6 a1 a2", u.ends("a0", nil))
}

// Segments that can never be uploaded, as others' bytes are under their keys, are
// tried for ever and hold up nobody: the store answers.
func TestOtherBytesUnderSomeKeysHoldUpNobody(t *testing.T) {
	u := newUploader(t, 8, "a")
	different := func(name string) UploadDone {
		done := u.ends(name, errAway)
		done.Different = true
		return done
	}
	u.wants("a1 a2 a3", different("a0"))
	u.wants("a4", different("a1"))
	u.wants("a5", different("a2"))
	u.wants("a6", u.ends("a3", nil))
	if q := u.m.Uploads(); q.FailingTables != 0 || q.Running != 3 {
		t.Errorf("%+v", q)
	}
	u.now += 2 * time.Second
	u.wants("", Tick{}) // they are due again, and there is no room
	u.wants("a0", u.ends("a4", nil))
	for _, a := range u.m.Step(u.now, UploadAsked{Segment: u.keys["a1"], Poll: true}) {
		if told, ok := a.(UploadTold); !ok || !told.Different || told.Failures != 1 {
			t.Errorf("told %+v", a)
		}
	}
}

func TestTableWhoseUploadsFailHasOneAtATimeAndRests(t *testing.T) {
	u := newUploader(t, 40, "a")
	u.happens(u.ends("a0", nil))
	for _, name := range slices.Clone(u.flying) {
		u.happens(u.ends(name, errAway))
	}
	if q := u.m.Uploads(); q.FailingTables != 1 || q.Running != 0 {
		t.Fatalf("%+v", q)
	}
	tries := 0
	for range 600 {
		u.now += time.Second
		u.happens(Tick{})
		if len(u.flying) > 1 {
			t.Fatalf("%v", u.flying)
		}
		for _, name := range slices.Clone(u.flying) {
			tries++
			u.happens(u.ends(name, errAway))
		}
	}
	if tries < 15 || tries > 60 {
		t.Errorf("%d tries in ten minutes", tries)
	}
	// It is back, and so is the room.
	for range 31 {
		u.now += time.Second
		u.happens(Tick{})
	}
	if len(u.flying) != 1 {
		t.Fatalf("%v", u.flying)
	}
	u.happens(u.ends(u.flying[0], nil))
	if len(u.flying) != 3 || u.m.Uploads().FailingTables != 0 {
		t.Errorf("%v", u.flying)
	}
}

// Tables whose stores hang take all slots but one, and those that fail leave one.
func TestTablesThatHangOrFailLeaveRoomForOthers(t *testing.T) {
	u := newUploader(t, 5, "a", "b", "c", "d")
	if len(u.flying) != 4 {
		t.Fatalf("%v", u.flying) // one of each
	}
	for _, name := range []string{"a0", "b0", "c0", "d0"} {
		u.happens(u.ends(name, errAway))
	}
	u.now += tablePace.Min
	u.happens(Tick{})
	if len(u.flying) != 3 {
		t.Fatalf("%v", u.flying)
	}
	cfg := metatest.Config("e")
	withDeepStore(cfg)
	cfg.Replication = 4
	u.tables["e"] = u.log.AddTable(t, cfg, 1)
	s := u.add("e")
	u.happens(u.image())
	u.wants("e0", holds(s.SegmentKey(), good(s)))
}

func TestPoisonedSegmentHoldsUpItsTableForAMomentOnly(t *testing.T) {
	u := newUploader(t, 30, "a")
	done, tries := map[string]bool{}, 0
	for range 120 {
		for _, name := range slices.Clone(u.flying) {
			if name == "a3" {
				tries++
				u.happens(u.ends(name, errAway))
				continue
			}
			done[name] = true
			ev := u.ends(name, nil)
			u.log.Do(t, meta.SetDeepStoreLocation(u.keys[name], ev.Digest, ev.URI, true))
			u.happens(ev)
			u.happens(u.image())
		}
		u.now += time.Second
		u.happens(Tick{})
	}
	if len(done) != 29 || tries < 4 || tries > 20 {
		t.Errorf("%d are uploaded, the poisoned one was tried %d times", len(done), tries)
	}
}

func TestBackOffOfUploadsIsCappedAndJittered(t *testing.T) {
	u := newUploader(t, 1, "a")
	most, waits := time.Duration(0), map[time.Duration]bool{}
	for range 20 {
		u.happens(u.ends("a0", errAway))
		began := u.now
		for len(u.flying) == 0 {
			u.now += 100 * time.Millisecond
			u.happens(Tick{})
			if u.now-began > time.Hour {
				t.Fatal("it is given up")
			}
		}
		most = max(most, u.now-began)
		waits[u.now-began] = true
	}
	if most > paces[upload].max || most < paces[upload].max/2 || len(waits) < 8 {
		t.Errorf("at most %s, %d different waits", most, len(waits))
	}
}

// Two nodes that fail at the same moment do not try again at the same moment.
func TestNodesWaitDifferently(t *testing.T) {
	k := meta.SegmentKey{Seq: 7}
	if a, b := newUploads("a", 2).jitter(0, k, time.Minute), newUploads("b", 2).jitter(0, k, time.Minute); a == b {
		t.Errorf("both wait %s", a)
	}
}

func TestWhatCameOfAnUploadIsTold(t *testing.T) {
	u := newUploader(t, 2, "a")
	told := func(name string, poll bool) string {
		actions := u.m.Step(u.now, UploadAsked{Ticket: 7, Segment: u.keys[name], Poll: poll})
		for _, a := range actions {
			if up, ok := a.(Upload); ok {
				u.flying = append(u.flying, u.name(up.Segment))
			}
			if tld, ok := a.(UploadTold); ok && tld.Ticket != 7 {
				t.Fatalf("%+v", tld)
			}
		}
		return describe(actions)
	}
	for _, c := range []struct{ name, want string }{{"a0", "told running"}, {"a1", "told waiting"}} {
		if got := told(c.name, true); got != c.want {
			t.Errorf("%s: %s", c.name, got)
		}
	}
	u.happens(u.ends("a0", errAway))
	if got := told("a0", true); got != "told waiting 503 1" {
		t.Error(got)
	}
	u.now += tablePace.Min
	u.happens(Tick{})
	name := u.flying[0]
	u.m.Step(u.now, u.ends(name, nil)) // the report of it is under way
	if got := told(name, true); !strings.Contains(got, "told reported") {
		t.Error(got)
	}
}

// What is remembered of failures is bounded.
func TestFailuresRememberedAreBounded(t *testing.T) {
	r := newUploadResults()
	for i := range int64(uploadResultsMax + 10) {
		for range 2 {
			r.failed(time.Duration(i), UploadDone{Segment: meta.SegmentKey{Seq: i}, Err: errAway})
		}
	}
	if len(r.of) != uploadResultsMax || len(r.order) != uploadResultsMax {
		t.Fatalf("%d, %d", len(r.of), len(r.order))
	}
	if r.get(meta.SegmentKey{Seq: 9}).failures != 0 || r.get(meta.SegmentKey{Seq: 10}).failures != 2 {
		t.Error("not the oldest went")
	}
}

func TestUploadQueueKnowsItsBytesAndItsOldest(t *testing.T) {
	u := newUploader(t, 3, "a")
	q := u.m.Uploads()
	if q.Waiting != 2 || q.WaitingBytes != 2000 || q.Oldest != u.log.Image.Segment(u.keys["a1"]).Times.Committed {
		t.Errorf("%+v", q)
	}
	u.step(holds(u.keys["a1"]))
	u.step(holds(u.keys["a2"], segment.Held{}))
	if q := u.m.Uploads(); q != (UploadQueue{Running: 1}) {
		t.Errorf("%+v", q)
	}
}

// What this node could not upload, another one has: nothing fails here any more.
func TestTableIsNotFailingWithoutAnythingToUpload(t *testing.T) {
	u := newUploader(t, 2, "a")
	u.happens(u.ends("a0", errAway))
	if q := u.m.Uploads(); q.FailingTables != 1 || q.Waiting != 2 {
		t.Fatalf("%+v", q)
	}
	for _, name := range []string{"a0", "a1"} {
		k := u.keys[name]
		u.log.Do(t, meta.SetDeepStoreLocation(k, u.log.Image.Segment(k).Digest, "file:///deep/"+name, true))
	}
	u.happens(u.image())
	if q := u.m.Uploads(); q != (UploadQueue{}) {
		t.Errorf("%+v", q)
	}
	u.add("a")
	u.show()
	u.step(holds(u.keys["a2"], good(u.log.Image.Segment(u.keys["a2"]))))
	if q := u.m.Uploads(); q.FailingTables != 1 { // it is not known to be better
		t.Errorf("%+v", q)
	}
}
