package deepstore_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/deepstore/deepstoretest"
	"github.com/shoalstore/shoal/deepstore/s3test"
)

const large = 20 << 20 // three parts

func (r *s3Rig) object(seq int64, size int) deepstoretest.Object {
	return deepstoretest.NewObject(r, "flights", seq, size)
}

func (r *s3Rig) put(ctx context.Context, o deepstoretest.Object) error {
	return r.store.Put(ctx, o.Key, bytes.NewReader(o.Data), int64(len(o.Data)), o.Digest)
}

func (r *s3Rig) verify(o deepstoretest.Object) error {
	return r.store.Verify(context.Background(), o.Key, int64(len(o.Data)), o.Digest)
}

// uploads says how many multipart uploads the gateway has.
func (r *s3Rig) uploads() int {
	r.Helper()
	out, err := r.raw.ListMultipartUploads(context.Background(), &s3.ListMultipartUploadsInput{Bucket: aws.String(s3test.Bucket)})
	must(r.T, err)
	return len(out.Uploads)
}

// await waits until the proxy has seen n requests of an operation.
func (r *s3Rig) await(op string, n int) {
	for r.proxy.Count(op) < n {
		time.Sleep(time.Millisecond)
	}
}

func TestS3VouchesWithoutBeingRead(t *testing.T) {
	r := newS3Rig(t)
	for seq, size := range []int{1, 5000, large} {
		o := r.object(int64(seq), size)
		must(t, r.put(t.Context(), o))
		must(t, r.verify(o))
		must(t, r.put(t.Context(), o)) // adopted
	}
	if n := r.proxy.Count("GetObject"); n != 0 {
		t.Errorf("%d objects were read to verify them", n)
	}
	if puts, parts := r.proxy.Count("PutObject"), r.proxy.Count("UploadPart"); puts != 2 || parts != 3 {
		t.Errorf("%d objects and %d parts were sent, want 2 and 3", puts, parts)
	}
}

// Objects that somebody else has put, without a word of their digest or with
// another's, are read.
func TestS3ReadsWhatNobodyVouchesFor(t *testing.T) {
	r := newS3Rig(t)
	o := r.object(1, 5000)
	name := s3Prefix + "/" + o.Key
	_, err := r.raw.PutObject(t.Context(), &s3.PutObjectInput{Bucket: aws.String(s3test.Bucket), Key: &name, Body: bytes.NewReader(o.Data)})
	must(t, err)
	must(t, r.verify(o))
	must(t, r.put(t.Context(), o))
	if n := r.proxy.Count("GetObject"); n != 2 {
		t.Errorf("read %d times", n)
	}
	r.proxy.Fail(1, s3test.Fault{FlipAnswer: true}, "GetObject")
	if err := r.verify(o); !errors.Is(err, deepstore.ErrDifferent) {
		t.Errorf("read with a flipped bit: %v", err)
	}
	r.proxy.Fail(1, s3test.Fault{ShortAnswer: true}, "GetObject")
	if err := r.verify(o); err == nil || errors.Is(err, deepstore.ErrDifferent) || errors.Is(err, deepstore.ErrNotFound) {
		t.Errorf("read half: %v", err)
	}
}

