package sim

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand"
	"os"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/peerdl"
)

// Downloads of snapshots, as internal/snapshots does them: the planner, the files and
// the proof of what came are real, the wire is the network's model, and a chunk stands for
// a piece.

// holder is somebody who may have a snapshot.
type holder struct {
	p     *process
	files func() *metadata // nil when none are open
	// standing is who leads, as far as the holder knows; epoch is set for who is taken
	// for the leader of it.
	standing func() metalog.Standing
	epoch    int64
	lies     *bool // nil: it never does
}

func (s *simController) holder() *holder {
	return &holder{p: &s.process, files: func() *metadata { return s.files }, standing: func() metalog.Standing { return s.standing }}
}

func (n *simNode) holder() *holder {
	return &holder{p: &n.process, files: func() *metadata { return n.files }, standing: n.leaderSeen, lies: &n.lies}
}

// leaderSeen is who leads, as far as the node knows (internal/node, metadata.go).
func (n *simNode) leaderSeen() metalog.Standing {
	l := n.follower.machine.Status().Leader
	st := metalog.Standing{Epoch: max(l.Epoch, n.standing.epoch), URL: l.URL}
	if c := n.image.Cluster(); c != nil {
		st.Cluster = c.ID
	}
	return st
}

// nodesOf are the nodes of an image that may have a snapshot, but self.
func (c *cluster) nodesOf(im *meta.Image, self string) (all []*holder) {
	for n := range im.Nodes() {
		if n.ID != self && n.State != meta.NodeDown {
			all = append(all, c.nodeAt(n.ID).holder())
		}
	}
	return all
}

// chunksOf is in about how many chunks a snapshot comes.
const chunksOf = 6

// chunkBytes is the size of a chunk, the same for whoever fetches the snapshot.
func chunkBytes(ref metalog.SnapshotRef) int64 { return max(512, (ref.SizeBytes+chunksOf-1)/chunksOf) }

// snapshotDownload is one on its way.
type snapshotDownload struct {
	f       *follower
	ref     metalog.SnapshotRef
	cluster uuid.UUID
	want    []byte // what the digest proves
	part    string
	file    vfs.File
	planner *peerdl.Planner
	from    []*holder
	why     map[int]error // what each of them said last that was not a chunk
	gave    map[int]bool  // who has given one
	waiting bool
	over    bool
	done    func(*meta.Image, error)
}

// errNotNamed is a source that has another snapshot, or other bytes, under the id.
var errNotNamed = errors.New("sim: another digest")

// refusal is an answer of a holder; some are as good as that it has no such snapshot.
type refusal struct{ code string }

func (r *refusal) Error() string { return "sim: " + r.code }

func (r *refusal) Is(target error) bool {
	switch r.code {
	case metalog.CodeSnapshotNotFound, metalog.CodeFencedLeaderEpoch, metalog.CodeNotLeader,
		metalog.CodeInconsistentClusterID, metalog.CodeInvalidRequest:
		return target == fs.ErrNotExist
	}
	return false
}

// fetchSnapshot brings a snapshot here, and its image.
func (f *follower) fetchSnapshot(a metalog.FetchSnapshot, done func(*meta.Image, error)) {
	count := f.c.w.count.outcomes
	im, err := f.held(a.Snapshot)
	if im != nil || err != nil {
		count["snapshots: the one that was named was here"]++
		done(im, err)
		return
	}
	d := &snapshotDownload{f: f, ref: a.Snapshot, why: map[int]error{}, gave: map[int]bool{}, done: done}
	if c := f.machine.Image().Cluster(); c != nil {
		d.cluster = c.ID
	}
	_, d.part = f.files.snaps.PartPath(d.ref)
	dropped, err := f.files.snaps.DropDownloads(d.part)
	count["snapshots: download restarted, superseded"] += int64(dropped)
	if err == nil {
		err = d.begin(a.Leader)
	}
	switch {
	case f.p.disk.off:
	case err != nil:
		d.end(nil, err)
	default:
		d.next()
	}
}

// held is the image of a snapshot that is here, and is what was named.
func (f *follower) held(ref metalog.SnapshotRef) (*meta.Image, error) {
	if have, ok := f.files.snaps.Get(ref.SnapshotID); !ok || have.Digest != ref.Digest {
		return nil, nil
	}
	im, err := f.files.snaps.Load(ref.SnapshotID)
	if errors.As(err, new(*metalog.CorruptionError)) {
		err = f.files.snaps.SetAside(ref.SnapshotID)
		f.c.check.setAside(f.files)
		return nil, err
	}
	if err == nil {
		f.c.check.loaded(f.files, ref, im)
	}
	return im, err
}

