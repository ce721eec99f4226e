package deepstore

import (
	"context"
	"io"

	"github.com/shoalstore/shoal/segment"
)

// Op is one call of a store. Kind is the method's name in lower case.
type Op struct {
	Kind string
	Key  string // the prefix, for a list
}

// Faults makes a store misbehave, for tests of what uses one. Before is called
// before the store acts: an error keeps it from acting. After is called once it
// has acted with success: an error replaces its answer, as when a 503 comes late
// or the answer is lost. Both may block until ctx ends, which is a store that is
// slow. Either may be nil. They are called from the goroutine of the caller.
type Faults struct {
	Before func(ctx context.Context, op Op) error
	After  func(ctx context.Context, op Op) error
	// Reader, if set, stands between an opened object and its reader: bodies
	// that are cut, slow, or changed on their way.
	Reader func(op Op, r io.ReadCloser) io.ReadCloser
}

// WithFaults returns s with faults.
func WithFaults(s Store, f Faults) Store { return &faultStore{Store: s, faults: f} }

type faultStore struct {
	Store
	faults Faults
}

// do runs one call between the two hooks.
func (f *faultStore) do(ctx context.Context, op Op, act func() error) error {
	if f.faults.Before != nil {
		if err := f.faults.Before(ctx, op); err != nil {
			return err
		}
	}
	if err := act(); err != nil {
		return err
	}
	if f.faults.After != nil {
		return f.faults.After(ctx, op)
	}
	return nil
}

func (f *faultStore) Put(ctx context.Context, key string, r io.ReaderAt, size int64, digest segment.Digest) error {
	return f.do(ctx, Op{"put", key}, func() error { return f.Store.Put(ctx, key, r, size, digest) })
}

func (f *faultStore) Head(ctx context.Context, key string) (info Info, err error) {
	err = f.do(ctx, Op{"head", key}, func() (err error) {
		info, err = f.Store.Head(ctx, key)
		return err
	})
	return info, err
}

func (f *faultStore) Verify(ctx context.Context, key string, size int64, digest segment.Digest) error {
	return f.do(ctx, Op{"verify", key}, func() error { return f.Store.Verify(ctx, key, size, digest) })
}

func (f *faultStore) Open(ctx context.Context, key string, off, n int64) (r io.ReadCloser, err error) {
	op := Op{"open", key}
	err = f.do(ctx, op, func() (err error) {
		r, err = f.Store.Open(ctx, key, off, n)
		return err
	})
	if err != nil {
		if r != nil {
			r.Close()
		}
		return nil, err
	}
	if f.faults.Reader != nil {
		r = f.faults.Reader(op, r)
	}
	return r, nil
}

func (f *faultStore) List(ctx context.Context, prefix, after string, limit int) (list []Info, err error) {
	err = f.do(ctx, Op{"list", prefix}, func() (err error) {
		list, err = f.Store.List(ctx, prefix, after, limit)
		return err
	})
	return list, err
}

func (f *faultStore) Delete(ctx context.Context, key string) error {
	return f.do(ctx, Op{"delete", key}, func() error { return f.Store.Delete(ctx, key) })
}
