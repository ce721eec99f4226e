package commit

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"time"
)

// Controller is the leader's half of the protocol for all segments: it owns the
// machines, and answers what is not a machine's business. It is not safe for
// concurrent use: one goroutine of the shell owns it, hands in the events, and
// carries out the actions in their order.
//
// The shell turns each well-formed message into a Received with a fresh ticket
// and the facts of the image, evaluates WriteCommit, EndEmpty, RecordError and
// RaiseAttempt in the one writer, hands their outcomes back in as WriteDone and
// RaiseDone, and says Tick about once a second. When it stops leading it says
// Deposed; a new leader begins with nothing.
type Controller struct {
	segments map[Key]*entry
}

// entry is what is known of one segment. Its machine is nil between rounds.
type entry struct {
	machine *Completion
	stops   *stops
}

// NewController returns a controller that knows nothing, as every leader begins.
func NewController() *Controller { return &Controller{segments: map[Key]*entry{}} }

// Step takes an event and returns what is to be done about it.
func (c *Controller) Step(now time.Duration, ev Event) []Action {
	switch ev := ev.(type) {
	case Received:
		return c.stepReceived(now, ev)
	case WriteDone:
		return c.stepMachine(now, ev.Key, ev)
	case RaiseDone:
		if e := c.segments[ev.Key]; e != nil {
			e.stops.raised(ev.Outcome)
			c.sweep(ev.Key, e)
		}
		return nil
	case SegmentGone:
		return c.stepGone(ev.Key)
	case Deposed:
		return c.stepDeposed(ev)
	}
	return c.stepTick(now)
}

// Machine returns the machine of a segment that is completing, nil if there is
// none. It is for looking at.
func (c *Controller) Machine(k Key) *Completion {
	if e := c.segments[k]; e != nil {
		return e.machine
	}
	return nil
}

// Stopped lists the replicas of a segment that said they will not go on.
func (c *Controller) Stopped(k Key) []string {
	if e := c.segments[k]; e != nil {
		return e.stops.names()
	}
	return nil
}

// stepReceived applies the rules that come before any machine.
func (c *Controller) stepReceived(now time.Duration, ev Received) []Action {
	m, f := &ev.Message, &ev.Facts
	switch {
	case !f.Leading:
		return []Action{Respond{ev.Ticket, Reply{Status: NotLeader, Leader: f.Leader}}}
	case f.Status == Absent || m.Segment != f.Name,
		!slices.Contains(f.Replicas, m.Instance),
		m.Incarnation != f.Incarnation,
		m.StreamEpoch != f.StreamEpoch,
		m.Offset < f.Start:
		return []Action{Respond{ev.Ticket, Reply{Status: Failed}}}
	}

	key := m.Key()
	e := c.segments[key]
	if e == nil {
		e = &entry{stops: newStops()}
	}
	if e.machine == nil || f.Status == Done && e.machine.state != Committing {
		e.machine = e.begin(now, key, ev)
	}
	if e.machine == nil { // no round, and this message starts none
		status := Failed
		if m.Kind == SegmentCommitStart && !e.stops.has(m.Instance) {
			status = Hold
		}
		return []Action{Respond{ev.Ticket, Reply{Status: status}}}
	}
	if f.Attempt > e.stops.attempt {
		e.stops.raised(Written)
		e.stops.attempt = f.Attempt
	}
	c.segments[key] = e
	return c.stepMachine(now, key, ev)
}

// begin makes the machine that a message calls for, nil if it calls for none.
func (e *entry) begin(now time.Duration, key Key, ev Received) *Completion {
	f := &ev.Facts
	switch {
	case f.Status == Done:
		return newCompletion(now, key, f.Timing, Committed, e.stops)
	case ev.Message.Kind == SegmentConsumed:
		return newCompletion(now, key, f.Timing, Holding, e.stops)
	case ev.Message.Kind == SegmentStoppedConsuming:
		return newCompletion(now, key, f.Timing, PartialConsuming, e.stops)
	}
	return nil
}

// stepMachine steps the segment's machine, and drops it once it is over.
func (c *Controller) stepMachine(now time.Duration, key Key, ev Event) []Action {
	e := c.segments[key]
	if e == nil || e.machine == nil {
		return nil
	}
	out := e.machine.Step(now, ev)
	if e.machine.Over() {
		if e.machine.state == Committed {
			e.stops = newStops()
		}
		e.machine = nil
	}
	c.sweep(key, e)
	return out
}

// sweep forgets a segment of which nothing is left to remember.
func (c *Controller) sweep(key Key, e *entry) {
	if e.machine == nil && len(e.stops.stopped) == 0 && e.stops.wait == 0 && !e.stops.noted {
		delete(c.segments, key)
	}
}

func (c *Controller) stepGone(key Key) []Action {
	e := c.segments[key]
	if e == nil {
		return nil
	}
	if e.machine != nil && e.machine.state == Committing {
		e.stops = newStops()
		e.machine.stops = e.stops
		return nil
	}
	delete(c.segments, key)
	return nil
}

func (c *Controller) stepDeposed(ev Deposed) (out []Action) {
	for _, key := range c.keys() {
		if m := c.segments[key].machine; m != nil && m.pending != nil {
			for _, t := range m.pending.waiting {
				out = append(out, Respond{t, Reply{Status: NotLeader, Leader: ev.Leader}})
			}
		}
	}
	clear(c.segments)
	return out
}

func (c *Controller) stepTick(now time.Duration) (out []Action) {
	for _, key := range c.keys() {
		out = append(out, c.segments[key].stops.due(now, key)...)
	}
	return out
}

// keys lists the segments in one order, so that a replay gives the same actions.
func (c *Controller) keys() []Key { return slices.SortedFunc(maps.Keys(c.segments), Key.compare) }

func (k Key) compare(o Key) int {
	return cmp.Or(bytes.Compare(k.Table[:], o.Table[:]), cmp.Compare(k.Partition, o.Partition), cmp.Compare(k.Seq, o.Seq))
}
