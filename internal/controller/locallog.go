package controller

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/internal/snapshots"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/zkmeta"
)

// localLog is the log in a controller's data directory, with the image of it and its
// snapshots. In embedded mode it is the metadata. A member's holds what ZooKeeper had
// acknowledged, so it can be begun anew at any time.
type localLog struct {
	c     *Controller // nil for a migration, which keeps no snapshots
	fs    vfs.FS
	opts  metalog.LogOptions
	log   *metalog.Log
	snaps *metalog.Snapshots
	image *meta.Image
	// original: it is the metadata, and no copy of what is elsewhere.
	original bool
	cluster  uuid.UUID // that it is a copy of; zero if the log is what says it
	keeper   *snapshots.Keeper
	idle     func() // ends what the keeper does by itself, and waits for that; nil: it does nothing
}

// localLogDir is where the log is, snapshotsDir where its snapshots are.
const (
	localLogDir  = "log"
	snapshotsDir = "snapshots"
)

func newLocalLog(c *Controller) *localLog {
	return &localLog{c: c, fs: c.fs, opts: metalog.LogOptions{Dir: localLogDir, Logger: c.root, Metrics: c.logs}}
}

// openLocalLog opens the log of a member. One that is damaged is set aside; one of
// another cluster is refused.
func openLocalLog(c *Controller, cluster uuid.UUID) (*localLog, error) {
	l := newLocalLog(c)
	l.cluster = cluster
	err := l.open()
	if err != nil && isDamage(err) {
		c.log.Error().Err(err).Msg("the log here is damaged; it is set aside and begun anew from ZooKeeper")
		if err := l.setAside(); err != nil {
			return nil, err
		}
		err = l.open()
	}
	if err != nil {
		return nil, err
	}
	if found := l.image.Cluster(); found != nil && found.ID != cluster {
		return nil, errors.Join(fmt.Errorf("controller: %s holds the log of cluster %s, and in %s there is cluster %s: use another directory, or mend the address",
			c.cfg.Data, found.ID, c.cfg.Metadata, cluster), l.close())
	}
	l.keep()
	return l, nil
}

// isDamage tells a log that cannot be used from a disk that cannot be read.
func isDamage(err error) bool {
	var (
		damage    *metalog.CorruptionError
		format    *metalog.FormatError
		missing   *metalog.SnapshotMissingError
		invariant *meta.InvariantError
	)
	return errors.As(err, &damage) || errors.As(err, &format) || errors.As(err, &missing) || errors.As(err, &invariant) ||
		errors.Is(err, meta.ErrMalformed)
}

func (l *localLog) open() (err error) {
	if l.snaps, err = metalog.OpenSnapshots(l.fs, snapshotsDir, l.opts.Logger); err != nil {
		return err
	}
	if l.cluster != uuid.Nil {
		if err := l.snaps.SetAsideOthers(l.cluster); err != nil {
			return err
		}
	}
	if l.log, err = metalog.OpenLog(l.fs, l.opts); err != nil {
		return err
	}
	recover := metalog.Recover
	if l.original {
		recover = metalog.RecoverOriginal
	}
	if l.image, err = recover(l.log, l.snaps, l.opts.Logger); err != nil {
		return errors.Join(err, l.log.Close())
	}
	return nil
}

// refused says what to do about an original that cannot be used.
func (l *localLog) refused(err error) error {
	if !isDamage(err) {
		return err
	}
	return fmt.Errorf("controller: the metadata in %s cannot be used: %w; shoal metadata verify --from-dir %[1]s tells all that is damaged, and what to do",
		l.fs, err)
}

// keep has the snapshots kept, from now until rest.
func (l *localLog) keep() {
	l.keeper = snapshots.NewKeeper(l.c.shared, l.log, l.snaps, nil)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.keeper.Run(ctx)
	}()
	l.idle = func() {
		stop()
		<-ended
	}
	l.c.keeper.Store(l.keeper)
}

