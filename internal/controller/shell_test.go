package controller

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
	"github.com/shoalstore/shoal/metalog"
)

// outside is what the shell acts on: a log, and calls that hang while the test
// holds them.
type outside struct {
	t     *testing.T
	shell *shell

	mu    sync.Mutex
	log   *metatest.Log
	held  chan struct{} // nil: nothing is held
	fails error
}

func (o *outside) hold(ctx context.Context) error {
	o.mu.Lock()
	held := o.held
	o.mu.Unlock()
	if held == nil {
		return nil
	}
	select {
	case <-held:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (o *outside) submit(ctx context.Context, fn meta.Func) (metalog.Result, error) {
	if err := o.hold(ctx); err != nil {
		return metalog.Result{}, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fails != nil {
		return metalog.Result{}, o.fails
	}
	n := len(o.log.Batches)
	if err := o.log.Try(o.t, fn); err != nil {
		return metalog.Result{}, err
	}
	for _, b := range o.log.Batches[n:] {
		o.shell.news.committed(o.log.Image, b)
	}
	return metalog.Result{Offset: o.log.Image.Next() - 1, Image: o.log.Image}, nil
}

func (o *outside) listPartitions(ctx context.Context, a ListPartitions) Listed {
	return Listed{ID: a.ID, Err: o.hold(ctx)}
}

func (o *outside) checkDeepStore(ctx context.Context, a CheckDeepStore) Checked {
	return Checked{ID: a.ID, Err: o.hold(ctx)}
}

func (o *outside) deleteDeepStore(ctx context.Context, a DeleteDeepStore) Deleted {
	return Deleted{ID: a.ID, Err: o.hold(ctx)}
}

func (o *outside) askUpload(ctx context.Context, a AskUpload) UploadAnswered {
	return UploadAnswered{ID: a.ID, Err: o.hold(ctx)}
}

func (o *outside) listDeepStore(ctx context.Context, a ListDeepStore) ObjectsListed {
	return ObjectsListed{ID: a.ID, Done: true, Err: o.hold(ctx)}
}

func (o *outside) expired(Expired) {}

func (o *outside) retentionBlocked(RetentionBlocked) {}

// runShell runs a shell that leads a cluster with the table t of one partition.
// stop ends it and waits for it.
func runShell(t *testing.T) (o *outside, stop func()) {
	o = &outside{t: t, log: metatest.NewLog(t)}
	o.log.AddNode(t, "n1", "zone")
	o.log.AddNode(t, "n2", "zone")
	o.log.AddTable(t, metatest.Config("t"), 1)
	o.shell = newShell(zerolog.Nop(), o)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); o.shell.run(ctx) }()
	o.shell.post(ctx, Lead{URL: testURL, Image: o.log.Image})
	synctest.Wait()
	return o, func() { cancel(); <-done }
}

func (o *outside) report(seq int64) meta.LocationReport {
	n := o.log.Image.Node("n1")
	return meta.LocationReport{Node: "n1", Incarnation: n.Incarnation, StoreID: n.StoreID, Sequence: seq}
}

func TestShellAnswersWithWhatCameOfTheWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, stop := runShell(t)
		defer stop()
		for _, c := range []struct {
			fails error
			want  Refusal
		}{
			{nil, ""},
			{metalog.ErrUnknown, RefuseUnknown},
			{ErrNotLeading, RefuseUnknown},
			{&meta.Refusal{Code: meta.CodeStaleIncarnation}, RefuseStaleIncarnation},
		} {
			o.fails = c.fails
			a, err := o.shell.located(t.Context(), o.report(1))
			if err != nil || a.Refuse != c.want {
				t.Fatalf("%v: %+v, %v", c.fails, a, err)
			}
		}
		seen, err := o.shell.look(t.Context())
		if err != nil || len(seen) != 2 {
			t.Fatalf("%v, %v", seen, err)
		}
	})
}

// Whoever sends an event may act on what was committed just before: the machine
// knows it by then, whichever of the two channels is looked at first.
func TestWhatWasCommittedBeforeAnEventIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, stop := runShell(t)
		defer stop()
		for range 100 {
			var incarnation int64
			if _, err := o.submit(t.Context(), meta.RegisterNode(meta.Registration{
				ID: "n1", URL: "http://n1", StoreID: metatest.ID("store of n1"), BootID: uuid.New(),
			}, &incarnation)); err != nil {
				t.Fatal(err)
			}
			a, err := o.shell.heartbeat(t.Context(), (&rig{TB: t, log: o.log}).beat("n1", 0).Heartbeat)
			if err != nil || a.Refuse != "" {
				t.Fatalf("%+v, %v", a, err)
			}
		}
	})
}

