package sim

import (
	"bytes"
	"errors"
	"path"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/node"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/segment"
	"github.com/shoalstore/shoal/validation"
)

// simNode is the shell of a node: what internal/node does in goroutines, done in
// events. Its store and its cache of the log are real files on its disk.
type simNode struct {
	process
	c     *cluster
	zone  string
	class int // of builder: another class makes other bytes of the same rows
	// vanished: it never comes back. draining: an operator asked for it.
	vanished, draining bool
	lies               bool // it serves wrong bytes
	readsNothing       bool // its stream stalls, and it lags behind the others
	newDisk            bool // since it was last registered
	cannotBuild        bool // its builders refuse every row

	// rotted are copies that a fault has damaged; durableBefore is what was durable
	// when the last life ended. taken is the copy that is on its way out: if the power is
	// cut in the middle of that, nobody knows whether it is there.
	rotted        map[segment.Digest]bool
	taken         copyName
	releasing     map[meta.SegmentKey]bool
	durableBefore map[copyName]segment.Digest

	store     *segment.Store
	files     *metadata // the cache of the log
	follower  *follower
	machine   *node.Machine
	consumers map[meta.PartitionKey]*consumer
	image     *meta.Image

	bootID   uuid.UUID
	leader   string // URL of who led when last heard of
	standing nodeStanding
	beats    int64
	fetching map[meta.SegmentKey][]func() // who waits for a download of the segment
	asking   map[uint64]func(node.UploadTold)
	tickets  uint64
}

// nodeStanding is what the last answers of a leader said (internal/node, register.go).
type nodeStanding struct {
	incarnation, epoch, highWatermark int64
	registered                        bool
}

func newNode(c *cluster, name string) *simNode {
	n := &simNode{c: c, rotted: map[segment.Digest]bool{}}
	n.process = process{w: c.w, name: name, disk: newDisk(c.w), start: n.begin, stop: n.end}
	return n
}

func (n *simNode) url() string { return "http://" + n.name }

func (n *simNode) begin() {
	n.bootID, n.leader, n.standing, n.beats = n.c.uuid(), "", nodeStanding{}, 0
	n.consumers = map[meta.PartitionKey]*consumer{}
	n.fetching = map[meta.SegmentKey][]func(){}
	n.releasing = map[meta.SegmentKey]bool{}
	n.asking = map[uint64]func(node.UploadTold){}
	n.store, n.files = nil, nil
	if n.c.plan.sabotage != nil {
		n.c.plan.sabotage(n)
	}
	if err := n.open(); err != nil {
		if !n.disk.off && !n.disk.full {
			n.c.w.fail("I3", "%s cannot open its disk: %v", n.name, err)
		}
		n.kill(n.disk.off)
		n.c.rebootLater(&n.process, time.Second)
		return
	}
	n.machine = node.NewMachine(node.MachineConfig{Node: n.name, StoreID: n.store.StoreID()}, n.store.Held())
	n.c.check.opened(n)
	n.deliver(n.follower.machine.Image(), nil)
	n.files.keep(func() int64 { return n.image.Next() })
	n.after(0, "starts", func() {
		n.follower.step(metalog.FollowStart{})
		n.beat()
		n.tick()
	})
}

// end notes what a start has to find again.
func (n *simNode) end() {
	if n.store == nil {
		return
	}
	n.durableBefore = map[copyName]segment.Digest{}
	for _, h := range n.store.Held() {
		if h.State == segment.StateSealed && nameOf(h) != n.taken && n.holdsDurably(heldKey(h), h.Digest) {
			n.durableBefore[nameOf(h)] = h.Digest
		}
	}
	n.taken = copyName{}
}

// take has a copy go by do, which may be cut short by a power cut.
func (n *simNode) take(h segment.Held, do func() error) error {
	n.taken = nameOf(h)
	err := do()
	if !n.disk.off {
		n.taken = copyName{}
	}
	return err
}

func nameOf(h segment.Held) copyName { return copyName{h.Table, h.Partition, h.Name} }

// copyName is under which name a store has a copy.
type copyName struct {
	table     uuid.UUID
	partition int32
	name      string
}

