// Package cmdline is what the mains of Shoal's programs have in common:
// settings from a file, the environment and flags; the two signals that stop a
// process; its log; its exit status.
//
// It knows no setting of its own but those of Common, and no program. Start
// reading at Main, then settings.go.
package cmdline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
	"github.com/rs/zerolog"
	"golang.org/x/term"

	"github.com/shoalstore/shoal/internal/config"
)

// The exit statuses of the servers.
const (
	ExitOK     = 0
	ExitFailed = 1 // it could not start or go on
	ExitUsage  = 2 // a setting is wrong
)

// Common are the settings that every server has. Embed it.
type Common struct {
	Config    kong.ConfigFlag  `help:"Read settings from this YAML or JSON file first; the environment and flags come on top." placeholder:"FILE" json:"-"`
	LogLevel  string           `help:"Least level to log: ${enum}." enum:"debug,info,warn,error" default:"info" env:"SHOAL_LOG_LEVEL"`
	LogFormat string           `help:"${enum}; auto is text on a terminal and JSON otherwise." enum:"auto,text,json" default:"auto" env:"SHOAL_LOG_FORMAT"`
	Version   kong.VersionFlag `help:"Print the version and exit." json:"-"`
}

func (c *Common) common() *Common { return c }

// Process is a server: opened, it runs until its context ends.
type Process interface {
	Run(ctx context.Context) error
	Close() error
}

// Main is the main of a server. settings points to a struct that embeds Common
// and whose fields kong reads; open is called once they are filled in. It
// returns the process's exit status.
func Main(name, about string, settings interface{ common() *Common }, open func(zerolog.Logger) (Process, error)) int {
	if err := Parse(name, about, settings, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return ExitUsage
	}
	c := settings.common()
	log := Logger(os.Stderr, c.LogFormat, c.LogLevel)
	log.Info().Interface("settings", settings).Str("version", Version()).Msg("starting " + name)
	ctx, stop := Signals(context.Background(), func() { log.Info().Msg("stopping") })
	defer stop()
	if err := run(ctx, open, log); err != nil {
		log.Error().Err(err).Msg(name + " cannot go on")
		if errors.As(err, new(config.Faults)) {
			return ExitUsage
		}
		return ExitFailed
	}
	log.Info().Msg("stopped")
	return ExitOK
}

func run(ctx context.Context, open func(zerolog.Logger) (Process, error), log zerolog.Logger) error {
	p, err := open(log)
	if err != nil {
		return err
	}
	return errors.Join(p.Run(ctx), p.Close())
}

// Signals returns a context that ends at the first SIGINT or SIGTERM, after
// telling of it. A second one ends the process at once, with status 130: what
// is durable then is what is always durable after a kill.
func Signals(parent context.Context, told func()) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ended := make(chan struct{})
	over := make(chan struct{})
	go func() {
		defer close(over)
		select {
		case <-signals:
		case <-ended:
			return
		}
		told()
		cancel()
		select {
		case <-signals:
			os.Exit(130)
		case <-ended:
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(ended)
		<-over
		cancel()
	}
}

// Logger returns the log of a process: JSON lines, or text for people.
func Logger(w io.Writer, format, level string) zerolog.Logger {
	lvl, err := zerolog.ParseLevel(level)
	if err != nil {
		lvl = zerolog.InfoLevel
	}
	zerolog.TimeFieldFormat = "2006-01-02T15:04:05.000Z07:00"
	if format == "text" || format == "auto" && IsTerminal(w) {
		w = zerolog.ConsoleWriter{Out: w, TimeFormat: "15:04:05.000"}
	}
	return zerolog.New(w).Level(lvl).With().Timestamp().Logger()
}

// IsTerminal reports whether w, or r, is a file that is a terminal.
func IsTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// ReadToken reads the token of a cluster from its file; no file, no token.
func ReadToken(file string) (string, error) { return readSecret("cluster token", file) }

// readSecret reads the one word in a file; no file, no word.
func readSecret(what, file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("%s: %w", what, err)
	}
	word := strings.TrimSpace(string(text))
	if word == "" || strings.ContainsAny(word, " \t\r\n") {
		return "", fmt.Errorf("%s: %s does not hold one word", what, file)
	}
	return word, nil
}

// Version is that of the build.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	version := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && version == "(devel)" {
			version = s.Value
		}
	}
	return version
}
