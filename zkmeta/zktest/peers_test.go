package zktest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

func each(links []*Proxy, do func(*Proxy)) {
	for _, p := range links {
		do(p)
	}
}

// TestLeaderCutOff: a leader that is cut from both others stops serving, though
// its clients reach it, and they elect another. It follows when it is back.
func TestLeaderCutOff(t *testing.T) {
	t.Parallel()
	// As in TestEnsemble, of the leader that stays.
	e := StartEnsemble(t, 3, WithPeerLinks(), WithConfig("syncLimit=40"))
	conn := connect(t, sessionMax, e.Addrs()...)
	create(t, conn, "/before", "1")
	first := e.Leader()
	links := e.Links(first.ID() - 1)
	each(links, (*Proxy).Cut)
	awaitMode(t, first, "")
	second := e.Leader()
	if second == first {
		t.Fatalf("server %d is cut off and leads", first.ID())
	}
	create(t, conn, "/during", "2")
	awaitMode(t, first, "")
	each(links, (*Proxy).Heal)
	awaitMode(t, first, "follower")
	if got := e.Leader(); got != second {
		t.Fatalf("server %d leads; a server that comes back does not depose %d", got.ID(), second.ID())
	}
	wantLinked(t, e)
	back := connect(t, sessionMax, first.Addr())
	if _, err := back.Sync("/during"); err != nil {
		t.Fatal(err)
	}
	wantData(t, back, "/during", "2")
}

// TestFollowerCutOff: a follower that does not reach its leader, but does reach
// the other follower, stops serving until it does, also where nothing tells it of
// the cut. Restarted, it is behind the same proxies.
func TestFollowerCutOff(t *testing.T) {
	t.Parallel()
	e := StartEnsemble(t, 3, WithPeerLinks())
	wantLinked(t, e)
	leader, follower := e.Leader(), e.Followers()[0]
	links := e.LinksBetween(leader.ID()-1, follower.ID()-1)
	for _, fault := range []struct{ strike, heal func(*Proxy) }{
		{(*Proxy).Cut, (*Proxy).Heal},
		{func(p *Proxy) { p.Stall(Both) }, (*Proxy).Unstall},
	} {
		each(links, fault.strike)
		awaitMode(t, follower, "")
		if got := e.Leader(); got != leader {
			t.Fatalf("server %d leads; %d still has a majority", got.ID(), leader.ID())
		}
		each(links, fault.heal)
		awaitMode(t, follower, "follower")
		wantLinked(t, e)
	}
	follower.Kill()
	follower.Restart()
	wantLinked(t, e)
	each(links, (*Proxy).Cut)
	awaitMode(t, follower, "")
}

// wantLinked waits until all servers are connected by their proxies: each follower
// to the leader, and each pair for votes, of which the larger id dials. A pair
// that is connected past them never is.
func wantLinked(t *testing.T, e *Ensemble) {
	t.Helper()
	leader := e.Leader().ID() - 1
	err := poll(t.Context(), func(context.Context) error {
		for i := range e.Servers {
			if i != leader && !e.g.mesh[i][leader].quorum.busy() {
				return fmt.Errorf("server %d is not connected to its leader %d", i+1, leader+1)
			}
			for j := range i {
				if !e.g.mesh[i][j].election.busy() {
					return fmt.Errorf("servers %d and %d are not connected for votes", i+1, j+1)
				}
			}
		}
		return nil
	}, e.g.Processes...)
	if err != nil {
		t.Fatal(err)
	}
}

func (f *front) busy() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.conns) > 0
}

// TestHello: what a server says first names another address, and is otherwise as
// it was.
func TestHello(t *testing.T) {
	const (
		one     = "\xff\xff\xff\xff\xff\xff\x00\x00"
		several = "\xff\xff\xff\xff\xff\xff\x00\x01"
		three   = "\x00\x00\x00\x00\x00\x00\x00\x03"
	)
	for _, c := range []struct {
		in, want string
		err      error
	}{
		{one + three + "\x00\x00\x00\x0f127.0.0.1:15000votes", one + three + "\x00\x00\x00\x0d127.0.0.1:999", nil},
		{several + three + "\x00\x00\x00\x0ba:100|b:200votes", several + three + "\x00\x00\x00\x0d127.0.0.1:999", nil},
		{three + three + "\x00\x00\x00\x0f127.0.0.1:15000", "", errHello},
		{one + three + "\x7f\x00\x00\x00127.0.0.1:15000", "", errHello},
		{one + three + "\x00\x00\x00\x0f127.0.0.1", "", io.EOF},
		{one, "", io.ErrUnexpectedEOF},
		{"", "", io.EOF},
	} {
		in := strings.NewReader(c.in)
		got, err := readHello(in, "127.0.0.1:999")
		if string(got) != c.want || !errors.Is(err, c.err) {
			t.Errorf("%q: %q, %v; want %q, %v", c.in, got, err, c.want, c.err)
		}
		if rest, _ := io.ReadAll(in); c.err == nil && string(rest) != "votes" {
			t.Errorf("%q: %q is left; want the votes", c.in, rest)
		}
	}
}
