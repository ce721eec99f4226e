package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shoalstore/shoal/internal/cli"
	"github.com/shoalstore/shoal/internal/restore"
	"github.com/shoalstore/shoal/metalog"
)

// shoal runs a command line of the operator and returns what it prints, and its status.
func shoal(args ...string) (out, errs string, status int) {
	var o, e bytes.Buffer
	status = cli.Main(context.Background(), args, cli.IO{In: strings.NewReader(""), Out: &o, Err: &e})
	return o.String(), e.String(), status
}

func mustShoal(t *testing.T, args ...string) string {
	t.Helper()
	out, errs, status := shoal(args...)
	if status != cli.ExitOK {
		t.Fatalf("%q: status %d\n%s%s", args, status, out, errs)
	}
	return out
}

// TestControllerThatLostItsDirectory: it is restored from the nodes, one of them behind, and
// the cluster goes on; no row is lost, because the nodes had fetched what was committed.
func TestControllerThatLostItsDirectory(t *testing.T) {
	t.Parallel()
	f, _ := startFleet(t, fleetOptions{nodes: 3})
	p := newProducer(t, f.streamRoot(), "events", 2)
	f.createTable("events", map[string]any{"deepStore": f.withDeepStore()})
	p.add(300)
	f.awaitCommitted("events", 200)
	controller := "http://" + f.controller.role.Controller.Listen
	var id metalog.SnapshotID
	if err := json.Unmarshal([]byte(mustShoal(t, "metadata", "snapshot", "--controller", controller, "-o", "json")), &id); err != nil {
		t.Fatal(err)
	}
	for _, n := range f.nodes[:2] {
		f.awaitSnapshot(n, id)
	}
	f.nodes[2].kill() // and knows nothing of what follows
	p.add(300)
	f.awaitCommitted("events", 500)
	urls := f.nodes[0].url + "," + f.nodes[1].url

	// Nobody restores what is not lost.
	lost := f.controller.data()
	elsewhere := filepath.Join(f.dir, "elsewhere")
	if out, errs, status := shoal("metadata", "restore", "--from-node", urls, "--data", elsewhere); status != cli.ExitFailed || !strings.Contains(errs, controller+" leads") {
		t.Errorf("beside a controller that leads: status %d\n%s%s", status, out, errs)
	}
	dump := mustShoal(t, "metadata", "dump", "--controller", controller)
	for _, from := range []string{"--from-dir=" + lost, "--url=" + controller, "--from-dir=" + f.nodes[0].data(), "--url=" + f.nodes[1].url} {
		out := mustShoal(t, "metadata", "verify", from)
		if !strings.Contains(out, "nothing is damaged") {
			t.Errorf("%s:\n%s", from, out)
		}
	}
	if !strings.Contains(dump, `"kind":"segment"`) {
		t.Errorf("the dump has no segment:\n%s", dump)
	}

	all := f.endController((*process).kill, f.nodes[:2])
	before := mustShoal(t, "metadata", "dump", "--from-dir", lost)
	removeAll(t, lost)
	f.nodes[2].start()
	urls += "," + f.nodes[2].url
	var r restore.Restored
	if err := json.Unmarshal([]byte(mustShoal(t, "metadata", "restore", "--from-node", urls, "--data", lost, "-o", "json")), &r); err != nil {
		t.Fatal(err)
	}
	if r.Offset != int64(len(all))-1 || r.Snapshot == nil || len(r.Asked) != 3 || r.Asked[2].Offset >= r.Offset {
		t.Errorf("%+v; the log had %d batches", r, len(all))
	}
	if after := mustShoal(t, "metadata", "dump", "--from-dir", lost); after != before {
		t.Errorf("restored:\n%s\nlost:\n%s", after, before)
	}

	f.controller.start()
	p.add(300)
	f.awaitCommitted("events", 800)
	var v struct{ Epoch int64 }
	f.get("/leader", &v)
	if v.Epoch != r.NextEpoch {
		t.Errorf("epoch %d was opened, %d was said", v.Epoch, r.NextEpoch)
	}
	f.prove("events", p)
	mustShoal(t, "metadata", "verify", "--from-dir", lost)
	for _, n := range f.nodes {
		mustShoal(t, "metadata", "verify", "--from-dir", n.data())
	}
}
