package segment

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// Digest is the BLAKE3-256 hash of a sealed file: its identity. It prints, and
// travels in JSON, as 64 lower-case hex digits.
type Digest [32]byte

// SHA256 is the SHA-256 of a sealed file, computed once at the seal for people
// and for tools that speak nothing else (sha256sum, Repr-Digest).
type SHA256 [32]byte

// RowsDigest is the XXH3-128 over a segment's rows (see RowsHasher): it tells
// equal rows from equal bytes, so that files that two builders sealed
// differently can still be known to say the same.
type RowsDigest [16]byte

// ParseDigest reads what Digest.String wrote.
func ParseDigest(s string) (d Digest, err error) {
	if s == "" {
		return d, errors.New("segment: no digest given")
	}
	return d, parseHex(d[:], s, "digest")
}

// ParseETag reads what Digest.ETag wrote.
func ParseETag(s string) (Digest, error) {
	hexDigits, ok := strings.CutPrefix(s, etagPrefix)
	if !ok || !strings.HasSuffix(hexDigits, `"`) {
		return Digest{}, fmt.Errorf("segment: entity tag %q is not %s<digest>\"", abridge(s), etagPrefix)
	}
	return ParseDigest(strings.TrimSuffix(hexDigits, `"`))
}

// String returns the digest in hex.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// Short is the first 16 hex digits, the part that file names and keys carry.
func (d Digest) Short() string { return hex.EncodeToString(d[:shortDigits/2]) }

// IsZero reports whether the digest is unset; no file has the zero digest.
func (d Digest) IsZero() bool { return d == Digest{} }

// ETag is the strong HTTP entity tag of the file.
func (d Digest) ETag() string { return etagPrefix + d.String() + `"` }

const etagPrefix = `"b3-`

// ReprDigest is the value of the HTTP header Repr-Digest (RFC 9530).
func (s SHA256) ReprDigest() string {
	return "sha-256=:" + base64.StdEncoding.EncodeToString(s[:]) + ":"
}

func (d Digest) MarshalText() ([]byte, error)      { return hexText(d[:]), nil }
func (d *Digest) UnmarshalText(b []byte) error     { return parseHex(d[:], string(b), "digest") }
func (s SHA256) String() string                    { return hex.EncodeToString(s[:]) }
func (s SHA256) MarshalText() ([]byte, error)      { return hexText(s[:]), nil }
func (s *SHA256) UnmarshalText(b []byte) error     { return parseHex(s[:], string(b), "sha256") }
func (r RowsDigest) String() string                { return hex.EncodeToString(r[:]) }
func (r RowsDigest) MarshalText() ([]byte, error)  { return hexText(r[:]), nil }
func (r *RowsDigest) UnmarshalText(b []byte) error { return parseHex(r[:], string(b), "rowsDigest") }

func hexText(b []byte) []byte { return hex.AppendEncode(nil, b) }

// parseHex fills dst from lower-case hex of exactly its size; anything else,
// upper case included, is refused so that a digest has one spelling. The empty
// string is the zero value, which JSON needs for fields not yet known.
func parseHex(dst []byte, s, what string) error {
	if s == "" {
		clear(dst)
		return nil
	}
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(dst) || hex.EncodeToString(b) != s {
		return fmt.Errorf("segment: %s %q is not %d lower-case hex digits", what, abridge(s), 2*len(dst))
	}
	copy(dst, b)
	return nil
}

// Info is what the seal learnt about a file; the segment's record carries it.
type Info struct {
	Digest     Digest
	SHA256     SHA256
	RowsDigest RowsDigest
	SizeBytes  int64
	// Start and End are the offsets covered, end exclusive.
	Start, End int64
	Rows       int64
	RawBytes   int64
	// MinTimestamp and MaxTimestamp are over the rows' _timestamp column, in
	// milliseconds, NoTimestamp when no row has one.
	MinTimestamp, MaxTimestamp int64
	// LastLeaderEpoch is that of the last row, or NoLeaderEpoch.
	LastLeaderEpoch int32
}
