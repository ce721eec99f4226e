package node

import (
	"context"
	"sync"

	"github.com/shoalstore/shoal/meta"
)

// keyLock lets one at a time work on a segment.
type keyLock struct {
	mu   sync.Mutex
	held map[meta.SegmentKey]chan struct{} // closed when it is free
}

// lock waits for the segment's turn, or for ctx.
func (l *keyLock) lock(ctx context.Context, k meta.SegmentKey) (unlock func(), err error) {
	mine := make(chan struct{})
	for {
		l.mu.Lock()
		if l.held == nil {
			l.held = map[meta.SegmentKey]chan struct{}{}
		}
		other, busy := l.held[k]
		if !busy {
			l.held[k] = mine
			l.mu.Unlock()
			return func() {
				l.mu.Lock()
				delete(l.held, k)
				l.mu.Unlock()
				close(mine)
			}, nil
		}
		l.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
