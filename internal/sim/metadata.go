package sim

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
)

// metadata is the log on a process's own disk with the snapshots beside it: a
// controller's own log, a node's cache. The files are real; what
// internal/snapshots.Keeper does in goroutines, for the whole time that the log is
// open, is done in events.
type metadata struct {
	p     *process
	c     *cluster
	dir   string // of the log
	log   *metalog.Log
	snaps *metalog.Snapshots

	// Of whoever keeps the snapshots, from keep on.
	applied func() int64 // of the local consumer; nil: all that is in the log
	shotter *metalog.Snapshotter
	keeper  int  // the number of keepers so far: what an earlier one has begun is over
	making  bool // a snapshot waits for its turn
	// owed is the last snapshot that was asked for and must come. A disk that was full
	// ends that.
	owed metalog.SnapshotID
}

// logFileBytes is small, so that files are rolled.
const logFileBytes = 8 << 10

func (m *metadata) logOptions() metalog.LogOptions {
	return metalog.LogOptions{Dir: m.dir, FileBytes: logFileBytes, Logger: zerolog.Nop(), Metrics: m.c.logMetrics}
}

// open opens both, as a controller does (internal/controller, localLog), and returns the
// image at the end of the log.
func (m *metadata) open() (image *meta.Image, err error) {
	if m.snaps, err = metalog.OpenSnapshots(m.p.disk.fs, "", zerolog.Nop()); err != nil {
		return nil, err
	}
	if m.log, err = metalog.OpenLog(m.p.disk.fs, m.logOptions()); err != nil {
		return nil, err
	}
	return metalog.Recover(m.log, m.snaps, zerolog.Nop())
}

// openCache opens both as a node does: what cannot be used is set aside.
func (m *metadata) openCache() (image *meta.Image, err error) {
	o := m.logOptions()
	m.log, m.snaps, image, err = metalog.OpenCache(metalog.FollowerConfig{
		FS: m.p.disk.fs, Dir: o.Dir, SnapshotsDir: metalog.SnapshotsDir, FileBytes: o.FileBytes, Logger: o.Logger, Metrics: o.Metrics,
	})
	return image, err
}

// keep has snapshots made and let go of from now on.
func (m *metadata) keep(applied func() int64) {
	m.keeper++
	m.applied, m.making, m.owed = applied, false, metalog.SnapshotID{}
	m.shotter = metalog.NewSnapshotter(metalog.SnapshotterConfig{
		Log: m.log, Snapshots: m.snaps, Clock: m.p.wall, Logger: zerolog.Nop(), Metrics: m.c.logMetrics,
		Generation: m.c.plan.Generation, Retention: m.c.plan.SnapshotRetention, Applied: applied,
	})
	m.cleanEvery(m.keeper, m.c.w.between(0, time.Second))
}

// rest ends that. What is here is served all the same.
func (m *metadata) rest() {
	if m != nil {
		m.keeper++
	}
}

// snapshotsCleaned is how often old snapshots are looked at (metalog, cleanEvery).
const snapshotsCleaned = time.Minute

func (m *metadata) cleanEvery(keeper int, wait time.Duration) {
	m.p.after(wait, "snapshots looked at", func() {
		if m.keeper == keeper {
			m.clean()
			m.cleanEvery(keeper, snapshotsCleaned)
		}
	})
}

func (m *metadata) clean() {
	before := m.holdings()
	if len(before.pinned) > 0 && len(before.snapshots) > 2 {
		m.c.w.count.outcomes["snapshots: cleaned while one is being sent"]++
	}
	m.endanger()
	gone, err := m.shotter.Clean(context.Background())
	if m.p.disk.off {
		return
	}
	if err != nil {
		m.c.w.count.outcomes["snapshots: cleaning failed"]++
	}
	m.c.check.cleaned(m, before, gone, err)
}

// cut has a snapshot made of an image, after a while of the process's own.
func (m *metadata) cut(im *meta.Image) {
	m.shotter.Cut(im)
	m.owed = metalog.SnapshotID{EndOffset: im.Next(), Epoch: im.Epoch()}
	if m.making {
		return
	}
	m.making = true
	keeper := m.keeper
	m.p.after(m.c.w.between(0, m.c.plan.SnapshotJitter), "snapshot made", func() {
		if m.keeper == keeper {
			m.making = false
			m.make()
		}
	})
}

func (m *metadata) make() {
	m.endanger()
	ref, err := m.shotter.MakeNext(context.Background())
	switch {
	case m.p.disk.off:
		return
	case err != nil:
		m.c.w.count.outcomes["snapshots: not made"]++
		m.owed = metalog.SnapshotID{}
		if !m.p.disk.full {
			m.c.check.fail("snapshot", "%s cannot make a snapshot: %v", m.p.name, err)
		}
	case ref != nil:
		m.c.w.count.outcomes["snapshots: made"]++
		m.c.check.made(m, *ref)
	}
	m.clean()
}

// endanger has the power go in the middle of what is done next with snapshots, if a fault
// wants it.
func (m *metadata) endanger() {
	if n := m.p.disk.cutInSnapshots; n > 0 {
		m.p.disk.cutInSnapshots = 0
		m.c.down(m.p, true, n)
	}
}

// chunk is the answer to a request for a part of a snapshot.
type chunk struct {
	data []byte
	ref  metalog.SnapshotRef // as its server has it
}

// serve answers GET /metadata/snapshots/{id} (internal/snapshots, Server).
func (m *metadata) serve(q *metalog.SnapshotQuery, st metalog.Standing) answered[chunk] {
	held, ok := m.snaps.Get(q.ID)
	ref := &held
	if !ok {
		ref = nil
	}
	if code, _ := q.Refuse(st, false, ref); code != "" {
		return refused[chunk](code, st.URL)
	}
	if _, ok := m.snaps.Use(q.ID, m.p.wall()); !ok {
		return refused[chunk](metalog.CodeSnapshotNotFound, st.URL)
	}
	f, err := m.snaps.OpenFile(q.ID)
	if err != nil {
		return refused[chunk](metalog.CodeSnapshotNotFound, st.URL)
	}
	defer f.Close()
	data := make([]byte, min(q.MaxBytes, held.SizeBytes-q.Position))
	if _, err := f.ReadAt(data, q.Position); err != nil {
		return refused[chunk]("", "") // the connection breaks
	}
	return answered[chunk]{body: chunk{data: data, ref: held}}
}

// askWhenDue has the leader put a request for a snapshot into the log whenever one is due
// (metalog, Snapshotter.AskWhenDue).
func (s *simController) askWhenDue() {
	writer := s.writer
	s.after(s.c.plan.SnapshotAsk, "asks for a snapshot", func() {
		if s.writer != writer {
			return
		}
		due, err := s.files.shotter.IsDue()
		if s.disk.off {
			return
		}
		s.c.check.setAside(s.files) // it has read the newest one's header
		if err != nil {
			s.c.w.count.outcomes["snapshots: not known whether one is due"]++
		}
		if err == nil && due && s.leads() {
			s.c.w.count.outcomes["snapshots: asked for"]++
			s.submit(meta.SnapshotHere, func(metalog.Result, error) {})
		}
		s.askWhenDue()
	})
}
