package zktest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quiet drops the client's chatter.
type quiet struct{}

func (quiet) Printf(string, ...any) {}

// connect returns a client of the given servers with a session.
func connect(t *testing.T, timeout time.Duration, addrs ...string) *zk.Conn {
	t.Helper()
	conn, events, err := zk.Connect(addrs, timeout, zk.WithLogger(quiet{}), zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	for e := range events {
		if e.State == zk.StateHasSession {
			return conn
		}
	}
	t.Fatal("the client closed itself")
	return nil
}

// create makes a znode and goes on until it is there: a client that has just
// lost its server fails calls that are in flight.
func create(t *testing.T, conn *zk.Conn, path, data string) {
	t.Helper()
	createAs(t, conn, path, data, 0)
}

// createEphemeral makes one that goes with the session.
func createEphemeral(t *testing.T, conn *zk.Conn, path string) {
	t.Helper()
	createAs(t, conn, path, "", zk.FlagEphemeral)
}

func createAs(t *testing.T, conn *zk.Conn, path, data string, flags int32) {
	t.Helper()
	for {
		_, err := conn.Create(path, []byte(data), flags, zk.WorldACL(zk.PermAll))
		switch err {
		case nil, zk.ErrNodeExists:
			return
		case zk.ErrConnectionClosed, zk.ErrNoServer, zk.ErrSessionExpired:
			if t.Context().Err() != nil {
				t.Fatal(err)
			}
		default:
			t.Fatal(err)
		}
	}
}

func wantData(t *testing.T, conn *zk.Conn, path, want string) {
	t.Helper()
	b, _, err := conn.Get(path)
	if err != nil || string(b) != want {
		t.Fatalf("%s has %q, %v; want %q", path, b, err, want)
	}
}

// awaitMode waits until a server says that it is in a mode, "" for one that serves
// nobody.
func awaitMode(t *testing.T, s *Server, want string) {
	t.Helper()
	s.check(s.p.poll(t.Context(), func(ctx context.Context) error {
		state, err := s.p.State(ctx)
		if err == nil && state.Mode != want {
			err = fmt.Errorf("server %d is in mode %q; want %q", s.ID(), state.Mode, want)
		}
		return err
	}))
}
