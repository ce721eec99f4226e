package deepstore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"

	ourconfig "github.com/shoalstore/shoal/internal/config"
)

// S3Config is how S3 is reached. It belongs to the process, not to a table. The
// zero value is AWS, with region and credentials from the SDK's default chain:
// environment, shared files, the instance's role.
type S3Config struct {
	// Endpoint is the URL of an S3-compatible server. Empty: AWS, or what
	// AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or the shared files name.
	Endpoint string
	// Region is that of the buckets. Empty: that of AWS_REGION or the shared
	// files; us-east-1 at an endpoint that is not AWS.
	Region string
	// PathStyle is whether buckets are in the path, not in the host: PathAlways,
	// PathNever, or PathAuto (also when empty), which is at endpoints that are not
	// AWS.
	PathStyle string
	// Credentials are for tests; nil: the default chain.
	Credentials aws.CredentialsProvider `json:"-"`
}

// The values of S3Config.PathStyle.
const (
	PathAuto   = "auto"
	PathAlways = "always"
	PathNever  = "never"
)

// Validate says what is wrong with the configuration, as far as that can be told
// without a look at S3.
func (c S3Config) Validate() error {
	switch c.PathStyle {
	case "", PathAuto, PathAlways, PathNever:
	default:
		return fmt.Errorf("deepstore: S3 path style %q: want %s, %s or %s", c.PathStyle, PathAuto, PathAlways, PathNever)
	}
	if c.Endpoint == "" {
		return nil
	}
	u, err := url.Parse(c.Endpoint)
	switch {
	case err == nil && u.User != nil:
		return fmt.Errorf("deepstore: the S3 endpoint at %s has credentials in its URL: they belong into the environment or the shared files", clip(u.Host))
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("deepstore: S3 endpoint %q: want http://host:port or https://host", clip(ourconfig.WithoutSecrets(c.Endpoint)))
	}
	return nil
}

// s3Client is a client of one endpoint, for any number of buckets.
type s3Client struct {
	api       *s3.Client
	presign   *s3.PresignClient
	endpoint  string // for messages; "AWS" for none of its own
	region    string
	pathStyle bool
}

// loadMax bounds the reading of the shared files.
const loadMax = 30 * time.Second

// newS3Client makes a client. It reads environment and shared files, and asks
// nobody: credentials are fetched, and the endpoint is reached, by the first
// request.
func newS3Client(cfg S3Config) (*s3Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), loadMax)
	defer cancel()
	loaded, err := config.LoadDefaultConfig(ctx, func(o *config.LoadOptions) error {
		o.Region, o.Credentials = cfg.Region, cfg.Credentials
		o.HTTPClient = newS3Transport()
		o.Logger = logging.Nop{} // what matters comes as an error; standard error is not the SDK's
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("deepstore: settings of S3 in the environment and the shared files: %w", err)
	}
	c := &s3Client{endpoint: "AWS"}
	c.api = s3.NewFromConfig(loaded, func(o *s3.Options) { c.profile(cfg, o) })
	if c.endpoint != "AWS" { // it may be of the environment
		if err := (S3Config{Endpoint: c.endpoint}).Validate(); err != nil {
			return nil, err
		}
	}
	if c.region == "" {
		return nil, errors.New("deepstore: S3 needs a region: set --s3-region, or AWS_REGION in the environment")
	}
	c.presign = s3.NewPresignClient(c.api)
	return c, nil
}

// profile sets what differs between AWS and those that are compatible with it.
// o has the endpoint of environment and shared files.
func (c *s3Client) profile(cfg S3Config, o *s3.Options) {
	if cfg.Endpoint != "" {
		o.BaseEndpoint = aws.String(cfg.Endpoint)
	}
	isAWS := true
	if o.BaseEndpoint != nil {
		c.endpoint = strings.TrimSuffix(*o.BaseEndpoint, "/")
		isAWS = isAWSHost(c.endpoint)
	}
	// Not the SDK but the calls below try again: they know what was done, and the
	// SDK's budget of retries is used up by an outage.
	o.Retryer = aws.NopRetryer{}
	o.DisableLogOutputChecksumValidationSkipped = true
	if o.Credentials != nil {
		o.Credentials = toldCredentials{o.Credentials}
	}
	// Every upload carries its SHA-256, as a header that every endpoint can read.
	// The trailers that the SDK would use by itself break many that are not AWS.
	o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
	o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	if isAWS {
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenSupported
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenSupported
	} else if o.Region == "" {
		o.Region = "us-east-1"
	}
	o.UsePathStyle = cfg.PathStyle == PathAlways || cfg.PathStyle != PathNever && !isAWS
	c.region, c.pathStyle = o.Region, o.UsePathStyle
}

func isAWSHost(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil {
		return false
	}
	host := strings.ToLower(u.Hostname())
	return strings.HasSuffix(host, ".amazonaws.com") || strings.HasSuffix(host, ".amazonaws.com.cn")
}

// newS3Transport has no limit on a whole request: those are by size, and the
// callers'. HTTP/1.1: a stream by connection is faster for bulk than many in one.
func newS3Transport() *awshttp.BuildableClient {
	return awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.Protocols = new(http.Protocols)
		t.Protocols.SetHTTP1(true)
		t.ForceAttemptHTTP2 = false
		t.MaxIdleConnsPerHost = 32
		t.WriteBufferSize, t.ReadBufferSize = 64<<10, 64<<10
	})
}

// ErrNoCredentials says that nothing in the default chain gave any.
var ErrNoCredentials = errors.New("deepstore: no credentials for S3")

// toldCredentials tells a failure to get credentials from others.
type toldCredentials struct{ aws.CredentialsProvider }

func (t toldCredentials) Retrieve(ctx context.Context) (aws.Credentials, error) {
	c, err := t.CredentialsProvider.Retrieve(ctx)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", ErrNoCredentials, err)
	}
	return c, err
}
