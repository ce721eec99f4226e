package s3test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rig is a gateway, a proxy before it, and a plain client of the proxy that tries
// everything once.
type rig struct {
	*testing.T
	gateway *Gateway
	proxy   *Proxy
	client  *s3.Client
}

func newRig(t *testing.T) *rig {
	t.Parallel()
	g := Start(t)
	p := NewProxy(t, g.Addr())
	return &rig{T: t, gateway: g, proxy: p, client: s3.New(s3.Options{
		BaseEndpoint: aws.String(p.Endpoint()), Region: Region, UsePathStyle: true,
		Credentials: g.Credentials(), RetryMaxAttempts: 1,
		RequestChecksumCalculation:                aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation:                aws.ResponseChecksumValidationWhenRequired,
		DisableLogOutputChecksumValidationSkipped: true,
	})}
}

func (r *rig) put(key, text string) error {
	_, err := r.client.PutObject(r.Context(), &s3.PutObjectInput{
		Bucket: aws.String(Bucket), Key: &key, Body: strings.NewReader(text),
	})
	return err
}

func (r *rig) get(key string) (string, error) {
	out, err := r.client.GetObject(r.Context(), &s3.GetObjectInput{Bucket: aws.String(Bucket), Key: &key})
	if err != nil {
		return "", err
	}
	data, err := io.ReadAll(out.Body)
	return string(data), errors.Join(err, out.Body.Close())
}

// stored is what the server has, asked without faults.
func (r *rig) stored(key string) string {
	r.Helper()
	data, err := os.ReadFile(r.gateway.ObjectFile(key))
	if errors.Is(err, os.ErrNotExist) {
		return ""
	}
	must(r.T, err)
	return string(data)
}

func status(err error) int {
	var answer *smithyhttp.ResponseError
	if errors.As(err, &answer) {
		return answer.HTTPStatusCode()
	}
	return 0
}

func TestGatewayKeepsWhatItHasWhenItIsKilled(t *testing.T) {
	r := newRig(t)
	must(t, r.put("a", "one"))
	r.gateway.Kill()
	if err := r.put("b", "two"); err == nil {
		t.Error("put into a gateway that is down")
	}
	r.gateway.Restart()
	if got, err := r.get("a"); got != "one" {
		t.Errorf("got %q, %v", got, err)
	}
	must(t, r.put("b", "two"))
}

func TestFaultsBeforeAndAfterTheServerActs(t *testing.T) {
	r := newRig(t)
	for _, test := range []struct {
		name   string
		fault  Fault
		acts   bool
		status int // 0: no answer
	}{
		{"before", Fault{Status: 503, Code: "SlowDown"}, false, 503},
		{"internal", Fault{Status: 500}, false, 500},
		{"after", Fault{Status: 503, After: true}, true, 503},
		{"cut", Fault{Cut: true}, false, 0},
		{"cut-after", Fault{Cut: true, After: true}, true, 0},
	} {
		r.proxy.Fail(1, test.fault, "PutObject")
		err := r.put(test.name, "text")
		if err == nil || status(err) != test.status {
			t.Errorf("%s: %v", test.name, err)
		}
		var api smithy.APIError
		if test.fault.Code != "" && (!errors.As(err, &api) || api.ErrorCode() != test.fault.Code) {
			t.Errorf("%s: %v", test.name, err)
		}
		if acted := r.stored(test.name) == "text"; acted != test.acts {
			t.Errorf("%s: the server acted: %v", test.name, acted)
		}
		must(t, r.put(test.name, "text")) // once only
	}
}

func TestBodiesAreCutShortenedAndChanged(t *testing.T) {
	r := newRig(t)
	text := strings.Repeat("0123456789", 1000)
	must(t, r.put("a", text))
	r.proxy.Fail(1, Fault{CutAnswer: true}, "GetObject")
	if got, err := r.get("a"); !errors.Is(err, io.ErrUnexpectedEOF) || got != text[:5000] {
		t.Errorf("cut: %d bytes, %v", len(got), err)
	}
	r.proxy.Fail(1, Fault{ShortAnswer: true}, "GetObject")
	if got, err := r.get("a"); err != nil || got != text[:5000] {
		t.Errorf("shortened: %d bytes, %v", len(got), err)
	}
	r.proxy.Fail(1, Fault{FlipAnswer: true}, "GetObject")
	got, err := r.get("a")
	must(t, err)
	if len(got) != len(text) || got == text || got[:5000] != text[:5000] {
		t.Errorf("changed: %d bytes", len(got))
	}
	r.proxy.Fail(1, Fault{FlipRequest: true}, "PutObject")
	if err := r.put("b", text); status(err) != http.StatusBadRequest {
		t.Errorf("a body that changed on its way: %v", err)
	}
	if r.stored("b") != "" {
		t.Error("it was stored")
	}
	r.proxy.Fail(1, Fault{Unranged: true}, "GetObject")
	out, err := r.client.GetObject(t.Context(), &s3.GetObjectInput{Bucket: aws.String(Bucket), Key: aws.String("a"), Range: aws.String("bytes=10-19")})
	must(t, err)
	defer out.Body.Close()
	if out.ContentRange != nil {
		t.Errorf("a range is answered with %s", *out.ContentRange)
	}
}

