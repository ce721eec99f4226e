// Package deepstore keeps durable copies of sealed segments behind the nodes: in
// a directory (file://) or in S3 (s3://), in one layout of content-addressed keys.
//
// It owns the keys (layout.go), the contract of a store (Store, here), its
// implementations (dir.go; s3.go and what is beside it), which of them a process
// may open (open.go), the order in which a segment's two objects are written and
// removed (segment.go), and what an S3 endpoint can do (s3_probe.go, s3_judge.go).
// It knows nothing of records and of when to upload: the node does, and the leader
// counts a copy once it has verified it. A call tries again for a second or so; the
// patience for an outage is the caller's. Start reading here, then segment.go.
//
// Every implementation passes the one behaviour suite in deepstoretest; s3test runs
// a real S3 server, and fails as S3 does.
package deepstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/shoalstore/shoal/segment"
)

// Errors of every store; they come wrapped with the key.
var (
	// ErrNotFound: there is no such object. It matches fs.ErrNotExist, too.
	ErrNotFound error = notFound{}
	// ErrDifferent: there is an object under the key, and it has other bytes.
	// A store never replaces it; see *DifferentError.
	ErrDifferent = errors.New("deepstore: the object has other bytes")
	// ErrBadKey: the key is not one of the layout.
	ErrBadKey = errors.New("deepstore: bad key")
	// ErrBadSource: what was to be uploaded is not what its digest says; nothing
	// was stored.
	ErrBadSource = errors.New("deepstore: the source has other bytes than its digest says")
)

type notFound struct{}

func (notFound) Error() string        { return "deepstore: no such object" }
func (notFound) Is(target error) bool { return target == fs.ErrNotExist }

// DifferentError says how an object differs from what it should be. It matches
// ErrDifferent.
type DifferentError struct {
	Key               string
	WantSize, GotSize int64
	WantDigest        segment.Digest
	GotDigest         segment.Digest // zero if the sizes already differ
}

func (e *DifferentError) Error() string {
	if e.GotSize != e.WantSize {
		return fmt.Sprintf("deepstore: %s has %d bytes, want %d", e.Key, e.GotSize, e.WantSize)
	}
	return fmt.Sprintf("deepstore: %s has digest %s, want %s", e.Key, e.GotDigest, e.WantDigest)
}

func (e *DifferentError) Is(target error) bool { return target == ErrDifferent }

// Info is what a store says of an object without reading it.
type Info struct {
	Key       string
	SizeBytes int64
	ModTime   time.Time
}

// Store is a set of immutable objects. All methods are safe for concurrent use,
// by several processes too, and end with ctx.
//
// After an error other than those above the outcome of Put and Delete is
// unknown: the store may have acted. Both may simply be called again; to learn
// the truth without acting, call Verify. Nothing is ever deleted because an
// answer was unclear.
type Store interface {
	// Put stores size bytes of r under key; digest is their BLAKE3. When it
	// returns nil the object is durable, complete, and has been checked against
	// the digest on its way. An object that is already there is never replaced:
	// with the same bytes it is adopted (nil), with others it is ErrDifferent.
	// Readers see the whole object or none.
	Put(ctx context.Context, key string, r io.ReaderAt, size int64, digest segment.Digest) error
	// Head returns size and time of an object, or ErrNotFound. It is cheap and
	// proves nothing of the content.
	Head(ctx context.Context, key string) (Info, error)
	// Verify is what a copy must pass to be counted. It returns nil only if the
	// store vouches, by a checksum over the stored bytes, that the object has
	// this size and digest; else ErrNotFound or ErrDifferent. What that costs
	// differs. A directory, which keeps no checksums, is read and hashed. S3 is
	// asked by a HEAD: it shows the SHA-256 that it verified when the object was
	// put, and the object's metadata says which SHA-256 the bytes with this digest
	// have. So an object that was replaced is found, and one whose bytes rot inside
	// S3 is not: to find those is S3's business, and readers verify each piece. An
	// object that S3 does not vouch for so is read and hashed, too.
	Verify(ctx context.Context, key string, size int64, digest segment.Digest) error
	// Open reads n bytes from off on; n < 0 means to the end. A range that leaves
	// the object is an error. The bytes are not verified. The caller closes it.
	Open(ctx context.Context, key string, off, n int64) (io.ReadCloser, error)
	// List returns up to limit objects whose keys start with prefix and are above
	// after, sorted by key. Fewer than limit means that there are no more.
	List(ctx context.Context, prefix, after string, limit int) ([]Info, error)
	// Delete removes an object durably. One that is not there is no error.
	Delete(ctx context.Context, key string) error
	// String is the store's URI, for messages.
	String() string
}
