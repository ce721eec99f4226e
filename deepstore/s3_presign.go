package deepstore

import (
	"context"
	"fmt"
	"path"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// Presigner is a store that can let somebody without credentials read an object.
type Presigner interface {
	// PresignGet returns a URL that reads the object for as long as expires, to
	// whoever has it; so it is not to be logged. The store is not asked, whether
	// there is such an object either. The URL is looked at when a request begins:
	// one that has begun goes on. The answer names the file as the store does, so
	// that it is saved under a name that says what it is.
	PresignGet(ctx context.Context, key string, expires time.Duration) (url string, err error)
}

// presignMax is the longest that S3 allows.
const presignMax = 7 * 24 * time.Hour

func (s *s3Store) PresignGet(ctx context.Context, key string, expires time.Duration) (string, error) {
	if _, err := ParseKey(key); err != nil {
		return "", err
	}
	if expires < time.Second || expires > presignMax {
		return "", fmt.Errorf("deepstore: presign %s: for %v, want from 1s to %v", s.uri(key), expires, presignMax)
	}
	bucket, name := s.names(key)
	signed, err := s.client.presign.PresignGetObject(ctx, &s3.GetObjectInput{
		Bucket: bucket, Key: name,
		ResponseContentDisposition: aws.String(`attachment; filename="` + path.Base(key) + `"`), // a key has nothing to quote
	}, s3.WithPresignExpires(expires))
	if err != nil {
		return "", s.wrap("presign", s.uri(key), err)
	}
	return signed.URL, nil
}
