package metalog

import (
	"errors"
	"fmt"
)

var (
	// ErrPoisoned refuses everything after a failure that left the state of the
	// disk, or of the log, unknown. Only opening anew finds the truth.
	ErrPoisoned = errors.New("metalog: an earlier append failed and its outcome is unknown")
	// ErrUnknown answers a change that was accepted and whose outcome is not
	// known: it may or may not be in the log. Callers repeat their message, which
	// is idempotent.
	ErrUnknown = errors.New("metalog: outcome unknown")
	// ErrStopped refuses a change because the writer has been told to stop. It
	// was not appended.
	ErrStopped = errors.New("metalog: the writer has stopped")
	// ErrClosed refuses work on a closed log.
	ErrClosed = errors.New("metalog: the log is closed")
)

// CorruptionError says that bytes which were once durable are not what was
// written. Nothing is repaired behind the operator's back: the log is not opened.
type CorruptionError struct {
	File   string
	Offset int64 // byte position in File
	Reason string
	Err    error // what found it; may be nil
}

func (e *CorruptionError) Error() string {
	s := fmt.Sprintf("metalog: %s is damaged at byte %d: %s", e.File, e.Offset, e.Reason)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *CorruptionError) Unwrap() error { return e.Err }

// FormatError says that a file was written by a newer program.
type FormatError struct {
	File           string
	Version, Known uint32
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("metalog: %s has format version %d; this program knows up to %d", e.File, e.Version, e.Known)
}

// OutOfRangeError says that an offset is not in [Start, End] of the log.
type OutOfRangeError struct{ Offset, Start, End int64 }

func (e *OutOfRangeError) Error() string {
	return fmt.Sprintf("metalog: offset %d is outside the log [%d, %d)", e.Offset, e.Start, e.End)
}

// SnapshotMissingError says that a log starts at Start while the newest usable
// snapshot ends at Have (0 when there is none): the batches between are gone.
type SnapshotMissingError struct{ Have, Start int64 }

func (e *SnapshotMissingError) Error() string {
	return fmt.Sprintf("metalog: the log starts at offset %d, but no snapshot holds what comes before it (have everything up to %d)", e.Start, e.Have)
}

// BatchTooLargeError refuses one atomic change that does not fit into a batch.
type BatchTooLargeError struct{ Size, Max int }

func (e *BatchTooLargeError) Error() string {
	return fmt.Sprintf("metalog: one change encodes to %d bytes; at most %d are allowed", e.Size, e.Max)
}
