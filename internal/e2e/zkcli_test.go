package e2e

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/shoalstore/shoal/internal/api"
)

// TestPersonReadsZooKeeper: with ZooKeeper's own command line a person finds a segment's
// record, and in it where the copies are.
func TestPersonReadsZooKeeper(t *testing.T) {
	t.Parallel()
	l := startLeague(t, leagueOptions{controllers: 1, nodes: 2, servers: 1})
	p := newProducer(t, l.streamRoot(), "events", 1)
	l.createTable("events", nil)
	p.add(110)
	l.awaitCommitted("events", 100)
	l.awaitReplicated("events")

	// From the table's name to the segment's znode, as docs/format/zookeeper.md says.
	var table struct{ ID string }
	l.readZnode("tables/events", &table)
	partition := path.Join("segments", table.ID, "0", "0")
	if listed := l.zkCli("ls", path.Join(leagueRoot, partition)); !strings.Contains(listed, "[0, 1]") {
		t.Errorf("the segments of the partition: %q, want 0 and 1", listed)
	}
	var s struct {
		Name, Status string
		Digest       string
		Locations    []struct{ Node, StoreID string }
	}
	want := l.committedSegments("events")[0]
	l.readZnode(path.Join(partition, strconv.FormatInt(want.Seq, 10)), &s)
	var on []string
	for _, at := range s.Locations {
		if at.StoreID == "" {
			t.Errorf("the location on %s names no store", at.Node)
		}
		on = append(on, at.Node)
	}
	slices.Sort(on)
	if s.Name != want.Name || s.Status != string(want.Status) || s.Digest != want.Digest.String() || !slices.Equal(on, []string{"node-1", "node-2"}) {
		t.Errorf("a person reads %+v, the API says %s", s, asJSON(want, nil))
	}
	l.await("one epoch for a person and by the API", func() (bool, string) { // the leader may change between
		var leader api.LeaderView
		l.get("/leader", &leader)
		var head struct{ Epoch int64 }
		l.readZnode("log/head", &head)
		return head.Epoch == leader.Epoch, fmt.Sprintf("a person reads epoch %d, the API says %d", head.Epoch, leader.Epoch)
	})
}

// readZnode reads the JSON of a znode with ZooKeeper's own command line.
func (l *league) readZnode(rel string, out any) {
	l.t.Helper()
	said := l.zkCli("get", path.Join(leagueRoot, rel))
	if err := json.Unmarshal([]byte(said), out); err != nil {
		l.t.Fatalf("%s: %v in %q", rel, err, said)
	}
}

// zkCli runs ZooKeeper's own command line and returns the last that it printed.
func (l *league) zkCli(args ...string) string {
	l.t.Helper()
	var jars []string
	for _, jar := range []string{"zookeeper.jar", "slf4j-simple.jar"} {
		jars = append(jars, filepath.Join("/usr/share/java", jar))
	}
	args = append([]string{
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", strings.Join(jars, ":"),
		"org.apache.zookeeper.ZooKeeperMain", "-server", l.zk.Addrs()[0],
	}, args...)
	cmd := exec.CommandContext(l.t.Context(), "java", args...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		l.t.Fatalf("zkCli %q: %v\n%s%s", args, err, out, errs.String())
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	for _, line := range slices.Backward(lines) {
		// A thread of its own prints that it is connected, before the answer or behind it.
		if said := strings.TrimSpace(line); said != "" && said != "WATCHER::" && !strings.HasPrefix(said, "WatchedEvent ") {
			return said
		}
	}
	return ""
}
