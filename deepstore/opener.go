package deepstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/shoalstore/shoal/internal/vfs"
)

// openMax is how long whoever asks for a store waits for it to be opened: a directory
// may be on a mount whose server is away.
const openMax = 30 * time.Second

// Opener opens the stores that tables name, below the roots that the process's
// own configuration allows, and keeps them. Safe for concurrent use.
type Opener struct {
	roots    []string
	s3       S3Config
	patience time.Duration
	making   func(uri string, at placed) (Store, error)

	// opening has what is being opened, without mu: one that hangs is waited for by
	// those who want it, and by no others.
	opening singleflight.Group
	mu      sync.Mutex
	open    map[string]Store
	client  *s3Client // of all stores in S3; nil: none was opened
}

// NewOpener returns an Opener of stores below the roots (Open).
func NewOpener(roots []string, s3 S3Config) *Opener {
	o := &Opener{roots: roots, s3: s3, patience: openMax, open: map[string]Store{}}
	o.making = o.make
	return o
}

// Roots are the allowed ones.
func (o *Opener) Roots() []string { return o.roots }

// Store returns the store of a URI. One that hangs while it is opened is an error
// after half a minute, and there for whoever asks once it has opened.
func (o *Opener) Store(uri string) (Store, error) {
	at, err := place(uri, o.roots)
	if err != nil {
		return nil, err
	}
	if s := o.opened(uri); s != nil {
		return s, nil
	}
	made := o.opening.DoChan(uri, func() (any, error) {
		if s := o.opened(uri); s != nil {
			return s, nil
		}
		s, err := o.making(uri, at)
		if err != nil {
			return nil, err
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		o.open[uri] = s
		return s, nil
	})
	timer := time.NewTimer(o.patience)
	defer timer.Stop()
	select {
	case m := <-made:
		if m.Err != nil {
			return nil, m.Err
		}
		return m.Val.(Store), nil
	case <-timer.C:
		return nil, fmt.Errorf("deepstore: open %s: %w (%v)", uri, errNoAnswer, o.patience)
	}
}

// opened is the store of a URI if it is open.
func (o *Opener) opened(uri string) Store {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.open[uri]
}

func (o *Opener) make(uri string, at placed) (Store, error) {
	if at.s3 {
		client, err := o.clientOfS3()
		if err != nil {
			return nil, err
		}
		return &s3Store{client: client, place: at.inS3}, nil
	}
	fsys, err := vfs.OS(at.root)
	if err != nil {
		return nil, fmt.Errorf("deepstore: %s: %w", uri, err)
	}
	s, err := NewDir(fsys, at.prefix, uri)
	if err != nil {
		return nil, errors.Join(err, fsys.(io.Closer).Close())
	}
	return s, nil
}

// clientOfS3 is the one of all stores in S3. To make it asks nobody.
func (o *Opener) clientOfS3() (*s3Client, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.client == nil {
		client, err := newS3Client(o.s3)
		if err != nil {
			return nil, err
		}
		o.client = client
	}
	return o.client, nil
}

// Sweep sweeps every store that is open (Sweeper), and says how much went.
func (o *Opener) Sweep(ctx context.Context, age time.Duration) (swept int, err error) {
	o.mu.Lock()
	var sweepers []Sweeper
	for _, s := range o.open {
		if s, ok := s.(Sweeper); ok {
			sweepers = append(sweepers, s)
		}
	}
	o.mu.Unlock()
	var errs []error
	for _, s := range sweepers {
		n, err := s.Sweep(ctx, age)
		swept += n
		errs = append(errs, err)
	}
	return swept, errors.Join(errs...)
}
