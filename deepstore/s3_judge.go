package deepstore

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"
)

const (
	clockNote   = time.Minute // that clocks may differ without a word
	slowPutP50  = time.Second // above it uploads of small objects are slow
	inTheReport = "see what it said, above"
)

// judge says in words what is wrong, and what to do about it.
func (r *S3Report) judge() {
	steps := map[string]S3Step{}
	for _, s := range r.Steps {
		steps[s.Name] = s
	}
	if !r.Reachable() {
		r.Problems = append(r.Problems, said(steps["bucket"].err, "start it, or mend --s3-endpoint, the name service, the firewall or the credentials"))
		return
	}
	r.judgeBasics(steps)
	if steps["put"].worked() {
		r.judgeChecks(steps)
		r.judgeParts(steps)
	}
	r.judgeMeasures()
}

func (r *S3Report) problem(do, format string, args ...any) {
	r.Problems = append(r.Problems, S3Finding{fmt.Sprintf(format, args...), do})
}

func (r *S3Report) note(do, format string, args ...any) {
	r.Notes = append(r.Notes, S3Finding{fmt.Sprintf(format, args...), do})
}

// said is an error of S3 as a finding; what to do is in it, or do.
func said(err error, do string) S3Finding {
	var s3err *S3Error
	if !errors.As(err, &s3err) {
		return S3Finding{fmt.Sprint(err), do}
	}
	f := S3Finding{Do: s3err.Do}
	if f.Do == "" {
		f.Do = do
	}
	bare := *s3err
	bare.Do = ""
	f.Problem = bare.Error()
	return f
}

// judgeBasics is about what nothing goes without.
func (r *S3Report) judgeBasics(steps map[string]S3Step) {
	bucket, put := steps["bucket"], steps["put"]
	switch {
	case bucket.err != nil && notLikeS3(put.err):
		r.problem("is --s3-endpoint right? No S3 server is there, as it seems", "%s does not answer like S3: %v", r.Endpoint, put.err)
		return
	case bucket.err != nil && put.err != nil:
		// One cause, most likely. The answer to the put has words.
		r.Problems = append(r.Problems, said(put.err, inTheReport))
		return
	case bucket.err != nil:
		r.Notes = append(r.Notes, said(bucket.err, "allow s3:ListBucket"))
	case put.err != nil:
		r.Problems = append(r.Problems, said(put.err, inTheReport))
	}
	for _, need := range []struct{ step, without string }{
		{"head", "uploads cannot be verified"},
		{"miss what is not there", "nothing is uploaded, as it cannot be seen that it is missing; s3:ListBucket is the right to"},
		{"get a range", "segments cannot be fetched from it"},
		{"list", "objects that nobody knows of cannot be found"},
		{"delete", "retention cannot remove objects"},
	} {
		if s := steps[need.step]; s.Tried && s.err != nil {
			f := said(s.err, "use an endpoint that does this as S3 does")
			f.Problem = fmt.Sprintf("%s: %s: %s", need.step, need.without, f.Problem)
			r.Problems = append(r.Problems, f)
		}
	}
}

// notLikeS3 says of the answer to a put whether it is that of some other server.
// S3 has a code of its own and a number for each request, and a bucket that is
// not there is no missing object.
func notLikeS3(err error) bool {
	if errors.Is(err, ErrNotFound) {
		return true
	}
	var s3err *S3Error
	if !errors.As(err, &s3err) || s3err.RequestID != "" || s3err.Code != codeOf(s3err.Status) {
		return false
	}
	switch s3err.Status {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusUnsupportedMediaType, http.StatusNotImplemented:
		return true
	}
	return false // who refuses or is too busy may stand before an S3
}

// judgeChecks is about what keeps bytes right.
func (r *S3Report) judgeChecks(steps map[string]S3Step) {
	const as = "use an endpoint, or a newer version of it, that does"
	for _, name := range []string{"refuse a wrong checksum", "refuse a wrong signature", "put if there is none"} {
		if s := steps[name]; s.err != nil {
			f := said(s.err, inTheReport)
			f.Problem = name + ": it is not known whether it would: " + f.Problem
			r.Problems = append(r.Problems, f)
			return
		}
	}
	switch {
	case !r.WrongChecksumRefused && !r.WrongSignatureRefused:
		r.problem(as, "it stores bytes that are not those of their checksum: what a network damages would be found by readers only")
	case !r.WrongChecksumRefused:
		r.note("nothing: requests are signed with the SHA-256 of their bytes, and it checks that", "it does not check x-amz-checksum-sha256")
	case !r.WrongSignatureRefused:
		r.note("nothing: x-amz-checksum-sha256 travels with each upload, and it checks that", "it does not check the SHA-256 that requests are signed with")
	}
	if head := steps["head"]; head.worked() && (!r.ChecksumShown || !r.MetadataKept) {
		missing := "does not show the SHA-256 that an object was put with"
		if !r.MetadataKept {
			missing = "does not keep an object's metadata"
		}
		r.note(as+"; until then verifying costs as much as downloading", "it %s: each copy is read as a whole before it counts", missing)
	}
	if !r.ConditionHonoured {
		r.note(as, "it does not honour If-None-Match: of two uploads of one object at the same moment the later one replaces the earlier, with the same bytes")
	}
}

// judgeParts is about objects above 16 MiB.
func (r *S3Report) judgeParts(steps map[string]S3Step) {
	if s := steps["put in parts"]; s.err != nil {
		f := said(s.err, "use an endpoint that takes multipart uploads as S3 does")
		f.Problem = fmt.Sprintf("put in parts: objects above %d MiB cannot be stored: %s", s3WholeMax>>20, f.Problem)
		r.Problems = append(r.Problems, f)
		return
	}
	if r.ChecksumShown && !r.PartsChecksumShown {
		r.note("nothing, if segments are small; else use an endpoint that does", "it does not show the SHA-256 of an object that was put in parts: each such copy is read as a whole before it counts")
	}
	if r.ConditionHonoured && !r.PartsConditionHonoured {
		r.note("nothing: the later one has the same bytes", "it does not honour If-None-Match for objects in parts")
	}
	if s := steps["give up parts"]; s.err != nil {
		f := said(s.err, "")
		f.Problem = "give up parts: uploads that were killed cannot be found or removed: " + f.Problem
		f.Do = "allow s3:ListBucketMultipartUploads and s3:AbortMultipartUpload, or have the bucket's lifecycle abort incomplete uploads after two days"
		r.Notes = append(r.Notes, f)
	}
}

func (r *S3Report) judgeMeasures() {
	if r.ClockAheadMs != nil {
		off := time.Duration(*r.ClockAheadMs * float64(time.Millisecond)).Round(time.Second)
		switch {
		case off.Abs() >= s3SkewMax:
			r.problem("mend the clock here (NTP)", "the endpoint's clock is %v ahead of the one here: it refuses what differs by 15 minutes", off)
		case off.Abs() > clockNote:
			r.note("mend the clock here (NTP): at 15 minutes everything is refused", "the endpoint's clock is %v ahead of the one here", off)
		}
	}
	if r.PutP50Ms > float64(slowPutP50.Milliseconds()) {
		r.note("use an endpoint or a region that is nearer, if uploads are to keep up", "small objects take %.0f ms, and up to %.0f", math.Round(r.PutP50Ms), math.Round(r.PutMaxMs))
	}
	if len(r.Left) > 0 {
		r.problem("delete them", "what was put to try could not be removed: %v", r.Left)
	}
}
