package sim

import (
	"context"
	"errors"
	"io"
	"math/rand"
	"os"
	"time"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/peerdl"
	"github.com/shoalstore/shoal/segment"
)

// Moving bytes, as internal/node does in transfer.go: the planner and the store are
// the real ones, the wire is the network's model, and a block stands for a piece.

var (
	errNoSource   = errors.New("sim: nobody has the bytes to give")
	errNotDone    = errors.New("sim: the image does not show the segment committed with that digest")
	errStreamDown = errors.New("sim: the stream does not answer")
	errTrimmed    = errors.New("sim: the stream no longer has the offset")
	errStopped    = errors.New("sim: the download was called off")
)

func (n *simNode) committed(k meta.SegmentKey, d segment.Digest) (*meta.Segment, error) {
	s := n.image.Segment(k)
	if s == nil || s.Status != meta.SegmentDone || s.Digest != d {
		return nil, errNotDone
	}
	return s, nil
}

// fetchSegment downloads a committed segment and installs it. Two for one segment
// take turns. stopped, if not nil, says that nobody wants it any more.
func (n *simNode) fetchSegment(k meta.SegmentKey, d segment.Digest, stopped func() bool, done func(error)) {
	if waiting, busy := n.fetching[k]; busy {
		n.fetching[k] = append(waiting, func() { n.fetchSegment(k, d, stopped, done) })
		return
	}
	n.fetching[k] = nil
	finish := func(err error) {
		waiting := n.fetching[k]
		delete(n.fetching, k)
		done(err)
		for _, next := range waiting {
			next()
		}
	}
	s, err := n.committed(k, d)
	if err != nil {
		finish(err)
		return
	}
	if _, ok := n.store.Get(s.Table, s.Partition, s.Name, d); ok {
		finish(nil)
		return
	}
	dl, err := n.newDownload(s)
	if err != nil {
		finish(err)
		return
	}
	dl.done, dl.stopped = finish, stopped
	dl.next()
}

// download is one on its way. What was fetched lies in the .part; a block of it
// counts once it proves to be the digest's, which after a crash is found out by
// hashing what is there (peerdl, part.go).
type download struct {
	n       *simNode
	s       *meta.Segment
	part    string
	file    vfs.File
	planner *peerdl.Planner
	sources []meta.Source
	flying  int
	waiting bool
	over    bool
	stopped func() bool
	done    func(error)
}

func (n *simNode) newDownload(s *meta.Segment) (*download, error) {
	policy := meta.DeepStoreFirst
	if cfg := n.image.CurrentConfig(s.Table); cfg != nil {
		policy = cfg.Download
	}
	d := &download{n: n, s: s, sources: meta.Sources(n.image, s, policy, n.name)}
	if len(d.sources) == 0 {
		return nil, errNoSource
	}
	var err error
	if d.part, err = n.store.DownloadPath(s.Table, s.Partition, s.Name, s.Digest); err != nil {
		return nil, err
	}
	held, err := d.openPart()
	if err != nil {
		return nil, err
	}
	var sources []peerdl.PlanSource
	for _, src := range d.sources {
		rank := 0
		if policy != meta.BothAtOnce && (src.URI != "") == (policy == meta.PeersFirst) {
			rank = 1
		}
		sources = append(sources, peerdl.PlanSource{Rank: rank, SameZone: src.URI != "" || src.Zone == n.zone, Name: src.Node + src.URI})
	}
	d.planner = peerdl.NewPlanner(peerdl.PlannerConfig{
		Limits: peerdl.DefaultPlanLimits(), Pieces: len(held), Held: held, Sources: sources,
		Rand: rand.New(rand.NewSource(n.c.w.rnd.Int63())),
	})
	return d, nil
}

