package snapshots

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/peerdl"
	"github.com/shoalstore/shoal/segment"
)

func TestScenario19InOneChunk(t *testing.T) {
	im := imageOf(t, 3, small)
	h := hold(t, im)
	f := follow(t, vfs.NewMem())
	f.mustFetch(t, *h.Latest(), h.leader(1))
	if got := h.positions(); !slices.Equal(got, []string{"0"}) {
		t.Errorf("it was asked from %v", got)
	}
	if f.wasted() != 0 || valueOf(f.cfg.Metrics.fetched) != 1 {
		t.Errorf("%v bytes wasted", f.wasted())
	}
}

func TestScenario20InHalves(t *testing.T) {
	im := imageOf(t, 3, small)
	for name, evil := range map[string]func(half int) func(*answer){
		// A server may send less than was asked for.
		"sent as two chunks": func(half int) func(*answer) {
			return func(a *answer) {
				if a.at == 0 {
					a.body = a.body[:half]
					a.say(0, int64(half), sizeIn(a))
					a.header.Set(peerdl.ContinueHeader, "true")
				}
			}
		},
		"cut in the middle": func(half int) func(*answer) {
			return func(a *answer) {
				if a.at == 0 {
					a.body, a.cut = a.body[:half], true
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := hold(t, im)
			ref := *h.Latest()
			half := int(ref.SizeBytes / 2)
			h.turn(0, evil(half))
			f := follow(t, vfs.NewMem())
			f.mustFetch(t, ref, h.leader(1))
			// After a cut it is asked for what a second carries, which may be less than the rest.
			if got := h.positions(); len(got) < 2 || got[0] != "0" || got[1] != strconv.Itoa(half) {
				t.Errorf("it was asked from %v, the half is %d", got, half)
			}
			if f.wasted() != 0 {
				t.Errorf("%v bytes wasted", f.wasted())
			}
		})
	}
}

// sizeIn is the size that an answer names.
func sizeIn(a *answer) (size int64) {
	var first, last int64
	if _, err := fmt.Sscanf(a.header.Get("Content-Range"), "bytes %d-%d/%d", &first, &last, &size); err != nil {
		panic(err)
	}
	return size
}

// deposed answers as a server that has heard of a later leader.
func deposed(a *answer) { a.refuse(http.StatusConflict, metalog.CodeFencedLeaderEpoch) }

// partial leaves a download that has the first of two pieces.
func partial(t *testing.T, f *follower, h *holder) metalog.SnapshotRef {
	t.Helper()
	ref := *h.Latest()
	h.turn(segment.PieceSize, deposed)
	_, err := f.fetch(t, ref, h.leader(1))
	if e, ok := errors.AsType[*httpx.Error](err); !ok || e.Code != metalog.CodeFencedLeaderEpoch {
		t.Fatalf("got %v", err)
	}
	f.wantPartial(t, true)
	f.wantNothing(t)
	h.behave()
	h.positions()
	return ref
}

// resumedAt checks that nothing below the second piece was asked for.
func resumedAt(t *testing.T, positions []string) {
	t.Helper()
	if len(positions) == 0 {
		t.Error("nothing was asked for")
	}
	for _, p := range positions {
		if at, err := strconv.Atoi(p); err != nil || at < segment.PieceSize {
			t.Errorf("asked from %v", positions)
			return
		}
	}
}

func TestDownloadGoesOnAfterARestart(t *testing.T) {
	im := imageOf(t, 3, big)
	h := hold(t, im)
	disk := vfs.NewMem()
	ref := partial(t, follow(t, disk), h)
	f := follow(t, disk)
	f.wantPartial(t, true)
	f.mustFetch(t, ref, h.source())
	resumedAt(t, h.positions())
}

func TestScenario21SnapshotThatIsGone(t *testing.T) {
	im, later := imageOf(t, 3, big), imageOf(t, 4, small)
	h := hold(t, im)
	f := follow(t, vfs.NewMem())
	ref := partial(t, f, h)
	wasted := f.wasted()
	h.change(func() { h.cleaned = true })
	if _, err := f.fetch(t, ref, h.leader(1)); !errors.Is(err, metalog.ErrSnapshotNotFound) {
		t.Fatalf("got %v", err)
	}
	f.wantPartial(t, false)
	f.wantNothing(t)
	if f.restarts(causeGone) != 1 || f.wasted() != wasted+segment.PieceSize {
		t.Errorf("%v restarts, %v bytes wasted", f.restarts(causeGone), f.wasted())
	}
	// The next Fetch(0, 0) names what there is instead.
	write(t, h.Snapshots, later)
	h.change(func() { h.cleaned = false })
	f.mustFetch(t, *h.Latest(), h.leader(1))
}

func TestSnapshotThatIsGoneAtOneOfTwo(t *testing.T) {
	im := imageOf(t, 3, small)
	h, without := hold(t, im), hold(t)
	f := follow(t, vfs.NewMem())
	f.mustFetch(t, *h.Latest(), without.leader(1), h.source())

	// Who cannot be reached may have it.
	ref := metalog.SnapshotRef{SnapshotID: metalog.SnapshotID{EndOffset: 9, Epoch: 1}, SizeBytes: 5, Digest: segment.Digest{1}}
	dead := Source{URL: "http://127.0.0.1:1"}
	if _, err := f.fetch(t, ref, without.leader(1), dead); err == nil || errors.Is(err, metalog.ErrSnapshotNotFound) {
		t.Errorf("got %v", err)
	}
	if f.restarts(causeOther) != 1 {
		t.Error("not counted")
	}
}

func TestScenario22AnotherHolderOfTheSameDigestContinues(t *testing.T) {
	im := imageOf(t, 3, big)
	old, other := hold(t, im), hold(t, im)
	other.change(func() { other.standing.Epoch = 2 })
	ref := *old.Latest()

	t.Run("found at once", func(t *testing.T) {
		old.turn(segment.PieceSize, deposed) // while the second piece is on its way
		f := follow(t, vfs.NewMem())
		f.mustFetch(t, ref, old.leader(1), other.source())
		resumedAt(t, other.positions())
	})
	t.Run("found later", func(t *testing.T) {
		f := follow(t, vfs.NewMem())
		partial(t, f, old)
		f.mustFetch(t, ref, other.leader(2))
		resumedAt(t, other.positions())
		if f.restarts(causeOther) != 1 {
			t.Error("not counted")
		}
	})
	t.Run("with another snapshot", func(t *testing.T) {
		f := follow(t, vfs.NewMem())
		partial(t, f, old)
		later := imageOf(t, 4, small)
		leader := hold(t, later)
		f.mustFetch(t, *leader.Latest(), leader.leader(1))
		if f.restarts(causeSuperseded) != 1 {
			t.Error("not counted")
		}
	})
	t.Run("with another digest", func(t *testing.T) {
		f := follow(t, vfs.NewMem())
		partial(t, f, old)
		same := imageOf(t, 3, small) // by its id
		leader := hold(t, same)
		f.mustFetch(t, *leader.Latest(), leader.leader(1))
	})
}

func TestScenario23FlippedBitIsRejectedAndAnotherSourceTried(t *testing.T) {
	im := imageOf(t, 3, small)
	bad, good := hold(t, im), hold(t, im)
	ref := *bad.Latest()
	bad.turn(0, func(a *answer) { a.body[len(a.body)/3] ^= 0x10 })
	f := follow(t, vfs.NewMem())
	if _, err := f.fetch(t, ref, bad.leader(1)); !errors.Is(err, metalog.ErrNotTheSnapshot) {
		t.Fatalf("got %v", err)
	}
	f.wantNothing(t)
	f.wantPartial(t, true) // of which no byte is kept that is not proven
	if f.restarts(causeBytes) != 1 || f.wasted() != float64(ref.SizeBytes) {
		t.Errorf("%v restarts, %v bytes wasted", f.restarts(causeBytes), f.wasted())
	}
	f.mustFetch(t, ref, bad.leader(1), good.source())
	if len(good.positions()) == 0 {
		t.Error("the other was not asked")
	}
}

// What a source must not do, and what it counts as.
func TestScenario24SizeChangesAndOtherDeceptions(t *testing.T) {
	im := imageOf(t, 3, big)
	// from is where in the file it begins: a source is honest before.
	const from = segment.PieceSize
	for name, c := range map[string]struct {
		evil func(a *answer)
		want cause
	}{
		"the size changes":       {func(a *answer) { a.say(a.at, int64(len(a.body)), sizeIn(a)+1) }, causeSize},
		"the size is left out":   {func(a *answer) { a.header.Set("Content-Range", "bytes 0-1/*") }, causeSize},
		"the digest changes":     {func(a *answer) { a.header.Set("ETag", segment.Digest{1}.ETag()) }, causeDigest},
		"the digest is left out": {func(a *answer) { a.header.Del("ETag") }, causeDigest},
		"another position":       {func(a *answer) { a.say(a.at-1, int64(len(a.body)), sizeIn(a)) }, causePosition},
		"another length":         {func(a *answer) { a.say(a.at, int64(len(a.body))-1, sizeIn(a)) }, causePosition},
		"no Content-Range":       {func(a *answer) { a.header.Del("Content-Range") }, causeSize},
		"the whole":              {func(a *answer) { a.status = http.StatusOK }, causePosition},
		"more than was asked for": {func(a *answer) {
			a.body = append(a.body, make([]byte, peerdl.MaxChunk)...)
			a.say(a.at, int64(len(a.body)), sizeIn(a))
		}, causeExcess},
		"nothing": {func(a *answer) { a.body = nil }, causeShort},
		"an end too early": {func(a *answer) {
			a.body = a.body[:10]
			a.say(a.at, 10, sizeIn(a))
			a.header.Set(peerdl.ContinueHeader, "false")
		}, causeShort},
		"no end": {func(a *answer) { a.header.Set(peerdl.ContinueHeader, "true") }, causeShort},
		"no such position": {func(a *answer) {
			a.refuse(http.StatusRequestedRangeNotSatisfiable, metalog.CodePositionOutOfRange)
		}, causeSize},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := hold(t, im)
			ref := *h.Latest()
			f := follow(t, vfs.NewMem())
			h.turn(from, c.evil)
			if _, err := f.fetch(t, ref, h.leader(1)); !errors.Is(err, metalog.ErrNotTheSnapshot) {
				t.Fatalf("got %v", err)
			}
			f.wantNothing(t)
			f.wantPartial(t, false)
			if f.restarts(c.want) != 1 || f.wasted() < segment.PieceSize {
				t.Errorf("%v restarts, %v bytes wasted", f.restarts(c.want), f.wasted())
			}
			h.behave()
			f.mustFetch(t, ref, h.leader(1))
		})
	}
}

