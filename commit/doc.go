// Package commit is the segment completion protocol: how the replicas of a
// partition agree, through the leading controller, on where a segment ends and
// whose file is committed (PROTOCOL.md; the words, messages, replies and states
// are Apache Pinot's).
//
// It owns two pure machines. Completion is the controller's, one for each
// segment that is completing, kept by a Controller; Replica is the node's, one
// for each consuming segment. Both are driven by Step(now, event) and answer
// with actions for a shell to carry out; an effect's result comes back as
// another event. Nothing in here has a clock, a goroutine, I/O or randomness,
// and nothing is persisted: after a fail-over both sides are rebuilt from the
// segment's record and the replicas' next messages.
//
// It does not own the records (package meta), the rows (package segment), nor
// how messages travel (package commithttp).
//
// `now` is always monotonic time since a moment that its owner fixed once;
// moments of different machines are never compared.
//
// Start reading at message.go, then completion.go for the controller's half and
// replica.go, which opens with the driving contract, for the node's.
package commit
