package peerdl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Fetcher reads one immutable resource at one place: a peer over HTTP
// (NewHTTPFetcher), an object of a deep store (deepstore.Object has this
// shape), a local file. It only carries bytes; the downloader verifies them.
//
// Errors that say what is to be done with the source: *BusyError (ask again
// later, nothing is wrong), *DeceptionError (it answered something else than
// it was asked), fs.ErrNotExist (it has no such resource). Any other error
// counts as "not reachable just now".
type Fetcher interface {
	// Fetch returns a reader of exactly the bytes [off, off+n). The caller
	// closes it. Cancelling ctx ends a Read that is blocked.
	Fetch(ctx context.Context, off, n int64) (io.ReadCloser, error)
	// Pieces returns the encoded sidecar.
	Pieces(ctx context.Context) (io.ReadCloser, error)
}

// Source is a place that is said to have the resource.
type Source struct {
	// Name is for messages and statistics: a node's id or a URI. Empty means URL.
	Name string
	// URL is the resource's address on a peer; URL + "/pieces" is its sidecar.
	// Not used when Fetcher is set.
	URL     string
	Fetcher Fetcher
	// DeepStore says that it is read on the budget of deep stores, not of peers.
	DeepStore bool
	// Zone is preferred when it equals the request's.
	Zone string
	// Rank orders the sources by policy: one of a higher rank is asked only
	// while none of a lower rank can be.
	Rank int
}

func (s Source) name() string {
	if s.Name != "" {
		return s.Name
	}
	return s.URL
}

// BusyError says that a source works but wants to be asked later.
type BusyError struct {
	// RetryAfter is what the source asked for, 0 if it did not say.
	RetryAfter time.Duration
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("busy, asks to come again after %s", e.RetryAfter)
}

// DeceptionError says that a source answered with something else than it was
// asked for: bad bytes, another range, another resource. Lasting means that the
// whole source holds something else (another ETag or size), so that asking it
// for other pieces is pointless too.
type DeceptionError struct {
	What    string
	Lasting bool
	Cause   error
}

func (e *DeceptionError) Error() string {
	if e.Cause != nil {
		return e.What + ": " + e.Cause.Error()
	}
	return e.What
}

func (e *DeceptionError) Unwrap() error { return e.Cause }

// ErrStalled says that a source sent nothing for the idle time-out.
var ErrStalled = errors.New("peerdl: no byte arrived for the idle time-out")

// NoSourceError says that no source is left that could give what is missing,
// and what each said last. The .part stays: a later Download with other
// sources continues it.
type NoSourceError struct {
	// Missing is the number of pieces not yet held, -1 if not even the piece
	// list could be had.
	Missing int
	Sources []SourceFault
}

// SourceFault is the last thing a source said.
type SourceFault struct {
	Source string
	Err    error // nil: it was never asked
}

func (e *NoSourceError) Error() string {
	var b strings.Builder
	if e.Missing < 0 {
		b.WriteString("peerdl: no source gives the piece list")
	} else {
		fmt.Fprintf(&b, "peerdl: no source is left for %d pieces", e.Missing)
	}
	for i, s := range e.Sources {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		if s.Err == nil {
			fmt.Fprintf(&b, "%s%s was not asked", sep, s.Source)
		} else {
			fmt.Fprintf(&b, "%s%s: %v", sep, s.Source, s.Err)
		}
	}
	if len(e.Sources) == 0 {
		b.WriteString(": no sources were given")
	}
	return b.String()
}

// Unwrap lets errors.Is and errors.As look at what the sources said.
func (e *NoSourceError) Unwrap() []error {
	var errs []error
	for _, s := range e.Sources {
		if s.Err != nil {
			errs = append(errs, s.Err)
		}
	}
	return errs
}
