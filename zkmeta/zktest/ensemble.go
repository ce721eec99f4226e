package zktest

import "testing"

// Ensemble is several servers of a test that agree on one state.
type Ensemble struct {
	Servers []*Server

	t testing.TB
	g *Group
}

// StartEnsemble runs n servers until the test ends, and returns when all of them
// serve. Where ZooKeeper is not installed it skips the test; see Required. A
// server that dies without being told to fails the test.
func StartEnsemble(t testing.TB, n int, opts ...Option) *Ensemble {
	t.Helper()
	Required(t)
	cfg := Config{Dir: t.TempDir()}
	for _, opt := range opts {
		opt(&cfg)
	}
	if cfg.linked {
		cfg.mesh = newMesh(t, n)
	}
	g, err := OpenGroup(t.Context(), cfg, n)
	if err != nil {
		t.Fatal(err)
	}
	e := &Ensemble{t: t, g: g}
	for _, p := range g.Processes {
		e.Servers = append(e.Servers, &Server{t: t, p: p})
	}
	t.Cleanup(e.close)
	return e
}

// close ends the servers. The log goes with the test's directory, so a test that
// failed prints what it ends with.
func (e *Ensemble) close() {
	if err := e.g.Close(); err != nil {
		e.t.Error(err)
	}
	if !e.t.Failed() {
		return
	}
	for _, p := range e.g.Processes {
		e.t.Logf("log of ZooKeeper server %d ends:\n%s", p.ID(), p.Tail(30))
	}
}

// Addrs returns where clients connect, as host:port, in the order of Servers.
func (e *Ensemble) Addrs() []string { return e.g.Addrs() }

// WaitQuorum waits until one server leads and a majority serves.
func (e *Ensemble) WaitQuorum() { e.t.Helper(); e.Leader() }

// Leader waits for a quorum and returns the server that leads it.
func (e *Ensemble) Leader() *Server {
	e.t.Helper()
	leader, err := e.g.WaitQuorum(e.t.Context())
	if err != nil {
		e.t.Fatal(err)
	}
	return e.Servers[leader.ID()-1]
}

// Followers waits for a quorum and returns every server but the leader, those
// that are down included.
func (e *Ensemble) Followers() []*Server {
	e.t.Helper()
	leader := e.Leader()
	var others []*Server
	for _, s := range e.Servers {
		if s != leader {
			others = append(others, s)
		}
	}
	return others
}
