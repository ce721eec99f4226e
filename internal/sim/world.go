package sim

import (
	"container/heap"
	"fmt"
	"math/rand"
	"time"
)

// world is virtual time: a heap of events in the order of (time, sequence), one
// source of chance, and a trace of what happened. Everything runs in the goroutine
// that calls run.
type world struct {
	now   time.Duration // true time since the start
	seq   uint64
	queue eventQueue
	rnd   *rand.Rand
	trace *trace
	count *counts
	// failure is the first violation; it ends the run.
	failure *Violation
}

// scheduled is something that will happen.
type scheduled struct {
	at    time.Duration
	seq   uint64
	label string
	do    func()
	proc  *process // whose event it is; nil: the world's
	life  int      // of proc, when it was scheduled
}

type eventQueue []*scheduled

func (q eventQueue) Len() int { return len(q) }
func (q eventQueue) Less(i, j int) bool {
	if q[i].at != q[j].at {
		return q[i].at < q[j].at
	}
	return q[i].seq < q[j].seq
}
func (q eventQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *eventQueue) Push(x any)   { *q = append(*q, x.(*scheduled)) }
func (q *eventQueue) Pop() any {
	old := *q
	last := len(old) - 1
	ev := old[last]
	old[last] = nil
	*q = old[:last]
	return ev
}

func newWorld(seed int64, tr *trace) *world {
	return &world{rnd: rand.New(rand.NewSource(seed)), trace: tr, count: newCounts()}
}

// after schedules something of the world itself: a fault, a check, the network.
func (w *world) after(d time.Duration, label string, do func()) { w.schedule(d, label, nil, do) }

func (w *world) schedule(d time.Duration, label string, p *process, do func()) {
	w.seq++
	ev := &scheduled{at: w.now + max(d, 0), seq: w.seq, label: label, do: do, proc: p}
	if p != nil {
		ev.life = p.life
	}
	heap.Push(&w.queue, ev)
}

// run lets happen what is due, until the given time, a failure, or until done says
// so; done is asked after each event.
func (w *world) run(until time.Duration, done func() bool) {
	for w.failure == nil && len(w.queue) > 0 && w.queue[0].at <= until {
		ev := heap.Pop(&w.queue).(*scheduled)
		w.now = ev.at
		if p := ev.proc; p != nil {
			if !p.up || p.life != ev.life {
				continue // of a process that is no more
			}
			if w.now < p.resumesAt {
				// The process is stopped: what was due meanwhile happens at once when
				// it goes on, in the same order.
				w.seq++
				ev.at, ev.seq = p.resumesAt, w.seq
				heap.Push(&w.queue, ev)
				continue
			}
		}
		w.count.events++
		w.trace.event(w.now, ev.proc, ev.label)
		ev.do()
		if p := ev.proc; p != nil && p.up && p.disk.off {
			p.kill(true)
		}
		if done != nil && done() {
			return
		}
	}
	if w.failure == nil && w.now < until && (len(w.queue) == 0 || w.queue[0].at > until) {
		w.now = until
	}
}

// fail ends the run with a violation of an invariant.
func (w *world) fail(invariant, format string, args ...any) {
	if w.failure == nil {
		w.failure = &Violation{Invariant: invariant, At: w.now, What: fmt.Sprintf(format, args...)}
		w.trace.note(w.now, "VIOLATION "+w.failure.Error())
	}
}

// Violation is an invariant that did not hold.
type Violation struct {
	Invariant string // I1 to I6 of DESIGN §9, "round" (check_rounds.go), "snapshot" (check_snapshots.go), or "panic"
	At        time.Duration
	What      string
}

func (v *Violation) Error() string { return fmt.Sprintf("%s at %s: %s", v.Invariant, v.At, v.What) }

// chance is true with probability p.
func (w *world) chance(p float64) bool { return p > 0 && w.rnd.Float64() < p }

// between draws a duration in [lo, hi].
func (w *world) between(lo, hi time.Duration) time.Duration {
	if hi <= lo {
		return lo
	}
	return lo + time.Duration(w.rnd.Int63n(int64(hi-lo)+1))
}

// process is a process of the cluster on a machine of its own. It can die and come
// back, which is another life: what an earlier one had scheduled is gone with it.
type process struct {
	w         *world
	name      string
	up        bool
	life      int
	born      time.Duration // of this life
	resumesAt time.Duration // it is stopped (SIGSTOP) until then
	skew      time.Duration // of its wall clock
	skewedAt  time.Duration // when that changed last
	disk      *disk
	// hadPowerCut: the last life ended by one. cutAtStart: the next one does too, at
	// that durable operation.
	hadPowerCut bool
	cutAtStart  int
	whenDead    func() // of this life, by a power cut within an operation
	start       func() // makes a life of it
	stop        func() // tells the owner that the life is over
}

// after schedules something that the process does, if it still lives then.
func (p *process) after(d time.Duration, label string, do func()) { p.w.schedule(d, label, p, do) }

// mono is the process's monotonic clock, which goes on while it is stopped.
func (p *process) mono() time.Duration { return p.w.now - p.born }

// epochStart is the wall time of the world's beginning, in milliseconds.
const epochStart = 1_767_225_600_000

// wall is the process's wall clock, in milliseconds since the Unix epoch.
func (p *process) wall() int64 { return epochStart + (p.w.now + p.skew).Milliseconds() }

// stopped reports whether the process does not run now, though it lives.
func (p *process) stopped() bool { return p.w.now < p.resumesAt }

// boot starts a life.
func (p *process) boot() {
	p.up, p.born, p.resumesAt = true, p.w.now, 0
	p.life++
	p.w.trace.note(p.w.now, p.name+" starts")
	if p.cutAtStart > 0 {
		p.disk.cutIn, p.cutAtStart = p.cutAtStart, 0
		p.whenDead = func() { p.w.after(time.Second, p.name+" is started again", p.boot) }
	}
	p.start()
	if p.up && p.disk.off {
		p.kill(true)
	}
}

// kill ends a life; with the power cut, the disk forgets what was not fsynced.
func (p *process) kill(power bool) {
	if !p.up {
		return
	}
	p.up = false
	p.life++
	p.w.trace.note(p.w.now, p.name+" dies")
	p.stop()
	p.hadPowerCut = power || p.disk.off
	p.disk.died(power)
	if p.whenDead != nil {
		p.whenDead()
		p.whenDead = nil
	}
}
