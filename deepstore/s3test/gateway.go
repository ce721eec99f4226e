package s3test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/shoalstore/shoal/internal/httpx/httpxtest"
)

// What every gateway of this package is asked with, and the bucket it has.
const (
	AccessKey = "shoal-test"
	SecretKey = "shoal-test-secret"
	Bucket    = "shoal"
	Region    = "us-east-1"
)

const startTries = 5

// Gateway is an S3 server of a test. What fails on the way fails the test, so its
// methods belong to the test's goroutine; Endpoint, Credentials and ObjectFile
// may be called from any.
type Gateway struct {
	t    testing.TB
	dir  string
	addr string
	run  *process // nil while it is down
}

// process is one life of a gateway.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
}

// Start runs a gateway with an empty Bucket until the test ends, and returns when
// it serves.
func Start(t testing.TB) *Gateway {
	t.Helper()
	g := &Gateway{t: t, dir: t.TempDir()}
	program, err := binary()
	g.check(err)
	t.Cleanup(func() { g.end() })
	for try := 1; ; try++ {
		port, err := httpxtest.FreePort()
		g.check(err)
		t.Cleanup(func() { httpxtest.GiveBack(port) })
		g.addr = httpxtest.Loopback(port)
		if err = g.launch(program); err == nil {
			return g
		}
		// Another process may have taken the port in between.
		if try == startTries {
			g.check(err)
		}
	}
}

// Endpoint is the URL that clients reach it by.
func (g *Gateway) Endpoint() string { return "http://" + g.addr }

// Addr is the same as host:port.
func (g *Gateway) Addr() string { return g.addr }

// Credentials are those of its one account.
func (g *Gateway) Credentials() aws.CredentialsProvider {
	return credentials.NewStaticCredentialsProvider(AccessKey, SecretKey, "")
}

// Environ is what a process needs in its environment to be that account.
func (g *Gateway) Environ() []string {
	return []string{"AWS_ACCESS_KEY_ID=" + AccessKey, "AWS_SECRET_ACCESS_KEY=" + SecretKey, "AWS_SESSION_TOKEN="}
}

// ObjectFile is the file that an object of Bucket lies in.
func (g *Gateway) ObjectFile(key string) string {
	return filepath.Join(g.dir, "objects", Bucket, filepath.FromSlash(key))
}

// Kill ends it with SIGKILL and waits until it is gone. What it had acknowledged
// stays, as the machine goes on.
func (g *Gateway) Kill() {
	g.t.Helper()
	if g.run == nil {
		g.t.Fatal("the gateway is down already")
	}
	g.end()
}

// Restart starts one that was killed, with its port and files, and returns when
// it serves.
func (g *Gateway) Restart() {
	g.t.Helper()
	if g.run != nil {
		g.t.Fatal("the gateway is still up")
	}
	program, err := binary()
	g.check(err)
	g.check(g.launch(program))
}

func (g *Gateway) end() {
	if g.run == nil {
		return
	}
	g.run.cmd.Process.Kill() // one that has ended is as good
	g.run.cmd.Wait()
	g.run.stdin.Close()
	g.run = nil
}

func (g *Gateway) launch(program string) error {
	log, err := os.OpenFile(filepath.Join(g.dir, "gateway.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(program, "-dir", g.dir, "-listen", g.addr, "-bucket", Bucket, "-region", Region)
	cmd.Env = append(os.Environ(), g.Environ()...)
	cmd.Stderr = log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	g.run = &process{cmd: cmd, stdin: stdin}
	line, err := bufio.NewReader(stdout).ReadString('\n') // until it serves, or ends
	if want := "listening on " + g.addr + "\n"; line != want {
		g.end()
		return fmt.Errorf("the gateway said %q (%v); its log ends:\n%s", line, err, g.tail())
	}
	return nil
}

func (g *Gateway) tail() string {
	text, err := os.ReadFile(filepath.Join(g.dir, "gateway.log"))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-30):], "\n")
}

func (g *Gateway) check(err error) {
	if err != nil {
		g.t.Helper()
		g.t.Fatal(fmt.Errorf("s3test: %w", err))
	}
}
