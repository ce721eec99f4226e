package e2e

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/deepstore/s3test"
	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/controller"
	"github.com/shoalstore/shoal/internal/node"
)

// s3Fleet is a fleet that keeps its segments in a real S3 server. Its processes see
// that by their settings and their environment only.
type s3Fleet struct {
	*fleet
	gateway *s3test.Gateway
}

// s3Root is below what every table of an s3Fleet has its store.
const s3Root = "s3://" + s3test.Bucket + "/backups"

// startS3Fleet starts one that reaches the gateway, which may be down, by an endpoint.
func startS3Fleet(t *testing.T, gateway *s3test.Gateway, endpoint string, nodes int) s3Fleet {
	t.Helper()
	access := deepstore.S3Config{Endpoint: endpoint}
	f, _ := startFleet(t, fleetOptions{
		nodes: nodes, env: gateway.Environ(),
		node:       func(_ int, cfg *node.Config) { cfg.DeepStoreRoots, cfg.S3 = []string{s3Root}, access },
		controller: func(cfg *controller.Config) { cfg.DeepStoreRoots, cfg.S3 = []string{s3Root}, access },
	})
	f.objectFile = func(key string) string { return gateway.ObjectFile(key) }
	return s3Fleet{f, gateway}
}

// inS3 gives a table its store, beside other changes.
func inS3(table string, changes map[string]any) map[string]any {
	all := map[string]any{"deepStore": map[string]any{"uri": s3Root + "/of-" + table}}
	maps.Copy(all, changes)
	return all
}

// client asks the gateway without any of our code between.
func (f s3Fleet) client() *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: aws.String(f.gateway.Endpoint()), Region: s3test.Region, UsePathStyle: true, Credentials: f.gateway.Credentials(),
	})
}

// keys are those of a segment's two objects in the bucket: the data's, its sidecar's.
func (f s3Fleet) keys(s api.SegmentView) (data, sidecar string) {
	f.t.Helper()
	key, err := deepstore.DataKey(s.Name, s.Digest)
	if err != nil {
		f.t.Fatal(err)
	}
	below := strings.TrimPrefix(s3Root, "s3://"+s3test.Bucket+"/") + "/of-" + s.TableName + "/"
	return below + key, below + deepstore.PiecesKey(key)
}

// checkBucket checks that the bucket has the objects of the committed segments, and
// nothing else, parts of uploads that did not end included; and that each is vouched
// for by S3. It returns how many objects were put in parts.
func (f s3Fleet) checkBucket(tables ...string) (inParts int) {
	f.t.Helper()
	client := f.client()
	var want, have []string
	for _, table := range tables {
		store, err := deepstore.Open(s3Root+"/of-"+table, []string{s3Root}, deepstore.S3Config{Endpoint: f.gateway.Endpoint(), Credentials: f.gateway.Credentials()})
		if err != nil {
			f.t.Fatal(err)
		}
		for _, s := range f.committedSegments(table) {
			data, sidecar := f.keys(s)
			want = append(want, data, sidecar)
			key, err := deepstore.DataKey(s.Name, s.Digest)
			if err == nil {
				err = deepstore.VerifySegment(f.t.Context(), store, key, s.SizeBytes, s.Digest)
			}
			if err != nil {
				f.t.Errorf("%s: %v", s.Name, err)
			}
		}
	}
	in := &s3.ListObjectsV2Input{Bucket: aws.String(s3test.Bucket)}
	for {
		page, err := client.ListObjectsV2(f.t.Context(), in)
		if err != nil {
			f.t.Fatal(err)
		}
		for _, o := range page.Contents {
			have = append(have, aws.ToString(o.Key))
			if strings.Contains(aws.ToString(o.ETag), "-") { // as S3 marks an object of parts
				inParts++
			}
		}
		if !aws.ToBool(page.IsTruncated) {
			break
		}
		in.ContinuationToken = page.NextContinuationToken
	}
	slices.Sort(want)
	slices.Sort(have)
	if !slices.Equal(have, want) {
		f.t.Errorf("in the bucket are %v, and committed are %v", have, want)
	}
	f.await("no upload in parts that was left", func() (bool, string) { // somebody may be at a second one
		uploads, err := client.ListMultipartUploads(f.t.Context(), &s3.ListMultipartUploadsInput{Bucket: in.Bucket})
		return err == nil && len(uploads.Uploads) == 0, asJSON(uploads, err)
	})
	return inParts
}

// TestSegmentsGoToS3: S3 goes away in the middle, to who knows it as connections that
// break; commits and replication go on without it, and when it is back it gets what it
// has missed.
func TestSegmentsGoToS3(t *testing.T) {
	t.Parallel()
	gateway := s3test.Start(t)
	proxy := s3test.NewProxy(t, gateway.Addr())
	f := startS3Fleet(t, gateway, proxy.Endpoint(), 2)
	p := newProducer(t, f.streamRoot(), "clicks", 2)
	p.add(150)
	f.createTable("clicks", inS3("clicks", nil))
	f.awaitComplete("clicks", p.ends(), f.urls())
	f.awaitDrained("clicks")

	proxy.Outage()
	p.add(150)
	f.awaitCommitted("clicks", 2*(150+100)) // a segment more of each partition
	f.awaitCopies("clicks")
	if missing := f.notInDeepStore("clicks"); missing != 2 {
		t.Errorf("S3 is away, and %d segments are not in it, want the two that came since", missing)
	}
	proxy.Heal()
	f.awaitComplete("clicks", p.ends(), f.urls())
	f.awaitDrained("clicks")
	f.prove("clicks", p)
	f.checkBucket("clicks")
}
