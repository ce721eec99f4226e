package zkmeta

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// fakeServer speaks just enough of the protocol for what the real server cannot
// be made to do at will. Everything it is asked gets the code of its opcode.
type fakeServer struct {
	addr     string
	timeout  time.Duration
	codes    map[int32]int32 // 0 for those that are not in it
	sessions atomic.Int64
	auths    atomic.Int64
	longest  atomic.Int64  // request, with its length
	silent   atomic.Bool   // it reads, and says nothing
	refuse   atomic.Bool   // it takes no credentials
	stuck    atomic.Bool   // it reads one more request, if at all, and then waits for unstick
	expire   atomic.Bool   // it knows no session
	asked    sync.Map      // session → whatever, for those that asked for more than a ping
	held     chan struct{} // closed when it is
	unstick  chan struct{}
}

const (
	opSetAuth = 100
	opPing    = 11
	opClose   = -11
)

func startFake(t *testing.T, f *fakeServer) *fakeServer {
	t.Helper()
	if f.timeout == 0 {
		f.timeout = treeTimeout
	}
	addr, accepted := listen(t)
	f.addr, f.held, f.unstick = addr, make(chan struct{}), make(chan struct{})
	go func() {
		for conn := range accepted {
			go f.serve(conn)
		}
	}()
	return f
}

// firstAnswer is what a server says to a client that connects.
func firstAnswer(session int64, timeout time.Duration) []byte {
	b := binary.BigEndian.AppendUint32(nil, 37)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(timeout.Milliseconds()))
	b = binary.BigEndian.AppendUint64(b, uint64(session))
	b = binary.BigEndian.AppendUint32(b, 16)
	return append(b, make([]byte, 17)...)
}

func readFrame(conn net.Conn) ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(conn, head); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(head))
	_, err := io.ReadFull(conn, body)
	return body, err
}

func (f *fakeServer) serve(conn net.Conn) {
	defer conn.Close()
	hello, err := readFrame(conn)
	if err != nil {
		return
	}
	session := int64(binary.BigEndian.Uint64(hello[16:]))
	switch {
	case session == 0:
		session = f.sessions.Add(1)
	case f.expire.Load():
		conn.Write(firstAnswer(0, 0))
		return
	}
	conn.Write(firstAnswer(session, f.timeout))
	for {
		if f.stuck.CompareAndSwap(true, false) {
			close(f.held)
			<-f.unstick
			return
		}
		req, err := readFrame(conn)
		if err != nil {
			return
		}
		f.longest.Store(max(f.longest.Load(), int64(len(req))+4))
		xid, op := binary.BigEndian.Uint32(req), int32(binary.BigEndian.Uint32(req[4:]))
		if op > 0 && op != opPing {
			f.asked.Store(session, op)
		}
		if op == opSetAuth {
			f.auths.Add(1)
		}
		if f.silent.Load() {
			continue
		}
		code := f.codes[op]
		if op == opSetAuth && f.refuse.Load() {
			code = -115
		}
		b := binary.BigEndian.AppendUint32(nil, 16)
		b = binary.BigEndian.AppendUint32(b, xid)
		b = binary.BigEndian.AppendUint64(b, 1)
		b = binary.BigEndian.AppendUint32(b, uint32(code))
		conn.Write(b)
		if code == -115 || op == opClose {
			return // as the real one does
		}
	}
}
