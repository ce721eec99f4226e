package deepstore

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
)

func TestS3ProfilesOfEndpoints(t *testing.T) {
	absent := filepath.Join(t.TempDir(), "absent")
	for name, value := range map[string]string{
		"AWS_CONFIG_FILE": absent, "AWS_SHARED_CREDENTIALS_FILE": absent, "AWS_PROFILE": "", "AWS_REGION": "", "AWS_DEFAULT_REGION": "",
		"AWS_ENDPOINT_URL": "", "AWS_ENDPOINT_URL_S3": "",
	} {
		t.Setenv(name, value)
	}
	for _, test := range []struct {
		name     string
		env      map[string]string
		cfg      S3Config
		endpoint string
		region   string
		path     bool
		aws      bool
	}{
		{"AWS", nil, S3Config{Region: "eu-north-1"}, "AWS", "eu-north-1", false, true},
		{"AWS, region of the environment", map[string]string{"AWS_REGION": "eu-west-1"}, S3Config{}, "AWS", "eu-west-1", false, true},
		{"AWS, by another way", nil, S3Config{Region: "r", Endpoint: "https://bucket.vpce-1.s3.r.vpce.amazonaws.com"}, "https://bucket.vpce-1.s3.r.vpce.amazonaws.com", "r", false, true},
		{"AWS, path style", nil, S3Config{Region: "r", PathStyle: PathAlways}, "AWS", "r", true, true},
		{"compatible", nil, S3Config{Endpoint: "http://127.0.0.1:7480/"}, "http://127.0.0.1:7480", "us-east-1", true, false},
		{"compatible, buckets in the host", nil, S3Config{Endpoint: "https://s3.example.org", Region: "x", PathStyle: PathNever}, "https://s3.example.org", "x", false, false},
		{"compatible, of the environment", map[string]string{"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1"}, S3Config{}, "http://127.0.0.1:1", "us-east-1", true, false},
		{"not AWS by its name", nil, S3Config{Endpoint: "https://amazonaws.com.example.org"}, "https://amazonaws.com.example.org", "us-east-1", true, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			for name, value := range test.env {
				t.Setenv(name, value)
			}
			c, err := newS3Client(test.cfg)
			if err != nil {
				t.Fatal(err)
			}
			o := c.api.Options()
			supported := o.RequestChecksumCalculation == aws.RequestChecksumCalculationWhenSupported && o.ResponseChecksumValidation == aws.ResponseChecksumValidationWhenSupported
			if c.endpoint != test.endpoint || c.region != test.region || o.UsePathStyle != test.path || supported != test.aws {
				t.Errorf("%s in %s, path style %v, checksums when supported %v", c.endpoint, c.region, o.UsePathStyle, supported)
			}
			if o.Retryer.MaxAttempts() != 1 {
				t.Errorf("the SDK tries %d times", o.Retryer.MaxAttempts())
			}
		})
	}
	if _, err := newS3Client(S3Config{}); err == nil || !strings.Contains(err.Error(), "--s3-region") {
		t.Errorf("AWS without a region: %v", err)
	}
	for _, endpoint := range []string{"http://key:hunter2@127.0.0.1:1", "http://127.0.0.1:1?hunter2", "http://%zzhunter2@h"} {
		t.Setenv("AWS_ENDPOINT_URL_S3", endpoint)
		for _, cfg := range []S3Config{{}, {Endpoint: endpoint}} {
			if _, err := newS3Client(cfg); err == nil || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s, %+v: %v", endpoint, cfg, err)
			}
		}
	}
}
