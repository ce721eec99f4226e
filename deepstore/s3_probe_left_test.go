package deepstore_test

import (
	"testing"

	"github.com/shoalstore/shoal/deepstore/s3test"
)

// An endpoint may act and answer that it did not. What it has then is removed, too.
func TestProbeLeavesNothingThatIsUnclear(t *testing.T) {
	r := newS3Rig(t)
	r.proxy.Fail(1, s3test.Fault{Status: 503, After: true}, "PutObject")
	report := r.probe()
	if len(report.Problems) == 0 {
		t.Error("nothing is wrong with an endpoint that answers 503")
	}
	if left := r.left(); len(left) != 0 || len(report.Left) != 0 {
		t.Errorf("it leaves %q, and says %q", left, report.Left)
	}
}
