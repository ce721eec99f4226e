package zkmeta

import (
	"context"

	"github.com/go-zookeeper/zk"
)

// watch is one on the data of a znode, in one connection.
type watch struct {
	connection int64
	gone       chan struct{}
}

// Gone returns a channel that is closed when the znode is deleted or set, or when
// the watch can be trusted no more: when the connection is lost, as the library
// only logs that it could not set it again, and at Close. Who sees it closed looks
// again. ctx is for the call, not for the watch. It returns ErrNoNode if the znode
// is not there.
//
// There is one watch for each znode and connection, so that calling again for one
// that stays costs nothing.
func (c *Conn) Gone(ctx context.Context, path string) (gone <-chan struct{}, err error) {
	connection := c.Session().Connection
	if w := c.watching(path, connection); w != nil {
		_, there, err := c.Stat(ctx, path)
		if err == nil && !there {
			err = ErrNoNode
		}
		if err != nil {
			return nil, err
		}
		return w.gone, nil
	}
	// Not an exists: that leaves a watch behind if the znode is not there.
	events, err := call(ctx, c, "watch", path, func(z *zk.Conn) (<-chan zk.Event, error) {
		_, _, events, err := z.GetW(path)
		return events, err
	})
	if err != nil {
		return nil, err
	}
	return c.follow(path, connection, events), nil
}

func (c *Conn) watching(path string, connection int64) *watch {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.watches[path]
	if w == nil || w.connection != connection {
		return nil
	}
	return w
}

// follow closes the watch when it fires, or when the connection is not the one of
// before the call.
func (c *Conn) follow(path string, connection int64, events <-chan zk.Event) <-chan struct{} {
	w := &watch{connection: connection, gone: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		close(w.gone)
		return w.gone
	}
	c.watches[path] = w
	c.links.Go(func() {
		defer c.unwatch(path, w)
		for {
			s, changed := c.Watch()
			if s.Connection != connection || !s.Connected {
				return
			}
			select {
			case <-events:
				return
			case <-changed:
			case <-c.ctx.Done():
				return
			}
		}
	})
	return w.gone
}

func (c *Conn) unwatch(path string, w *watch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watches[path] == w {
		delete(c.watches, path)
	}
	close(w.gone)
}
