package deepstore_test

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/deepstore/deepstoretest"
	"github.com/shoalstore/shoal/deepstore/s3test"
)

// s3Rig is a gateway, a proxy before it, a store behind the proxy, and a client
// of the gateway that knows nothing of stores.
type s3Rig struct {
	*testing.T
	gateway *s3test.Gateway
	proxy   *s3test.Proxy
	store   deepstore.Store
	raw     *s3.Client
}

const s3Prefix = "backups/of-shoal"

func newS3Rig(t *testing.T) *s3Rig {
	t.Helper()
	t.Parallel()
	g := s3test.Start(t)
	r := &s3Rig{T: t, gateway: g, proxy: s3test.NewProxy(t, g.Addr()), raw: rawClient(g)}
	r.store = openS3(t, r.proxy.Endpoint(), g, s3Prefix)
	return r
}

func rawClient(g *s3test.Gateway) *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: aws.String(g.Endpoint()), Region: s3test.Region, UsePathStyle: true, Credentials: g.Credentials(),
		DisableLogOutputChecksumValidationSkipped: true,
	})
}

func openS3(t *testing.T, endpoint string, g *s3test.Gateway, prefix string) deepstore.Store {
	t.Helper()
	uri := "s3://" + s3test.Bucket + "/" + prefix
	s, err := deepstore.Open(uri, []string{t.TempDir(), "s3://" + s3test.Bucket}, deepstore.S3Config{Endpoint: endpoint, Credentials: g.Credentials()})
	must(t, err)
	return s
}

// overwrite puts other bytes under a key, with the metadata of the object that is
// there: as somebody does who copies and mends by hand.
func overwrite(t *testing.T, raw *s3.Client, name string, change func([]byte)) {
	t.Helper()
	ctx, bucket := context.Background(), aws.String(s3test.Bucket)
	got, err := raw.GetObject(ctx, &s3.GetObjectInput{Bucket: bucket, Key: &name})
	must(t, err)
	defer got.Body.Close()
	var data bytes.Buffer
	_, err = data.ReadFrom(got.Body)
	must(t, err)
	change(data.Bytes())
	_, err = raw.PutObject(ctx, &s3.PutObjectInput{Bucket: bucket, Key: &name, Body: bytes.NewReader(data.Bytes()), Metadata: got.Metadata})
	must(t, err)
}

func TestS3(t *testing.T) {
	t.Parallel()
	g := s3test.Start(t)
	raw := rawClient(g)
	prefixes := map[deepstore.Store]string{}
	deepstoretest.Run(t, deepstoretest.Harness{
		New: func(t *testing.T) deepstore.Store {
			prefix := fmt.Sprintf("suite/%d", len(prefixes))
			s := openS3(t, g.Endpoint(), g, prefix)
			prefixes[s] = prefix
			return s
		},
		Damage: func(t *testing.T, s deepstore.Store, key string) {
			overwrite(t, raw, path.Join(prefixes[s], key), func(data []byte) { data[len(data)/2] ^= 0x10 })
		},
	})
}