// openPart opens the .part, or makes it, and says which blocks it holds.
func (d *download) openPart() (held []bool, err error) {
	if d.file, err = d.n.disk.fs.OpenFile(d.part, os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return nil, err
	}
	info, err := d.file.Stat()
	if err != nil {
		return nil, errors.Join(err, d.file.Close())
	}
	want := d.n.c.contents[d.s.Digest]
	there := make([]byte, min(info.Size(), int64(len(want))))
	if _, err := d.file.ReadAt(there, 0); err != nil && err != io.EOF {
		return nil, errors.Join(err, d.file.Close())
	}
	// A start of the store keeps what has a journal; what is in the .part is found
	// out by hashing it all the same.
	if err := vfs.WriteFile(d.n.disk.fs, peerdl.JournalName(d.part), []byte(d.s.Digest.String())); err != nil {
		return nil, errors.Join(err, d.file.Close())
	}
	held = make([]bool, blocks(int64(len(want))))
	for i := range held {
		if (i+1)*blockBytes <= len(there) || i == len(held)-1 && len(there) == len(want) {
			held[i] = string(block(there, i)) == string(block(want, i))
		}
		if held[i] {
			d.n.c.w.count.outcomes["block resumed"]++
		}
	}
	return held, nil
}

func (n *simNode) clock() time.Time { return time.UnixMilli(epochStart).Add(n.mono()) }

// next does what the planner says.
func (d *download) next() {
	for !d.over {
		if d.stopped != nil && d.stopped() {
			d.end(errStopped)
			return
		}
		if d.n.disk.off {
			return
		}
		step := d.planner.Next(d.n.clock())
		switch step.Kind {
		case peerdl.PlanFetch:
			d.flying++
			d.fetch(step.Assignment)
		case peerdl.PlanWait:
			if step.Wait > 0 && !d.waiting {
				d.waiting = true
				d.n.after(step.Wait, "download goes on", func() {
					d.waiting = false
					d.next()
				})
			}
			return
		case peerdl.PlanStuck:
			d.end(errNoSource)
			return
		case peerdl.PlanComplete:
			d.end(d.install())
			return
		}
	}
}

func (d *download) end(err error) {
	d.over = true
	d.n.c.w.trace.notef(d.n.c.w.now, "%s: download of %s ends: %v", d.n.name, d.s.Name, err)
	if err != nil {
		d.file.Close()
		d.n.c.w.count.outcomes["download failed"]++
	} else {
		d.n.c.w.count.outcomes["download installed"]++
	}
	if !d.n.disk.off {
		d.done(err)
	}
}

// install makes the complete .part a copy in the store.
func (d *download) install() error {
	info, err := d.file.Stat()
	if err != nil {
		return err
	}
	if info.Size() != d.s.SizeBytes {
		if err := d.file.Truncate(d.s.SizeBytes); err != nil {
			return err
		}
	}
	pieces, _, err := segment.HashFile(bytesAt(d.n.c.contents[d.s.Digest]), d.s.SizeBytes)
	if err != nil {
		return err
	}
	if _, err := d.n.store.Publish(d.file, d.part, d.s.Table, d.s.Partition, d.s.Name, pieces, d.s.Digest); err != nil {
		return err
	}
	d.n.storeChanged(d.s.SegmentKey())
	return peerdl.Forget(d.n.disk.fs, d.part)
}

// fetch asks one source for one block.
func (d *download) fetch(a peerdl.Assignment) {
	src := d.sources[a.Source]
	arrived := func(data []byte, err error) {
		d.flying--
		if d.over {
			return
		}
		d.arrived(a, data, err)
		d.next()
	}
	if src.URI != "" {
		d.n.after(d.n.c.deepLatency(), "block from the deep store", func() { arrived(d.fromDeep(src.URI, a.Piece)) })
		return
	}
	peer := d.n.c.nodeAt(src.Node)
	if peer == nil {
		arrived(nil, errNoAnswer)
		return
	}
	type got struct {
		data []byte
		err  error
	}
	call(d.n.c.net, &d.n.process, &peer.process, "block", 20*time.Second,
		func(reply func(got)) {
			data, err := peer.serveBlock(d.s, a.Piece)
			reply(got{data, err})
		},
		func(g got, err error) {
			if err == nil {
				err = g.err
			}
			arrived(g.data, err)
		})
}

