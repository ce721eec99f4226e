// Package controller is the controller: the process that decides. It leads the
// completion protocol, writes all metadata through one writer, knows which
// nodes are alive, and serves the metadata log and the admin API.
//
// It owns the wiring and the leader's memory. The rules are elsewhere, and pure:
// package commit agrees on ends, package meta says what a change does, Machine
// (machine.go) puts them together. Start reading at Machine, then shell.go,
// which carries out what it says, lead.go for how a leadership begins and ends,
// and serve.go for the routes.
package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/internal/config"
	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/internal/snapshots"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/stream"
	"github.com/shoalstore/shoal/zkmeta"
)

// Config is what a controller is started with.
type Config struct {
	// Data is the directory of its log. It is made if it is not there.
	Data string
	// Metadata is where the metadata is: "embedded" (also when empty), in Data alone,
	// with one controller; or "zookeeper://host:port,…/root".
	Metadata string
	// ZooKeeper is how to reach it, beside the address.
	ZooKeeper zkmeta.Access
	// Listen is the address to serve on; without a host it is loopback.
	Listen string
	// Advertise is the URL that others reach it by; empty: made from Listen.
	Advertise string
	// ID names it in the log; empty: its URL.
	ID string
	// StreamRoot is the directory that streams of type files are below.
	StreamRoot string
	// DeepStoreRoots are what deep stores may be below: directories, and
	// s3://bucket or s3://bucket/prefix.
	DeepStoreRoots []string
	// S3 is how those in S3 are reached.
	S3 deepstore.S3Config
	// NodeHosts are hosts, besides the one a node calls from, that nodes may
	// register URLs of.
	NodeHosts []string
	// ClusterToken, if set, is required of everything that changes state.
	ClusterToken string
	// AllowBeyondLoopback lets Listen be an address that others can reach.
	AllowBeyondLoopback bool
}

// Embedded is Config.Metadata of a controller that has its metadata to itself.
const Embedded = "embedded"

// Validate returns every fault of the configuration.
func (c Config) Validate() error {
	var faults config.Faults
	if c.distributed() {
		c.validateZooKeeper(&faults)
	}
	if c.Data == "" {
		faults.Addf("data", c.Data, "a directory is needed")
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		faults.Addf("listen", c.Listen, "not host:port")
	}
	deepstore.Validate(c.DeepStoreRoots, c.S3, &faults)
	if c.Advertise != "" {
		if u, err := url.Parse(c.Advertise); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" {
			faults.Addf("advertise", c.Advertise, "not an http URL without a path")
		}
	}
	return faults.Err()
}

// Controller is one controller process. Open makes it, Run runs it, Close
// releases what Open took.
type Controller struct {
	cfg     Config
	root    zerolog.Logger // without a component
	log     zerolog.Logger
	fs      vfs.FS
	lock    io.Closer
	ln      net.Listener
	url     string
	reg     *prometheus.Registry
	logs    *metalog.Metrics
	nodes   *httpx.Client // for nodes and other controllers
	streams *stream.Opener
	deep    *deepstore.Opener
	shell   *shell
	shared  snapshots.Shared                 // what keepers of snapshots need
	keeper  atomic.Pointer[snapshots.Keeper] // of the log that is open here; nil: none is

	retention retentionMetrics
	copyTimes copyTimes

	member *member // nil in embedded mode

	mu       sync.Mutex
	standing *leadership // nil while this process does not lead
}

// ErrNotLeading says that this controller does not lead at the moment.
var ErrNotLeading = errors.New("controller: not leading")

// Open takes the data directory and the address. Nothing is served before Run.
func Open(cfg Config, log zerolog.Logger) (_ *Controller, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	root := log
	log = log.With().Str("component", "controller").Logger()
	c := &Controller{cfg: cfg, root: root, log: log, reg: prometheus.NewRegistry()}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	if c.fs, err = vfs.OS(cfg.Data); err != nil {
		return nil, fmt.Errorf("controller: data directory %s: %w", cfg.Data, err)
	}
	if c.lock, err = c.fs.Lock("LOCK"); err != nil {
		return nil, fmt.Errorf("controller: data directory %s: %w", cfg.Data, err)
	}
	if c.ln, err = httpx.Listen(cfg.Listen, cfg.AllowBeyondLoopback); err != nil {
		return nil, err
	}
	c.url = strings.TrimRight(cfg.Advertise, "/")
	if c.url == "" {
		c.url = "http://" + c.ln.Addr().String()
	}
	if c.cfg.ID == "" {
		c.cfg.ID = c.url
	}
	c.streams = stream.NewOpener(cfg.StreamRoot)
	c.deep = deepstore.NewOpener(cfg.DeepStoreRoots, cfg.S3)
	c.shell = newShell(log, c)
	c.nodes = &httpx.Client{Token: cfg.ClusterToken}
	c.logs = metalog.NewMetrics(c.reg)
	c.shared = c.newShared()
	registerMetrics(c.reg, c)
	c.retention = newRetentionMetrics(c.reg)
	c.copyTimes = newCopyTimes(c.reg)
	if err := c.claimMode(); err != nil {
		return nil, err
	}
	if cfg.distributed() {
		if c.member, err = newMember(c); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// URL is how others reach the controller.
func (c *Controller) URL() string { return c.url }

// Run serves and leads until ctx ends, and returns nil then. It returns an
// error when it cannot go on: damage of its log, or a disk that does not keep
// what it is given.
func (c *Controller) Run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wg sync.WaitGroup
	shellCtx, stopShell := context.WithCancel(context.WithoutCancel(ctx))
	wg.Go(func() { c.shell.run(shellCtx) })
	wg.Go(func() {
		defer stopShell()
		if c.member != nil {
			stop(c.member.run(ctx))
			return
		}
		stop(c.keepLeading(ctx))
	})
	wg.Go(func() {
		if err := httpx.Serve(ctx, c.log, c.ln, c.routes()); err != nil {
			stop(err)
		}
	})
	c.log.Info().Str("url", c.url).Str("data", c.cfg.Data).Msg("controller is up")
	wg.Wait()
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// Close releases the data directory and the address. It may be called again.
func (c *Controller) Close() error {
	var errs []error
	if c.nodes != nil {
		c.nodes.Close()
	}
	if c.shared.Client != nil {
		c.shared.Client.Close()
	}
	if c.ln != nil {
		if err := c.ln.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if c.member != nil {
		errs = append(errs, c.member.close())
	}
	if c.lock != nil {
		errs = append(errs, c.lock.Close())
		c.lock = nil
	}
	return errors.Join(errs...)
}
