package metalog

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
)

const (
	// groupBytesMax is how large a batch may be when it is encoded. It leaves room
	// below MaxFramePayload.
	groupBytesMax = 512 << 10
	// groupsMax is how many batches may wait for the one in flight. When there are
	// that many, the writer is full.
	groupsMax = 4
)

// writerState is what the writer is doing.
type writerState string

const (
	writerNew      writerState = "NEW"      // the epoch is not opened
	writerWriting  writerState = "WRITING"  // takes submissions
	writerStopping writerState = "STOPPING" // appends what it has accepted, takes no more
	writerFailing  writerState = "FAILING"  // poisoned; the append in flight is waited for
	writerStopped  writerState = "STOPPED"
)

// writerEdges are the legal changes of state.
var writerEdges = map[writerState][]writerState{
	writerNew:      {writerWriting, writerStopping, writerStopped},
	writerWriting:  {writerStopping, writerFailing, writerStopped},
	writerStopping: {writerStopped},
	writerFailing:  {writerStopped},
}

// WriterEvent is what happened, WriterAction what to do about it, in order.
type (
	WriterEvent  interface{ isWriterEvent() }
	WriterAction interface{ isWriterAction() }
)

// The events.
type (
	// OpenEpoch accepts the records that every epoch, and every log, begins with. It
	// comes once, before any submission.
	OpenEpoch struct{}
	// Submitted is a change to be made. It is answered exactly once, under an ID that
	// is the caller's. It must not come while the machine is Full, unless that is
	// because it stops: then it is refused.
	Submitted struct {
		ID   uint64
		Func meta.Func
		// More says that another Submitted or a Flush comes next, and an append that
		// could begin waits for it, so that what is there at once becomes one batch.
		More bool
	}
	// Flush ends what More began.
	Flush struct{}
	// Appended ends an AppendBatch. After an error nobody knows whether the batch is
	// in the log.
	Appended struct{ Err error }
	// Stopping says that the writer shall take no more and end.
	Stopping struct{}
)

// The actions.
type (
	// AppendBatch makes Batch durable at the end of the log. There is one at a time.
	AppendBatch struct{ Batch *meta.Batch }
	// BatchCommitted says that Batch is committed and Image what it made. First: it
	// opened the epoch, and with it the leader has proved that it leads.
	BatchCommitted struct {
		Image   *meta.Image
		Batch   *meta.Batch
		First   bool
		Changes int // that went into it
	}
	// Answered is what came of the submission with this ID.
	Answered struct {
		ID     uint64
		Result Result
		Err    error
	}
	// WriterStopped is the last action. Without an error the stop was orderly;
	// otherwise the writer is poisoned, and leadership must be laid down.
	WriterStopped struct{ Err error }
)

func (OpenEpoch) isWriterEvent() {}
func (Submitted) isWriterEvent() {}
func (Flush) isWriterEvent()     {}
func (Appended) isWriterEvent()  {}
func (Stopping) isWriterEvent()  {}

func (AppendBatch) isWriterAction()    {}
func (BatchCommitted) isWriterAction() {}
func (Answered) isWriterAction()       {}
func (WriterStopped) isWriterAction()  {}

// Result says where a change is: in the batch at Offset. Image is the committed
// image right after that batch.
type Result struct {
	Offset int64
	Image  *meta.Image
}

// WriterMachineConfig is what a WriterMachine starts from; the fields are those of
// WriterConfig.
type WriterMachineConfig struct {
	Image   *meta.Image
	Leader  meta.Leader
	Cluster uuid.UUID

	BatchSize     func(*meta.Batch) (int, error)
	BatchBytesMax int
}

// WriterMachine decides what the writer accepts, what goes into which batch, and who
// is answered what. It is pure, and it is what Writer runs.
type WriterMachine struct {
	leader  meta.Leader
	cluster uuid.UUID
	bounds  bounds

	state    writerState
	cause    error       // why it fails or has stopped; nil when that is orderly
	image    *meta.Image // committed
	groups   []*group    // accepted and not yet committed, oldest first
	inFlight bool        // groups[0] is being appended

	wall int64          // of this Step
	out  []WriterAction // of this Step
}

// NewWriterMachine returns a machine that waits for OpenEpoch.
func NewWriterMachine(cfg WriterMachineConfig) *WriterMachine {
	m := &WriterMachine{
		leader: cfg.Leader, cluster: cfg.Cluster, state: writerNew, image: cfg.Image,
		bounds: bounds{size: cfg.BatchSize, max: cmp.Or(cfg.BatchBytesMax, groupBytesMax)},
	}
	if m.bounds.size == nil {
		m.bounds.size = encodedSize
	}
	return m
}

// Image is the committed image.
func (m *WriterMachine) Image() *meta.Image { return m.image }

// Full tells whether the machine takes no submission now: enough batches wait, or it
// stops.
func (m *WriterMachine) Full() bool { return m.state != writerWriting || len(m.groups) > groupsMax }

func (m *WriterMachine) become(s writerState) {
	if !slices.Contains(writerEdges[m.state], s) {
		panic(fmt.Sprintf("metalog: writer cannot go from %s to %s", m.state, s))
	}
	m.state = s
}

