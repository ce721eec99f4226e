package sim

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/controller"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/validation"
)

// simController is the shell of a controller: what internal/controller does in
// goroutines, done in events. It decides nothing either.
type simController struct {
	process
	c       *cluster
	machine *controller.Machine
	files   *metadata // its own log; nil before it is open
	keeper  keeper    // how it comes to lead, and where batches go

	// Of a leadership.
	writer      *metalog.WriterMachine
	epoch       int64
	submissions map[uint64]func(metalog.Result, error)

	standing metalog.Standing
	// completing are the segments that are, with the state that was counted last.
	completing map[meta.SegmentKey]string
	polls      []*poll
	tickets    map[controller.Ticket]func(controller.Action)
	last       uint64 // ticket or submission
}

// keeper is a metadata store, as a controller sees it.
type keeper interface {
	boot()
	stop()
	// append makes a batch durable and says how that went.
	append(b *meta.Batch, done func(error))
	// laidDown says that the writer has stopped.
	laidDown(err error)
	// mayAnswer reports whether the leadership is still to be believed now.
	mayAnswer() bool
}

func newController(c *cluster, name string) *simController {
	s := &simController{c: c}
	s.process = process{w: c.w, name: name, disk: newDisk(c.w), start: s.begin, stop: s.end}
	if c.zk != nil {
		s.keeper = newZooKeeperKeeper(s)
	} else {
		s.keeper = &embedded{s: s}
	}
	return s
}

func (s *simController) url() string { return "http://" + s.name }

// leads reports whether it leads, as far as it knows.
func (s *simController) leads() bool { return s.writer != nil && s.standing.Leading }

func (s *simController) begin() {
	s.machine = controller.NewMachine()
	s.machine.SetRetention(s.c.plan.Retention)
	s.machine.SetValidation(s.c.plan.Validation)
	s.writer, s.files, s.standing, s.polls = nil, nil, metalog.Standing{}, nil
	s.tickets, s.submissions = map[controller.Ticket]func(controller.Action){}, map[uint64]func(metalog.Result, error){}
	s.completing = map[meta.SegmentKey]string{}
	s.keeper.boot()
	s.tick()
}

func (s *simController) end() { s.keeper.stop() }

const controllerTick = 500 * time.Millisecond

func (s *simController) tick() {
	s.after(controllerTick, "tick", func() {
		s.step(controller.Tick{})
		s.tick()
	})
}

// openLog opens the log of this machine with its snapshots, and the image of it.
func (s *simController) openLog() (*meta.Image, error) {
	files := &metadata{p: &s.process, c: s.c, dir: "log"}
	image, err := files.open()
	if err == nil {
		s.files = files
	}
	return image, err
}

// lead begins to write under an epoch that nobody else has.
func (s *simController) lead(image *meta.Image, epoch int64, term uuid.UUID) {
	s.epoch = epoch
	s.writer = metalog.NewWriterMachine(metalog.WriterMachineConfig{
		Image: image, Cluster: s.c.clusterID,
		Leader: meta.Leader{Epoch: epoch, Term: term, Controller: s.name, URL: s.url()},
	})
	s.write(metalog.OpenEpoch{})
	s.askWhenDue()
}

// write hands the writer's machine an event and does what it says.
func (s *simController) write(ev metalog.WriterEvent) {
	if s.writer == nil {
		return
	}
	writer := s.writer
	for _, a := range writer.Step(s.wall(), ev) {
		switch a := a.(type) {
		case metalog.AppendBatch:
			s.keeper.append(a.Batch, func(err error) {
				if s.writer == writer {
					s.write(metalog.Appended{Err: err})
				}
			})
		case metalog.BatchCommitted:
			s.committed(a)
		case metalog.Answered:
			if done := s.submissions[a.ID]; done != nil {
				delete(s.submissions, a.ID)
				done(a.Result, a.Err)
			}
		case metalog.WriterStopped:
			s.layDown(a.Err)
		}
	}
}

func (s *simController) committed(a metalog.BatchCommitted) {
	s.c.check.committed(s, a.Batch)
	if a.First {
		s.c.w.count.outcomes["epoch opened"]++
		s.stand(metalog.Standing{Cluster: a.Image.Cluster().ID, Epoch: s.epoch, URL: s.url(), Leading: true})
		s.step(controller.Lead{URL: s.url(), Image: a.Image})
	}
	var keys []meta.Key
	for k := range a.Batch.Keys() {
		keys = append(keys, k)
	}
	if a.Batch.SnapshotHere {
		s.files.cut(a.Image)
	}
	s.step(controller.Committed{Image: a.Image, Touched: keys})
	s.wakePolls()
}

// layDown ends a leadership, for whatever reason.
func (s *simController) layDown(err error) {
	if s.writer == nil {
		return
	}
	s.writer = nil
	s.c.w.count.outcomes["leadership laid down"]++
	s.stand(metalog.Standing{Cluster: s.standing.Cluster, Epoch: s.standing.Epoch})
	waiting := s.submissions
	s.submissions = map[uint64]func(metalog.Result, error){}
	for _, id := range sortedIDs(waiting) {
		waiting[id](metalog.Result{}, metalog.ErrUnknown)
	}
	s.step(controller.Depose{})
	s.keeper.laidDown(err)
}

