package zkmeta

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"
)

// Probing is for an operator who wants to know what is wrong with an ensemble. Each
// server is asked by itself, as clients do and by its four-letter words; then the tree
// is read. What is written is one ephemeral znode by server, below the root or, where
// that is not there yet, below what is there of the way to it; each goes when its
// session ends, however this process ends.

// Finding is something that was found out, in words.
type Finding struct {
	Server  string `json:"server,omitempty"` // empty: the ensemble, or the tree
	Problem string `json:"problem"`
	Do      string `json:"do"`
}

// ServerReport is what was found of one server. Pointers are nil for what is not
// known.
type ServerReport struct {
	Server    string `json:"server"`
	Reachable bool   `json:"reachable"` // it takes connections
	Session   bool   `json:"session"`   // it gave one
	Error     string `json:"error,omitempty"`

	Words     bool     `json:"words"` // srvr, at least, is allowed
	Version   string   `json:"version,omitempty"`
	Mode      string   `json:"mode,omitempty"` // standalone, leader, follower, observer
	LatencyMs *float64 `json:"averageLatencyMs,omitempty"`
	Znodes    *int64   `json:"znodes,omitempty"`
	// MaxBufferBytes is jute.maxbuffer where the server tells it.
	MaxBufferBytes *int64 `json:"maxBufferBytes,omitempty"`

	SessionTimeoutMs int64 `json:"sessionTimeoutMs,omitempty"` // granted
	// ClockAheadMs is how far the clock of the ensemble's leader is ahead of the one
	// here; it may be off by half of RoundTripMs.
	ClockAheadMs *float64 `json:"clockAheadMs,omitempty"`
	RoundTripMs  float64  `json:"roundTripMs,omitempty"`
	Writes       int      `json:"writes,omitempty"` // that the two percentiles are of
	WriteP50Ms   float64  `json:"writeP50Ms,omitempty"`
	WriteP99Ms   float64  `json:"writeP99Ms,omitempty"`
	// LargestWrite is the largest request of those tried that was taken, Refused the
	// smallest that was not; bytes.
	LargestWrite int `json:"largestWriteBytes,omitempty"`
	Refused      int `json:"refusedWriteBytes,omitempty"`

	fault error // that of the session
	write error // that of writing
	at    string
	split string // what serves nobody says
}

// TreeReport is what is at the root.
type TreeReport struct {
	Root          string    `json:"root"`
	Present       bool      `json:"present"`
	ClusterID     uuid.UUID `json:"clusterId,omitzero"`
	FormatVersion int       `json:"formatVersion,omitempty"`
	Standing      string    `json:"standing"` // whole, none, foreign, migrating, moved, unknown
	Epoch         int64     `json:"epoch,omitempty"`
	NextOffset    int64     `json:"nextOffset"` // of the log
	Candidates    []string  `json:"candidates"` // the first leads, or is about to
	Entries       int       `json:"entries"`    // of the log's tail

	strangers []string // candidates that are of no session
	fault     error
}

// Report is what a probe has found.
type Report struct {
	Address  string         `json:"address"`
	Servers  []ServerReport `json:"servers"`
	Tree     TreeReport     `json:"tree"`
	Problems []Finding      `json:"problems"`
	// Notes are worth knowing and not wrong.
	Notes []Finding `json:"notes"`
}

// Reachable reports whether any server takes connections.
func (r *Report) Reachable() bool {
	for _, s := range r.Servers {
		if s.Reachable {
			return true
		}
	}
	return false
}

// ProbeConfig is what a probe needs.
type ProbeConfig struct {
	Address Address
	Access  Access
	Logger  zerolog.Logger
}

// Probe asks all servers at once. Its errors are those of the configuration; what is
// wrong with the servers is in the report. It takes some session timeouts at most.
func Probe(ctx context.Context, cfg ProbeConfig) (*Report, error) {
	if err := cfg.Access.Conn(cfg.Address, cfg.Logger, nil).Validate(); err != nil {
		return nil, err
	}
	r := &Report{
		Address: cfg.Address.String(), Servers: make([]ServerReport, len(cfg.Address.Servers)),
		Tree:     TreeReport{Root: cfg.Address.Root, Standing: "unknown", Candidates: []string{}},
		Problems: []Finding{}, Notes: []Finding{},
	}
	var wg sync.WaitGroup
	for i, server := range cfg.Address.Servers {
		wg.Go(func() { r.Servers[i] = probeServer(ctx, cfg, server) })
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.readTree(ctx, cfg)
	r.judge(cfg)
	return r, nil
}

// ms is a duration in milliseconds.
func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
