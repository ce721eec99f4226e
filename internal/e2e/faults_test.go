package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/snapshots"
	"github.com/shoalstore/shoal/zkmeta/zktest"
)

// countFaults is how many a test makes: SHOAL_FAULTS, or what is usual.
func countFaults(t *testing.T, usual int) int {
	t.Helper()
	s := os.Getenv("SHOAL_FAULTS")
	if s == "" {
		return usual
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("SHOAL_FAULTS: %q is not a number of faults", s)
	}
	return n
}

// TestFaultsLoseNothing is TestKillsLoseNothing with three controllers and three
// ZooKeeper servers: any of them is killed, frozen for longer than a session lasts,
// cut off or left without answers, ZooKeeper's servers also from one another; also
// several at once and ZooKeeper's majority among them. Some lose their copy of the
// metadata with that. Snapshots are asked for all the time, and in the end everybody
// makes the same one.
func TestFaultsLoseNothing(t *testing.T) {
	rnd := drawSeed(t)
	l := startLeague(t, leagueOptions{controllers: 3, nodes: 3, servers: 3})
	events := newProducer(t, l.streamRoot(), "events", 2)
	clicks := newProducer(t, l.streamRoot(), "clicks", 1)
	l.createTable("events", map[string]any{
		"segment":   map[string]any{"maxRows": 150, "rowGroupRows": 40},
		"deepStore": l.withDeepStore(),
	})
	l.createTable("clicks", map[string]any{
		"segment":    map[string]any{"maxAge": "1s"},
		"completion": map[string]any{"mode": "download", "holdTime": "200ms", "commitTimeout": "5s"},
		"download":   "peersFirst",
	})
	stopEvents := events.keepAdding(rnd.Int63(), 10*time.Millisecond)
	stopClicks := clicks.keepAdding(rnd.Int63(), 20*time.Millisecond)
	l.awaitCommitted("events", 1)
	l.awaitCommitted("clicks", 1)

	usual := 30
	if testing.Short() {
		usual = 8
	}
	s := striker{league: l, killer: killer{fleet: l.fleet, rnd: rnd, made: func() int64 { return events.made.Load() + clicks.made.Load() }}}
	for faults := countFaults(t, usual); s.struck < faults; {
		s.round()
	}
	stopEvents()
	stopClicks()
	l.zk.WaitQuorum()
	s.asking.Wait()
	t.Logf("%d faults: %s", s.struck, strings.Join(s.said, ", "))
	l.sameSnapshot(append(slices.Clone(l.nodes), l.controllers...))
	l.prove("events", events)
	l.prove("clicks", clicks)
	l.checkLeague()
}

// striker makes faults of every kind, and heals them.
type striker struct {
	*league
	killer killer
	struck int
	said   []string
	asking sync.WaitGroup
}

// fault is one, against one target.
type fault struct {
	name   string
	strike func()
	heal   func()
}

// round strikes once or several times at once, lets it be for a while, heals, and now
// and then waits until the cluster has got somewhere.
func (s *striker) round() {
	s.t.Helper()
	var names []string
	faults := s.draw()
	for _, f := range faults {
		f.strike()
		s.struck++
		names = append(names, f.name)
	}
	s.said = append(s.said, strings.Join(names, "+"))
	s.asking.Go(func() { // of whoever leads, if anybody does
		ctx, cancel := context.WithTimeout(context.Background(), 2*leagueTimeout)
		defer cancel()
		var asked api.SnapshotAsked
		_ = s.client.Post(ctx, snapshots.Path, nil, &asked)
	})
	s.hold()
	s.killer.rnd.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
	for _, f := range faults {
		f.heal()
		s.killer.produced(s.killer.rnd.Intn(100))
	}
	if s.killer.rnd.Intn(3) > 0 {
		s.recover()
	} else {
		s.killer.produced(s.killer.rnd.Intn(300))
	}
}

// hold is how long a fault lasts: it may be over before anybody has noticed, or last
// for longer than a session.
func (s *striker) hold() {
	if s.killer.rnd.Intn(3) == 0 {
		s.killer.produced(s.killer.rnd.Intn(100))
		return
	}
	lasts := leagueTimeout + time.Duration(s.killer.rnd.Int63n(int64(leagueTimeout)/2))
	for until := time.Now().Add(lasts); time.Now().Before(until); time.Sleep(awaitPoll) {
	}
}

// recover waits until more is committed.
func (s *striker) recover() {
	s.t.Helper()
	have := int64(-1)
	s.await("a commit after "+s.said[len(s.said)-1], func() (bool, string) {
		n, err := s.committed("events")
		if err != nil {
			return false, err.Error()
		}
		if have < 0 {
			have = n
		}
		return n > have, fmt.Sprint(n)
	})
}

