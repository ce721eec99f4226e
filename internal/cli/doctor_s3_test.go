package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/deepstore/s3test"
)

func TestDoctorTriesS3(t *testing.T) {
	gateway := s3test.Start(t)
	proxy := s3test.NewProxy(t, gateway.Addr())
	for _, setting := range gateway.Environ() {
		name, value, _ := strings.Cut(setting, "=")
		t.Setenv(name, value)
	}
	t.Setenv("SHOAL_S3_ENDPOINT", proxy.Endpoint())
	const address = "s3://" + s3test.Bucket + "/backups"
	run := func(status int, args ...string) (out, all string) {
		t.Helper()
		got, out, errs := shoalIn(t, "", append([]string{"doctor"}, args...)...)
		if got != status {
			t.Errorf("%q: status %d, want %d\n%s%s", args, got, status, out, errs)
		}
		if all = out + errs; strings.Contains(all, s3test.SecretKey) {
			t.Errorf("the secret is in\n%s", all)
		}
		return out, all
	}
	says := func(text string, wants ...string) {
		t.Helper()
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%q is not in\n%s", want, text)
			}
		}
	}

	_, text := run(ExitOK, address)
	says(text, "nothing is wrong", proxy.Endpoint(), "us-east-1", "get a range", "a small object takes")
	var report deepstore.S3Report
	out, _ := run(ExitOK, address, "-o", "json")
	if err := json.Unmarshal([]byte(out), &report); err != nil || !report.ChecksumShown || len(report.Problems) != 0 {
		t.Errorf("%v, %+v", err, report)
	}
	_, text = run(ExitNo, "s3://absent/backups")
	says(text, "wrong:", "make bucket absent", "not tried")
	proxy.Fail(-1, s3test.Fault{Status: 403, Code: "AccessDenied"}, "ListMultipartUploads")
	_, text = run(ExitOK, address)
	says(text, "note: give up parts", "failed", "s3:ListBucketMultipartUploads")
	proxy.Outage()
	_, text = run(ExitFailed, address)
	says(text, "wrong:", "gave no answer", "cannot be reached")

	_, text = run(ExitUsage, "s3://x")
	says(text, "3 to 63")
	_, text = run(ExitUsage, address, "--s3-endpoint=nowhere")
	says(text, "nowhere")
	_, text = run(ExitUsage, "kafka://h/x")
	says(text, "zookeeper://", "s3://")
}