func TestPieceListOfOtherBytes(t *testing.T) {
	im := imageOf(t, 3, small)
	h, other := hold(t, im), hold(t, imageOf(t, 3, 100))
	f := follow(t, vfs.NewMem())
	if _, err := f.fetch(t, *h.Latest(), other.leader(1)); !errors.Is(err, metalog.ErrNotTheSnapshot) || f.restarts(causeDigest) != 1 {
		t.Fatalf("got %v", err)
	}
	f.mustFetch(t, *h.Latest(), other.leader(1), h.source())
}

func TestScenario27EmptyState(t *testing.T) {
	h := holdBytes(t, metalog.SnapshotID{}, emptySnapshot())
	ref := *h.Latest()
	f := follow(t, vfs.NewMem())
	im, err := f.Fetch(t.Context(), Request{Snapshot: ref, Sources: []Source{h.leader(1)}})
	if err != nil {
		t.Fatal(err)
	}
	if im.Next() != 0 || im.Len() != 0 {
		t.Errorf("%d records at %d", im.Len(), im.Next())
	}
	if im, err = f.snaps.Load(ref.SnapshotID); err != nil || im.Len() != 0 {
		t.Error(err)
	}
}

func TestContentThatIsNoSnapshot(t *testing.T) {
	for name, data := range map[string][]byte{
		"other bytes":         []byte("all as announced"),
		"a snapshot that was": emptySnapshot()[:100],
	} {
		t.Run(name, func(t *testing.T) {
			h := holdBytes(t, metalog.SnapshotID{EndOffset: 3, Epoch: 1}, data)
			ref := *h.Latest()
			f := follow(t, vfs.NewMem())
			if _, err := f.fetch(t, ref, h.leader(1)); !errors.Is(err, metalog.ErrNotTheSnapshot) || f.restarts(causeContent) != 1 {
				t.Fatalf("got %v", err)
			}
			f.wantNothing(t)
			f.wantPartial(t, false)
			if f.wasted() != float64(ref.SizeBytes) {
				t.Errorf("%v bytes wasted", f.wasted())
			}
		})
	}
}

