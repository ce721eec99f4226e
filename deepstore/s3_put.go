package deepstore

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/middleware"

	"github.com/shoalstore/shoal/segment"
)

func (s *s3Store) Put(ctx context.Context, key string, r io.ReaderAt, size int64, digest segment.Digest) error {
	if err := checkPut(key, size, digest); err != nil {
		return err
	}
	u := &s3Upload{s3Store: s, key: key, source: r, size: size, digest: digest}
	if err := u.look(ctx); !errors.Is(err, ErrNotFound) {
		return err // adopted, or not to be replaced, or not known
	}
	var err error
	if u.parts, err = sumParts(ctx, r, size, digest); err != nil {
		return fmt.Errorf("deepstore: put %s: %w", s.uri(key), err)
	}
	if len(u.parts) == 1 {
		_, err := u.whole(ctx)
		return err
	}
	return u.multipart(ctx)
}

// s3Upload is one Put.
type s3Upload struct {
	*s3Store
	key    string
	source io.ReaderAt
	size   int64
	digest segment.Digest
	parts  []s3Part
}

// look compares what is under the key with what is to be there.
func (u *s3Upload) look(ctx context.Context) error {
	head, err := u.head(ctx, u.key)
	if err != nil {
		return u.wrap("put", u.uri(u.key), err)
	}
	return u.compare(ctx, head, u.key, u.size, u.digest)
}

// whole puts an object in one request.
func (u *s3Upload) whole(ctx context.Context) (adopted bool, err error) {
	bucket, name := u.names(u.key)
	part := u.parts[0]
	return u.publish(ctx, timeFor(u.size), func(ctx context.Context, ifNoneMatch *string) error {
		body := newS3Body(u.source, part)
		_, err := u.client.api.PutObject(ctx, &s3.PutObjectInput{
			Bucket: bucket, Key: name, Body: body, ContentLength: aws.Int64(part.size), IfNoneMatch: ifNoneMatch,
			ChecksumAlgorithm: types.ChecksumAlgorithmSha256, ChecksumSHA256: aws.String(base64Of(part.sha256)),
			Metadata: u.metadata(),
		}, signed(part.sha256))
		return body.close(err)
	})
}

func (u *s3Upload) metadata() map[string]string {
	return map[string]string{metaDigest: u.digest.String(), metaSHA256: sumShown(u.parts)}
}

// publish sends the request that makes the object visible, on the condition that
// there is none. After every answer that leaves open what became of it, what is
// there is looked at: an object may stand behind a 503, and may be ours behind a
// 412. An endpoint that answers 412 and has no object, twice, has a leftover of one
// that it could not keep (its disk was full, or somebody went about behind its back)
// and would say so for ever: it is asked without the condition then.
// Nothing is ever deleted. adopted: the object stands, and it is not certain
// that this request has made it.
func (u *s3Upload) publish(ctx context.Context, limit time.Duration, send func(ctx context.Context, ifNoneMatch *string) error) (adopted bool, err error) {
	leftovers := 0
	for try := 1; ; try++ {
		var condition *string
		if !u.unconditional.Load() && leftovers < tries-1 {
			condition = aws.String("*")
		}
		_, err := once(ctx, limit, func(ctx context.Context) (struct{}, error) { return struct{}{}, send(ctx, condition) })
		if err == nil {
			return false, nil
		}
		status, _ := answerOf(err)
		if status == http.StatusNotImplemented && condition != nil {
			u.unconditional.Store(true)
			try--
			continue
		}
		fault := faultOf(err)
		if ctx.Err() != nil || fault == faultRefused || fault == faultHere {
			return false, u.wrap("put", u.uri(u.key), err)
		}
		if seen := u.look(ctx); !errors.Is(seen, ErrNotFound) {
			if seen == nil || errors.Is(seen, ErrDifferent) {
				return seen == nil, seen
			}
			return false, errors.Join(u.wrap("put", u.uri(u.key), err), seen)
		}
		if fault == faultExists {
			leftovers++
		}
		if try == tries || fault == faultSlow || fault == faultMissing {
			return false, u.wrapPut(err)
		}
		if pause(ctx, try) != nil {
			return false, u.wrapPut(err)
		}
	}
}

// wrapPut is wrap for a request that is not for an object: that something is
// missing is not ErrNotFound, which Put does not return.
func (u *s3Upload) wrapPut(err error) error {
	wrapped := u.wrap("put", u.uri(u.key), err)
	if errors.Is(wrapped, ErrNotFound) {
		status, code := answerOf(err)
		return &S3Error{Op: "put", URI: u.uri(u.key), Code: code, Status: status, Message: "not found", cause: err}
	}
	return wrapped
}

// signed has a request signed with the SHA-256 of its body, which is known. So an
// endpoint that has never heard of checksums checks it too, and the SDK need not
// read the body to make one.
func signed(sum [32]byte) func(*s3.Options) {
	return s3.WithAPIOptions(func(stack *middleware.Stack) error {
		return stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc("ShoalPayloadHash",
			func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
				return next.HandleFinalize(v4.SetPayloadHash(ctx, hex.EncodeToString(sum[:])), in)
			}), "ComputePayloadHash", middleware.Before)
	})
}
