package sim

import (
	"context"
	"time"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
)

// embedded keeps the metadata in the log on the controller's own disk, as
// internal/controller does with its only controller (lead.go there).
type embedded struct {
	s    *simController
	wait time.Duration
}

func (e *embedded) boot() {
	e.wait = time.Second
	e.s.after(e.s.c.w.between(10*time.Millisecond, time.Second), "leads", e.lead)
}

func (e *embedded) stop() {}

func (e *embedded) mayAnswer() bool { return true }

func (e *embedded) lead() {
	s := e.s
	image, err := s.openLog()
	var epoch int64
	if err == nil {
		if image.Next() > 0 {
			s.c.clusterID = image.Cluster().ID
		}
		epoch, err = metalog.ClaimEpoch(s.disk.fs, image.Epoch())
	}
	if err != nil {
		if !s.disk.off && !s.disk.full {
			s.c.w.fail("I5", "%s cannot open its log: %v", s.name, err)
		}
		e.laidDown(err)
		return
	}
	s.c.check.claimedEpoch(s, epoch)
	s.c.check.reopened(s, image)
	s.c.check.recovered(s.files, image)
	s.files.keep(nil)
	s.lead(image, epoch, s.c.uuid())
}

// append writes and fsyncs. It takes a while, and a power cut may come within.
func (e *embedded) append(b *meta.Batch, done func(error)) {
	s := e.s
	log := s.files.log
	s.after(s.c.w.between(time.Millisecond, 30*time.Millisecond), "append", func() {
		err := log.Append(context.Background(), b)
		if s.disk.off {
			return
		}
		if err == nil {
			s.c.check.apply(b)
		}
		done(err)
	})
}

// laidDown takes leadership up again after a pause, and finds the truth in the log.
func (e *embedded) laidDown(error) {
	e.s.files.rest()
	e.s.files = nil
	e.s.after(e.wait, "leads again", e.lead)
	e.wait = min(2*e.wait, 30*time.Second)
}
