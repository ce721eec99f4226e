package meta_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/internal/config"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
	"github.com/shoalstore/shoal/segment"
)

const age = time.Hour

// aged is a partition with four committed segments of ten rows, the last of which
// was committed at young, and one IN_PROGRESS.
type aged struct {
	*metatest.Log
	t     *testing.T
	k     meta.PartitionKey
	young int64
}

func newAged(t *testing.T, change func(cfg *meta.Config)) *aged {
	l := metatest.NewLog(t)
	l.AddNode(t, "n1", "a")
	cfg := metatest.Config("flights")
	cfg.Retention.Age = config.Duration(age)
	if change != nil {
		change(cfg)
	}
	a := &aged{Log: l, t: t, k: meta.PartitionKey{Table: l.AddTable(t, cfg, 1)}}
	for range 4 {
		l.Do(t, meta.CommitSegment(l.Commit(t, a.k, 10)))
	}
	a.young = l.Image.Segment(a.k.Segment(3)).Times.Committed
	return a
}

// expire takes what is older than the age when the fourth has just that age.
func (a *aged) expire(through int64) error {
	return a.Try(a.t, meta.ExpireSegments(a.k, through, a.young+age.Milliseconds(), metatest.ObjectKey))
}

func (a *aged) seqs() (seqs []int64) {
	for s := range a.Image.Segments(a.k.Table, a.k.Partition) {
		seqs = append(seqs, s.Seq)
	}
	return seqs
}

func withStore(cfg *meta.Config) { cfg.DeepStore = &meta.DeepStoreConfig{URI: "file:///backups"} }

func TestExpiredSegmentsLeaveTombstonesAndFirstRetainedMoves(t *testing.T) {
	a := newAged(t, withStore)
	names := map[int64]*meta.Segment{}
	for s := range a.Image.Segments(a.k.Table, 0) {
		names[s.Seq] = s
	}
	lost := names[1].Clone()
	lost.Status = meta.SegmentLost
	a.Do(t, func(*meta.Image, int64) (meta.Change, error) { return upsert(lost), nil })
	if err := a.expire(1); err != nil {
		t.Fatal(err)
	}
	if got := a.seqs(); !slices.Equal(got, []int64{2, 3, 4}) {
		t.Errorf("left: %v", got)
	}
	if got := a.Image.Partition(a.k.Table, 0).FirstRetained; got != 20 {
		t.Errorf("firstRetained is %d", got)
	}
	for seq := range int64(2) {
		tomb := a.Image.Tombstone(a.k.Segment(seq))
		key, _ := metatest.ObjectKey(names[seq].Name, names[seq].Digest)
		if tomb == nil || tomb.Expired || tomb.DeletedAt != a.Now || !slices.Equal(tomb.DeepStoreKeys, []string{key}) {
			t.Errorf("got %+v", tomb)
		}
	}
	if v := meta.CheckInvariants(a.Image); len(v) > 0 {
		t.Error(v)
	}
	if c := a.Do(t, meta.ExpireSegments(a.k, 1, a.Now, metatest.ObjectKey)); !c.Empty() {
		t.Errorf("they went twice: %+v", c)
	}
}

func TestTombstoneNamesAnObjectOnlyIfThereMayBeOne(t *testing.T) {
	a := newAged(t, nil)
	s := a.Image.Segment(a.k.Segment(1))
	a.Do(t, meta.SetDeepStoreLocation(s.SegmentKey(), s.Digest, "file:///of-an-earlier-config/x", false))
	if err := a.expire(1); err != nil {
		t.Fatal(err)
	}
	if got := a.Image.Tombstone(a.k.Segment(0)).DeepStoreKeys; got != nil {
		t.Errorf("no store, no location: %v", got)
	}
	if got := a.Image.Tombstone(a.k.Segment(1)).DeepStoreKeys; len(got) != 1 {
		t.Errorf("a location: %v", got)
	}
}

