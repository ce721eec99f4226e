package peerdl

import (
	"bytes"
	"context"
	"io"
	"math/rand"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shoalstore/shoal/internal/vfs"
)

// crawlPlan has ten pieces, two in flight, a preferred source and another one.
func crawlPlan() *Planner {
	return NewPlanner(PlannerConfig{
		Limits: DefaultPlanLimits(), Pieces: 10, Sources: planSources([]Source{{}, {Rank: 1}}, ""), Rand: rand.New(rand.NewSource(1)),
	})
}

// The best of sources by rank may be so slow that it is none. What it crawls over is
// asked of another, and if that is faster, it comes before the slow one.
func TestPlanDoesNotWaitForASourceThatCrawls(t *testing.T) {
	p := crawlPlan()
	a, b := mustFetch(t, p, epoch), mustFetch(t, p, epoch)
	if a.Source != 0 || b.Source != 0 {
		t.Fatalf("%+v, %+v", a, b)
	}
	if wait := mustWait(t, p, epoch); wait != p.limits.Crawl {
		t.Errorf("waits %v", wait)
	}
	for _, piece := range []int{a.Piece, b.Piece} {
		if second := mustFetch(t, p, at(p.limits.Crawl)); second != (Assignment{piece, 1}) {
			t.Fatalf("%+v", second)
		}
	}
	if wait := mustWait(t, p, at(p.limits.Crawl)); wait != 0 { // no third
		t.Errorf("waits %v", wait)
	}
	now := at(p.limits.Crawl + time.Second)
	for _, piece := range []int{a.Piece, b.Piece} {
		if !p.Done(Assignment{piece, 1}, now) {
			t.Error("not wanted")
		}
		p.Cancelled(Assignment{piece, 0})
	}
	for range 2 {
		if next := mustFetch(t, p, now); next.Source != 1 {
			t.Errorf("%+v", next)
		}
	}
}

// Where others are no faster, it is the way that is slow: to ask for everything twice
// would only make it slower.
func TestPlanAsksLessForCompanyInVain(t *testing.T) {
	p := crawlPlan()
	crawl := p.limits.Crawl
	for range 2 {
		mustFetch(t, p, epoch)
	}
	for range 2 {
		mustFetch(t, p, at(crawl))
	}
	now := at(crawl + time.Second)
	for piece := range 2 {
		if !p.Done(Assignment{piece, 0}, now) {
			t.Error("not wanted")
		}
		p.Cancelled(Assignment{piece, 1})
	}
	for range 2 {
		if next := mustFetch(t, p, now); next.Source != 0 {
			t.Errorf("%+v", next)
		}
	}
	if wait := mustWait(t, p, now); wait != 2*crawl {
		t.Errorf("waits %v", wait)
	}
}

// drip gives a byte a second.
type drip struct {
	ctx context.Context
	r   io.Reader
}

func (d drip) Read(b []byte) (int, error) {
	if err := sleep(d.ctx, time.Second); err != nil {
		return 0, err
	}
	return d.r.Read(b[:1])
}

func (drip) Close() error { return nil }

// A deep store that crawls is never silent for as long as a source may be. The peers
// have the segment, too.
func TestDownloadFromASourceThatCrawls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlob(t, vfs.NewMem(), 20*piece)
		slow := &memSource{blob: b}
		slow.fetch = func(ctx context.Context, off, n int64) (io.ReadCloser, error) {
			return drip{ctx, bytes.NewReader(b.data[off : off+n])}, nil
		}
		begin := time.Now()
		res := download(t, NewDownloader(testConfig(t)), b, b.request(vfs.NewMem(),
			Source{Fetcher: slow}, Source{Fetcher: &memSource{blob: b}, Rank: 1}))
		if took := time.Since(begin); took > 5*time.Minute {
			t.Errorf("took %v", took)
		}
		if res.Stats.BySource[1] != b.Size() {
			t.Errorf("%+v", res.Stats)
		}
	})
}
