package zktest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// startTries is how often a start is tried with other ports.
const startTries = 5

// Group is several servers that are one ensemble, or a single one that stands
// alone.
type Group struct {
	Processes []*Process

	mesh mesh // nil: without proxies
}

// OpenGroup runs n servers and waits until all of them serve or ctx ends, a
// minute at most. The caller owns the processes and must Close the group. Where
// somebody takes a port in between, it starts anew with others.
func OpenGroup(ctx context.Context, cfg Config, n int) (*Group, error) {
	if err := Installed(); err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		g, err := openGroup(ctx, cfg, n)
		if !errors.Is(err, errPortTaken) || try == startTries {
			return g, err
		}
	}
}

func openGroup(ctx context.Context, cfg Config, n int) (*Group, error) {
	g, err := newGroup(cfg, n)
	if err != nil {
		return nil, err
	}
	err = g.launch(ctx)
	if err != nil {
		g.Close() // what it says is in err already
		return nil, err
	}
	return g, nil
}

// newGroup writes the files of n servers. Nothing runs yet.
func newGroup(cfg Config, n int) (*Group, error) {
	if cfg.Dir == "" {
		return nil, errors.New("no directory to run ZooKeeper in")
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, err
	}
	members := make([]member, n)
	for i := range members {
		if members[i], err = newMember(i + 1); err != nil {
			return nil, err
		}
	}
	cfg.mesh.lead(members)
	g := &Group{mesh: cfg.mesh}
	for _, m := range members {
		p := &Process{cfg: cfg, dir: filepath.Join(dir, strconv.Itoa(m.id)), self: m}
		// The log of an earlier try would tell of ports that this one does not use.
		if err := os.Remove(p.Log()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err := cfg.write(p.dir, m, members); err != nil {
			return nil, err
		}
		g.Processes = append(g.Processes, p)
	}
	return g, nil
}

func (g *Group) launch(ctx context.Context) error {
	for _, p := range g.Processes {
		if err := p.Launch(); err != nil {
			return err
		}
	}
	for _, p := range g.Processes {
		if err := p.WaitServing(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Addrs returns where clients connect, as host:port, in the order of Processes.
func (g *Group) Addrs() []string {
	addrs := make([]string, len(g.Processes))
	for i, p := range g.Processes {
		addrs[i] = p.Addr()
	}
	return addrs
}

// Close kills what runs and gives the ports back. See Process.Close.
func (g *Group) Close() error {
	var errs []error
	for _, p := range g.Processes {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// WaitQuorum waits until one server leads and a majority serves, or ctx ends, a
// minute at most, and returns the leader.
func (g *Group) WaitQuorum(ctx context.Context) (*Process, error) {
	var leader *Process
	err := poll(ctx, func(ctx context.Context) (err error) {
		leader, err = g.lookForLeader(ctx)
		return err
	}, g.Processes...)
	return leader, err
}

// lookForLeader asks everybody. The followers of a leader that has just died go
// on saying so for a moment, which is why a leader must answer; and one that was
// deposed while it was frozen says for a moment that it leads, which is why its
// epoch must be the last.
func (g *Group) lookForLeader(ctx context.Context) (*Process, error) {
	modes := g.modes(ctx)
	var leader *Process
	serving, leading := 0, 0
	for i, p := range g.Processes {
		switch modes[i] {
		case "leader", "standalone":
			leader = p
			leading++
			serving++
		case "follower":
			serving++
		}
	}
	if leading != 1 || serving <= len(g.Processes)/2 {
		return nil, fmt.Errorf("%d of %d servers serve, %d of them lead", serving, len(g.Processes), leading)
	}
	epoch := leader.epoch()
	for _, p := range g.Processes {
		if other := p.epoch(); other > epoch {
			return nil, fmt.Errorf("server %d leads in epoch %d, but %d has seen epoch %d", leader.ID(), epoch, p.ID(), other)
		}
	}
	return leader, nil
}

// modes asks all servers at once: one that is frozen costs the whole time-out.
func (g *Group) modes(ctx context.Context) []string {
	modes := make([]string, len(g.Processes))
	var wg sync.WaitGroup
	for i, p := range g.Processes {
		if p.PID() == 0 {
			continue
		}
		wg.Go(func() {
			if s, err := p.State(ctx); err == nil {
				modes[i] = s.Mode
			}
		})
	}
	wg.Wait()
	return modes
}

// epoch is the last one of a leader that the server follows or was, from its
// files; 0 before the first. A server that stands alone has none.
func (p *Process) epoch() int64 {
	b, err := os.ReadFile(filepath.Join(p.DataDir(), "version-2", "currentEpoch"))
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0 // being written; the next look reads it
	}
	return n
}
