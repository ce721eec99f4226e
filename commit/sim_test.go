package commit

import (
	"container/heap"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/shoalstore/shoal/segment"
)

// The whole protocol in one goroutine: a leader that may die, three nodes that
// may, a network that drops, delays and doubles, writes that fail before and
// after they took effect, builds that differ, and a stream with gaps. The fake
// shell is as small as the driving contract allows (simReplica), so that it is
// also an example of it.
//
// Phase 1, under faults: every file holds exactly the rows of [start, end) as
// the stream has them; a segment is committed once; what a replica keeps has the
// committed digest; no offset is sealed twice by one machine. Phase 2, healed:
// every row that was there is committed, and all nodes hold the same file of
// each segment.

func TestReplicasAgreeOverABadNetwork(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := func(name string, most int) float64 { // drawn in thousandths
			return float64(rapid.IntRange(0, most).Draw(t, name)) / 1000
		}
		s := newSim(t, simFaults{
			drop: rate("drop", 400), double: rate("double", 300),
			crash: rate("crash", 30), depose: rate("depose", 20), write: rate("failed writes", 300),
			read: rate("reader failures", 60), seal: rate("failed seals", 100), slow: rate("slow seals", 300),
			source:  rate("failed downloads", 700),
			variant: rapid.Bool().Draw(t, "node 3 builds other bytes"),
		}, rapid.Int64().Draw(t, "seed"))
		s.runUntil(10*time.Minute, func() bool { return false })
		s.heal()
		rows := s.streamEnd()
		if !s.runUntil(s.now+2*time.Hour, func() bool { return s.settledUpTo(rows) }) {
			t.Fatalf("healed, and not settled up to %d in two hours:\n%s", rows, s.describe())
		}
	})
}

type simFaults struct {
	drop, double, crash, depose, write, read, seal, source, slow float64
	variant                                                      bool
}

type sim struct {
	t      *rapid.T
	rnd    *rand.Rand
	faults simFaults
	now    time.Duration
	queue  simQueue
	serial int

	stream  []int64 // offsets of the rows there are, rising, with gaps
	next    int64   // the stream's next offset
	nodes   []*simNode
	records []*simRecord

	leader  *Controller // nil between two leaders
	epoch   int64
	ticket  Ticket
	waiting map[Ticket]func(Reply)
}

// simRecord is a segment's record, and the files that are listed as locations.
type simRecord struct {
	seq       int64
	rec       Record
	start     int64
	locations map[string]bool
}

type simEvent struct {
	at     time.Duration
	serial int
	do     func()
}

type simQueue []simEvent

