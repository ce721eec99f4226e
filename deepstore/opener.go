package deepstore

import "sync"

// Opener opens the stores that tables name, below the roots that the process's
// own configuration allows, and keeps them. Safe for concurrent use.
type Opener struct {
	roots []string

	mu   sync.Mutex
	open map[string]Store
}

// NewOpener returns an Opener of stores below the roots (Open).
func NewOpener(roots []string) *Opener { return &Opener{roots: roots, open: map[string]Store{}} }

// Roots are the allowed ones.
func (o *Opener) Roots() []string { return o.roots }

// Store returns the store of a URI.
func (o *Opener) Store(uri string) (Store, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s := o.open[uri]; s != nil {
		return s, nil
	}
	s, err := Open(uri, o.roots)
	if err != nil {
		return nil, err
	}
	o.open[uri] = s
	return s, nil
}
