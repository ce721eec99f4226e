package zktest

import (
	"testing"
	"time"
)

// Option changes how Start and StartEnsemble run servers.
type Option func(*Config)

// WithConfig adds lines to zoo.cfg, as "maxClientCnxns=5". The last line of a key
// counts, so that they overrule the harness's own.
func WithConfig(lines ...string) Option {
	return func(c *Config) { c.Lines = append(c.Lines, lines...) }
}

// WithJava adds arguments of java, as "-Djute.maxbuffer=4096" or "-Xmx1g" (256
// MiB otherwise).
func WithJava(args ...string) Option {
	return func(c *Config) { c.Java = append(c.Java, args...) }
}

// WithTickTime sets ZooKeeper's tick, 500 ms otherwise. Session time-outs are
// from 2 to 20 ticks.
func WithTickTime(d time.Duration) Option {
	return func(c *Config) { c.TickTime = d }
}

// Server is one server of a test. What fails on the way fails the test, so its
// methods belong to the test's goroutine.
type Server struct {
	t testing.TB
	p *Process
}

// Start runs one standalone server until the test ends, and returns when it
// serves. Where ZooKeeper is not installed it skips the test; see Required.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	return StartEnsemble(t, 1, opts...).Servers[0]
}

// Process is the server without its test.
func (s *Server) Process() *Process { return s.p }

// Addr is where clients connect, as host:port.
func (s *Server) Addr() string { return s.p.Addr() }

// ID is the number of the server in its ensemble, 1 up.
func (s *Server) ID() int { return s.p.ID() }

// PID is the process id, 0 while the server is down.
func (s *Server) PID() int { return s.p.PID() }

// DataDir holds the server's snapshots and transaction logs.
func (s *Server) DataDir() string { return s.p.DataDir() }

// Log is the file with everything that the server printed.
func (s *Server) Log() string { return s.p.Log() }

// Kill ends the server with SIGKILL and waits until it is gone.
func (s *Server) Kill() { s.t.Helper(); s.check(s.p.Kill()) }

// Stop ends the server with SIGTERM and waits until it is gone.
func (s *Server) Stop() { s.t.Helper(); s.check(s.p.Stop()) }

// Restart starts a server that is down, with the same files and ports, and waits
// until it serves: of an ensemble, a majority must be up.
func (s *Server) Restart() { s.t.Helper(); s.check(s.p.Restart(s.t.Context())) }

// Launch is Restart without the wait.
func (s *Server) Launch() { s.t.Helper(); s.check(s.p.Launch()) }

// Pause freezes the server: connections stay open, nothing answers.
func (s *Server) Pause() { s.t.Helper(); s.check(s.p.Pause()) }

// Resume ends a pause.
func (s *Server) Resume() { s.t.Helper(); s.check(s.p.Resume()) }

// Ask sends a four-letter word and returns the answer.
func (s *Server) Ask(word string) string {
	s.t.Helper()
	answer, err := s.p.Ask(s.t.Context(), word)
	s.check(err)
	return answer
}

func (s *Server) check(err error) {
	if err != nil {
		s.t.Helper()
		s.t.Fatal(err)
	}
}
