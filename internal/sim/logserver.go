package sim

import (
	"errors"

	"github.com/shoalstore/shoal/internal/httpx"
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
	if code == "" && s.files == nil {
		code = metalog.CodeNotAvailable
	}
	if code != "" {
		p.reply(refused[metalog.FetchAnswer](code, s.standing.URL))
		return true
	}
	a := metalog.FetchAnswer{Leader: metalog.LeaderRef{URL: s.url(), Epoch: s.standing.Epoch}}
	log, st := s.files.log, s.files.log.State()
	st.Earliest, st.Latest = s.files.snaps.Earliest(), s.files.snaps.Latest()
	d, frames, err := log.Answer(p.query.Position, p.query.MaxBytes, st)
	if err != nil {
		s.c.w.count.outcomes["fetch from a damaged log"]++
		if !errors.As(err, new(*metalog.CorruptionError)) || !s.disk.rottedIn(s.files.dir) {
			s.c.w.fail("I5", "%s cannot read its own log: %v", s.name, err)
		}
		if d.Kind == metalog.AnswerFrames {
			p.reply(refused[metalog.FetchAnswer](httpx.CodeInternal, s.standing.URL))
			return true
		}
	}
	switch d.Kind {
	case metalog.AnswerDiverging:
		s.c.w.count.outcomes["fetch diverging"]++
		a.Diverging = &d.Diverging
	case metalog.AnswerFrames:
		if len(frames) == 0 && !p.waited {
			return false
		}
		a.Frames = frames
	case metalog.AnswerSnapshot:
		s.c.w.count.outcomes["fetch answered with a snapshot"]++
		a.Snapshot = &d.Snapshot
	default:
		if !s.disk.rottedIn(metalog.SnapshotsDir) {
			s.c.w.fail("I5", "%s answers a fetch with %v: its log begins at %d, and it has no snapshot", s.name, d, log.Start())
		}
		p.reply(refused[metalog.FetchAnswer](metalog.CodeNotAvailable, s.standing.URL))
		return true
	}
	a.HighWatermark = log.End()
	p.reply(answered[metalog.FetchAnswer]{body: a})
	return true
}
