package zkmeta

import (
	"context"
	"errors"
	"fmt"

	"github.com/shoalstore/shoal/metalog"
)

// readAtOnce is how many entries are asked for in one go; a batch is some hundred
// bytes to half a megabyte.
const readAtOnce = 64

// readTail returns the frames of the entries in [from, to): at least one, and no
// more than readAtOnce or what maxBytes holds. Each was checked: it is one whole
// frame with the batch of that offset.
func readTail(ctx context.Context, c *Conn, from, to int64, maxBytes int) ([]byte, error) {
	var paths []string
	for offset := from; offset < to && len(paths) < readAtOnce; offset++ {
		paths = append(paths, c.Path(entryName(offset)))
	}
	found := make([][]byte, len(paths))
	err := c.Each(ctx, paths, readAtOnce, func(i int, data []byte, _ int32, err error) error {
		switch {
		case errors.Is(err, ErrNoNode):
			return &EntryMissingError{Offset: from + int64(i), Path: paths[i]}
		case err != nil:
			return err
		}
		found[i] = data
		return checkEntry(paths[i], from+int64(i), data)
	})
	if err != nil {
		return nil, err
	}
	var frames []byte
	for _, data := range found {
		if len(frames) > 0 && len(frames)+len(data) > maxBytes {
			break
		}
		frames = append(frames, data...)
	}
	return frames, nil
}

// ReadTail returns frames of the batches from an offset up to the head: at least one
// whole, and not much more than maxBytes. An offset that the tail does not reach back
// to is an *EntryMissingError.
func ReadTail(ctx context.Context, c *Conn, head TailHead, from int64, maxBytes int) ([]byte, error) {
	if from < head.LogStart {
		return nil, &EntryMissingError{Offset: from, Path: c.Path(entryName(from))}
	}
	return readTail(ctx, c, from, head.next(), maxBytes)
}

// EntryMissingError says that the tail does not reach back to an offset: it was
// trimmed, maybe while it was being read.
type EntryMissingError struct {
	Offset int64
	Path   string
}

func (e *EntryMissingError) Error() string {
	return fmt.Sprintf("zkmeta: batch %d is not in ZooKeeper any more (%s)", e.Offset, e.Path)
}

func checkEntry(path string, offset int64, data []byte) error {
	entries, err := metalog.DecodeEntries(data)
	if err != nil {
		return &TreeError{Path: path, Reason: "the entry does not decode", Err: err}
	}
	if len(entries) != 1 || entries[0].Batch.Offset != offset {
		return &TreeError{Path: path, Reason: fmt.Sprintf("it does not hold batch %d, and nothing else", offset)}
	}
	return nil
}
