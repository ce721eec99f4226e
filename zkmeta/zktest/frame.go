package zktest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Opcodes of requests, as ZooKeeper numbers them.
const (
	OpCreate          int32 = 1
	OpDelete          int32 = 2
	OpExists          int32 = 3
	OpGetData         int32 = 4
	OpSetData         int32 = 5
	OpGetACL          int32 = 6
	OpSetACL          int32 = 7
	OpGetChildren     int32 = 8
	OpSync            int32 = 9
	OpPing            int32 = 11
	OpGetChildren2    int32 = 12
	OpCheck           int32 = 13
	OpMulti           int32 = 14
	OpCreateContainer int32 = 19
	OpCreateTTL       int32 = 21
	OpAuth            int32 = 100
	OpSetWatches      int32 = 101
	OpSetWatches2     int32 = 105
	OpCloseSession    int32 = -11

	// OpConnect and OpWatchEvent are ours: what they stand for has no opcode.
	OpConnect    int32 = -1000 // the first frame each way
	OpWatchEvent int32 = -1001 // a frame of the server's that answers nothing
)

// xidWatchEvent marks a frame that the server sends unasked.
const xidWatchEvent int32 = -1

// frameMax is what the proxy is willing to hold of one frame; ZooKeeper itself
// refuses more than 1 MiB.
const frameMax = 64 << 20

// frame is one message without its length, which is what ZooKeeper measures
// against jute.maxbuffer.
type frame []byte

// readFrame reads a 4-byte length and as many bytes.
func readFrame(r io.Reader) (frame, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > frameMax {
		return nil, fmt.Errorf("a frame of %d bytes: not ZooKeeper's protocol", n)
	}
	f := make(frame, n)
	_, err := io.ReadFull(r, f)
	return f, err
}

func (f frame) writeTo(w io.Writer) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(f)), uint32(len(f))), f...))
	return err
}

var errShortFrame = errors.New("a frame that is shorter than its header")

// request is the head of a client's frame: xid, opcode.
func (f frame) request() (xid, op int32, err error) {
	if len(f) < 8 {
		return 0, 0, errShortFrame
	}
	return f.int32(0), f.int32(4), nil
}

// reply is the head of a server's frame: xid, zxid, error.
func (f frame) reply() (xid int32, a Answer, err error) {
	if len(f) < 16 {
		return 0, Answer{}, errShortFrame
	}
	return f.int32(0), Answer{
		Zxid: int64(binary.BigEndian.Uint64(f[4:])),
		Err:  f.int32(12),
	}, nil
}

// multiErr is the first error among the results of a multi. A multi that failed
// has no error in its head: every result is an error of 5 + 4 bytes more, 0 for
// the operations before the one that failed.
func (f frame) multiErr() int32 {
	for at := 16; at+13 <= len(f) && f.int32(at) == -1; at += 13 {
		if code := f.int32(at + 9); code != 0 {
			return code
		}
	}
	return 0
}

func (f frame) int32(at int) int32 { return int32(binary.BigEndian.Uint32(f[at:])) }

// connectRequest asks for a new session.
func connectRequest(timeoutMillis uint32) frame {
	f := make(frame, 0, 45)
	f = binary.BigEndian.AppendUint32(f, 0) // protocol
	f = binary.BigEndian.AppendUint64(f, 0) // last zxid seen
	f = binary.BigEndian.AppendUint32(f, timeoutMillis)
	f = binary.BigEndian.AppendUint64(f, 0)  // no session yet
	f = binary.BigEndian.AppendUint32(f, 16) // password
	f = append(f, make([]byte, 16)...)
	return append(f, 0) // not read-only
}
