// Package api is the vocabulary of Shoal's HTTP API (DESIGN §8): the paths, the
// JSON bodies that controllers, nodes and the command line exchange, and a
// Client that follows the leader.
//
// It owns shapes, not decisions: what a body means is decided in
// internal/controller and internal/node. The completion protocol's messages
// have a package of their own, commit/commithttp; the bytes of segments travel
// by peerdl. Start at node.go for what nodes say to the controller, view.go
// for what people read, client.go for the caller's side.
package api

// DefaultController is where a controller listens unless told otherwise.
const DefaultController = "http://127.0.0.1:7070"

// Codes of problems that callers branch on (RFC 9457 documents' "code").
const (
	CodeNotLeader        = "NOT_LEADER"        // 421; header Shoal-Leader names the leader
	CodeStaleIncarnation = "STALE_INCARNATION" // 409; register again
	CodeNodeIDInUse      = "NODE_ID_IN_USE"    // 409; an UP node of that id has another store
	CodeOtherCluster     = "OTHER_CLUSTER"     // 409; the node belongs to another cluster
	CodeURLNotAllowed    = "URL_NOT_ALLOWED"   // 403; the URL that a node registers is not its own
	CodeTableExists      = "TABLE_EXISTS"      // 409
	CodeTableNotFound    = "TABLE_NOT_FOUND"   // 404
	CodeSegmentNotFound  = "SEGMENT_NOT_FOUND" // 404
	CodeNoSource         = "NO_SOURCE"         // 503; no live copy at the moment
	CodeJobNotFound      = "JOB_NOT_FOUND"     // 404
	CodeNodeNotFound     = "NODE_NOT_FOUND"    // 404
	CodeInvalidConfig    = "INVALID_CONFIG"    // 422; "faults" lists every one
	CodeInvalidRequest   = "INVALID_REQUEST"   // 400
	CodeNotReady         = "NOT_READY"         // 503; starting or draining
)