// rest ends that: nothing is written here but by the caller. What is there is served all
// the same.
func (l *localLog) rest() {
	if l.idle != nil {
		l.idle()
		l.idle = nil
	}
}

// alone does what changes the log from under the keeper, without it. Another one takes
// over afterwards, as what the first was asked for may be of another history.
func (l *localLog) alone(do func() error) error {
	if l.idle != nil {
		l.rest()
		defer l.keep()
	}
	return do()
}

// setAside keeps what is left for whoever wants to know what happened; one of each is
// enough.
func (l *localLog) setAside() error {
	for _, dir := range []string{localLogDir, snapshotsDir} {
		aside := dir + ".corrupt"
		if err := l.fs.RemoveAll(aside); err != nil {
			return fmt.Errorf("controller: set aside %s: %w", dir, err)
		}
		if err := l.fs.Rename(dir, aside); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("controller: set aside %s: %w", dir, err)
		}
	}
	return l.fs.SyncDir(".")
}

// errContradiction says that the log here and ZooKeeper tell two histories.
var errContradiction = errors.New("controller: the log here contradicts ZooKeeper")

// tailBytes is how much of the tail is read at once.
const tailBytes = 4 << 20

// readTail brings the log and its image to the head, from the tail in ZooKeeper.
func (l *localLog) readTail(ctx context.Context, conn *zkmeta.Conn, to zkmeta.TailHead) error {
	for l.image.Next() < to.Next() {
		frames, err := zkmeta.ReadTail(ctx, conn, to, l.image.Next(), tailBytes)
		if err != nil {
			return err
		}
		entries, err := metalog.DecodeEntries(frames)
		if err != nil {
			return err
		}
		image := l.image
		for _, e := range entries {
			if image, err = image.Apply(e.Batch); err != nil {
				return fmt.Errorf("%w: %w", errContradiction, err)
			}
		}
		if err := l.log.AppendEntries(ctx, entries); err != nil {
			return err
		}
		l.image = image
	}
	return l.contradicts(to)
}

// contradicts returns an error if the log stands where the head does and is another.
func (l *localLog) contradicts(head zkmeta.TailHead) error {
	at, im := head.Head(), l.image
	if im.Next() == head.Next() && im.Next() > 0 && (im.Epoch() != at.Epoch || im.LastTerm() != at.Term) {
		return fmt.Errorf("%w: batch %d is of epoch %d, term %s here, and of epoch %d, term %s there",
			errContradiction, at.Offset, im.Epoch(), im.LastTerm(), at.Epoch, at.Term)
	}
	return nil
}

// restart begins the log anew after an image that was rebuilt.
func (l *localLog) restart(image *meta.Image) error {
	return l.alone(func() error {
		for _, ref := range l.snaps.List() {
			if err := l.snaps.SetAside(ref.SnapshotID); err != nil {
				return err
			}
		}
		if image.Next() > 0 {
			if _, err := l.snaps.Write(context.Background(), image); err != nil {
				return err
			}
		}
		at := metalog.Position{Offset: image.Next(), LastEpoch: image.Epoch(), LastTerm: image.LastTerm()}
		if err := l.log.Reset(at); err != nil {
			return err
		}
		l.image = image
		return nil
	})
}

// resume takes the log back from whoever wrote to it and had that image last. What
// was acknowledged and not written here makes that image the wrong one, and so does a
// snapshot that the log was begun anew after.
func (l *localLog) resume(image *meta.Image) (err error) {
	if image != nil && image.Next() <= l.log.End() && image.Next() >= l.log.Start() {
		l.image, err = metalog.Replay(l.log, image)
		return err
	}
	return l.alone(func() error {
		l.image, err = metalog.Recover(l.log, l.snaps, l.opts.Logger)
		return err
	})
}

func (l *localLog) close() error {
	l.rest()
	if l.c != nil {
		l.c.keeper.CompareAndSwap(l.keeper, nil)
	}
	return l.log.Close()
}
