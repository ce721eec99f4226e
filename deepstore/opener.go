package deepstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/shoalstore/shoal/internal/vfs"
)

// Opener opens the stores that tables name, below the roots that the process's
// own configuration allows, and keeps them. Safe for concurrent use.
type Opener struct {
	roots []string
	s3    S3Config

	mu     sync.Mutex
	open   map[string]Store
	client *s3Client // of all stores in S3; nil: none was opened
}

// NewOpener returns an Opener of stores below the roots (Open).
func NewOpener(roots []string, s3 S3Config) *Opener {
	return &Opener{roots: roots, s3: s3, open: map[string]Store{}}
}

// Roots are the allowed ones.
func (o *Opener) Roots() []string { return o.roots }

// Store returns the store of a URI.
func (o *Opener) Store(uri string) (Store, error) {
	at, err := place(uri, o.roots)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if s := o.open[uri]; s != nil {
		return s, nil
	}
	s, err := o.make(uri, at)
	if err != nil {
		return nil, err
	}
	o.open[uri] = s
	return s, nil
}

func (o *Opener) make(uri string, at placed) (Store, error) {
	if at.s3 {
		if o.client == nil {
			client, err := newS3Client(o.s3)
			if err != nil {
				return nil, err
			}
			o.client = client
		}
		return &s3Store{client: o.client, place: at.inS3}, nil
	}
	fsys, err := vfs.OS(at.root)
	if err != nil {
		return nil, fmt.Errorf("deepstore: %s: %w", uri, err)
	}
	return NewDir(fsys, at.prefix, uri)
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
