package e2e

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/controller"
	"github.com/shoalstore/shoal/internal/node"
)

// smallDisk mounts a file system of that many bytes at dir. It takes root, or
// at least leave to mount; without, the test is skipped, and says so: what each
// package does on a full disk is tested there on a disk in memory.
func smallDisk(t *testing.T, dir string, size int) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Skipf("no small file system to fill: mount tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
}

func growDisk(t *testing.T, dir string, size int) {
	t.Helper()
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT, fmt.Sprintf("size=%d", size)); err != nil {
		t.Fatal(err)
	}
}

// fill takes what is left of a file system.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	name := filepath.Join(dir, "ballast")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 64<<10); err == nil || len(block) > 1; {
		if err != nil {
			block = block[:len(block)/2]
		}
		_, err = f.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(name); err != nil {
			t.Error(err)
		}
	}
}

// TestFullDiskOfANode: a node whose disk fills up says so, and the others go on
// without it. Once there is room again it gets what it lacks.
func TestFullDiskOfANode(t *testing.T) {
	t.Parallel()
	const small, large = 3 << 20, 64 << 20
	f, _ := startFleet(t, fleetOptions{node: func(i int, cfg *node.Config) {
		if i == 2 {
			smallDisk(t, cfg.Data, small)
		}
	}})
	full := f.nodes[2]
	p := newProducer(t, f.streamRoot(), "events", 1)
	f.createTable("events", nil)
	for p.next[0] < 1000 {
		p.raw(0, incompressible(p.next[0], 8<<10))
	}
	f.awaitCommitted("events", 1000)
	f.await("the full disk, and the file that it kept from being written", func() (bool, string) {
		return full.alive() && saysDiskFull(f, full), full.tail(3)
	})

	growDisk(t, full.data(), large)
	f.awaitReplicated("events")
	p.add(50)
	f.prove("events", p)
	f.checkHistory()
}

// saysDiskFull looks for the error where an operator does: at the node's
// partitions, and in the lives of its segments.
func saysDiskFull(f *fleet, full *process) bool {
	var views []api.ConsumingView
	if f.fromNode(full.url)("/partitions", &views) != nil {
		return false
	}
	said := asJSON(views, nil)
	for _, s := range f.committedSegments("events") {
		var events []api.SegmentEvent
		if f.fromNode(full.url)("/segments/events/"+s.Name+"/events", &events) == nil {
			said += asJSON(events, nil)
		}
	}
	return strings.Contains(said, full.data()) && (strings.Contains(said, "no space left on device") || strings.Contains(said, "no space on"))
}

// incompressible is a JSON row of about size random bytes.
func incompressible(id int64, size int) []byte {
	b := make([]byte, size*3/4)
	_, _ = rand.Read(b)
	return fmt.Appendf(nil, `{"id":%d,"text":%q}`, id, base64.StdEncoding.EncodeToString(b))
}

// TestFullDiskOfTheController: nothing is committed, and nothing is lost, while
// the log cannot be written; the nodes wait, and go on when it can.
func TestFullDiskOfTheController(t *testing.T) {
	t.Parallel()
	f, _ := startFleet(t, fleetOptions{controller: func(cfg *controller.Config) { smallDisk(t, cfg.Data, 1<<20) }})
	p := newProducer(t, f.streamRoot(), "events", 2)
	f.createTable("events", nil)
	p.add(150)
	f.awaitCommitted("events", 200)
	before := f.committedSegments("events")
	free := fill(t, f.controller.data())
	p.add(150)
	f.await("the full disk, and the file that it kept from being written", func() (bool, string) {
		log := string(readFile(t, f.controller.log))
		return f.controller.alive() && namesAll(log, "no space left on device", ".log"), f.controller.tail(20)
	})
	free()
	f.prove("events", p)
	sameSegments(t, before, f.committedSegments("events"))
	f.checkHistory()
}
