package controller

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/internal/snapshots"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
)

// leadership is one epoch that this process leads, however it came to it.
type leadership struct {
	c      *Controller
	writer *metalog.Writer
	server *metalog.Server
	keeper *snapshots.Keeper // of the log
	epoch  int64
	stop   context.CancelFunc // of the writer
	failed chan error         // what its Run returned
	// lasts reports whether the leadership is still to be believed; nil: as long as
	// it is served.
	lasts func() bool
}

// openEpoch writes the first batch of an epoch and returns its leadership. The keeper's log
// is the one that is served. The error is that of the append.
func (c *Controller) openEpoch(ctx context.Context, cfg metalog.WriterConfig, keeper *snapshots.Keeper, epoch int64) (*leadership, error) {
	cfg.Leader = meta.Leader{Epoch: epoch, Term: uuid.New(), Controller: c.cfg.ID, URL: c.url}
	cfg.Clock = func() int64 { return time.Now().UnixMilli() }
	before := cfg.Image
	cfg.Committed = func(im *meta.Image, b *meta.Batch) {
		c.shell.news.committed(im, b)
		c.copyTimes.observe(before, im, b)
		before = im
		if b.SnapshotHere {
			keeper.Cut(im)
		}
	}
	cfg.Logger, cfg.Metrics = c.root, c.logs
	l := &leadership{
		c: c, epoch: epoch, keeper: keeper, failed: make(chan error, 1),
		writer: metalog.NewWriter(cfg),
		server: metalog.NewServer(metalog.ServerConfig{Log: keeper.Log, Snapshots: keeper.Named, Logger: c.root}),
	}
	// The writer outlives ctx until the machine has laid down its leadership.
	writing, stop := context.WithCancel(context.WithoutCancel(ctx))
	l.stop = stop
	go func() { l.failed <- l.writer.Run(writing) }()
	select {
	case <-l.writer.Ready():
		return l, nil
	case err := <-l.failed:
		stop()
		return nil, err
	}
}

// serve leads until ctx ends, and returns nil then, or until the writer fails.
func (l *leadership) serve(ctx context.Context) (err error) {
	defer l.stop()
	c := l.c
	im := l.writer.Image()
	l.server.SetStanding(metalog.Standing{Cluster: im.Cluster().ID, Epoch: l.epoch, URL: c.url, Leading: true})
	c.stand(l)
	c.shell.post(context.WithoutCancel(ctx), Lead{URL: c.url, Image: im})
	c.log.Info().Int64("epoch", l.epoch).Str("cluster", im.Cluster().ID.String()).Msg("leading")
	asking, stopAsking := context.WithCancel(ctx)
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		l.keeper.AskWhenDue(asking, func(ctx context.Context) error {
			_, err := l.writer.Submit(ctx, meta.SnapshotHere)
			return err
		})
	}()

	select {
	case err = <-l.failed:
	case <-ctx.Done():
		l.stop()
		err = <-l.failed
	}
	stopAsking()
	<-asked
	l.server.Shutdown()
	c.stand(nil)
	c.shell.post(context.WithoutCancel(ctx), Depose{})
	c.log.Info().Int64("epoch", l.epoch).Msg("not leading any more")
	return err
}

// stand says what this process's leadership is from now on.
func (c *Controller) stand(l *leadership) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.standing = l
}

// leading returns the leadership of this process, or an error.
func (c *Controller) leading() (*leadership, error) {
	c.mu.Lock()
	l := c.standing
	c.mu.Unlock()
	if l == nil || l.lasts != nil && !l.lasts() {
		return nil, ErrNotLeading
	}
	return l, nil
}

// stillLeads reports whether the leadership is the one that this process has now.
func (c *Controller) stillLeads(l *leadership) bool {
	now, err := c.leading()
	return err == nil && now == l
}

// submit has a function of the image written.
func (c *Controller) submit(ctx context.Context, fn meta.Func) (metalog.Result, error) {
	l, err := c.leading()
	if err != nil {
		return metalog.Result{}, err
	}
	return l.writer.Submit(ctx, fn)
}

// fenced lets a handler answer only while the leadership lasts under which it began:
// a leader that was paused, and is one no more, must not say anything as one. What it
// would have said is dropped, and the answer is NOT_LEADER.
func (c *Controller) fenced(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l, err := c.leading()
		if err != nil || l.lasts == nil {
			h.ServeHTTP(w, r) // it says itself that it does not lead, or cannot be deposed
			return
		}
		h.ServeHTTP(&fence{ResponseWriter: w, c: c, l: l}, r)
	})
}

// fence looks at the leadership once, before the first byte of the answer.
type fence struct {
	http.ResponseWriter
	c       *Controller
	l       *leadership
	decided bool
	closed  bool
}

func (f *fence) decide() {
	if f.decided {
		return
	}
	f.decided = true
	if f.closed = !f.c.stillLeads(f.l); f.closed {
		f.c.writeNotLeader(f.ResponseWriter)
	}
}

func (f *fence) WriteHeader(status int) {
	if f.decide(); !f.closed {
		f.ResponseWriter.WriteHeader(status)
	}
}

func (f *fence) Write(b []byte) (int, error) {
	if f.decide(); f.closed {
		return len(b), nil
	}
	return f.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (f *fence) Unwrap() http.ResponseWriter { return f.ResponseWriter }
