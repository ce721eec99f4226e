package deepstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
)

// Probing is for an operator who wants to know what an endpoint can do. It does
// once what a store does all the time, on objects of its own below the prefix,
// whose names no table can have, and removes them.

// S3Finding is something that was found out, in words.
type S3Finding struct {
	Problem string `json:"problem"`
	Do      string `json:"do"`
}

// S3Step is one thing that was tried.
type S3Step struct {
	Name string `json:"step"`
	// Tried is false where an earlier step left no way to.
	Tried bool   `json:"tried"`
	Error string `json:"error,omitempty"`

	err error
}

func (s S3Step) worked() bool { return s.Tried && s.err == nil }

// S3Facts are what a probe has found out. The findings follow from them alone.
type S3Facts struct {
	Steps []S3Step `json:"steps"` // in the order of s3Steps
	// What a HEAD shows of an object that was put: its metadata, and the SHA-256
	// that it was put with; of one in parts, too.
	MetadataKept       bool `json:"metadataKept"`
	ChecksumShown      bool `json:"checksumShown"`
	PartsChecksumShown bool `json:"partsChecksumShown"`
	// Whether bytes were refused that are not those of their checksum, or of the
	// SHA-256 that the request is signed with.
	WrongChecksumRefused  bool `json:"wrongChecksumRefused"`
	WrongSignatureRefused bool `json:"wrongSignatureRefused"`
	// Whether If-None-Match keeps an object from being replaced.
	ConditionHonoured      bool `json:"conditionHonoured"`
	PartsConditionHonoured bool `json:"partsConditionHonoured"`
	// ClockAheadMs is how far S3's clock is ahead of the one here, to the second.
	ClockAheadMs *float64 `json:"clockAheadMs,omitempty"`
	PutP50Ms     float64  `json:"putP50Ms,omitempty"` // of small objects
	PutMaxMs     float64  `json:"putMaxMs,omitempty"`
	// Left are the objects that could not be removed.
	Left []string `json:"left"`
}

// S3Report is what a probe has to say.
type S3Report struct {
	Address   string `json:"address"`
	Endpoint  string `json:"endpoint"`
	Region    string `json:"region"`
	PathStyle bool   `json:"pathStyle"`
	S3Facts
	Problems []S3Finding `json:"problems"`
	// Notes are worth knowing and not wrong.
	Notes []S3Finding `json:"notes"`
}

// Reachable reports whether anybody answers at the endpoint, as far as it was
// asked.
func (r *S3Report) Reachable() bool { return !unreachable(r.Steps[0].err) }

// unreachable says of an error of the first step whether nobody was there.
func unreachable(err error) bool {
	status, _ := answerOf(err)
	return err != nil && status == 0 && !errors.Is(err, ErrNoCredentials)
}

// ProbeS3 tries what a store at uri needs. Its errors are those of the settings;
// what is wrong with the endpoint is in the report.
func ProbeS3(ctx context.Context, uri string, cfg S3Config) (*S3Report, error) {
	store, err := NewS3(uri, cfg)
	if err != nil {
		return nil, err
	}
	p := &s3Probe{s3Store: store.(*s3Store), name: ".shoal-doctor-" + rand.Text()}
	r := &S3Report{
		Address: p.String(), Endpoint: p.client.endpoint, Region: p.client.region, PathStyle: p.client.pathStyle,
		Problems: []S3Finding{}, Notes: []S3Finding{},
	}
	r.S3Facts = p.run(ctx)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	r.judge()
	return r, nil
}

// s3Probe is one probe.
type s3Probe struct {
	*s3Store
	name  string // of its objects, with something behind
	facts S3Facts
}

// s3Steps are what is tried, in order; needs is the step without which there is no
// sense in it.
var s3Steps = []struct {
	name, needs string
	run         func(*s3Probe, context.Context) error
}{
	{"bucket", "", (*s3Probe).bucket},
	{"put", "", (*s3Probe).put}, // a HEAD may be forbidden
	{"head", "put", (*s3Probe).tryHead},
	{"miss what is not there", "put", (*s3Probe).miss},
	{"get a range", "put", (*s3Probe).getRange},
	{"list", "put", (*s3Probe).list},
	{"refuse a wrong checksum", "put", (*s3Probe).wrongChecksum},
	{"refuse a wrong signature", "put", (*s3Probe).wrongSignature},
	{"put if there is none", "put", (*s3Probe).condition},
	{"put in parts", "put", (*s3Probe).parts},
	{"give up parts", "put", (*s3Probe).giveUp},
	{"put many", "put", (*s3Probe).latency},
	{"delete", "put", (*s3Probe).remove},
}

