package deepstore

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/shoalstore/shoal/internal/schedule"
	"github.com/shoalstore/shoal/segment"
)

// s3Store keeps objects below a prefix of a bucket. Any number of processes may
// use one.
//
// Every byte that is sent travels with its SHA-256, which S3 checks before an
// object, or a part of one, is there. The SHA-256s are made in the one reading of
// the source that also proves it against its BLAKE3 (s3_sums.go), before anything
// is sent. So what S3 has is what the digest names, whatever the source or the
// network does meanwhile. An object says both in its metadata: with a HEAD anyone
// can see that the checksum which S3 shows is the one of the bytes with that digest.
type s3Store struct {
	client *s3Client
	place  s3Place
	// unconditional is set once the endpoint has said that it does not know
	// If-None-Match. Keys are content-addressed: what it protects from, others'
	// bytes under our key, is refused by the HEAD before the PUT too, up to a race.
	unconditional atomic.Bool
}

// An object's metadata.
const (
	metaDigest = "shoal-blake3" // of the whole, hex
	metaSHA256 = "shoal-sha256" // as S3 shows it: base64, of the whole or of its parts' (with "-<parts>")
)

// NewS3 returns the store at uri, s3://bucket/prefix. It asks S3 nothing.
func NewS3(uri string, cfg S3Config) (Store, error) {
	place, err := parseS3(uri)
	if err != nil {
		return nil, err
	}
	client, err := newS3Client(cfg)
	if err != nil {
		return nil, err
	}
	return &s3Store{client: client, place: place}, nil
}

func (s *s3Store) String() string { return s.place.String() }

func (s *s3Store) uri(key string) string { return URI(s.place.String(), key) }

// names are bucket and key of an object as the SDK wants them.
func (s *s3Store) names(key string) (bucket, name *string) {
	return aws.String(s.place.bucket), aws.String(s.place.key(key))
}

func (s *s3Store) Head(ctx context.Context, key string) (Info, error) {
	if _, err := ParseKey(key); err != nil {
		return Info{}, err
	}
	head, err := s.head(ctx, key)
	if err != nil {
		return Info{}, s.missing(ctx, "head", key, err)
	}
	return Info{Key: key, SizeBytes: aws.ToInt64(head.ContentLength), ModTime: aws.ToTime(head.LastModified)}, nil
}

// head asks for an object's facts, its checksum among them. Its errors are the
// SDK's.
func (s *s3Store) head(ctx context.Context, key string) (*s3.HeadObjectOutput, error) {
	bucket, name := s.names(key)
	return retry(ctx, timeFor(0), func(ctx context.Context) (*s3.HeadObjectOutput, error) {
		return s.client.api.HeadObject(ctx, &s3.HeadObjectInput{Bucket: bucket, Key: name, ChecksumMode: types.ChecksumModeEnabled})
	})
}

// missing wraps the error of a HEAD. That there is no object is believed only if
// there is a bucket: an answer to a HEAD has no body that could tell.
func (s *s3Store) missing(ctx context.Context, op, key string, err error) error {
	wrapped := s.wrap(op, s.uri(key), err)
	if !errors.Is(wrapped, ErrNotFound) {
		return wrapped
	}
	_, err = retry(ctx, timeFor(0), func(ctx context.Context) (*s3.HeadBucketOutput, error) {
		return s.client.api.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: aws.String(s.place.bucket)})
	})
	switch {
	case err == nil, faultOf(err) == faultRefused: // to ask for buckets may be forbidden
		return wrapped
	case faultOf(err) == faultMissing:
		return s.noBucket(op, s.uri(key), err)
	}
	return s.wrap(op, s.uri(key), err)
}

// noBucket is what a HEAD without a body means that finds no bucket.
func (s *s3Store) noBucket(op, uri string, err error) error {
	return &S3Error{Op: op, URI: uri, Code: "NoSuchBucket", Status: http.StatusNotFound, Message: "there is no such bucket", Do: s.advice("NoSuchBucket", http.StatusNotFound, nil), cause: err}
}