func (d *download) arrived(a peerdl.Assignment, data []byte, err error) {
	w := d.n.c.w
	want := block(d.n.c.contents[d.s.Digest], a.Piece)
	if err == nil && string(data) != string(want) {
		w.count.outcomes["damaged block refused"]++
		err = &peerdl.DeceptionError{What: "sent damaged bytes", Cause: errors.New("sim")}
	}
	if err != nil {
		d.planner.Failed(a, err, d.n.clock())
		return
	}
	if !d.planner.Done(a, d.n.clock()) {
		return
	}
	if _, err := d.file.WriteAt(data, int64(a.Piece)*blockBytes); err != nil {
		d.end(err)
	}
}

// serveBlock is the node's side of the chunk path.
func (n *simNode) serveBlock(s *meta.Segment, i int) ([]byte, error) {
	held, ok := n.store.Get(s.Table, s.Partition, s.Name, s.Digest)
	if !ok {
		return nil, os.ErrNotExist
	}
	f, _, release, err := n.store.Open(held)
	if err != nil {
		n.suspect(held)
		return nil, os.ErrNotExist
	}
	defer release()
	size := int64(len(n.c.contents[s.Digest]))
	data := make([]byte, min(blockBytes, size-int64(i)*blockBytes))
	if _, err := f.ReadAt(data, int64(i)*blockBytes); err != nil {
		return nil, err
	}
	if n.lies && n.c.w.chance(0.3) {
		n.c.w.count.faults["a peer lied"]++
		data[0] ^= 1
	}
	return data, nil
}

