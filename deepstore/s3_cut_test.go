package deepstore_test

import (
	"strings"
	"testing"

	"github.com/shoalstore/shoal/deepstore/deepstoretest"
	"github.com/shoalstore/shoal/deepstore/s3test"
)

// An answer that begins well and breaks off is none: what S3 did is not known. It is
// asked again where that is safe, what is there is looked at, and no upload is given up
// that may have become an object.
func TestS3AnswersThatBreakOff(t *testing.T) {
	r := newS3Rig(t)
	for i, test := range []struct {
		name   string
		op     string
		fault  s3test.Fault
		visits int
	}{
		{"start of parts cut", "CreateMultipartUpload", s3test.Fault{CutAnswer: true}, 2},
		{"start of parts short", "CreateMultipartUpload", s3test.Fault{ShortAnswer: true}, 2},
		{"end of parts cut", "CompleteMultipartUpload", s3test.Fault{CutAnswer: true}, 1},
		{"end of parts short", "CompleteMultipartUpload", s3test.Fault{ShortAnswer: true}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := r.proxy.Count(test.op)
			o := deepstoretest.NewObject(t, "flights", int64(i), large)
			r.proxy.Fail(1, test.fault, test.op)
			must(t, r.put(t.Context(), o))
			must(t, r.verify(o))
			if got := r.proxy.Count(test.op) - before; got != test.visits {
				t.Errorf("%s came %d times, want %d", test.op, got, test.visits)
			}
			r.proxy.Heal()
		})
	}
	for _, fault := range []s3test.Fault{{CutAnswer: true}, {ShortAnswer: true}} {
		r.proxy.Fail(1, fault, "ListObjectsV2")
		if list, err := r.store.List(t.Context(), "", "", 10); err != nil || len(list) == 0 {
			t.Errorf("%+v: %v, %v", fault, list, err)
		}
		r.proxy.Fail(-1, fault, "ListObjectsV2")
		if _, err := r.store.List(t.Context(), "", "", 10); err == nil || !strings.Contains(err.Error(), "the answer broke off") {
			t.Errorf("%+v: %v", fault, err)
		}
		r.proxy.Heal()
	}
}
