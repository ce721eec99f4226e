package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

// run is what the shell has of a run of Consumption: its builder, and the
// effects under way. It belongs to its consumer's goroutine; effects run beside
// it.
type run struct {
	c      *consumer
	id     uint64
	seg    *meta.Segment // as it was when the run began
	cfg    *meta.Config  // exactly the version that the record names
	table  string
	ctx    context.Context // ends with the run
	cancel context.CancelFunc

	builder  *segment.Builder
	file     vfs.File
	path     string
	stopLoad context.CancelFunc
}

func newRun(c *consumer, a OpenBuilder) *run {
	r := &run{c: c, id: a.Run, seg: a.Segment, cfg: a.Config, table: a.Table}
	r.ctx, r.cancel = context.WithCancel(c.n.life)
	return r
}

func (r *run) perform(a commit.ReplicaAction) {
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
	}
}

// effect runs do beside the consumer, which waits for it before it goes.
func (r *run) effect(ctx context.Context, do func(ctx context.Context) commit.ReplicaEvent) {
	r.c.effects.Go(func() {
		r.c.results <- EffectDone{Segment: r.seg.SegmentKey(), Run: r.id, Event: do(ctx)}
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
		if b == nil {
			return commit.SealFailed{End: end, Error: "the segment's builder could not be opened"}
		}
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
		r.c.n.metrics.uploadedBytes(info.SizeBytes, err)
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
		err := r.c.n.fetchSegment(ctx, r.seg.SegmentKey(), a.Digest)
		if !errors.Is(err, context.Canceled) {
			r.c.n.events.add(r.seg.SegmentKey(), "download", "", err)
		}
		if err != nil {
			return commit.NoSource{Error: err.Error()}
		}
		return commit.Downloaded{Digest: a.Digest}
	})
}

// openBuilder stages a file and starts a builder on it, in place of the one
// before.
func (r *run) openBuilder() error {
	r.dropBuilder()
	f, path, err := r.c.n.store.Stage(r.seg.Table, r.seg.Partition, r.seg.Name)
	if err != nil {
		return err
	}
	b, err := segment.NewBuilder(f, builderConfig(r.table, r.seg, r.cfg))
	if err != nil {
		return err
	}
	r.builder, r.file, r.path = b, f, path
	return nil
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

func offsetDetail(offset int64) string { return fmt.Sprintf("at offset %d", offset) }
