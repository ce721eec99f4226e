package node

import (
	"context"
	"sync"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/meta"
)

// partitions keeps a consumer for each partition of which the image names this
// node as a replica.
type partitions struct {
	n    *Node
	work sync.WaitGroup

	mu        sync.Mutex
	consumers map[meta.PartitionKey]*consumer
}

func newPartitions(n *Node) *partitions {
	return &partitions{n: n, consumers: map[meta.PartitionKey]*consumer{}}
}

// run starts and wakes consumers whenever the image changed, until ctx ends;
// then it waits for them.
func (p *partitions) run(ctx context.Context) {
	defer p.work.Wait()
	for {
		p.review(ctx)
		select {
		case <-ctx.Done():
			return
		case <-p.n.wake:
		}
	}
}

// review makes the consumers that are missing, and wakes those that are there.
// Before the node is registered it has no name to speak under, so it waits.
func (p *partitions) review(ctx context.Context) {
	if p.n.incarnation() == 0 {
		return
	}
	im := p.n.currentImage()
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range im.SegmentsConsuming(p.n.cfg.ID) {
		k := s.SegmentKey().PartitionKey()
		if p.consumers[k] == nil {
			c := newConsumer(p.n, k)
			p.consumers[k] = c
			p.work.Go(func() { p.consume(ctx, c) })
		}
	}
	for _, c := range p.consumers {
		c.imageChanged()
	}
}

// consume runs a consumer to its end.
func (p *partitions) consume(ctx context.Context, c *consumer) {
	c.work(ctx)
	p.mu.Lock()
	delete(p.consumers, c.key)
	p.mu.Unlock()
	notify(p.n.wake) // it may be wanted again by now
}

// views is what GET /partitions shows.
func (p *partitions) views() []api.ConsumingView {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := []api.ConsumingView{}
	for _, c := range p.consumers {
		all = append(all, c.views()...)
	}
	return all
}
