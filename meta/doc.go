// Package meta holds the records of a cluster and says what a batch of changes
// does to them.
//
// It owns the records and their two encodings (record.go, codec.go; for the
// bulk of them decodesegment.go, with cbor.go), batches (batch.go), the
// immutable image that results from applying batches in order (image.go,
// apply.go), the questions put to an image (copies.go, coverage.go, place.go,
// invariants.go), the changes that the leader may make to it (change.go and the
// files named after it), and the table configuration (config.go, parse.go).
//
// It does not own the log that batches travel in (metalog), nor when a change
// is asked for (commit, validation, internal/controller). Nothing here reads a
// clock, draws a random number or does I/O: identifiers and the time are passed
// in, and whatever is iterated is sorted, so that the same input gives the same
// output on every machine.
//
// Start reading at record.go, then image.go, then change_commit.go.
package meta
