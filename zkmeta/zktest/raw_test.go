package zktest

import (
	"encoding/binary"
	"net"
	"testing"
)

// rawClient speaks ZooKeeper's protocol without reconnecting, as a client that
// goes away for good.
type rawClient struct{ net.Conn }

func newRawClient(t *testing.T, addr string) rawClient {
	t.Helper()
	conn, err := net.Dial("tcp4", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	c := rawClient{conn}
	c.send(t, connectRequest(10_000))
	if _, err := readFrame(c); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c rawClient) send(t *testing.T, f frame) {
	t.Helper()
	if err := f.writeTo(c); err != nil {
		t.Fatal(err)
	}
}

// createMulti is a multi that creates one empty znode, open to all.
func createMulti(path string) frame {
	u32, text := binary.BigEndian.AppendUint32, func(f frame, s string) frame {
		return append(binary.BigEndian.AppendUint32(f, uint32(len(s))), s...)
	}
	f := u32(u32(nil, 1), uint32(OpMulti)) // xid 1
	f = append(u32(f, uint32(OpCreate)), 0)
	f = u32(f, 1<<32-1)
	f = text(f, path)
	f = text(f, "")                      // data
	f = u32(u32(f, 1), 31)               // one ACL, all permissions
	f = text(text(f, "world"), "anyone") //
	f = u32(f, 0)                        // no flags
	f = append(u32(f, 1<<32-1), 1)       // the end of the multi
	return u32(f, 1<<32-1)
}
