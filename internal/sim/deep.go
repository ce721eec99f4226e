package sim

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/segment"
)

// objects is the deep store: the real upload and the real check run against it.
// What it has is durable. It may be away, and fail before or after it acted.
type objects struct {
	w      *world
	of     map[string][]byte
	away   bool
	lose   bool // the next object that is put
	put    func(key string)
	before float64 // rates
	after  float64
}

const deepURI = "file:///deep"

func newObjects(w *world) (*objects, deepstore.Store) {
	o := &objects{w: w, of: map[string][]byte{}}
	return o, deepstore.WithFaults(o, deepstore.Faults{Before: o.failBefore, After: o.failAfter})
}

var errDeepStore = errors.New("sim: the deep store answers 503")

func (o *objects) failBefore(context.Context, deepstore.Op) error {
	switch {
	case o.away:
		o.w.count.faults["deep store away"]++
		return errDeepStore
	case o.w.chance(o.before):
		o.w.count.faults["deep store failed before it acted"]++
		return errDeepStore
	}
	return nil
}

func (o *objects) failAfter(context.Context, deepstore.Op) error {
	if o.w.chance(o.after) {
		o.w.count.faults["deep store failed after it acted"]++
		return errDeepStore
	}
	return nil
}

// Put stores an object; it never replaces one.
func (o *objects) Put(_ context.Context, key string, r io.ReaderAt, size int64, digest segment.Digest) error {
	data := make([]byte, size)
	if _, err := r.ReadAt(data, 0); err != nil && err != io.EOF {
		return err
	}
	if got := digestOf(data); got != digest {
		return deepstore.ErrBadSource
	}
	if old, ok := o.of[key]; ok {
		if !bytes.Equal(old, data) {
			return deepstore.ErrDifferent
		}
		return nil
	}
	if o.lose {
		o.lose = false
		o.w.count.faults["object acknowledged and lost"]++
		return nil
	}
	o.of[key] = data
	o.put(key)
	return nil
}

// Head tells an object's size.
func (o *objects) Head(_ context.Context, key string) (deepstore.Info, error) {
	data, ok := o.of[key]
	if !ok {
		return deepstore.Info{}, deepstore.ErrNotFound
	}
	return deepstore.Info{Key: key, SizeBytes: int64(len(data)), ModTime: time.UnixMilli(epochStart)}, nil
}

// Verify hashes what is there.
func (o *objects) Verify(_ context.Context, key string, size int64, digest segment.Digest) error {
	data, ok := o.of[key]
	switch {
	case !ok:
		return deepstore.ErrNotFound
	case int64(len(data)) != size, digestOf(data) != digest:
		return deepstore.ErrDifferent
	}
	return nil
}

// Open reads a range.
func (o *objects) Open(_ context.Context, key string, off, n int64) (io.ReadCloser, error) {
	data, ok := o.of[key]
	switch {
	case !ok:
		return nil, deepstore.ErrNotFound
	case n < 0:
		n = int64(len(data)) - off
	}
	if off < 0 || n < 0 || off+n > int64(len(data)) {
		return nil, errors.New("sim: a range beyond the object")
	}
	return io.NopCloser(bytes.NewReader(data[off : off+n])), nil
}

// List lists keys.
func (o *objects) List(_ context.Context, prefix, after string, limit int) (all []deepstore.Info, err error) {
	for key, data := range o.of {
		if strings.HasPrefix(key, prefix) && key > after {
			all = append(all, deepstore.Info{Key: key, SizeBytes: int64(len(data)), ModTime: time.UnixMilli(epochStart)})
		}
	}
	slices.SortFunc(all, func(a, b deepstore.Info) int { return cmp.Compare(a.Key, b.Key) })
	return all[:min(limit, len(all))], nil
}

// Delete removes an object.
func (o *objects) Delete(_ context.Context, key string) error {
	delete(o.of, key)
	return nil
}

func (o *objects) String() string { return deepURI }

// has reports whether a segment is there, with its sidecar, whatever the store says now.
func (o *objects) has(name string, d segment.Digest) bool {
	key, err := deepstore.DataKey(name, d)
	return err == nil && o.of[key] != nil && o.of[deepstore.PiecesKey(key)] != nil
}

func digestOf(data []byte) segment.Digest {
	_, d, err := segment.HashFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return segment.Digest{}
	}
	return d
}