// Step takes one event and says what to do. wall is the time in milliseconds since
// the Unix epoch; it may go back, the times of batches do not.
func (m *WriterMachine) Step(wall int64, ev WriterEvent) []WriterAction {
	m.wall, m.out = wall, nil
	switch ev := ev.(type) {
	case OpenEpoch:
		m.openEpoch()
	case Submitted:
		m.submit(ev)
		if ev.More {
			return m.out
		}
	case Flush:
	case Appended:
		m.appended(ev.Err)
	case Stopping:
		if m.state == writerNew || m.state == writerWriting {
			m.become(writerStopping)
		}
	default:
		panic(fmt.Sprintf("metalog: writer cannot take a %T", ev))
	}
	m.proceed()
	return m.out
}

func (m *WriterMachine) do(a WriterAction) { m.out = append(m.out, a) }

// proceed begins the next append, or ends what has nothing left to append.
func (m *WriterMachine) proceed() {
	switch {
	case m.inFlight || m.state == writerStopped:
	case m.state == writerFailing:
		m.stop(m.cause)
	case len(m.groups) > 0:
		if err := m.groups[0].seal(); err != nil {
			m.stop(err)
			return
		}
		m.inFlight = true
		m.do(AppendBatch{Batch: m.groups[0].batch})
	case m.state == writerStopping:
		m.stop(nil)
	}
}

func (m *WriterMachine) openEpoch() {
	m.become(writerWriting)
	g := m.newGroup()
	if m.image.Next() == 0 {
		if err := g.add(meta.NewCluster(m.cluster)); err != nil {
			m.stop(fmt.Errorf("metalog: new cluster: %w", err))
			return
		}
	}
	if err := g.add(meta.NewLeader(m.leader)); err != nil {
		m.stop(fmt.Errorf("metalog: open epoch %d: %w", m.leader.Epoch, err))
	}
}

// submit puts a change into the open group, or into a new one when that is in flight
// or has no room, or answers it.
func (m *WriterMachine) submit(s Submitted) {
	switch {
	case m.state != writerWriting && m.state != writerNew:
		m.do(Answered{ID: s.ID, Err: refusal(m.cause)})
		return
	case m.Full():
		panic(fmt.Sprintf("metalog: a submission in state %s with %d batches waiting", m.state, len(m.groups)))
	}
	g := m.openGroup()
	if g == nil {
		g = m.newGroup()
	}
	err := g.add(s.Func)
	if errors.Is(err, errNoRoom) {
		if err := g.seal(); err != nil {
			m.do(Answered{ID: s.ID, Err: fmt.Errorf("%w: %w", ErrUnknown, err)})
			m.become(writerFailing)
			m.cause = err
			return
		}
		g = m.newGroup()
		err = g.add(s.Func)
	}
	if len(g.changes) == 0 {
		m.groups = m.groups[:len(m.groups)-1] // nothing came of it
	}
	switch {
	case errors.Is(err, errNoChange):
		m.awaitCommitted(s.ID)
	case err != nil:
		m.do(Answered{ID: s.ID, Err: err})
	default:
		g.waiting = append(g.waiting, s.ID)
	}
}

// refusal is what a submission gets when nothing is taken any more.
func refusal(cause error) error {
	if cause != nil {
		return fmt.Errorf("%w: %w", ErrPoisoned, cause)
	}
	return ErrStopped
}

// awaitCommitted answers a submission that changes nothing: with the newest group
// that it saw, or at once.
func (m *WriterMachine) awaitCommitted(id uint64) {
	if n := len(m.groups); n > 0 {
		m.groups[n-1].waiting = append(m.groups[n-1].waiting, id)
		return
	}
	m.do(Answered{ID: id, Result: Result{Offset: m.image.Next() - 1, Image: m.image}})
}

// openGroup is the newest group if it can still be added to.
func (m *WriterMachine) openGroup() *group {
	if n := len(m.groups); n > 0 && !m.groups[n-1].sealed {
		return m.groups[n-1]
	}
	return nil
}

// newGroup opens a group after the newest one.
func (m *WriterMachine) newGroup() *group {
	base := m.image
	if n := len(m.groups); n > 0 {
		base = m.groups[n-1].image
	}
	g := &group{
		base: base, image: base, bounds: m.bounds,
		batch: &meta.Batch{
			Offset: base.Next(), Epoch: m.leader.Epoch, Term: m.leader.Term,
			Time: meta.NextTime(base.LastTime(), m.wall),
		},
	}
	m.groups = append(m.groups, g)
	return g
}

// appended commits the group that was in flight and answers those who waited for it.
func (m *WriterMachine) appended(err error) {
	if !m.inFlight {
		panic("metalog: an append has ended that never began")
	}
	m.inFlight = false
	if m.state == writerFailing {
		return
	}
	g := m.groups[0]
	if err != nil {
		m.stop(fmt.Errorf("append batch %d: %w", g.batch.Offset, err))
		return
	}
	m.groups = m.groups[1:]
	m.image = g.image
	m.out = make([]WriterAction, 0, len(g.waiting)+2)
	m.do(BatchCommitted{Image: g.image, Batch: g.batch, First: g.base.Epoch() != m.leader.Epoch, Changes: len(g.changes)})
	for _, id := range g.waiting {
		m.do(Answered{ID: id, Result: Result{Offset: g.batch.Offset, Image: g.image}})
	}
}

// stop ends the machine. With a cause it ends everything accepted: nobody can say
// which of it will be found in the log. Nothing is tried again here; the next leader
// reads what is there.
func (m *WriterMachine) stop(cause error) {
	m.become(writerStopped)
	m.cause = cause
	for _, g := range m.groups {
		for _, id := range g.waiting {
			m.do(Answered{ID: id, Err: fmt.Errorf("%w: %w", ErrUnknown, cause)})
		}
	}
	m.groups = nil
	m.do(WriterStopped{Err: cause})
}
