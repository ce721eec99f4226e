package e2e

import (
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/meta"
)

// The deletions that must not happen. In each of these a cluster could come to
// believe that bytes are not needed, or not there: nothing that is committed
// may lose its last copy, and every copy is back in the end.

// TestAllCachesWiped: all nodes lose their copy of the metadata at once. Their
// images are empty then, and say of no copy that it is needed.
func TestAllCachesWiped(t *testing.T) {
	t.Parallel()
	f, _ := startFleet(t, fleetOptions{})
	p := newProducer(t, f.streamRoot(), "events", 2)
	f.createTable("events", nil)
	p.add(450)
	f.awaitCommitted("events", 800)
	f.awaitReplicated("events")
	listed, files := f.locations("events"), f.copies()
	f.stopNodes()
	for _, n := range f.nodes {
		if err := os.RemoveAll(filepath.Join(n.data(), "cache")); err != nil {
			t.Fatal(err)
		}
	}

	// First without a controller: nobody tells them anything.
	f.controller.stop()
	f.startNodes()
	for _, n := range f.nodes {
		f.await(n.name+" up and not ready", func() (bool, string) {
			err := f.fromNode(n.url)("/readyz", nil)
			return err != nil && strings.Contains(err.Error(), "NOT_READY"), asJSON(nil, err)
		})
	}
	f.controller.start()
	f.awaitNodes(3)
	for _, n := range f.nodes {
		f.await(n.name+" ready", func() (bool, string) {
			err := f.fromNode(n.url)("/readyz", nil)
			return err == nil, asJSON(nil, err)
		})
	}
	// A report of this incarnation, before there is anything new to report, is
	// the one that confirms what is held.
	f.await("each node's confirmation of what it holds", func() (bool, string) {
		views, err := f.nodeViews()
		confirmed := 0
		for _, v := range views {
			if v.LocationsSeq > 0 {
				confirmed++
			}
		}
		return err == nil && confirmed == 3, asJSON(views, err)
	})
	p.add(200) // and it goes on
	f.prove("events", p)

	now := f.locations("events")
	for k, since := range listed {
		if now[k] != since {
			t.Errorf("%s was listed since %d and is now since %d: it was taken for gone meanwhile", k, since, now[k])
		}
	}
	after := f.copies()
	for file, inode := range files {
		if after[file] != inode {
			t.Errorf("%s was removed or replaced", file)
		}
	}
}

// locations are the node locations of the committed segments, with since when
// they are listed.
func (f *fleet) locations(table string) map[string]int64 {
	f.t.Helper()
	out := map[string]int64{}
	for _, s := range f.committedSegments(table) {
		for _, l := range s.Locations {
			if l.Node != "" {
				out[l.Node+" "+s.Name] = l.Since
			}
		}
	}
	return out
}

// copies are the sealed files of all nodes, with their inodes: a file that was
// fetched again has another.
func (f *fleet) copies() map[string]uint64 {
	f.t.Helper()
	out := map[string]uint64{}
	for _, n := range f.nodes {
		for _, file := range filesBelow(f.t, filepath.Join(n.data(), "segments")) {
			out[file] = inodeOf(f.t, file)
		}
	}
	return out
}

// TestDiskReplacedAndPeersRestarted: one node comes back with an empty disk
// under the same id, and its peers are restarted while it fetches, or before it
// could begin to. There is no deep store: what the peers have is all there is.
func TestDiskReplacedAndPeersRestarted(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]func(f *fleet, fresh *process, peers []*process){
		"before it is let in, one after the other": func(f *fleet, fresh *process, peers []*process) {
			fresh.start() // refused: its old self is UP for a while
			for _, p := range peers {
				p.kill()
				p.start()
			}
		},
		"while it fetches, both at once": func(f *fleet, fresh *process, peers []*process) {
			fresh.start()
			f.await(fresh.name+" let in with its new store", func() (bool, string) {
				files := filesBelow(f.t, filepath.Join(fresh.data(), "staging"))
				return len(files) > 0 || len(filesBelow(f.t, filepath.Join(fresh.data(), "segments"))) > 0, asJSON(files, nil)
			})
			for _, p := range peers {
				p.kill()
			}
			for _, p := range slices.Backward(peers) {
				p.start()
			}
		},
		"it alone at first": func(f *fleet, fresh *process, peers []*process) {
			for _, p := range peers {
				p.stop()
			}
			fresh.start()
			f.await("only "+fresh.name+" UP, with its new store", func() (bool, string) {
				views, err := f.nodeViews()
				up, isNew := 0, false
				for _, v := range views {
					if v.State == meta.NodeUp {
						up++
						isNew = v.ID == fresh.name && v.Segments == 0
					}
				}
				return err == nil && up == 1 && isNew, asJSON(views, err)
			})
			for _, p := range peers {
				p.start()
			}
		},
		"peers first, it last, and the controller in between": func(f *fleet, fresh *process, peers []*process) {
			for _, p := range peers {
				p.kill()
			}
			f.controller.kill()
			for _, p := range peers {
				p.start()
			}
			f.controller.start()
			fresh.start()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, _ := startFleet(t, fleetOptions{})
			p := newProducer(t, f.streamRoot(), "events", 2)
			f.createTable("events", nil)
			p.add(450)
			f.awaitCommitted("events", 800)
			f.awaitReplicated("events")
			before := f.committedSegments("events")

			fresh := f.nodes[rand.Intn(len(f.nodes))]
			peers := slices.DeleteFunc(slices.Clone(f.nodes), func(n *process) bool { return n == fresh })
			t.Logf("the disk of %s is replaced", fresh.name)
			fresh.kill()
			if err := os.RemoveAll(fresh.data()); err != nil {
				t.Fatal(err)
			}
			restart(f, fresh, peers)
			f.awaitNodes(3)
			p.add(100)
			f.prove("events", p)
			sameSegments(t, before, f.committedSegments("events"))
			f.checkHistory()
		})
	}
}