func TestS3AnswersThatAreLost(t *testing.T) {
	r := newS3Rig(t)
	for i, test := range []struct {
		name   string
		op     string
		fault  s3test.Fault
		size   int
		visits int // how often the request comes in the end
	}{
		{"put answered 503 and done", "PutObject", s3test.Fault{Status: 503, After: true}, 5000, 1},
		{"put answered 500 and not done", "PutObject", s3test.Fault{Status: 500}, 5000, 2},
		{"put cut and done", "PutObject", s3test.Fault{Cut: true, After: true}, 5000, 1},
		{"put cut and not done", "PutObject", s3test.Fault{Cut: true}, 5000, 2},
		{"put at the same moment as somebody else", "PutObject", s3test.Fault{Status: 409, Code: "ConditionalRequestConflict"}, 5000, 2},
		{"put damaged on its way", "PutObject", s3test.Fault{FlipRequest: true}, 5000, 2},
		{"start of parts answered 503 and done", "CreateMultipartUpload", s3test.Fault{Status: 503, After: true}, large, 2},
		{"part answered 503", "UploadPart", s3test.Fault{Status: 503}, large, 4},
		{"part cut and done", "UploadPart", s3test.Fault{Cut: true, After: true}, large, 4},
		{"part damaged on its way", "UploadPart", s3test.Fault{FlipRequest: true}, large, 4},
		{"end of parts answered 503 and done", "CompleteMultipartUpload", s3test.Fault{Status: 503, After: true}, large, 1},
		{"end of parts cut and not done", "CompleteMultipartUpload", s3test.Fault{Cut: true}, large, 2},
		{"end of parts answered 500 in a 200", "CompleteMultipartUpload", s3test.Fault{Status: 200, Code: "InternalError"}, large, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := r.proxy.Count(test.op)
			o := deepstoretest.NewObject(t, "flights", int64(i), test.size)
			r.proxy.Fail(1, test.fault, test.op)
			must(t, r.put(t.Context(), o))
			must(t, r.verify(o))
			if got := r.proxy.Count(test.op) - before; got != test.visits {
				t.Errorf("%s came %d times, want %d", test.op, got, test.visits)
			}
			r.proxy.Heal()
		})
	}
}

// An endpoint whose disk was full may keep what it needs to answer 412, and no
// object: for ever, if that were believed.
func TestS3LeftoverWithoutAnObject(t *testing.T) {
	r := newS3Rig(t)
	r.proxy.Choose(func(q s3test.Request) *s3test.Fault {
		if q.Header.Get("If-None-Match") != "" {
			return &s3test.Fault{Status: http.StatusPreconditionFailed, Code: "PreconditionFailed"}
		}
		return nil
	})
	for i, size := range []int{5000, large} {
		o := r.object(int64(i), size)
		must(t, r.put(t.Context(), o))
		must(t, r.verify(o))
	}
	if n := r.proxy.Count("PutObject"); n != 3 {
		t.Errorf("%d tries of the small one, want two with the condition and one without", n)
	}
	if n := r.uploads(); n != 0 {
		t.Errorf("%d uploads left", n)
	}
}

// A store that is away, or answers 503 for longer than a moment, fails the call
// soon; the object is found, or sent again, later.
func TestS3Away(t *testing.T) {
	r := newS3Rig(t)
	for i, size := range []int{5000, large} {
		o := r.object(int64(i), size)
		r.proxy.Fail(-1, s3test.Fault{Status: 503, Code: "SlowDown"})
		err := r.put(t.Context(), o)
		if err == nil || errors.Is(err, deepstore.ErrNotFound) || !strings.Contains(err.Error(), "(503)") || !strings.Contains(err.Error(), o.Key) {
			t.Errorf("put into a store that answers 503: %v", err)
		}
		r.proxy.Outage()
		if err := r.put(t.Context(), o); err == nil || !strings.Contains(err.Error(), "gave no answer") {
			t.Errorf("put into a store that is away: %v", err)
		}
		if err := r.verify(o); err == nil || errors.Is(err, deepstore.ErrNotFound) {
			t.Errorf("verify in a store that is away: %v", err)
		}
		r.proxy.Heal()
		must(t, r.put(t.Context(), o))
		must(t, r.verify(o))
	}
}

// Whatever goes wrong for certain, the parts that were sent do not stay.
func TestS3UploadsThatFailAreAborted(t *testing.T) {
	r := newS3Rig(t)
	o := r.object(1, large)
	for name, fault := range map[string]s3test.Fault{
		"refused":        {Status: 403, Code: "AccessDenied"},
		"always damaged": {FlipRequest: true},
		"always 503":     {Status: 503},
	} {
		r.proxy.Fail(-1, fault, "UploadPart")
		err := r.put(t.Context(), o)
		r.proxy.Heal()
		if err == nil || !strings.Contains(err.Error(), " of 3") {
			t.Errorf("%s: %v", name, err)
		}
		if n := r.uploads(); n != 0 {
			t.Errorf("%s: %d uploads left", name, n)
		}
	}
	r.proxy.Fail(1, s3test.Fault{Status: 403, Code: "AccessDenied"}, "CompleteMultipartUpload")
	if err := r.put(t.Context(), o); err == nil || r.uploads() != 0 {
		t.Errorf("end of parts refused: %v, %d uploads left", err, r.uploads())
	}
	if err := r.verify(o); !errors.Is(err, deepstore.ErrNotFound) {
		t.Errorf("after all that: %v", err)
	}
	must(t, r.put(t.Context(), o))
}

