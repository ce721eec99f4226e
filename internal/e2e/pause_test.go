package e2e

import (
	"strings"
	"syscall"
	"testing"

	"github.com/shoalstore/shoal/meta"
)

// signal sends one to a process that runs.
func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("%s: %v", p.name, err)
	}
}

// TestPausedProcesses: a process that the kernel stops for a while is not dead
// and does not know that time has passed. A node is taken for DOWN and does
// without; a leader finds its nodes again. Neither does harm with what it still
// believes when it wakes up.
func TestPausedProcesses(t *testing.T) {
	t.Parallel()
	f, _ := startFleet(t, fleetOptions{})
	p := newProducer(t, f.streamRoot(), "events", 2)
	f.createTable("events", map[string]any{"completion": map[string]any{"holdTime": "300ms", "commitTimeout": "3s"}})
	p.add(150)
	f.awaitCommitted("events", 200)

	node := f.nodes[1]
	p.add(60)
	node.signal(syscall.SIGSTOP)
	f.await(node.name+" to be taken for DOWN", func() (bool, string) {
		views, err := f.nodeViews()
		return err == nil && views[1].State == meta.NodeDown, asJSON(views, err)
	})
	p.add(300)
	f.awaitCommitted("events", 1000) // without it
	node.signal(syscall.SIGCONT)
	f.awaitNodes(3)
	f.awaitReplicated("events")

	p.add(60)
	f.controller.signal(syscall.SIGSTOP)
	f.await("the nodes to be without a leader", func() (bool, string) {
		for _, n := range f.nodes {
			if err := f.fromNode(n.url)("/readyz", nil); err == nil || !strings.Contains(err.Error(), "no leader has answered") {
				return false, asJSON(nil, err)
			}
		}
		return true, ""
	})
	p.add(300)
	f.controller.signal(syscall.SIGCONT)
	f.prove("events", p)
	f.checkHistory()
}