// stand says who leads, to those who ask.
func (s *simController) stand(st metalog.Standing) {
	s.standing = st
	s.wakePolls()
}

var errNotLeading = errors.New("sim: not leading")

// submit has a function of the image written.
func (s *simController) submit(fn meta.Func, done func(metalog.Result, error)) {
	if s.writer == nil {
		done(metalog.Result{}, errNotLeading)
		return
	}
	if s.writer.Full() {
		writer := s.writer
		s.after(5*time.Millisecond, "submission waits", func() {
			if s.writer == writer {
				s.submit(fn, done)
			} else {
				done(metalog.Result{}, metalog.ErrStopped)
			}
		})
		return
	}
	s.last++
	s.submissions[s.last] = done
	s.write(metalog.Submitted{ID: s.last, Func: fn})
}

// countCompletions counts the changes of state of the segments that are completing.
func (s *simController) countCompletions(ev controller.Event) {
	if m, ok := ev.(controller.Message); ok {
		k := meta.SegmentKey{Table: m.Message.Table, Partition: m.Message.Partition, Seq: m.Message.Seq}
		if _, known := s.completing[k]; !known {
			s.completing[k] = "none"
		}
	}
	for k, was := range s.completing {
		is := "none"
		if state, completing := s.machine.CompletionState(k); completing {
			is = state.String()
		}
		s.c.edge("completion", was, is)
		if s.completing[k] = is; is == "none" {
			delete(s.completing, k)
		}
	}
}

// step hands the machine an event and carries out what it says.
func (s *simController) step(ev controller.Event) {
	actions := s.machine.Step(controller.Now{Mono: s.mono(), Wall: s.wall()}, ev)
	s.countCompletions(ev)
	for _, a := range actions {
		switch a := a.(type) {
		case controller.ReplyTo:
			s.answer(a.Ticket, a)
		case controller.AnswerHeartbeat:
			s.answer(a.Ticket, a)
		case controller.AnswerLocations:
			s.answer(a.Ticket, a)
		case controller.Write:
			s.after(0, "write "+a.What, func() {
				s.submit(a.Func, func(res metalog.Result, err error) { s.wrote(a, res, err) })
			})
		case controller.ListPartitions:
			s.after(s.c.w.between(time.Millisecond, 200*time.Millisecond), "partitions listed", func() {
				if s.c.topic.down {
					s.step(controller.Listed{ID: a.ID, Err: errStreamDown})
					return
				}
				s.step(controller.Listed{ID: a.ID, Partitions: s.c.topic.list()})
			})
		case controller.DeleteDeepStore:
			s.after(s.c.deepLatency(), "objects deleted", func() {
				var errs []error
				for _, key := range a.Keys {
					errs = append(errs, deepstore.Remove(context.Background(), s.c.deep, key))
				}
				s.step(controller.Deleted{ID: a.ID, Err: errors.Join(errs...)})
			})
		case controller.RetentionBlocked:
			s.c.w.count.outcomes["retention held up by a clock, or free again"]++
		case controller.Expired:
			s.c.w.count.outcomes["segment expired"] += int64(a.Segments)
		case controller.Survey:
			s.after(s.c.w.between(time.Millisecond, 200*time.Millisecond), "everything looked at", func() {
				s.step(controller.Surveyed{ID: a.ID, Findings: validation.Survey(a.Image, a.Request)})
			})
		case controller.ListDeepStore:
			s.after(s.c.deepLatency(), "deep store listed", func() {
				out := controller.ListObjects(context.Background(), a, s.c.deep)
				s.c.w.count.outcomes["missed in a listing of the deep store"] += int64(len(out.Missing))
				s.step(out)
			})
		case controller.AskUpload:
			s.askUpload(a)
		case controller.CheckDeepStore:
			s.after(s.c.deepLatency(), "deep store looked at", func() { s.step(s.look(a)) })
		}
	}
}

func (s *simController) wrote(a controller.Write, res metalog.Result, err error) {
	ev := controller.Wrote{ID: a.ID, Outcome: commit.Written, Err: err, Image: res.Image}
	var refused *meta.Refusal
	switch {
	case err == nil:
	case errors.As(err, &refused):
		ev.Outcome = commit.WriteRefused
		s.c.check.refused[a.What] = true
		s.c.w.count.outcomes["write refused: "+refused.Code]++
	default:
		ev.Outcome = commit.WriteFailed
		s.c.w.count.outcomes["write of unknown outcome"]++
	}
	s.after(0, "wrote "+a.What, func() { s.step(ev) })
}

// askUpload asks a node to upload a segment, or how far it is.
func (s *simController) askUpload(a controller.AskUpload) {
	n := s.c.nodeAt(a.Node)
	call(s.c.net, &s.process, &n.process, "upload asked", 10*time.Second,
		func(reply func(answered[validation.Answer])) { n.askUpload(a.Table, a.Segment, a.Poll, reply) },
		func(r answered[validation.Answer], err error) {
			if err == nil && r.code != "" {
				err = errors.New(r.code)
			}
			s.c.w.count.outcomes["upload asked for by validation"]++
			s.step(controller.UploadAnswered{ID: a.ID, Answer: r.body, Err: err})
		})
}

