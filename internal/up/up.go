// Package up runs a whole local cluster in one process: one controller and a
// number of nodes, real HTTP between them, each with its own directory and
// port, and a producer that feeds a table from files, standard input or this
// machine's telemetry. It is `shoal up`.
//
// It owns the order in which things start and stop, what a newcomer is shown,
// and the wait of --until-sealed. It decides nothing about segments: it is a
// client of the HTTP API like any other, and everything it knows it has asked
// for. Start reading at Run, then drive.go for the loop that shows and waits;
// cluster.go starts and stops the processes, table.go makes the table, feed.go
// the rows, look.go asks the cluster, sealing.go decides when all is sealed.
package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/config"
	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/internal/produce"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
)

// The defaults of Config.
const (
	DefaultData  = "./shoal-data"
	DefaultPort  = 7070
	defaultNodes = 3
	// TelemetryTable is the table of this machine's own state.
	TelemetryTable = "telemetry"
)

// Config is what the command line says.
type Config struct {
	// Data is the directory of everything: controller/ node-1/ … stream/ deepstore/.
	Data string
	// Nodes is the number of nodes; 0 is as many as Data has, or 3.
	Nodes int
	// Port is the controller's, and the nodes take the next ones; 0 is any free
	// ports.
	Port int

	// Table and Input name the table and what is read into it: a file, a
	// directory, or "-" for Stdin. Without Input it is TelemetryTable.
	Table, Input string
	Stdin        io.Reader
	// Partitions is the number of partitions of a new stream; 0 is as many as
	// there are, or 3. Key names the field that rows are spread by; "" is round robin.
	Partitions int
	Key        string
	// MaxRows is the size of a segment of a new table; 0 is the default.
	MaxRows int64
	// ConfigFile is the configuration of a new table; "" is one that is made here.
	ConfigFile string
	// Append allows Input to follow another one.
	Append bool
	// UntilSealed ends the run once every row of Input is in a sealed,
	// replicated and backed-up segment.
	UntilSealed bool

	// Program is how this program was called, for what is told to be typed.
	Program string
	// Screen is the terminal that the live view is drawn on; nil: plain lines.
	Screen *Screen
	// LogName is where the log goes, to be told; "" is not told.
	LogName string
}

// Validate returns every fault of the configuration.
func (c Config) Validate() error {
	var faults config.Faults
	if c.Data == "" {
		faults.Addf("--data", c.Data, "a directory is needed")
	}
	if c.Nodes < 0 || c.Nodes > 100 {
		faults.Addf("--nodes", c.Nodes, "must be from 1 to 100")
	}
	if last := c.Port + max(c.Nodes, defaultNodes); c.Port < 0 || last > 65535 {
		faults.Addf("--port", c.Port, "this port and the next ones, one for each node, must be from 1 to 65535")
	}
	if c.Input == "" {
		for _, f := range []struct {
			name  string
			given bool
		}{{"--table", c.Table != ""}, {"--config", c.ConfigFile != ""}, {"--key", c.Key != ""}, {"--append", c.Append}, {"--until-sealed", c.UntilSealed}} {
			if f.given {
				faults.Addf(f.name, nil, "needs --input: without it, this machine's telemetry is streamed, which has no end")
			}
		}
	} else if c.Table == "" && c.ConfigFile == "" {
		faults.Addf("--input", c.Input, "needs --table, the name of the table to read it into")
	}
	if c.Partitions < 0 {
		faults.Addf("--partitions", c.Partitions, "must be more than 0")
	}
	if c.MaxRows < 0 {
		faults.Addf("--max-rows", c.MaxRows, "must be more than 0")
	}
	return faults.Err()
}

// Result is how a run ended.
type Result struct {
	// Coverage is the proof that UntilSealed ended with; nil without it, or if
	// the run was stopped before.
	Coverage *meta.TableCoverage
	// Complete: every row of the input is in a segment, with all its copies.
	Complete bool
	// Stopped: ctx ended the run.
	Stopped bool
}

// run is one Run in progress.
type run struct {
	cfg      Config
	log      zerolog.Logger
	screen   *Screen
	cluster  *cluster
	control  *api.Client
	http     *httpx.Client
	input    *produce.Input // nil for telemetry
	producer *produce.Producer
	table    string
	// created tells a table that this run made from one that was there.
	created  bool
	tableCfg *meta.Config
}

