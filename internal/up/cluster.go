package up

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/controller"
	"github.com/shoalstore/shoal/internal/node"
)

// The layout of the data directory.
const (
	controllerDir = "controller"
	streamDir     = "stream"
	deepStoreDir  = "deepstore"
)

func nodeName(i int) string { return "node-" + strconv.Itoa(i) }

// cluster is the processes that are not processes: each runs as it would alone,
// and is stopped and waited for here.
type cluster struct {
	cfg  Config
	log  zerolog.Logger
	ctx  context.Context // ends with the run, or when a part of the cluster fails
	fail context.CancelCauseFunc

	parts         []*part // in the order of their start
	controllerURL string
	nodes         []nodeInfo
	idle          []string // node directories that are not started
}

type nodeInfo struct{ name, url string }

// process is a controller or a node.
type process interface {
	Run(ctx context.Context) error
	Close() error
}

// part is a process that runs.
type part struct {
	name  string
	p     process
	quit  context.CancelFunc
	ended chan struct{}
	err   error // set before ended is closed
}

func newCluster(ctx context.Context, cfg Config, log zerolog.Logger) (*cluster, error) {
	c := &cluster{cfg: cfg, log: log}
	for _, dir := range []string{streamDir, deepStoreDir} {
		if err := os.MkdirAll(filepath.Join(cfg.Data, dir), 0o755); err != nil {
			return nil, fmt.Errorf("data directory: %w", err)
		}
	}
	existing := 0
	for isDir(filepath.Join(cfg.Data, nodeName(existing+1))) {
		existing++
	}
	if c.cfg.Nodes == 0 {
		if c.cfg.Nodes = existing; existing == 0 {
			c.cfg.Nodes = defaultNodes
		}
	}
	for i := c.cfg.Nodes + 1; i <= existing; i++ {
		c.idle = append(c.idle, nodeName(i))
	}
	c.ctx, c.fail = context.WithCancelCause(ctx)
	return c, nil
}

func isDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

func (c *cluster) dir(name string) string { return filepath.Join(c.cfg.Data, name) }

// listen is the address of part i, the controller being 0.
func (c *cluster) listen(i int) string {
	port := 0
	if c.cfg.Port > 0 {
		port = c.cfg.Port + i
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

func (c *cluster) startController() error {
	ctl, err := controller.Open(controller.Config{
		Data: c.dir(controllerDir), Listen: c.listen(0), ID: controllerDir,
		StreamRoot: c.dir(streamDir), DeepStoreRoots: []string{c.dir(deepStoreDir)},
	}, c.log)
	if err != nil {
		return c.explain(err)
	}
	c.controllerURL = ctl.URL()
	c.start(controllerDir, ctl)
	return nil
}

func (c *cluster) startNodes() error {
	for i := 1; i <= c.cfg.Nodes; i++ {
		n, err := node.Open(node.Config{
			Controllers: []string{c.controllerURL}, Data: c.dir(nodeName(i)), ID: nodeName(i), Listen: c.listen(i),
			StreamRoot: c.dir(streamDir), DeepStoreRoots: []string{c.dir(deepStoreDir)},
		}, c.log)
		if err != nil {
			return c.explain(err)
		}
		c.nodes = append(c.nodes, nodeInfo{nodeName(i), n.URL()})
		c.start(nodeName(i), n)
	}
	return nil
}

// explain adds what can be done about an error of opening.
func (c *cluster) explain(err error) error {
	var op *net.OpError
	switch {
	case IsInUse(err):
		return fmt.Errorf("%s is in use by another process, perhaps another shoal up: %w", c.cfg.Data, err)
	case errors.As(err, &op) && op.Op == "listen":
		return fmt.Errorf("%w: choose other ports with --port", err)
	}
	return err
}

// start runs a part until stop. Its end before that is a failure of the whole.
func (c *cluster) start(name string, p process) {
	// Not c.ctx: the parts are stopped in order, the controller last.
	ctx, quit := context.WithCancel(context.WithoutCancel(c.ctx))
	started := &part{name: name, p: p, quit: quit, ended: make(chan struct{})}
	c.parts = append(c.parts, started)
	go func() {
		defer close(started.ended)
		err := p.Run(ctx)
		if err == nil && ctx.Err() == nil {
			err = errors.New("ended by itself")
		}
		if err != nil {
			started.err = fmt.Errorf("%s: %w", name, err)
			c.fail(started.err)
		}
	}()
}

// stop ends the nodes, all at once, then the controller, waits for each, and
// returns what they failed with. It may be called again.
func (c *cluster) stop() error {
	var errs []error
	if len(c.parts) > 0 {
		var wg sync.WaitGroup
		nodes := c.parts[1:]
		for _, p := range nodes {
			wg.Go(p.stop)
		}
		wg.Wait()
		c.parts[0].stop()
	}
	for _, p := range c.parts {
		errs = append(errs, p.err)
		if err := p.p.Close(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.name, err))
		}
	}
	c.parts = nil
	c.fail(nil)
	return errors.Join(errs...)
}

func (p *part) stop() {
	p.quit()
	<-p.ended
}
