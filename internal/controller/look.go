package controller

// Look asks what the leader has in memory about the nodes. One Seen follows.
type Look struct{ Ticket Ticket }

// Seen answers a Look.
type Seen struct {
	Ticket Ticket
	Nodes  map[string]NodeSeen
}

// NodeSeen is what the leader knows of a node from its heartbeats.
type NodeSeen struct {
	Heard         bool
	HeardAt       int64 // wall time of the leader, ms; if not Heard, since when it is waited for, 0: not yet
	AppliedOffset int64
	Busy          int
}

func (Look) event()  {}
func (Seen) action() {}

func (m *Machine) look(ev Look) {
	seen := Seen{Ticket: ev.Ticket, Nodes: map[string]NodeSeen{}}
	for node, b := range m.live.heard {
		seen.Nodes[node] = NodeSeen{
			Heard: b.received, HeardAt: m.now.Wall - (m.now.Mono - b.at).Milliseconds(),
			AppliedOffset: b.AppliedOffset, Busy: b.Busy,
		}
	}
	m.do(seen)
}
