package node

import (
	"context"
	"fmt"
	"time"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

// run is one segment on its way from its first row to the committed bytes in
// the store: its machine, and the effects that the machine asked for. It
// belongs to its consumer's goroutine; effects that take long run beside it and
// come back as events.
type run struct {
	c      *consumer
	seg    *meta.Segment // as it was when the run began
	cfg    *meta.Config  // exactly the version that the record names
	table  string
	m      *commit.Replica
	ctx    context.Context // ends with the run
	cancel context.CancelFunc

	// feed is where rows come from: the partition's, or a private one; nil when
	// the machine wants none.
	feed      *feed
	private   bool
	feedEnded bool // its error was handed in
	fed       fedMark

	builder *segment.Builder
	file    vfs.File
	path    string

	pending  int // effects under way
	stopLoad context.CancelFunc
	timer    time.Duration
	told     bool // SuccessorMayStart
	end      int64
	failed   error
}

// fedMark is what was last said with Fed, so that nothing is said twice.
type fedMark struct{ next, fetched int64 }

// step hands an event to the machine and carries out what it says.
func (r *run) step(ev commit.ReplicaEvent) {
	before := r.m.State()
	for _, a := range r.m.Step(r.c.now(), ev) {
		r.act(a)
	}
	if after := r.m.State(); after != before {
		r.c.log.Info().Str("segment", r.seg.Name).Stringer("was", before).Stringer("state", after).
			Int64("offset", r.m.Position()).Msg("replica")
		r.c.n.events.add(r.seg.SegmentKey(), "state "+after.String(), fmt.Sprintf("at offset %d", r.m.Position()), nil)
	}
}

func (r *run) act(a commit.ReplicaAction) {
	switch a := a.(type) {
	case commit.Send:
		r.send(a)
	case commit.Seal:
		r.seal(a.End)
	case commit.Upload:
		r.upload(a.Info)
	case commit.Download:
		r.download(a)
	case commit.StopDownload:
		if r.stopLoad != nil {
			r.stopLoad()
		}
	case commit.Restart:
		r.restart(a)
	case commit.FreeRows:
		r.freeRows()
	case commit.SuccessorMayStart:
		r.told, r.end = true, a.Offset
		r.c.handOver(r)
	case commit.SetTimer:
		r.timer = a.At
	case commit.KeepFile, commit.SetAside:
		// The file is in the store, and the store's changes are told to the
		// copies' machine, which knows from the image what it is good for.
	}
}

// effect runs do beside the consumer; its event comes back to the machine.
func (r *run) effect(ctx context.Context, do func(ctx context.Context) commit.ReplicaEvent) {
	r.pending++
	r.c.effects.Go(func() {
		ev := do(ctx)
		r.c.post(func() {
			r.pending--
			r.step(ev)
		})
	})
}

// sendTimeout bounds one message; a slow commit is learnt of by asking again.
const sendTimeout = 10 * time.Second

func (r *run) send(a commit.Send) {
	began := time.Now()
	r.effect(r.ctx, func(ctx context.Context) commit.ReplicaEvent {
		ctx, cancel := context.WithTimeout(ctx, sendTimeout)
		defer cancel()
		reply, err := r.c.n.protocol.Send(ctx, a.Message)
		if err != nil {
			r.c.log.Debug().Err(err).Str("segment", r.seg.Name).Str("message", string(a.Message.Kind)).Msg("no answer")
			return commit.NoAnswer{ID: a.ID}
		}
		if reply.Status == commit.CommitSuccess {
			r.c.n.metrics.commit.Observe(time.Since(began).Seconds())
		}
		return commit.Answered{ID: a.ID, Reply: reply}
	})
}

// seal finishes the builder's file and publishes it in the store.
func (r *run) seal(end int64) {
	b, f, path := r.builder, r.file, r.path
	r.builder, r.file, r.path = nil, nil, ""
	seg := r.seg
	r.effect(context.WithoutCancel(r.ctx), func(context.Context) commit.ReplicaEvent {
		began := time.Now()
		info, err := r.c.n.sealAndPublish(seg, b, f, path, end)
		r.c.n.metrics.seal.Observe(time.Since(began).Seconds())
		r.c.n.events.add(seg.SegmentKey(), "seal", fmt.Sprintf("[%d, %d)", seg.Start, end), err)
		if err != nil {
			return commit.SealFailed{End: end, Error: err.Error()}
		}
		return commit.Sealed{Info: info}
	})
}

// upload is the one that commitEnd waits for.
func (r *run) upload(info segment.Info) {
	r.effect(r.ctx, func(ctx context.Context) commit.ReplicaEvent {
		uri, err := r.c.n.uploadSegment(ctx, r.seg, r.cfg, info.Digest)
		if err != nil {
			r.c.log.Warn().Err(err).Str("segment", r.seg.Name).Msg("upload before the commit failed, it is done behind")
		}
		return commit.Uploaded{URI: uri}
	})
}

func (r *run) download(a commit.Download) {
	ctx, cancel := context.WithCancel(r.ctx)
	r.stopLoad = cancel
	r.effect(ctx, func(ctx context.Context) commit.ReplicaEvent {
		defer cancel()
		if err := r.c.n.fetchSegment(ctx, r.seg.SegmentKey(), a.Digest); err != nil {
			return commit.NoSource{Error: err.Error()}
		}
		return commit.Downloaded{Digest: a.Digest}
	})
}

// restart throws the builder away and begins a new one at the segment's start.
func (r *run) restart(a commit.Restart) {
	r.dropBuilder()
	if a.Private {
		r.closePrivate()
		r.feed, r.private, r.feedEnded = r.c.openFeed(r.ctx, a.From), true, false
	} else {
		r.c.attach(r, a.From)
	}
	r.fed = fedMark{}
	r.openBuilder()
}

// openBuilder stages a file and starts the builder on it. A failure is the
// machine's to deal with, as if the feed had broken.
func (r *run) openBuilder() {
	f, path, err := r.c.n.store.Stage(r.seg.Table, r.seg.Partition, r.seg.Name)
	if err == nil {
		r.builder, err = segment.NewBuilder(f, builderConfig(r.table, r.seg, r.cfg))
	}
	if err != nil {
		r.failed = err
		return
	}
	r.file, r.path, r.failed = f, path, nil
}

func builderConfig(table string, s *meta.Segment, cfg *meta.Config) segment.BuilderConfig {
	return segment.BuilderConfig{
		Table: table, Partition: s.Partition, Start: s.Start, ConfigVersion: s.ConfigVersion,
		Format: cfg.Format, Compression: cfg.Segment.Compression,
		RowGroupRows: cfg.Segment.RowGroupRows, RowGroupBytes: int64(cfg.Segment.RowGroupBytes),
	}
}

// dropBuilder gives up the rows. They are in the stream.
func (r *run) dropBuilder() {
	if r.builder == nil {
		return
	}
	if err := r.builder.Abort(); err != nil {
		r.c.log.Debug().Err(err).Str("segment", r.seg.Name).Msg("abort of a builder")
	}
	if err := r.c.n.store.Discard(r.path); err != nil {
		r.c.log.Warn().Err(err).Str("segment", r.seg.Name).Msg("staged file left behind until the next start")
	}
	r.builder, r.file, r.path = nil, nil, ""
}

func (r *run) freeRows() {
	r.dropBuilder()
	r.closePrivate()
}

func (r *run) closePrivate() {
	if r.private {
		r.feed.close()
		r.feed, r.private = nil, false
	}
}

// pumpRows bounds how many rows are appended before other events are looked at.
const pumpRows = 2000

// pump offers the rows that wait to the machine, appends those that it takes,
// and tells it how far the feed is. It reports whether there may be more to do
// at once.
func (r *run) pump() (more bool) {
	if r.failed != nil {
		err := r.failed
		r.failed = nil
		r.step(commit.ReaderFailed{Error: err.Error()})
		return false
	}
	if r.feed == nil {
		return false
	}
	if r.builder == nil || !r.m.Consuming() {
		r.feed.allow(feedRollOver)
		if !r.private {
			r.c.beginRollOver()
		}
		return false
	}
	r.feed.allow(feedSteady)
	if !r.private {
		r.c.rollOver = rollOver{} // told to catch up: it goes on
	}
	rows := r.feed.peek()
	if !r.sameStream() {
		return false
	}
	n, left, err := r.offer(rows)
	r.feed.drop(n)
	if err != nil {
		r.c.n.noteFatal(err)
		r.step(commit.ReaderFailed{Error: fmt.Sprintf("append to the segment's file: %v", err)})
		return false
	}
	position, fetched := r.feed.position()
	if mark := (fedMark{position, fetched}); mark != r.fed || left {
		r.fed = mark
		r.step(commit.Fed{Next: position, Fetched: fetched})
	}
	if n > 0 {
		return true
	}
	if _, _, err := r.feed.state(); err != nil && !r.feedEnded && len(rows) == 0 {
		r.feedEnded = true
		r.step(commit.ReaderFailed{Error: err.Error()})
	}
	return false
}

// offer offers rows one by one. It returns how many are done with, and whether
// the machine left one.
func (r *run) offer(rows []segment.Row) (done int, left bool, err error) {
	now := r.c.now()
	for i := range rows[:min(len(rows), pumpRows)] {
		row := &rows[i]
		switch r.m.Offer(now, row.Offset, row.RawBytes()) {
		case commit.LeaveRow:
			return i, true, nil
		case commit.AppendRow:
			if err := r.builder.Append(row); err != nil {
				return i, false, err
			}
		}
	}
	return min(len(rows), pumpRows), false, nil
}

// sameStream reports whether what is being read is the stream of the record. A
// topic that was made anew under the old name is another one, and its offsets
// mean nothing here.
func (r *run) sameStream() bool {
	_, epoch, _ := r.feed.state()
	if epoch == "" || epoch == r.seg.StreamEpoch || r.feedEnded {
		return true
	}
	r.feedEnded = true
	r.step(commit.ReaderFailed{Error: fmt.Sprintf("the stream has epoch %q, the segment is of epoch %q: it was made anew", epoch, r.seg.StreamEpoch)})
	return false
}
