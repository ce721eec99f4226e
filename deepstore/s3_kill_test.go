package deepstore_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/deepstore/s3test"
)

// s3UploaderEndpoint tells this test's second process where to upload to.
const s3UploaderEndpoint = "DEEPSTORE_TEST_UPLOADER_ENDPOINT"

// TestS3UploaderKilled kills a process with SIGKILL in the middle of an upload, once
// while parts are sent and once when it asks for the object to be made, before and
// after S3 has made it. What stands then is found, and either adopted or swept.
func TestS3UploaderKilled(t *testing.T) {
	if endpoint := os.Getenv(s3UploaderEndpoint); endpoint != "" {
		uploadUntilKilled(t, endpoint)
		return
	}
	r := newS3Rig(t)
	sweeper := r.store.(deepstore.Sweeper)
	for _, test := range []struct {
		name, op string
		acts     bool // S3 does what it was asked for last
		stands   bool
		uploads  int
	}{
		{"in a part", "UploadPart", false, false, 1},
		{"before the end", "CompleteMultipartUpload", false, false, 1},
		{"after the end", "CompleteMultipartUpload", true, true, 0},
	} {
		r.proxy.Heal()
		hold, before := make(chan struct{}), r.proxy.Count(test.op)
		defer close(hold) // not before: what is held must go with its sender
		if test.acts {
			r.proxy.Fail(-1, s3test.Fault{HoldAnswer: hold}, test.op)
		} else {
			r.proxy.Fail(-1, s3test.Fault{Hold: hold}, test.op)
		}
		cmd := exec.Command(os.Args[0], "-test.run=^TestS3UploaderKilled$")
		cmd.Env = append(os.Environ(), s3UploaderEndpoint+"="+r.proxy.Endpoint())
		must(t, cmd.Start())
		r.await(test.op, before+1)
		o := r.object(1, large)
		for test.acts && !(r.stands(o.Key) && r.uploads() == 0) { // S3 clears the parts away after it has made the object
			time.Sleep(time.Millisecond)
		}
		must(t, cmd.Process.Kill())
		cmd.Wait()
		r.proxy.Heal()

		if n := r.uploads(); n != test.uploads {
			t.Errorf("%s: %d uploads can be found, want %d", test.name, n, test.uploads)
		}
		parts := r.proxy.Count("UploadPart")
		if err := r.put(t.Context(), o); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		must(t, r.verify(o))
		if sent := r.proxy.Count("UploadPart") - parts; (sent == 0) != test.stands {
			t.Errorf("%s: %d parts were sent again", test.name, sent)
		}
		if n, err := sweeper.Sweep(t.Context(), -time.Hour); err != nil || n != test.uploads || r.uploads() != 0 {
			t.Errorf("%s: swept %d, %v; %d uploads left", test.name, n, err, r.uploads())
		}
		must(t, r.verify(o))
		must(t, r.store.Delete(t.Context(), o.Key))
	}
}

// stands says whether the gateway has the object's file.
func (r *s3Rig) stands(key string) bool {
	_, err := os.Stat(r.gateway.ObjectFile(strings.Join([]string{s3Prefix, key}, "/")))
	return err == nil
}

func uploadUntilKilled(t *testing.T, endpoint string) {
	s, err := deepstore.Open("s3://"+s3test.Bucket+"/"+s3Prefix, []string{"s3://" + s3test.Bucket}, deepstore.S3Config{
		Endpoint: endpoint, Credentials: credentials.NewStaticCredentialsProvider(s3test.AccessKey, s3test.SecretKey, ""),
	})
	must(t, err)
	r := &s3Rig{T: t, store: s}
	must(t, r.put(t.Context(), r.object(1, large)))
}
