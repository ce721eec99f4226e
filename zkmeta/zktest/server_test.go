package zktest

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

const (
	sessionMax = 10 * time.Second
	sessionMin = 5 * time.Second // of those whose end is waited for: a busy machine must not end them before
)

// TestKillAndRestart: what was acknowledged is there after a SIGKILL.
func TestKillAndRestart(t *testing.T) {
	t.Parallel()
	s := Start(t)
	create(t, connect(t, sessionMax, s.Addr()), "/kept", "before")
	addr, pid := s.Addr(), s.PID()
	s.Kill()
	if s.PID() != 0 {
		t.Fatalf("a killed server has pid %d", s.PID())
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Fatalf("the killed process is still there: %v", err)
	}
	s.Restart()
	if s.Addr() != addr || s.PID() == pid {
		t.Fatalf("restarted at %s as %d; was at %s as %d", s.Addr(), s.PID(), addr, pid)
	}
	wantData(t, connect(t, sessionMax, s.Addr()), "/kept", "before")
}

func TestStop(t *testing.T) {
	t.Parallel()
	s := Start(t)
	s.Stop()
	if _, err := net.Dial("tcp4", s.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("a stopped server's port: %v; want refused", err)
	}
	s.Stop() // nothing to stop
	s.Restart()
	if got := s.Ask("ruok"); got != "imok" {
		t.Fatalf("ruok: %q", got)
	}
}

// TestPause: a frozen server accepts connections and answers nothing until it
// goes on.
func TestPause(t *testing.T) {
	t.Parallel()
	s := Start(t)
	s.Pause()
	s.Pause() // stands already
	conn, err := net.Dial("tcp4", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("ruok")); err != nil {
		t.Fatal(err)
	}
	conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	if n, err := conn.Read(make([]byte, 4)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a frozen server answered: %d bytes, %v", n, err)
	}
	s.Resume()
	conn.SetReadDeadline(time.Now().Add(serveMax))
	b := make([]byte, 4)
	if _, err := conn.Read(b); err != nil || string(b) != "imok" {
		t.Fatalf("after the pause: %q, %v", b, err)
	}
}

// TestOptions: lines and java arguments reach the server.
func TestOptions(t *testing.T) {
	t.Parallel()
	s := Start(t, WithConfig("maxClientCnxns=7"), WithTickTime(700*time.Millisecond), WithJava("-Djute.maxbuffer=4096", "-Xmx128m"))
	conf, env := s.Ask("conf"), s.Ask("envi")
	for _, want := range []string{"maxClientCnxns=7", "tickTime=700", "dataDir=" + s.DataDir()} {
		if !strings.Contains(conf, want) {
			t.Errorf("conf has no %s:\n%s", want, conf)
		}
	}
	if !strings.Contains(env, "os.memory.max=12") {
		t.Errorf("-Xmx128m did not arrive:\n%s", env)
	}
	conn := connect(t, sessionMax, s.Addr())
	create(t, conn, "/fits", strings.Repeat("x", 3000))
	_, err := conn.Create("/too-large", make([]byte, 5000), 0, zk.WorldACL(zk.PermAll))
	if !errors.Is(err, zk.ErrConnectionClosed) {
		t.Errorf("jute.maxbuffer did not arrive: 5000 bytes gave %v; want the link dropped", err)
	}
}

// TestDiesEarly: a server that cannot start is an error with the reason from its
// log, at once and not after a minute.
func TestDiesEarly(t *testing.T) {
	t.Parallel()
	Required(t)
	ctx, cancel := context.WithTimeout(t.Context(), serveMax)
	defer cancel()
	_, err := Open(ctx, Config{Dir: t.TempDir(), Lines: []string{"tickTime=soon"}})
	if err == nil || !strings.Contains(err.Error(), `"soon"`) || ctx.Err() != nil {
		t.Fatalf("want an error with the log's reason, got %v", err)
	}
}

// TestPortTaken: a port that somebody takes in between is told apart, and the
// start is tried with others.
func TestPortTaken(t *testing.T) {
	t.Parallel()
	Required(t)
	g, err := newGroup(Config{Dir: t.TempDir()}, 1)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp4", g.Processes[0].Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if err := g.launch(t.Context()); !errors.Is(err, errPortTaken) {
		t.Fatalf("want errPortTaken, got %v", err)
	}
	if err := g.Close(); !errors.Is(err, errPortTaken) {
		t.Fatalf("Close keeps silent about a server that died: %v", err)
	}
}

// TestIsOurs: another's server on our port does not pass for ours.
func TestIsOurs(t *testing.T) {
	t.Parallel()
	s := Start(t)
	if err := s.Process().isOurs(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := &Process{dir: t.TempDir(), self: s.Process().self}
	if err := other.isOurs(t.Context()); !errors.Is(err, errPortTaken) {
		t.Fatalf("another's server: %v; want errPortTaken", err)
	}
}

// TestDeathIsReported: a server that somebody else kills is no quiet matter.
func TestDeathIsReported(t *testing.T) {
	t.Parallel()
	Required(t)
	p, err := Open(t.Context(), Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(p.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-p.current().ended
	if err := p.Close(); err == nil || !strings.Contains(err.Error(), "died by itself") {
		t.Fatalf("want its death told, got %v", err)
	}
}
