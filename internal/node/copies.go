package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/peerdl"
	"github.com/shoalstore/shoal/segment"
)

// copies is the shell of Machine: one goroutine owns it, hands in the events and
// carries out the actions. Effects run beside it and come back as events; the
// machine bounds how many.
type copies struct {
	n       *Node
	log     zerolog.Logger
	machine *Machine
	effects sync.WaitGroup

	// inbox is unbounded in length and bounded in fact: it holds the results of
	// bounded effects, and one entry for each segment that a consumer or the
	// store has news of.
	mu     sync.Mutex
	inbox  []Event
	signal chan struct{}

	seen counts

	tickets atomic.Uint64
	asking  map[uint64]chan UploadTold // under mu
}

// counts are what others want to know of the machine.
type counts struct {
	sync.Mutex
	busy, fetchesWaiting, uploadsWaiting int
	uploads                              UploadQueue
}

func newCopies(n *Node) *copies {
	return &copies{
		n: n, log: n.component("copies"), signal: make(chan struct{}, 1),
		asking:  map[uint64]chan UploadTold{},
		machine: NewMachine(MachineConfig{Node: n.cfg.ID, StoreID: n.store.StoreID()}, n.store.Held()),
	}
}

// post hands in an event. It never blocks.
func (c *copies) post(ev Event) {
	c.mu.Lock()
	c.inbox = append(c.inbox, ev)
	c.mu.Unlock()
	notify(c.signal)
}

func (c *copies) claim(k meta.SegmentKey)   { c.post(Claimed{k}) }
func (c *copies) unclaim(k meta.SegmentKey) { c.post(Unclaimed{k}) }

// storeChanged says what the store holds of a segment now. Asking and telling are
// one step: else the older of two answers could come last, and be believed.
func (c *copies) storeChanged(k meta.SegmentKey) {
	c.mu.Lock()
	c.inbox = append(c.inbox, StoreChanged{Segment: k, Held: c.n.store.HeldOf(k.Table, k.Partition, k.Seq)})
	c.mu.Unlock()
	notify(c.signal)
}

// run owns the machine until ctx ends, and then waits for the effects.
func (c *copies) run(ctx context.Context) {
	defer c.effects.Wait()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			c.step(ctx, Tick{})
		case <-c.signal:
			c.mu.Lock()
			events := c.inbox
			c.inbox = nil
			c.mu.Unlock()
			for _, ev := range events {
				c.step(ctx, ev)
			}
		}
	}
}

func (c *copies) step(ctx context.Context, ev Event) {
	for _, a := range c.machine.Step(c.n.now(), ev) {
		if told, ok := a.(UploadTold); ok {
			c.answer(told)
			continue
		}
		c.effects.Go(func() {
			if ev := c.perform(ctx, a); ev != nil {
				c.post(ev)
			}
		})
	}
	fetches, uploads := c.machine.Waiting()
	c.seen.Lock()
	c.seen.busy, c.seen.fetchesWaiting, c.seen.uploadsWaiting = c.machine.Busy(), fetches, uploads
	c.seen.uploads = c.machine.Uploads()
	c.seen.Unlock()
}

// askUpload asks the machine for the upload of a segment, or how far that is.
func (c *copies) askUpload(ctx context.Context, k meta.SegmentKey, poll bool) (UploadTold, error) {
	ticket := c.tickets.Add(1)
	ch := make(chan UploadTold, 1)
	c.mu.Lock()
	c.asking[ticket] = ch
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.asking, ticket)
		c.mu.Unlock()
	}()
	c.post(UploadAsked{Ticket: ticket, Segment: k, Poll: poll})
	select {
	case told := <-ch:
		return told, nil
	case <-ctx.Done():
		return UploadTold{}, context.Cause(ctx)
	case <-c.n.life.Done():
		return UploadTold{}, context.Cause(c.n.life)
	}
}

func (c *copies) answer(told UploadTold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ch := c.asking[told.Ticket]; ch != nil {
		ch <- told // capacity 1, and one answer to a ticket
		delete(c.asking, told.Ticket)
	}
}

func (c *copies) busy() int {
	c.seen.Lock()
	defer c.seen.Unlock()
	return c.seen.busy
}

// perform does one effect and returns what came of it, nil if nobody waits for that.
func (c *copies) perform(ctx context.Context, a Action) Event {
	switch a := a.(type) {
	case Fetch:
		err := c.n.fetchSegment(ctx, a.Segment, a.Digest)
		c.told(a.Segment, "download", "", err)
		return FetchDone{Segment: a.Segment, Err: err, NoSource: isSourceless(err)}
	case Rebuild:
		err := c.n.rebuildSegment(ctx, a.Segment)
		c.told(a.Segment, "rebuild from the stream", fmt.Sprintf("to offset %d", a.End), err)
		return RebuildDone{Segment: a.Segment, Err: err}
	case Upload:
		uri, err := c.n.uploadHeld(ctx, a.Segment, a.Digest)
		c.n.metrics.uploaded(c.n.currentImage().Segment(a.Segment), err)
		c.told(a.Segment, "upload", uri, err)
		return UploadDone{Segment: a.Segment, Digest: a.Digest, URI: uri, Err: err, Different: errors.Is(err, deepstore.ErrDifferent)}
	case Report:
		var verdicts meta.LocationVerdicts
		err := c.n.control.Post(ctx, api.PathLocations, a.Report, &verdicts)
		if err != nil {
			c.log.Warn().Err(err).Msg("report of locations not taken, said again")
			c.n.heardOf(err)
		}
		return ReportDone{Sequence: a.Report.Sequence, Verdicts: verdicts, Err: err}
	case Remove:
		err := c.n.store.Remove(a.Held)
		if errors.Is(err, segment.ErrNotHeld) {
			err = nil
		}
		return c.gone(a.Held, "removed: "+a.Why, err)
	case SetAside:
		return c.gone(a.Held, "moved to the orphans: no record explains it", c.n.store.Orphan(a.Held, time.Now()))
	case ListDownloads:
		found, err := c.n.store.Downloads()
		if err != nil {
			c.log.Warn().Err(err).Msg("downloads cannot be listed, tried again later")
		}
		return DownloadsFound{Downloads: found}
	case DropDownload:
		c.dropDownload(ctx, a.Download)
		return nil
	}
	panic(fmt.Sprintf("node: cannot do a %T", a))
}

// dropDownload removes a .part that nobody wants, unless somebody is at it again.
func (c *copies) dropDownload(ctx context.Context, d segment.Download) {
	k, _ := heldKey(segment.Held{Table: d.Table, Partition: d.Partition, Name: d.Name})
	unlock, err := c.n.fetching.lock(ctx, k)
	if err != nil {
		return
	}
	defer unlock()
	err = peerdl.Forget(c.n.fs, d.Path)
	c.n.noteFatal(err)
	c.told(k, "download given up: nobody wants it any more", d.Path, err)
}

// gone tells that a copy left the store, or did not.
func (c *copies) gone(h segment.Held, what string, err error) Event {
	c.n.noteFatal(err)
	k, _ := heldKey(h)
	c.told(k, what, h.File(), err)
	c.storeChanged(k)
	return RemoveDone{Held: h, Err: err}
}

// told keeps what was done for the segment's life, and logs it.
func (c *copies) told(k meta.SegmentKey, what, detail string, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	c.n.events.add(k, what, detail, err)
	e := c.log.Info()
	if err != nil {
		e = c.log.Warn().Err(err)
	}
	e.Stringer("table", k.Table).Int32("partition", k.Partition).Int64("seq", k.Seq).Msg(what)
}
