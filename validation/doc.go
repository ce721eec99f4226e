// Package validation finds what commit left behind in the whole image, not only in
// its newest segments, and says what is to be done about it.
//
// It owns the look at everything (Survey, plan.go) and what becomes of what was
// found (Manager, manager.go): who is asked, what is in flight, what is tried again
// and when. Both are pure, and neither sees a network, a store or a clock: the
// leader's machine runs them (internal/controller, validation.go).
//
// This is its first half: committed segments that are not in their deep store,
// segments at risk, partitions that nobody consumes. What its second half will find
// (segments short of node copies to replicate again, copies due for a scrub,
// placement, files and objects that no record explains) takes its place beside
// these: another list in Findings, another kind of Ask. The age of segments is
// retention's (internal/controller, retention.go).
//
// It comes second, always: the nodes close what differences they see by
// themselves (internal/node, judge.go), and most of what a Survey finds is gone by
// the next. A segment is acted on when that has not helped within the patience.
package validation