func TestSnapshotOfAnotherCluster(t *testing.T) {
	h := hold(t, imageOf(t, 3, small))
	f := follow(t, vfs.NewMem())
	fetch := func() error {
		_, err := f.Fetch(t.Context(), Request{Snapshot: *h.Latest(), Cluster: otherCluster, Sources: []Source{h.leader(1)}})
		return err
	}
	if e, ok := errors.AsType[*httpx.Error](fetch()); !ok || e.Code != metalog.CodeInconsistentClusterID {
		t.Errorf("got %v", e)
	}
	h.change(func() { h.standing.Cluster = uuid.Nil }) // it does not know
	if err := fetch(); !errors.Is(err, metalog.ErrNotTheSnapshot) {
		t.Errorf("got %v", err)
	}
	f.wantNothing(t)
}

func TestSnapshotThatIsHereIsNotFetched(t *testing.T) {
	im := imageOf(t, 3, small)
	disk := vfs.NewMem()
	ref := write(t, open(t, disk), im)
	f := follow(t, disk)
	f.mustFetch(t, ref) // from nobody

	// But it is when it has rotted since.
	name := metalog.SnapshotsDir + "/" + ref.SnapshotID.String() + ".checkpoint"
	data := fileOf(t, f.snaps, ref.SnapshotID)
	data[len(data)/2] ^= 1
	if err := vfs.WriteFile(disk, name, data); err != nil {
		t.Fatal(err)
	}
	f.mustFetch(t, ref, hold(t, im).source())
	if _, err := disk.Stat(name + ".corrupt"); err != nil {
		t.Error(err)
	}
}

