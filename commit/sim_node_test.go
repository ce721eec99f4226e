package commit

import (
	"maps"
	"slices"
	"time"

	"github.com/shoalstore/shoal/segment"
)

// simNode is a node: its store survives a crash, its machines do not.
type simNode struct {
	s           *sim
	id          string
	incarnation int64
	up          bool
	replicas    map[int64]*simReplica // by seq
	files       map[segment.Digest]bool
}

func (n *simNode) variant() bool { return n.s.faults.variant && n.id == "s3" }

// tick is the node's level-triggered round: compare with the image, feed the
// machines, and sometimes die.
func (n *simNode) tick() {
	s := n.s
	if !n.up {
		return
	}
	if s.chance(s.faults.crash) {
		n.crash()
		return
	}
	if !s.chance(s.faults.drop) { // else the image is not news
		n.reconcile()
	}
	for _, seq := range slices.Sorted(maps.Keys(n.replicas)) {
		if r := n.replicas[seq]; r != nil {
			r.feed()
		}
	}
}

func (n *simNode) crash() {
	for _, r := range n.replicas {
		r.dead = true
	}
	clear(n.replicas)
	n.up = false
	n.s.after(time.Duration(n.s.rnd.Intn(40))*time.Second, n.restart)
}

func (n *simNode) restart() {
	if !n.up {
		n.up = true
		n.incarnation++
	}
}

// reconcile makes the machines that the image calls for: that of the segment in
// progress once its predecessor lets it start, and one for each committed
// segment whose file is not here. What is here gets listed.
func (n *simNode) reconcile() {
	for _, rec := range n.s.records {
		r := n.replicas[rec.seq]
		switch {
		case r != nil:
			r.step(ImageChanged{n.image(rec)})
		case rec.rec.Done && n.files[rec.rec.Digest]:
			rec.locations[n.id] = true
		case rec.rec.Done, n.mayStart(rec.seq):
			n.start(rec)
		}
	}
}

func (n *simNode) image(rec *simRecord) Record {
	r := rec.rec
	r.LeaderEpoch = n.s.epoch
	return r
}

func (n *simNode) mayStart(seq int64) bool {
	before := n.replicas[seq-1]
	return before == nil || before.told
}

func (n *simNode) start(rec *simRecord) {
	key := testKey
	key.Seq = rec.seq
	r := &simReplica{n: n, rec: rec, sealed: map[int64]bool{}, timer: NoTimer, r: NewReplica(ReplicaConfig{
		Key: key, Segment: testSegment, Instance: n.id, Incarnation: n.incarnation, StoreID: simStore, StreamEpoch: "0",
		Start: rec.start, MaxRows: 25, MaxBytes: 300, MaxAge: 20 * time.Second, Timing: DefaultTiming,
		Attempt: rec.rec.Attempt, Download: n.id == "s2", UploadWait: time.Duration(n.s.rnd.Intn(2)) * time.Second,
	})}
	r.seek(rec.start)
	n.replicas[rec.seq] = r
	r.step(ImageChanged{n.image(rec)})
}

// simReplica is the fake shell of one machine: a reader, a bounded buffer, a
// builder, and workers.
type simReplica struct {
	n    *simNode
	r    *Replica
	rec  *simRecord
	dead bool // its process is
	told bool // SuccessorMayStart

	buffer  []int64 // fetched, not appended
	fetched int64   // the reader's next-fetch position
	broken  bool    // the reader failed for good

	rows   []int64 // the builder's
	sealed map[int64]bool
	timer  time.Duration
}

const simBuffer = 10

func (r *simReplica) seek(offset int64) { r.buffer, r.fetched, r.broken = nil, offset, false }

// feed reads, offers row by row, and says how far it got.
func (r *simReplica) feed() {
	s := r.n.s
	if r.broken {
		return
	}
	if s.chance(s.faults.read) {
		r.broken = true
		r.step(ReaderFailed{"the reader broke"})
		return
	}
	for _, offset := range s.rowsOf(r.fetched, s.next) {
		if len(r.buffer) == simBuffer {
			break
		}
		r.buffer = append(r.buffer, offset)
		r.fetched = offset + 1
	}
	if len(r.buffer) < simBuffer {
		r.fetched = s.next
	}
	next := r.fetched
	for len(r.buffer) > 0 {
		verdict := r.r.Offer(s.now, r.buffer[0], 10)
		if verdict == LeaveRow {
			next = r.buffer[0]
			break
		}
		if verdict == AppendRow {
			r.rows = append(r.rows, r.buffer[0])
		}
		r.buffer = r.buffer[1:]
	}
	r.step(Fed{Next: next, Fetched: r.fetched})
}