// holdsDurably reports whether the node's disk has these bytes under the segment's
// name, whole, and would have them after a power cut.
func (n *simNode) holdsDurably(k meta.SegmentKey, d segment.Digest) bool {
	name := n.c.names[k]
	if name == "" {
		return false
	}
	data, ok := n.disk.mem.Durable(filePath(k.Table, k.Partition, name, d))
	return ok && bytes.Equal(data, n.c.contents[d])
}

// hasSealed reports whether the store has any file of a segment.
func (n *simNode) hasSealed(s *meta.Segment) bool {
	return slices.ContainsFunc(n.store.Held(), func(h segment.Held) bool { return h.Table == s.Table && h.Name == s.Name })
}

// filePath is where a store keeps a sealed copy (docs of segment.Store).
func filePath(table uuid.UUID, partition int32, name string, d segment.Digest) string {
	return path.Join("segments", table.String(), strconv.Itoa(int(partition)), segment.FileName(name, d))
}

func (n *simNode) fileOf(h segment.Held) string {
	return filePath(h.Table, h.Partition, h.Name, h.Digest)
}

// open opens the store and the cache of the log.
func (n *simNode) open() (err error) {
	if _, err := n.disk.fs.Stat("store.id"); err != nil {
		// The store draws its identity; here the seed does.
		if err := n.makeStoreID(); err != nil {
			return err
		}
	}
	if n.store, err = segment.OpenStore(n.disk.fs, zerolog.Nop()); err != nil {
		return err
	}
	n.store.SetReserve(0)
	return n.openCache()
}

// openCache opens the cache of the log. What cannot be used of it is set aside, and
// everything in it can be fetched again.
func (n *simNode) openCache() error {
	files := &metadata{p: &n.process, c: n.c, dir: "cache"}
	image, err := files.openCache()
	if err != nil {
		return err
	}
	for _, dir := range []string{files.dir, metalog.SnapshotsDir} {
		if _, err := n.disk.mem.Stat(dir + ".corrupt"); err != nil {
			continue
		}
		// Of several batches that were being stored a power cut can leave a later
		// one and not an earlier: damage, to whoever reads it.
		n.c.w.count.outcomes["set aside as a whole: "+dir]++
		if !n.hadPowerCut && len(n.disk.rotted) == 0 {
			n.c.check.fail("I5", "%s sets %s aside, and no fault has touched it", n.name, dir)
		}
		if dir == metalog.SnapshotsDir {
			n.disk.sound(dir)
		}
		delete(n.c.check.shown, n.name)
		if err := n.disk.mem.RemoveAll(dir + ".corrupt"); err != nil {
			return err
		}
	}
	n.c.check.recovered(files, image)
	n.files = files
	n.follower = newFollower(&n.process, n.c, files, uuid.Nil, image)
	n.follower.deliver = n.deliver
	n.follower.find = n.findLeader
	n.follower.holders = func() []*holder {
		var all []*holder
		for _, s := range n.c.controllers {
			all = append(all, s.holder())
		}
		return append(all, n.c.nodesOf(n.image, n.name)...)
	}
	return nil
}

// findLeader asks around who leads.
func (n *simNode) findLeader(done func(metalog.LeaderRef, error)) {
	askLeader(n, "leader", 5*time.Second,
		func(s *simController, reply func(answered[metalog.LeaderRef])) { s.whoLeads(reply) },
		func(a answered[metalog.LeaderRef], err error) {
			if err == nil && a.code != "" {
				err = errors.New(a.code)
			}
			done(a.body, err)
		})
}

func (n *simNode) makeStoreID() error {
	f, err := n.disk.fs.Create("store.id.tmp")
	if err != nil {
		return err
	}
	if _, err := f.WriteAt([]byte(n.c.uuid().String()+"\n"), 0); err != nil {
		return errors.Join(err, f.Close())
	}
	return vfs.Publish(n.disk.fs, f, "store.id.tmp", "store.id")
}

func (n *simNode) tick() {
	n.after(time.Second, "tick", func() {
		n.step(node.Tick{})
		n.tick()
	})
}

// deliver takes a newer image.
func (n *simNode) deliver(im *meta.Image, touched []meta.Key) {
	n.c.check.delivered(n, im)
	n.image = im
	n.step(node.ImageChanged{Image: im, Touched: touched})
	n.wake()
}

// caughtUp is that of internal/node.
func (n *simNode) caughtUp() bool {
	s := &n.standing
	return s.registered && s.highWatermark > 0 && n.image.Next() >= s.highWatermark && n.image.Epoch() >= s.epoch
}

