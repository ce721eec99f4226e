package deepstore_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/internal/config"
)

// bareEnvironment has nothing in it that is about S3.
func bareEnvironment(t *testing.T) {
	absent := filepath.Join(t.TempDir(), "absent")
	t.Setenv("AWS_CONFIG_FILE", absent)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", absent)
	for _, name := range []string{
		"AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ACCESS_KEY_ID", "AWS_ACCESS_KEY",
		"AWS_SECRET_ACCESS_KEY", "AWS_SECRET_KEY", "AWS_SESSION_TOKEN", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN",
		"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_EC2_METADATA_DISABLED", "AWS_EC2_METADATA_V1_DISABLED",
	} {
		t.Setenv(name, "")
	}
}

// answers is a server that says the same to everybody.
func answers(t *testing.T, status int, body string) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.WriteHeader(status)
		io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// What answers to the question for credentials is not S3, and what the SDK has to
// say about it is not for standard error.
func TestProbeWithoutCredentials(t *testing.T) {
	bareEnvironment(t)
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", answers(t, http.StatusForbidden, "no"))
	said, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	must(t, err)
	stderr := os.Stderr
	os.Stderr = said
	r, err := deepstore.ProbeS3(t.Context(), "s3://bucket/x", deepstore.S3Config{Endpoint: "http://127.0.0.1:1"})
	os.Stderr = stderr
	must(t, err)
	if len(r.Problems) != 1 || !strings.Contains(r.Problems[0].Problem, "there are no credentials, neither in the environment nor") ||
		strings.Contains(r.Problems[0].Problem, "403") || !strings.Contains(r.Problems[0].Do, "AWS_ACCESS_KEY_ID") {
		t.Errorf("got %+v", r.Problems)
	}
	text, err := os.ReadFile(said.Name())
	must(t, err)
	if must(t, said.Close()); len(text) > 0 {
		t.Errorf("on standard error: %s", text)
	}
}

func TestProbeOfWhatIsNoS3(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		status int
		body   string
	}{{404, "404 page not found\n"}, {404, `{"error":"no such route"}`}, {405, ""}, {401, `{"error":"a token is needed"}`}} {
		r, err := deepstore.ProbeS3(t.Context(), "s3://bucket/x", deepstore.S3Config{
			Endpoint: answers(t, test.status, test.body), Credentials: credentials.NewStaticCredentialsProvider("a", "b", ""),
		})
		must(t, err)
		if len(r.Problems) != 1 || !strings.Contains(r.Problems[0].Problem, "does not answer like S3") || !strings.Contains(r.Problems[0].Do, "is --s3-endpoint right?") {
			t.Errorf("%+v: %+v", test, r.Problems)
		}
	}
}

func TestValidateWantsARegionForRootsInS3(t *testing.T) {
	bareEnvironment(t)
	for _, test := range []struct {
		name   string
		roots  []string
		region string // of the environment
		s3     deepstore.S3Config
		says   string
	}{
		{"no root in S3", []string{"deep"}, "", deepstore.S3Config{}, ""},
		{"no region", []string{"deep", "s3://bucket"}, "", deepstore.S3Config{}, "--s3-region"},
		{"region", []string{"s3://bucket"}, "", deepstore.S3Config{Region: "r"}, ""},
		{"region of the environment", []string{"s3://bucket"}, "r", deepstore.S3Config{}, ""},
		{"endpoint", []string{"s3://bucket"}, "", deepstore.S3Config{Endpoint: "http://127.0.0.1:1"}, ""},
	} {
		t.Setenv("AWS_REGION", test.region)
		var faults config.Faults
		deepstore.Validate(test.roots, test.s3, &faults)
		err := faults.Err()
		if (err != nil) != (test.says != "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %q", test.name, err, test.says)
		}
	}
}
