package zkmeta

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/httpx/httpxtest"
	"github.com/shoalstore/shoal/zkmeta/zktest"
)

// A long session lets calls be slow: the machine may be busy.
var longSessions = zktest.WithTickTime(3 * time.Second)

// soon is for what gives no session: a third of it is waited for one.
const soon = 4 * time.Second

func patient(a Access) Access {
	if a.SessionTimeout == 0 {
		a.SessionTimeout = time.Minute
	}
	return a
}

// probed is the report on servers and a root, by whom.
func probed(t *testing.T, access Access, root string, servers ...string) *Report {
	t.Helper()
	access = patient(access)
	r, err := Probe(t.Context(), ProbeConfig{Address: Address{Servers: servers, Root: root}, Access: access, Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	if data, err := json.Marshal(r); err != nil || access.Password != "" && strings.Contains(string(data), access.Password) {
		t.Errorf("as JSON: %s, %v", data, err)
	}
	return r
}

// finds fails unless the findings are one of each, by server and a part of its text.
func finds(t *testing.T, what string, got []Finding, want ...Finding) {
	t.Helper()
	for _, w := range want {
		i := slices.IndexFunc(got, func(f Finding) bool {
			return f.Server == w.Server && strings.Contains(f.Problem, w.Problem) && f.Do != ""
		})
		if i < 0 {
			t.Errorf("%s: %+v is not among %+v", what, w, got)
			continue
		}
		got = slices.Delete(slices.Clone(got), i, i+1)
	}
	if len(got) > 0 {
		t.Errorf("%s: also %+v", what, got)
	}
}

func probeConn(t *testing.T, access Access, root, server string) *Conn {
	t.Helper()
	c, err := Connect(patient(access).Conn(Address{Servers: []string{server}, Root: root}, zerolog.Nop(), nil))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// withoutSlow drops what a busy machine gives occasion for.
func withoutSlow(notes []Finding) []Finding {
	return slices.DeleteFunc(slices.Clone(notes), func(f Finding) bool { return strings.Contains(f.Problem, "slow") })
}

func TestProbeOfASingleServer(t *testing.T) {
	server := zktest.Start(t, longSessions)
	at := server.Addr()
	t.Run("healthy", func(t *testing.T) {
		c, cluster := probeConn(t, Access{}, "/healthy", at), uuid.New()
		if err := Found(t.Context(), c, cluster); err != nil {
			t.Fatal(err)
		}
		before, err := c.Children(t.Context(), "/healthy")
		if err != nil {
			t.Fatal(err)
		}
		r := probed(t, Access{}, "/healthy", at)
		finds(t, "problems", r.Problems)
		finds(t, "notes", withoutSlow(r.Notes), Finding{"", "no controller runs", ""})
		s := r.Servers[0]
		if !s.Reachable || !s.Session || !s.Words || s.Version != "3.8.0" || s.Mode != "standalone" || s.LargestWrite != MultiBytesMax || s.Refused != 0 ||
			s.Writes != probeWrites || s.WriteP99Ms < s.WriteP50Ms || s.WriteP50Ms <= 0 || s.ClockAheadMs == nil || s.SessionTimeoutMs != 60_000 {
			t.Errorf("%+v", s)
		}
		if r.Tree.Standing != "whole" || r.Tree.ClusterID != cluster || r.Tree.NextOffset != 0 || !r.Tree.Present {
			t.Errorf("%+v", r.Tree)
		}
		if after, err := c.Children(t.Context(), "/healthy"); err != nil || !slices.Equal(before, after) {
			t.Errorf("left behind: %q, %v", after, err)
		}
	})
	t.Run("a candidate that somebody has made by hand", func(t *testing.T) {
		c := probeConn(t, Access{}, "/byhand", at)
		if err := Found(t.Context(), c, uuid.New()); err != nil {
			t.Fatal(err)
		}
		if _, err := c.CreateEphemeralSequential(t.Context(), c.Path(electionDir, "c1_boot_1_")); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"old_boot_1_0000000000", "no candidate"} {
			if err := c.Create(t.Context(), c.Path(electionDir, name), nil); err != nil {
				t.Fatal(err)
			}
		}
		finds(t, "problems", probed(t, Access{}, "/byhand", at).Problems, Finding{"", "/byhand/election/old_boot_1_0000000000 is of no session", ""})
	})
	t.Run("a tree of a newer program", func(t *testing.T) {
		c := probeConn(t, Access{}, "/newer", at)
		id := identityOf(uuid.New())
		id.FormatVersion++
		if err := errors.Join(c.Create(t.Context(), c.Path(), nil), c.Create(t.Context(), c.Path(idName), id.encode())); err != nil {
			t.Fatal(err)
		}
		problems := probed(t, Access{}, "/newer", at).Problems
		finds(t, "problems", problems, Finding{"", "this program knows up to", ""})
		if !strings.Contains(problems[0].Do, "newer") {
			t.Errorf("%+v", problems)
		}
	})
	t.Run("a root that is not there", func(t *testing.T) {
		c := probeConn(t, Access{}, "/absent/root", at)
		if err := c.Create(t.Context(), "/absent", nil); err != nil {
			t.Fatal(err)
		}
		r := probed(t, Access{}, "/absent/root", at)
		finds(t, "problems", r.Problems, Finding{"", "no cluster at /absent/root", ""})
		if s := r.Servers[0]; s.LargestWrite != MultiBytesMax || r.Tree.Present {
			t.Errorf("%+v, %+v", s, r.Tree)
		}
		if left, err := c.Children(t.Context(), "/absent"); err != nil || len(left) != 0 {
			t.Errorf("left behind: %q, %v", left, err)
		}
	})
	t.Run("a user is needed", func(t *testing.T) {
		owner := Access{User: "owner", Password: "the-secret-of-the-owner"}
		if err := Found(t.Context(), probeConn(t, owner, "/owned", at), uuid.New()); err != nil {
			t.Fatal(err)
		}
		finds(t, "as the owner", probed(t, owner, "/owned", at).Problems)
		finds(t, "as nobody", probed(t, Access{}, "/owned", at).Problems,
			Finding{at, "may not create", ""}, Finding{"", "may not read", ""})
		finds(t, "by another password", probed(t, Access{User: "owner", Password: "another-secret"}, "/owned", at).Problems,
			Finding{at, "may not create", ""}, Finding{"", "may not read", ""})
	})
	t.Run("somebody else's tree", func(t *testing.T) {
		c := probeConn(t, Access{}, "/foreign", at)
		for _, path := range []string{"/foreign", "/foreign/brokers"} {
			if err := c.Create(t.Context(), path, nil); err != nil {
				t.Fatal(err)
			}
		}
		finds(t, "problems", probed(t, Access{}, "/foreign", at).Problems, Finding{"", "brokers", ""})
	})
	t.Run("no four-letter words", func(t *testing.T) {
		if err := Found(t.Context(), probeConn(t, Access{}, "/mute", at), uuid.New()); err != nil {
			t.Fatal(err)
		}
		mute := wordless(t, at)
		r := probed(t, Access{}, "/mute", mute)
		finds(t, "problems", r.Problems)
		finds(t, "notes", withoutSlow(r.Notes), Finding{mute, "allows no four-letter words", ""}, Finding{"", "no controller runs", ""})
		if s := r.Servers[0]; s.Words || s.Version != "" || s.LargestWrite != MultiBytesMax {
			t.Errorf("%+v", s)
		}
	})
	t.Run("nobody there, and somebody else", func(t *testing.T) {
		nobody := strings.TrimPrefix(httpxtest.Refusing(t), "http://")
		r := probed(t, Access{SessionTimeout: soon}, "/shoal", nobody)
		finds(t, "problems", r.Problems, Finding{nobody, "cannot be reached", ""})
		if r.Reachable() {
			t.Error("it is reachable")
		}
		other := answering(t, func(c net.Conn) { io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") })
		finds(t, "problems", probed(t, Access{SessionTimeout: soon}, "/shoal", other).Problems, Finding{other, "gives no session", ""})
		secure := probed(t, Access{SessionTimeout: soon, TLS: &tls.Config{}}, "/shoal", other)
		finds(t, "problems", secure.Problems, Finding{other, "takes connections and no TLS", ""})
		if !secure.Reachable() {
			t.Error("it is not reachable")
		}
		readOnly := answering(t, func(c net.Conn) {
			word := make([]byte, 4)
			if _, err := io.ReadFull(c, word); err == nil && string(word) == "srvr" {
				io.WriteString(c, "Zookeeper version: 3.8.0\nREAD-ONLY mode; serving only read-only clients\nMode: read-only\n")
			}
		})
		finds(t, "problems", probed(t, Access{SessionTimeout: soon}, "/shoal", readOnly).Problems, Finding{readOnly, "not with a majority", ""})
	})
}

func TestProbeSeesASmallBuffer(t *testing.T) {
	server := zktest.Start(t, longSessions, zktest.WithJava("-Djute.maxbuffer=300000"), zktest.WithConfig("4lw.commands.whitelist=srvr,conf"))
	if err := Found(t.Context(), probeConn(t, Access{}, "/shoal", server.Addr()), uuid.New()); err != nil {
		t.Fatal(err)
	}
	r := probed(t, Access{}, "/shoal", server.Addr())
	finds(t, "problems", r.Problems, Finding{server.Addr(), "jute.maxbuffer is too small", ""})
	if s := r.Servers[0]; s.LargestWrite != 192<<10 || s.Refused != 384<<10 || s.Mode != "standalone" {
		t.Errorf("%+v", s)
	}
}

func TestProbeNamesTheServerThatIsDown(t *testing.T) {
	e := zktest.StartEnsemble(t, 3, longSessions)
	if err := Found(t.Context(), probeConn(t, Access{}, "/shoal", e.Addrs()[0]), uuid.New()); err != nil {
		t.Fatal(err)
	}
	down := e.Followers()[0]
	down.Kill()
	e.WaitQuorum()
	r := probed(t, Access{}, "/shoal", e.Addrs()...)
	finds(t, "problems", r.Problems, Finding{down.Addr(), "cannot be reached", ""})
	modes := map[string]int{}
	for _, s := range r.Servers {
		modes[s.Mode]++
		if up := s.Server != down.Addr(); s.Reachable != up || s.Session != up || up != (s.LargestWrite == MultiBytesMax) {
			t.Errorf("%+v", s)
		}
	}
	if modes["leader"] != 1 || modes["follower"] != 1 || r.Tree.Standing != "whole" {
		t.Errorf("%v, %+v", modes, r.Tree)
	}
	// The others are not told of when only one is named.
	leader := e.Leader().Addr()
	finds(t, "notes", withoutSlow(probed(t, Access{}, "/shoal", leader).Notes),
		Finding{leader, "the only one in the address", ""}, Finding{"", "no controller runs", ""})
}

// answering serves each connection by fn and closes it.
func answering(t *testing.T, fn func(net.Conn)) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				fn(c)
			}()
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		<-ended
	})
	return ln.Addr().String()
}

// wordless stands before a server as one that allows no four-letter words would.
func wordless(t *testing.T, server string) string {
	return answering(t, func(c net.Conn) {
		head := make([]byte, 4)
		if _, err := io.ReadFull(c, head); err != nil {
			return
		}
		if word := string(head); slices.Contains([]string{"srvr", "mntr", "conf"}, word) {
			fmt.Fprintf(c, "%s is not executed because it is not in the whitelist.\n", word)
			return
		}
		up, err := net.Dial("tcp", server)
		if err != nil {
			return
		}
		defer up.Close()
		up.Write(head)
		go func() {
			io.Copy(up, c)
			up.Close()
		}()
		io.Copy(c, up)
	})
}
