package zktest

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"
)

// ZooKeeper's errors that say that nothing was done, as the session is over here.
const (
	errSessionExpired int32 = -112
	errSessionMoved   int32 = -118
)

func (a Answer) sessionOver() bool { return a.Err == errSessionExpired || a.Err == errSessionMoved }

func (a *Answer) addMultiErr(op int32, f frame) {
	if op == OpMulti && a.Err == 0 {
		a.Err = f.multiErr()
	}
}

// lateSessionMillis is the time-out that the proxy asks for its own session.
const lateSessionMillis = 10_000

// sendLate sends a held request in a session of its own, with the same xid and
// the client's authentications, and returns its answer.
func (p *WireProxy) sendLate(auth []frame, op int32, f frame) (Answer, error) {
	conn, err := p.dial()
	if err != nil {
		return Answer{}, err
	}
	defer conn.Close()
	defer context.AfterFunc(p.ctx, func() { conn.Close() })()
	conn.SetDeadline(time.Now().Add(serveMax))

	if err := connectRequest(lateSessionMillis).writeTo(conn); err != nil {
		return Answer{}, err
	}
	if _, err := readFrame(conn); err != nil {
		return Answer{}, fmt.Errorf("a new session for it: %w", err)
	}
	for _, g := range append(auth[:len(auth):len(auth)], f) {
		if err := g.writeTo(conn); err != nil {
			return Answer{}, err
		}
	}
	xid := f.int32(0)
	for {
		g, err := readFrame(conn)
		if err != nil {
			return Answer{}, fmt.Errorf("its answer in a new session: %w", err)
		}
		got, a, err := g.reply()
		if err != nil {
			return Answer{}, err
		}
		if got != xid {
			continue // of an authentication
		}
		a.NewSession = true
		a.addMultiErr(op, g)
		if err := closeSession(xid + 1).writeTo(conn); err == nil {
			readFrame(conn) // its answer, or the end of the connection: the session is gone
		}
		return a, nil
	}
}

func closeSession(xid int32) frame {
	op := OpCloseSession
	f := binary.BigEndian.AppendUint32(nil, uint32(xid))
	return binary.BigEndian.AppendUint32(f, uint32(op))
}
