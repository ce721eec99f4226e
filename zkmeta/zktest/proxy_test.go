package zktest

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// echo is a server that says every line back, with its name.
func echo(t *testing.T, name string) string {
	t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for s := bufio.NewScanner(conn); s.Scan(); {
					io.WriteString(conn, name+" "+s.Text()+"\n")
				}
			}()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-done })
	return ln.Addr().String()
}

// talker is one client's connection.
type talker struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

func dial(t *testing.T, addr string) talker {
	t.Helper()
	conn, err := net.Dial("tcp4", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetReadDeadline(time.Now().Add(serveMax))
	return talker{t, conn, bufio.NewReader(conn)}
}

func (c talker) say(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c, line+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

func (c talker) hears(want string) {
	c.t.Helper()
	line, err := c.in.ReadString('\n')
	if err != nil || line != want+"\n" {
		c.t.Fatalf("heard %q, %v; want %q", line, err, want)
	}
}

// hearsNothing looks for a while: of a black hole no end can be seen.
func (c talker) hearsNothing() {
	c.t.Helper()
	c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	if line, err := c.in.ReadString('\n'); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("heard %q, %v; want nothing", line, err)
	}
	c.SetReadDeadline(time.Now().Add(serveMax))
}

func (c talker) isClosed() {
	c.t.Helper()
	if line, err := c.in.ReadString('\n'); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("heard %q, %v; want the connection closed", line, err)
	}
}

func TestProxyRelays(t *testing.T) {
	p := NewProxy(t, echo(t, "a"))
	c := dial(t, p.Addr())
	c.say("hello")
	c.hears("a hello")
	long := strings.Repeat("x", 60_000)
	c.say(long)
	c.hears("a " + long)
}

func TestProxyCut(t *testing.T) {
	p := NewProxy(t, echo(t, "a"))
	c := dial(t, p.Addr())
	c.say("1")
	c.hears("a 1")
	p.Cut()
	c.isClosed()
	if _, err := net.Dial("tcp4", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("connecting while cut: %v; want refused", err)
	}
	p.Heal()
	p.Heal() // nothing to heal
	c = dial(t, p.Addr())
	c.say("2")
	c.hears("a 2")
	p.Drop()
	c.isClosed()
	c = dial(t, p.Addr())
	c.say("3")
	c.hears("a 3")
}

func TestProxySetTarget(t *testing.T) {
	p := NewProxy(t, echo(t, "a"))
	old := dial(t, p.Addr())
	old.say("1")
	old.hears("a 1")
	p.SetTarget(echo(t, "b"))
	c := dial(t, p.Addr())
	c.say("2")
	c.hears("b 2")
	old.say("3")
	old.hears("a 3")
}

// TestProxyStall: a black hole closes nothing, takes new connections, and gives
// what it held when it ends, in order.
func TestProxyStall(t *testing.T) {
	for _, d := range []Direction{ToServer, ToClient, Both} {
		p := NewProxy(t, echo(t, "a"))
		c := dial(t, p.Addr())
		c.say("1")
		c.hears("a 1")
		p.Stall(d)
		c.say("2")
		fresh := dial(t, p.Addr())
		fresh.say("new")
		c.hearsNothing()
		c.say("3")
		p.Unstall()
		c.hears("a 2")
		c.hears("a 3")
		fresh.hears("a new")
	}
}

// TestProxyStallsTheEnd: in a black hole nobody learns that the other has gone.
func TestProxyStallsTheEnd(t *testing.T) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	p := NewProxy(t, ln.Addr().String())
	c := dial(t, p.Addr())
	conn, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	server := talker{t, conn, bufio.NewReader(conn)}
	defer server.Close()
	p.Stall(ToServer)
	c.say("late")
	c.Close()
	server.hearsNothing()
	p.Unstall()
	server.hears("late")
	server.isClosed()
}

// TestProxyDelay: each way takes the delay, and lines sent together wait
// together.
func TestProxyDelay(t *testing.T) {
	const delay = 100 * time.Millisecond
	p := NewProxy(t, echo(t, "a"))
	c := dial(t, p.Addr())
	c.say("warm")
	c.hears("a warm")
	p.Delay(delay)
	start := time.Now()
	c.say("1")
	c.hears("a 1")
	if took := time.Since(start); took < 2*delay {
		t.Fatalf("a round trip took %v; want %v at least", took, 2*delay)
	}
	p.Delay(0)
	c.say("2")
	c.hears("a 2")
}

// TestProxyStallOnZooKeeper: a client behind a black hole loses its session and
// its ephemeral znode, and hears so only when the hole ends.
func TestProxyStallOnZooKeeper(t *testing.T) {
	t.Parallel()
	s := Start(t)
	p := NewProxy(t, s.Addr())
	direct := connect(t, sessionMax, s.Addr())
	behind := connect(t, sessionMin, p.Addr())
	createEphemeral(t, behind, "/alive")
	there, _, events, err := direct.ExistsW("/alive")
	if err != nil || !there {
		t.Fatalf("the ephemeral znode: %t, %v", there, err)
	}
	p.Stall(Both)
	<-events
	if there, _, err := direct.Exists("/alive"); err != nil || there {
		t.Fatalf("the session did not expire: %t, %v", there, err)
	}
	p.Unstall()
	create(t, behind, "/back", "")
}