// Run runs the cluster until ctx ends, which is how it is meant to end and no
// error, or until everything is sealed if cfg says so. What it shows goes to
// out. When it returns, everything that was started has ended and every row that
// was produced is on disk: the next Run in the same directory goes on.
func Run(ctx context.Context, cfg Config, out io.Writer, log zerolog.Logger) (res Result, err error) {
	if err := cfg.Validate(); err != nil {
		return res, err
	}
	if cfg.Data, err = filepath.Abs(cfg.Data); err != nil {
		return res, err
	}
	if cfg.Program == "" {
		cfg.Program = "shoal"
	}
	r := &run{cfg: cfg, log: log, screen: cfg.Screen, http: &httpx.Client{}}
	if r.screen == nil {
		r.screen = PlainScreen(out)
	}
	defer r.http.Close()
	// First what can be wrong without a cluster.
	fromFile, err := readTableFile(cfg)
	if err != nil {
		return res, err
	}
	if err := r.openInput(); err != nil {
		return res, err
	}
	defer r.closeInput()
	if r.table = cfg.Table; r.table == "" && fromFile != nil {
		r.table = fromFile.Name
	} else if r.table == "" {
		r.table = TelemetryTable
	}
	if r.cluster, err = newCluster(ctx, cfg, log); err != nil {
		return res, err
	}
	res, err = r.run(fromFile)
	return r.stop(ctx, res, err)
}

// run starts everything in order and comes back when it is to be stopped.
func (r *run) run(fromFile *meta.Config) (Result, error) {
	ctx := r.cluster.ctx
	if err := r.cluster.startController(); err != nil {
		return Result{}, err
	}
	r.control = api.NewClient(r.http, r.cluster.controllerURL)
	if err := r.waitLeader(ctx); err != nil {
		return Result{}, err
	}
	if err := r.findTable(ctx, fromFile); err != nil {
		return Result{}, err
	}
	// Before any node reads the stream, the producer cuts what was torn.
	if err := r.openProducer(); err != nil {
		return Result{}, err
	}
	if err := r.cluster.startNodes(); err != nil {
		return Result{}, err
	}
	r.tellPlaces()
	if err := r.waitNodes(ctx); err != nil {
		return Result{}, err
	}
	if err := r.makeTable(ctx); err != nil {
		return Result{}, err
	}
	return r.drive(ctx)
}

// stop ends everything, the source of rows first, and says how the run ended.
func (r *run) stop(ctx context.Context, res Result, err error) (Result, error) {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err, res.Stopped = nil, true
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		r.log.Error().Err(err).Msg("shoal up ends")
	}
	if res.Stopped {
		r.screen.Line("stopping: nothing is sealed early, nothing is lost")
	}
	var lines []int64
	var closed error
	if r.producer != nil {
		lines, closed = r.producer.Lines(), r.producer.Close()
	}
	if failed := r.cluster.stop(); failed != nil {
		err = joinCause(err, failed)
	}
	err = errors.Join(err, closed)
	if res.Stopped && err == nil {
		r.screen.Line("stopped: %s rows of %s are on disk in %s; the same command goes on from there",
			count(sum(lines)), r.table, r.cfg.Data)
	}
	return res, err
}

// joinCause puts the error of a part of the cluster first: that its calls then
// fail, everywhere else, says nothing more.
func joinCause(err, cause error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(cause, err) {
		return cause
	}
	return errors.Join(cause, err)
}

// openLog opens the file that the components log to; see OpenLog.
const maxLogBytes = 64 << 20

// OpenLog opens the log file of a data directory for appending, and makes the
// directory if need be. A file that has become large is put aside, one of them.
func OpenLog(data string) (*os.File, error) {
	if err := os.MkdirAll(data, 0o755); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	name := filepath.Join(data, "shoal.log")
	if info, err := os.Stat(name); err == nil && info.Size() > maxLogBytes {
		if err := os.Rename(name, name+".1"); err != nil {
			return nil, fmt.Errorf("log file: %w", err)
		}
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("log file: %w", err)
	}
	return f, nil
}

// IsInUse reports whether err says that another process has the directory.
func IsInUse(err error) bool { return errors.Is(err, vfs.ErrLocked) }