// A link that carries 100 KB each time before it drops.
func TestLinkThatDropsAgainAndAgain(t *testing.T) {
	im := imageOf(t, 3, big)
	h := hold(t, im)
	h.turn(0, func(a *answer) {
		if len(a.body) > 100<<10 {
			a.body, a.cut = a.body[:100<<10], true
		}
	})
	f := follow(t, vfs.NewMem())
	f.mustFetch(t, *h.Latest(), h.leader(1))
	if f.wasted() != 0 {
		t.Errorf("%v bytes wasted", f.wasted())
	}
}

// A process that stops in the middle of a download leaves it as it is.
func TestDownloadThatIsGivenUpGoesOn(t *testing.T) {
	im := imageOf(t, 3, big)
	h := hold(t, im)
	ref := *h.Latest()
	f := follow(t, vfs.NewMem())
	ctx, cancel := context.WithCancel(t.Context())
	f.cfg.Progress = func(p peerdl.Progress) {
		if p.HeldBytes > 0 {
			cancel()
		}
	}
	if _, err := f.Fetch(ctx, Request{Snapshot: ref, Sources: []Source{h.leader(1)}}); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	f.wantPartial(t, true)
	for _, c := range causes {
		if f.restarts(c) != 0 {
			t.Errorf("it counts as %s", c)
		}
	}
	if _, err := f.Fetch(ctx, Request{Snapshot: ref}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	f.cfg.Progress = nil
	h.positions()
	f.mustFetch(t, ref, h.leader(1))
	resumedAt(t, h.positions())
}

func TestOneDownloadAtATime(t *testing.T) {
	im := imageOf(t, 3, small)
	h := hold(t, im)
	f := follow(t, vfs.NewMem())
	errs := make(chan error)
	for range 4 {
		go func() {
			got, err := f.fetch(t, *h.Latest(), h.leader(1))
			if err == nil && got.Next() != im.Next() {
				err = errors.New("another image")
			}
			errs <- err
		}()
	}
	for range 4 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if got := h.positions(); !slices.Equal(got, []string{"0"}) {
		t.Errorf("it was asked from %v", got)
	}
	f.turn <- struct{}{} // somebody is at it
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Fetch(ctx, Request{Snapshot: *h.Latest()}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestDiskThatIsFull(t *testing.T) {
	im := imageOf(t, 3, big)
	h := hold(t, im)
	ref := *h.Latest()
	disk := vfs.NewMem()
	space := vfs.WithSpace(disk, segment.PieceSize+100<<10)
	f := follow(t, space)
	if _, err := f.fetch(t, ref, h.leader(1)); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("got %v", err)
	}
	f.wantNothing(t)
	space.Add(2 * ref.SizeBytes)
	h.positions()
	f.mustFetch(t, ref, h.leader(1))
	resumedAt(t, h.positions())

	// Room that is reserved first is told of before the first byte.
	f = follow(t, vfs.NewMem())
	f.cfg.Reserve = func(n int64) (func(), error) { return nil, fmt.Errorf("%d bytes: %w", n, syscall.ENOSPC) }
	h.positions()
	if _, err := f.fetch(t, ref, h.leader(1)); !errors.Is(err, syscall.ENOSPC) || len(h.positions()) > 0 {
		t.Errorf("got %v", err)
	}
}

func TestServersThatAreBusyOrGoingDown(t *testing.T) {
	im := imageOf(t, 3, small)
	h, down := hold(t, im), hold(t, im)
	down.change(func() { down.down = true })
	busy := 2
	h.turn(0, func(a *answer) {
		if busy--; busy >= 0 {
			a.status, a.body = http.StatusServiceUnavailable, nil
			a.header.Set("Retry-After", "0")
		}
	})
	f := follow(t, vfs.NewMem())
	f.mustFetch(t, *h.Latest(), down.leader(1), h.source())
	if busy >= 0 {
		t.Error("it was not busy")
	}
}

// A power cut at any moment of a download leaves what it can go on from, and never a
// snapshot that is half there.
func TestScenario36PowerCutDuringADownload(t *testing.T) {
	im := imageOf(t, 2, 100)
	h := hold(t, im)
	ref := *h.Latest()
	fetch := func(fsys vfs.FS) error {
		snaps, err := metalog.OpenSnapshots(fsys, "", zerolog.Nop())
		if err != nil {
			return err
		}
		transport := peerdl.NewTransport()
		defer transport.CloseIdleConnections()
		f := NewFetcher(FetcherConfig{
			Snapshots: snaps, Downloader: peerdl.NewDownloader(peerdl.Config{Workers: 1, Unsynced: 1}),
			Client: &httpx.Client{HTTP: &http.Client{Transport: transport}},
		})
		_, err = f.Fetch(t.Context(), Request{Snapshot: ref, Cluster: testCluster, Sources: []Source{h.leader(1)}})
		return err
	}
	for crash := range vfs.CrashPoints(vfs.NewMem(), fetch) {
		t.Run(crash.String(), func(t *testing.T) {
			snaps := open(t, crash.Disk)
			if have, ok := snaps.Get(ref.SnapshotID); ok && have != ref || crash.Done && !ok {
				t.Fatalf("it has %v", snaps.List())
			}
			follow(t, crash.Disk).mustFetch(t, ref, h.leader(1))
		})
	}
}

func TestPace(t *testing.T) {
	var p pace
	step := func(want int64) {
		t.Helper()
		if got := p.next(); got != want {
			t.Fatalf("the next chunk has %d bytes, want %d", got, want)
		}
	}
	step(peerdl.DefaultChunk)
	p.came(1000, time.Hour) // the rest of a piece
	step(peerdl.DefaultChunk)
	p.came(peerdl.DefaultChunk, 2*time.Second)
	step(peerdl.DefaultChunk / 2)
	p.broke(300<<10, 3*time.Second)
	step(100 << 10)
	p.broke(0, 0)
	step(chunkMin)
	p.came(chunkMin, time.Minute)
	step(chunkMin)
	p.came(chunkMin, 0)
	step(peerdl.MaxChunk)
}

func TestCauses(t *testing.T) {
	lie := func(c cause) error { return deceived(c, "x") }
	notThere := &final{&httpx.Error{Status: 404, Code: metalog.CodeSnapshotNotFound}}
	for name, c := range map[string]struct {
		errs []error
		want cause
	}{
		"all gone":                       {[]error{notThere, notThere}, causeGone},
		"one gone, one unreachable":      {[]error{notThere, syscall.ECONNREFUSED}, causeOther},
		"one gone, one not asked":        {[]error{notThere, nil}, causeOther},
		"one gone, one lies":             {[]error{notThere, lie(causeSize)}, causeSize},
		"two lies, the first counts":     {[]error{lie(causeDigest), lie(causeSize)}, causeDigest},
		"one lies, one unreachable":      {[]error{lie(causeSize), syscall.ECONNREFUSED}, causeOther},
		"damaged bytes":                  {[]error{&peerdl.DeceptionError{What: "sent damaged bytes", Cause: &segment.PieceError{}}}, causeBytes},
		"fenced":                         {[]error{&final{&httpx.Error{Code: metalog.CodeFencedLeaderEpoch}}}, causeOther},
		"a 404 of somebody who is lost":  {[]error{&httpx.Error{Status: 404, Code: "HTTP_404"}}, causeOther},
		"nobody was given":               {nil, causeOther},
		"busy for longer than one waits": {[]error{&peerdl.BusyError{}}, causeOther},
	} {
		err := &peerdl.NoSourceError{}
		for _, e := range c.errs {
			err.Sources = append(err.Sources, peerdl.SourceFault{Err: e})
		}
		if got := judge(fmt.Errorf("wrapped: %w", err)); got != c.want {
			t.Errorf("%s is %s, want %s", name, got, c.want)
		}
	}
}
