package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// makeBucket makes the bucket of the settings, as a client of the gateway at
// addr: a bucket is more than its directory. One that is there is fine.
func makeBucket(ctx context.Context, s settings, addr string) error {
	if s.bucket == "" {
		return nil
	}
	client := s3.New(s3.Options{
		BaseEndpoint: aws.String("http://" + addr), Region: s.region, UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(s.access, s.secret, ""),
	})
	_, err := client.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: &s.bucket})
	if err != nil && !errors.As(err, new(*types.BucketAlreadyOwnedByYou)) {
		return fmt.Errorf("bucket %s: %w", s.bucket, err)
	}
	return nil
}
