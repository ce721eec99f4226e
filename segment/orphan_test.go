package segment

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/shoalstore/shoal/internal/vfs"
)

func TestOrphanIsKeptForItsTimeAndThenRemoved(t *testing.T) {
	disk := vfs.NewMem()
	s := openTestStore(t, disk)
	old, young := randomBytes(1000), randomBytes(1001)
	for seq, data := range [][]byte{old, young} {
		h := mustPublish(t, s, testName(int64(seq)), data)
		if err := s.Orphan(h, testTime.Add(time.Duration(seq)*time.Hour)); err != nil {
			t.Fatal(err)
		}
		mustNotHold(t, s, testName(int64(seq)), data)
	}
	mustBeTidy(t, disk, s)
	s = openTestStore(t, disk) // a restart does not begin the time anew
	orphans, err := s.Orphans()
	if err != nil || len(orphans) != 2 {
		t.Fatalf("orphans: %+v, %v", orphans, err)
	}
	expired := ExpiredOrphans(orphans, testTime.Add(OrphanKeep+time.Minute), OrphanKeep)
	if len(expired) != 1 || expired[0].Name != testName(0) {
		t.Fatalf("expired: %+v", expired)
	}
	for range 2 {
		if err := s.RemoveOrphan(expired[0]); err != nil {
			t.Fatal(err)
		}
	}
	if orphans, err = s.Orphans(); err != nil || len(orphans) != 1 || orphans[0].Name != testName(1) {
		t.Errorf("orphans: %+v, %v", orphans, err)
	}
}

func TestExpiredOrphans(t *testing.T) {
	at := func(age time.Duration) Orphaned { return Orphaned{Since: testTime.Add(-age)} }
	orphans := []Orphaned{at(OrphanKeep + time.Second), at(OrphanKeep), at(0), at(-time.Hour), at(100 * OrphanKeep)}
	if got, want := ExpiredOrphans(orphans, testTime, OrphanKeep), []Orphaned{orphans[0], orphans[4]}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestAdoptProvesTheOrphanFirst(t *testing.T) {
	disk := vfs.NewMem()
	s := openTestStore(t, disk)
	data := randomBytes(5000)
	h := mustPublish(t, s, testName(1), data)
	if got, err := s.Adopt(t.Context(), testTable, 3, testName(1), h.Digest); err != nil || got != h {
		t.Errorf("what is held already: %+v, %v", got, err)
	}
	if err := s.Orphan(h, testTime); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Adopt(t.Context(), testTable, 3, testName(1), Digest{1}); !errors.Is(err, ErrNotHeld) {
		t.Errorf("another digest: %v", err)
	}
	orphan := filesBelow(t, disk, "orphans")[0]
	flipBit(t, disk, orphan, 99)
	_, err := s.Adopt(t.Context(), testTable, 3, testName(1), h.Digest)
	damageOf(t, err)
	mustNotHold(t, s, testName(1), data)
	flipBit(t, disk, orphan, 99)
	if _, err := s.Adopt(t.Context(), testTable, 3, testName(1), h.Digest); err != nil {
		t.Fatal(err)
	}
	mustHold(t, s, testName(1), data)
	mustBeTidy(t, disk, s)
	if left := filesBelow(t, disk, "orphans"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
