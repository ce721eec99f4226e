package peerdl

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shoalstore/shoal/internal/vfs"
)

// about fails unless the bytes took as long as the rate says, a burst less.
func about(t *testing.T, what string, bytes int64, perSecond int64, took time.Duration) {
	t.Helper()
	want := time.Duration(float64(bytes) / float64(perSecond) * float64(time.Second))
	if took > want+time.Millisecond || took < want-time.Second/8-time.Millisecond {
		t.Errorf("%s: %d bytes at %d a second took %s, want %s", what, bytes, perSecond, took, want)
	}
}

func TestSendsShareTheirRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const perSecond = 1 << 20
		b := newBlob(t, vfs.NewMem(), 6<<20)
		opts := Options{Rate: NewRate(perSecond)}
		began := time.Now()
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if err := ask(t, newReader(1<<40), b, opts); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		about(t, "three sends", 3*b.Size(), perSecond, time.Since(began))
	})
}

// What comes from deep stores and what comes from peers have budgets of their own.
func TestDownloadsKeepToTheBudgetOfEachKindOfSource(t *testing.T) {
	const peers, deep = 4 << 20, 1 << 20
	for _, test := range []struct {
		name      string
		peer      *Rate
		deepStore *Rate
		fromDeep  bool
		perSecond int64 // 0: no limit
	}{
		{"peers", NewRate(peers), NewRate(deep), false, peers},
		{"deep store", NewRate(peers), NewRate(deep), true, deep},
		{"peers, when only the deep store has a limit", nil, NewRate(deep), false, 0},
		{"deep store, when only peers have a limit", NewRate(peers), nil, true, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBlob(t, vfs.NewMem(), 4*piece)
				cfg := testConfig(t)
				cfg.PeerRate, cfg.DeepStoreRate = test.peer, test.deepStore
				d := NewDownloader(cfg)
				began := time.Now()
				var all sync.WaitGroup
				for range 2 {
					all.Go(func() {
						res, err := d.Download(context.Background(), b.request(vfs.NewMem(), Source{Fetcher: &memSource{blob: b}, DeepStore: test.fromDeep}))
						if err != nil {
							t.Error(err)
							return
						}
						b.mustHold(t, res)
					})
				}
				all.Wait()
				if took := time.Since(began); test.perSecond > 0 {
					about(t, "two downloads", 2*b.Size(), test.perSecond, took)
				} else if took != 0 {
					t.Errorf("took %s without a limit", took)
				}
			})
		})
	}
}

// What we wait for our own budget is nobody's silence.
func TestASmallBudgetIsNoStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlob(t, vfs.NewMem(), 300<<10)
		cfg := testConfig(t)
		cfg.IdleTimeout, cfg.PeerRate = 100*time.Millisecond, NewRate(1<<10)
		src := &memSource{blob: b}
		res := download(t, NewDownloader(cfg), b, b.request(vfs.NewMem(), Source{Fetcher: src}))
		if res.Stats.WastedBytes != 0 || src.asked.Load() != 1 {
			t.Errorf("stats %+v after %d requests", res.Stats, src.asked.Load())
		}
	})
}

func TestWaitingForABudgetEndsWithTheContext(t *testing.T) {
	cause := errors.New("node stops")
	ctx, cancel := context.WithCancelCause(context.Background())
	r := NewRate(8 << 10)
	if err := r.wait(ctx, r.step()); err != nil { // the burst
		t.Fatal(err)
	}
	cancel(cause)
	if err := r.wait(ctx, r.step()); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
	var none *Rate
	if err := none.wait(ctx, none.step()); err != nil || NewRate(0) != nil {
		t.Errorf("no limit is one: %v", err)
	}
}

var _ io.ReaderFrom = (*reader)(nil) // or nothing would be measured
