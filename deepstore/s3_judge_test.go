package deepstore

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// whole are the facts of an endpoint that can do everything.
func whole() S3Facts {
	f := S3Facts{
		MetadataKept: true, ChecksumShown: true, PartsChecksumShown: true, WrongChecksumRefused: true, WrongSignatureRefused: true,
		ConditionHonoured: true, PartsConditionHonoured: true, ClockAheadMs: aws.Float64(-1500), PutP50Ms: 20, PutMaxMs: 80,
	}
	for _, step := range s3Steps {
		f.Steps = append(f.Steps, S3Step{Name: step.name, Tried: true})
	}
	return f
}

func (f *S3Facts) fail(name string) {
	for i := range f.Steps {
		if f.Steps[i].Name == name {
			f.Steps[i].err = errors.New("it says no")
		}
	}
}

// Only an answer that S3 would not give to a put is taken for another server's.
func TestWhatAnswersLikeS3(t *testing.T) {
	for _, test := range []struct {
		name string
		err  error
		not  bool
	}{
		{"it worked", nil, false},
		{"no such object", fmt.Errorf("%w: s3://b/x", ErrNotFound), true},
		{"a page that is not there", &S3Error{Status: 404, Code: "NotFound"}, true},
		{"no puts", &S3Error{Status: 405, Code: "MethodNotAllowed"}, true},
		{"a token is wanted", &S3Error{Status: 401, Code: "Unauthorized"}, true},
		{"no puts, says S3", &S3Error{Status: 405, Code: "MethodNotAllowed", RequestID: "1"}, false},
		{"no bucket", &S3Error{Status: 404, Code: "NoSuchBucket"}, false},
		{"bad request, in S3's words", &S3Error{Status: 400, Code: "InvalidRequest"}, false},
		{"refused by something before it", &S3Error{Status: 403, Code: "Forbidden"}, false},
		{"a proxy whose S3 is away", &S3Error{Status: 502, Code: "BadGateway"}, false},
		{"no credentials", &S3Error{cause: ErrNoCredentials}, false},
		{"silence", errNoAnswer, false},
	} {
		if got := notLikeS3(test.err); got != test.not {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}

func TestJudgementOfAnEndpoint(t *testing.T) {
	for _, test := range []struct {
		name            string
		change          func(*S3Facts)
		problems, notes string // the beginnings, one a line; empty: none
	}{
		{"whole", func(*S3Facts) {}, "", ""},
		{"away", func(f *S3Facts) { f.fail("bucket") }, "it says no", ""},
		{"no head", func(f *S3Facts) { f.fail("head") }, "head: uploads cannot be verified", ""},
		{"no check of the checksum", func(f *S3Facts) { f.WrongChecksumRefused = false }, "", "it does not check x-amz-checksum-sha256"},
		{"no check of the signature", func(f *S3Facts) { f.WrongSignatureRefused = false }, "", "it does not check the SHA-256"},
		{"no check at all", func(f *S3Facts) { f.WrongChecksumRefused, f.WrongSignatureRefused = false, false }, "it stores bytes that are not those", ""},
		{"checks unknown", func(f *S3Facts) { f.fail("refuse a wrong checksum") }, "refuse a wrong checksum: it is not known", ""},
		{"checksum not shown", func(f *S3Facts) { f.ChecksumShown, f.PartsChecksumShown = false, false }, "", "it does not show the SHA-256 that an object"},
		{"checksum of parts not shown", func(f *S3Facts) { f.PartsChecksumShown = false }, "", "it does not show the SHA-256 of an object that was put in parts"},
		{"no metadata", func(f *S3Facts) { f.MetadataKept = false }, "", "it does not keep an object's metadata"},
		{"no conditions", func(f *S3Facts) { f.ConditionHonoured, f.PartsConditionHonoured = false, false }, "", "it does not honour If-None-Match: of two"},
		{"no conditions for parts", func(f *S3Facts) { f.PartsConditionHonoured = false }, "", "it does not honour If-None-Match for objects in parts"},
		{"no parts", func(f *S3Facts) { f.fail("put in parts") }, "put in parts: objects above 16 MiB", ""},
		{"no end of parts", func(f *S3Facts) { f.fail("give up parts") }, "", "give up parts: uploads that were killed"},
		{"clock behind", func(f *S3Facts) { f.ClockAheadMs = aws.Float64(-20 * 60e3) }, "the endpoint's clock is -20m0s ahead", ""},
		{"clock a bit off", func(f *S3Facts) { f.ClockAheadMs = aws.Float64(2 * 60e3) }, "", "the endpoint's clock is 2m0s ahead"},
		{"clock unknown", func(f *S3Facts) { f.ClockAheadMs = nil }, "", ""},
		{"slow", func(f *S3Facts) { f.PutP50Ms, f.PutMaxMs = 1500, 3000 }, "", "small objects take 1500 ms, and up to 3000"},
		{"left", func(f *S3Facts) { f.Left = []string{"x/y"} }, "what was put to try could not be removed: [x/y]", ""},
	} {
		r := S3Report{S3Facts: whole()}
		test.change(&r.S3Facts)
		r.judge()
		check := func(what, want string, got []S3Finding) {
			t.Helper()
			wanted := strings.Split(want, "\n")
			if want == "" {
				wanted = nil
			}
			if len(got) != len(wanted) {
				t.Errorf("%s: %s are %+v, want %q", test.name, what, got, wanted)
				return
			}
			for i := range got {
				if !strings.HasPrefix(got[i].Problem, wanted[i]) || got[i].Do == "" {
					t.Errorf("%s: %s are %+v, want %q", test.name, what, got, wanted)
				}
			}
		}
		check("problems", test.problems, r.Problems)
		check("notes", test.notes, r.Notes)
	}
}
