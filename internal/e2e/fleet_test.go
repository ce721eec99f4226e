package e2e

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/internal/controller"
	"github.com/shoalstore/shoal/internal/httpx/httpxtest"
	"github.com/shoalstore/shoal/internal/node"
)

// fleet is a cluster of processes: a controller and nodes below one directory,
// with a stream and a deep store beside them. With go test -artifacts the
// directory is kept.
type fleet struct {
	observer
	dir        string
	env        []string // of each process, beside the test's own
	controller *process
	nodes      []*process
	// objectFile is the file in which an S3 server keeps an object of its bucket.
	objectFile func(key string) string
}

// fleetOptions vary a fleet. The zero value is three nodes that talk to their
// controller.
type fleetOptions struct {
	nodes int
	// gated puts a gate in front of the controller, see gate_test.go.
	gated bool
	// env is in the environment of each process, beside the test's own.
	env []string
	// node and controller change a configuration before the first start.
	node       func(i int, cfg *node.Config)
	controller func(cfg *controller.Config)
}

// startFleet starts the processes and waits until the nodes are UP.
func startFleet(t *testing.T, o fleetOptions) (*fleet, *gate) {
	t.Helper()
	if o.nodes == 0 {
		o.nodes = 3
	}
	dir, err := os.MkdirTemp(t.ArtifactDir(), "fleet-")
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{dir: dir, env: o.env}
	for _, dir := range []string{f.streamRoot(), f.deepStore()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	addr := freeAddr(t)
	base := "http://" + addr
	cfg := controller.Config{
		Data: filepath.Join(f.dir, "controller"), Listen: addr, ID: "controller",
		StreamRoot: f.streamRoot(), DeepStoreRoots: []string{f.deepStore()},
	}
	var g *gate
	if o.gated {
		g = openGate(t, base, nil)
		base, cfg.Advertise = g.URL, g.URL
	}
	if o.controller != nil {
		o.controller(&cfg)
	}
	f.observer = newObserver(t, base)
	f.controller = f.process(t, "controller", role{Controller: &cfg})
	f.controller.start()
	for i := range o.nodes {
		f.nodes = append(f.nodes, f.newNode(t, i, base, o.node))
	}
	f.startNodes()
	f.awaitNodes(o.nodes)
	return f, g
}

func (f *fleet) newNode(t *testing.T, i int, controller string, change func(int, *node.Config)) *process {
	id := fmt.Sprintf("node-%d", i+1)
	cfg := node.Config{
		Controllers: []string{controller}, Data: filepath.Join(f.dir, id), ID: id, Listen: "127.0.0.1:0",
		StreamRoot: f.streamRoot(), DeepStoreRoots: []string{f.deepStore()}, ReserveBytes: 1 << 20,
	}
	if change != nil {
		change(i, &cfg)
	}
	return f.process(t, id, role{Node: &cfg})
}

// process makes a process of the fleet; it is not started.
func (f *fleet) process(t *testing.T, name string, r role) *process {
	p := &process{t: t, name: name, role: r, log: filepath.Join(f.dir, name+".log"), env: f.env}
	t.Cleanup(p.finish)
	return p
}

func (f *fleet) streamRoot() string { return filepath.Join(f.dir, "stream") }
func (f *fleet) deepStore() string  { return filepath.Join(f.dir, "deepstore") }

func (f *fleet) startNodes() {
	f.t.Helper()
	for _, n := range f.nodes {
		n.start()
	}
}

func (f *fleet) stopNodes() {
	f.t.Helper()
	for _, n := range f.nodes {
		n.stop()
	}
}

// urls are where the nodes serve.
func (f *fleet) urls() (urls []string) {
	for _, n := range f.nodes {
		urls = append(urls, n.url)
	}
	return urls
}

// data is where a process keeps what it has.
func (p *process) data() string {
	if p.role.Node != nil {
		return p.role.Node.Data
	}
	return p.role.Controller.Data
}

// tableConfig is a table over a stream of producer's rows. Changes are set over
// the defaults, which are small and quick.
func (f *fleet) tableConfig(name string, changes map[string]any) map[string]any {
	cfg := map[string]any{
		"name": name, "stream": map[string]any{"type": "files", "path": name}, "replication": len(f.nodes),
		"format":     jsonFormat(usualColumns),
		"segment":    map[string]any{"maxRows": 100},
		"completion": map[string]any{"holdTime": "300ms"},
	}
	for k, v := range changes {
		cfg[k] = v
	}
	return cfg
}

// storeDir is the directory that has the objects of a deep store, whoever serves them.
func (f *fleet) storeDir(uri string) string {
	f.t.Helper()
	u, err := url.Parse(uri)
	if err != nil {
		f.t.Fatal(err)
	}
	if u.Scheme == "s3" {
		return f.objectFile(strings.TrimPrefix(u.Path, "/"))
	}
	return u.Path
}

// withDeepStore backs a table up.
func (f *fleet) withDeepStore() map[string]any {
	uri, err := deepstore.FileURI(f.deepStore())
	if err != nil {
		f.t.Fatal(err)
	}
	return map[string]any{"uri": uri}
}

func (f *fleet) createTable(name string, changes map[string]any) {
	f.t.Helper()
	f.post("/tables", f.tableConfig(name, changes), nil)
}

// freeAddr finds an address that stays the test's over restarts of who listens there.
func freeAddr(t *testing.T) string {
	t.Helper()
	port, err := httpxtest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { httpxtest.GiveBack(port) })
	return httpxtest.Loopback(port)
}
