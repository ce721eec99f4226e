package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/cmdline"
	"github.com/shoalstore/shoal/internal/up"
)

type upCommand struct {
	Nodes       int    `help:"Number of nodes; as many as --data has, or 3." placeholder:"N"`
	Data        string `help:"Directory of everything: controller/ node-1/ … stream/ deepstore/." default:"./shoal-data" placeholder:"DIR" env:"SHOAL_DATA"`
	Port        int    `help:"Port of the controller; the nodes take the next ones. 0 is any free ports." default:"7070" placeholder:"P"`
	Table       string `help:"Name of the table that --input is read into." placeholder:"NAME"`
	Input       string `help:"NDJSON to read: a file, plain or gzip, a directory of them, or - for standard input. Without it, this machine's telemetry is streamed." placeholder:"FILE|DIR|-"`
	Partitions  int    `help:"Number of partitions of a new stream; 3." placeholder:"N"`
	Key         string `help:"Field that rows are spread over the partitions by; round robin without it." placeholder:"FIELD"`
	MaxRows     int64  `help:"Rows of a segment of a new table; 1,000,000." placeholder:"N"`
	ConfigFile  string `name:"config" help:"Configuration of a new table, YAML or JSON; one is made without it." placeholder:"FILE"`
	Append      bool   `help:"Let --input follow another input of the same table."`
	UntilSealed bool   `help:"End once every row of --input is in a sealed, replicated and backed-up segment; print the proof; exit with 0 if it is complete, else 1."`
	LogFile     string `help:"Log of the controller and the nodes, JSON lines; - is standard error. shoal.log in --data without it." placeholder:"FILE"`
	LogLevel    string `help:"Least level to log: ${enum}." enum:"debug,info,warn,error" default:"info" env:"SHOAL_LOG_LEVEL"`
}

func (c upCommand) Run(ctx context.Context, a *app) error {
	cfg := up.Config{
		Data: c.Data, Nodes: c.Nodes, Port: c.Port, Table: c.Table, Input: c.Input, Stdin: a.In,
		Partitions: c.Partitions, Key: c.Key, MaxRows: c.MaxRows, ConfigFile: c.ConfigFile,
		Append: c.Append, UntilSealed: c.UntilSealed, Program: os.Args[0],
	}
	if err := cfg.Validate(); err != nil {
		return err
	}
	log, closeLog, err := c.openLog(a, &cfg)
	if err != nil {
		return err
	}
	if f, ok := a.Out.(*os.File); ok && c.LogFile != "-" {
		cfg.Screen = up.TerminalScreen(f)
	}
	res, err := up.Run(ctx, cfg, a.Out, log)
	if err = errors.Join(err, closeLog()); err != nil {
		if errors.As(err, new(*up.OtherInputError)) {
			return usageError{err}
		}
		return err
	}
	if c.UntilSealed && !res.Complete {
		if res.Stopped {
			return no("stopped before everything was sealed")
		}
		return no("not everything is sealed with all its copies")
	}
	return nil
}

// openLog keeps the components' log out of what people look at.
func (c upCommand) openLog(a *app, cfg *up.Config) (zerolog.Logger, func() error, error) {
	if c.LogFile == "-" {
		return cmdline.Logger(a.Err, "auto", c.LogLevel), func() error { return nil }, nil
	}
	open := func() (*os.File, error) { return up.OpenLog(c.Data) }
	if c.LogFile != "" {
		open = func() (*os.File, error) {
			return os.OpenFile(c.LogFile, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
		}
	}
	f, err := open()
	if err != nil {
		return zerolog.Nop(), nil, err
	}
	if cfg.LogName, err = filepath.Abs(f.Name()); err != nil {
		cfg.LogName = f.Name()
	}
	return cmdline.Logger(f, "json", c.LogLevel), f.Close, nil
}
