package api

import "time"

// Paths of validation.
const (
	PathValidation    = "/validation"
	PathValidationRun = "/validation/run" // ?dryRun=true changes nothing
)

// ValidationView is what the leader's validation has found, and what it does about
// it: GET /validation, POST /validation/run. Lists are bounded (?limit=), riskiest
// first; the totals count everything.
type ValidationView struct {
	// RanAt is when the image was taken that the findings are of, Took how long the
	// look at it took, in seconds, Image its offset. Without a run yet they are zero.
	RanAt time.Time `json:"ranAt,omitzero"`
	Took  float64   `json:"took"`
	Image int64     `json:"image"`
	// Tables are those with segments at risk or not in their deep store.
	Tables []ValidationTable `json:"tables"`
	// SingleCopy are segments at risk, Awaiting those that should be in the deep
	// store and are not.
	SingleCopy []ValidationSegment `json:"singleCopy"`
	Awaiting   []ValidationSegment `json:"awaitingDeepStore"`
	// NotConsuming are partitions that should consume and do not, Stopped those of
	// which every replica has stopped (state ERROR).
	NotConsuming      []ValidationPartition `json:"notConsuming"`
	NotConsumingTotal int                   `json:"notConsumingTotal"`
	Stopped           []ValidationPartition `json:"stopped"`
	StoppedTotal      int                   `json:"stoppedTotal"`
	// Asks are the uploads that this run has asked for, or in a dry run would. GET
	// has none.
	Asks      []ValidationAsk     `json:"asks"`
	Pool      ValidationPool      `json:"pool"`
	DeepStore ValidationDeepStore `json:"deepStore"`
}

// ValidationTable sums up a table.
type ValidationTable struct {
	Table      string          `json:"table"`
	SingleCopy ValidationTotal `json:"singleCopy"`
	Awaiting   ValidationTotal `json:"awaitingDeepStore"`
}

// ValidationTotal sums up segments; Oldest is when the first was committed.
type ValidationTotal struct {
	Segments int64     `json:"segments"`
	Bytes    int64     `json:"bytes"`
	Oldest   time.Time `json:"oldest,omitzero"`
}

// ValidationSegment is a segment that was found, as it is now, and what has been done.
type ValidationSegment struct {
	Table         string    `json:"table"`
	Segment       string    `json:"segment"`
	Partition     int32     `json:"partition"`
	SizeBytes     int64     `json:"sizeBytes"`
	Committed     time.Time `json:"committed"`
	SingleCopy    bool      `json:"singleCopy"`
	CountedCopies int       `json:"countedCopies"`
	Replication   int       `json:"replication"`
	// Holders are the nodes that could upload it, in the order in which they are asked.
	Holders []string `json:"holders,omitempty"`
	// AskedOf is the node that is asked for its upload at the moment.
	AskedOf string    `json:"askedOf,omitempty"`
	AskedAt time.Time `json:"askedAt,omitzero"`
	NextAt  time.Time `json:"nextAt,omitzero"` // when one is asked next
	// Failures counts tries of nodes that were asked; the last one's error follows.
	Failures    int       `json:"failures,omitempty"`
	LastNode    string    `json:"lastNode,omitempty"`
	LastError   string    `json:"lastError,omitempty"`
	LastErrorAt time.Time `json:"lastErrorAt,omitzero"`
}

// ValidationPartition is a partition that does not consume.
type ValidationPartition struct {
	Table     string `json:"table"`
	Partition int32  `json:"partition"`
	Segment   string `json:"segment,omitempty"`
	Why       string `json:"why"`
}

// ValidationAsk is an upload that a node is asked for.
type ValidationAsk struct {
	Table   string `json:"table"`
	Segment string `json:"segment"`
	Node    string `json:"node"`
}

// ValidationPool is how busy validation is; the counts are of this leadership.
type ValidationPool struct {
	Running int `json:"running"`
	Most    int `json:"most"`
	Waiting int `json:"waiting"`
	// FailingTables are those whose last upload that was asked for has failed: they
	// have one at a time.
	FailingTables []string `json:"failingTables"`
	Asked         int64    `json:"asked"`
	Failed        int64    `json:"failed"`
	Done          int64    `json:"done"`
}

// ValidationDeepStore is how far the look through the deep stores is.
type ValidationDeepStore struct {
	PagesListed int64 `json:"pagesListed"`
	// Lost counts verified copies that proved to be gone.
	Lost   int64             `json:"lost"`
	Tables []ValidationAudit `json:"tables"`
}

// ValidationAudit is the look through one table's store.
type ValidationAudit struct {
	Table     string    `json:"table"`
	LastPass  time.Time `json:"lastPass,omitzero"` // when the last whole one ended
	LastError string    `json:"lastError,omitempty"`
}

// The states of an upload.
const (
	UploadNone     = "none"     // nobody wants it of this node
	UploadWaiting  = "waiting"  // for its turn, or its next try
	UploadRunning  = "running"  // under way
	UploadReported = "reported" // done here; the leader has to see it
	UploadDone     = "done"     // the leader has verified a copy in the deep store, whoever put it there
)

// UploadState is how far a node is with the upload of a segment: POST (which asks for
// it) and GET /segments/{table}/{segment}/upload on a node.
type UploadState struct {
	Segment string `json:"segment"`
	State   string `json:"state"`
	// Failures counts the tries that failed since the node's process began.
	Failures    int       `json:"failures"`
	LastError   string    `json:"lastError,omitempty"`
	LastErrorAt time.Time `json:"lastErrorAt,omitzero"`
	// Different says that the last error is other bytes under the segment's key, in a
	// store that answers.
	Different bool `json:"different,omitempty"`
}
