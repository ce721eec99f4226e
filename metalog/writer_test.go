package metalog

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
)

// heldDevice is a Log whose appends wait until they are let go, with what they then
// return.
type heldDevice struct {
	*Log
	gate     chan error
	appended []*meta.Batch // guarded by the one append in flight
}

func (d *heldDevice) Append(ctx context.Context, b *meta.Batch) error {
	if err := <-d.gate; err != nil {
		return err
	}
	d.appended = append(d.appended, b)
	return d.Log.Append(ctx, b)
}

// startWriter runs a writer of an epoch over dev until the test's end or stop.
func startWriter(t *testing.T, dev Device, epoch int64, clock func() int64) (w *Writer, stop func() error) {
	t.Helper()
	im, err := Replay(dev, meta.Empty())
	if err != nil {
		t.Fatal(err)
	}
	w = NewWriter(WriterConfig{
		Device: dev, Image: im, Clock: clock, Cluster: testCluster,
		Leader: meta.Leader{Epoch: epoch, Term: termOf(epoch), Controller: "c", URL: "http://c"},
	})
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- w.Run(ctx) }()
	stop = sync.OnceValue(func() error { cancel(); return <-result })
	return w, stop
}

func clockAt(ms int64) func() int64 { return func() int64 { return ms } }

// put is a function that writes a job, whatever there is.
func put(n int64, size int) meta.Func {
	return func(*meta.Image, int64) (meta.Change, error) {
		return meta.Change{Upserts: []meta.Record{job(n, size)}}, nil
	}
}

// create writes a job unless it exists.
func create(n int64) meta.Func {
	return func(im *meta.Image, now int64) (meta.Change, error) {
		if im.Job(jobID(n)) != nil {
			return meta.Change{}, &meta.Refusal{Code: "JOB_EXISTS"}
		}
		return meta.Change{Upserts: []meta.Record{job(n, 0)}}, nil
	}
}

func removeJob(n int64) meta.Func {
	return func(*meta.Image, int64) (meta.Change, error) {
		return meta.Change{Removals: []meta.Key{job(n, 0).Key()}}, nil
	}
}

func nothing(*meta.Image, int64) (meta.Change, error) { return meta.Change{}, nil }

// submitting calls Submit in the background.
func submitting(w *Writer, fn meta.Func) chan answer {
	out := make(chan answer, 1)
	go func() {
		r, err := w.Submit(context.Background(), fn)
		out <- answer{r, err}
	}()
	return out
}

