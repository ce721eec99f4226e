package commit

import (
	"fmt"
	"strings"
	"time"

	"github.com/shoalstore/shoal/segment"
)

// controllerScript runs the controller's transcripts. Inputs:
//
//	c(s1,20[,rowLimit])  cs(s1,20)  ce(s1,20[,digest])  st(s1,20[,error])  ex(s1,seconds)
//	    a message; more k=v arguments: rows, inc, stream, segment
//	written, refused, failed      the outcome of the pending write (after `writes pend`)
//	raised, not raised            the outcome of a RaiseAttempt
//	tick, deposed URL, gone       the other events
//	replicas s1 s2 …, start 10, incarnation s1 2, attempt 1, H 3, writes pend|go
//	unknown, done 40 digest s2    what the record says
//	not leader [URL], leader, new leader
//
// While writes go, a WriteCommit is written into the record at once.
type controllerScript struct {
	c            *Controller
	facts        Facts
	incarnations map[string]int64
	pend         bool
	pending      WriteDone
	end          Message
	ticket       Ticket
	names        map[Ticket]string // who waits, for answers that come later
}

func newControllerScript() *controllerScript {
	return &controllerScript{
		c: NewController(),
		facts: Facts{
			Leading: true, Status: InProgress, Name: testSegment, StreamEpoch: "0",
			Replicas: []string{"s1", "s2", "s3"}, Timing: DefaultTiming,
		},
		incarnations: map[string]int64{},
		names:        map[Ticket]string{},
	}
}

func (s *controllerScript) run(now time.Duration, input string) string {
	words := strings.Fields(input)
	switch words[0] {
	case "replicas":
		s.facts.Replicas = words[1:]
	case "start":
		s.facts.Start = number(words[1])
	case "incarnation":
		s.incarnations[words[1]] = number(words[2])
	case "attempt":
		s.facts.Attempt = int(number(words[1]))
	case "H":
		s.facts.Timing.Hold = time.Duration(number(words[1])) * time.Second
	case "writes":
		s.pend = words[1] == "pend"
	case "unknown":
		s.facts.Status = Absent
	case "done":
		s.done(number(words[1]), digestOf(words[2]), words[3])
	case "leader":
		s.facts.Leading = true
	case "new":
		s.c, s.facts.Leading = NewController(), true
	case "not":
		if words[1] == "raised" {
			return s.step(now, RaiseDone{testKey, WriteFailed})
		}
		s.facts.Leading, s.facts.Leader = false, strings.Join(words[2:], "")
	default:
		return s.event(now, input)
	}
	return ""
}

func (s *controllerScript) event(now time.Duration, input string) string {
	words := strings.Fields(input)
	switch words[0] {
	case "written":
		if !s.end.Digest.IsZero() {
			s.done(s.end.Offset, s.end.Digest, s.end.Instance)
		}
		s.pending.Outcome = Written
		return s.step(now, s.pending)
	case "refused":
		s.pending.Outcome = WriteRefused
		return s.step(now, s.pending)
	case "failed":
		s.pending.Outcome = WriteFailed
		return s.step(now, s.pending)
	case "raised":
		s.facts.Attempt++
		return s.step(now, RaiseDone{testKey, Written})
	case "tick":
		return s.step(now, Tick{})
	case "deposed":
		return s.step(now, Deposed{words[1]})
	case "gone":
		return s.step(now, SegmentGone{testKey})
	}
	return s.message(now, input)
}

func (s *controllerScript) message(now time.Duration, input string) string {
	name, args := call(input)
	m := Message{
		Table: testKey.Table, Partition: testKey.Partition, Seq: testKey.Seq,
		Segment: testSegment, Instance: args[0], Incarnation: 1, StreamEpoch: "0",
		StoreID: testStore, Offset: s.facts.Start,
	}
	if name != "ex" {
		m.Offset = number(args[1])
		m.Rows = m.Offset - s.facts.Start
	}
	var extra []string
	var flags []string
	for _, a := range args[2:] {
		if strings.Contains(a, "=") {
			flags = append(flags, a)
		} else {
			extra = append(extra, a)
		}
	}
	extra = append(extra, "")
	switch name {
	case "c":
		m.Kind, m.Reason = SegmentConsumed, Reason(extra[0])
		if m.Reason == "" {
			m.Reason = TimeLimit
		}
	case "cs":
		m.Kind = SegmentCommitStart
	case "ce":
		m.Kind, m.Digest = SegmentCommitEnd, digestOf(extra[0])
		if extra[0] == "" {
			m.Digest = digestOf("d" + args[1])
		}
		m.SizeBytes = 1
	case "st":
		m.Kind, m.Error = SegmentStoppedConsuming, extra[0]
	case "ex":
		m.Kind, m.ExtraTimeSec = ExtendBuildTime, number(args[1])
	}
	for k, v := range settings(flags) {
		switch k {
		case "rows":
			m.Rows = number(v)
		case "inc":
			m.Incarnation = number(v)
		case "stream":
			m.StreamEpoch = v
		case "segment":
			m.Segment = v
		}
	}
	f := s.facts
	f.Incarnation = max(1, s.incarnations[m.Instance])
	s.ticket++
	s.names[s.ticket] = m.Instance
	return s.step(now, Received{s.ticket, m, f})
}

func (s *controllerScript) done(end int64, d segment.Digest, committer string) {
	s.facts.Status, s.facts.End, s.facts.Digest, s.facts.Committer = Done, end, d, committer
}

// step hands in an event and prints what came: the actions, then M− or the
// machine's state.
func (s *controllerScript) step(now time.Duration, ev Event) string {
	said := s.actions(now, s.c.Step(now, ev))
	state := "M−"
	if m := s.c.Machine(testKey); m != nil {
		state = "M+ " + m.State().String()
	}
	return strings.Join(append(said, state), " · ")
}

func (s *controllerScript) actions(now time.Duration, actions []Action) (said []string) {
	for _, a := range actions {
		switch a := a.(type) {
		case Respond:
			said = append(said, s.respondText(a))
		case WriteCommit:
			s.pending, s.end = WriteDone{Key: a.Key, Ticket: a.Ticket}, a.End
			said = append(said, fmt.Sprintf("write %d %s of %s", a.End.Offset, nameOf(a.End.Digest), a.End.Instance))
			if !s.pend {
				s.done(a.End.Offset, a.End.Digest, a.End.Instance)
				s.pending.Outcome = Written
				said = append(said, s.actions(now, s.c.Step(now, s.pending))...)
			}
		case EndEmpty:
			s.pending, s.end = WriteDone{Key: a.Key, Ticket: a.Ticket}, Message{}
			said = append(said, "end empty segment: "+string(a.Reason))
		case RecordError:
			said = append(said, fmt.Sprintf("note error of %s", a.Instance))
		case RaiseAttempt:
			said = append(said, fmt.Sprintf("raise attempt %d", a.From))
		}
	}
	return said
}

// respondText names the instance when the answer is not to the message at hand.
func (s *controllerScript) respondText(a Respond) string {
	if a.Ticket == s.ticket {
		return replyText(a.Reply)
	}
	return fmt.Sprintf("%s: %s", s.names[a.Ticket], replyText(a.Reply))
}
