package deepstore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/segment"
)

// hangingDisk lets operations of one kind hang once it is told to.
type hangingDisk struct {
	vfs.FS
	mu      sync.Mutex
	kind    vfs.Kind
	gate    chan struct{} // closed: nothing hangs
	hanging chan vfs.Op   // those that begin to
}

func newHangingDisk() *hangingDisk {
	d := &hangingDisk{gate: make(chan struct{}), hanging: make(chan vfs.Op, 1000)}
	d.FS = vfs.WithFaults(vfs.NewMem(), func(op vfs.Op) error {
		d.mu.Lock()
		hangs := op.Kind == d.kind
		d.mu.Unlock()
		if hangs {
			d.hanging <- op
			<-d.gate
		}
		return nil
	})
	return d
}

func (d *hangingDisk) hang(kind vfs.Kind) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.kind = kind
}

// hangingStore is a store on such a disk, with one object.
func hangingStore(t *testing.T) (*hangingDisk, *dirStore, string, []byte, segment.Digest) {
	t.Helper()
	data := bytes.Repeat([]byte("shoal"), 1000)
	_, digest, err := segment.HashFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	key, err := DataKey("flights__0__7__20261129T120000Z", digest)
	if err != nil {
		t.Fatal(err)
	}
	disk := newHangingDisk()
	s, err := NewDir(disk, "p", "file:///mem/p")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), key, bytes.NewReader(data), int64(len(data)), digest); err != nil {
		t.Fatal(err)
	}
	d := s.(*dirStore)
	d.calls.grace = 0
	return disk, d, key, data, digest
}

// A mount whose server is away answers no system call. Every call of the store ends
// with its context all the same.
func TestDirCallsEndWithTheirContext(t *testing.T) {
	gone := errors.New("gone")
	for _, c := range []struct {
		name string
		kind vfs.Kind
		call func(ctx context.Context, d *dirStore, key string, data []byte, digest segment.Digest) error
	}{
		{"put", vfs.OpSync, func(ctx context.Context, d *dirStore, key string, data []byte, digest segment.Digest) error {
			other := bytes.Clone(data)
			other[0]++
			_, sum, err := segment.HashFile(bytes.NewReader(other), int64(len(other)))
			if err != nil {
				return err
			}
			if key, err = DataKey("flights__0__8__20261129T120000Z", sum); err != nil {
				return err
			}
			return d.Put(ctx, key, bytes.NewReader(other), int64(len(other)), sum)
		}},
		{"adopt", vfs.OpRead, func(ctx context.Context, d *dirStore, key string, data []byte, digest segment.Digest) error {
			return d.Put(ctx, key, bytes.NewReader(data), int64(len(data)), digest)
		}},
		{"head", vfs.OpStat, func(ctx context.Context, d *dirStore, key string, data []byte, digest segment.Digest) error {
			_, err := d.Head(ctx, key)
			return err
		}},
		{"verify", vfs.OpOpen, func(ctx context.Context, d *dirStore, key string, data []byte, digest segment.Digest) error {
			return d.Verify(ctx, key, int64(len(data)), digest)
		}},
		{"open", vfs.OpOpen, func(ctx context.Context, d *dirStore, key string, data []byte, digest segment.Digest) error {
			_, err := d.Open(ctx, key, 0, -1)
			return err
		}},
		{"read", vfs.OpRead, func(ctx context.Context, d *dirStore, key string, data []byte, digest segment.Digest) error {
			r, err := d.Open(ctx, key, 0, -1)
			if err != nil {
				return err
			}
			defer r.Close()
			b := make([]byte, 100)
			_, err = r.Read(b)
			if _, again := r.Read(b); again == nil {
				t.Error("it reads on")
			}
			return err
		}},
		{"list", vfs.OpReadDir, func(ctx context.Context, d *dirStore, key string, data []byte, digest segment.Digest) error {
			_, err := d.List(ctx, "", "", 10)
			return err
		}},
		{"delete", vfs.OpRemove, func(ctx context.Context, d *dirStore, key string, data []byte, digest segment.Digest) error {
			return d.Delete(ctx, key)
		}},
		{"sweep", vfs.OpMkdirAll, func(ctx context.Context, d *dirStore, key string, data []byte, digest segment.Digest) error {
			_, err := d.Sweep(ctx, SweepAge)
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			disk, d, key, data, digest := hangingStore(t)
			disk.hang(c.kind)
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				<-disk.hanging
				cancel(gone)
			}()
			if err := c.call(ctx, d, key, data, digest); !errors.Is(err, gone) {
				t.Errorf("%v", err)
			}
			close(disk.gate)
			for range cap(d.calls.places) { // all of them come back
				d.calls.places <- struct{}{}
			}
		})
	}
}

// As with a body from S3, a read that brings nothing ends by itself: whoever verifies
// a large object has more time than it may be silent.
func TestDirReadsThatBringNothingEnd(t *testing.T) {
	disk, d, key, data, digest := hangingStore(t)
	defer close(disk.gate)
	d.calls.idle = time.Millisecond
	disk.hang(vfs.OpRead)
	if err := d.Verify(t.Context(), key, int64(len(data)), digest); !errors.Is(err, errNoAnswer) || errors.Is(err, ErrDifferent) {
		t.Error(err)
	}
	r, err := d.Open(t.Context(), key, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, errNoAnswer) {
		t.Error(err)
	}
}

// What hangs holds threads. However often it is tried again, there is a bound.
func TestDirCallsThatHangAreBounded(t *testing.T) {
	disk, d, key, _, _ := hangingStore(t)
	disk.hang(vfs.OpStat)
	gone := errors.New("gone")
	for range dirCallsMax {
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			<-disk.hanging
			cancel(gone)
		}()
		if _, err := d.Head(ctx, key); !errors.Is(err, gone) {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if _, err := d.Head(ctx, key); !errors.Is(err, gone) {
		t.Error(err)
	}
	if n := len(disk.hanging); n != 0 {
		t.Errorf("%d more hang", n)
	}
	close(disk.gate)
	if _, err := d.Head(t.Context(), key); err != nil {
		t.Error(err)
	}
}

// A call that does not hang is waited for, though its context has ended: nothing of it
// goes on afterwards.
func TestDirCallsThatEndAreWaitedFor(t *testing.T) {
	disk, d, key, data, _ := hangingStore(t)
	d.calls.grace = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	disk.hang(vfs.OpRead)
	go func() {
		<-disk.hanging
		cancel()
		close(disk.gate)
	}()
	r, err := d.Open(ctx, key, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got := make([]byte, len(data))
	if n, err := r.Read(got); n != len(data) || err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := r.Read(got); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// An object that grows shorter while it is read does not end well.
func TestDirReadsAreAsLongAsTheyWereSaidToBe(t *testing.T) {
	disk, d, key, data, _ := hangingStore(t)
	r, err := d.Open(t.Context(), key, 10, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f, err := disk.OpenFile("p/"+key, 2, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(int64(len(data))-1), f.Close()); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != io.ErrUnexpectedEOF || len(got) != len(data)-11 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}
