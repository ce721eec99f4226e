// Package node is a node: it consumes partitions, builds, stores and serves
// segments, and uploads them behind.
//
// It owns the wiring and what a node decides about its own copies. It follows
// the leader's log and acts on its image, level-triggered, for ever: Machine
// (machine.go, pure) compares the copies that are wanted, held and listed;
// Consumption (consumption.go, pure) decides which segments of a partition have a
// run of the completion protocol (commit.Replica), and which run has the rows;
// consumer.go and copies.go are their shells; transfer.go moves the bytes. It
// decides nothing that concerns others: those decisions reach it as records.
// Start reading at Run below, then consumption.go for rows and machine.go for
// copies.
package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/commit/commithttp"
	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/config"
	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/internal/snapshots"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/peerdl"
	"github.com/shoalstore/shoal/segment"
	"github.com/shoalstore/shoal/stream"
)

// Config is what a node is started with.
type Config struct {
	// Controllers are the base URLs of the controllers, at least one.
	Controllers []string
	// Data is the node's directory. It is made if it is not there.
	Data string
	// ID is the node's name in the cluster; empty: the one in Data, or one made
	// once and kept there.
	ID string
	// Zone is where the node is; sources in the same zone are preferred.
	Zone string
	// Listen is the address to serve on; without a host it is loopback.
	Listen string
	// Advertise is the URL that others reach it by; empty: made from Listen.
	Advertise string
	// StreamRoot is the directory that streams of type files are below.
	StreamRoot string
	// DeepStoreRoots are what deep stores may be below: directories, and
	// s3://bucket or s3://bucket/prefix.
	DeepStoreRoots []string
	// S3 is how those in S3 are reached.
	S3 deepstore.S3Config
	// ClusterToken, if set, is required of everything that changes state, and
	// sent to the controllers.
	ClusterToken string
	// AllowBeyondLoopback lets Listen be an address that others can reach.
	AllowBeyondLoopback bool
	// ReserveBytes is how much of the disk downloads leave free; 0: 512 MiB.
	ReserveBytes int64
	// SendsMax is how many segments are sent at a time; 0: 32.
	SendsMax int
	// SendRate, FetchRate and DeepStoreFetchRate are the most bytes a second that
	// are sent, downloaded from other nodes, and downloaded from deep stores; 0: no
	// limit.
	SendRate, FetchRate, DeepStoreFetchRate int64
}

// rateMin is the least that a rate may be: with less, those who share it would
// take one another for dead.
const rateMin = 64 << 10

// Validate returns every fault of the configuration.
func (c Config) Validate() error {
	var faults config.Faults
	if len(c.Controllers) == 0 {
		faults.Addf("controllers", "", "at least one URL is needed")
	}
	for _, u := range c.Controllers {
		if !isBaseURL(u) {
			faults.Addf("controllers", u, "not an http URL without a path")
		}
	}
	if c.Data == "" {
		faults.Addf("data", c.Data, "a directory is needed")
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		faults.Addf("listen", c.Listen, "not host:port")
	}
	for _, rate := range []struct {
		field string
		value int64
	}{{"sendRate", c.SendRate}, {"fetchRate", c.FetchRate}, {"deepstoreFetchRate", c.DeepStoreFetchRate}} {
		if rate.value != 0 && rate.value < rateMin {
			faults.Addf(rate.field, config.Bytes(rate.value), "at least 64KiB a second, or 0 for no limit")
		}
	}
	if c.SendsMax < 0 {
		faults.Addf("sendsMax", c.SendsMax, "at least 1")
	}
	deepstore.Validate(c.DeepStoreRoots, c.S3, &faults)
	if c.Advertise != "" && !isBaseURL(c.Advertise) {
		faults.Addf("advertise", c.Advertise, "not an http URL without a path")
	}
	return faults.Err()
}

func isBaseURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && strings.Trim(u.Path, "/") == ""
}