func TestWriterOpensItsEpochFirst(t *testing.T) {
	disk := vfs.NewMem()
	for epoch := int64(1); epoch < 4; epoch++ {
		l := openLog(t, disk, 0)
		w, stop := startWriter(t, l, epoch, clockAt(5))
		<-w.Ready()
		if im := w.Image(); im.Epoch() != epoch || im.Leader().Epoch != epoch || im.LastTerm() != termOf(epoch) || im.Cluster().ID != testCluster {
			t.Fatalf("epoch %d: the image's leader is %+v", epoch, im.Leader())
		}
		if r, err := w.Submit(context.Background(), put(epoch, 0)); err != nil || r.Offset != 2*epoch-1 || r.Image.Job(jobID(epoch)) == nil {
			t.Fatalf("submit: %+v, %v", r, err)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
	batches := readAll(t, openLog(t, disk, 0))
	if len(batches) != 6 || batches[0].Upserts[0].Key().Kind != meta.KindCluster || batches[2].Upserts[0].Key().Kind != meta.KindLeader {
		t.Fatalf("%d batches", len(batches))
	}
}

func TestWriterDoesNotOpenAnEpochAgain(t *testing.T) {
	l := logOf(t, run{3, 2})
	_, stop := startWriter(t, l, 3, clockAt(5))
	var refused *meta.Refusal
	if err := stop(); !errors.As(err, &refused) {
		t.Fatalf("run: %v", err)
	}
	wantRange(t, l, 0, 2)
}

// Everything accepted while an append is in flight becomes one batch; refusals are
// answered at once, on the strength of what is accepted and not yet durable.
func TestWriterGroupsWhileAnAppendIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev := &heldDevice{Log: openLog(t, vfs.NewMem(), 0), gate: make(chan error)}
		w, stop := startWriter(t, dev, 1, clockAt(5))
		first := submitting(w, create(1))
		synctest.Wait() // the epoch's batch is in flight, 1 is accepted
		if w.Image().Next() != 0 {
			t.Fatal("an image before its batch")
		}
		second := submitting(w, create(2))
		synctest.Wait()
		again := <-submitting(w, create(2))
		var refused *meta.Refusal
		if !errors.As(again.err, &refused) {
			t.Fatalf("created twice: %v", again.err)
		}
		waits := submitting(w, nothing)
		synctest.Wait()
		dev.gate <- nil
		<-w.Ready()
		synctest.Wait()
		if len(first)+len(second)+len(waits) != 0 {
			t.Fatal("answered before the batch")
		}
		dev.gate <- nil
		a, b, c := <-first, <-second, <-waits
		if err := errors.Join(a.err, b.err, c.err); err != nil {
			t.Fatal(err)
		}
		if a.result.Offset != 1 || b.result != a.result || c.result != a.result {
			t.Fatalf("answers %+v %+v %+v", a.result, b.result, c.result)
		}
		if len(dev.appended) != 2 || len(dev.appended[1].Upserts) != 2 {
			t.Fatalf("%d batches", len(dev.appended))
		}
		if at := <-submitting(w, nothing); at.err != nil || at.result.Offset != 1 {
			t.Fatalf("nothing to wait for: %+v", at)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestRecordsThatComeAndGoWithinAGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev := &heldDevice{Log: openLog(t, vfs.NewMem(), 0), gate: make(chan error)}
		w, stop := startWriter(t, dev, 1, clockAt(5))
		var answers []chan answer
		for _, fn := range []meta.Func{put(1, 0), put(2, 1), removeJob(1), put(2, 2), removeJob(2), put(2, 3), put(3, 0)} {
			answers = append(answers, submitting(w, fn))
			synctest.Wait() // one after another
		}
		dev.gate <- nil
		dev.gate <- nil
		for _, a := range answers {
			if got := <-a; got.err != nil || got.result.Offset != 1 {
				t.Fatalf("answer %+v", got)
			}
		}
		im := w.Image()
		if im.Job(jobID(1)) != nil || len(im.Job(jobID(2)).Args["filler"]) != 3 || im.Job(jobID(3)) == nil {
			t.Fatal("the last change of a record does not count")
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestWriterKeepsBatchesSmallAndChangesWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev := &heldDevice{Log: openLog(t, vfs.NewMem(), 0), gate: make(chan error)}
		w, stop := startWriter(t, dev, 1, clockAt(5))
		const size, each = 50 << 10, 3 // 150 KiB a change: three in a batch
		change := func(n int64) meta.Func {
			return func(*meta.Image, int64) (c meta.Change, err error) {
				for i := range int64(each) {
					c.Upserts = append(c.Upserts, job(each*n+i, size))
				}
				return c, nil
			}
		}
		var answers []chan answer
		for n := range int64(30) {
			answers = append(answers, submitting(w, change(n)))
		}
		synctest.Wait()
		go func() {
			for range 11 {
				dev.gate <- nil
			}
		}()
		for _, a := range answers {
			if got := <-a; got.err != nil {
				t.Fatal(got.err)
			}
		}
		if len(dev.appended) != 11 {
			t.Errorf("%d batches", len(dev.appended))
		}
		for _, b := range dev.appended[1:] {
			if encoded, err := meta.EncodeBatch(b); err != nil || len(encoded) > groupBytesMax || len(b.Upserts) != 3*each {
				t.Errorf("batch %d: %d bytes, %d records, %v", b.Offset, len(encoded), len(b.Upserts), err)
			}
		}
		var large *BatchTooLargeError
		if a := <-submitting(w, func(*meta.Image, int64) (c meta.Change, err error) {
			for i := range int64(11) {
				c.Upserts = append(c.Upserts, job(i, size))
			}
			return c, nil
		}); !errors.As(a.err, &large) || large.Max != groupBytesMax {
			t.Fatalf("a change that is larger than a batch: %v", a.err)
		}
		var record *meta.RecordTooLargeError
		if a := <-submitting(w, put(1, 70<<10)); !errors.As(a.err, &record) {
			t.Fatalf("a record that is too large: %v", a.err)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestWriterRefusesWhatBreaksAnInvariantAndGoesOn(t *testing.T) {
	w, stop := startWriter(t, openLog(t, vfs.NewMem(), 0), 1, clockAt(5))
	var broken *meta.InvariantError
	if _, err := w.Submit(context.Background(), removeJob(9)); !errors.As(err, &broken) {
		t.Fatalf("removed what is not there: %v", err)
	}
	if _, err := w.Submit(context.Background(), put(1, 0)); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

func TestBatchTimeOnlyRises(t *testing.T) {
	now := int64(5000)
	l := openLog(t, vfs.NewMem(), 0)
	w, stop := startWriter(t, l, 1, func() int64 { now -= 1000; return now })
	for n := range int64(4) {
		var told int64
		if _, err := w.Submit(context.Background(), func(im *meta.Image, now int64) (meta.Change, error) {
			told = now
			return put(n, 0)(im, now)
		}); err != nil {
			t.Fatal(err)
		}
		if last := w.Image().LastTime(); told != last {
			t.Fatalf("the function was told %d, the batch says %d", told, last)
		}
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	var times []int64
	for _, b := range readAll(t, l) {
		times = append(times, b.Time)
	}
	if want := []int64{4000, 4001, 4002, 4003, 4004}; !slices.Equal(times, want) {
		t.Fatalf("times %v, want %v", times, want)
	}
}

func TestFailedAppendPoisonsEverythingAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev := &heldDevice{Log: openLog(t, vfs.NewMem(), 0), gate: make(chan error)}
		w, stop := startWriter(t, dev, 1, clockAt(5))
		dev.gate <- nil
		<-w.Ready()
		inFlight := submitting(w, put(1, 0))
		synctest.Wait()
		waiting := submitting(w, put(2, 0))
		unchanged := submitting(w, nothing)
		synctest.Wait()
		cause := errors.New("the disk is gone")
		dev.gate <- cause
		for name, a := range map[string]chan answer{"in flight": inFlight, "accepted": waiting, "unchanged": unchanged} {
			if got := <-a; !errors.Is(got.err, ErrUnknown) || !errors.Is(got.err, cause) {
				t.Errorf("%s: %v", name, got.err)
			}
		}
		<-w.Done()
		if _, err := w.Submit(context.Background(), put(3, 0)); !errors.Is(err, ErrPoisoned) || !errors.Is(err, cause) {
			t.Errorf("afterwards: %v", err)
		}
		if w.Image().Next() != 1 {
			t.Error("the image has moved")
		}
		if err := stop(); !errors.Is(err, cause) {
			t.Errorf("run: %v", err)
		}
	})
}

func TestStoppedWriterWritesWhatItAcceptedAndTakesNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev := &heldDevice{Log: openLog(t, vfs.NewMem(), 0), gate: make(chan error)}
		w, stop := startWriter(t, dev, 1, clockAt(5))
		accepted := submitting(w, put(1, 0))
		synctest.Wait()
		stopped := make(chan error, 1)
		go func() { stopped <- stop() }()
		synctest.Wait()
		late := submitting(w, put(2, 0))
		synctest.Wait()
		dev.gate <- nil
		dev.gate <- nil
		if a := <-accepted; a.err != nil || a.result.Image.Job(jobID(1)) == nil {
			t.Errorf("accepted: %+v", a)
		}
		if a := <-late; !errors.Is(a.err, ErrStopped) {
			t.Errorf("late: %v", a.err)
		}
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		wantRange(t, dev.Log, 0, 2)
	})
}

func TestSubmitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev := &heldDevice{Log: openLog(t, vfs.NewMem(), 0), gate: make(chan error)}
		w := NewWriter(WriterConfig{Device: dev, Image: meta.Empty(), Clock: clockAt(5), Leader: meta.Leader{Epoch: 1, Term: termOf(1)}})
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := w.Submit(gone, put(1, 0)); !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnknown) {
			t.Fatalf("not taken: %v", err)
		}
		running, stop := startWriter(t, dev, 1, clockAt(5))
		ctx, cancel := context.WithCancel(context.Background())
		out := make(chan error, 1)
		go func() { _, err := running.Submit(ctx, put(1, 0)); out <- err }()
		synctest.Wait()
		cancel()
		if err := <-out; !errors.Is(err, ErrUnknown) || !errors.Is(err, context.Canceled) {
			t.Fatalf("accepted: %v", err)
		}
		close(dev.gate)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if running.Image().Job(jobID(1)) == nil {
			t.Fatal("nobody waited for it, but it was accepted")
		}
	})
}

