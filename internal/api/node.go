package api

import "github.com/google/uuid"

// Paths of what nodes say to the leader.
const (
	PathRegister  = "/nodes/register"
	PathHeartbeat = "/nodes/heartbeat"
	PathLocations = "/locations"
	PathLog       = "/metadata/log"
)

// Register is a node's introduction: POST /nodes/register.
type Register struct {
	Node          string    `json:"node"`
	URL           string    `json:"url"`
	Zone          string    `json:"zone,omitempty"`
	Tags          []string  `json:"tags,omitempty"`
	CapacityBytes int64     `json:"capacityBytes,omitempty"`
	StoreID       uuid.UUID `json:"storeId"`
	// BootID is drawn by each process: the same one gets the same incarnation.
	BootID uuid.UUID `json:"bootId"`
	// ClusterID is what the node's data directory says, zero for a new one.
	ClusterID uuid.UUID `json:"clusterId,omitzero"`
}

// Registered answers Register.
type Registered struct {
	ClusterID     uuid.UUID `json:"clusterId"`
	Incarnation   int64     `json:"incarnation"`
	Leader        string    `json:"leader"`
	Epoch         int64     `json:"epoch"`
	HighWatermark int64     `json:"highWatermark"`
}

// Heartbeat is the only sign of life: POST /nodes/heartbeat, every 2 s.
type Heartbeat struct {
	Node        string `json:"node"`
	Incarnation int64  `json:"incarnation"`
	// AppliedOffset is the next offset of the node's image: everything below is applied.
	AppliedOffset int64 `json:"appliedOffset"`
	Sequence      int64 `json:"sequence"`
	// WallClock is the node's, milliseconds since the Unix epoch.
	WallClock int64 `json:"wallClock"`
	// Busy counts the node's downloads, uploads and seals in flight.
	Busy int `json:"busy"`
}

// HeartbeatAnswer tells the node how far the log is.
type HeartbeatAnswer struct {
	Leader        string `json:"leader"`
	Epoch         int64  `json:"epoch"`
	HighWatermark int64  `json:"highWatermark"`
}
