package zkmeta

import (
	"encoding/binary"
	"errors"
	"net"
	"sync/atomic"
	"time"
)

// errNotZooKeeper is what the wrong port gives.
var errNotZooKeeper = errors.New("what listens there does not speak ZooKeeper's protocol")

// wire is one network connection of the library. It does what the library leaves
// out: it ends a handshake that takes too long (the library waits 6.7 session
// timeouts for a server that is frozen), reads from the server's first answer what
// the library keeps to itself, and knows how long the server has been silent.
type wire struct {
	net.Conn
	server   string
	deadline time.Time // of the handshake

	shaken atomic.Bool
	head   []byte // of the first answer, while it is being read
	// Set before shaken.
	session int64 // 0: the server says that it is over
	timeout time.Duration
	opened  time.Time

	began  time.Time
	heard  atomic.Int64 // nanoseconds from began to the last byte
	closed atomic.Bool
	lasted atomic.Int64 // nanoseconds from the handshake to the close
}

func newWire(conn net.Conn, server string, deadline time.Time) *wire {
	w := &wire{Conn: conn, server: server, deadline: deadline, began: time.Now()}
	conn.SetDeadline(deadline)
	return w
}

// Read is called by one goroutine at a time.
func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if n > 0 {
		w.heard.Store(int64(time.Since(w.began)))
	}
	if !w.shaken.Load() {
		if fault := w.shake(p[:n]); fault != nil {
			return 0, fault
		}
	}
	return n, err
}

// The server's first answer: length 4, protocol 4, timeout in ms 4, session 8,
// password 4 + 16, and a byte that old servers leave out.
const (
	firstAnswerMin = 4 + 4 + 8
	firstAnswerMax = 1024 // the library takes any length, and makes room for it
)

func (w *wire) shake(p []byte) error {
	w.head = append(w.head, p...)
	if len(w.head) < 4 {
		return nil
	}
	size := binary.BigEndian.Uint32(w.head)
	if size < firstAnswerMin || size > firstAnswerMax {
		return errNotZooKeeper
	}
	if len(w.head) < 4+int(size) {
		return nil
	}
	w.timeout = time.Duration(int32(binary.BigEndian.Uint32(w.head[8:]))) * time.Millisecond
	w.session = int64(binary.BigEndian.Uint64(w.head[12:]))
	w.opened = time.Now()
	w.head = nil
	w.shaken.Store(true)
	return nil
}

// cap keeps the library from waiting for ever, or longer, in the handshake.
func (w *wire) cap(t time.Time) time.Time {
	if !w.shaken.Load() && (t.IsZero() || t.After(w.deadline)) {
		return w.deadline
	}
	return t
}

func (w *wire) SetReadDeadline(t time.Time) error  { return w.Conn.SetReadDeadline(w.cap(t)) }
func (w *wire) SetWriteDeadline(t time.Time) error { return w.Conn.SetWriteDeadline(w.cap(t)) }
func (w *wire) SetDeadline(t time.Time) error      { return w.Conn.SetDeadline(w.cap(t)) }

// Close may be called twice: by the library, and by who is tired of the server.
func (w *wire) Close() error {
	if !w.closed.Swap(true) && w.shaken.Load() {
		w.lasted.Store(int64(time.Since(w.opened)))
	}
	return w.Conn.Close()
}

// silentSince tells whether not a byte has come since then.
func (w *wire) silentSince(t time.Time) bool { return w.heard.Load() < int64(t.Sub(w.began)) }