func TestOnlyWhatIsOldEnoughExpires(t *testing.T) {
	unnamed := func(string, segment.Digest) (string, error) { return "", errors.New("no such name") }
	for name, c := range map[string]struct {
		through int64
		code    string
		change  meta.Func // before
		key     func(string, segment.Digest) (string, error)
	}{
		"of just the age":        {through: 3, code: meta.CodeRetained},
		"the one in progress":    {through: 4, code: meta.CodeRetained}, // the fourth is in its way
		"one that is not there":  {through: 5, code: meta.CodeUnknownSegment},
		"an object without name": {through: 0, code: meta.CodeInvalidRecord, key: unnamed},
		"kept for longer since": {through: 0, code: meta.CodeRetained, change: func(im *meta.Image, now int64) (meta.Change, error) {
			cfg := im.CurrentConfig(metatest.ID("table flights")).Clone()
			cfg.Retention.Age = config.Duration(2 * age)
			return meta.UpdateTableConfig(metatest.ID("table flights"), cfg)(im, now)
		}},
		"a table that is being deleted": {through: 0, code: meta.CodeTableDeleting, change: func(im *meta.Image, now int64) (meta.Change, error) {
			t := im.TableByName("flights").Clone()
			t.State = meta.TableDeleting
			return upsert(t), nil
		}},
	} {
		a := newAged(t, withStore)
		if c.change != nil {
			a.Do(t, c.change)
		}
		if c.key == nil {
			c.key = metatest.ObjectKey
		}
		before := a.Image
		wantRefusal(t, name, a.Try(t, meta.ExpireSegments(a.k, c.through, a.young+age.Milliseconds(), c.key)), c.code)
		if a.Image != before {
			t.Errorf("%s: refused, and changed", name)
		}
	}
	a := newAged(t, nil)
	wantRefusal(t, "IN_PROGRESS", a.Try(t, meta.ExpireSegments(a.k, 4, a.young+2*age.Milliseconds(), metatest.ObjectKey)), meta.CodeNotDone)
	unknown := meta.PartitionKey{Table: uuid.UUID{9}}
	wantRefusal(t, "unknown", a.Try(t, meta.ExpireSegments(unknown, 0, a.Now, metatest.ObjectKey)), meta.CodeUnknownPartition)
}

func TestAPartitionMayLoseAllItsSegments(t *testing.T) {
	a := newAged(t, nil)
	c := a.Commit(t, a.k, 10)
	c.EndOfPartition = true
	a.Do(t, meta.CommitSegment(c))
	a.Do(t, meta.ExpireSegments(a.k, 4, a.Now+age.Milliseconds()+1000, metatest.ObjectKey))
	p := a.Image.Partition(a.k.Table, 0)
	if len(a.seqs()) != 0 || p.FirstRetained != 50 || p.NextOffset != 50 || p.State != meta.PartitionEnded {
		t.Errorf("left: %v, %+v", a.seqs(), p)
	}
	if v := meta.CheckInvariants(a.Image); len(v) > 0 {
		t.Error(v)
	}
}

// Rows that were skipped on purpose lie between what goes and what stays.
func TestAHoleAfterTheLastThatExpires(t *testing.T) {
	a := newAged(t, nil)
	a.Do(t, meta.PauseTable(a.k.Table, meta.Pause{}))
	a.Do(t, meta.RequestEnd(a.k.Table, nil, meta.EndPause, uuid.UUID{}))
	a.Do(t, meta.ClearEndRequested(a.k.Segment(4), false))
	a.Do(t, meta.ResumeTable(a.k.Table, meta.FromLastConsumed))
	a.Do(t, meta.ResumePartition(a.k, 100, "not wanted"))
	a.Do(t, meta.ExpireSegments(a.k, 4, a.Now+age.Milliseconds(), metatest.ObjectKey))
	if got := a.seqs(); !slices.Equal(got, []int64{5}) {
		t.Errorf("left: %v", got)
	}
	a.Do(t, meta.CommitSegment(a.Commit(t, a.k, 10)))
	a.Do(t, meta.ExpireSegments(a.k, 5, a.Now+2*age.Milliseconds(), metatest.ObjectKey))
	if got := a.Image.Partition(a.k.Table, 0).FirstRetained; got != 110 {
		t.Errorf("firstRetained is %d", got)
	}
	if v := meta.CheckInvariants(a.Image); len(v) > 0 {
		t.Error(v)
	}
}

