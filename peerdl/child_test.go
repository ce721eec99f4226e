package peerdl

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/segment"
)

// Some tests need a process that can be killed or measured by itself. It is this
// program again, told by childEnv what to be: a childJob as JSON. It says what it
// has to say in lines on standard output, and ends with its standard input.
const childEnv = "SHOAL_PEERDL_TEST_CHILD"

type childJob struct {
	Serve    *serveJob    `json:",omitempty"`
	Download *downloadJob `json:",omitempty"`
	Loss     *lossJob     `json:",omitempty"`
}

func TestMain(m *testing.M) {
	spec := os.Getenv(childEnv)
	if spec == "" {
		os.Exit(m.Run())
	}
	var job childJob
	if err := json.Unmarshal([]byte(spec), &job); err != nil {
		panic(err)
	}
	switch {
	case job.Serve != nil:
		job.Serve.run()
	case job.Download != nil:
		job.Download.run()
	case job.Loss != nil:
		job.Loss.run()
	}
}

// child is such a process, not yet started.
type child struct {
	*exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Reader
}

func newChild(tb testing.TB, job childJob) *child {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	spec, err := json.Marshal(job)
	if err != nil {
		tb.Fatal(err)
	}
	c := &child{Cmd: exec.Command(self)}
	c.Env = append(os.Environ(), childEnv+"="+string(spec))
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err == nil {
		c.stdin, err = c.StdinPipe()
	}
	if err != nil {
		tb.Fatal(err)
	}
	c.lines = bufio.NewReader(out)
	return c
}

// start starts it, and has it ended with the test.
func (c *child) start(tb testing.TB) {
	tb.Helper()
	if err := c.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		c.stdin.Close()
		c.Wait() // some were killed
	})
}

// hear reads the next line into v; at the end of the output it is io.EOF.
func (c *child) hear(v any) error {
	line, err := c.lines.ReadBytes('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(line, v)
}

func say(v any) {
	if err := json.NewEncoder(os.Stdout).Encode(v); err != nil {
		panic(err)
	}
}

// serveJob serves a file as the blob, and says where.
type serveJob struct {
	Dir  string // the file is Dir/blob
	Wrap bool   // behind a middleware that hides what the writer can do
	Rate int64
	// DieIn, if not 0, is the request for bytes, counted from 1, in the middle of
	// which the process kills itself.
	DieIn int
}

func (j *serveJob) run() {
	h := j.handler()
	srv := httptest.NewServer(h)
	say(srv.URL + "/blob")
	io.Copy(io.Discard, os.Stdin)
	srv.Close() // what is being sent is sent, and its last system call counted
}

func (j *serveJob) handler() http.Handler {
	fsys, err := vfs.OS(j.Dir)
	if err != nil {
		panic(err)
	}
	b := &blob{fs: fsys, name: "blob"}
	if b.data, err = vfs.ReadFile(fsys, b.name, 1<<30); err != nil {
		panic(err)
	}
	if b.pieces, b.digest, err = segment.HashFile(bytes.NewReader(b.data), b.Size()); err != nil {
		panic(err)
	}
	h := b.handler(Options{Limiter: NewLimiter(32), Metrics: NewMetrics(nil), Rate: NewRate(j.Rate)})
	if j.Wrap {
		h = wrapping(h)
	}
	if j.DieIn > 0 {
		h = dying(h, j.DieIn)
	}
	return h
}

// wrapping is what many a middleware does.
func wrapping(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(struct{ http.ResponseWriter }{w}, r)
	})
}
