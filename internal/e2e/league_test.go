package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/controller"
	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/internal/node"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/zkmeta"
	"github.com/shoalstore/shoal/zkmeta/zktest"
)

// leagueTimeout is the session timeout of a league's controllers.
const leagueTimeout = 2 * time.Second

// league is a fleet with several controllers, whose metadata is in ZooKeeper. Every
// connection goes through a proxy of the test's, so that each can be cut:
//
//	controller i → ZooKeeper server j    links[i][j], or wires[i][j]
//	server i     ↔ the other servers     zk.Links(i)
//	anybody      → controller i          fronts[i]
//	node i       → controller j          views[i][j], then gates[i][j]
//	anybody      → node i                doors[i]
type league struct {
	*fleet
	controllers []*process
	zk          *zktest.Ensemble
	links       [][]*zktest.Proxy
	wires       [][]*zktest.WireProxy // of a league that is wired
	fronts      []*zktest.Proxy
	views       [][]*zktest.Proxy
	gates       [][]*gate
	doors       []*zktest.Proxy
	plain       *httpx.Client // of short patience
}

type leagueOptions struct {
	controllers, nodes, servers int
	// wired puts proxies before ZooKeeper that know its frames, instead of such that
	// fail as networks do.
	wired bool
	// before, if set, is called when the cluster is founded and nothing has started.
	before func(l *league, cluster uuid.UUID)
}

