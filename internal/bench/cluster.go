package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/controller"
	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/internal/node"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/stream"
)

const (
	nodeCount  = 3
	partitions = 3

	// lightRate is the commits per second of the light load: a cluster that has
	// little to do.
	lightRate = 10
	lightRows = 100 // of a segment
	// A backlog is read with segments of 8 MB, and a live stream ends one of
	// 1.6 MB every few tens of milliseconds.
	backlogRows = 5000
	liveRows    = 1000
	// liveShare is how much of the rate at which a backlog was read the live
	// stream has.
	liveShare = 0.6
)

// cluster is a controller and three nodes in this process, with real HTTP
// between them and real fsyncs, each below a directory of its own, and a deep
// store behind: what `shoal up` runs, with a stopwatch in front of the
// controller.
type cluster struct {
	dir     string
	watch   *stopwatch
	control *api.Client
	http    *httpx.Client
	nodes   []string // URLs

	stop   context.CancelCauseFunc
	parts  sync.WaitGroup
	failed context.Context // ends with a cause when a part fails
	opened []interface{ Close() error }
}

func startCluster(ctx context.Context, dir string) (_ *cluster, err error) {
	c := &cluster{dir: dir, http: &httpx.Client{}}
	c.failed, c.stop = context.WithCancelCause(ctx)
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	for _, d := range []string{c.streams(), c.deep()} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, err
		}
	}
	front, err := httpx.Listen("127.0.0.1:0", false)
	if err != nil {
		return nil, err
	}
	behind, err := freeAddress()
	if err != nil {
		return nil, errors.Join(err, front.Close())
	}
	c.watch = newStopwatch(&url.URL{Scheme: "http", Host: behind})
	c.parts.Go(func() { c.ended(httpx.Serve(c.failed, zerolog.Nop(), front, c.watch)) })

	ctl, err := controller.Open(controller.Config{
		Data: filepath.Join(dir, "controller"), Listen: behind, Advertise: "http://" + front.Addr().String(),
		StreamRoot: c.streams(), DeepStoreRoots: []string{c.deep()},
	}, zerolog.Nop())
	if err != nil {
		return nil, err
	}
	c.start(ctl)
	for i := range nodeCount {
		id := "node-" + strconv.Itoa(i+1)
		n, err := node.Open(node.Config{
			Controllers: []string{ctl.URL()}, Data: filepath.Join(dir, id), ID: id, Listen: "127.0.0.1:0",
			StreamRoot: c.streams(), DeepStoreRoots: []string{c.deep()},
		}, zerolog.Nop())
		if err != nil {
			return nil, err
		}
		c.nodes = append(c.nodes, n.URL())
		c.start(n)
	}
	c.control = api.NewClient(c.http, ctl.URL())
	return c, c.await("the nodes", func(ctx context.Context) (bool, error) {
		up, err := api.List[api.NodeView](ctx, c.control, "/nodes")
		return len(up) == nodeCount, err
	})
}

// freeAddress is one that a server can listen on whose own must be known before it
// is started: the controller's, as the stopwatch is told, and nginx's.
func freeAddress() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return ln.Addr().String(), ln.Close()
}

func (c *cluster) streams() string { return filepath.Join(c.dir, "stream") }
func (c *cluster) deep() string    { return filepath.Join(c.dir, "deepstore") }

// start runs a part until the cluster is closed.
func (c *cluster) start(p interface {
	Run(ctx context.Context) error
	Close() error
}) {
	c.opened = append(c.opened, p)
	c.parts.Go(func() { c.ended(p.Run(c.failed)) })
}

func (c *cluster) ended(err error) {
	if err != nil {
		c.stop(err)
	}
}

func (c *cluster) close() error {
	c.stop(nil)
	c.parts.Wait()
	var errs []error
	for _, p := range c.opened {
		errs = append(errs, p.Close())
	}
	c.http.Close()
	return errors.Join(errs...)
}

