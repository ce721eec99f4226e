package controller

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/zkmeta"
)

// term is a member's attempt to lead, and the leadership if it succeeds.
type term struct {
	device     *zkmeta.Device
	leadership *leadership // nil until its epoch is opened
	writer     atomic.Pointer[metalog.Writer]
	stop       context.CancelFunc // nil before it leads
	ended      chan struct{}      // closed when nothing of the leadership is left
}

// base is the image that the next batch is applied to.
func (t *term) base(before *meta.Image) *meta.Image {
	if w := t.writer.Load(); w != nil {
		return w.Image()
	}
	return before
}

// member is the elector's role.
var _ zkmeta.Role = (*member)(nil)

// CatchUp implements zkmeta.Role: it stops to follow and brings the log here to the
// head, from the tail in ZooKeeper or, if that does not reach back far enough, from
// the record znodes.
func (m *member) CatchUp(ctx context.Context, to zkmeta.TailHead, version int32) (zkmeta.Head, error) {
	m.endTerm()
	m.pause()
	if err := m.setBack(ctx, to); err != nil {
		return zkmeta.Head{}, err
	}
	if err := m.catchUp(ctx, to); err != nil {
		return zkmeta.Head{}, err
	}
	m.newTerm(to, version)
	im := m.files.image
	return zkmeta.Head{Offset: max(im.Next()-1, 0), Epoch: im.Epoch(), Term: im.LastTerm()}, nil
}

// setBack returns an error if ZooKeeper has less than the log here, which holds nothing
// that ZooKeeper had not acknowledged. A head that is older than what an earlier leader
// has written since, and this member has followed, is none: the election looks again.
func (m *member) setBack(ctx context.Context, to zkmeta.TailHead) error {
	im := m.files.image
	if im.Next() <= to.Next() {
		return nil
	}
	now, _, err := zkmeta.CurrentHead(ctx, m.conn)
	if err != nil || im.Next() <= now.Next() {
		return err
	}
	return fmt.Errorf("controller: ZooKeeper was set back, as by an old backup: it had acknowledged all that is in %s, up to offset %d, epoch %d, and the log in %s ends at offset %d, epoch %d",
		m.c.cfg.Data, im.Next(), im.Epoch(), m.c.cfg.Metadata, now.Next(), now.Head().Epoch)
}

func (m *member) catchUp(ctx context.Context, to zkmeta.TailHead) error {
	err := m.files.readTail(ctx, m.conn, to)
	var missing *zkmeta.EntryMissingError
	if !errors.As(err, &missing) && !errors.Is(err, errContradiction) {
		return err
	}
	m.log.Warn().Err(err).Int64("offset", m.files.image.Next()).Int64("head", to.Next()).
		Msg("the log here does not reach the tail in ZooKeeper; rebuilding the image from the record znodes")
	return m.rebuild(ctx)
}

// newTerm prepares to write after the head.
func (m *member) newTerm(to zkmeta.TailHead, version int32) {
	session, image := m.conn.Session().ID, m.files.image
	t := &term{}
	t.device = zkmeta.NewDevice(zkmeta.DeviceConfig{
		Conn: m.conn, Head: to, Version: version, Local: m.files.log,
		Base:  func() *meta.Image { return t.base(image) },
		Heard: func(sentAt time.Duration) { m.elector.Heard(m.ctx, session, sentAt) },
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.term = t
}

// rebuild makes the image from the record znodes and begins the log here after it.
func (m *member) rebuild(ctx context.Context) error {
	began := time.Now()
	image, err := zkmeta.Rebuild(ctx, m.conn)
	if err != nil {
		return err
	}
	if err := m.files.restart(image); err != nil {
		return err
	}
	m.log.Info().Int64("offset", image.Next()).Int64("epoch", image.Epoch()).Int("records", image.Len()).Dur("dur", time.Since(began)).
		Msg("image rebuilt from the record znodes")
	return nil
}

// WriteLeader implements zkmeta.Role.
func (m *member) WriteLeader(ctx context.Context, epoch int64) error {
	m.mu.Lock()
	t := m.term
	m.mu.Unlock()
	if t == nil {
		return errors.New("controller: the term is over before it began")
	}
	l, err := m.c.openEpoch(ctx, metalog.WriterConfig{
		Device: t.device, Image: m.files.image, Cluster: m.cluster,
		BatchSize: zkmeta.BatchSize, BatchBytesMax: zkmeta.BatchBytesMax,
	}, m.files.keeper, epoch)
	if err != nil {
		m.check(err)
		return err
	}
	l.lasts = func() bool { return m.elector.Leading(epoch) }
	m.mu.Lock()
	defer m.mu.Unlock()
	t.leadership = l
	t.writer.Store(l.writer)
	m.files.image = nil // the writer has it
	return nil
}

// StartLeading implements zkmeta.Role.
func (m *member) StartLeading(epoch int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.term
	if t == nil || t.leadership == nil || t.leadership.epoch != epoch {
		return
	}
	m.seen = m.c.url
	var ctx context.Context
	ctx, t.stop = context.WithCancel(context.Background())
	t.ended = make(chan struct{})
	go func() {
		defer close(t.ended)
		err := t.leadership.serve(ctx)
		if err != nil {
			m.check(err)
			m.log.Warn().Err(err).Int64("epoch", epoch).Msg("the writer is poisoned; leadership is laid down, and the next leader finds the truth in ZooKeeper")
			m.elector.Resign(m.ctx, epoch, "the writer is poisoned")
		}
	}()
}

// StepDown implements zkmeta.Role. Nothing of the term is left only after Follow.
func (m *member) StepDown(epoch int64, why string) {
	m.log.Info().Int64("epoch", epoch).Str("why", why).Msg("stepping down")
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seen == m.c.url {
		m.seen = ""
	}
	if t := m.term; t != nil && t.stop != nil {
		t.stop()
	}
}

// Follow implements zkmeta.Role.
func (m *member) Follow(context.Context) {
	m.endTerm()
	m.follow()
}

// endTerm waits until nothing of a term is left, and takes the log back from it.
func (m *member) endTerm() {
	m.mu.Lock()
	t := m.term
	m.mu.Unlock()
	if t == nil {
		return
	}
	image := m.files.image
	if l := t.leadership; l != nil {
		if t.stop == nil { // won too late
			l.stop()
			<-l.failed
		} else {
			t.stop()
			<-t.ended
		}
		image = l.writer.Image()
	}
	if err := m.files.resume(image); err != nil {
		m.fail(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.term = nil
}

// check ends the process over a log whose state is unknown.
func (m *member) check(err error) {
	if errors.Is(err, metalog.ErrPoisoned) && isFinal(err) {
		m.fail(fmt.Errorf("controller: the log of %s: %w", m.c.cfg.Data, err))
	}
}