func (s *simController) look(a controller.CheckDeepStore) controller.Checked {
	key, err := deepstore.KeyOf(a.Store, a.URI)
	if err == nil {
		err = deepstore.VerifySegment(context.Background(), s.c.deep, key, a.SizeBytes, a.Digest)
	}
	switch {
	case err == nil:
		return controller.Checked{ID: a.ID, Found: true}
	case errors.Is(err, deepstore.ErrNotFound), errors.Is(err, deepstore.ErrDifferent):
		return controller.Checked{ID: a.ID}
	}
	return controller.Checked{ID: a.ID, Err: err}
}

func (c *cluster) deepLatency() time.Duration {
	return c.w.between(5*time.Millisecond, c.plan.DeepSlow)
}

// ask hands in the event of a request; answered gets what the machine answers.
func (s *simController) ask(make func(controller.Ticket) controller.Event, answered func(controller.Action)) {
	s.last++
	t := controller.Ticket(s.last)
	s.tickets[t] = answered
	s.step(make(t))
}

func (s *simController) answer(t controller.Ticket, a controller.Action) {
	if done := s.tickets[t]; done != nil {
		delete(s.tickets, t)
		done(a)
	}
}

// answered is an answer over HTTP: a body, or the code of a problem, with the hint
// of a controller that does not lead.
type answered[A any] struct {
	body   A
	code   string
	leader string
}

func refused[A any](code, leader string) answered[A] { return answered[A]{code: code, leader: leader} }

// protocol answers a message of the completion protocol.
func (s *simController) protocol(m commit.Message, reply func(commit.Reply)) {
	s.c.w.count.messages["protocol "+string(m.Kind)]++
	if !s.believed() {
		reply(commit.Reply{Status: commit.NotLeader, Leader: s.standing.URL})
		return
	}
	s.ask(func(t controller.Ticket) controller.Event { return controller.Message{Ticket: t, Message: m} },
		func(a controller.Action) {
			r := a.(controller.ReplyTo).Reply
			if !s.believed() && r.Status != commit.NotLeader {
				s.c.w.count.outcomes["answer withheld past the deadline"]++
				return
			}
			s.c.w.count.outcomes["reply "+string(r.Status)]++
			s.c.check.replied(s, &m, r)
			reply(r)
		})
}

// believed reports whether it leads and may say so.
func (s *simController) believed() bool { return s.leads() && s.keeper.mayAnswer() }

func (s *simController) heartbeat(hb api.Heartbeat, reply func(answered[api.HeartbeatAnswer])) {
	if !s.believed() {
		reply(refused[api.HeartbeatAnswer](api.CodeNotLeader, s.standing.URL))
		return
	}
	s.ask(func(t controller.Ticket) controller.Event { return controller.Heartbeat{Ticket: t, Heartbeat: hb} },
		func(a controller.Action) {
			h := a.(controller.AnswerHeartbeat)
			reply(answered[api.HeartbeatAnswer]{body: h.Answer, code: string(h.Refuse)})
		})
}

func (s *simController) locations(r meta.LocationReport, reply func(answered[meta.LocationVerdicts])) {
	if !s.believed() {
		reply(refused[meta.LocationVerdicts](api.CodeNotLeader, s.standing.URL))
		return
	}
	s.ask(func(t controller.Ticket) controller.Event { return controller.Located{Ticket: t, Report: r} },
		func(a controller.Action) {
			l := a.(controller.AnswerLocations)
			s.c.check.accepted(&r, &l.Verdicts)
			reply(answered[meta.LocationVerdicts]{body: l.Verdicts, code: string(l.Refuse)})
		})
}

func (s *simController) register(r meta.Registration, reply func(answered[api.Registered])) {
	if !s.believed() {
		reply(refused[api.Registered](api.CodeNotLeader, s.standing.URL))
		return
	}
	incarnation := new(int64)
	s.submit(meta.RegisterNode(r, incarnation), func(res metalog.Result, err error) {
		var no *meta.Refusal
		switch {
		case errors.As(err, &no):
			reply(refused[api.Registered](no.Code, ""))
		case err != nil:
			reply(refused[api.Registered](string(controller.RefuseUnknown), ""))
		default:
			reply(answered[api.Registered]{body: api.Registered{
				ClusterID: res.Image.Cluster().ID, Incarnation: *incarnation,
				Leader: s.url(), Epoch: res.Image.Epoch(), HighWatermark: res.Image.Next(),
			}})
		}
	})
}

func (s *simController) whoLeads(reply func(answered[metalog.LeaderRef])) {
	if s.standing.URL == "" {
		reply(refused[metalog.LeaderRef](api.CodeNotReady, ""))
		return
	}
	reply(answered[metalog.LeaderRef]{body: metalog.LeaderRef{URL: s.standing.URL, Epoch: s.standing.Epoch}})
}
