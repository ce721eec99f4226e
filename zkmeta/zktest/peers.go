package zktest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/shoalstore/shoal/internal/httpx/httpxtest"
)

// WithPeerLinks puts proxies between the servers of an ensemble, so that a test
// can cut one off from the others; see Ensemble.Links.
func WithPeerLinks() Option {
	return func(c *Config) { c.linked = true }
}

// Links returns every proxy between server i, counted from 0 as in Servers, and
// the others. All that servers say to one another goes through such, votes too:
// while they are cut, the server can neither lead nor follow, and its clients
// reach it all the same. Without WithPeerLinks there are none.
func (e *Ensemble) Links(i int) []*Proxy {
	var links []*Proxy
	for j := range e.g.mesh {
		links = append(links, e.LinksBetween(i, j)...)
	}
	return links
}

// LinksBetween returns the proxies between servers i and j. Each leads from the
// server that dials to the one that it dials: a follower dials its leader, and
// for votes the server with the larger id dials the other.
func (e *Ensemble) LinksBetween(i, j int) []*Proxy {
	if e.g.mesh == nil || i == j {
		return nil
	}
	there, back := e.g.mesh[i][j], e.g.mesh[j][i]
	return []*Proxy{there.quorum, there.election, back.quorum, back.election}
}

// leaderMax is how long a follower waits for its leader's port. A leader opens it
// when it has been elected, at the moment when the others dial it; one that is
// refused tries again, but one that is accepted and then dropped begins another
// election, over and over.
const leaderMax = 2 * time.Second

// peerLink is how one server reaches another.
type peerLink struct {
	quorum   *Proxy // of a follower to its leader: what is written, and pings
	election *Proxy // votes
}

// mesh is how the servers of an ensemble reach one another: [from][to], with
// nothing from a server to itself. Without proxies it is nil.
type mesh [][]peerLink

// newMesh makes proxies between n servers, which lead nowhere yet.
func newMesh(t testing.TB, n int) mesh {
	t.Helper()
	m := make(mesh, n)
	for from := range m {
		m[from] = make([]peerLink, n)
	}
	for from := range m {
		for to := range from {
			m[from][to] = newPeerLink(t)
			m[to][from] = newPeerLink(t)
			openPeerLink(t, m[from][to], m[to][from])
			openPeerLink(t, m[to][from], m[from][to])
		}
	}
	return m
}

func newPeerLink(t testing.TB) peerLink {
	t.Helper()
	return peerLink{quorum: makeProxy(t, ""), election: makeProxy(t, "")}
}

func openPeerLink(t testing.TB, l, back peerLink) {
	t.Helper()
	l.quorum.patience = leaderMax
	l.election.serve = func(client, server net.Conn) {
		l.election.relay(&voter{TCPConn: client.(*net.TCPConn), t: t, home: back.election.Addr()}, server)
	}
	l.quorum.Heal()
	l.election.Heal()
}

// lead has the proxies lead to the servers' ports.
func (m mesh) lead(members []member) {
	for from := range m {
		for to, link := range m[from] {
			if from != to {
				link.quorum.SetTarget(httpxtest.Loopback(members[to].quorum))
				link.election.SetTarget(httpxtest.Loopback(members[to].election))
			}
		}
	}
}

// seen is a member as another sees it.
func (m mesh) seen(by, of member) member {
	if m == nil || by.id == of.id {
		return of
	}
	link := m[by.id-1][of.id-1]
	of.quorum, of.election = link.quorum.port, link.election.port
	return of
}

// voter is a connection from a server that dials another's election port. It
// begins with the address of its own, and a server with a larger id hangs up and
// dials that: past the proxies, if it were the address that the server knows
// itself by. So it becomes the other's way there.
type voter struct {
	*net.TCPConn
	t    testing.TB
	home string
	rest io.Reader // nil: nothing was read
}

func (v *voter) Read(b []byte) (int, error) {
	if v.rest == nil {
		hello, err := readHello(v.TCPConn, v.home)
		if errors.Is(err, errHello) {
			v.t.Error(err)
		}
		if err != nil {
			return 0, err
		}
		v.rest = io.MultiReader(bytes.NewReader(hello), v.TCPConn)
	}
	return v.rest.Read(b)
}

// What a server says first to another's election port:
//
//	version int64 | id int64 | length int32 | host:port
//
// A version that knows of several addresses has a | between them.
const (
	helloHead    = 20
	helloMax     = 2048 // bytes of an address
	helloOne     = -65536
	helloSeveral = -65535
)

var errHello = errors.New("a server began an election in a way that the proxy does not know")

// readHello returns what a server says first, with another address. It is to be
// passed on in one piece: the other reads the address with a single call.
func readHello(r io.Reader, addr string) ([]byte, error) {
	head := make([]byte, helloHead)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	version, length := int64(binary.BigEndian.Uint64(head)), binary.BigEndian.Uint32(head[16:])
	if version != helloOne && version != helloSeveral || length > helloMax {
		return nil, fmt.Errorf("%w: %x", errHello, head)
	}
	if _, err := io.CopyN(io.Discard, r, int64(length)); err != nil {
		return nil, err
	}
	binary.BigEndian.PutUint32(head[16:], uint32(len(addr)))
	return append(head, addr...), nil
}