func (q simQueue) Len() int { return len(q) }
func (q simQueue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].serial < q[j].serial
}
func (q simQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *simQueue) Push(x any)   { *q = append(*q, x.(simEvent)) }
func (q *simQueue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

func newSim(t *rapid.T, f simFaults, seed int64) *sim {
	s := &sim{t: t, rnd: rand.New(rand.NewSource(seed)), faults: f, leader: NewController(), epoch: 1, waiting: map[Ticket]func(Reply){}}
	s.records = []*simRecord{{rec: Record{Mine: true}, locations: map[string]bool{}}}
	for i := range 3 {
		n := &simNode{s: s, id: fmt.Sprintf("s%d", i+1), incarnation: 1, up: true, replicas: map[int64]*simReplica{}, files: map[segment.Digest]bool{}}
		s.nodes = append(s.nodes, n)
		s.every(time.Second, n.tick)
	}
	s.every(time.Second, s.tickStream)
	s.every(time.Second, s.tickLeader)
	return s
}

func (s *sim) chance(p float64) bool { return s.rnd.Float64() < p }

func (s *sim) after(d time.Duration, do func()) {
	s.serial++
	heap.Push(&s.queue, simEvent{s.now + d, s.serial, do})
}

// every runs do about once in d, never in step with the others.
func (s *sim) every(d time.Duration, do func()) {
	s.after(d/2+time.Duration(s.rnd.Int63n(int64(d))), func() {
		do()
		s.every(d, do)
	})
}

func (s *sim) runUntil(end time.Duration, done func() bool) bool {
	for s.now < end {
		e := heap.Pop(&s.queue).(simEvent)
		s.now = e.at
		e.do()
		if done() {
			return true
		}
	}
	return false
}

// heal ends all faults and brings everybody back.
func (s *sim) heal() {
	s.faults = simFaults{variant: s.faults.variant}
	if s.leader == nil {
		s.lead()
	}
	for _, n := range s.nodes {
		n.restart()
	}
}

// tickStream appends rows, with gaps before some of them and now and then at the
// tail, where only the next-fetch position tells of them.
func (s *sim) tickStream() {
	for range s.rnd.Intn(3) {
		if s.chance(0.2) {
			s.next += int64(s.rnd.Intn(4))
		}
		s.stream = append(s.stream, s.next)
		s.next++
	}
	if s.chance(0.1) {
		s.next++
	}
}

func (s *sim) streamEnd() int64 { return s.next }

// rowsOf lists the stream's rows in [from, to).
func (s *sim) rowsOf(from, to int64) []int64 {
	i, _ := slices.BinarySearch(s.stream, from)
	j, _ := slices.BinarySearch(s.stream, to)
	return s.stream[i:j]
}

// tickLeader is the leader's clock and its bad luck, and an operator who
// force-commits.
func (s *sim) tickLeader() {
	if s.leader == nil {
		return
	}
	s.lead1(Tick{})
	if s.chance(s.faults.depose) {
		s.depose()
	}
	if last := s.records[len(s.records)-1]; s.chance(0.01) {
		last.rec.EndRequested = true
	}
}

func (s *sim) depose() {
	if s.leader == nil {
		return
	}
	s.lead1(Deposed{})
	s.leader = nil
	s.after(time.Duration(s.rnd.Intn(20))*time.Second, s.lead)
}

func (s *sim) lead() {
	if s.leader == nil {
		s.leader = NewController()
		s.epoch++
	}
}

// lead1 steps the leader and carries out its actions.
func (s *sim) lead1(ev Event) {
	for _, a := range s.leader.Step(s.now, ev) {
		switch a := a.(type) {
		case Respond:
			answer := s.waiting[a.Ticket]
			if answer == nil {
				s.t.Fatalf("ticket %d answered twice, or never asked", a.Ticket)
			}
			delete(s.waiting, a.Ticket)
			answer(a.Reply)
		case WriteCommit:
			s.write(WriteDone{Key: a.Key, Ticket: a.Ticket}, func() bool { return s.commit(a) })
		case EndEmpty:
			s.write(WriteDone{Key: a.Key, Ticket: a.Ticket}, func() bool {
				s.records[a.Key.Seq].rec.EndRequested = false
				return true
			})
		case RaiseAttempt:
			s.raise(a)
		}
	}
}

// write runs a function of the image some time later; a failed write may have
// taken effect, and poisons the writer.
func (s *sim) write(done WriteDone, apply func() bool) {
	of := s.leader
	s.after(time.Duration(s.rnd.Intn(2000))*time.Millisecond, func() {
		if s.leader != of {
			return
		}
		fails := s.chance(s.faults.write)
		done.Outcome = WriteFailed
		if !fails || s.chance(0.5) {
			if apply() {
				done.Outcome = Written
			} else {
				done.Outcome = WriteRefused
			}
		}
		if fails {
			done.Outcome = WriteFailed
		}
		s.lead1(done)
		if fails {
			s.depose()
		}
	})
}

// commit is the function of the one atomic batch.
func (s *sim) commit(a WriteCommit) bool {
	r := s.records[a.Key.Seq]
	n := s.node(a.End.Instance)
	if r.rec.Done || a.End.Offset <= r.start || n.incarnation != a.End.Incarnation {
		return false
	}
	if want := digestRows(s.rowsOf(r.start, a.End.Offset), n.variant()); a.End.Digest != want {
		s.t.Fatalf("seq %d: commit of [%d,%d) with other rows than the stream's", r.seq, r.start, a.End.Offset)
	}
	r.rec.Done, r.rec.End, r.rec.Digest, r.rec.Committer = true, a.End.Offset, a.End.Digest, a.End.Instance
	r.rec.EndRequested = false
	r.locations[a.End.Instance] = true
	s.records = append(s.records, &simRecord{
		seq: r.seq + 1, start: a.End.Offset, rec: Record{Mine: true}, locations: map[string]bool{},
	})
	return true
}

func (s *sim) raise(a RaiseAttempt) {
	outcome := WriteFailed
	if r := s.records[a.Key.Seq]; !s.chance(s.faults.write) {
		outcome = WriteRefused
		if r.rec.Attempt == a.From && !r.rec.Done {
			r.rec.Attempt++
			outcome = Written
		}
	}
	s.after(0, func() {
		if s.leader != nil {
			s.lead1(RaiseDone{a.Key, outcome})
		}
	})
}

// deliver hands a message to whoever leads.
func (s *sim) deliver(m Message, answer func(Reply)) {
	if err := m.Validate(); err != nil {
		s.t.Fatalf("%s sent a malformed message: %v", m.Instance, err)
	}
	if s.leader == nil {
		answer(Reply{Status: NotLeader})
		return
	}
	r := s.records[m.Seq]
	f := Facts{
		Leading: true, Status: InProgress, Name: testSegment, Start: r.start, StreamEpoch: "0", Attempt: r.rec.Attempt,
		Replicas: []string{"s1", "s2", "s3"}, Incarnation: s.node(m.Instance).incarnation, Timing: DefaultTiming,
		End: r.rec.End, Digest: r.rec.Digest, Committer: r.rec.Committer,
	}
	if r.rec.Done {
		f.Status = Done
	}
	s.ticket++
	s.waiting[s.ticket] = answer
	s.lead1(Received{s.ticket, m, f})
}

func (s *sim) node(id string) *simNode { return s.nodes[id[1]-'1'] }

// settledUpTo reports whether all rows below end are committed, and every
// segment's file is at every node.
func (s *sim) settledUpTo(end int64) bool {
	for _, r := range s.records {
		if !r.rec.Done {
			return r.start >= end
		}
		for _, n := range s.nodes {
			if !n.files[r.rec.Digest] || n.replicas[r.seq] != nil {
				return false
			}
		}
	}
	return false
}

func (s *sim) describe() (text string) {
	for _, r := range s.records {
		text += fmt.Sprintf("seq %d from %d: %+v\n", r.seq, r.start, r.rec)
	}
	for _, n := range s.nodes {
		for _, seq := range slices.Sorted(maps.Keys(n.replicas)) {
			r := n.replicas[seq].r
			text += fmt.Sprintf("%s seq %d: %s at %d, %d rows %s\n", n.id, seq, r.State(), r.Position(), r.Rows(), r.LastError())
		}
	}
	return text
}

// digestRows is what a file of these rows hashes to; a variant builder makes
// other bytes of the same rows.
func digestRows(rows []int64, variant bool) (d segment.Digest) {
	h := fnv.New128a()
	fmt.Fprint(h, rows, variant)
	h.Sum(d[:0])
	return d
}

var simStore = uuid.MustParse("6f1c9f5e-36a8-4b3a-9a55-0d2f6f3a1c03")