func (p *s3Probe) run(ctx context.Context) S3Facts {
	worked := map[string]bool{"": true}
	for _, step := range s3Steps {
		done := S3Step{Name: step.name, Tried: worked[step.needs]}
		if done.Tried {
			if done.err = p.translate(step.run(p, ctx)); done.err != nil {
				done.Error = done.err.Error()
			}
		}
		if len(p.facts.Steps) == 0 && unreachable(done.err) {
			worked = map[string]bool{} // nothing else is tried
			p.facts.Steps = append(p.facts.Steps, done)
			continue
		}
		worked[step.name] = done.worked()
		p.facts.Steps = append(p.facts.Steps, done)
	}
	p.facts.Left = p.clean(ctx)
	return p.facts
}

// translate wraps what the SDK said; what the probe itself says stays.
func (p *s3Probe) translate(err error) error {
	if errors.As(err, new(*S3Error)) || errors.Is(err, ErrNotFound) {
		return err
	}
	if errors.As(err, new(*smithy.OperationError)) || errors.Is(err, errNoAnswer) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return p.wrap("probe", p.String(), err)
	}
	return err
}

var probeData = bytes.Repeat([]byte("shoal "), 200)

func probeSum() [32]byte { return sha256.Sum256(probeData) }

// at is bucket and key of one of the probe's objects.
func (p *s3Probe) at(what string) (bucket, name *string) { return p.names(p.name + what) }

func (p *s3Probe) bucket(ctx context.Context) error {
	out, err := once(ctx, timeFor(0), func(ctx context.Context) (*s3.HeadBucketOutput, error) {
		return p.client.api.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: aws.String(p.place.bucket)})
	})
	if err == nil {
		p.clock(out.ResultMetadata)
		return nil
	}
	if off, ok := clockOff(answerHeader(err)); ok {
		p.facts.ClockAheadMs = aws.Float64(-float64(off.Milliseconds()))
	}
	if status, _ := answerOf(err); status == http.StatusNotFound {
		return p.noBucket("probe", p.String(), err)
	}
	return err
}

func (p *s3Probe) clock(m middleware.Metadata) {
	if theirs, ok := awsmiddleware.GetServerTime(m); ok {
		p.facts.ClockAheadMs = aws.Float64(float64(time.Until(theirs).Milliseconds()))
	}
}

// send puts one small object.
func (p *s3Probe) send(ctx context.Context, what string, signature [32]byte, change func(*s3.PutObjectInput)) error {
	bucket, name := p.at(what)
	in := &s3.PutObjectInput{
		Bucket: bucket, Key: name, Body: bytes.NewReader(probeData), ContentLength: aws.Int64(int64(len(probeData))),
		ChecksumAlgorithm: types.ChecksumAlgorithmSha256, ChecksumSHA256: aws.String(base64Of(probeSum())),
		Metadata: map[string]string{metaDigest: "probe"},
	}
	if change != nil {
		change(in)
	}
	_, err := once(ctx, timeFor(0), func(ctx context.Context) (*s3.PutObjectOutput, error) {
		return p.client.api.PutObject(ctx, in, signed(signature))
	})
	return err
}

func (p *s3Probe) put(ctx context.Context) error { return p.send(ctx, "", probeSum(), nil) }

func (p *s3Probe) tryHead(ctx context.Context) error {
	head, err := p.head(ctx, p.name)
	if err != nil {
		return err
	}
	p.facts.MetadataKept = metadata(head.Metadata)[metaDigest] == "probe"
	p.facts.ChecksumShown = aws.ToString(head.ChecksumSHA256) == base64Of(probeSum())
	if n := aws.ToInt64(head.ContentLength); n != int64(len(probeData)) {
		return fmt.Errorf("an object of %d bytes is said to have %d", len(probeData), n)
	}
	return nil
}

func (p *s3Probe) miss(ctx context.Context) error {
	_, err := p.head(ctx, p.name+"-none")
	switch {
	case err == nil:
		return errors.New("an object that nobody has put is there")
	case faultOf(err) == faultMissing:
		return nil
	}
	return err
}

