package node

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shoalstore/shoal/meta"
)

func TestOneAtATimeWorksOnASegment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l keyLock
		type room struct{ inside, most, visits int } // guarded by its lock: -race says if it is not
		rooms := [2]room{}
		for i := range 40 {
			go func() {
				unlock, err := l.lock(t.Context(), meta.SegmentKey{Seq: int64(i % 2)})
				if err != nil {
					t.Error(err)
					return
				}
				defer unlock()
				r := &rooms[i%2]
				r.inside++
				r.most, r.visits = max(r.most, r.inside), r.visits+1
				time.Sleep(time.Second)
				r.inside--
			}()
		}
		time.Sleep(20*time.Second + time.Millisecond) // the two segments go on side by side
		synctest.Wait()
		for i, r := range rooms {
			if r.most != 1 || r.visits != 20 {
				t.Errorf("segment %d: %d at once, %d visits", i, r.most, r.visits)
			}
		}
		if len(l.held) != 0 {
			t.Errorf("%d locks are left", len(l.held))
		}
	})
}

func TestWaitingForASegmentEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l keyLock
		k := meta.SegmentKey{Seq: 1}
		unlock, err := l.lock(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		gaveUp := errors.New("gave up")
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() { _, err := l.lock(ctx, k); done <- err }()
		synctest.Wait()
		cancel(gaveUp)
		if err := <-done; !errors.Is(err, gaveUp) {
			t.Fatal(err)
		}
		unlock()
		if again, err := l.lock(t.Context(), k); err != nil {
			t.Fatal(err)
		} else {
			again()
		}
	})
}
