package sim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/zkmeta"
)

// zooKeeperKeeper is the shell of a controller's election, and its client of
// ZooKeeper. The metadata is there; the controller's own log follows it.
type zooKeeperKeeper struct {
	s *simController
	z *zookeeper

	// Of a life.
	election  *zkmeta.Election
	image     *meta.Image // of the controller's own log, or of who follows
	following *follower   // nil while it leads or takes over
	term      *zkTerm     // of the WriteLeader that is under way or has won
	reader    int         // who reads entries now; a newer one replaces it

	// The client.
	session   int64 // 0: none yet, or none any more
	conn      int64 // the connection, or the attempt at one
	connected bool
	requests  int64    // on this connection
	unsent    []func() // while there is none
}

// zkTerm is an attempt to lead, and the leadership if it succeeds.
type zkTerm struct {
	try     uint64
	epoch   int64
	version int32 // of the head, for the next batch
	asked   bool  // its Leader batch was sent
	leads   bool
}

func newZooKeeperKeeper(s *simController) keeper { return &zooKeeperKeeper{s: s, z: s.c.zk} }

func (k *zooKeeperKeeper) boot() {
	*k = zooKeeperKeeper{s: k.s, z: k.z}
	k.s.after(k.s.c.w.between(10*time.Millisecond, time.Second), "opens its log", k.open)
}

// stop leaves the session to expire.
func (k *zooKeeperKeeper) stop() {}

func (k *zooKeeperKeeper) mayAnswer() bool {
	return k.election != nil && k.election.Leading(k.s.mono())
}

func (k *zooKeeperKeeper) open() {
	s := k.s
	image, err := s.openLog()
	switch {
	case s.disk.off:
		return
	case err != nil && s.disk.full:
		s.after(time.Second, "opens its log", k.open)
		return
	case err != nil && (s.hadPowerCut || len(s.disk.rotted) > 0):
		// Of several batches that were being stored a power cut can leave a later one
		// and not an earlier. It is a copy of what ZooKeeper has: begun anew.
		s.c.w.count.outcomes["log of a standby set aside"]++
		if err := k.setAside(); err == nil {
			k.open()
		} else if !s.disk.off {
			k.broken(err)
		}
		return
	case err != nil:
		s.c.w.fail("I5", "%s cannot open its log: %v", s.name, err)
		return
	}
	// It holds only what ZooKeeper had acknowledged.
	s.c.check.recovered(s.files, image)
	s.files.keep(nil)
	k.image = image
	k.election = zkmeta.NewElection(zkmeta.ElectionConfig{Controller: s.name, BootID: s.c.uuid(), SessionTimeout: sessionTimeout})
	k.hint()
	k.connect()
	k.follow()
	k.tick()
	k.keepAlive()
}

