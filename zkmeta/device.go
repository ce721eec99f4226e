package zkmeta

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
)

// ErrFenced says that somebody else has written to the log since: nothing was
// appended, and whoever wrote leads no more.
var ErrFenced = errors.New("zkmeta: another leader has written to the log")

// BrokenTreeError says that ZooKeeper refused a multi although the head was the
// expected one: the tree is not what the log says. Nothing was appended.
type BrokenTreeError struct {
	Path string
	Err  error
}

func (e *BrokenTreeError) Error() string {
	return fmt.Sprintf("zkmeta: znode %s is not as the log has left it: %v; nothing was appended, and nothing will be until it is mended", e.Path, e.Err)
}

func (e *BrokenTreeError) Unwrap() error { return e.Err }

// DeviceConfig is what a Device needs.
type DeviceConfig struct {
	Conn *Conn
	// Head is where the log ends, Version that of its znode: the condition of the
	// first append.
	Head    TailHead
	Version int32
	// Base is the image that the next batch is applied to: the committed one.
	Base func() *meta.Image
	// Local is the controller's own log. A batch is written there once ZooKeeper has
	// acknowledged it, never before, so that it is never ahead.
	Local *metalog.Log
	// Heard is told when the sending of a request began that was answered.
	Heard func(sentAt time.Duration)
}

// TailHead is log/head as it was read.
type TailHead struct{ headRecord }

// Head is what an election knows of it.
func (h TailHead) Head() Head { return h.head() }

// Next is the offset of the next batch.
func (h TailHead) Next() int64 { return h.next() }

// Device is the log device of a leader in ZooKeeper: each append is one multi on the
// condition that the head is still the one that this device has written. It writes
// the batch, the znodes of its records, and drops what falls out of the tail. One
// append at a time.
//
// A batch that is refused before it is sent leaves the device as it was. After any
// other error the outcome is unknown or the leadership is over; the caller lays it
// down.
type Device struct {
	cfg    DeviceConfig
	limits limits

	// append is the one lock that is held while ZooKeeper is waited for.
	append  sync.Mutex
	version int32           // of the head's znode, guarded by append
	sizes   map[int64]int64 // of the entries that this device wrote, guarded by append

	mu     sync.Mutex // guards what follows
	head   headRecord
	failed error
}

var _ metalog.Device = (*Device)(nil)

// NewDevice returns the device of one leadership. It does no I/O.
func NewDevice(cfg DeviceConfig) *Device {
	return &Device{cfg: cfg, limits: defaultLimits, head: cfg.Head.headRecord, version: cfg.Version, sizes: map[int64]int64{}}
}

// Append implements metalog.Device.
func (d *Device) Append(ctx context.Context, b *meta.Batch) error {
	d.append.Lock()
	defer d.append.Unlock()
	if err := cmp.Or(d.failure(), ctx.Err(), d.head.precedes(b)); err != nil {
		return err // only holders of append change the head
	}
	entry, err := metalog.NewEntry(b)
	if err != nil {
		return err
	}
	head, ops, err := d.plan(ctx, entry)
	if err != nil {
		return err
	}
	sentAt := d.cfg.Conn.Now()
	if err := d.cfg.Conn.Multi(ctx, ops...); err != nil {
		if errors.Is(err, ErrTooLarge) {
			return fmt.Errorf("zkmeta: append: %w", err)
		}
		return d.fail(appendError(err))
	}
	if d.cfg.Heard != nil {
		d.cfg.Heard(sentAt)
	}
	d.wrote(head, ops[0].Kind == OpDelete, entry)
	return d.keep(ctx, entry)
}

// wrote moves the head on.
func (d *Device) wrote(head headRecord, anew bool, e metalog.Entry) {
	for offset := d.head.LogStart; offset < head.LogStart; offset++ {
		delete(d.sizes, offset)
	}
	d.sizes[e.Batch.Offset] = int64(len(e.Frame))
	if d.version++; anew {
		d.version = 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.head = head
}

// keep writes an entry that is in ZooKeeper to the local log, also for a caller that
// does not wait any more.
func (d *Device) keep(ctx context.Context, e metalog.Entry) error {
	if d.cfg.Local == nil {
		return nil
	}
	if err := d.cfg.Local.AppendEntries(context.WithoutCancel(ctx), []metalog.Entry{e}); err != nil {
		return d.fail(fmt.Errorf("zkmeta: batch %d is in ZooKeeper, and not in the local log: %w", e.Batch.Offset, err))
	}
	return nil
}

func (d *Device) failure() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed
}

// fail ends the appends of this device.
func (d *Device) fail(err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed = err
	return err
}

// appendError says what a failed multi means.
func appendError(err error) error {
	var refused *MultiError
	switch {
	case !errors.As(err, &refused):
		return fmt.Errorf("zkmeta: append: %w", err)
	case refused.Index == 0 && errors.Is(refused.Err, ErrBadVersion):
		return fmt.Errorf("%w: %w", ErrFenced, err)
	}
	return &BrokenTreeError{Path: refused.Path, Err: refused.Err}
}

// OutcomeOf says what is known of an append that returned err.
func OutcomeOf(err error) Outcome {
	switch {
	case err == nil:
		return Written
	case errors.Is(err, ErrFenced):
		return BadVersion
	}
	return Unknown
}

// Start implements metalog.Device.
func (d *Device) Start() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.head.LogStart
}

// End implements metalog.Device.
func (d *Device) End() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.head.next()
}

// Read implements metalog.Device, from the tail in ZooKeeper.
func (d *Device) Read(from int64, maxBytes int) ([]byte, error) {
	for {
		d.mu.Lock()
		head := d.head
		d.mu.Unlock()
		if from < head.LogStart || from > head.next() {
			return nil, &metalog.OutOfRangeError{Offset: from, Start: head.LogStart, End: head.next()}
		}
		frames, err := readTail(context.Background(), d.cfg.Conn, from, head.next(), maxBytes)
		if missing := (*EntryMissingError)(nil); errors.As(err, &missing) && from < d.Start() {
			continue // trimmed since
		}
		return frames, err
	}
}

// Trim implements metalog.Device. The tail is trimmed by the appends themselves, on
// the same condition.
func (d *Device) Trim(int64) error { return nil }

// Close implements metalog.Device. The connection is not the device's.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed = cmp.Or(d.failed, metalog.ErrClosed)
	return nil
}