func TestCallerThatGivesUpDoesNotHoldUpTheShell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, stop := runShell(t)
		defer stop()
		o.held = make(chan struct{})
		gaveUp := errors.New("gave up")
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() { _, err := o.shell.located(ctx, o.report(1)); done <- err }()
		synctest.Wait()
		cancel(gaveUp)
		if err := <-done; !errors.Is(err, gaveUp) {
			t.Fatal(err)
		}
		if len(o.shell.waiting) != 0 {
			t.Fatal("its ticket is kept")
		}
		close(o.held) // the answer comes, and nobody wants it
		synctest.Wait()
		if _, err := o.shell.look(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestStoppingShellTellsEverybodyAndWaitsForItsEffects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, stop := runShell(t)
		o.held = make(chan struct{})
		results := make(chan error, 20)
		for i := range 20 {
			go func() { _, err := o.shell.located(t.Context(), o.report(int64(i))); results <- err }()
		}
		synctest.Wait()
		stop() // a goroutine that is left over is a deadlock of the bubble
		for range 20 {
			if err := <-results; !errors.Is(err, errStopping) {
				t.Fatal(err)
			}
		}
		if _, err := o.shell.look(t.Context()); !errors.Is(err, errStopping) {
			t.Fatal(err)
		}
		if r := o.shell.message(t.Context(), commit.Message{}); r.Status != commit.Hold {
			t.Fatalf("%s", r.Status)
		}
	})
}

func TestCallerWhoseEventNobodyTakesIsToldWhenTheShellEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShell(zerolog.Nop(), nil)
		for range cap(s.events) {
			s.events <- Tick{}
		}
		result := make(chan error, 1)
		go func() { _, err := s.look(t.Context()); result <- err }()
		synctest.Wait()
		s.close()
		if err := <-result; !errors.Is(err, errStopping) {
			t.Fatal(err)
		}
	})
}

func TestDeposedShellAnswersThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, stop := runShell(t)
		defer stop()
		o.held = make(chan struct{})
		result := make(chan AnswerLocations, 1)
		go func() { a, _ := o.shell.located(t.Context(), o.report(1)); result <- a }()
		synctest.Wait()
		o.shell.post(t.Context(), Depose{})
		if a := <-result; a.Refuse != RefuseUnknown {
			t.Fatalf("%+v", a)
		}
		close(o.held)
	})
}

func TestNewsKeepTheNewestImageAndEveryKey(t *testing.T) {
	log := metatest.NewLog(t)
	images := map[int64]*meta.Image{}
	var batches []*meta.Batch
	for i := range 200 {
		n := len(log.Batches)
		log.AddNode(t, string(rune('a'+i%26)), "zone")
		log.Do(t, meta.SetNodeState(string(rune('a'+i%26)), meta.AnyIncarnation, meta.NodeDown))
		for _, b := range log.Batches[n:] {
			batches = append(batches, b)
		}
		images[log.Image.Next()] = log.Image
	}
	want := map[meta.Key]bool{}
	news := newNews()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, b := range batches {
			news.committed(log.Image, b)
		}
	}()
	got := map[meta.Key]bool{}
	last := (*meta.Image)(nil)
	take := func() {
		im, touched := news.take()
		if im == nil {
			return
		}
		if !slices.IsSortedFunc(touched, meta.Key.Compare) {
			t.Error("not sorted")
		}
		last = im
		for _, k := range touched {
			got[k] = true
		}
	}
	for ended := false; !ended; {
		select {
		case <-news.signal:
			take()
		case <-done:
			ended = true
		}
	}
	take()
	for _, b := range batches {
		for k := range b.Keys() {
			want[k] = true
		}
	}
	if last != log.Image || len(got) != len(want) {
		t.Fatalf("%d of %d keys", len(got), len(want))
	}
	if im, _ := news.take(); im != nil {
		t.Fatal("news twice")
	}
}

func TestTooMuchNewsIsAnything(t *testing.T) {
	news, im := newNews(), meta.Empty()
	b := &meta.Batch{}
	for seq := range int64(newsMax + 1) {
		b.Removals = append(b.Removals, meta.SegmentKey{Seq: seq}.Key())
	}
	news.committed(im, b)
	if got, touched := news.take(); got != im || touched != nil || len(news.touched) != 0 {
		t.Fatalf("%v, %d keys", got, len(touched))
	}
	b.Removals = b.Removals[:1]
	news.committed(im, b)
	if _, touched := news.take(); len(touched) != 1 {
		t.Fatalf("%d keys", len(touched))
	}
}
