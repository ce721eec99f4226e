package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestDirectoriesThatAreNotTheirs: a process refuses a directory that is in
// use, of another cluster or node, or from the future, says which and why, and
// touches nothing in it.
func TestDirectoriesThatAreNotTheirs(t *testing.T) {
	t.Parallel()
	f, _ := startFleet(t, fleetOptions{nodes: 2})
	other, _ := startFleet(t, fleetOptions{nodes: 1})
	p := newProducer(t, f.streamRoot(), "events", 1)
	f.createTable("events", nil)
	p.add(150)
	f.awaitCommitted("events", 100)
	f.awaitReplicated("events")
	node, ctl := f.nodes[0], f.controller

	t.Log("a second process on a directory that is in use")
	f.process(t, "second-node", node.role).refuses(node.data(), "LOCK", "locked by another process")
	second := *ctl.role.Controller
	second.Listen = freeAddr(t)
	f.process(t, "second-controller", role{Controller: &second}).refuses(ctl.data(), "LOCK", "locked by another process")

	t.Log("a node with the directory of another cluster")
	ours, theirs := f.clusterID(), other.clusterID()
	node.stop()
	before := snapshot(t, node.data())
	moved := *node.role.Node
	moved.Controllers = other.nodes[0].role.Node.Controllers
	f.process(t, "moved-node", role{Node: &moved}).refuses(ours, theirs)
	unchanged(t, before, node.data())

	t.Log("a node with the directory of another node")
	renamed := *node.role.Node
	renamed.ID = "somebody"
	f.process(t, "renamed-node", role{Node: &renamed}).refuses(node.data(), node.name, "somebody")
	unchanged(t, before, node.data())

	t.Log("a node with a directory of a newer format")
	identity := filepath.Join(node.data(), "identity.json")
	old := readFile(t, identity)
	var fields map[string]any
	if err := json.Unmarshal(old, &fields); err != nil {
		t.Fatal(err)
	}
	fields["formatVersion"] = 99
	newer, _ := json.Marshal(fields)
	replaceFile(t, identity, newer)
	f.process(t, "old-node", node.role).refuses(node.data(), "format version 99")
	replaceFile(t, identity, old)
	unchanged(t, before, node.data())

	t.Log("a node that lost its store's id, but not its segments")
	storeID := filepath.Join(node.data(), "store.id")
	id := readFile(t, storeID)
	if err := os.Remove(storeID); err != nil {
		t.Fatal(err)
	}
	f.process(t, "nameless-node", node.role).refuses(node.data(), "store.id")
	replaceFile(t, storeID, id)
	unchanged(t, before, node.data())
	node.start()
	f.awaitNodes(2)

	t.Log("a controller with a log of a newer format")
	ctl.stop()
	log := newestLog(t, ctl.data())
	content := readFile(t, log)
	future := slices.Clone(content)
	future[8] = 99 // the version, behind the magic
	replaceFile(t, log, future)
	f.process(t, "old-controller", ctl.role).refuses(filepath.Base(log), "format version 99")
	replaceFile(t, log, content)
	ctl.start()

	t.Log("a controller whose stream root is not there")
	rootless := *ctl.role.Controller
	rootless.Data, rootless.Listen, rootless.StreamRoot = filepath.Join(f.dir, "rootless"), freeAddr(t), filepath.Join(f.dir, "nowhere")
	alone := f.process(t, "rootless-controller", role{Controller: &rootless})
	alone.start()
	err := request(t, "POST", alone.url+"/tables", `{"name": "x", "stream": {"path": "x"}}`)
	if err == nil || !namesAll(err.Error(), "INVALID_CONFIG", "stream.path", rootless.StreamRoot) {
		t.Errorf("a table without a stream root: %v; want it to name %s", err, rootless.StreamRoot)
	}
	alone.stop()

	t.Log("a process whose address is taken")
	taken := *node.role.Node
	taken.Data, taken.ID, taken.Listen = filepath.Join(f.dir, "taken"), "taken", strings.TrimPrefix(ctl.url, "http://")
	f.process(t, "taken-node", role{Node: &taken}).refuses(taken.Listen, "address already in use")
	f.prove("events", p)
}

func (f *fleet) clusterID() string {
	f.t.Helper()
	var v struct{ ClusterID string }
	f.await("the cluster's id", func() (bool, string) {
		err := f.fromController("/leader", &v)
		return err == nil, asJSON(v, err)
	})
	return v.ClusterID
}

// newestLog is the last file of a controller's log.
func newestLog(t *testing.T, data string) string {
	t.Helper()
	files := filesBelow(t, filepath.Join(data, "log"))
	slices.Sort(files)
	return files[len(files)-1]
}

// snapshot is the content of a directory, by file.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, file := range filesBelow(t, dir) {
		out[file] = string(readFile(t, file))
	}
	return out
}

func unchanged(t *testing.T, before map[string]string, dir string) {
	t.Helper()
	after := snapshot(t, dir)
	for file, content := range before {
		if after[file] != content {
			t.Errorf("%s is not as it was", file)
		}
		delete(after, file)
	}
	for file := range after {
		t.Errorf("%s was made", file)
	}
}

// TestSecondNodeOfAnID: an id that is UP belongs to its store. Another node with
// the id waits, and says for what, until the first one is gone.
func TestSecondNodeOfAnID(t *testing.T) {
	t.Parallel()
	f, _ := startFleet(t, fleetOptions{nodes: 2})
	cfg := *f.nodes[0].role.Node
	cfg.Data = filepath.Join(f.dir, "usurper")
	usurper := f.process(t, "usurper", role{Node: &cfg})
	usurper.start()
	f.await("the refusal in its log", func() (bool, string) {
		log := string(readFile(t, usurper.log))
		return strings.Contains(log, "NODE_ID_IN_USE"), log
	})
	first := f.nodes[0]
	views, err := f.nodeViews()
	if err != nil || views[0].URL != first.url {
		t.Errorf("%s is now at %s, want %s: %v", first.name, views[0].URL, first.url, err)
	}
	began := time.Now()
	first.kill()
	f.await("the second node to be taken in", func() (bool, string) {
		views, err := f.nodeViews()
		return err == nil && views[0].URL == usurper.url, asJSON(views, err)
	})
	t.Logf("taken in %s after the first was killed", time.Since(began).Round(time.Second))
}
