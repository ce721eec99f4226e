package sim

import (
	"errors"
	"time"

	"github.com/shoalstore/shoal/zkmeta"
)

// The keeper's client of ZooKeeper: one connection at a time, which carries requests in
// order, in a session (zkmeta, Conn).
const (
	zkTimeout   = sessionTimeout / 3
	zkSends     = 4
	zkKeepAlive = sessionTimeout / 6
)

// keepAlive pings whatever the election does.
func (k *zooKeeperKeeper) keepAlive() {
	k.s.after(zkKeepAlive, "keeps alive", func() {
		k.ping()
		k.keepAlive()
	})
}

func (k *zooKeeperKeeper) ping() {
	if !k.connected {
		return
	}
	sentAt, session := k.s.mono(), k.session
	zkSend(k, "zk ping", func(*zkSession) bool { return true }, func(_ bool, err error) {
		if err == nil && session == k.session {
			k.step(zkmeta.Ponged{Session: session, SentAt: sentAt})
		}
	})
}

// connect opens a session, or goes on with the one there is, until that succeeds.
func (k *zooKeeperKeeper) connect() {
	k.conn++
	s, life, session, conn := k.s, k.s.life, k.session, k.conn
	call(s.c.net, &s.process, &k.z.process, "zk connect", zkTimeout,
		func(reply func(int64)) {
			if !k.z.down {
				reply(k.z.connect(session, conn, &s.process, life))
			}
		},
		func(id int64, err error) {
			switch {
			case s.life != life:
			case err != nil:
				s.after(s.c.w.between(100*time.Millisecond, time.Second), "connects again", k.connect)
			case id == 0:
				s.c.w.count.outcomes["session found expired"]++
				k.session = 0
				k.step(zkmeta.SessionExpired{Session: session})
				k.connect()
			default:
				k.connectedTo(id)
			}
		})
}

func (k *zooKeeperKeeper) connectedTo(session int64) {
	old := k.session
	k.session, k.connected, k.requests = session, true, 0
	if session == old {
		k.step(zkmeta.SessionBack{Session: session})
	} else {
		k.step(zkmeta.SessionOpened{Session: session})
	}
	waiting := k.unsent
	k.unsent = nil
	for _, send := range waiting {
		send()
	}
}

// lost is a connection that broke: the session may live.
func (k *zooKeeperKeeper) lost() {
	k.connected = false
	k.step(zkmeta.SessionLost{Session: k.session})
	k.connect()
}

var (
	errSessionOver    = errors.New("sim: the ZooKeeper session is over")
	errConnectionOver = errors.New("sim: the connection to ZooKeeper is over")
)

// zkAsk has op done by ZooKeeper. done hears of an answer only if the session is
// still the one in which it was asked for. What cannot be sent now waits for a
// connection, whatever session that has and whoever has given up by then, as with
// the real client.
func zkAsk[A any](k *zooKeeperKeeper, label string, op func(*zkSession) A, done func(A, error)) {
	session, over := k.session, false
	finish := func(a A, err error) {
		if over {
			return
		}
		over = true
		if err == nil && k.session != session {
			err = errSessionOver
		}
		done(a, err)
	}
	send := func() {
		zkSend(k, label, func(s *zkSession) A {
			if over {
				k.s.c.w.count.outcomes[label+" done after its client gave up"]++
			}
			return op(s)
		}, finish)
	}
	if k.connected {
		send()
		return
	}
	k.s.c.w.count.faults["request to ZooKeeper queued without a connection"]++
	k.unsent = append(k.unsent, send)
	k.s.after(zkTimeout, label+" not sent", func() {
		var none A
		finish(none, errNoAnswer)
	})
}

// zkSend sends a request on the present connection, again and again as TCP does.
// One that stays without an answer ends the connection.
func zkSend[A any](k *zooKeeperKeeper, label string, op func(*zkSession) A, done func(A, error)) {
	k.requests++
	s, life, session, conn, number := k.s, k.s.life, k.session, k.conn, k.requests
	var send func(left int)
	send = func(left int) {
		call(s.c.net, &s.process, &k.z.process, label, zkTimeout/zkSends,
			func(reply func(zkAnswer)) {
				k.z.arrive(session, conn, number, func(at *zkSession) any { return op(at) }, reply)
			},
			func(a zkAnswer, err error) {
				current := k.connected && k.conn == conn
				body, _ := a.body.(A)
				switch {
				case s.life != life:
					return
				case err != nil && current && left > 1:
					send(left - 1)
					return
				case err == nil && !a.expired && k.conn == conn:
				case current:
					k.lost() // if the session is over, it hears that when it connects
					fallthrough
				default:
					err = errConnectionOver
				}
				done(body, err)
			})
	}
	send(zkSends)
}
