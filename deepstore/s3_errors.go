package deepstore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// S3Error is what S3, or the way to it, said. Its text has no URL that was
// requested, no account and no key.
type S3Error struct {
	Op  string // as "put"
	URI string // the object's, or the store's
	// Code is S3's; empty if there was no answer. Where an answer has no body, as
	// that to a HEAD, it is made of Status.
	Code      string
	Status    int
	RequestID string
	Message   string
	// Do says what to do about it; empty if there is nothing in particular.
	Do string

	cause error
}

func (e *S3Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "deepstore: %s %s: ", e.Op, e.URI)
	if e.Status != 0 {
		fmt.Fprintf(&b, "%s (%d)", e.Code, e.Status)
		if e.Message != "" {
			b.WriteString(": ")
		}
	}
	b.WriteString(e.Message)
	if e.RequestID != "" {
		fmt.Fprintf(&b, ", request %s", e.RequestID)
	}
	if e.Do != "" {
		b.WriteString("; " + e.Do)
	}
	return b.String()
}

func (e *S3Error) Unwrap() error { return e.cause }

// errNoAnswer ends a request whose time is up.
var errNoAnswer = errors.New("no answer in time")

// s3Fault is what a failed request is to the calls that decide what follows.
type s3Fault int

const (
	faultRefused s3Fault = iota // S3 did not act, and would not the next time
	faultMissing                // 404
	faultExists                 // 412: there is an object
	faultRace                   // 409: somebody does the same at the moment
	faultDamaged                // the bytes that arrived are not those of their checksum; S3 did not act
	faultUnclear                // S3 may have acted; worth trying again
	faultSlow                   // the same, but the time is up
	faultHere                   // not S3: the caller's context, its source, no credentials
)

// faultOf sorts an error of the SDK.
func faultOf(err error) s3Fault {
	status, code := answerOf(err)
	switch {
	case errors.Is(err, errNoAnswer):
		return faultSlow
	case errors.Is(err, ErrNoCredentials), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.As(err, new(*sourceError)):
		return faultHere
	case status == 0:
		return faultUnclear // the connection
	}
	switch code {
	case "BadDigest", "InvalidDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch", "IncompleteBody":
		return faultDamaged
	case "RequestTimeout", "SlowDown", "Throttling", "RequestTimeTooSkewed":
		return faultUnclear // the last: the SDK corrects its clock for the next one
	}
	switch {
	case wasWell(status):
		return faultUnclear // the answer broke off, or is none that S3 gives
	case status == http.StatusNotFound:
		return faultMissing
	case status == http.StatusPreconditionFailed:
		return faultExists
	case status == http.StatusConflict:
		return faultRace
	case status == http.StatusTooManyRequests, status == http.StatusRequestTimeout, status >= 500 && status != http.StatusNotImplemented:
		return faultUnclear
	}
	return faultRefused
}

// worthARetry says whether the same request may fare better in a moment.
func (f s3Fault) worthARetry() bool {
	return f == faultUnclear || f == faultRace || f == faultDamaged
}

// answerOf is status and code of S3's answer; 0 if there was none. An error in
// the body of a 200 counts as the 500 that it stands for.
func answerOf(err error) (status int, code string) {
	if errors.Is(err, ErrNoCredentials) {
		return 0, "" // what answered is whoever was asked for credentials
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		code = api.ErrorCode()
	}
	var answer *smithyhttp.ResponseError
	if errors.As(err, &answer) && answer.Response != nil {
		status = answer.HTTPStatusCode()
	}
	if wasWell(status) && code != "" {
		status = http.StatusInternalServerError
	}
	if code == "" && status != 0 {
		code = codeOf(status)
	}
	return status, code
}

// wasWell says of an error whether the answer began as a good one.
func wasWell(status int) bool { return status >= 200 && status < 300 }

// codeOf stands for the code of an answer that has none.
func codeOf(status int) string { return strings.ReplaceAll(http.StatusText(status), " ", "") }

