// Command s3gateway is an S3 server on loopback that keeps its objects as files
// in a directory: versitygw, run from its module. The tests of deepstore run it,
// and a local cluster may use it in place of a real S3:
//
//	cd internal/s3gateway && go build -o ../../bin/s3gateway .
//	AWS_ACCESS_KEY_ID=shoal AWS_SECRET_ACCESS_KEY=shoal-secret \
//	  bin/s3gateway -dir s3 -listen 127.0.0.1:7480 -bucket shoal
//
// It is a module of its own, so that what versitygw needs is no part of Shoal. It
// listens on 127.0.0.1 only, does not fsync what it stores, and knows one account,
// the one in the environment. So it is for tests and for trying things out, and
// for nothing that must not be lost.
//
// It prints one line on standard output, "listening on ADDRESS", once it takes
// requests; its log goes to standard error. It ends at SIGINT and SIGTERM, and
// when its standard input closes, so that no gateway outlives the process that
// started it and holds the other end. With -detached it leaves its input alone.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

type settings struct {
	dir, listen, bucket, region string
	detached                    bool
	access, secret              string
}

func main() {
	var s settings
	flag.StringVar(&s.dir, "dir", "", "directory of the objects; it is made if it is not there")
	flag.StringVar(&s.listen, "listen", "127.0.0.1:0", "address on 127.0.0.1; port 0 is a free one")
	flag.StringVar(&s.bucket, "bucket", "", "bucket that is made if it is not there")
	flag.StringVar(&s.region, "region", "us-east-1", "region that it says it is in")
	flag.BoolVar(&s.detached, "detached", false, "do not end when standard input closes")
	flag.Parse()
	s.access, s.secret = os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY")

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if !s.detached {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		go func() {
			io.Copy(io.Discard, os.Stdin)
			cancel()
		}()
	}
	if err := run(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, "s3gateway:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, s settings) error {
	// The gateway, and what it is made of, print to standard output: that is for
	// our one line.
	out := os.Stdout
	os.Stdout = os.Stderr

	addr, err := address(s.listen)
	if err != nil {
		return err
	}
	if s.dir == "" || flag.NArg() > 0 {
		return errors.New("want -dir DIR and nothing besides flags")
	}
	if s.access == "" || s.secret == "" {
		return errors.New("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY must be set: they are the one account")
	}
	backend, err := open(s.dir)
	if err != nil {
		return err
	}
	defer backend.Shutdown()

	// A path that only we know tells our gateway from another one that has just
	// taken the port.
	health := "/health-" + rand.Text()
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		err := embedgw.RunVersityGW(ctx, backend, &embedgw.Config{
			RootUserAccess: s.access, RootUserSecret: s.secret, Region: s.region,
			Ports:          []string{addr},
			MaxConnections: 4096, MaxRequests: 2048, MultipartMaxParts: 10_000,
			Quiet: true, KeepAlive: true, HealthPath: health,
		})
		ended <- err
		cancel(err)
	}()
	if err := awaitServing(ctx, "http://"+addr+health); err == nil {
		if err := makeBucket(ctx, s, addr); err != nil {
			cancel(err)
			return errors.Join(err, <-ended)
		}
		fmt.Fprintln(out, "listening on", addr)
	}
	return <-ended
}

// open makes the backend. Attributes lie in files beside the objects, not in
// extended attributes, which not every file system has.
func open(dir string) (*posix.Posix, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	objects, attributes := filepath.Join(dir, "objects"), filepath.Join(dir, "attributes")
	if err := errors.Join(os.MkdirAll(objects, 0o755), os.MkdirAll(attributes, 0o755)); err != nil {
		return nil, err
	}
	store, err := meta.NewSideCar(attributes)
	if err != nil {
		return nil, err
	}
	return posix.New(objects, store, posix.PosixOpts{SideCarDir: attributes})
}

// address is where to listen: on loopback only, and with a port that is known
// before the gateway has it, which does not tell.
func address(listen string) (string, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil || host != "127.0.0.1" {
		return "", fmt.Errorf("-listen %s: want 127.0.0.1:PORT, it serves nobody else", listen)
	}
	if port != "0" {
		return listen, nil
	}
	ln, err := net.Listen("tcp4", listen)
	if err != nil {
		return "", err
	}
	return ln.Addr().String(), ln.Close()
}

// awaitServing returns when the gateway answers at its health path.
func awaitServing(ctx context.Context, url string) error {
	for {
		if ok, err := serves(ctx, url); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func serves(ctx context.Context, url string) (bool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false, err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return false, nil // not yet
	}
	return answer.StatusCode == http.StatusOK, answer.Body.Close()
}
