package snapshots

import (
	"errors"
	"fmt"

	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/peerdl"
	"github.com/shoalstore/shoal/segment"
)

// cause is why a download ended without its snapshot.
type cause string

const (
	causeGone       cause = "gone"       // nobody has it any more
	causeSuperseded cause = "superseded" // another one is wanted
	causeSize       cause = "size"       // it is said to have another size, or to end elsewhere
	causeDigest     cause = "digest"     // it is said to have another digest
	causePosition   cause = "position"   // other bytes came than were asked for
	causeExcess     cause = "excess"     // more bytes came than were asked for
	causeShort      cause = "short"      // it is said to end before its size
	causeBytes      cause = "bytes"      // what came was damaged, and nobody is left to ask
	causeContent    cause = "content"    // all came as announced, and it is no good snapshot
	causeOther      cause = "other"      // nobody could be reached, or the disk failed
)

var causes = []cause{
	causeGone, causeSuperseded, causeSize, causeDigest, causePosition, causeExcess, causeShort, causeBytes, causeContent, causeOther,
}

// Error makes a cause the Cause of a peerdl.DeceptionError.
func (c cause) Error() string { return string(c) }

// deceived is that a source has another snapshot, or does not keep to the protocol: it is
// not asked again in this download.
func deceived(c cause, format string, args ...any) error {
	return &peerdl.DeceptionError{What: fmt.Sprintf(format, args...), Lasting: true, Cause: c}
}

// dropsPartial tells when what was downloaded is of no more use. Each piece of it is
// proven, so that it can be trusted, but the snapshot may not be to be had as it was named.
func (c cause) dropsPartial() bool { return c != causeBytes && c != causeOther }

// judge says why a download failed.
func judge(err error) cause {
	var none *peerdl.NoSourceError
	switch {
	case errors.Is(err, metalog.ErrNotTheSnapshot):
		return causeContent
	case !errors.As(err, &none) || len(none.Sources) == 0:
		return causeOther
	}
	found := causeGone
	for _, s := range none.Sources {
		switch c := causeOf(s.Err); {
		case c == causeOther:
			return causeOther // it may have the snapshot, and come back
		case found == causeGone:
			found = c
		}
	}
	return found
}

// causeOf says what one source did.
func causeOf(err error) cause {
	var c cause
	var refusal *httpx.Error
	switch {
	case errors.As(err, &c):
		return c
	case errors.As(err, new(*segment.RootError)):
		return causeDigest // its piece list is of other bytes
	case errors.As(err, new(*peerdl.DeceptionError)):
		return causeBytes
	case errors.As(err, &refusal) && refusal.Code == metalog.CodeSnapshotNotFound:
		return causeGone
	}
	return causeOther
}

// failed is what Fetch returns for err: the follower tells the causes apart by the errors
// of metalog.
func (c cause) failed(ref metalog.SnapshotRef, err error) error {
	switch {
	case c == causeGone:
		return fmt.Errorf("snapshots: %s: %w: %w", ref.SnapshotID, metalog.ErrSnapshotNotFound, err)
	case c == causeOther, errors.Is(err, metalog.ErrNotTheSnapshot):
		return fmt.Errorf("snapshots: %s: %w", ref.SnapshotID, err)
	}
	return fmt.Errorf("snapshots: %s: %w (%s): %w", ref.SnapshotID, metalog.ErrNotTheSnapshot, c, err)
}