func (s *s3Store) Verify(ctx context.Context, key string, size int64, digest segment.Digest) error {
	if _, err := ParseKey(key); err != nil {
		return err
	}
	head, err := s.head(ctx, key)
	if err != nil {
		return s.missing(ctx, "verify", key, err)
	}
	return s.compare(ctx, head, key, size, digest)
}

// compare judges an object by what a HEAD said. Where S3 does not vouch for the
// bytes, because the endpoint keeps no checksums or because somebody else put the
// object there, it is read and hashed.
func (s *s3Store) compare(ctx context.Context, head *s3.HeadObjectOutput, key string, size int64, digest segment.Digest) error {
	different := &DifferentError{Key: key, WantSize: size, GotSize: aws.ToInt64(head.ContentLength), WantDigest: digest}
	if different.GotSize != size || size <= 0 {
		return different
	}
	said := metadata(head.Metadata)
	if raw, err := hex.DecodeString(said[metaDigest]); err == nil && len(raw) == len(digest) {
		if different.GotDigest = segment.Digest(raw); different.GotDigest != digest {
			return different
		}
		if sum := aws.ToString(head.ChecksumSHA256); sum != "" && sum == said[metaSHA256] {
			return nil
		}
	}
	return s.compareBytes(ctx, head, key, size, digest)
}

func (s *s3Store) compareBytes(ctx context.Context, head *s3.HeadObjectOutput, key string, size int64, digest segment.Digest) error {
	body, err := s.open(ctx, key, 0, size, head.ETag)
	if err != nil {
		return err
	}
	got, err := hash(ctx, nil, body, size)
	if err := errors.Join(err, body.Close()); err != nil {
		return fmt.Errorf("deepstore: verify %s: %w", s.uri(key), err)
	}
	if got != digest {
		return &DifferentError{Key: key, WantSize: size, GotSize: size, WantDigest: digest, GotDigest: got}
	}
	return nil
}

// metadata has the names in lower case, whatever the endpoint did to them.
func metadata(m map[string]string) map[string]string {
	out := make(map[string]string, len(m))
	for name, value := range m {
		out[strings.ToLower(name)] = value
	}
	return out
}

func (s *s3Store) Delete(ctx context.Context, key string) error {
	if _, err := ParseKey(key); err != nil {
		return err
	}
	bucket, name := s.names(key)
	_, err := retry(ctx, timeFor(0), func(ctx context.Context) (*s3.DeleteObjectOutput, error) {
		return s.client.api.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: bucket, Key: name})
	})
	if err == nil {
		return nil
	}
	if err = s.wrap("delete", s.uri(key), err); errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// timeFor bounds a request that moves size bytes: nothing waits for ever on a
// connection that is stuck.
func timeFor(size int64) time.Duration { return 30*time.Second + schedule.ForBytes(size) }

// tries is how often a request is sent in one call. What takes longer than a
// moment is for the caller's queue, which never gives up.
const tries = 3

// retry runs a request up to tries times, as long as its answers say that a
// moment later may be better. call must be safe to repeat whatever the one before
// it did.
func retry[T any](ctx context.Context, limit time.Duration, call func(context.Context) (T, error)) (T, error) {
	for try := 1; ; try++ {
		out, err := once(ctx, limit, call)
		if err == nil || try == tries || !faultOf(err).worthARetry() {
			return out, err
		}
		if err := pause(ctx, try); err != nil {
			return out, err
		}
	}
}

// once runs a request within its time.
func once[T any](ctx context.Context, limit time.Duration, call func(context.Context) (T, error)) (T, error) {
	timed, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w (%v)", errNoAnswer, limit))
	defer cancel()
	out, err := call(timed)
	if err != nil && timed.Err() != nil {
		err = context.Cause(timed)
	}
	return out, err
}

// pause waits between two tries: 0.1 to 0.2 s, then four times as long.
func pause(ctx context.Context, try int) error {
	base := 100 * time.Millisecond << (2 * (try - 1))
	timer := time.NewTimer(base + rand.N(base))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func base64Of(sum [32]byte) string { return base64.StdEncoding.EncodeToString(sum[:]) }
