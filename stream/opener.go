package stream

import (
	"errors"
	"sync"

	"github.com/shoalstore/shoal/meta"
)

// ErrNoRoot says that the process was not told below which directory it may
// read streams of type files.
var ErrNoRoot = errors.New("stream: no stream root is configured (--stream-root)")

// Opener opens the streams that tables name, below the root that the process's
// own configuration allows, and keeps them: the readers of one stream share what
// is known of it. Safe for concurrent use.
type Opener struct {
	root string

	mu   sync.Mutex
	open map[meta.StreamConfig]Source
}

// NewOpener returns an Opener for streams below root; "" allows none.
func NewOpener(root string) *Opener {
	return &Opener{root: root, open: map[meta.StreamConfig]Source{}}
}

// Source returns the stream of a table's configuration.
func (o *Opener) Source(cfg meta.StreamConfig) (Source, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if src := o.open[cfg]; src != nil {
		return src, nil
	}
	if o.root == "" {
		return nil, ErrNoRoot
	}
	src, err := OpenFiles(o.root, cfg.Path)
	if err != nil {
		return nil, err
	}
	o.open[cfg] = src
	return src, nil
}