// sameSegments checks that what was committed is still what it was.
func sameSegments(t *testing.T, before, after []api.SegmentView) {
	t.Helper()
	now := map[string]api.SegmentView{}
	for _, s := range after {
		now[s.Name] = s
	}
	for _, s := range before {
		if n := now[s.Name]; n.Digest != s.Digest || n.End != s.End || n.Generation != s.Generation {
			t.Errorf("%s was committed at %d with %s, and is now %d with %s", s.Name, s.End, s.Digest, n.End, n.Digest)
		}
	}
}

// TestCommitterKilled kills the committer at the two steps of a commit where it
// alone has the bytes, several times each, and leaves it dead until the others
// have gone on without it.
func TestCommitterKilled(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]struct {
		forward   bool // the controller commits before the kill
		wipe      bool // the committer's disk is lost, too
		deepStore bool
	}{
		"between seal and commit":                        {},
		"between commit and reply":                       {forward: true},
		"between commit and reply, with a deep store":    {forward: true, deepStore: true},
		"between commit and reply, and its disk is lost": {forward: true, wipe: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, g := startFleet(t, fleetOptions{gated: true})
			p := newProducer(t, f.streamRoot(), "events", 1)
			// Nobody takes over from a committer before its lease is over.
			changes := map[string]any{"completion": map[string]any{"holdTime": "300ms", "commitTimeout": "3s"}}
			if step.deepStore {
				changes["deepStore"] = f.withDeepStore()
			}
			f.createTable("events", changes)
			p.add(150)
			f.awaitCommitted("events", 100)
			for range 3 {
				victim := f.killCommitter(g, p, step.forward)
				have, err := f.committed("events")
				if err != nil {
					t.Fatal(err)
				}
				p.add(100)
				f.awaitCommitted("events", have+100) // without the victim
				if step.wipe {
					if err := os.RemoveAll(victim.data()); err != nil {
						t.Fatal(err)
					}
				}
				victim.start()
				f.awaitNodes(3)
			}
			f.prove("events", p)
			f.checkHistory()
		})
	}
}

// killCommitter adds rows until a replica asks for the commit of a segment, and
// kills that one before the controller hears of it, or before it hears from the
// controller.
func (f *fleet) killCommitter(g *gate, p *producer, forward bool) (victim *process) {
	f.t.Helper()
	var done atomic.Pointer[process]
	var caught atomic.Bool
	g.onMessage(func(m commit.Message, send func() commit.Reply) bool {
		if m.Kind != commit.SegmentCommitEnd || !caught.CompareAndSwap(false, true) {
			send()
			return true
		}
		if forward {
			if reply := send(); reply.Status != commit.CommitSuccess {
				f.t.Logf("commitEnd of %s was answered %s: another one will be", m.Segment, reply.Status)
				caught.Store(false) // it came too late, and another replica may commit by now
				return true
			}
		}
		for _, n := range f.nodes {
			if n.name == m.Instance {
				n.kill()
				f.t.Logf("%s was killed at its commitEnd of %s up to %d", n.name, m.Segment, m.Offset)
				done.Store(n)
			}
		}
		return false
	})
	defer g.onMessage(nil)
	p.add(100)
	f.await("a commitEnd", func() (bool, string) {
		victim = done.Load()
		return victim != nil, "no commitEnd yet"
	})
	return victim
}