// askLeader asks controllers for an answer of the leader: first who led when last
// heard of, then along the hints and down the list, each at most once
// (internal/api, Client).
func askLeader[A any](n *simNode, label string, timeout time.Duration, serve func(*simController, func(answered[A])), done func(answered[A], error)) {
	var queue []string
	if n.leader != "" {
		queue = append(queue, n.leader)
	}
	for _, s := range n.c.controllers {
		queue = append(queue, s.url())
	}
	tried := map[string]bool{}
	var next func()
	next = func() {
		for len(queue) > 0 && tried[queue[0]] {
			queue = queue[1:]
		}
		if len(queue) == 0 {
			done(answered[A]{}, errNoAnswer)
			return
		}
		url := queue[0]
		tried[url] = true
		to := n.c.controllerAt(url)
		call(n.c.net, &n.process, &to.process, label, timeout,
			func(reply func(answered[A])) { serve(to, reply) },
			func(a answered[A], err error) {
				switch {
				case err == nil && a.code != api.CodeNotLeader && a.code != api.CodeNotReady:
					n.leader = url
					done(a, nil)
				default:
					if n.leader == url {
						n.leader = ""
					}
					if a.leader != "" && n.c.controllerAt(a.leader) != nil {
						queue = append([]string{a.leader}, queue...)
					}
					next()
				}
			})
	}
	next()
}

const beatEvery = 2 * time.Second

// beat registers the node, and then tells that it is alive, for ever.
func (n *simNode) beat() {
	if !n.standing.registered {
		n.register()
		return
	}
	n.beats++
	hb := api.Heartbeat{
		Node: n.name, Incarnation: n.standing.incarnation, AppliedOffset: n.image.Next(),
		Sequence: n.beats, WallClock: n.wall(), Busy: n.machine.Busy(),
	}
	askLeader(n, "heartbeat", 5*time.Second,
		func(s *simController, reply func(answered[api.HeartbeatAnswer])) { s.heartbeat(hb, reply) },
		func(a answered[api.HeartbeatAnswer], err error) {
			if err == nil {
				n.heard(a)
			}
			n.after(beatEvery, "beat", n.beat)
		})
}

func (n *simNode) heard(a answered[api.HeartbeatAnswer]) {
	switch a.code {
	case "":
	case api.CodeStaleIncarnation:
		n.standing.registered = false
		return
	default:
		return
	}
	newEpoch := a.body.Epoch != n.standing.epoch
	n.standing.epoch, n.standing.highWatermark = a.body.Epoch, a.body.HighWatermark
	if newEpoch {
		n.step(node.Registered{Incarnation: n.standing.incarnation, Epoch: a.body.Epoch, HighWatermark: a.body.HighWatermark})
	}
	n.wake()
}

func (n *simNode) register() {
	r := meta.Registration{ID: n.name, URL: n.url(), Zone: n.zone, StoreID: n.store.StoreID(), BootID: n.bootID}
	askLeader(n, "register", 5*time.Second,
		func(s *simController, reply func(answered[api.Registered])) { s.register(r, reply) },
		func(a answered[api.Registered], err error) {
			if err != nil || a.code != "" {
				if a.code != "" {
					n.c.w.count.outcomes["registration refused: "+a.code]++
				}
				n.after(n.c.w.between(200*time.Millisecond, 5*time.Second), "register again", n.beat)
				return
			}
			n.standing = nodeStanding{
				incarnation: a.body.Incarnation, epoch: a.body.Epoch, registered: true,
				highWatermark: max(n.standing.highWatermark, a.body.HighWatermark),
			}
			n.leader = a.body.Leader
			if n.newDisk {
				n.newDisk = false
				n.c.temptRelease(n)
			}
			n.step(node.Registered{Incarnation: a.body.Incarnation, Epoch: a.body.Epoch, HighWatermark: a.body.HighWatermark})
			n.wake()
			n.beat()
		})
}

// step hands the copies' machine an event and carries out what it says.
func (n *simNode) step(ev node.Event) {
	for _, a := range n.machine.Step(n.mono(), ev) {
		if told, ok := a.(node.UploadTold); ok {
			n.asking[told.Ticket](told)
			delete(n.asking, told.Ticket)
			continue
		}
		n.c.check.decided(n, a)
		n.after(n.c.w.between(0, 20*time.Millisecond), "copies", func() { n.perform(a) })
	}
}

