package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/meta"
)

type tablesCommand struct {
	Ls       tablesLs       `cmd:"" default:"1" help:"List the tables (the default)."`
	Show     tablesShow     `cmd:"" help:"Show a table and its configuration."`
	Create   tablesCreate   `cmd:"" help:"Create a table from a configuration."`
	Validate tablesValidate `cmd:"" help:"Check a configuration, and name everything that is wrong with it."`
	Update   tablesUpdate   `cmd:"" help:"Give a table another configuration, from its next segments on."`
	Pause    tablesPause    `cmd:"" help:"Have the consuming segments of a table end, and nothing follow."`
	Resume   tablesResume   `cmd:"" help:"Have a paused table consume again."`
	Delete   tablesDelete   `cmd:"" help:"Delete a table with all its segments; the bytes go after a grace."`
}

type tablesLs struct{}

func (tablesLs) Run(ctx context.Context, a *app) error {
	tables, err := api.List[api.TableView](ctx, a.control, "/tables")
	if err != nil {
		return err
	}
	if a.json {
		return a.writeJSON(tables)
	}
	return a.printTables(tables)
}

type tablesShow struct {
	Table string `arg:"" help:"Name of the table."`
}

func (c tablesShow) Run(ctx context.Context, a *app) error {
	var v api.TableView
	if err := a.control.Get(ctx, api.TablePath(c.Table), &v); err != nil {
		return err
	}
	if a.json {
		return a.writeJSON(v)
	}
	if err := a.printTables([]api.TableView{v}); err != nil {
		return err
	}
	fmt.Fprintln(a.Out)
	return a.writeJSON(v.Config)
}

type tablesCreate struct {
	File string `short:"f" required:"" help:"Configuration in YAML or JSON; - is standard input." placeholder:"FILE"`
}

func (c tablesCreate) Run(ctx context.Context, a *app) error {
	cfg, err := a.readTable(c.File)
	if err != nil {
		return err
	}
	var v api.TableView
	if err := a.control.Post(ctx, "/tables", cfg, &v); err != nil {
		return notValid(err)
	}
	if a.json {
		return a.writeJSON(v)
	}
	_, err = fmt.Fprintf(a.Out, "created table %s (%s)\n", v.Name, v.ID)
	return err
}

type tablesValidate struct {
	File string `short:"f" required:"" help:"Configuration in YAML or JSON; - is standard input." placeholder:"FILE"`
}

// Run has the controller judge, which knows what it can open.
func (c tablesValidate) Run(ctx context.Context, a *app) error {
	cfg, err := a.readTable(c.File)
	if err != nil {
		return err
	}
	var full meta.Config
	if err := a.control.Post(ctx, "/tables/validate", cfg, &full); err != nil {
		return notValid(err)
	}
	if a.json {
		return a.writeJSON(full)
	}
	_, err = fmt.Fprintf(a.Out, "%s: valid\n", c.File)
	return err
}

type tablesUpdate struct {
	Table string `arg:"" help:"Name of the table."`
	File  string `short:"f" required:"" help:"Configuration in YAML or JSON; - is standard input." placeholder:"FILE"`
}

func (c tablesUpdate) Run(ctx context.Context, a *app) error {
	cfg, err := a.readTable(c.File)
	if err != nil {
		return err
	}
	var v api.TableView
	if err := a.control.Call(ctx, http.MethodPut, api.TablePath(c.Table), cfg, &v); err != nil {
		return notValid(err)
	}
	return a.tableChanged(v, "%s has configuration %d from its next segments on\n", v.Name, v.ConfigVersion)
}

type tablesPause struct {
	Table string `arg:"" help:"Name of the table."`
	By    string `help:"Who pauses, for the others who look." default:"shoal" placeholder:"NAME"`
}

func (c tablesPause) Run(ctx context.Context, a *app) error {
	var v api.TableView
	if err := a.control.Post(ctx, api.TablePath(c.Table, "pauseConsumption"), api.Pause{By: c.By}, &v); err != nil {
		return err
	}
	return a.tableChanged(v, "%s is %s; its consuming segments end where they are\n", v.Name, v.State)
}

type tablesResume struct {
	Table string `arg:"" help:"Name of the table."`
	From  string `help:"${enum}: where consumption goes on. What is skipped is recorded as a hole." enum:"lastConsumed,smallest,largest" default:"lastConsumed" placeholder:"PLACE"`
}

func (c tablesResume) Run(ctx context.Context, a *app) error {
	var v api.TableView
	if err := a.control.Post(ctx, api.TablePath(c.Table, "resumeConsumption")+"?consumeFrom="+c.From, nil, &v); err != nil {
		return err
	}
	return a.tableChanged(v, "%s is %s; its partitions go on from %s\n", v.Name, v.State, c.From)
}

type tablesDelete struct {
	Table string `arg:"" help:"Name of the table."`
	Yes   bool   `help:"Really delete it."`
}

func (c tablesDelete) Run(ctx context.Context, a *app) error {
	if !c.Yes {
		return usageError{fmt.Errorf("this deletes table %s with all its segments: say --yes if you mean it", c.Table)}
	}
	var v api.TableView
	if err := a.control.Call(ctx, http.MethodDelete, api.TablePath(c.Table), nil, &v); err != nil {
		return err
	}
	return a.tableChanged(v, "%s is %s, with %s segments\n", v.Name, v.State, count(v.Segments))
}

// tableChanged prints a table for machines, and for people what was said to it.
func (a *app) tableChanged(v api.TableView, format string, args ...any) error {
	if a.json {
		return a.writeJSON(v)
	}
	_, err := fmt.Fprintf(a.Out, format, args...)
	return err
}

// readTable reads a configuration here first: the faults then name file and line.
func (a *app) readTable(file string) (*meta.Config, error) {
	data, err := a.readFile(file)
	if err != nil {
		return nil, err
	}
	name := file
	if name == "-" {
		name = "standard input"
	}
	cfg, err := meta.ParseConfig(name, data)
	if err != nil {
		return nil, no("not a valid table configuration:\n%v", err)
	}
	return cfg, nil
}

// notValid makes a no of the controller's refusal of a configuration.
func notValid(err error) error {
	var answer *httpx.Error
	if errors.As(err, &answer) && answer.Status == http.StatusUnprocessableEntity {
		return no("not a valid table configuration for this cluster:\n%s", answer.Message)
	}
	return err
}

type forceCommitCommand struct {
	Table string `arg:"" help:"Name of the table."`
}

func (c forceCommitCommand) Run(ctx context.Context, a *app) error {
	var f api.ForceCommitted
	if err := a.control.Post(ctx, api.TablePath(c.Table, "forceCommit"), nil, &f); err != nil {
		return err
	}
	if a.json {
		return a.writeJSON(f)
	}
	_, err := fmt.Fprintf(a.Out, "asked %d consuming segments of %s to end: job %s\n", f.Segments, c.Table, f.Job)
	return err
}
