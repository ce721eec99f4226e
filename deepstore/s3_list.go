package deepstore

import (
	"context"
	"fmt"
	"net/url"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// List asks for pages until it has enough: what is not of the layout is not in
// the result, and does not count.
func (s *s3Store) List(ctx context.Context, prefix, after string, limit int) ([]Info, error) {
	if limit <= 0 {
		return nil, nil
	}
	in := &s3.ListObjectsV2Input{
		Bucket: aws.String(s.place.bucket), MaxKeys: aws.Int32(int32(min(limit, 1000))), EncodingType: types.EncodingTypeUrl,
	}
	if p := s.place.key(prefix); p != "" {
		in.Prefix = &p
	}
	if after != "" {
		in.StartAfter = aws.String(s.place.key(after))
	}
	var out []Info
	for {
		page, err := retry(ctx, timeFor(0), func(ctx context.Context) (*s3.ListObjectsV2Output, error) {
			return s.client.api.ListObjectsV2(ctx, in)
		})
		if err != nil {
			return nil, s.wrap("list", s.uri(prefix), err)
		}
		for _, o := range page.Contents {
			key, ours := s.keyOf(plainKey(page.EncodingType, o.Key))
			if !ours || key <= after {
				continue
			}
			if out = append(out, Info{Key: key, SizeBytes: aws.ToInt64(o.Size), ModTime: aws.ToTime(o.LastModified)}); len(out) == limit {
				return out, nil
			}
		}
		if !aws.ToBool(page.IsTruncated) || aws.ToString(page.NextContinuationToken) == "" {
			return out, nil
		}
		if aws.ToString(in.ContinuationToken) == *page.NextContinuationToken {
			return nil, fmt.Errorf("deepstore: list %s: the answer sends on to itself", s.uri(prefix))
		}
		in.ContinuationToken = page.NextContinuationToken
	}
}

// plainKey is a key of a listing. They are asked for in the encoding of URLs: others may
// have objects in the bucket whose names no XML can have, and one of those would be the
// end of every listing. An endpoint that does not know the encoding says so by not
// naming it.
func plainKey(encoding types.EncodingType, key *string) string {
	if encoding == types.EncodingTypeUrl {
		if plain, err := url.QueryUnescape(aws.ToString(key)); err == nil {
			return plain
		}
	}
	return aws.ToString(key)
}