// await asks until the answer is yes. Errors are of a cluster that is not up
// yet, until it fails as a whole.
func (c *cluster) await(what string, ask func(context.Context) (bool, error)) error {
	for {
		ok, err := ask(c.failed)
		if ok && err == nil {
			return nil
		}
		select {
		case <-c.failed.Done():
			return errors.Join(fmt.Errorf("waiting for %s: %w", what, context.Cause(c.failed)), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// workload is rows that flow into a table of their own.
type workload struct {
	name    string
	maxRows int64
	commits int     // about; the same number in each partition
	rate    float64 // rows per second into all partitions; 0: they are there already
}

// figures are what a load showed.
type figures struct {
	laps
	pause histogram // seconds, over all nodes
	node  histogram // commitEnd → COMMIT_SUCCESS as the nodes saw it
	rows  int64
	took  time.Duration // until all was committed
	// segments were committed; of commits of them the answer was seen.
	segments, commits int
}

const (
	pauseMetric  = "shoal_node_roll_over_pause_seconds"
	commitMetric = "shoal_node_commit_seconds"
)

// run makes the table, lets the rows come, and waits until every row is in a
// committed segment with all its copies.
func (c *cluster) run(ctx context.Context, rows rowSet, l workload) (fig figures, err error) {
	each := l.maxRows * int64(max(1, l.commits/partitions)) // rows of a partition
	if err := c.makeStream(rows, l, each); err != nil {
		return fig, err
	}
	before, err := c.histograms(ctx)
	if err != nil {
		return fig, err
	}
	c.watch.take()
	began := time.Now()
	if err := c.makeTable(ctx, l); err != nil {
		return fig, err
	}
	if l.rate > 0 {
		if err := c.produce(ctx, rows, l, each); err != nil {
			return fig, err
		}
	}
	committed := func(whole func(meta.TableCoverage) bool) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) {
			var cov meta.TableCoverage
			err := c.control.Get(ctx, api.TablePath(l.name, "coverage"), &cov)
			return len(cov.Partitions) == partitions && whole(cov), err
		}
	}
	if err := c.await("the commits of "+l.name, committed(func(v meta.TableCoverage) bool { return v.Complete })); err != nil {
		return fig, err
	}
	fig.took = time.Since(began)
	if err := c.await("the copies of "+l.name, committed(func(v meta.TableCoverage) bool { return v.Replicated })); err != nil {
		return fig, err
	}
	after, err := c.histograms(ctx)
	if err != nil {
		return fig, err
	}
	fig.laps, fig.rows = c.watch.take(), each*partitions
	fig.commits = len(fig.laps.commitEnd)
	fig.pause, fig.node = after[pauseMetric].plus(before[pauseMetric], -1), after[commitMetric].plus(before[commitMetric], -1)
	if fig.segments = int(fig.rows / l.maxRows); fig.commits == 0 {
		return fig, fmt.Errorf("table %s: none of %d commits was seen", l.name, fig.segments)
	}
	return fig, nil
}

// makeStream makes the files of the stream: with all rows, or empty.
func (c *cluster) makeStream(rows rowSet, l workload, each int64) error {
	if err := os.MkdirAll(filepath.Join(c.streams(), l.name), 0o755); err != nil {
		return err
	}
	if l.rate > 0 {
		each = 0
	}
	for p := range int32(partitions) {
		if err := rows.writeFile(c.streamFile(l, p), each); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) streamFile(l workload, p int32) string {
	return filepath.Join(c.streams(), l.name, stream.FileName(p))
}

func (c *cluster) makeTable(ctx context.Context, l workload) error {
	uri, err := deepstore.FileURI(c.deep())
	if err != nil {
		return err
	}
	cfg := meta.DefaultConfig()
	cfg.Name, cfg.Stream.Path, cfg.Format, cfg.Replication = l.name, l.name, flightFormat(), nodeCount
	cfg.Format.OnError = "keep"
	cfg.Segment.MaxRows = l.maxRows
	cfg.DeepStore = &meta.DeepStoreConfig{URI: uri}
	return c.control.Post(ctx, "/tables", cfg, nil)
}

// produceEvery is how often the producer appends what has become due.
const produceEvery = 5 * time.Millisecond

// produce appends rows at the load's rate, to one partition after another.
func (c *cluster) produce(ctx context.Context, rows rowSet, l workload, each int64) (err error) {
	var files [partitions]*os.File
	for p := range files {
		f, err := os.OpenFile(c.streamFile(l, int32(p)), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		files[p] = f
	}
	ticker := time.NewTicker(produceEvery)
	defer ticker.Stop()
	began := time.Now()
	for done := int64(0); done < each; {
		select {
		case <-c.failed.Done():
			return context.Cause(c.failed)
		case <-ticker.C:
		}
		due := min(each, int64(time.Since(began).Seconds()*l.rate/partitions))
		for _, f := range files {
			var text []byte
			for i := done; i < due; i++ {
				text = append(text, rows.line(i)...)
			}
			if _, err := f.Write(text); err != nil {
				return err
			}
		}
		done = due
	}
	return nil
}

// histograms sums those of the nodes.
func (c *cluster) histograms(ctx context.Context) (map[string]histogram, error) {
	sums := map[string]histogram{}
	for _, name := range []string{pauseMetric, commitMetric} {
		for _, n := range c.nodes {
			h, err := scrape(ctx, n, name)
			if err != nil {
				return nil, err
			}
			sums[name] = sums[name].plus(h, +1)
		}
	}
	return sums, nil
}

func (b *bench) measureCluster(ctx context.Context) (err error) {
	c, err := startCluster(ctx, filepath.Join(b.dir, "cluster"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close(), os.RemoveAll(c.dir)) }()
	light, err := c.run(ctx, b.rows, workload{name: "light", maxRows: lightRows, commits: b.lightCommits, rate: lightRate * lightRows})
	if err != nil {
		return err
	}
	backlog, err := c.run(ctx, b.rows, workload{name: "backlog", maxRows: backlogRows, commits: b.backlogCommits})
	if err != nil {
		return err
	}
	rate := float64(backlog.rows) / backlog.took.Seconds()
	live, err := c.run(ctx, b.rows, workload{name: "live", maxRows: liveRows, commits: b.liveCommits, rate: liveShare * rate})
	if err != nil {
		return err
	}
	b.tellCluster(light, backlog, live, liveShare*rate)
	return nil
}

func (b *bench) tellCluster(light, backlog, live figures, liveRate float64) {
	rowBytes := float64(b.rows.bytes()) / float64(len(b.rows.lines))
	quantiles := func(ms []float64) string {
		return fmt.Sprintf("p50 %.1f ms, p99 **%.1f ms**", percentile(ms, 0.5), percentile(ms, 0.99))
	}
	commits := func(what string, f figures, how string, aimed bool) {
		want := ""
		if aimed {
			want = aim(percentile(f.commitEnd, 0.99) < 50, "p99 < 50 ms")
		}
		b.table.add("commitEnd → COMMIT_SUCCESS, "+what, quantiles(f.commitEnd), want,
			fmt.Sprintf("%d of %d commits on three nodes, %s; the nodes' own mean is %.1f ms", f.commits, f.segments, how, f.node.mean()*1e3))
		b.table.add("first report → committed, "+what, quantiles(f.report), "", "the committer's seal, with its fsyncs, included")
	}
	commits("light load", light, fmt.Sprintf("%d a second", lightRate), true)
	commits("live stream", live, fmt.Sprintf("%.0f MB/s arriving, %.0f %% of what a backlog is read at", liveRate*rowBytes/1e6, liveShare*100), true)

	b.tellPause(backlog.pause, live.pause)
	b.table.add("a backlog into committed segments", fmt.Sprintf("%.0f MB/s", float64(backlog.rows)*rowBytes/1e6/backlog.took.Seconds()), "",
		fmt.Sprintf("%.0f MB, %d segments, built three times, on all three nodes; copies to the deep store at the same time", float64(backlog.rows)*rowBytes/1e6, backlog.segments))
}

// tellPause has a control: while a backlog is read the read-ahead is full, and a
// roll-over must show as a wait for room. If it does not, the metric is blind,
// and its zeros for the live stream mean nothing.
func (b *bench) tellPause(backlog, live histogram) {
	const what = "pause of reading at a roll-over, live stream"
	if backlog.sum == 0 {
		b.table.add(what, "not measured", "p99 < 10 ms: **not measured**",
			fmt.Sprintf("`%s` shows no wait in %d roll-overs while a backlog was read, where there must be some", pauseMetric, backlog.count))
		return
	}
	pause := func(h histogram) string {
		return fmt.Sprintf("p99 **≤ %.3g ms**, mean %.2f ms", h.atMost(0.99)*1e3, h.mean()*1e3)
	}
	b.table.add(what, pause(live), aim(live.atMost(0.99) < 0.010, "p99 < 10 ms"),
		fmt.Sprintf("%d roll-overs, from the nodes' histograms: the bound of the bucket that the p99 lies in", live.count))
	b.table.add("the same while a backlog is read", pause(backlog), "",
		fmt.Sprintf("%d roll-overs; the read-ahead is full all the time, so this is how long a roll-over takes", backlog.count))
}