// A re-created topic is another stream, whose offsets start anew: what goes of
// the old one says nothing of the first offset of the new one.
func TestSegmentsOfAnEarlierStreamExpireWithoutMovingFirstRetained(t *testing.T) {
	a := newAged(t, nil)
	a.Do(t, func(im *meta.Image, now int64) (meta.Change, error) {
		p, s := im.Partition(a.k.Table, 0).Clone(), im.Segment(a.k.Segment(3)).Clone()
		s.Seq, s.Start, s.StreamEpoch, s.Status, s.Locations, s.End = 5, 0, "another", meta.SegmentInProgress, nil, 0
		p.StreamEpoch, p.NextOffset, p.FirstRetained, p.NextSeq = "another", 0, 0, 6
		return meta.Change{Upserts: []meta.Record{p, s}, Removals: []meta.Key{a.k.Segment(4).Key()}}, nil
	})
	if err := a.expire(2); err != nil {
		t.Fatal(err)
	}
	a.Do(t, meta.ExpireSegments(a.k, 3, a.Now+2*age.Milliseconds(), metatest.ObjectKey))
	if got := a.Image.Partition(a.k.Table, 0).FirstRetained; got != 0 || !slices.Equal(a.seqs(), []int64{5}) {
		t.Errorf("firstRetained is %d, left: %v", got, a.seqs())
	}
	if v := meta.CheckInvariants(a.Image); len(v) > 0 {
		t.Error(v)
	}
}

func TestTheLifeOfATombstone(t *testing.T) {
	a := newAged(t, withStore)
	if err := a.expire(2); err != nil {
		t.Fatal(err)
	}
	keys := []meta.SegmentKey{a.k.Segment(0), a.k.Segment(1), a.k.Segment(9)}
	wantRefusal(t, "within the grace", a.Try(t, meta.RemoveTombstones(keys)), meta.CodeNotExpired)
	a.Do(t, meta.ExpireTombstones(keys))
	for seq, want := range []bool{true, true, false} {
		if tomb := a.Image.Tombstone(a.k.Segment(int64(seq))); tomb.Expired != want || len(tomb.DeepStoreKeys) != 1 {
			t.Errorf("got %+v", tomb)
		}
	}
	if c := a.Do(t, meta.ExpireTombstones(keys)); !c.Empty() {
		t.Error("it expires twice")
	}
	wantRefusal(t, "one of them within the grace", a.Try(t, meta.RemoveTombstones(append(keys, a.k.Segment(2)))), meta.CodeNotExpired)
	a.Do(t, meta.RemoveTombstones(keys))
	if a.Image.Tombstone(a.k.Segment(0)) != nil || a.Image.Tombstone(a.k.Segment(2)) == nil {
		t.Error("the wrong ones are gone")
	}
	if c := a.Do(t, meta.RemoveTombstones(keys)); !c.Empty() {
		t.Error("it goes twice")
	}
	tooMany := make([]meta.SegmentKey, 1001)
	wantRefusal(t, "too many", a.Try(t, meta.ExpireTombstones(tooMany)), meta.CodeInvalidRecord)
	wantRefusal(t, "too many", a.Try(t, meta.RemoveTombstones(tooMany)), meta.CodeInvalidRecord)
}

func TestInvariantsOfTombstones(t *testing.T) {
	a := newAged(t, nil)
	im, err := a.Image.With(upsert(&meta.Tombstone{Table: a.k.Table, Seq: 5}))
	if err != nil {
		t.Fatal(err)
	}
	if v := meta.CheckInvariants(im); len(v) != 1 || v[0].Key.Kind != meta.KindTombstone {
		t.Errorf("of a segment that never was: %v", v)
	}
}
