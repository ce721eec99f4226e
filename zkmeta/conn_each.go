package zkmeta

import (
	"context"
	"sync"
)

const eachParallel = 64

// Each reads many znodes, at most parallel at once; 0 means 64, and more than half
// of what may be in flight is not taken. fn is called for each path, with its
// place in paths, in no order, by one goroutine at a time; err is that of Get. An
// error that fn returns ends the reading and is returned; so does the end of ctx.
func (c *Conn) Each(ctx context.Context, paths []string, parallel int, fn func(i int, data []byte, version int32, err error) error) error {
	if parallel <= 0 {
		parallel = eachParallel
	}
	parallel = min(parallel, inFlightMax/2, len(paths))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		next = make(chan int)
	)
	one := func(i int) {
		data, version, err := c.Get(ctx, paths[i])
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() != nil {
			return
		}
		if err := fn(i, data, version, err); err != nil {
			cancel(err)
		}
	}
	for range parallel {
		wg.Go(func() {
			for i := range next {
				one(i)
			}
		})
	}
feed:
	for i := range paths {
		select {
		case next <- i:
		case <-ctx.Done():
			break feed
		}
	}
	close(next)
	wg.Wait()
	return context.Cause(ctx)
}