func (d *download) fromDeep(uri string, i int) ([]byte, error) {
	key, err := deepstore.KeyOf(deepURI, uri)
	if err != nil {
		return nil, err
	}
	off := int64(i) * blockBytes
	r, err := deepstore.Object{Store: d.n.c.deep, Key: key}.Fetch(context.Background(), off, min(blockBytes, d.s.SizeBytes-off))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// suspect verifies a copy that gave something wrong, and sets it aside if it is
// damaged (internal/node, verifyHeld).
func (n *simNode) suspect(h segment.Held) {
	n.after(10*time.Millisecond, "copy verified", func() { n.verify(h) })
}

func (n *simNode) verify(h segment.Held) {
	err := n.store.Verify(context.Background(), h)
	var damage *segment.DamageError
	if !errors.As(err, &damage) {
		return
	}
	if damage.Sidecar && n.store.RepairSidecar(context.Background(), h) == nil {
		n.c.w.count.outcomes["sidecar repaired"]++
		return
	}
	n.c.w.count.outcomes["copy quarantined"]++
	err = n.take(h, func() error { _, err := n.store.Quarantine(h, damage.Problem); return err })
	if err != nil && !n.disk.off {
		n.c.w.trace.notef(n.c.w.now, "%s: quarantine: %v", n.name, err)
	}
	n.storeChanged(heldKey(h))
}

// seal publishes what a builder made.
func (n *simNode) seal(s *meta.Segment, data []byte, info segment.Info) (segment.Info, error) {
	pieces, digest, err := segment.HashFile(bytesAt(data), int64(len(data)))
	if err != nil {
		return info, err
	}
	info.Digest, info.SizeBytes = digest, int64(len(data))
	n.c.contents[digest] = data
	f, path, err := n.store.Stage(s.Table, s.Partition, s.Name)
	if err != nil {
		return info, err
	}
	if _, err := f.WriteAt(data, 0); err != nil {
		return info, errors.Join(err, f.Close(), n.store.Discard(path))
	}
	if _, err := n.store.Publish(f, path, s.Table, s.Partition, s.Name, pieces, digest); err != nil {
		return info, errors.Join(err, n.store.Discard(path))
	}
	n.storeChanged(s.SegmentKey())
	n.forgetDownload(s, digest)
	return info, nil
}

// dropDownload removes a .part that nobody wants, unless somebody is at it again.
func (n *simNode) dropDownload(d segment.Download) {
	k := heldKey(segment.Held{Table: d.Table, Partition: d.Partition, Name: d.Name})
	if _, busy := n.fetching[k]; busy {
		return
	}
	n.c.w.count.outcomes["download given up"]++
	if err := peerdl.Forget(n.disk.fs, d.Path); err != nil && !n.disk.off {
		n.c.w.trace.notef(n.c.w.now, "%s: leftovers of a download stay: %v", n.name, err)
	}
}

// forgetDownload removes what a download left of a copy that came about in another
// way meanwhile; one that is under way sees to itself.
func (n *simNode) forgetDownload(s *meta.Segment, d segment.Digest) {
	if _, busy := n.fetching[s.SegmentKey()]; busy {
		n.fetching[s.SegmentKey()] = append(n.fetching[s.SegmentKey()], func() { n.forgetDownload(s, d) })
		return
	}
	part, err := n.store.DownloadPath(s.Table, s.Partition, s.Name, d)
	if err == nil {
		err = peerdl.Forget(n.disk.fs, part)
	}
	if err != nil && !n.disk.off {
		n.c.w.trace.notef(n.c.w.now, "%s: leftovers of a download stay: %v", n.name, err)
	}
}

// rebuild builds a committed segment again from the stream.
func (n *simNode) rebuild(k meta.SegmentKey, done func(error)) {
	s := n.image.Segment(k)
	if s == nil || s.Status != meta.SegmentDone {
		done(errNotDone)
		return
	}
	cfg := n.image.CurrentConfig(s.Table)
	if v := n.image.TableConfig(s.Table, s.ConfigVersion); v != nil {
		cfg = &v.Config
	}
	n.after(n.c.w.between(50*time.Millisecond, 2*time.Second), "rebuilt", func() {
		p := n.c.topic.partitions[k.Partition]
		switch {
		case n.c.topic.down:
			done(errStreamDown)
			return
		case p.earliest > s.Start:
			done(errTrimmed)
			return
		}
		rows := p.between(s.Start, s.End)
		data, rowsDigest := n.c.content(k, n.class, cfg, s.Start, s.End, rows)
		info, err := n.seal(s, data, infoOf(s.Start, s.End, rows, rowsDigest))
		if n.disk.off {
			return
		}
		n.c.w.count.outcomes["segment rebuilt"]++
		if err == nil && info.Digest != s.Digest {
			err = errors.New("sim: the rebuilt file differs")
		}
		done(err)
	})
}

func infoOf(start, end int64, rows []row, digest segment.RowsDigest) segment.Info {
	info := segment.Info{Start: start, End: end, Rows: int64(len(rows)), RowsDigest: digest, MinTimestamp: segment.NoTimestamp, MaxTimestamp: segment.NoTimestamp, LastLeaderEpoch: segment.NoLeaderEpoch}
	for _, r := range rows {
		info.RawBytes += r.bytes
	}
	return info
}

func (n *simNode) uploadHeld(k meta.SegmentKey, d segment.Digest, done func(string, error)) {
	s, err := n.committed(k, d)
	if err != nil {
		done("", err)
		return
	}
	n.upload(s, d, done)
}

// upload puts a held copy into the deep store.
func (n *simNode) upload(s *meta.Segment, d segment.Digest, done func(string, error)) {
	n.after(n.c.deepLatency(), "upload", func() {
		held, ok := n.store.Get(s.Table, s.Partition, s.Name, d)
		if !ok {
			done("", segment.ErrNotHeld)
			return
		}
		f, pieces, release, err := n.store.Open(held)
		if err != nil {
			n.suspect(held)
			done("", err)
			return
		}
		defer release()
		key, err := deepstore.Upload(context.Background(), n.c.deep, s.Name, f, pieces)
		if errors.Is(err, deepstore.ErrBadSource) {
			n.suspect(held)
		}
		if n.disk.off {
			return
		}
		if err != nil {
			n.c.w.count.outcomes["upload failed"]++
			done("", err)
			return
		}
		n.c.w.count.outcomes["uploaded"]++
		done(deepstore.URI(deepURI, key), nil)
	})
}

// bytesAt reads a slice.
type bytesAt []byte

func (b bytesAt) ReadAt(p []byte, off int64) (int, error) {
	if off >= int64(len(b)) {
		return 0, io.EOF
	}
	n := copy(p, b[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}
