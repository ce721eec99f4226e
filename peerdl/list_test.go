package peerdl

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shoalstore/shoal/internal/vfs"
)

// silentSource takes requests and says nothing: not to listAfter, if that is set,
// for the piece list.
type silentSource struct {
	memSource
	listAfter time.Duration
}

func (s *silentSource) Fetch(ctx context.Context, _, _ int64) (io.ReadCloser, error) {
	s.asked.Add(1)
	return hang{ctx}, nil
}

func (s *silentSource) Pieces(ctx context.Context) (io.ReadCloser, error) {
	if s.listAfter == 0 {
		return hang{ctx}, nil
	}
	time.Sleep(s.listAfter) // fake time
	return s.memSource.Pieces(ctx)
}

// A source that says nothing, as a deep store that hangs, costs a moment and not
// the idle time-out, neither for the piece list nor for one piece after another.
func TestSourceThatSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlob(t, vfs.NewMem(), 5*piece+1)
		silent := &silentSource{memSource: memSource{blob: b}}
		cfg := testConfig(t)
		cfg.limits.SlowMin = 2 * time.Second
		begin := time.Now()
		res := download(t, NewDownloader(cfg), b, b.request(vfs.NewMem(),
			Source{Fetcher: silent, DeepStore: true}, Source{Fetcher: &memSource{blob: b}, Rank: 1}))
		if took := time.Since(begin); took >= 10*time.Second {
			t.Errorf("took %s", took)
		}
		if n := silent.asked.Load(); n != 0 || res.Stats.BySource[1] != b.Size() {
			t.Errorf("it was asked %d times for pieces; by source %v", n, res.Stats.BySource)
		}
	})
}

// One that is alone is waited for; and one that gives the list, and then nothing,
// is found out once.
func TestSourceThatIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlob(t, vfs.NewMem(), 9*piece+1)
		cfg := testConfig(t)
		cfg.limits.SlowMin = 2 * time.Second
		slow := &silentSource{memSource: memSource{blob: b}, listAfter: 20 * time.Second}
		begin := time.Now()
		tr := &transfer{d: NewDownloader(cfg), req: b.request(vfs.NewMem()), sources: []Source{{Fetcher: slow}}}
		if _, silent, err := tr.fetchPieces(t.Context()); err != nil || len(silent) != 0 || time.Since(begin) != slow.listAfter {
			t.Errorf("the list of the only source: %v, silent %v, after %s", err, silent, time.Since(begin))
		}
		slow.listAfter = time.Millisecond
		begin = time.Now()
		res := download(t, NewDownloader(cfg), b, b.request(vfs.NewMem(),
			Source{Fetcher: slow}, Source{Fetcher: &memSource{blob: b}, Rank: 1}))
		if took := time.Since(begin); took >= 40*time.Second || res.Stats.BySource[1] != b.Size() {
			t.Errorf("took %s, by source %v", took, res.Stats.BySource)
		}
	})
}