// startLeague founds a cluster, starts the processes and waits until the nodes are UP.
func startLeague(t *testing.T, o leagueOptions) *league {
	t.Helper()
	zktest.Required(t)
	dir, err := os.MkdirTemp(t.ArtifactDir(), "league-")
	if err != nil {
		t.Fatal(err)
	}
	l := &league{fleet: &fleet{dir: dir}, zk: zktest.StartEnsemble(t, o.servers, zktest.WithPeerLinks()), plain: &httpx.Client{Timeout: time.Second}}
	t.Cleanup(l.plain.Close)
	for _, dir := range []string{l.streamRoot(), l.deepStore()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cluster := l.found(t)
	for i := range o.controllers {
		l.addController(t, i, o)
	}
	var urls []string
	for i := range o.controllers {
		urls = append(urls, l.front(i))
	}
	l.observer = newObserver(t, urls...)
	for i := range o.nodes {
		l.addNode(t, i)
	}
	if o.before != nil {
		o.before(l, cluster)
	}
	for _, c := range l.controllers {
		c.start()
	}
	l.startNodes()
	if o.nodes > 0 {
		l.awaitNodes(o.nodes)
	}
	return l
}

const leagueRoot = "/shoal"

func (l *league) dial(t *testing.T) *zkmeta.Conn {
	t.Helper()
	conn, err := zkmeta.Connect(zkmeta.Access{}.Conn(zkmeta.Address{Servers: l.zk.Addrs(), Root: leagueRoot}, zerolog.Nop(), nil))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func (l *league) found(t *testing.T) (cluster uuid.UUID) {
	t.Helper()
	conn := l.dial(t)
	defer conn.Close()
	cluster = uuid.New()
	if err := zkmeta.Found(t.Context(), conn, cluster); err != nil {
		t.Fatal(err)
	}
	return cluster
}

func (l *league) front(i int) string { return "http://" + l.fronts[i].Addr() }

func (l *league) addController(t *testing.T, i int, o leagueOptions) {
	t.Helper()
	listen := freeAddr(t)
	l.fronts = append(l.fronts, zktest.NewProxy(t, listen))
	var servers []string
	var links []*zktest.Proxy
	var wires []*zktest.WireProxy
	for _, server := range l.zk.Addrs() {
		if o.wired {
			wires = append(wires, zktest.NewWireProxy(t, server))
			servers = append(servers, wires[len(wires)-1].Addr())
			continue
		}
		links = append(links, zktest.NewProxy(t, server))
		servers = append(servers, links[len(links)-1].Addr())
	}
	l.links, l.wires = append(l.links, links), append(l.wires, wires)
	id := fmt.Sprintf("controller-%d", i+1)
	l.controllers = append(l.controllers, l.process(t, id, role{Controller: &controller.Config{
		Data: filepath.Join(l.dir, id), Listen: listen, Advertise: l.front(i), ID: id,
		Metadata:   zkmeta.Address{Servers: servers, Root: leagueRoot}.String(),
		ZooKeeper:  zkmeta.Access{SessionTimeout: leagueTimeout},
		StreamRoot: l.streamRoot(), DeepStoreRoots: []string{l.deepStore()},
	}}))
}

// addNode adds a node that sees the controllers through proxies of its own.
func (l *league) addNode(t *testing.T, i int) {
	t.Helper()
	var views []*zktest.Proxy
	var gates []*gate
	var urls []string
	way := &nodeWay{}
	for j := range l.controllers {
		way.fronts = append(way.fronts, l.front(j))
		g := openGate(t, "http://"+l.controllers[j].role.Controller.Listen, way.redirect)
		gates = append(gates, g)
		views = append(views, zktest.NewProxy(t, strings.TrimPrefix(g.URL, "http://")))
		urls = append(urls, "http://"+views[j].Addr())
	}
	way.views.Store(&urls)
	l.views, l.gates = append(l.views, views), append(l.gates, gates)
	listen := freeAddr(t)
	l.doors = append(l.doors, zktest.NewProxy(t, listen))
	l.nodes = append(l.nodes, l.newNode(t, i, urls[0], func(i int, cfg *node.Config) {
		cfg.Controllers, cfg.Listen, cfg.Advertise = urls, listen, "http://"+l.doors[i].Addr()
	}))
}

// nodeWay is how a node reaches the controllers: views are its URLs of them, in the order
// of fronts, which are their own. They are not there while the node is being added; who
// asks then is no node of this league, but somebody who once had a server at that port.
type nodeWay struct {
	fronts []string
	views  atomic.Pointer[[]string]
}

// redirect rewrites an answer to the node: wherever it names a controller, it names the
// node's own way there.
func (w *nodeWay) redirect(res *http.Response) error {
	views := w.views.Load()
	if views == nil {
		return errors.New("a stranger asks")
	}
	for j, front := range w.fronts {
		if res.Header.Get(api.HeaderLeader) == front {
			res.Header.Set(api.HeaderLeader, (*views)[j])
		}
	}
	if !strings.Contains(res.Header.Get("Content-Type"), "json") {
		return nil // the log is what it is
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	res.Body.Close()
	for j, front := range w.fronts {
		body = bytes.ReplaceAll(body, []byte(front), []byte((*views)[j]))
	}
	res.Body = io.NopCloser(bytes.NewReader(body))
	res.ContentLength = int64(len(body))
	res.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return nil
}

// direct asks a controller or a node itself, whatever is cut.
func (l *league) direct(p *process, path string, out any) error {
	listen := ""
	if p.role.Controller != nil {
		listen = p.role.Controller.Listen
	} else {
		listen = p.role.Node.Listen
	}
	return l.plain.GetJSON(context.Background(), "http://"+listen+path, out)
}

// leads returns the epoch in which a controller says that it leads, or 0.
func (l *league) leads(p *process) int64 {
	var v api.LeaderView
	if !p.alive() || l.direct(p, "/leader", &v) != nil {
		return 0
	}
	return v.Epoch
}

// leader waits for one after an epoch, and returns it with its own.
func (l *league) leader(after int64) (index int, epoch int64) {
	l.t.Helper()
	l.await(fmt.Sprintf("a leader after epoch %d", after), func() (bool, string) {
		for i, c := range l.controllers {
			if e := l.leads(c); e > after {
				index, epoch = i, e
				return true, ""
			}
		}
		return false, "nobody leads"
	})
	return index, epoch
}

// checkLeague stops everything and goes through the history: each controller's log and
// each node's cache tells it, and the znodes are what it comes to.
func (l *league) checkLeague() {
	l.t.Helper()
	l.stopNodes()
	for _, c := range l.controllers {
		c.stop()
	}
	logs := make(map[string][]metalog.Entry)
	var all []metalog.Entry
	for _, c := range l.controllers {
		log := readLog(l.t, c.data(), "log")
		logs[c.name] = log
		if len(log) > len(all) && log[0].Batch.Offset == 0 {
			all = log
		}
	}
	for _, c := range l.controllers { // what was written after that one had stopped
		log := logs[c.name]
		if len(log) == 0 {
			continue
		}
		if behind := int64(len(all)) - log[0].Batch.Offset; behind >= 0 && behind < int64(len(log)) {
			all = append(all, log[behind:]...)
		}
	}
	for _, n := range l.nodes {
		logs[n.name] = readLog(l.t, n.data(), "cache")
	}
	im := walkHistory(l.t, all)
	for name, log := range logs {
		compareLogs(l.t, name, log, all)
	}
	checkCommittedOnce(l.t, all)
	conn := l.dial(l.t)
	defer conn.Close()
	rebuilt, err := zkmeta.Rebuild(l.t.Context(), conn)
	if err != nil {
		l.t.Fatal(err)
	}
	if rebuilt.Next() < im.Next() {
		l.t.Errorf("ZooKeeper has %d batches, a controller has %d: it was ahead of what was acknowledged", rebuilt.Next(), im.Next())
	}
	if rebuilt.Next() == im.Next() {
		compareImages(l.t, rebuilt, im)
	}
	l.t.Logf("history: %d batches in %d epochs", len(all), im.Epoch())
}

// compareImages compares record by record, as people would read them.
func compareImages(t *testing.T, got, want *meta.Image) {
	t.Helper()
	if got.Len() != want.Len() {
		t.Errorf("the znodes are %d records, the log comes to %d", got.Len(), want.Len())
	}
	for r := range want.Records() {
		a, _ := json.Marshal(r)
		b, _ := json.Marshal(got.Lookup(r.Key()))
		if !bytes.Equal(a, b) {
			t.Errorf("the znode of %s says %s, the log %s", r.Key(), b, a)
		}
	}
}

// checkCommittedOnce checks that no batch commits what one before it has committed.
func checkCommittedOnce(t *testing.T, all []metalog.Entry) {
	t.Helper()
	done := map[meta.Key]int64{}
	im := meta.Empty()
	for _, e := range all {
		for _, r := range e.Batch.Upserts {
			s, ok := r.(*meta.Segment)
			if !ok || s.Status != meta.SegmentDone {
				continue
			}
			before, _ := im.Lookup(r.Key()).(*meta.Segment)
			if before != nil && before.Status == meta.SegmentDone {
				if before.End != s.End || before.Digest != s.Digest {
					t.Errorf("batch %d commits %s again, as something else", e.Batch.Offset, s.Name)
				}
				continue
			}
			if first, twice := done[r.Key()]; twice {
				t.Errorf("%s is committed by batch %d and by batch %d", s.Name, first, e.Batch.Offset)
			}
			done[r.Key()] = e.Batch.Offset
		}
		next, err := im.Apply(e.Batch)
		if err != nil {
			t.Fatal(err)
		}
		im = next
	}
}
