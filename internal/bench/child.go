package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/shoalstore/shoal/segment"
)

// childEnv makes the program one part in a process of its own: its value is a
// job as JSON. The answer is one line of JSON on standard output.
const childEnv = "SHOAL_BENCH_CHILD"

// job is what a child does: one of these.
type job struct {
	Ingest *ingestJob `json:",omitempty"`
	Memory *memoryJob `json:",omitempty"`
	Serve  *serveJob  `json:",omitempty"`
	Crowd  *crowdJob  `json:",omitempty"`
	Loss   *lossJob   `json:",omitempty"`
}

// playChild does the job of a child and reports true, or reports false in a
// process that is none.
func playChild() (done bool, err error) {
	spec := os.Getenv(childEnv)
	if spec == "" {
		return false, nil
	}
	var j job
	if err := json.Unmarshal([]byte(spec), &j); err != nil {
		return true, err
	}
	var out any
	switch {
	case j.Ingest != nil:
		out, err = j.Ingest.run(context.Background())
	case j.Memory != nil:
		out, err = j.Memory.run()
	case j.Crowd != nil:
		out, err = j.Crowd.run(context.Background())
	case j.Loss != nil:
		out, err = j.Loss.run(context.Background())
	case j.Serve != nil:
		return true, j.Serve.run()
	}
	if err != nil {
		return true, err
	}
	return true, json.NewEncoder(os.Stdout).Encode(out)
}

// newChild prepares a process that does j, with more environment.
func newChild(ctx context.Context, j job, env ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	spec, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(append(os.Environ(), childEnv+"="+string(spec)), env...)
	cmd.Stderr = os.Stderr
	return cmd, nil
}

// runChild runs a job to its end and decodes its answer into out.
func runChild(ctx context.Context, j job, out any, env ...string) error {
	cmd, err := newChild(ctx, j, env...)
	if err != nil {
		return err
	}
	return hear(cmd, out)
}

// hear runs a command and decodes the JSON that it prints.
func hear(cmd *exec.Cmd, out any) error {
	answer, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("child: %w", err)
	}
	return json.Unmarshal(answer, out)
}

// server is a child that serves until it is stopped.
type server struct {
	cmd   *exec.Cmd
	stdin io.Closer
	url   string
}

func startServer(ctx context.Context, j serveJob) (*server, error) {
	cmd, err := newChild(ctx, job{Serve: &j})
	if err != nil {
		return nil, err
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &server{cmd: cmd, stdin: stdin}
	if err := json.NewDecoder(bufio.NewReader(stdout)).Decode(&s.url); err != nil {
		return nil, errors.Join(fmt.Errorf("server: no address: %w", err), s.stop())
	}
	return s, nil
}

// serveNew makes a segment in a store at dir and starts a server of it.
func serveNew(ctx context.Context, dir string, size int64) (segment.Held, *server, error) {
	held, err := makeSegment(dir, size)
	if err != nil {
		return held, nil, err
	}
	srv, err := startServer(ctx, serveJob{Store: dir})
	return held, srv, err
}

// addr is its host:port.
func (s *server) addr() string { return strings.TrimPrefix(s.url, "http://") }

// stop ends the server, which takes the end of its input for the sign, and
// waits for it.
func (s *server) stop() error { return errors.Join(s.stdin.Close(), s.cmd.Wait()) }

// cpuTime is the processor time of this process so far, of all threads, in the
// kernel too.
func cpuTime() time.Duration { return usage(syscall.RUSAGE_SELF) }

// childrenTime is that of the children that have ended.
func childrenTime() time.Duration { return usage(syscall.RUSAGE_CHILDREN) }

func usage(who int) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(who, &u); err != nil {
		panic(err) // only for a bad argument
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
