package sim

import (
	"context"
	"errors"
	"math/rand"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
)

// follower is the shell of a follower of the leader's log (metalog.Follower): that of a
// node, and that of a controller which does not lead.
type follower struct {
	p       *process
	c       *cluster
	files   *metadata
	machine *metalog.FollowerMachine

	find    func(done func(metalog.LeaderRef, error))
	deliver func(im *meta.Image, touched []meta.Key)
	// holders are those who may have a snapshot, beside the leader.
	holders func() []*holder

	over        bool  // it was stopped: what it has begun ends without it
	noDownloads bool  // nothing is left of a download
	replaced    int64 // where the image stands that a snapshot is to replace
}

func newFollower(p *process, c *cluster, files *metadata, cluster uuid.UUID, image *meta.Image) *follower {
	f := &follower{p: p, c: c, files: files}
	f.machine = metalog.NewFollowerMachine(
		metalog.FollowTiming{Poll: 5 * time.Second, BackOffMin: 100 * time.Millisecond, BackOffMax: 5 * time.Second},
		rand.New(rand.NewSource(c.w.rnd.Int63())), cluster, files.log.Position(), image)
	f.machine.FetchesSnapshots()
	return f
}

// after is process.after, until the follower is stopped.
func (f *follower) after(d time.Duration, label string, do func()) {
	f.p.after(d, label, func() {
		if !f.over {
			do()
		}
	})
}

// step hands the machine an event and carries out what it says.
func (f *follower) step(ev metalog.FollowEvent) {
	if f.over {
		return
	}
	before := f.machine.Status().State
	actions := f.machine.Step(f.p.mono(), ev)
	f.c.edge("follower", string(before), string(f.machine.Status().State))
	for _, a := range actions {
		f.act(a)
	}
}

func (f *follower) act(a metalog.FollowAction) {
	w := f.c.w
	switch a := a.(type) {
	case metalog.FindLeader:
		f.find(func(l metalog.LeaderRef, err error) {
			if err != nil {
				f.step(metalog.LeaderNotFound{Err: err})
				return
			}
			f.step(metalog.LeaderFound{Leader: l})
		})
	case metalog.FetchLog:
		f.fetchLog(a)
	case metalog.StoreEntries:
		f.after(w.between(0, 10*time.Millisecond), "log stored", func() {
			err := f.files.log.AppendEntries(context.Background(), a.Entries)
			if f.broken(err) {
				return
			}
			if err == nil {
				f.dropDownloads()
			}
			f.step(metalog.Stored{Err: err})
		})
	case metalog.TruncateLog:
		f.after(w.between(0, 10*time.Millisecond), "log truncated", func() {
			err := f.files.log.Truncate(a.To)
			if !f.broken(err) {
				f.step(metalog.Truncated{To: a.To, Err: err})
			}
		})
	case metalog.FetchSnapshot:
		f.noDownloads = false
		f.fetchSnapshot(a, func(im *meta.Image, err error) {
			f.after(w.between(0, 10*time.Millisecond), "snapshot taken", func() {
				f.step(metalog.SnapshotFetched{Image: im, Err: err})
			})
		})
	case metalog.ResetLog:
		f.after(w.between(0, 10*time.Millisecond), "log reset", func() { f.reset(a.To) })
	case metalog.CutSnapshot:
		f.files.cut(a.Image)
	case metalog.WaitUntil:
		f.after(a.At-f.p.mono(), "follower goes on", func() { f.step(metalog.FollowTick{}) })
	case metalog.DeliverImage:
		if a.Touched == nil { // it is that of a snapshot
			if f.replaced > 0 {
				f.c.w.count.outcomes["snapshots: image replaced by a later one"]++
			}
			f.c.check.sameState(f.p.name, a.Image)
		}
		f.deliver(a.Image, a.Touched)
	}
}

// reset begins the log anew. The machine hears of it in an event of its own, so that the
// following may end in between.
func (f *follower) reset(to metalog.Position) {
	f.c.check.resetting(f.files, to)
	f.replaced = f.machine.Image().Next()
	f.files.endanger()
	err := f.files.log.Reset(to)
	if f.broken(err) {
		return
	}
	if err == nil {
		f.c.w.count.outcomes["snapshots: log reset"]++
		f.c.check.connected(f.files)
	}
	f.after(f.c.w.between(0, 500*time.Millisecond), "log was reset", func() { f.step(metalog.LogReset{Err: err}) })
}

// broken ends the process if the state of the log is not known, as the real shells do.
func (f *follower) broken(err error) bool {
	if f.p.disk.off {
		return true
	}
	if errors.Is(err, metalog.ErrPoisoned) || errors.Is(err, metalog.ErrClosed) {
		f.p.kill(false)
		f.c.rebootLater(f.p, time.Second)
		return true
	}
	return false
}

// dropDownloads lets go of a snapshot that is half here, once the log goes on without it.
func (f *follower) dropDownloads() {
	if f.noDownloads {
		return
	}
	dropped, err := f.files.snaps.DropDownloads("")
	f.c.w.count.outcomes["snapshots: download dropped, the log goes on"] += int64(dropped)
	f.noDownloads = err == nil
}

func (f *follower) fetchLog(a metalog.FetchLog) {
	to := f.c.controllerAt(a.URL)
	if to == nil {
		f.step(metalog.FetchFailed{Err: errNoAnswer})
		return
	}
	call(f.c.net, f.p, &to.process, "fetch log", a.Query.MaxWait+10*time.Second,
		func(reply func(answered[metalog.FetchAnswer])) { to.fetch(a.Query, reply) },
		func(r answered[metalog.FetchAnswer], err error) {
			switch {
			case err != nil:
				f.step(metalog.FetchFailed{Err: err})
			case r.code != "":
				f.step(metalog.FetchFailed{Code: r.code, Err: errors.New(r.code)})
			default:
				f.step(metalog.Fetched{FetchAnswer: r.body})
			}
		})
}
