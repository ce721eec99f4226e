package segment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/shoalstore/shoal/internal/vfs"
)

// DamageError says that a copy is not what it should be.
type DamageError struct {
	Held Held
	// Pieces are the damaged pieces, ascending. It is empty when they cannot be
	// told, for want of a proven list, and when the data only has bytes too many.
	Pieces []int
	// Sidecar is true when the data is good, or not known to be bad, and the
	// sidecar is not: the copy need not go, RepairSidecar may be enough. Pieces
	// are then the damaged entries.
	Sidecar bool
	Problem string
	// Cause is the error below, if there is one.
	Cause error
}

func (e *DamageError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "segment: %s is damaged: %s", describe(e.Held), e.Problem)
	if n := len(e.Pieces); n > 0 {
		const most = 8
		fmt.Fprintf(&b, " (pieces %v", e.Pieces[:min(n, most)])
		if n > most {
			fmt.Fprintf(&b, " and %d more", n-most)
		}
		b.WriteByte(')')
	}
	if e.Cause != nil {
		fmt.Fprintf(&b, ": %v", e.Cause)
	}
	return b.String()
}

func (e *DamageError) Unwrap() error { return e.Cause }

// Verify reads a copy in full and proves it, data and sidecar. Damage is a
// *DamageError that names the pieces. It changes nothing but Held.Verified: what
// to do with a damaged copy (RepairSidecar, Quarantine) is the caller's.
func (s *Store) Verify(ctx context.Context, h Held) error {
	h, unpin, err := s.pin(h)
	if err != nil {
		return err
	}
	defer unpin()
	if err := s.verify(ctx, h); err != nil {
		return err
	}
	s.mu.Lock()
	if c := s.index.byFile[h.file]; c != nil {
		c.held.Verified = s.now()
	}
	s.mu.Unlock()
	return nil
}

func (s *Store) verify(ctx context.Context, h Held) error {
	listed, sidecarErr := s.readSidecar(h.file, h.Digest)
	found, digest, err := s.hashCopy(ctx, h.file)
	var unreadable *readError
	switch {
	case errors.As(err, &unreadable):
		return &DamageError{Held: h, Pieces: []int{unreadable.piece}, Problem: "data cannot be read", Cause: unreadable.err}
	case errors.Is(err, fs.ErrNotExist):
		return &DamageError{Held: h, Problem: "data is missing", Cause: err}
	case errors.Is(err, errEmptyFile):
		return &DamageError{Held: h, Problem: "data is empty"}
	case err != nil:
		return fmt.Errorf("segment: verify %s: %w", h.file, err)
	case digest != h.Digest && sidecarErr != nil:
		return &DamageError{Held: h, Problem: fmt.Sprintf("data hashes to %s, and there is no sidecar to say where it differs", digest), Cause: sidecarErr}
	case digest != h.Digest:
		return &DamageError{Held: h, Pieces: differing(found, listed), Problem: fmt.Sprintf("data of %d bytes hashes to %s", found.Size, digest)}
	case sidecarErr != nil || listed.Size != found.Size:
		return &DamageError{Held: h, Pieces: s.damagedEntries(h, found), Sidecar: true, Problem: "data is good, its sidecar is not", Cause: sidecarErr}
	}
	return nil
}

// damagedEntries compares a sidecar that does not prove with the true list.
func (s *Store) damagedEntries(h Held, truth *Pieces) []int {
	b, err := s.readSmall(sidecarPath(h.file))
	if err != nil {
		return nil
	}
	var p Pieces
	if err := p.UnmarshalBinary(b); err != nil {
		return nil
	}
	return differing(&p, truth)
}

// differing are the pieces in which got is not want; pieces that only got has
// are not among them.
func differing(got, want *Pieces) []int {
	var at []int
	for i := range want.Count() {
		if i >= got.Count() || got.Chaining[i] != want.Chaining[i] {
			at = append(at, i)
		}
	}
	return at
}

// RepairSidecar writes the sidecar of a copy anew, if the data proves to be the
// digest's. Otherwise it returns a *DamageError.
func (s *Store) RepairSidecar(ctx context.Context, h Held) error {
	h, unpin, err := s.pin(h)
	if err != nil {
		return err
	}
	defer unpin()
	defer s.takeTurn(h.file)()
	found, digest, err := s.hashCopy(ctx, h.file)
	if err != nil {
		return fmt.Errorf("segment: repair sidecar of %s: %w", h.file, err)
	}
	if digest != h.Digest {
		return &DamageError{Held: h, Problem: fmt.Sprintf("data of %d bytes hashes to %s", found.Size, digest)}
	}
	if err := s.writeSidecar(h.file, found); err != nil {
		return fmt.Errorf("segment: repair sidecar of %s on %s: %w", h.file, s.fs, err)
	}
	s.logged(s.log.Info(), h).Msg("sidecar repaired")
	return nil
}

// hashCopy hashes all that is in a data file. Failing to read on is a *readError.
func (s *Store) hashCopy(ctx context.Context, file string) (*Pieces, Digest, error) {
	f, err := s.fs.Open(file)
	if err != nil {
		return nil, Digest{}, err
	}
	defer f.Close()
	return hashOpen(ctx, f)
}

// readError says in which piece reading failed.
type readError struct {
	piece int
	err   error
}

func (e *readError) Error() string { return fmt.Sprintf("piece %d cannot be read: %v", e.piece, e.err) }
func (e *readError) Unwrap() error { return e.err }

func hashOpen(ctx context.Context, f vfs.File) (*Pieces, Digest, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, Digest{}, err
	}
	var h PieceHasher
	buf := make([]byte, min(hashBufferSize, info.Size()+1)) // one more, to see the end at once
	for {
		if err := ctx.Err(); err != nil {
			return nil, Digest{}, err
		}
		n, err := f.Read(buf)
		_, _ = h.Write(buf[:n])
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, Digest{}, &readError{piece: int(h.Size() / PieceSize), err: err}
		}
	}
	if h.Size() == 0 {
		return nil, Digest{}, errEmptyFile
	}
	p, d := h.Sum()
	return p, d, nil
}
