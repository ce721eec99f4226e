// Package cli is the operator's command line: it asks controllers and nodes over
// the HTTP API and prints what they say, as tables for people or as JSON.
//
// It owns the commands, their output and the exit statuses; it decides nothing
// about the cluster and keeps nothing. `shoal up` is package up. Start reading
// at Main; each file that follows is one subject.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/cmdline"
	"github.com/shoalstore/shoal/internal/config"
	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/peerdl"
)

// The exit statuses.
const (
	ExitOK     = 0
	ExitNo     = 1 // the answer is no: not complete, damaged, not valid
	ExitUsage  = 2 // the command line is wrong
	ExitFailed = 3 // no answer: not reachable, no such thing, or another error
)

const about = `Streams in, replicated and directly readable segments out.

Exit status: 0 yes or done; 1 the answer is no (coverage is not complete, a file is damaged, a configuration is not valid); 2 the command line is wrong; 3 there is no answer (not reachable, no such table, any other error).`

// grammar is the command line as kong reads it.
type grammar struct {
	Controller       []string         `help:"URLs of the controllers, comma-separated." placeholder:"URL" default:"${controller}" env:"SHOAL_CONTROLLER"`
	ClusterTokenFile string           `help:"File with the cluster's token, for commands that change something." placeholder:"FILE" env:"SHOAL_CLUSTER_TOKEN_FILE"`
	Output           string           `short:"o" help:"${enum}." enum:"table,json" default:"table"`
	Version          kong.VersionFlag `help:"Print the version and exit."`

	Up          upCommand          `cmd:"" help:"Run a whole local cluster in one process and feed a table."`
	Status      statusCommand      `cmd:"" help:"Who leads, the nodes, the tables."`
	Tables      tablesCommand      `cmd:"" help:"List, show, create, validate, update, pause, resume and delete tables."`
	Nodes       nodesCommand       `cmd:"" help:"List, drain and remove nodes."`
	Partitions  partitionsCommand  `cmd:"" help:"What the partitions are doing, and how far each replica is."`
	Segments    segmentsCommand    `cmd:"" help:"List, show, download and verify segments."`
	Coverage    coverageCommand    `cmd:"" help:"Prove which offsets of a table are in committed segments."`
	Validation  validationCommand  `cmd:"" help:"What is at risk, not in the deep store, or not consumed; and what is done about it."`
	Metadata    metadataCommand    `cmd:"" help:"The log of the metadata and its snapshots, and where the metadata is kept."`
	Doctor      doctorCommand      `cmd:"" help:"Find out what is wrong with what Shoal runs on: a ZooKeeper ensemble, or a deep store in S3."`
	ForceCommit forceCommitCommand `cmd:"" help:"Ask the consuming segments of a table to end where they are."`
}

// IO is what a command reads and writes.
type IO struct {
	In       io.Reader
	Out, Err io.Writer
	now      func() time.Time // tests have their own
}

// app is what a command runs with.
type app struct {
	IO
	json    bool
	http    *httpx.Client
	bulk    *httpx.Client // for what is larger than an answer of the API
	control *api.Client
}

// noError is an answer that is no.
type noError struct{ reason string }

func (e *noError) Error() string { return e.reason }

func no(format string, args ...any) error { return &noError{fmt.Sprintf(format, args...)} }

// Main runs one command line and returns the exit status. The command stops
// when ctx ends.
func Main(ctx context.Context, args []string, std IO) int {
	if std.now == nil {
		std.now = time.Now
	}
	err, exited := run(ctx, args, std)
	if exited != nil {
		return *exited
	}
	status := statusOf(err)
	if err != nil && err.Error() != "" {
		fmt.Fprintf(std.Err, "shoal: %s\n", message(err))
	}
	return status
}

// exit is what kong panics with to leave early, after --help.
type exit struct{ status int }

func run(ctx context.Context, args []string, std IO) (err error, exited *int) {
	defer func() {
		if p := recover(); p != nil {
			e, ok := p.(exit)
			if !ok {
				panic(p)
			}
			exited = &e.status
		}
	}()
	var g grammar
	parser, err := kong.New(&g, kong.Name("shoal"), kong.Description(about),
		kong.Vars{"version": cmdline.Version(), "controller": api.DefaultController, "kinds": strings.Join(kindNames(), ", ")},
		kong.Writers(std.Out, std.Err), kong.Exit(func(status int) { panic(exit{status}) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}))
	if err != nil {
		return err, nil
	}
	parsed, err := parser.Parse(args)
	if err != nil {
		return err, nil
	}
	token, err := cmdline.ReadToken(g.ClusterTokenFile)
	if err != nil {
		return err, nil
	}
	a := &app{IO: std, json: g.Output == "json", http: &httpx.Client{Token: token}}
	a.control = api.NewClient(a.http, g.Controller...)
	a.bulk = &httpx.Client{Token: token, HTTP: &http.Client{Transport: peerdl.NewTransport()}}
	defer a.http.Close()
	defer a.bulk.Close()
	parsed.BindTo(ctx, (*context.Context)(nil))
	return parsed.Run(a), nil
}

// statusOf maps an error to an exit status. It is the only place that does.
func statusOf(err error) int {
	var answer *noError
	var usage *kong.ParseError
	var faults config.Faults
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &answer):
		return ExitNo
	case errors.As(err, &usage), errors.As(err, &faults), errors.Is(err, errUsage):
		return ExitUsage
	}
	return ExitFailed
}

// errUsage marks errors that another command line would not have.
var errUsage = errors.New("usage")

type usageError struct{ error }

func (usageError) Is(target error) bool { return target == errUsage }
func (e usageError) Unwrap() error      { return e.error }

// message is an error for people: an answer of a server is its message.
func message(err error) string {
	var answer *httpx.Error
	if !errors.As(err, &answer) {
		return err.Error()
	}
	if answer.Status == http.StatusMisdirectedRequest {
		return err.Error() // who else was asked is worth knowing
	}
	if answer.Message == "" {
		return fmt.Sprintf("the server answers %d %s", answer.Status, answer.Code)
	}
	return fmt.Sprintf("%s (%s)", answer.Message, answer.Code)
}

// readFile reads a small file, or standard input for "-".
func (a *app) readFile(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(io.LimitReader(a.In, config.MaxSize+1))
	}
	return os.ReadFile(name)
}

func segmentPath(table, segment string, parts ...string) string {
	return api.SegmentPath(table, append([]string{segment}, parts...)...)
}

func join(parts []string) string { return strings.Join(parts, ",") }
