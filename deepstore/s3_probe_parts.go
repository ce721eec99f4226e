package deepstore

import (
	"bytes"
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// parts puts an object in one part, and tries to put it once more.
func (p *s3Probe) parts(ctx context.Context) error {
	if err := p.onePart(ctx, nil); err != nil {
		return err
	}
	head, err := p.head(ctx, p.name+"-parts")
	if err != nil {
		return err
	}
	p.facts.PartsChecksumShown = aws.ToString(head.ChecksumSHA256) == sumOfParts([]s3Part{{sha256: probeSum()}})
	err = p.onePart(ctx, aws.String("*"))
	p.facts.PartsConditionHonoured = err != nil && faultOf(err) == faultExists
	if status, _ := answerOf(err); p.facts.PartsConditionHonoured || status == 501 {
		return nil
	}
	return err
}

// onePart makes an upload of one part. One that fails is given up.
func (p *s3Probe) onePart(ctx context.Context, ifNoneMatch *string) error {
	bucket, name := p.at("-parts")
	id, err := p.begin(ctx)
	if err != nil {
		return err
	}
	sum := probeSum()
	part, err := once(ctx, timeFor(0), func(ctx context.Context) (*s3.UploadPartOutput, error) {
		return p.client.api.UploadPart(ctx, &s3.UploadPartInput{
			Bucket: bucket, Key: name, UploadId: id, PartNumber: aws.Int32(1), Body: bytes.NewReader(probeData), ContentLength: aws.Int64(int64(len(probeData))),
			ChecksumAlgorithm: types.ChecksumAlgorithmSha256, ChecksumSHA256: aws.String(base64Of(sum)),
		}, signed(sum))
	})
	if err == nil {
		_, err = once(ctx, timeFor(0), func(ctx context.Context) (*s3.CompleteMultipartUploadOutput, error) {
			return p.client.api.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
				Bucket: bucket, Key: name, UploadId: id, IfNoneMatch: ifNoneMatch,
				MultipartUpload: &types.CompletedMultipartUpload{Parts: []types.CompletedPart{
					{PartNumber: aws.Int32(1), ETag: part.ETag, ChecksumSHA256: aws.String(base64Of(sum))},
				}},
			})
		})
	}
	if err != nil {
		return errors.Join(err, p.end(ctx, id))
	}
	return nil
}

func (p *s3Probe) begin(ctx context.Context) (*string, error) {
	bucket, name := p.at("-parts")
	out, err := once(ctx, timeFor(0), func(ctx context.Context) (*s3.CreateMultipartUploadOutput, error) {
		return p.client.api.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{
			Bucket: bucket, Key: name, ChecksumAlgorithm: types.ChecksumAlgorithmSha256,
		})
	})
	if err != nil {
		return nil, err
	}
	return out.UploadId, nil
}

// end gives an upload up, also after the caller has gone.
func (p *s3Probe) end(ctx context.Context, id *string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortMax)
	defer cancel()
	return p.s3Store.abort(ctx, p.name+"-parts", id)
}

// giveUp begins an upload, looks for it, and gives it up.
func (p *s3Probe) giveUp(ctx context.Context) error {
	id, err := p.begin(ctx)
	if err != nil {
		return err
	}
	before, err := p.uploadsSeen(ctx)
	if err := errors.Join(err, p.end(ctx, id)); err != nil {
		return err
	}
	after, err := p.uploadsSeen(ctx)
	switch {
	case err != nil:
		return err
	case before != 1 || after != 0:
		return errors.New("an upload in parts is not listed, or is still listed after it was given up")
	}
	return nil
}

func (p *s3Probe) uploadsSeen(ctx context.Context) (int, error) {
	bucket, name := p.at("-parts")
	out, err := once(ctx, timeFor(0), func(ctx context.Context) (*s3.ListMultipartUploadsOutput, error) {
		return p.client.api.ListMultipartUploads(ctx, &s3.ListMultipartUploadsInput{Bucket: bucket, Prefix: name})
	})
	if err != nil {
		return 0, err
	}
	return len(out.Uploads), nil
}