// draw draws faults against one target, two, or several.
func (s *striker) draw() (faults []fault) {
	rnd := s.killer.rnd
	n := 1
	switch d := rnd.Intn(10); {
	case d > 8:
		n = 4
	case d > 5:
		n = 2
	}
	struck := map[string]bool{}
	for len(faults) < n {
		var f fault
		target := ""
		switch i := rnd.Intn(8); {
		case i < 2: // the leader is struck most often
			c := s.presumedLeader()
			target, f = s.controllers[c].name, s.againstController(c)
		case i < 4:
			c := rnd.Intn(len(s.controllers))
			target, f = s.controllers[c].name, s.againstController(c)
		case i < 6:
			c := rnd.Intn(len(s.nodes))
			target, f = s.nodes[c].name, s.againstNode(c)
		default:
			c := rnd.Intn(len(s.zk.Servers))
			target, f = fmt.Sprintf("zookeeper-%d", c+1), s.againstServer(c)
		}
		if !struck[target] {
			struck[target] = true
			f.name += " " + target
			faults = append(faults, f)
		}
	}
	return faults
}

// presumedLeader does not wait for one.
func (s *striker) presumedLeader() int {
	for i, c := range s.controllers {
		if s.leads(c) > 0 {
			return i
		}
	}
	return s.killer.rnd.Intn(len(s.controllers))
}

func (s *striker) againstController(i int) fault {
	p := s.controllers[i]
	switch s.killer.rnd.Intn(5) {
	case 0, 1:
		if i > 0 && s.killer.rnd.Intn(3) == 0 { // the first one keeps the whole log, to check the others by
			return s.emptying(p, "")
		}
		return killing(p)
	case 2:
		return freezing(p)
	case 3:
		return s.cutting("ZooKeeper from", s.links[i])
	default:
		links := append([]*zktest.Proxy{s.fronts[i]}, s.links[i]...)
		for _, views := range s.views {
			links = append(links, views[i])
		}
		return s.cutting("everything from", links)
	}
}

func (s *striker) againstNode(i int) fault {
	p := s.nodes[i]
	switch s.killer.rnd.Intn(4) {
	case 0:
		if s.killer.rnd.Intn(2) == 0 {
			return s.emptying(p, "cache", "snapshots")
		}
		return killing(p)
	case 1:
		return freezing(p)
	case 2:
		return s.cutting("controllers from", s.views[i])
	default:
		return s.cutting("everything from", append([]*zktest.Proxy{s.doors[i]}, s.views[i]...))
	}
}

func (s *striker) againstServer(i int) fault {
	server := s.zk.Servers[i]
	switch s.killer.rnd.Intn(4) {
	case 0:
		return fault{"kill", server.Kill, server.Launch}
	case 1:
		return fault{"freeze", server.Pause, server.Resume}
	case 2: // the controllers reach it all the same
		return s.cutting("its peers from", s.zk.Links(i))
	default:
		var links []*zktest.Proxy
		for _, of := range s.links {
			links = append(links, of[i])
		}
		return s.cutting("controllers from", links)
	}
}

func killing(p *process) fault { return fault{"kill", p.kill, p.start} }

// emptying kills a process and takes directories of its data away.
func (s *striker) emptying(p *process, dirs ...string) fault {
	return fault{"kill and empty", func() {
		p.kill()
		for _, dir := range dirs {
			removeAll(s.t, filepath.Join(p.data(), dir))
		}
	}, p.start}
}

func freezing(p *process) fault {
	return fault{"freeze", func() { p.signal(syscall.SIGSTOP) }, func() { p.signal(syscall.SIGCONT) }}
}

// cutting cuts connections, or has them lead nowhere, in both directions or in one.
func (s *striker) cutting(what string, links []*zktest.Proxy) fault {
	rnd := s.killer.rnd
	if rnd.Intn(2) == 0 {
		return fault{"cut " + what, all(links, (*zktest.Proxy).Cut), all(links, (*zktest.Proxy).Heal)}
	}
	way := []zktest.Direction{zktest.Both, zktest.Both, zktest.ToServer, zktest.ToClient}[rnd.Intn(4)]
	return fault{"stall " + what, all(links, func(p *zktest.Proxy) { p.Stall(way) }), all(links, (*zktest.Proxy).Unstall)}
}

func all(links []*zktest.Proxy, do func(*zktest.Proxy)) func() {
	return func() {
		for _, p := range links {
			do(p)
		}
	}
}