// askUpload has a segment uploaded, or says how far that is (internal/node, serve.go).
func (n *simNode) askUpload(table, name string, poll bool, reply func(answered[validation.Answer])) {
	var s *meta.Segment
	if parsed, err := segment.ParseName(name); err == nil {
		if t := n.image.TableByName(table); t != nil {
			s = n.image.Segment(meta.SegmentKey{Table: t.ID, Partition: parsed.Partition, Seq: parsed.Seq})
		}
	}
	if s == nil || s.Name != name || s.Status != meta.SegmentDone {
		reply(refused[validation.Answer](api.CodeSegmentNotFound, ""))
		return
	}
	if _, ok := n.store.Get(s.Table, s.Partition, s.Name, s.Digest); !ok {
		reply(refused[validation.Answer](api.CodeSegmentNotFound, ""))
		return
	}
	n.tickets++
	n.asking[n.tickets] = func(told node.UploadTold) {
		reply(answered[validation.Answer]{body: validation.Answer{Failures: told.Failures, LastError: told.LastError, Different: told.Different}})
	}
	n.step(node.UploadAsked{Ticket: n.tickets, Segment: s.SegmentKey(), Poll: poll})
}

// unexplained is why a copy is set aside.
const unexplained = "no record explains it"

func (n *simNode) perform(a node.Action) {
	switch a := a.(type) {
	case node.Fetch:
		n.fetchSegment(a.Segment, a.Digest, nil, func(err error) {
			n.step(node.FetchDone{Segment: a.Segment, Err: err, NoSource: errors.Is(err, errNoSource)})
		})
	case node.Rebuild:
		n.rebuild(a.Segment, func(err error) { n.step(node.RebuildDone{Segment: a.Segment, Err: err}) })
	case node.Upload:
		n.uploadHeld(a.Segment, a.Digest, func(uri string, err error) {
			n.step(node.UploadDone{Segment: a.Segment, Digest: a.Digest, URI: uri, Err: err, Different: errors.Is(err, deepstore.ErrDifferent)})
		})
	case node.Report:
		a.Report.Add = n.notReleasing(a.Report.Add)
		a.Report.Confirm = n.notReleasing(a.Report.Confirm)
		n.c.check.reported(n, &a.Report)
		askLeader(n, "locations", 30*time.Second,
			func(s *simController, reply func(answered[meta.LocationVerdicts])) { s.locations(a.Report, reply) },
			func(r answered[meta.LocationVerdicts], err error) {
				if err == nil && r.code != "" {
					err = errors.New(r.code)
					if r.code == api.CodeStaleIncarnation {
						n.standing.registered = false
					}
				}
				n.step(node.ReportDone{Sequence: a.Report.Sequence, Verdicts: r.body, Err: err})
			})
	case node.Remove:
		n.c.check.removing(n, a.Held, a.Why)
		err := n.take(a.Held, func() error { return n.store.Remove(a.Held) })
		if errors.Is(err, segment.ErrNotHeld) {
			err = nil
		}
		n.gone(a.Held, "removed", err)
	case node.SetAside:
		n.c.check.removing(n, a.Held, unexplained)
		n.gone(a.Held, "set aside", n.take(a.Held, func() error { return n.store.Orphan(a.Held, time.UnixMilli(n.wall())) }))
	case node.ListDownloads:
		found, err := n.store.Downloads()
		if err == nil {
			n.step(node.DownloadsFound{Downloads: found})
		}
	case node.DropDownload:
		n.dropDownload(a.Download)
	}
}

func (n *simNode) gone(h segment.Held, what string, err error) {
	n.c.w.count.outcomes["copy "+what]++
	n.storeChanged(heldKey(h))
	n.step(node.RemoveDone{Held: h, Err: err})
}

func heldKey(h segment.Held) meta.SegmentKey {
	name, _ := segment.ParseName(h.Name)
	return meta.SegmentKey{Table: h.Table, Partition: h.Partition, Seq: name.Seq}
}

func (n *simNode) storeChanged(k meta.SegmentKey) {
	n.step(node.StoreChanged{Segment: k, Held: n.store.HeldOf(k.Table, k.Partition, k.Seq)})
}