func TestRequestsAreHeldAndComeAgain(t *testing.T) {
	r := newRig(t)
	hold := make(chan struct{})
	r.proxy.Choose(func(q Request) *Fault {
		if q.Key == "a" && q.Op == "PutObject" {
			return &Fault{Hold: hold, Again: true}
		}
		return nil
	})
	done := make(chan error)
	go func() { done <- r.put("a", "late") }()
	must(t, r.put("b", "two")) // passes the one that is held
	if r.stored("a") != "" {
		t.Error("a request that is held was passed on")
	}
	close(hold)
	must(t, <-done)
	must(t, os.Remove(r.gateway.ObjectFile("a")))
	if statuses := r.proxy.Repeat(); len(statuses) != 1 || statuses[0] != http.StatusOK || r.stored("a") != "late" {
		t.Errorf("delivered again: %v, %q", statuses, r.stored("a"))
	}
}

func TestOutage(t *testing.T) {
	r := newRig(t)
	must(t, r.put("a", "one"))
	hold := make(chan struct{})
	defer close(hold)
	r.proxy.Fail(1, Fault{Hold: hold})
	held := make(chan error)
	go func() {
		_, err := r.get("a")
		held <- err
	}()
	for r.proxy.Count("GetObject") == 0 {
		time.Sleep(time.Millisecond)
	}
	r.proxy.Outage()
	if err := <-held; err == nil {
		t.Error("a request lived through an outage")
	}
	if err := r.put("a", "two"); err == nil {
		t.Error("put in an outage")
	}
	r.proxy.Heal()
	if got, err := r.get("a"); got != "one" {
		t.Errorf("after the outage: %q, %v", got, err)
	}
}

func TestOperationsAreTold(t *testing.T) {
	r := newRig(t)
	ctx, bucket, key := context.Background(), aws.String(Bucket), aws.String("k")
	up, err := r.client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: bucket, Key: key})
	must(t, err)
	_, err = r.client.UploadPart(ctx, &s3.UploadPartInput{Bucket: bucket, Key: key, UploadId: up.UploadId, PartNumber: aws.Int32(1), Body: bytes.NewReader([]byte("x"))})
	must(t, err)
	_, err = r.client.ListMultipartUploads(ctx, &s3.ListMultipartUploadsInput{Bucket: bucket})
	must(t, err)
	_, err = r.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: bucket, Key: key, UploadId: up.UploadId})
	must(t, err)
	_, err = r.client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{Bucket: bucket, Key: key, UploadId: up.UploadId})
	if err == nil {
		t.Error("an upload that was aborted was completed")
	}
	_, err = r.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: bucket, Key: key})
	if status(err) != http.StatusNotFound {
		t.Errorf("head: %v", err)
	}
	_, err = r.client.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: bucket})
	must(t, err)
	_, err = r.client.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: bucket})
	must(t, err)
	var ops []string
	for _, q := range r.proxy.Requests() {
		ops = append(ops, q.Op+" "+q.Key)
	}
	want := "CreateMultipartUpload k,UploadPart k,ListMultipartUploads ,AbortMultipartUpload k,CompleteMultipartUpload k,HeadObject k,ListObjectsV2 ,HeadBucket "
	if got := strings.Join(ops, ","); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A gateway sees the end of the process that started it by its input, however
// that process ended.
func TestGatewayEndsWithItsStarter(t *testing.T) {
	t.Parallel()
	g := Start(t)
	run := g.run
	g.run = nil // not to be killed
	must(t, run.stdin.Close())
	must(t, run.cmd.Wait())
}
