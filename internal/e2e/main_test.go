package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/controller"
	"github.com/shoalstore/shoal/internal/node"
)

// roleEnv makes the test binary a process of a cluster: its value is a role as
// JSON. So a process is a process, with nothing to build first, and under the
// race detector whenever the test is.
const roleEnv = "SHOAL_E2E_ROLE"

// role is what a process is started with: one of the two.
type role struct {
	Controller *controller.Config `json:",omitempty"`
	Node       *node.Config       `json:",omitempty"`
}

func TestMain(m *testing.M) {
	if spec := os.Getenv(roleEnv); spec != "" {
		os.Exit(play(spec))
	}
	if spec := os.Getenv(partEnv); spec != "" {
		os.Exit(measurePart(spec))
	}
	// These tests wait more than they compute, some of them for a node to be
	// taken for DOWN: several at a time, also on two cores.
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(max(4, runtime.GOMAXPROCS(0)))); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// play is the process of a role. It logs to standard error, says its URL in one
// line on standard output once it has its directory and its address, and ends
// well on SIGTERM. When standard input ends, whoever started it is gone, and so
// is it, at once.
func play(spec string) int {
	log := zerolog.New(os.Stderr).With().Timestamp().Logger()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(exitOrphaned)
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx, spec, log); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return exitError
	}
	return 0
}

const (
	exitError    = 1
	exitOrphaned = 3
)

func run(ctx context.Context, spec string, log zerolog.Logger) error {
	var r role
	if err := json.Unmarshal([]byte(spec), &r); err != nil {
		return err
	}
	p, err := r.open(log)
	if err != nil {
		return err
	}
	fmt.Println(p.URL())
	err = p.Run(ctx)
	if closing := p.Close(); err == nil {
		err = closing
	}
	return err
}

// part is a controller or a node.
type part interface {
	URL() string
	Run(ctx context.Context) error
	Close() error
}

func (r *role) open(log zerolog.Logger) (part, error) {
	if r.Controller != nil {
		return controller.Open(*r.Controller, log)
	}
	return node.Open(*r.Node, log)
}