// begin looks at what is here and whom to ask.
func (d *snapshotDownload) begin(leader metalog.LeaderRef) error {
	f := d.f
	f.c.w.count.outcomes["snapshots: download begun"]++
	var plan []peerdl.PlanSource
	if s := f.c.controllerAt(leader.URL); s != nil && &s.process != f.p {
		h := s.holder()
		h.epoch = leader.Epoch
		d.from = append(d.from, h)
		plan = append(plan, peerdl.PlanSource{Name: h.p.name})
	}
	for _, h := range f.holders() {
		if h.p != f.p && (len(d.from) == 0 || h.p != d.from[0].p) {
			d.from = append(d.from, h)
			plan = append(plan, peerdl.PlanSource{Rank: 1, Name: h.p.name})
		}
	}
	want, same := f.c.check.snapshot(d.ref.SnapshotID)
	if same && want.ref != d.ref {
		return fmt.Errorf("%w: %w", metalog.ErrNotTheSnapshot, errNotNamed) // nobody has a piece list of that digest
	}
	d.want = want.data
	held, err := d.open()
	if err != nil {
		return err
	}
	d.planner = peerdl.NewPlanner(peerdl.PlannerConfig{
		Limits: peerdl.DefaultPlanLimits(), Pieces: len(held), Held: held, Sources: plan,
		Rand: rand.New(rand.NewSource(f.c.w.rnd.Int63())),
	})
	return nil
}

func (d *snapshotDownload) chunks() int {
	return int((d.ref.SizeBytes + chunkBytes(d.ref) - 1) / chunkBytes(d.ref))
}

func (d *snapshotDownload) chunk(data []byte, i int) []byte {
	n := chunkBytes(d.ref)
	return data[min(int64(len(data)), int64(i)*n):min(int64(len(data)), int64(i+1)*n)]
}

// open opens the .part, or makes it, and says which chunks it holds: those that hash to
// what they should.
func (d *snapshotDownload) open() (held []bool, err error) {
	disk := d.f.p.disk.fs
	if d.file, err = disk.OpenFile(d.part, os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return nil, err
	}
	there := make([]byte, len(d.want))
	n, err := d.file.ReadAt(there, 0)
	if err == io.EOF {
		err = nil
	}
	if err == nil {
		err = vfs.WriteFile(disk, peerdl.JournalName(d.part), []byte(d.ref.Digest.String()))
	}
	if err != nil {
		return nil, err
	}
	held = make([]bool, d.chunks())
	resumed := false
	for i := range held {
		held[i] = string(d.chunk(there[:n], i)) == string(d.chunk(d.want, i))
		resumed = resumed || held[i]
	}
	if resumed {
		d.f.c.w.count.outcomes["snapshots: download continued"]++
	}
	return held, nil
}

func (d *snapshotDownload) now() time.Time { return time.UnixMilli(epochStart).Add(d.f.p.mono()) }

// next does what the planner says.
func (d *snapshotDownload) next() {
	for !d.over {
		if d.f.over { // it was stopped; what came stays
			d.over = true
			d.file.Close()
			return
		}
		step := d.planner.Next(d.now())
		switch step.Kind {
		case peerdl.PlanFetch:
			d.fetch(step.Assignment)
		case peerdl.PlanWait:
			if step.Wait > 0 && !d.waiting {
				d.waiting = true
				d.f.p.after(step.Wait, "snapshot download goes on", func() {
					d.waiting = false
					d.next()
				})
			}
			return
		case peerdl.PlanStuck:
			d.end(nil, d.judge())
			return
		case peerdl.PlanComplete:
			d.end(d.adopt())
			return
		}
	}
}

func (d *snapshotDownload) fetch(a peerdl.Assignment) {
	h := d.from[a.Source]
	id := ""
	q := metalog.SnapshotQuery{ID: d.ref.SnapshotID, Position: int64(a.Piece) * chunkBytes(d.ref), MaxBytes: chunkBytes(d.ref)}
	if h.epoch > 0 {
		q.LeaderEpoch = &h.epoch
	}
	if d.cluster != uuid.Nil {
		id = d.cluster.String()
		q.ClusterID = &id
	}
	call(d.f.c.net, d.f.p, h.p, "snapshot chunk", 15*time.Second,
		func(reply func(answered[chunk])) {
			files := h.files()
			if files == nil || files.snaps == nil {
				reply(refused[chunk](metalog.CodeNotAvailable, ""))
				return
			}
			got := files.serve(&q, h.standing())
			if h.lies != nil && *h.lies && got.code == "" && d.f.c.w.chance(0.3) {
				d.f.c.w.count.faults["a holder of a snapshot lied"]++
				got.body.data[0] ^= 1
			}
			h.p.after(d.f.c.w.between(0, d.f.c.plan.ChunkSlow), "snapshot chunk sent", func() { reply(got) })
		},
		func(got answered[chunk], err error) {
			if !d.over && !d.f.over {
				d.arrived(a, got, err)
			}
			d.next()
		})
}

