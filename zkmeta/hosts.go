package zkmeta

import (
	"math/rand/v2"
	"sync"
	"time"
)

// hosts says which server is tried next, and when. It outlives sessions: a new
// one is looked for where the last one was, and after the same pauses.
//
// The library has a provider of its own, which resolves names once, and pauses
// for exactly one second: every client of a server that died comes back in the
// same instant.
type hosts struct {
	servers  []string // in an order drawn once, so that clients spread
	pauseMax time.Duration

	mu       sync.Mutex
	next     int
	failures int // attempts since the last one that was any good
}

func newHosts(servers []string, sessionTimeout time.Duration) *hosts {
	h := &hosts{servers: append([]string(nil), servers...), pauseMax: min(sessionTimeout/5, 2*time.Second)}
	rand.Shuffle(len(h.servers), func(i, j int) { h.servers[i], h.servers[j] = h.servers[j], h.servers[i] })
	return h
}

// take returns the server to try now.
func (h *hosts) take() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.servers[h.next%len(h.servers)]
	h.next++
	return s
}

// attempt counts one, and returns how long to wait before it: nothing in the
// first round, as another server may do, then longer with each round. round is
// how many have failed as a whole.
func (h *hosts) attempt() (pause time.Duration, round int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	round = h.failures / len(h.servers)
	start := h.failures%len(h.servers) == 0
	h.failures++
	if round == 0 || !start {
		return 0, round
	}
	return jitter(min(50*time.Millisecond<<min(round, 10), h.pauseMax)), round
}

// good forgets the failures: a server has answered, or a connection has lasted.
func (h *hosts) good() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failures = 0
}

// jitter returns a time between half of d and d.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1)
}

// attemptMax is how long one server may take from the look-up of its name to its
// first answer. All of them should get their turn in the time that a leader may
// go on without contact, 2/3 of the session timeout; but one second is little for
// a network that lost a packet.
func attemptMax(servers int, sessionTimeout time.Duration) time.Duration {
	third := sessionTimeout / 3
	turn := sessionTimeout * 2 / 3 / time.Duration(servers)
	return max(min(turn, third, 5*time.Second), min(third, time.Second))
}

// provider is what one library connection sees of hosts.
type provider struct {
	hosts  *hosts
	closed func() bool
}

func (p provider) Init([]string) error { return nil }
func (p provider) Len() int            { return len(p.hosts.servers) }
func (p provider) Connected()          {} // only that it shook hands: see good

// Next never asks for the library's own pause, but for the only thing that makes
// its loop look whether it was closed.
func (p provider) Next() (server string, retryStart bool) {
	return p.hosts.take(), p.closed()
}
