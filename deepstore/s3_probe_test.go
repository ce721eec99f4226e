package deepstore_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/deepstore/s3test"
)

// probe leaves out the note that uploads are slow: they are on a machine that is.
func (r *s3Rig) probe() *deepstore.S3Report {
	r.Helper()
	report, err := deepstore.ProbeS3(r.Context(), r.store.String(), deepstore.S3Config{Endpoint: r.proxy.Endpoint(), Credentials: r.gateway.Credentials()})
	must(r.T, err)
	report.Notes = slices.DeleteFunc(report.Notes, func(f deepstore.S3Finding) bool { return strings.HasPrefix(f.Problem, "small objects take ") })
	return report
}

// left are the objects and uploads in the bucket.
func (r *s3Rig) left() (names []string) {
	r.Helper()
	out, err := r.raw.ListObjectsV2(r.Context(), &s3.ListObjectsV2Input{Bucket: aws.String(s3test.Bucket)})
	must(r.T, err)
	for _, o := range out.Contents {
		names = append(names, *o.Key)
	}
	for range r.uploads() {
		names = append(names, "an upload")
	}
	return names
}

func TestProbeFindsNothingWrong(t *testing.T) {
	r := newS3Rig(t)
	o := r.object(1, 10)
	must(t, r.put(t.Context(), o))
	report := r.probe()
	if len(report.Problems)+len(report.Notes) != 0 || !report.Reachable() {
		t.Errorf("found %+v, notes %+v", report.Problems, report.Notes)
	}
	for _, step := range report.Steps {
		if !step.Tried || step.Error != "" {
			t.Errorf("%+v", step)
		}
	}
	if f := report.S3Facts; !f.MetadataKept || !f.ChecksumShown || !f.PartsChecksumShown || !f.WrongChecksumRefused || !f.WrongSignatureRefused ||
		!f.ConditionHonoured || !f.PartsConditionHonoured || f.ClockAheadMs == nil || f.PutP50Ms <= 0 || len(f.Left) != 0 {
		t.Errorf("facts %+v", f)
	}
	if left := r.left(); !slices.Equal(left, []string{s3Prefix + "/" + o.Key}) {
		t.Errorf("in the bucket afterwards: %v", left)
	}
}

func TestProbeNamesWhatIsWrong(t *testing.T) {
	r := newS3Rig(t)
	for _, test := range []struct {
		name     string
		op       string
		f        s3test.Fault
		problems []string
		notes    []string
	}{
		{"nothing may be done", "", s3test.Fault{Status: 403, Code: "AccessDenied"}, []string{"AccessDenied"}, nil},
		{"no rights to miss", "", s3test.Fault{}, []string{"nothing is uploaded"}, nil},
		{"no HEAD of the bucket", "HeadBucket", s3test.Fault{Status: 403}, nil, []string{"403"}},
		{"no lists", "ListObjectsV2", s3test.Fault{Status: 403, Code: "AccessDenied"}, []string{"objects that nobody knows of"}, nil},
		{"no ranges", "GetObject", s3test.Fault{Unranged: true}, []string{"segments cannot be fetched"}, nil},
		{"no deletes", "DeleteObject", s3test.Fault{Status: 403, Code: "AccessDenied"}, []string{"retention cannot remove", "could not be removed"}, nil},
		{"no parts", "CreateMultipartUpload", s3test.Fault{Status: 501, Code: "NotImplemented"}, []string{"above 16 MiB cannot be stored"}, nil},
		{"no lists of uploads", "ListMultipartUploads", s3test.Fault{Status: 403, Code: "AccessDenied"}, nil, []string{"uploads that were killed"}},
		{"another region", "", s3test.Fault{Status: 301, Code: "PermanentRedirect", Header: http.Header{"X-Amz-Bucket-Region": {"eu-north-1"}}}, []string{"PermanentRedirect"}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			r.proxy.Heal()
			var ops []string
			if test.op != "" {
				ops = []string{test.op}
			}
			if test.name == "no rights to miss" {
				r.proxy.Choose(func(q s3test.Request) *s3test.Fault {
					if q.Op == "HeadObject" && strings.HasSuffix(q.Key, "-none") {
						return &s3test.Fault{Status: 403}
					}
					return nil
				})
			} else {
				r.proxy.Fail(-1, test.f, ops...)
			}
			report := r.probe()
			if !report.Reachable() {
				t.Error("nobody was reached")
			}
			finds(t, "problems", report.Problems, test.problems)
			finds(t, "notes", report.Notes, test.notes)
		})
	}
	r.proxy.Outage()
	report := r.probe()
	if report.Reachable() || len(report.Problems) != 1 || !strings.Contains(report.Problems[0].Problem, "gave no answer") {
		t.Errorf("an endpoint that is away: %+v", report)
	}
	for _, step := range report.Steps[1:] {
		if step.Tried {
			t.Errorf("nobody is there, and %s was tried", step.Name)
		}
	}
}

func finds(t *testing.T, what string, got []deepstore.S3Finding, want []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s are %+v, want %q", what, got, want)
		return
	}
	for i, f := range got {
		if !strings.Contains(f.Problem, want[i]) || f.Do == "" {
			t.Errorf("%s are %+v, want %q", what, got, want)
		}
	}
}

func TestProbeOfSettingsThatAreWrong(t *testing.T) {
	t.Parallel()
	some := credentials.NewStaticCredentialsProvider("a", "b", "")
	for _, uri := range []string{"s3://", "file:///x", "s3://bucket?x"} {
		if _, err := deepstore.ProbeS3(t.Context(), uri, deepstore.S3Config{Endpoint: "http://127.0.0.1:1", Credentials: some}); err == nil {
			t.Errorf("%s was probed", uri)
		}
	}
	if _, err := deepstore.ProbeS3(t.Context(), "s3://bucket", deepstore.S3Config{Endpoint: "nowhere", Credentials: some}); err == nil {
		t.Error("an endpoint that is none was probed")
	}
}