// setAside puts log and snapshots out of the way (internal/controller, localLog).
func (k *zooKeeperKeeper) setAside() error {
	disk := k.s.disk
	for _, dir := range []string{"log", metalog.SnapshotsDir} {
		aside := dir + ".corrupt"
		if err := disk.fs.RemoveAll(aside); err != nil {
			return err
		}
		if err := disk.fs.Rename(dir, aside); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	disk.sound("log")
	disk.sound(metalog.SnapshotsDir)
	return disk.fs.SyncDir(".")
}

// broken ends the process, whose log is in an unknown state, as a failed fsync does.
func (k *zooKeeperKeeper) broken(err error) {
	s := k.s
	if s.disk.off {
		return
	}
	if !s.disk.full {
		s.c.w.fail("I5", "%s cannot write its log: %v", s.name, err)
	}
	s.c.w.count.outcomes["controller ends over its log"]++
	s.kill(false)
	s.c.rebootLater(&s.process, time.Second)
}

// hint says who leads to those who ask here, as the image knows it.
func (k *zooKeeperKeeper) hint() {
	s := k.s
	l := k.image.Leader()
	if l == nil || s.standing.Leading || l.Epoch < s.standing.Epoch {
		return
	}
	st := metalog.Standing{Cluster: k.image.Cluster().ID, Epoch: l.Epoch, URL: l.URL}
	if l.Controller == s.name {
		st.URL = "" // it was this one
	}
	s.stand(st)
}

// The election.

func (k *zooKeeperKeeper) tick() {
	k.s.after(sessionTimeout/10, "election tick", func() {
		k.step(zkmeta.ElectionTick{})
		k.tick()
	})
}

// step hands the election an event and carries out what it says.
func (k *zooKeeperKeeper) step(ev zkmeta.ElectionEvent) {
	before := k.election.State()
	actions := k.election.Step(k.s.mono(), ev)
	k.s.c.edge("election", before.String(), k.election.State().String())
	for _, a := range actions {
		k.act(a)
	}
	if takesOver(before) && !takesOver(k.election.State()) {
		k.endTerm()
		k.s.after(k.s.c.w.between(0, 50*time.Millisecond), "follows", k.follow)
	}
}

// takesOver tells the states in which a controller has a term or is about to have one
// (zkmeta, Elector).
func takesOver(s zkmeta.ElectionState) bool {
	return s == zkmeta.CatchingUp || s == zkmeta.WritingLeader || s == zkmeta.Leading
}

// endTerm ends what is left of a term, and of a take-over.
func (k *zooKeeperKeeper) endTerm() {
	k.reader++
	k.term = nil
	k.s.layDown(errors.New("sim: the term is over"))
}

func (k *zooKeeperKeeper) act(a zkmeta.ElectionAction) {
	z := k.z
	switch a := a.(type) {
	case zkmeta.CreateCandidate:
		zkAsk(k, "zk create", func(s *zkSession) string { return z.create(s, a.Prefix) },
			func(name string, err error) { k.step(zkmeta.CandidateCreated{Try: a.Try, Name: name, Err: err}) })
	case zkmeta.DeleteCandidate:
		zkAsk(k, "zk delete", func(*zkSession) bool { z.remove(a.Name); return true },
			func(_ bool, err error) { k.step(zkmeta.CandidateDeleted{Try: a.Try, Err: err}) })
	case zkmeta.ListCandidates:
		zkAsk(k, "zk list", func(*zkSession) []string { return z.list() },
			func(names []string, err error) { k.step(zkmeta.Candidates{Try: a.Try, Names: names, Err: err}) })
	case zkmeta.WatchCandidate:
		k.watch(a)
	case zkmeta.ReadHead:
		zkAsk(k, "zk head", func(*zkSession) zkmeta.HeadRead {
			return zkmeta.HeadRead{Try: a.Try, Head: z.head, Version: z.version}
		}, func(read zkmeta.HeadRead, err error) {
			read.Try, read.Err = a.Try, err
			k.step(read)
		})
	case zkmeta.CatchUp:
		k.catchUp(a)
	case zkmeta.WriteLeader:
		k.writeLeader(a)
	case zkmeta.StartLeading:
		if k.term != nil && k.term.try == a.Try {
			k.term.leads = true
			k.s.c.w.count.outcomes["election won"]++
			k.checkAlone()
		}
	case zkmeta.StepDown:
		k.term = nil
		k.s.c.w.count.outcomes["stepped down: "+a.Why]++
		k.s.layDown(errors.New(a.Why))
	case zkmeta.Ping:
		k.ping()
	}
}

// cutShort reports whether the session ended, or its candidate went, before its time:
// until the controller learns of it two may answer, and only what they write is
// fenced.
func (k *zooKeeperKeeper) cutShort() bool { return k.z.cutShort[k.session] }

// checkAlone: whoever led before has stopped to answer by the time that another
// leads, unless its candidate went before its time.
func (k *zooKeeperKeeper) checkAlone() {
	for _, o := range k.s.c.controllers {
		other := o.keeper.(*zooKeeperKeeper)
		if other != k && o.up && other.mayAnswer() && !other.cutShort() {
			k.s.c.w.fail("I4", "%s leads epoch %d, and %s still answers for epoch %d", k.s.name, k.election.Epoch(), o.name, other.election.Epoch())
		}
	}
}

func (k *zooKeeperKeeper) watch(a zkmeta.WatchCandidate) {
	life, session := k.s.life, k.session
	fire := func() {
		if k.s.life == life && k.session == session {
			k.step(zkmeta.CandidateGone{Try: a.Try, Name: a.Name})
		}
	}
	zkAsk(k, "zk watch set", func(s *zkSession) bool { return k.z.watch(s, a.Name, fire) },
		func(there bool, err error) {
			if err != nil || !there {
				k.step(zkmeta.CandidateGone{Try: a.Try, Name: a.Name, Err: err})
			}
		})
}

// position is where the image stands, in the terms of a head.
func (k *zooKeeperKeeper) position() zkmeta.Head {
	return zkmeta.Head{Offset: max(k.image.Next()-1, 0), Epoch: k.image.Epoch(), Term: k.image.LastTerm()}
}

func (k *zooKeeperKeeper) catchUp(a zkmeta.CatchUp) {
	k.endTerm()
	if !k.pause() {
		return
	}
	k.read(func() bool { return k.position().Offset >= a.To.Offset && k.image.Epoch() >= a.To.Epoch }, func(err error) {
		at := k.position()
		if err == nil && at.Offset == a.To.Offset && at != a.To {
			k.s.c.w.fail("I5", "%s stands at %+v, and the head is %+v", k.s.name, at, a.To)
		}
		k.step(zkmeta.CaughtUp{Try: a.Try, Offset: at.Offset, Epoch: at.Epoch, Err: err})
	})
}

var errBehind = errors.New("sim: ZooKeeper has no more entries")

// tail are entries as they were read.
type tail struct {
	batches []*meta.Batch
	trimmed bool // it does not reach back so far any more
}

// read brings the controller's own log, and the image, up to where enough says: by the
// entries in ZooKeeper or, if they do not reach back so far, by the record znodes.
func (k *zooKeeperKeeper) read(enough func() bool, done func(error)) {
	k.reader++
	me := k.reader
	var next func()
	next = func() {
		if enough() {
			done(nil)
			return
		}
		from := k.image.Next()
		zkAsk(k, "zk read", func(*zkSession) tail { return tail{k.z.read(from), from < k.z.gone} }, func(t tail, err error) {
			switch {
			case k.reader != me:
			case err != nil:
				done(err)
			case t.trimmed:
				k.rebuild(me, next, done)
			case len(t.batches) == 0:
				done(errBehind)
			default:
				k.s.after(k.s.c.w.between(time.Millisecond, 20*time.Millisecond), "log follows", func() {
					if k.reader == me && k.take(t.batches) {
						next()
					}
				})
			}
		})
	}
	next()
}

// rebuild makes the image from the record znodes, and begins the log here after it. That
// they are the image is not modelled: reading them gives it.
func (k *zooKeeperKeeper) rebuild(me int, next func(), failed func(error)) {
	zkAsk(k, "zk rebuild", func(*zkSession) *meta.Image { return k.s.c.check.image }, func(im *meta.Image, err error) {
		switch {
		case k.reader != me:
		case err != nil:
			failed(err)
		default:
			k.s.after(k.s.c.w.between(20*time.Millisecond, 500*time.Millisecond), "image rebuilt", func() {
				if k.reader != me {
					return
				}
				err := k.restart(im)
				switch {
				case k.s.disk.off:
				case errors.Is(err, metalog.ErrPoisoned):
					k.broken(err)
				case err != nil:
					failed(err)
				default:
					next()
				}
			})
		}
	})
}

// restart begins the log anew after an image that was rebuilt (internal/controller,
// localLog).
func (k *zooKeeperKeeper) restart(im *meta.Image) error {
	files := k.s.files
	files.rest()
	k.s.disk.restarting = true
	files.endanger()
	err := func() error {
		for _, ref := range files.snaps.List() {
			if err := files.snaps.SetAside(ref.SnapshotID); err != nil {
				return err
			}
		}
		ref, err := files.snaps.Write(context.Background(), im)
		if err == nil {
			err = files.log.Reset(metalog.Position{Offset: im.Next(), LastEpoch: im.Epoch(), LastTerm: im.LastTerm()})
		}
		if err == nil {
			k.s.c.check.written(files, ref)
		}
		return err
	}()
	if k.s.disk.off {
		return err
	}
	files.keep(nil)
	k.s.c.check.setAside(files)
	if err == nil {
		k.s.disk.restarting = false
		k.image = im
		k.s.c.w.count.outcomes["image rebuilt from the record znodes"]++
		k.s.c.check.connected(files)
		k.hint()
	}
	return err
}

// take writes acknowledged batches to the controller's own log.
func (k *zooKeeperKeeper) take(batches []*meta.Batch) bool {
	s := k.s
	entries := make([]metalog.Entry, len(batches))
	var err error
	for i, b := range batches {
		if entries[i], err = metalog.NewEntry(b); err != nil {
			s.c.w.fail("I5", "batch %d of ZooKeeper has no frame: %v", b.Offset, err)
			return false
		}
	}
	if err = s.files.log.AppendEntries(context.Background(), entries); err != nil {
		k.broken(err)
		return false
	}
	image, err := metalog.Replay(s.files.log, k.image)
	if err != nil {
		s.c.w.fail("I5", "%s cannot replay its own log: %v", s.name, err)
		return false
	}
	s.c.check.same(s.name, image)
	k.image = image
	k.hint()
	return true
}

// Following.

// follow follows the leader's log until pause.
func (k *zooKeeperKeeper) follow() {
	s := k.s
	if k.following != nil || takesOver(k.election.State()) {
		return
	}
	f := newFollower(&s.process, s.c, s.files, s.c.clusterID, k.image)
	f.find = k.findLeader
	f.deliver = k.delivered
	f.holders = func() []*holder { return s.c.nodesOf(k.image, "") }
	k.following = f
	f.step(metalog.FollowStart{})
}

// pause ends the following: the log is the caller's until follow. False: the process
// ends over it.
func (k *zooKeeperKeeper) pause() bool {
	f := k.following
	if f == nil {
		return true
	}
	f.over = true
	k.following = nil
	return k.resume(f.machine.Image())
}

// resume takes the log back from who followed and had that image last. What was stored
// since makes it the wrong one, and so does a snapshot that the log was begun anew after.
func (k *zooKeeperKeeper) resume(image *meta.Image) bool {
	files, err := k.s.files, error(nil)
	if image.Next() <= files.log.End() && image.Next() >= files.log.Start() {
		k.image, err = metalog.Replay(files.log, image)
	} else {
		k.s.c.w.count.outcomes["snapshots: log taken back after it was reset"]++
		files.rest()
		k.image, err = metalog.Recover(files.log, files.snaps, zerolog.Nop())
		files.keep(nil)
	}
	switch {
	case k.s.disk.off:
		return false
	case err != nil && len(k.s.disk.rotted) == 0 && !k.s.disk.full:
		k.s.c.w.fail("I5", "%s cannot take its log back: %v", k.s.name, err)
		return false
	case err != nil:
		k.s.c.w.count.outcomes["controller ends over its log"]++
		k.s.kill(false)
		k.s.c.rebootLater(&k.s.process, time.Second)
		return false
	}
	k.s.c.check.same(k.s.name, k.image)
	return true
}

// findLeader reads who leads from ZooKeeper.
func (k *zooKeeperKeeper) findLeader(done func(metalog.LeaderRef, error)) {
	s := k.s
	zkAsk(k, "zk leader", func(*zkSession) metalog.LeaderRef { return k.z.leader }, func(l metalog.LeaderRef, err error) {
		if err == nil && (l.URL == "" || l.URL == s.url()) {
			err = errNotLeading
		}
		if err == nil && l.Epoch > s.standing.Epoch && !s.standing.Leading {
			s.stand(metalog.Standing{Cluster: s.c.clusterID, Epoch: l.Epoch, URL: l.URL})
		}
		done(l, err)
	})
}

// delivered takes a newer image from the follower.
func (k *zooKeeperKeeper) delivered(im *meta.Image, _ []meta.Key) {
	k.s.c.check.same(k.s.name, im)
	k.image = im
	k.hint()
}

// Leading.

// writeLeader has a writer made, whose first batch opens the epoch.
func (k *zooKeeperKeeper) writeLeader(a zkmeta.WriteLeader) {
	s := k.s
	k.term = nil
	s.layDown(errors.New("sim: superseded")) // an attempt that nobody waits for
	k.reader++
	k.term = &zkTerm{try: a.Try, epoch: a.Epoch, version: a.Version}
	s.lead(k.image, a.Epoch, s.c.uuid())
}

// append sends the batch on the condition that nobody else wrote since, and writes
// it to the controller's own log once it is acknowledged.
func (k *zooKeeperKeeper) append(b *meta.Batch, done func(error)) {
	t, sentAt, session := k.term, k.s.mono(), k.session
	if t == nil {
		done(errNotLeading)
		return
	}
	opens, version := !t.asked, t.version
	t.asked = true
	zkAsk(k, "zk multi", func(*zkSession) zkmeta.Outcome { return k.z.multi(version, b) }, func(o zkmeta.Outcome, err error) {
		if err != nil {
			o = zkmeta.Unknown
		}
		if opens {
			k.step(zkmeta.LeaderWritten{Try: t.try, Outcome: o, Err: err})
		} else if err == nil {
			k.step(zkmeta.Ponged{Session: session, SentAt: sentAt})
		}
		switch {
		case o != zkmeta.Written:
			k.s.c.w.count.outcomes["append not acknowledged"]++
			done(fmt.Errorf("sim: append of batch %d: outcome %d: %w", b.Offset, o, err))
		case k.term != t || !t.leads:
			k.s.c.w.count.outcomes["append acknowledged too late"]++
			done(errNotLeading)
		default:
			t.version = version + 1
			k.s.after(k.s.c.w.between(time.Millisecond, 20*time.Millisecond), "log written", func() { k.written(t, b, done) })
		}
	})
}

func (k *zooKeeperKeeper) written(t *zkTerm, b *meta.Batch, done func(error)) {
	switch {
	case k.term != t:
		done(errNotLeading)
	case k.take([]*meta.Batch{b}):
		done(nil)
	}
}

// laidDown tells the election that the writer has stopped, if it does not know.
func (k *zooKeeperKeeper) laidDown(err error) {
	t := k.term
	k.term = nil
	switch {
	case t == nil:
	case t.leads:
		k.s.c.w.trace.note(k.s.c.w.now, k.s.name+" resigns: "+err.Error())
		k.step(zkmeta.Resign{Epoch: t.epoch, Why: "the writer is poisoned"})
	case !t.asked:
		k.step(zkmeta.LeaderWritten{Try: t.try, Outcome: zkmeta.Unknown, Err: err})
	}
}
