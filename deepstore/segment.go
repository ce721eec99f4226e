package deepstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/shoalstore/shoal/segment"
)

// Upload puts a segment into the store: the sidecar first, the data last, so
// that whoever finds the data finds its sidecar too. It is idempotent, and an
// upload that broke off is simply done again: an object that has the right
// digest is adopted. It returns the data's key.
//
// A nil return does not make the copy count; the leader's Verify does.
func Upload(ctx context.Context, s Store, name string, data io.ReaderAt, pieces *segment.Pieces) (key string, err error) {
	digest, err := pieces.Root()
	if err != nil {
		return "", fmt.Errorf("deepstore: upload %s: %w", name, err)
	}
	if key, err = DataKey(name, digest); err != nil {
		return "", err
	}
	sidecar, err := pieces.MarshalBinary()
	if err != nil {
		return "", fmt.Errorf("deepstore: upload %s: %w", name, err)
	}
	_, sidecarDigest, err := segment.HashFile(bytes.NewReader(sidecar), int64(len(sidecar)))
	if err != nil {
		return "", fmt.Errorf("deepstore: upload %s: %w", name, err)
	}
	if err := s.Put(ctx, PiecesKey(key), bytes.NewReader(sidecar), int64(len(sidecar)), sidecarDigest); err != nil {
		return "", err
	}
	if err := s.Put(ctx, key, data, pieces.Size, digest); err != nil {
		return "", err
	}
	return key, nil
}

// Remove deletes a segment in the reverse order of Upload: the data first, so
// that no data ever stands without its sidecar. Keys that are gone are fine.
func Remove(ctx context.Context, s Store, dataKey string) error {
	if k, err := ParseKey(dataKey); err != nil {
		return err
	} else if k.Pieces {
		return fmt.Errorf("%w %q: want the data's key", ErrBadKey, dataKey)
	}
	if err := s.Delete(ctx, dataKey); err != nil {
		return err
	}
	return s.Delete(ctx, PiecesKey(dataKey))
}

// VerifySegment is what the leader does before it counts a copy: the store
// vouches for the data, and the sidecar is there and belongs to it.
func VerifySegment(ctx context.Context, s Store, dataKey string, size int64, digest segment.Digest) error {
	if err := s.Verify(ctx, dataKey, size, digest); err != nil {
		return err
	}
	_, err := readPieces(ctx, s, dataKey, size, digest)
	return err
}

func readPieces(ctx context.Context, s Store, dataKey string, size int64, digest segment.Digest) (*segment.Pieces, error) {
	key := PiecesKey(dataKey)
	info, err := s.Head(ctx, key)
	if err != nil {
		return nil, err
	}
	want := segment.SidecarSize(size)
	if info.SizeBytes != want {
		return nil, &DifferentError{Key: key, WantSize: want, GotSize: info.SizeBytes}
	}
	r, err := s.Open(ctx, key, 0, want)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(r, want+1))
	if err := errors.Join(err, r.Close()); err != nil {
		return nil, fmt.Errorf("deepstore: read %s: %w", key, err)
	}
	pieces, err := segment.ParsePieces(data, digest)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrDifferent, key, err)
	}
	if pieces.Size != size {
		return nil, fmt.Errorf("%w: %s is of a file of %d bytes, not %d", ErrDifferent, key, pieces.Size, size)
	}
	return pieces, nil
}

// Object is a segment in a store as a source of a download: it has the shape of
// peerdl.Fetcher.
type Object struct {
	Store Store
	Key   string // the data's
}

// Fetch reads the bytes [off, off+n) of the data.
func (o Object) Fetch(ctx context.Context, off, n int64) (io.ReadCloser, error) {
	return o.Store.Open(ctx, o.Key, off, n)
}

// Pieces reads the sidecar.
func (o Object) Pieces(ctx context.Context) (io.ReadCloser, error) {
	return o.Store.Open(ctx, PiecesKey(o.Key), 0, -1)
}
