package deepstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/errgroup"
)

const (
	// s3PartsAtOnce are sent at the same time by one upload. Each is read from the
	// source as it goes; none is held in memory.
	s3PartsAtOnce = 4
	// abortMax bounds the attempt to clean up, which may be one of a process that
	// is about to end.
	abortMax = 15 * time.Second
)

// multipart puts an object in parts. The upload is aborted if it is certain that
// no object comes of it, or that there is one. While that is not known it stays:
// the next Put makes another, and Sweep aborts what is a day old.
func (u *s3Upload) multipart(ctx context.Context) error {
	bucket, name := u.names(u.key)
	// An upload whose answer was lost is one that Sweep finds.
	created, err := retry(ctx, timeFor(0), func(ctx context.Context) (*s3.CreateMultipartUploadOutput, error) {
		return u.client.api.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{
			Bucket: bucket, Key: name, Metadata: u.metadata(), ChecksumAlgorithm: types.ChecksumAlgorithmSha256,
		})
	})
	if err != nil {
		return u.wrapPut(err)
	}
	id := created.UploadId
	done, err := u.sendParts(ctx, id)
	if err != nil {
		return errors.Join(u.wrapPut(err), u.abort(ctx, id))
	}
	adopted, err := u.publish(ctx, completeTime(len(u.parts)), func(ctx context.Context, ifNoneMatch *string) error {
		_, err := u.client.api.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
			Bucket: bucket, Key: name, UploadId: id, IfNoneMatch: ifNoneMatch,
			MultipartUpload: &types.CompletedMultipartUpload{Parts: done},
		})
		return err
	})
	switch {
	case adopted:
		u.abort(ctx, id) // best effort: the object stands, and what is left is swept
	case leftBehind(err):
		return errors.Join(err, u.abort(ctx, id))
	}
	return err
}

// leftBehind says whether an upload that ended so has parts that nobody wants:
// the object is another one, or there never will be one.
func leftBehind(err error) bool {
	var s3err *S3Error
	return errors.Is(err, ErrDifferent) || errors.As(err, &s3err) && faultOf(s3err.cause) == faultRefused
}

// completeTime bounds the joining of parts, for which S3 allows itself minutes.
func completeTime(parts int) time.Duration {
	return 2*time.Minute + time.Duration(parts)*100*time.Millisecond
}

// partError says which part could not be sent.
type partError struct {
	number, of int
	err        error
}

func (e *partError) Error() string { return fmt.Sprintf("part %d of %d: %v", e.number, e.of, e.err) }
func (e *partError) Unwrap() error { return e.err }

// sendParts sends all parts, a few at a time. Its errors are the SDK's.
func (u *s3Upload) sendParts(ctx context.Context, id *string) ([]types.CompletedPart, error) {
	done := make([]types.CompletedPart, len(u.parts))
	group, sending := errgroup.WithContext(ctx)
	group.SetLimit(s3PartsAtOnce)
	for i, part := range u.parts {
		if sending.Err() != nil {
			break // one has failed, or the caller has gone: Wait says which
		}
		group.Go(func() error {
			sent, err := retry(sending, timeFor(part.size*s3PartsAtOnce), func(ctx context.Context) (*s3.UploadPartOutput, error) {
				return u.sendPart(ctx, id, i, part)
			})
			if err != nil {
				return &partError{i + 1, len(u.parts), err}
			}
			done[i] = types.CompletedPart{
				PartNumber: aws.Int32(int32(i + 1)), ETag: sent.ETag, ChecksumSHA256: aws.String(base64Of(part.sha256)),
			}
			return nil
		})
	}
	err := group.Wait()
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return done, err
}

func (u *s3Upload) sendPart(ctx context.Context, id *string, i int, part s3Part) (*s3.UploadPartOutput, error) {
	bucket, name := u.names(u.key)
	body := newS3Body(u.source, part)
	out, err := u.client.api.UploadPart(ctx, &s3.UploadPartInput{
		Bucket: bucket, Key: name, UploadId: id, PartNumber: aws.Int32(int32(i + 1)),
		Body: body, ContentLength: aws.Int64(part.size),
		ChecksumAlgorithm: types.ChecksumAlgorithmSha256, ChecksumSHA256: aws.String(base64Of(part.sha256)),
	}, signed(part.sha256))
	return out, body.close(err)
}

// abort gives up an upload. The caller's context may be what ended it.
func (u *s3Upload) abort(ctx context.Context, id *string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortMax)
	defer cancel()
	if err := u.s3Store.abort(ctx, u.key, id); err != nil {
		return fmt.Errorf("and its parts stay in S3 until they are swept in a day: %w", err)
	}
	return nil
}
