package sim

import (
	"fmt"

	"github.com/shoalstore/shoal/metalog"
)

// poll is a fetch of the metadata log that the leader holds.
type poll struct {
	query  metalog.FetchQuery
	reply  func(answered[metalog.FetchAnswer])
	waited bool
	over   bool
}

// fetch answers GET /metadata/log.
func (s *simController) fetch(q metalog.FetchQuery, reply func(answered[metalog.FetchAnswer])) {
	p := &poll{query: q, reply: reply, waited: q.MaxWait == 0}
	if s.servePoll(p) {
		return
	}
	s.polls = append(s.polls, p)
	s.after(q.MaxWait, "poll ends", func() {
		p.waited = true
		s.wakePolls()
	})
}

func (s *simController) wakePolls() {
	waiting := s.polls
	s.polls = nil
	for _, p := range waiting {
		if !s.servePoll(p) {
			s.polls = append(s.polls, p)
		}
	}
}

// servePoll answers if there is an answer.
func (s *simController) servePoll(p *poll) bool {
	code, _ := p.query.Refuse(s.standing, false)
	if code == "" && s.log == nil {
		code = metalog.CodeNotAvailable
	}
	if code != "" {
		p.reply(refused[metalog.FetchAnswer](code, s.standing.URL))
		return true
	}
	a := metalog.FetchAnswer{Leader: metalog.LeaderRef{URL: s.url(), Epoch: s.standing.Epoch}}
	switch d := metalog.Decide(p.query.Position, s.log.State()); d.Kind {
	case metalog.AnswerDiverging:
		s.c.w.count.outcomes["fetch diverging"]++
		a.Diverging = &d.Diverging
	case metalog.AnswerFrames:
		frames, err := s.log.Read(p.query.Offset, p.query.MaxBytes)
		if err != nil {
			s.c.w.fail("I5", "%s cannot read its own log: %v", s.name, err)
			return true
		}
		if len(frames) == 0 && !p.waited {
			return false
		}
		a.Frames = frames
	default:
		s.c.w.fail("I5", "%s", fmt.Sprintf("%s answers a fetch with %v, and there are no snapshots", s.name, d))
		return true
	}
	a.HighWatermark = s.log.End()
	p.reply(answered[metalog.FetchAnswer]{body: a})
	return true
}
