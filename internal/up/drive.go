package up

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/meta"
)

const (
	// pollEvery is how often the cluster is asked.
	pollEvery = 250 * time.Millisecond
	// plainEvery is the least time between two blocks of plain lines while there
	// is an end to wait for, steadyEvery when there is none.
	plainEvery  = 5 * time.Second
	steadyEvery = 15 * time.Second
	// quietFor is how long something may take before it is told.
	quietFor = 3 * time.Second
)

// poll asks until ask neither fails nor names something to wait for. Errors are
// what is waited out; the reason of a long wait is told.
func (r *run) poll(ctx context.Context, what string, ask func() (waiting string, err error)) error {
	began, told := time.Now(), ""
	tick := time.NewTicker(pollEvery / 5)
	defer tick.Stop()
	for {
		waiting, err := ask()
		if err == nil && waiting == "" {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			waiting = err.Error()
		}
		if waiting != told && time.Since(began) > quietFor {
			r.screen.Line("waiting until %s: %s", what, waiting)
			told = waiting
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// drive feeds the table and shows it, until the run ends. The feed has ended
// when it returns.
func (r *run) drive(ctx context.Context) (Result, error) {
	feeding, stopFeed := context.WithCancel(ctx)
	f := r.startFeed(feeding)
	defer func() { stopFeed(); <-f.ended }()
	if r.input == nil {
		r.screen.Line("streaming this machine's telemetry, one row a second for each CPU, disk, interface and process; Ctrl-C stops")
	} else {
		r.screen.Line("reading %s", r.input)
	}
	d := driver{run: r, feed: f}
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-d.feedEnded():
			if err := d.inputEnded(ctx); err != nil {
				return Result{}, err
			}
		case <-tick.C:
		case <-ctx.Done():
			return Result{}, context.Cause(ctx)
		}
		res, over, err := d.step(ctx)
		if over || err != nil {
			return res, err
		}
	}
}

// driver is the state of drive.
type driver struct {
	*run
	feed    *feed
	over    bool     // the feed has ended, and that was dealt with
	sealing *sealing // once it has, with UntilSealed

	shown   time.Time // plain lines last
	lastOut string
	failing string // what the last look failed with
}

func (d *driver) feedEnded() <-chan struct{} {
	if d.over {
		return nil
	}
	return d.feed.ended
}

// inputEnded tells how much came of the input.
func (d *driver) inputEnded(ctx context.Context) error {
	d.over = true
	if d.feed.err != nil {
		return d.feed.err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	p, lines := d.feed.progress.Load(), d.producer.Lines()
	switch {
	case p.Rows == 0 && sum(lines) > 0:
		d.screen.Line("%s: all of it was read before; the table has %s rows", d.input, count(sum(lines)))
	case p.Skipped > 0:
		d.screen.Line("%s: %s rows, %s of them new; the rest was here from the last time", d.input, count(p.Rows), count(p.Rows-p.Skipped))
	default:
		d.screen.Line("%s: %s rows", d.input, count(p.Rows))
	}
	if d.cfg.UntilSealed {
		d.sealing = &sealing{lines: lines}
	} else {
		d.screen.Line("the cluster goes on; Ctrl-C stops it")
	}
	return nil
}

// step looks at the cluster once. over says that the run is at its end.
func (d *driver) step(ctx context.Context) (res Result, over bool, err error) {
	look, err := d.look(ctx)
	if err != nil {
		return res, false, d.lookFailed(ctx, err)
	}
	d.failing = ""
	if d.sealing == nil {
		d.show(look, nil)
		return res, false, nil
	}
	v, err := d.judge(ctx, look)
	if err != nil {
		return res, false, d.lookFailed(ctx, err)
	}
	d.show(look, v.waiting)
	if !v.done && len(v.failed) == 0 {
		return res, false, nil
	}
	for _, f := range v.failed {
		d.screen.Line("giving up: %s", f)
	}
	c := look.coverage
	res = Result{Coverage: &c, Complete: v.done && c.Complete && c.Replicated}
	d.screen.Clear()
	d.screen.Text(CoverageText(&c))
	return res, true, nil
}

// lookFailed waits errors out: the cluster is in this process, so what does not
// answer will, or ends the run by itself.
func (d *driver) lookFailed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if text := err.Error(); text != d.failing {
		if d.failing != "" { // not at the first time: the table may just be being made
			d.screen.Line("asking the cluster: %s", text)
		}
		d.failing = text
	}
	return nil
}

// judge asks for the job, judges, and does what the verdict says.
func (d *driver) judge(ctx context.Context, look *tableLook) (verdict, error) {
	s := d.sealing
	var state meta.JobState
	if s.job != uuid.Nil {
		var err error
		var answer *httpx.Error
		state, err = d.job(ctx, s.job)
		switch {
		case errors.As(err, &answer) && answer.Status == 404:
			state = meta.JobDone // it is forgotten
		case err != nil:
			return verdict{waiting: []string{"the controller to answer"}}, err
		}
	}
	v := s.judge(look, state)
	if v.forceCommit {
		job, err := d.forceCommit(ctx)
		if err != nil {
			return v, err
		}
		s.job = job
	}
	return v, nil
}

// show draws the live view, or from time to time says the same in plain lines.
func (d *driver) show(look *tableLook, waiting []string) {
	v := view{look: look, progress: *d.feed.progress.Load(), inputOver: d.over, telemetry: d.input == nil, waiting: waiting}
	if d.screen.Live() {
		d.screen.Draw(v.live(d.table))
		return
	}
	every := steadyEvery
	if d.input != nil && (!d.over || d.cfg.UntilSealed) {
		every = plainEvery
	}
	if time.Since(d.shown) < every {
		return
	}
	lines := v.plain(d.table)
	if out := strings.Join(lines, "\n"); out != d.lastOut {
		d.lastOut, d.shown = out, time.Now()
		for _, l := range lines {
			d.screen.Line("%s", l)
		}
	}
}