func TestS3UploadWhoseCallerLeaves(t *testing.T) {
	r := newS3Rig(t)
	hold := make(chan struct{})
	defer close(hold)
	r.proxy.Fail(-1, s3test.Fault{Hold: hold}, "UploadPart")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- r.put(ctx, r.object(1, large)) }()
	r.await("UploadPart", 1)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if n := r.uploads(); n != 0 {
		t.Errorf("%d uploads left", n)
	}
}

// The source is never read once Put has returned, whatever the HTTP client does.
func TestS3DoesNotReadTheSourceAfterwards(t *testing.T) {
	r := newS3Rig(t)
	o := r.object(1, large)
	hold := make(chan struct{})
	defer close(hold)
	r.proxy.Fail(-1, s3test.Fault{Hold: hold}, "UploadPart")
	ctx, cancel := context.WithCancel(t.Context())
	source := &watched{ReaderAt: bytes.NewReader(o.Data)}
	done := make(chan error)
	go func() {
		err := r.store.Put(ctx, o.Key, source, large, o.Digest)
		source.over = true // races with a read that comes later
		done <- err
	}()
	r.await("UploadPart", 1)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

type watched struct {
	io.ReaderAt
	over bool
}

func (w *watched) ReadAt(b []byte, off int64) (int, error) {
	if w.over {
		panic("read after the end")
	}
	return w.ReaderAt.ReadAt(b, off)
}

// A source that changes, or fails, after it was hashed.
func TestS3SourceThatChanges(t *testing.T) {
	r := newS3Rig(t)
	for _, size := range []int{5000, large} {
		o := r.object(int64(size), size)
		source := &changing{ReaderAt: bytes.NewReader(o.Data), left: int64(size)}
		if err := r.store.Put(t.Context(), o.Key, source, int64(size), o.Digest); err == nil || errors.Is(err, deepstore.ErrNotFound) {
			t.Errorf("a source that changed: %v", err)
		}
		source.left, source.fails = int64(size), true
		if err := r.store.Put(t.Context(), o.Key, source, int64(size), o.Digest); !errors.Is(err, errDisk) {
			t.Errorf("a source that failed: %v", err)
		}
		if err := r.verify(o); !errors.Is(err, deepstore.ErrNotFound) {
			t.Errorf("after a source that changed: %v", err)
		}
	}
	if n := r.uploads(); n != 0 {
		t.Errorf("%d uploads left", n)
	}
}

var errDisk = errors.New("input/output error")

// changing is right as often as it is read once through, and then no more. It is
// read by one goroutine until then.
type changing struct {
	io.ReaderAt
	left  int64
	fails bool
}

func (c *changing) ReadAt(b []byte, off int64) (int, error) {
	n, err := c.ReaderAt.ReadAt(b, off)
	if c.left > 0 {
		c.left -= int64(n)
		return n, err
	}
	if c.fails {
		return 0, errDisk
	}
	for i := range b[:n] {
		b[i] ^= 1
	}
	return n, err
}

func TestS3GatewayKilledInAnUpload(t *testing.T) {
	r := newS3Rig(t)
	o := r.object(1, large)
	hold := make(chan struct{})
	// The first part arrives, the others wait.
	r.proxy.Choose(func(q s3test.Request) *s3test.Fault {
		if q.Op == "UploadPart" && q.Number > 3 {
			return &s3test.Fault{Hold: hold}
		}
		return nil
	})
	done := make(chan error)
	go func() { done <- r.put(context.Background(), o) }()
	r.await("UploadPart", 3)
	r.gateway.Kill()
	close(hold)
	if err := <-done; err == nil || errors.Is(err, deepstore.ErrNotFound) {
		t.Errorf("the gateway is dead, and Put says %v", err)
	}
	r.gateway.Restart()
	if n := r.uploads(); n != 1 {
		t.Errorf("%d uploads can be found, want the one that was cut short", n)
	}
	must(t, r.put(t.Context(), o))
	must(t, r.verify(o))
	n, err := r.store.(deepstore.Sweeper).Sweep(t.Context(), -time.Hour)
	if err != nil || n != 1 || r.uploads() != 0 {
		t.Errorf("swept %d, %v; %d uploads left", n, err, r.uploads())
	}
	must(t, r.verify(o))
}

// Requests that come again late, after their answer, change nothing.
func TestS3LateDuplicates(t *testing.T) {
	r := newS3Rig(t)
	for i, size := range []int{5000, large} {
		o := r.object(int64(i), size)
		r.proxy.Fail(-1, s3test.Fault{Again: true}, "PutObject", "UploadPart", "CompleteMultipartUpload")
		must(t, r.put(t.Context(), o))
		r.proxy.Heal()
		// A second end of an upload may well be answered like the first.
		if got := r.proxy.Repeat(); size < large && !slices.Equal(got, []int{http.StatusPreconditionFailed}) {
			t.Errorf("an object that came again was answered %v", got)
		}
		must(t, r.verify(o))
		if n := r.uploads(); n != 0 {
			t.Errorf("%d uploads left", n)
		}
	}
}

// An object that an earlier try, or somebody else, puts between our HEAD and our
// PUT is adopted if it is the same, and never replaced.
func TestS3SomebodyElseIsFirst(t *testing.T) {
	r := newS3Rig(t)
	other := openS3(t, r.gateway.Endpoint(), r.gateway, s3Prefix)
	for i, op := range []string{"PutObject", "CompleteMultipartUpload"} {
		o := r.object(int64(i), []int{5000, large}[i])
		hold := make(chan struct{})
		r.proxy.Fail(1, s3test.Fault{Hold: hold}, op)
		done := make(chan error)
		go func() { done <- r.put(context.Background(), o) }()
		r.await(op, 1)
		must(t, other.Put(t.Context(), o.Key, bytes.NewReader(o.Data), int64(len(o.Data)), o.Digest))
		if i == 1 {
			overwrite(t, r.raw, s3Prefix+"/"+o.Key, func(data []byte) { data[0] ^= 1 })
		}
		close(hold)
		err := <-done
		if i == 0 && err != nil || i == 1 && !errors.Is(err, deepstore.ErrDifferent) {
			t.Errorf("%s: %v", op, err)
		}
		if n := r.uploads(); n != 0 {
			t.Errorf("%s: %d uploads left", op, n)
		}
	}
}

// An endpoint that does not know If-None-Match is asked without, from then on.
func TestS3WithoutConditions(t *testing.T) {
	r := newS3Rig(t)
	r.proxy.Choose(func(q s3test.Request) *s3test.Fault {
		if q.Header.Get("If-None-Match") != "" {
			return &s3test.Fault{Status: http.StatusNotImplemented, Code: "NotImplemented"}
		}
		return nil
	})
	for i, size := range []int{5000, large} {
		o := r.object(int64(i), size)
		must(t, r.put(t.Context(), o))
		must(t, r.verify(o))
	}
	if n := r.proxy.Count("PutObject"); n != 2 {
		t.Errorf("asked %d times", n)
	}
}

func TestS3BodiesThatAreNotWhatWasAskedFor(t *testing.T) {
	r := newS3Rig(t)
	o := r.object(1, 5000)
	must(t, r.put(t.Context(), o))
	for _, part := range [][2]int64{{0, -1}, {0, 5000}, {1000, 3000}, {1000, -1}} {
		read := func(f s3test.Fault) (int, error) {
			r.proxy.Heal()
			r.proxy.Fail(1, f, "GetObject")
			body, err := r.store.Open(t.Context(), o.Key, part[0], part[1])
			if err != nil {
				return 0, err
			}
			data, err := io.ReadAll(body)
			return len(data), errors.Join(err, body.Close())
		}
		if n, err := read(s3test.Fault{CutAnswer: true}); !errors.Is(err, io.ErrUnexpectedEOF) || n == 0 {
			t.Errorf("%v, cut: %d bytes, %v", part, n, err)
		}
		if n, err := read(s3test.Fault{Status: 503}); err != nil {
			t.Errorf("%v, 503 once: %d bytes, %v", part, n, err)
		}
		if n, err := read(s3test.Fault{Status: 403}); err == nil {
			t.Errorf("%v, 403: %d bytes", part, n)
		}
		if part == [2]int64{0, -1} {
			continue // nothing was asked for but what there is
		}
		if n, err := read(s3test.Fault{ShortAnswer: true}); err == nil {
			t.Errorf("%v, half of it as if it were all: %d bytes", part, n)
		}
		if n, err := read(s3test.Fault{Unranged: true}); err == nil {
			t.Errorf("%v, no range in the answer: %d bytes", part, n)
		}
		if n, err := read(s3test.Fault{Header: http.Header{"Content-Range": {"bytes 7-9/5000"}}}); err == nil {
			t.Errorf("%v, another range: %d bytes", part, n)
		}
	}
}

func TestS3SweepsOnlyOursThatAreOld(t *testing.T) {
	r := newS3Rig(t)
	o := r.object(1, 10)
	for _, name := range []string{s3Prefix + "/" + o.Key, s3Prefix + "/notes.txt", "other/" + o.Key, o.Key} {
		_, err := r.raw.CreateMultipartUpload(t.Context(), &s3.CreateMultipartUploadInput{Bucket: aws.String(s3test.Bucket), Key: &name})
		must(t, err)
	}
	sweeper := r.store.(deepstore.Sweeper)
	if n, err := sweeper.Sweep(t.Context(), deepstore.SweepAge); err != nil || n != 0 || r.uploads() != 4 {
		t.Errorf("swept %d young ones, %v", n, err)
	}
	if n, err := sweeper.Sweep(t.Context(), -time.Hour); err != nil || n != 1 || r.uploads() != 3 {
		t.Errorf("swept %d, %v; %d left", n, err, r.uploads())
	}
}

func TestS3PresignedLinks(t *testing.T) {
	r := newS3Rig(t)
	o, other := r.object(1, 5000), r.object(2, 5000)
	must(t, r.put(t.Context(), o))
	must(t, r.put(t.Context(), other))
	presigner := r.store.(deepstore.Presigner)
	url, err := presigner.PresignGet(t.Context(), o.Key, time.Minute)
	must(t, err)
	answer, data := get(t, url)
	if answer.StatusCode != 200 || !bytes.Equal(data, o.Data) {
		t.Errorf("got %d and %d bytes", answer.StatusCode, len(data))
	}
	if got, want := answer.Header.Get("Content-Disposition"), `attachment; filename="`+path.Base(o.Key)+`"`; got != want {
		t.Errorf("it is to be saved as %s, want %s", got, want)
	}
	if answer, _ := get(t, strings.Replace(url, "/"+o.Key, "/"+other.Key, 1)); answer.StatusCode != 403 {
		t.Errorf("the link of another object gives %d", answer.StatusCode)
	}
	for _, expires := range []time.Duration{0, -time.Minute, 8 * 24 * time.Hour} {
		if _, err := presigner.PresignGet(t.Context(), o.Key, expires); err == nil {
			t.Errorf("signed for %v", expires)
		}
	}
	if _, err := presigner.PresignGet(t.Context(), "../"+o.Key, time.Minute); !errors.Is(err, deepstore.ErrBadKey) {
		t.Errorf("signed a key outside the layout: %v", err)
	}
}

func get(t *testing.T, url string) (*http.Response, []byte) {
	t.Helper()
	answer, err := http.Get(url)
	must(t, err)
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	must(t, err)
	return answer, data
}