// Node is one node process. Open makes it, Run runs it, Close releases what Open
// took.
type Node struct {
	cfg    Config
	root   zerolog.Logger // without a component
	log    zerolog.Logger
	fs     vfs.FS
	lock   io.Closer
	ln     net.Listener
	url    string
	id     identity // written by beat, with mu held
	bootID uuid.UUID
	boots  boots     // owned by beat; empty until the first registration
	start  time.Time // its monotonic reading is the machines' zero

	store      *segment.Store
	follower   *metalog.Follower
	keeper     *snapshots.Keeper // of the follower's cache
	streams    *stream.Opener
	deep       *deepstore.Opener
	downloader *peerdl.Downloader
	sends      *peerdl.Limiter
	sendRate   *peerdl.Rate // of segments and snapshots together
	fetchRate  *peerdl.Rate // as well
	transfers  *peerdl.Metrics
	protocol   *commithttp.Client
	control    *api.Client // everything that is said to the leader, but
	pulse      *api.Client // the heartbeat, which has a connection of its own
	reg        *prometheus.Registry
	metrics    *metrics
	events     *events
	copies     *copies
	partitions *partitions
	fetching   keyLock
	wake       chan struct{}   // of capacity 1: the image or the standing changed
	beats      int64           // owned by beat
	life       context.Context // of Run
	fatal      context.CancelCauseFunc
	background sync.WaitGroup
	clients    []*httpx.Client

	mu       sync.Mutex
	image    *meta.Image
	standing standing
}

// ID is the node's name in the cluster.
func (n *Node) ID() string { return n.cfg.ID }

// URL is how others reach the node.
func (n *Node) URL() string { return n.url }

// component is the logger of a part.
func (n *Node) component(name string) zerolog.Logger {
	return n.root.With().Str("component", name).Logger()
}

// now is the monotonic time that the machines see.
func (n *Node) now() time.Duration { return time.Since(n.start) }

// Open takes the data directory and the address, opens the store and the cache
// of the metadata log. Nothing is served before Run.
func Open(cfg Config, log zerolog.Logger) (_ *Node, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	n := &Node{
		cfg: cfg, root: log, start: time.Now(), bootID: uuid.New(),
		reg: prometheus.NewRegistry(), wake: make(chan struct{}, 1), image: meta.Empty(),
	}
	n.log = n.component("node")
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	if n.fs, err = vfs.OS(cfg.Data); err != nil {
		return nil, fmt.Errorf("node: data directory %s: %w", cfg.Data, err)
	}
	if n.lock, err = n.fs.Lock("LOCK"); err != nil {
		return nil, fmt.Errorf("node: data directory %s: %w", cfg.Data, err)
	}
	if err := n.openStore(); err != nil {
		return nil, err
	}
	n.root = n.root.With().Str("node", n.cfg.ID).Logger()
	n.log = n.component("node")
	if n.ln, err = httpx.Listen(cfg.Listen, cfg.AllowBeyondLoopback); err != nil {
		return nil, err
	}
	n.url = strings.TrimRight(cfg.Advertise, "/")
	if n.url == "" {
		n.url = "http://" + n.ln.Addr().String()
	}
	n.wire()
	if err := n.openCache(); err != nil {
		return nil, err
	}
	return n, nil
}

// openStore opens the store and settles who the node is.
func (n *Node) openStore() (err error) {
	found, err := readIdentity(n.fs)
	if err != nil {
		return err
	}
	if n.store, err = segment.OpenStore(n.fs, n.log); err != nil {
		return err
	}
	if n.cfg.ReserveBytes > 0 {
		n.store.SetReserve(n.cfg.ReserveBytes)
	}
	var replaced bool
	if n.id, replaced, err = settleIdentity(found, n.cfg.ID, n.store.StoreID(), n.cfg.Data); err != nil {
		return err
	}
	n.cfg.ID = n.id.NodeID
	if replaced {
		n.log.Warn().Stringer("store", n.id.StoreID).Msg("the store is another one than before: what the cluster listed in the old one is fetched again")
	}
	if found == nil || replaced {
		return n.id.write(n.fs)
	}
	return nil
}