// arrived takes a chunk if it is the one that was asked for.
func (d *snapshotDownload) arrived(a peerdl.Assignment, got answered[chunk], err error) {
	count := d.f.c.w.count.outcomes
	switch {
	case err != nil:
	case got.code == metalog.CodePositionOutOfRange, got.code == "" && got.body.ref != d.ref:
		count["snapshots: a holder has other bytes"]++
		err = &peerdl.DeceptionError{What: "has another snapshot", Lasting: true, Cause: errNotNamed}
	case got.code != "":
		count["snapshots: chunk refused, "+got.code]++
		err = &refusal{got.code}
	case string(got.body.data) != string(d.chunk(d.want, a.Piece)):
		count["snapshots: damaged chunk refused"]++
		err = &peerdl.DeceptionError{What: "sent damaged bytes", Cause: errors.New("sim")}
	}
	if err != nil {
		d.why[a.Source] = err
		d.planner.Failed(a, err, d.now())
		return
	}
	if !d.planner.Done(a, d.now()) {
		return
	}
	if d.gave[a.Source] = true; len(d.gave) == 2 {
		count["snapshots: download from two holders"]++
	}
	_, err = d.file.WriteAt(got.body.data, int64(a.Piece)*chunkBytes(d.ref))
	if err == nil && a.Piece%2 == 1 {
		err = vfs.Sync(d.file)
	}
	if err != nil && !d.f.p.disk.off {
		d.end(nil, err)
	}
}

// adopt takes the file, which is proven as a whole only now, into the snapshots here.
func (d *snapshotDownload) adopt() (*meta.Image, error) {
	info, err := d.file.Stat()
	if err == nil && info.Size() != d.ref.SizeBytes {
		err = d.file.Truncate(d.ref.SizeBytes)
	}
	if err != nil {
		return nil, err
	}
	d.f.files.endanger()
	im, err := d.f.files.snaps.Adopt(d.file, d.ref, d.cluster)
	d.file = nil
	if err == nil && !d.f.p.disk.off {
		d.f.c.w.count.outcomes["snapshots: downloaded"]++
		d.f.c.check.adopted(d.f.files, d.ref, im)
	}
	return im, err
}

// judge says why the download is stuck, as internal/snapshots does.
func (d *snapshotDownload) judge() error {
	gone, other := len(d.from) > 0, error(nil)
	for i := range d.from {
		err := d.why[i]
		var no *refusal
		switch {
		case errors.As(err, &no) && no.code == metalog.CodeSnapshotNotFound:
			continue
		case errors.As(err, new(*peerdl.DeceptionError)):
			other = cmp.Or(other, err)
		default:
			return cmp.Or(err, errNoSource) // it may have the snapshot, and come back
		}
		gone = false
	}
	if gone {
		return metalog.ErrSnapshotNotFound
	}
	return fmt.Errorf("%w: %w", metalog.ErrNotTheSnapshot, cmp.Or(other, errNoSource))
}

// end tells what came of it, and drops what is of no more use.
func (d *snapshotDownload) end(im *meta.Image, err error) {
	d.over = true
	if d.file != nil {
		d.file.Close()
	}
	if d.f.p.disk.off {
		return
	}
	if err != nil {
		cause := "other"
		switch {
		case errors.Is(err, metalog.ErrSnapshotNotFound):
			cause = "gone"
		case errors.Is(err, errNotNamed):
			cause = "digest"
		case errors.As(err, new(*peerdl.DeceptionError)):
			cause = "bytes"
		case errors.Is(err, metalog.ErrNotTheSnapshot):
			cause = "content"
		}
		d.f.c.w.count.outcomes["snapshots: download failed, "+cause]++
		if cause != "other" && cause != "bytes" {
			if _, derr := d.f.files.snaps.DropDownloads(""); derr != nil {
				err = errors.Join(err, derr)
			}
		}
	}
	d.done(im, err)
}