func (p *s3Probe) getRange(ctx context.Context) error {
	const off, n = 100, 50
	body, err := p.open(ctx, p.name, off, n, nil)
	if err != nil {
		return err
	}
	data, err := io.ReadAll(body)
	if err := errors.Join(err, body.Close()); err != nil {
		return err
	}
	if !bytes.Equal(data, probeData[off:off+n]) {
		return errors.New("a range has other bytes than the object")
	}
	return nil
}

func (p *s3Probe) list(ctx context.Context) error {
	_, name := p.at("")
	for _, after := range []string{"", *name} {
		in := &s3.ListObjectsV2Input{Bucket: aws.String(p.place.bucket), Prefix: name}
		if after != "" {
			in.StartAfter = &after
		}
		out, err := once(ctx, timeFor(0), func(ctx context.Context) (*s3.ListObjectsV2Output, error) { return p.client.api.ListObjectsV2(ctx, in) })
		if err != nil {
			return err
		}
		if got, want := len(out.Contents), map[bool]int{true: 1, false: 0}[after == ""]; got != want {
			return fmt.Errorf("listing what begins with one object's name, after %q, gives %d objects, not %d", after, got, want)
		}
	}
	return nil
}

// refused says whether a request was refused that must be; other errors stay.
func refused(err error) (bool, error) {
	status, _ := answerOf(err)
	switch {
	case err == nil:
		return false, nil
	case status >= 400 && status < 500:
		return true, nil
	}
	return false, err
}

func (p *s3Probe) wrongChecksum(ctx context.Context) (err error) {
	p.facts.WrongChecksumRefused, err = refused(p.send(ctx, "-bad", probeSum(), func(in *s3.PutObjectInput) {
		in.ChecksumSHA256 = aws.String(base64Of(sha256.Sum256(nil)))
	}))
	return err
}

func (p *s3Probe) wrongSignature(ctx context.Context) (err error) {
	p.facts.WrongSignatureRefused, err = refused(p.send(ctx, "-bad", sha256.Sum256(nil), nil))
	return err
}

func (p *s3Probe) condition(ctx context.Context) error {
	err := p.send(ctx, "", probeSum(), func(in *s3.PutObjectInput) { in.IfNoneMatch = aws.String("*") })
	p.facts.ConditionHonoured = faultOf(err) == faultExists && err != nil
	if status, _ := answerOf(err); p.facts.ConditionHonoured || status == 501 {
		return nil
	}
	return err
}

// latency puts the same object some times.
func (p *s3Probe) latency(ctx context.Context) error {
	var took []time.Duration
	for range 10 {
		began := time.Now()
		if err := p.send(ctx, "", probeSum(), nil); err != nil {
			return err
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	p.facts.PutP50Ms, p.facts.PutMaxMs = ms(took[len(took)/2]), ms(took[len(took)-1])
	return nil
}

func (p *s3Probe) remove(ctx context.Context) error {
	bucket, name := p.at("")
	if _, err := once(ctx, timeFor(0), func(ctx context.Context) (*s3.DeleteObjectOutput, error) {
		return p.client.api.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: bucket, Key: name})
	}); err != nil {
		return err
	}
	_, err := p.head(ctx, p.name)
	switch {
	case err == nil:
		return errors.New("an object that was deleted is still there")
	case faultOf(err) == faultMissing:
		return nil
	}
	return err
}

// clean removes everything of the probe, also after the caller has gone.
func (p *s3Probe) clean(ctx context.Context) (left []string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortMax)
	defer cancel()
	left = []string{}
	put := p.facts.Steps[slices.IndexFunc(p.facts.Steps, func(s S3Step) bool { return s.Name == "put" })]
	objects := []string{"", "-bad", "-parts"}
	switch fault := faultOf(put.err); {
	case put.worked():
	case put.Tried && (fault == faultUnclear || fault == faultSlow):
		objects = objects[:1] // it may be there, and nothing else was tried
	default:
		return left
	}
	for _, what := range objects {
		bucket, name := p.at(what)
		if _, err := p.client.api.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: bucket, Key: name}); err != nil && faultOf(err) != faultMissing {
			left = append(left, *name)
		}
	}
	return left
}
