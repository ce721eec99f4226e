// Command s3bench uploads one file to S3 and prints what that took, as JSON. It is
// what internal/bench compares our uploads with, and a module of its own: the SDK's
// transfer manager is no part of Shoal.
//
// An upload has a process to itself, so that its processor time and its memory are
// known. The object is deleted afterwards, unmeasured.
//
// Start reading at sides in this file.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/segment"
)

// What deepstore does with an object of this size, for the others to do the same.
const (
	partSize    = 8 << 20
	partsAtOnce = 4
)

// job is one upload. Credentials are those of the environment.
type job struct {
	endpoint, region, bucket, key, file string
	digest                              segment.Digest
}

// side is one way to do it.
type side func(ctx context.Context, j job, f *os.File, size int64) error

var sides = map[string]side{
	"shoal":   putShoal,   // BLAKE3 and SHA-256, verified before anything is sent
	"manager": putManager, // the transfer manager as it comes
	"bare":    putBare,    // without checksums, and without a digest in the signature
}

// report is what is printed.
type report struct {
	Took, CPU time.Duration
	PeakBytes int64 // of memory; 0: not known
}

func main() {
	var j job
	name := flag.String("side", "", "who uploads: shoal, manager or bare")
	digest := flag.String("digest", "", "BLAKE3 of the file, `hex`")
	flag.StringVar(&j.endpoint, "endpoint", "", "`URL` of the S3 server")
	flag.StringVar(&j.region, "region", "us-east-1", "its region")
	flag.StringVar(&j.bucket, "bucket", "", "bucket")
	flag.StringVar(&j.key, "key", "", "key of the object, below the prefix "+prefix)
	flag.StringVar(&j.file, "file", "", "`file` to upload")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	r, err := run(ctx, *name, *digest, j)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(r)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "s3bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, name, digest string, j job) (r report, err error) {
	put := sides[name]
	if put == nil {
		return r, fmt.Errorf("-side %q: want shoal, manager or bare", name)
	}
	if err := j.digest.UnmarshalText([]byte(digest)); err != nil {
		return r, fmt.Errorf("-digest: %w", err)
	}
	f, err := os.Open(j.file)
	if err != nil {
		return r, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return r, err
	}
	began, cpu := time.Now(), cpuTime()
	if err := put(ctx, j, f, info.Size()); err != nil {
		return r, err
	}
	r = report{time.Since(began), cpuTime() - cpu, peakMemory()}
	return r, clear(ctx, j, info.Size())
}

// prefix is where a side's objects are, below the bucket.
const prefix = "bench"

func (j job) store() (deepstore.Store, error) {
	return deepstore.NewS3("s3://"+j.bucket+"/"+prefix, deepstore.S3Config{Endpoint: j.endpoint, Region: j.region})
}

func putShoal(ctx context.Context, j job, f *os.File, size int64) error {
	s, err := j.store()
	if err != nil {
		return err
	}
	return s.Put(ctx, j.key, f, size, j.digest)
}

func putManager(ctx context.Context, j job, f *os.File, _ int64) error {
	return j.manage(ctx, f, aws.RequestChecksumCalculationWhenSupported)
}

func putBare(ctx context.Context, j job, f *os.File, _ int64) error {
	return j.manage(ctx, f, aws.RequestChecksumCalculationWhenRequired, s3.WithAPIOptions(v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware))
}

func (j job) manage(ctx context.Context, f *os.File, sums aws.RequestChecksumCalculation, more ...func(*s3.Options)) error {
	client := s3.New(s3.Options{
		BaseEndpoint: aws.String(j.endpoint), Region: j.region, UsePathStyle: true, RequestChecksumCalculation: sums,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: os.Getenv("AWS_ACCESS_KEY_ID"), SecretAccessKey: os.Getenv("AWS_SECRET_ACCESS_KEY")}, nil
		}),
	}, more...)
	manager := transfermanager.New(client, func(o *transfermanager.Options) {
		o.PartSizeBytes, o.Concurrency, o.RequestChecksumCalculation = partSize, partsAtOnce, sums
	})
	_, err := manager.UploadObject(ctx, &transfermanager.UploadObjectInput{
		Bucket: aws.String(j.bucket), Key: aws.String(prefix + "/" + j.key), Body: f,
	})
	return err
}

// clear checks that an object of the right size is there, and deletes it.
func clear(ctx context.Context, j job, size int64) error {
	s, err := j.store()
	if err != nil {
		return err
	}
	info, err := s.Head(ctx, j.key)
	if err == nil && info.SizeBytes != size {
		err = fmt.Errorf("%s has %d bytes, want %d", j.key, info.SizeBytes, size)
	}
	return errors.Join(err, s.Delete(ctx, j.key))
}

// cpuTime is the processor time of this process so far, of all threads, in the
// kernel too.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // only for a bad argument
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// peakMemory is the most that this process had in memory.
func peakMemory() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	return 0
}