// wrap translates what the SDK said, once, for whoever called the store.
func (s *s3Store) wrap(op, uri string, err error) error {
	status, code := answerOf(err)
	if faultOf(err) == faultMissing && (code == "NoSuchKey" || code == "NotFound") {
		return fmt.Errorf("%w: %s", ErrNotFound, uri)
	}
	e := &S3Error{Op: op, URI: uri, Code: code, Status: status, cause: err}
	var part *partError
	if errors.As(err, &part) {
		e.Op = fmt.Sprintf("%s part %d of %d of", op, part.number, part.of)
	}
	var api smithy.APIError
	switch {
	case errors.Is(err, ErrNoCredentials):
		e.Message, e.Do = "there are no credentials, neither in the environment nor in the shared files (~/.aws) nor of a role of the machine", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile in the shared files, or give the machine a role"
	case status == 0:
		e.Message = s.silence(err)
	case wasWell(status):
		e.Message = "the answer broke off, or cannot be read"
		var unread *smithy.DeserializationError
		if errors.As(err, &unread) {
			e.Message += ": " + clip(fmt.Sprint(unread.Err))
		}
	case errors.As(err, &api):
		e.Message = clip(api.ErrorMessage())
	}
	var request interface{ ServiceRequestID() string }
	if errors.As(err, &request) {
		e.RequestID = clip(request.ServiceRequestID())
	}
	switch {
	case faultOf(err) == faultDamaged:
		e.Do = "what arrived was not what had been hashed: something on the way, or the disk here, changes bytes"
	case status != 0:
		e.Do = s.advice(code, status, answerHeader(err))
	}
	return e
}

// silence says why there was no answer, without the URL that was asked.
func (s *s3Store) silence(err error) string {
	var asked *url.Error
	if errors.As(err, &asked) {
		err = asked.Err
	}
	var sent *smithyhttp.RequestSendError
	if errors.As(err, &sent) {
		err = sent.Err
	}
	var operation *smithy.OperationError
	if errors.As(err, &operation) {
		err = operation.Err
	}
	return fmt.Sprintf("%s gave no answer: %v", s.client.endpoint, err)
}

func answerHeader(err error) http.Header {
	var answer *smithyhttp.ResponseError
	if errors.As(err, &answer) && answer.Response != nil {
		return answer.Response.Header
	}
	return http.Header{}
}

// s3SkewMax is how far a clock may be off before S3 refuses its requests.
const s3SkewMax = 15 * time.Minute

// advice says what to do about an answer.
func (s *s3Store) advice(code string, status int, header http.Header) string {
	// A refused HEAD has no body: that the clock is the cause shows in the answer's
	// own time only.
	if off, ok := clockOff(header); code == "RequestTimeTooSkewed" || ok && status == http.StatusForbidden && off.Abs() > s3SkewMax {
		if !ok {
			return "the clock here is more than 15 minutes off that of S3: mend it (NTP)"
		}
		return fmt.Sprintf("the clock here is %v off that of S3, which takes 15m: mend it (NTP)", off.Round(time.Second))
	}
	region := header.Get("X-Amz-Bucket-Region")
	switch {
	case region != "" && region != s.client.region:
		return fmt.Sprintf("bucket %s is in region %s and not %s: set --s3-region=%s", s.place.bucket, clip(region), s.client.region, clip(region))
	case status == http.StatusMovedPermanently, status == http.StatusTemporaryRedirect, code == "AuthorizationHeaderMalformed":
		return fmt.Sprintf("bucket %s is elsewhere: set --s3-region to its region (now %s), or --s3-endpoint", s.place.bucket, s.client.region)
	case code == "NoSuchBucket":
		return fmt.Sprintf("make bucket %s, or mend the URI", s.place.bucket)
	case code == "InvalidAccessKeyId", code == "XAdminUserNotFound", code == "SignatureDoesNotMatch":
		return "mend the credentials: the endpoint does not know the access key, or has another secret for it"
	case code == "ExpiredToken", code == "InvalidToken", code == "TokenRefreshRequired":
		return "the credentials are over: renew them, and see that what renews them runs"
	case status == http.StatusForbidden:
		return fmt.Sprintf("allow these credentials s3:GetObject, s3:PutObject, s3:DeleteObject, s3:AbortMultipartUpload on %s/*, and s3:ListBucket, s3:ListBucketMultipartUploads on the bucket", s.place)
	case status == http.StatusServiceUnavailable, status == http.StatusTooManyRequests:
		return "S3 is too busy, or away: it is tried again later"
	}
	return ""
}

// clockOff is how far the clock here is ahead of the answer's.
func clockOff(header http.Header) (time.Duration, bool) {
	theirs, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		return 0, false
	}
	return time.Since(theirs), true
}
