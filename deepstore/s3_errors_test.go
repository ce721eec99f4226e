package deepstore_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/deepstore/s3test"
)

// Each refusal says what it is about and what to do, and no more.
func TestS3RefusalsSayWhatToDo(t *testing.T) {
	r := newS3Rig(t)
	o := r.object(1, 5000)
	past := http.Header{"Date": {time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)}}
	region := http.Header{"X-Amz-Bucket-Region": {"eu-north-1"}}
	for _, test := range []struct {
		name string
		op   string
		f    s3test.Fault
		says []string
	}{
		{"clock, told", "PutObject", s3test.Fault{Status: 403, Code: "RequestTimeTooSkewed", Header: past}, []string{"RequestTimeTooSkewed", "clock here is 1h", "NTP"}},
		{"clock, by a HEAD", "HeadObject", s3test.Fault{Status: 403, Header: past}, []string{"clock here is 1h", "NTP"}},
		{"access", "PutObject", s3test.Fault{Status: 403, Code: "AccessDenied"}, []string{"AccessDenied (403)", "s3:PutObject", "s3:ListBucket", s3Prefix}},
		{"access, by a HEAD", "HeadObject", s3test.Fault{Status: 403}, []string{"(403)", "s3:GetObject"}},
		{"bucket", "PutObject", s3test.Fault{Status: 404, Code: "NoSuchBucket"}, []string{"make bucket shoal"}},
		{"region, by a HEAD", "HeadObject", s3test.Fault{Status: 301, Header: region}, []string{"eu-north-1 and not us-east-1", "--s3-region=eu-north-1"}},
		{"region, told", "PutObject", s3test.Fault{Status: 301, Code: "PermanentRedirect"}, []string{"PermanentRedirect", "--s3-region", "--s3-endpoint"}},
		{"region, signed", "PutObject", s3test.Fault{Status: 400, Code: "AuthorizationHeaderMalformed"}, []string{"--s3-region"}},
		{"token", "PutObject", s3test.Fault{Status: 400, Code: "ExpiredToken"}, []string{"renew"}},
		{"busy", "PutObject", s3test.Fault{Status: 503, Code: "SlowDown"}, []string{"SlowDown (503)", "tried again later"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r.proxy.Heal()
			r.proxy.Fail(-1, test.f, test.op)
			// Another client each time: the SDK believes the clock that it is told.
			r.store = openS3(t, r.proxy.Endpoint(), r.gateway, s3Prefix)
			saysAll(t, r.put(t.Context(), o), append(test.says, "put "+r.store.String()+"/"+o.Key)...)
		})
	}
	r.proxy.Heal()
	must(t, r.put(t.Context(), o))
}

func saysAll(t *testing.T, err error, says ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	if errors.Is(err, deepstore.ErrNotFound) || errors.Is(err, deepstore.ErrDifferent) {
		t.Errorf("taken for an answer about the object: %v", err)
	}
	for _, want := range says {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("does not say %q: %v", want, err)
		}
	}
	for _, secret := range []string{s3test.SecretKey, s3test.AccessKey, "X-Amz-", "wrong-"} {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("says %q: %v", secret, err)
		}
	}
}

// A bucket that is not there is no word on what is in it.
func TestS3BucketThatIsNotThere(t *testing.T) {
	t.Parallel()
	g := s3test.Start(t)
	s, err := deepstore.Open("s3://absent/x", []string{"s3://absent"}, deepstore.S3Config{Endpoint: g.Endpoint(), Credentials: g.Credentials()})
	must(t, err)
	r := &s3Rig{T: t, gateway: g, store: s}
	o := r.object(1, 5000)
	_, err = s.Head(t.Context(), o.Key)
	saysAll(t, err, "NoSuchBucket", "make bucket absent")
	saysAll(t, r.verify(o), "NoSuchBucket", "make bucket absent")
	saysAll(t, r.put(t.Context(), o), "NoSuchBucket", "make bucket absent")
	saysAll(t, r.put(t.Context(), r.object(2, large)), "NoSuchBucket", "make bucket absent")
	_, err = s.Open(t.Context(), o.Key, 0, -1)
	saysAll(t, err, "NoSuchBucket", "make bucket absent")
	_, err = s.List(t.Context(), "", "", 10)
	saysAll(t, err, "NoSuchBucket", "make bucket absent")
	_, err = s.(deepstore.Sweeper).Sweep(t.Context(), deepstore.SweepAge)
	saysAll(t, err, "NoSuchBucket", "make bucket absent")
}

func TestS3Credentials(t *testing.T) {
	t.Parallel()
	g := s3test.Start(t)
	for name, test := range map[string]struct {
		c    aws.CredentialsProvider
		says []string
	}{
		"unknown key":  {credentials.NewStaticCredentialsProvider("wrong-key", s3test.SecretKey, ""), []string{"mend the credentials"}},
		"wrong secret": {credentials.NewStaticCredentialsProvider(s3test.AccessKey, "wrong-secret", ""), []string{"SignatureDoesNotMatch", "mend the credentials"}},
		"none": {aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{}, errors.New("no role, no wrong-key")
		}), []string{"no credentials", "AWS_ACCESS_KEY_ID"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := deepstore.Open("s3://shoal/x", []string{"s3://shoal"}, deepstore.S3Config{Endpoint: g.Endpoint(), Credentials: test.c})
			must(t, err)
			_, err = s.List(t.Context(), "", "", 10)
			saysAll(t, err, test.says...)
		})
	}
}

// An endpoint that takes connections and never answers ends with the caller.
func TestS3Silence(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	must(t, err)
	defer ln.Close() // and nobody accepts
	s, err := deepstore.Open("s3://shoal/x", []string{"s3://shoal"}, deepstore.S3Config{
		Endpoint: "http://" + ln.Addr().String(), Credentials: credentials.NewStaticCredentialsProvider("a", "b", ""),
	})
	must(t, err)
	r := &s3Rig{T: t, store: s}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err = r.put(ctx, r.object(1, 5000))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	saysAll(t, err, "gave no answer", ln.Addr().String())
}
