package zktest

import "testing"

// TestEnsemble: a leader is found; it is killed, another is elected and writes go
// on; it comes back and follows.
func TestEnsemble(t *testing.T) {
	t.Parallel()
	// A leader that the machine holds up for some seconds stays the leader.
	e := StartEnsemble(t, 3, WithConfig("syncLimit=40"))
	conn := connect(t, sessionMax, e.Addrs()...)
	create(t, conn, "/before", "1")
	first := e.Leader()
	first.Kill()
	second := e.Leader()
	if second == first {
		t.Fatalf("server %d was killed and leads", first.ID())
	}
	create(t, conn, "/after", "2")
	wantData(t, conn, "/before", "1")
	first.Restart()
	if got := e.Leader(); got != second {
		t.Fatalf("server %d leads; a server that comes back does not depose %d", got.ID(), second.ID())
	}
	back := connect(t, sessionMax, first.Addr())
	if _, err := back.Sync("/after"); err != nil {
		t.Fatal(err)
	}
	wantData(t, back, "/after", "2")
}

// TestPausedLeader: a leader that freezes is deposed, and does not count when it
// goes on.
func TestPausedLeader(t *testing.T) {
	t.Parallel()
	e := StartEnsemble(t, 3)
	first := e.Leader()
	first.Pause()
	second := e.Leader()
	if second == first {
		t.Fatal("a frozen server leads")
	}
	first.Resume()
	if got := e.Leader(); got != second {
		t.Fatalf("server %d leads; want %d", got.ID(), second.ID())
	}
	if got := len(e.Followers()); got != 2 {
		t.Fatalf("%d followers", got)
	}
}