// wire makes the parts that do no I/O by being made.
func (n *Node) wire() {
	n.streams = stream.NewOpener(n.cfg.StreamRoot)
	n.deep = deepstore.NewOpener(n.cfg.DeepStoreRoots, n.cfg.S3)
	n.transfers = peerdl.NewMetrics(n.reg)
	n.sendRate, n.fetchRate = peerdl.NewRate(n.cfg.SendRate), peerdl.NewRate(n.cfg.FetchRate)
	n.downloader = peerdl.NewDownloader(peerdl.Config{
		Log: n.log, Metrics: n.transfers, PeerRate: n.fetchRate, DeepStoreRate: peerdl.NewRate(n.cfg.DeepStoreFetchRate),
	})
	n.sends = peerdl.NewLimiter(cmp.Or(n.cfg.SendsMax, 32))
	n.protocol = commithttp.NewClient(n.cfg.Controllers, n.cfg.ClusterToken)
	n.control = api.NewClient(n.client(0), n.cfg.Controllers...)
	n.pulse = api.NewClient(n.client(heartbeatTimeout), n.cfg.Controllers...)
	n.events = newEvents(n.cfg.ID)
	n.copies = newCopies(n)
	n.partitions = newPartitions(n)
	n.metrics = newMetrics(n.reg, n)
}

// client makes a client for calls to controllers; timeout as in httpx.Client.
func (n *Node) client(timeout time.Duration) *httpx.Client {
	c := &httpx.Client{Token: n.cfg.ClusterToken, Timeout: timeout, HTTP: &http.Client{Transport: httpx.ControlTransport()}}
	n.clients = append(n.clients, c)
	return c
}

// Run serves, follows and consumes until ctx ends, and returns nil then. It
// returns an error when it cannot go on: the cluster refuses the node, or a disk
// does not keep what it is given.
func (n *Node) Run(ctx context.Context) error {
	life, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	n.life, n.fatal = life, stop
	var wg sync.WaitGroup
	for _, part := range []func(context.Context) error{
		func(ctx context.Context) error { return httpx.Serve(ctx, n.log, n.ln, n.routes()) },
		n.follower.Run,
		func(ctx context.Context) error { n.keeper.Run(ctx); return nil },
		n.beat,
		n.sweepUploads,
		func(ctx context.Context) error { n.copies.run(ctx); return nil },
		func(ctx context.Context) error { n.partitions.run(ctx); return nil },
	} {
		wg.Go(func() {
			if err := part(life); err != nil {
				stop(err)
			}
		})
	}
	n.log.Info().Str("url", n.url).Str("data", n.cfg.Data).Msg("node is up")
	wg.Wait()
	n.background.Wait()
	if err := context.Cause(life); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// Close releases the data directory and the address. It comes after Run has
// returned, and may be called again.
func (n *Node) Close() error {
	var errs []error
	for _, c := range n.clients {
		c.Close()
	}
	if n.protocol != nil {
		n.protocol.Close()
	}
	if n.follower != nil {
		errs = append(errs, n.follower.Close())
	}
	if n.ln != nil {
		if err := n.ln.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if n.lock != nil {
		errs = append(errs, n.lock.Close())
		n.lock = nil
	}
	return errors.Join(errs...)
}

// noteFatal ends the process if err is that of a disk that does not keep what it
// is given: after a failed fsync nobody knows what it holds.
func (n *Node) noteFatal(err error) {
	if err != nil && vfs.IsSyncError(err) && n.fatal != nil {
		n.fatal(err)
	}
}

// deliver takes a newer image from the follower.
func (n *Node) deliver(im *meta.Image, touched []meta.Key) {
	n.mu.Lock()
	n.image = im
	n.mu.Unlock()
	n.copies.post(ImageChanged{Image: im, Touched: touched})
	notify(n.wake)
}

// currentImage is the newest image.
func (n *Node) currentImage() *meta.Image {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.image
}

// imageSeen is the newest image as a partition's consumption sees it.
func (n *Node) imageSeen() ImageSeen {
	n.mu.Lock()
	defer n.mu.Unlock()
	return ImageSeen{Image: n.image, CaughtUp: n.caughtUpLocked(), Incarnation: n.standing.incarnation}
}

// caughtUp reports whether the image has reached the high watermark that the
// leader named last, in an epoch that the node has heard of: only then does the
// absence of a record say anything.
func (n *Node) caughtUp() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.caughtUpLocked()
}

func (n *Node) caughtUpLocked() bool {
	s := &n.standing
	return s.registered && s.highWatermark > 0 && n.image.Next() >= s.highWatermark && n.image.Epoch() >= s.epoch
}
