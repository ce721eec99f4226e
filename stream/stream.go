// Package stream reads one partition of a stream from an offset.
//
// It owns what a stream looks like to the rest of Shoal (Source, Reader, Batch,
// in this file) and one kind of stream, a directory of append-only files
// (files.go: which partitions there are and how one is opened; tail.go: the
// reader; index.go: where lines begin). It keeps no position: how far a
// partition was read is in the segments' records, and a reader is opened at the
// offset that such a record names. It decodes nothing, so a row that is not
// JSON is no concern of this package. Start reading here, then files.go.
package stream

import (
	"context"
	"errors"
	"fmt"

	"github.com/shoalstore/shoal/segment"
)

// MaxRowBytes is the largest value of a row, 32 MiB; a larger one ends the
// reader with a *RowTooLargeError.
const MaxRowBytes = 32 << 20

// ErrNoStream says that the stream, or the partition that was asked for, is not
// there. The wrapping error names the directory or file.
var ErrNoStream = errors.New("no such stream")

// Source is a stream: a set of partitions that can be read from any offset.
// Its methods are safe for concurrent use.
type Source interface {
	// Partitions lists the partitions that exist now, sorted by number. No
	// stream there: ErrNoStream.
	Partitions(ctx context.Context) ([]Partition, error)
	// Open opens a partition so that the first row read has the first offset
	// ≥ offset. Opening at the end is right, the reader then waits for rows.
	// ctx bounds the opening only. Past the end: *TruncatedError.
	Open(ctx context.Context, partition int32, offset int64) (Reader, error)
}

// Partition is what a stream knows of one of its partitions.
type Partition struct {
	Partition int32
	// Earliest is the first offset that can still be read, End the offset the
	// next row to be written will have.
	Earliest, End int64
	// Epoch is the identity of the stream: a stream that was made anew under
	// an old name has another one.
	Epoch string
}

// Reader yields the rows of one partition in order. It is used by one
// goroutine; only Close may be called from another.
type Reader interface {
	// Read waits for rows and returns at least one position of progress:
	// rows, or a Next that moved past a gap. It returns ctx's error when ctx
	// ends first, and the reader can be used again. Any other error is final.
	Read(ctx context.Context) (Batch, error)
	// Close releases the reader and ends a Read that waits. It may be called
	// again.
	Close() error
}

// Batch is what one Read returned.
type Batch struct {
	// Rows belong to the receiver. Rows of a batch may share one block of
	// memory, so a row that is kept keeps up to a batch of bytes with it.
	Rows []segment.Row
	// Next is the position after the batch: the offset to open at in order to
	// go on. It can be past the last row's offset + 1 where the stream has gaps.
	Next int64
	// End is the end of the partition as far as it is known now, never below
	// Next. It lags behind Source.Partitions while a reader that is far behind
	// catches up.
	End int64
	// Epoch is the stream's epoch under which the rows were read.
	Epoch string
}

// TruncatedError says that a partition has fewer rows than the offset that was
// wanted, or that its file is no longer the one that was being read: rows that
// were counted on are gone, and going on would lose or double some.
type TruncatedError struct {
	// File is the partition's file and Lines the complete lines it has now.
	File  string
	Lines int64
	// Offset is the one wanted next.
	Offset int64
	// Rewritten says that the file was removed, replaced by another, or
	// rewritten in place, whatever number of lines it has.
	Rewritten bool
}

func (e *TruncatedError) Error() string {
	what := "was truncated"
	if e.Rewritten {
		what = "was replaced or rewritten"
	}
	return fmt.Sprintf("stream: %s %s: it has %d complete lines, offset %d is wanted next", e.File, what, e.Lines, e.Offset)
}

// RowTooLargeError says that a row is larger than MaxRowBytes.
type RowTooLargeError struct {
	File string
	// Line counts from 0: it is the row's offset.
	Line int64
	// Size is the row's in bytes, without the newline.
	Size int64
}

func (e *RowTooLargeError) Error() string {
	return fmt.Sprintf("stream: %s: line %d (from 0) has %d bytes, more than the %d a row may have", e.File, e.Line, e.Size, MaxRowBytes)
}

// EpochChangedError says that a stream was made anew while it was read: offsets
// of the old one mean nothing in the new one.
type EpochChangedError struct {
	// Dir is the stream's directory.
	Dir      string
	Was, Now string
}

func (e *EpochChangedError) Error() string {
	return fmt.Sprintf("stream: %s is another stream now: its epoch was %s and is %s", e.Dir, e.Was, e.Now)
}