// later runs do unless the process has died by then.
func (r *simReplica) later(most time.Duration, do func()) {
	r.n.s.after(time.Duration(r.n.s.rnd.Int63n(int64(most))), func() {
		if !r.dead {
			do()
		}
	})
}

func (r *simReplica) step(ev ReplicaEvent) {
	if r.dead {
		return
	}
	s := r.n.s
	for _, a := range r.r.Step(s.now, ev) {
		switch a := a.(type) {
		case Send:
			r.send(a)
		case Seal:
			r.seal(a)
		case Upload:
			r.later(3*time.Second, func() { r.step(Uploaded{"file:///there"}) })
		case Download:
			r.later(4*time.Second, func() { r.download(a) })
		case KeepFile:
			r.keep(a.Info)
		case SuccessorMayStart:
			r.successor(a)
		case Restart:
			r.rows = nil
			r.seek(a.From)
		case SetTimer:
			r.setTimer(a.At)
		}
	}
	if r.r.Over() && r.n.files[r.rec.rec.Digest] {
		r.dead = true
		delete(r.n.replicas, r.rec.seq)
	}
}

func (r *simReplica) setTimer(at time.Duration) {
	r.timer = at
	if at == NoTimer {
		return
	}
	r.n.s.after(max(0, at-r.n.s.now), func() {
		if r.timer == at {
			r.step(Tick{})
		}
	})
}

// send carries a message over the network: lost there, lost back, late, twice.
func (r *simReplica) send(a Send) {
	s := r.n.s
	answered := false
	answer := func(ev ReplicaEvent) {
		if !answered {
			answered = true
			r.step(ev)
		}
	}
	s.after(5*time.Second, func() { answer(NoAnswer{a.ID}) })
	copies := 1
	if s.chance(s.faults.double) {
		copies = 2
	}
	for range copies {
		if s.chance(s.faults.drop) {
			continue
		}
		s.after(time.Duration(s.rnd.Intn(3000))*time.Millisecond, func() {
			s.deliver(a.Message, func(reply Reply) {
				if s.chance(s.faults.drop) {
					return
				}
				s.after(time.Duration(s.rnd.Intn(1000))*time.Millisecond, func() { answer(Answered{a.ID, reply}) })
			})
		})
	}
}

// seal makes a file of the builder's rows, which must be the stream's.
func (r *simReplica) seal(a Seal) {
	s := r.n.s
	want := s.rowsOf(r.rec.start, a.End)
	if !slices.Equal(r.rows, want) {
		s.t.Fatalf("%s seq %d seals %v as [%d,%d), the stream has %v", r.n.id, r.rec.seq, r.rows, r.rec.start, a.End, want)
	}
	if r.sealed[a.End] {
		s.t.Fatalf("%s seq %d seals a second time at %d", r.n.id, r.rec.seq, a.End)
	}
	info := segment.Info{
		Digest: digestRows(want, r.n.variant()), Start: r.rec.start, End: a.End, Rows: int64(len(want)),
		RawBytes: 10 * int64(len(want)), SizeBytes: 1, LastLeaderEpoch: segment.NoLeaderEpoch,
	}
	took := 5 * time.Second
	if s.chance(s.faults.slow) {
		took = 5 * time.Minute
	}
	r.later(took, func() {
		if s.chance(s.faults.seal) {
			r.step(SealFailed{a.End, "the disk is full"})
			return
		}
		r.sealed[a.End] = true
		r.n.files[info.Digest] = true
		r.step(Sealed{info})
	})
}

// download takes the file from a node that is up and listed.
func (r *simReplica) download(a Download) {
	s := r.n.s
	if r.n.files[a.Digest] {
		r.step(Downloaded{a.Digest})
		return
	}
	for _, id := range slices.Sorted(maps.Keys(r.rec.locations)) {
		if n := s.node(id); n.up && n.files[a.Digest] && !s.chance(s.faults.source) {
			r.n.files[a.Digest] = true
			r.step(Downloaded{a.Digest})
			return
		}
	}
	r.step(NoSource{"nobody has it"})
}

func (r *simReplica) keep(info segment.Info) {
	rec := r.rec.rec
	if !rec.Done || rec.End != info.End || rec.Digest != info.Digest {
		r.n.s.t.Fatalf("%s seq %d keeps [..%d) %s as the committed file; the record says %+v", r.n.id, r.rec.seq, info.End, info.Digest, rec)
	}
	r.rec.locations[r.n.id] = true
}

func (r *simReplica) successor(a SuccessorMayStart) {
	rec := r.rec.rec
	if r.told || !rec.Done || rec.End != a.Offset {
		r.n.s.t.Fatalf("%s seq %d: successor from %d (told before: %t); the record says %+v", r.n.id, r.rec.seq, a.Offset, r.told, rec)
	}
	r.told = true
}