func TestCommittedTellsOfEachBatchBeforeItsAnswers(t *testing.T) {
	l := openLog(t, vfs.NewMem(), 0)
	var told []int64
	w := NewWriter(WriterConfig{
		Device: l, Image: meta.Empty(), Clock: clockAt(5), Cluster: testCluster,
		Leader: meta.Leader{Epoch: 1, Term: termOf(1)},
		Committed: func(im *meta.Image, b *meta.Batch) {
			if im.Next() != b.Offset+1 {
				t.Errorf("batch %d with the image at %d", b.Offset, im.Next())
			}
			told = append(told, b.Offset)
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- w.Run(ctx) }()
	for n := range int64(3) {
		r, err := w.Submit(ctx, put(n, 0))
		if err != nil {
			t.Fatal(err)
		}
		if told[len(told)-1] != r.Offset { // ordered by the answer
			t.Fatalf("batch %d is answered, told of %v", r.Offset, told)
		}
	}
	cancel()
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	if want := []int64{0, 1, 2, 3}; !slices.Equal(told, want) {
		t.Fatalf("told of %v", told)
	}
}

// A storm of refusals does not keep a commit from being answered.
func TestRefusalsDoNotStarveTheCommit(t *testing.T) {
	w, stop := startWriter(t, openLog(t, vfs.NewMem(), 0), 1, clockAt(5))
	if _, err := w.Submit(context.Background(), create(1)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var storm sync.WaitGroup
	for range 50 {
		storm.Go(func() {
			for ctx.Err() == nil {
				w.Submit(ctx, create(1))
			}
		})
	}
	for n := range int64(20) {
		if _, err := w.Submit(context.Background(), create(2+n)); err != nil {
			t.Error(err)
		}
	}
	cancel()
	storm.Wait()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

// Counters that many callers raise at once: no update is lost, every answer names the
// batch that holds it, and the log replays to the writer's image.
func TestManySubmittersLoseNoUpdate(t *testing.T) {
	l := openLog(t, vfs.NewMem(), 4<<10)
	w, stop := startWriter(t, l, 1, clockAt(5))
	const callers, times = 16, 50
	raise := func(im *meta.Image, now int64) (meta.Change, error) {
		next := &meta.Job{ID: jobID(1), Kind: "count", State: meta.JobRunning, Counts: map[string]int64{"n": 1}}
		if old := im.Job(jobID(1)); old != nil {
			next.Counts["n"] = old.Counts["n"] + 1
		}
		return meta.Change{Upserts: []meta.Record{next}}, nil
	}
	var wg sync.WaitGroup
	errs := make(chan error, callers)
	for range callers {
		wg.Go(func() {
			last := int64(-1)
			for range times {
				r, err := w.Submit(context.Background(), raise)
				if err != nil || r.Offset <= last || r.Image.Next() != r.Offset+1 {
					errs <- fmt.Errorf("offset %d after %d: %w", r.Offset, last, err)
					return
				}
				last = r.Offset
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		t.Fatal(err)
	default:
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if n := w.Image().Job(jobID(1)).Counts["n"]; n != callers*times {
		t.Fatalf("counted %d", n)
	}
	replayed, err := Replay(l, meta.Empty())
	if err != nil {
		t.Fatal(err)
	}
	if a, b := slices.Collect(replayed.Records()), slices.Collect(w.Image().Records()); !reflect.DeepEqual(a, b) {
		t.Fatal("the log replays to another image")
	}
}

func TestPowerCutUnderAWriterLosesNothingAnswered(t *testing.T) {
	var answered []int64
	for crash := range vfs.CrashPoints(vfs.NewMem(), func(fs vfs.FS) error {
		answered = nil
		l, err := OpenLog(fs, LogOptions{FileBytes: 700})
		if err != nil {
			return err
		}
		defer l.Close()
		epoch, err := ClaimEpoch(fs, 0)
		if err != nil {
			return err
		}
		w, stop := startWriter(t, l, epoch, clockAt(5))
		for n := range int64(6) {
			if _, err := w.Submit(context.Background(), put(n, 0)); err != nil {
				break
			}
			answered = append(answered, n)
		}
		return stop()
	}) {
		t.Run(crash.String(), func(t *testing.T) {
			l := openLog(t, crash.Disk, 700)
			im, err := Replay(l, meta.Empty())
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range answered {
				if im.Job(jobID(n)) == nil {
					t.Fatalf("change %d was answered and is lost", n)
				}
			}
			epoch, err := ClaimEpoch(crash.Disk, im.Epoch())
			if err != nil || epoch <= im.Epoch() {
				t.Fatalf("epoch %d after %d, %v", epoch, im.Epoch(), err)
			}
			w, stop := startWriter(t, l, epoch, clockAt(5))
			if _, err := w.Submit(context.Background(), put(99, 0)); err != nil {
				t.Fatal(err)
			}
			if err := stop(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
