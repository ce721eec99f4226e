package deepstore

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// Sweeper is a store in which an upload that was killed leaves something.
type Sweeper interface {
	// Sweep removes what uploads left that began longer than age ago, and says how
	// many. It touches nothing that is not named like an object of the layout.
	// Younger ones may be other processes' that are still at it.
	Sweep(ctx context.Context, age time.Duration) (swept int, err error)
}

// SweepAge is the age at which an upload is given up by all means.
const SweepAge = 24 * time.Hour

// Sweep aborts multipart uploads. Their parts are in no listing of objects, and
// cost as much as objects do.
func (s *s3Store) Sweep(ctx context.Context, age time.Duration) (swept int, err error) {
	before := time.Now().Add(-age)
	var errs []error
	err = s.uploads(ctx, func(key, id string, began time.Time) {
		if began.After(before) {
			return
		}
		if err := s.abort(ctx, key, &id); err != nil {
			errs = append(errs, err)
			return
		}
		swept++
	})
	return swept, errors.Join(append(errs, err)...)
}

// uploads visits the multipart uploads of keys of the layout, whoever made them.
func (s *s3Store) uploads(ctx context.Context, visit func(key, id string, began time.Time)) error {
	in := &s3.ListMultipartUploadsInput{Bucket: aws.String(s.place.bucket), EncodingType: types.EncodingTypeUrl}
	if s.place.prefix != "" {
		in.Prefix = aws.String(s.place.prefix + "/")
	}
	for {
		page, err := retry(ctx, timeFor(0), func(ctx context.Context) (*s3.ListMultipartUploadsOutput, error) {
			return s.client.api.ListMultipartUploads(ctx, in)
		})
		if err != nil {
			return s.wrap("list uploads of", s.place.String(), err)
		}
		for _, u := range page.Uploads {
			key, ours := s.keyOf(plainKey(page.EncodingType, u.Key))
			if ours && u.UploadId != nil && u.Initiated != nil {
				visit(key, *u.UploadId, *u.Initiated)
			}
		}
		next := plainKey(page.EncodingType, page.NextKeyMarker)
		again := next == aws.ToString(in.KeyMarker) && aws.ToString(page.NextUploadIdMarker) == aws.ToString(in.UploadIdMarker)
		if !aws.ToBool(page.IsTruncated) || again {
			return nil
		}
		in.KeyMarker, in.UploadIdMarker = &next, page.NextUploadIdMarker
	}
}

// keyOf is the layout's key of an object in the bucket, if it has one.
func (s *s3Store) keyOf(name string) (key string, ours bool) {
	if s.place.prefix != "" {
		if name, ours = strings.CutPrefix(name, s.place.prefix+"/"); !ours {
			return "", false
		}
	}
	_, err := ParseKey(name)
	return name, err == nil
}

// abort gives up one upload. One that is not there is no error.
func (s *s3Store) abort(ctx context.Context, key string, id *string) error {
	bucket, name := s.names(key)
	_, err := retry(ctx, timeFor(0), func(ctx context.Context) (*s3.AbortMultipartUploadOutput, error) {
		return s.client.api.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: bucket, Key: name, UploadId: id})
	})
	if _, code := answerOf(err); err == nil || code == "NoSuchUpload" || code == "NoSuchKey" {
		return nil
	}
	return s.wrap("abort upload of", s.uri(key), err)
}
