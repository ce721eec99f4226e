package peerdl

import (
	"sync"

	"github.com/shoalstore/shoal/segment"
)

// buffers bounds the memory of all downloads of a Downloader: whoever has taken
// a place from free may take a buffer of a piece. One that was just put back is
// the next to be taken, so there are never more than were needed at a time, and
// a small download finds its buffers in the cache.
type buffers struct {
	free chan struct{} // places; waiting for one is waiting for one's turn

	mu   sync.Mutex
	idle [][]byte
}

func newBuffers(n int) *buffers {
	b := &buffers{free: make(chan struct{}, n)}
	for range n {
		b.free <- struct{}{}
	}
	return b
}

// take is for whoever has a place.
func (b *buffers) take() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	last := len(b.idle) - 1
	if last < 0 {
		return make([]byte, segment.PieceSize)
	}
	buf := b.idle[last]
	b.idle = b.idle[:last]
	return buf
}

// put gives back the buffer and the place.
func (b *buffers) put(buf []byte) {
	b.mu.Lock()
	b.idle = append(b.idle, buf)
	b.mu.Unlock()
	b.free <- struct{}{}
}
