package up

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/config"
	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/internal/telemetry"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

const (
	// sampleRows is how many rows columns are inferred from.
	sampleRows = 1000
	// telemetryAge is the age of a segment of telemetry: short, so that the
	// first ones are seen within a minute.
	telemetryAge = 20 * time.Second
)

// readTableFile reads the table's configuration that cfg names, if any.
func readTableFile(cfg Config) (*meta.Config, error) {
	if cfg.ConfigFile == "" {
		return nil, nil
	}
	data, err := os.ReadFile(cfg.ConfigFile)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	c, err := meta.ParseConfig(cfg.ConfigFile, data)
	if err != nil {
		return nil, err
	}
	if cfg.Table != "" && cfg.Table != c.Name {
		var faults config.Faults
		faults.Addf("--table", cfg.Table, "%s is the configuration of table %q", cfg.ConfigFile, c.Name)
		return nil, faults
	}
	if cfg.MaxRows > 0 {
		c.Segment.MaxRows = cfg.MaxRows
	}
	return c, nil
}

// findTable looks whether the table is there, and settles its configuration
// but for the columns.
func (r *run) findTable(ctx context.Context, fromFile *meta.Config) error {
	var t api.TableView
	err := r.control.Get(ctx, api.TablePath(r.table), &t)
	var answer *httpx.Error
	switch {
	case err == nil:
		r.table, r.tableCfg = t.Name, &t.Config
		return r.checkTable(&t)
	case !errors.As(err, &answer) || answer.Code != api.CodeTableNotFound:
		return err
	}
	r.created = true
	if r.tableCfg = fromFile; fromFile == nil {
		r.tableCfg = r.newConfig()
	}
	return r.tableCfg.Validate()
}

// checkTable refuses what would be ignored: a table keeps the configuration
// that it was made with.
func (r *run) checkTable(t *api.TableView) error {
	var faults config.Faults
	if r.cfg.MaxRows > 0 && r.cfg.MaxRows != t.Config.Segment.MaxRows {
		faults.Addf("--max-rows", r.cfg.MaxRows, "table %q is there already, with %d", t.Name, t.Config.Segment.MaxRows)
	}
	if t.State == meta.TableDeleting {
		faults.Addf("--table", t.Name, "is being deleted")
	}
	if err := faults.Err(); err != nil {
		return err
	}
	if r.cfg.ConfigFile != "" {
		r.screen.Line("table %s is there already: %s is not read again", t.Name, r.cfg.ConfigFile)
	}
	if d := t.Config.DeepStore; d != nil && strings.HasPrefix(d.URI, "file:") && d.URI != r.deepStoreURI() &&
		!strings.HasPrefix(d.URI, r.deepStoreURI()+"/") {
		r.screen.Line("table %s is backed up to %s, which is not below %s: uploads fail until the data directory is where it was", t.Name, d.URI, r.cluster.dir(deepStoreDir))
	}
	return nil
}

func (r *run) deepStoreURI() string {
	return (&url.URL{Scheme: meta.DeepStoreFile, Path: r.cluster.dir(deepStoreDir)}).String()
}

// newConfig is the configuration of a table that nobody described.
func (r *run) newConfig() *meta.Config {
	c := meta.DefaultConfig()
	c.Name, c.Stream.Path = r.table, r.table
	c.Format.Type = segment.FormatJSON
	c.Replication = min(3, r.cluster.cfg.Nodes)
	c.DeepStore = &meta.DeepStoreConfig{URI: r.deepStoreURI()}
	if r.input == nil {
		c.Format.Columns, c.Format.Timestamp = telemetry.Columns(), telemetry.TimestampField
		c.Segment.MaxAge = config.Duration(telemetryAge)
	}
	if r.cfg.MaxRows > 0 {
		c.Segment.MaxRows = r.cfg.MaxRows
	}
	return c
}

// makeTable creates the table if it is not there, with columns inferred from the
// first rows of the input unless they are declared.
func (r *run) makeTable(ctx context.Context) error {
	c := r.tableCfg
	if r.cfg.UntilSealed && c.Replication > r.cluster.cfg.Nodes {
		return config.Faults{{Field: "--until-sealed", Problem: fmt.Sprintf(
			"table %q wants %d copies on nodes and %d are started: it would wait for ever", r.table, c.Replication, r.cluster.cfg.Nodes)}}
	}
	if !r.created {
		r.screen.Line("table %s: %s, %s, goes on", r.table, describe(c), plural(len(c.Format.Columns), "column"))
		return nil
	}
	from := "declared"
	if c.Format.Type == segment.FormatJSON && len(c.Format.Columns) == 0 {
		sample, err := r.sample(ctx)
		if err != nil {
			return err
		}
		c.Format.Columns = segment.InferColumns(sample)
		from = fmt.Sprintf("inferred from the first %s", plural(len(sample), "row"))
	}
	if err := r.control.Post(ctx, "/tables", c, nil); err != nil {
		return refusal(err)
	}
	r.screen.Line("table %s: %s", r.table, describe(c))
	if c.Format.Type == segment.FormatJSON {
		r.screen.Line("%s, %s:", plural(len(c.Format.Columns), "column"), from)
		for _, line := range wrapColumns(c.Format.Columns, 96) {
			r.screen.Line("  %s", line)
		}
	}
	return nil
}

// sample reads the first rows of the input, which for standard input means to
// wait for them.
func (r *run) sample(ctx context.Context) ([][]byte, error) {
	if r.input.Live() {
		r.screen.Line("waiting for the first rows of %s", r.input)
	}
	return r.input.Sample(ctx, sampleRows)
}

// refusal takes the answer of the controller apart for people.
func refusal(err error) error {
	var answer *httpx.Error
	if errors.As(err, &answer) && answer.Status == http.StatusUnprocessableEntity {
		return fmt.Errorf("the controller refuses the table:\n%s", answer.Message)
	}
	return err
}

func describe(c *meta.Config) string {
	s := fmt.Sprintf("segments of %s rows, %v or %v, on %s", count(c.Segment.MaxRows), c.Segment.MaxBytes, c.Segment.MaxAge, plural(c.Replication, "node"))
	if c.DeepStore != nil {
		s += ", backed up to " + c.DeepStore.URI
	}
	return s
}

// wrapColumns lists columns with their types in lines of at most width runes.
func wrapColumns(columns []segment.Column, width int) []string {
	var lines []string
	line := ""
	for i, c := range columns {
		item := c.Name + " " + string(c.Type)
		if i < len(columns)-1 {
			item += ","
		}
		if line != "" && len(line)+1+len(item) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += item
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// tellPlaces says where everything is.
func (r *run) tellPlaces() {
	line := r.screen.Line
	line("shoal: a controller and %s in one process", plural(len(r.cluster.nodes), "node"))
	line("  %-11s %s", controllerDir, r.cluster.controllerURL)
	for _, n := range r.cluster.nodes {
		line("  %-11s %s", n.name, n.url)
	}
	line("  %-11s %s", "data", r.cfg.Data)
	if r.cfg.LogName != "" {
		line("  %-11s %s", "log", r.cfg.LogName)
	}
	if d := r.tableCfg.DeepStore; d != nil && strings.HasPrefix(d.URI, r.deepStoreURI()) {
		line("  %-11s %s/%s/*/*.parquet, as they are backed up", "segments", strings.TrimPrefix(d.URI, "file://"), r.table)
	}
	at := ""
	if r.cluster.controllerURL != api.DefaultController {
		at = "export SHOAL_CONTROLLER=" + r.cluster.controllerURL + "; "
	}
	line("  %-11s %s%s status; %[3]s segments ls %[4]s", "look around", at, r.cfg.Program, r.table)
	for _, name := range r.cluster.idle {
		line("%s has data here and is not started (--nodes %d): its copies do not count until it is", name, r.cluster.cfg.Nodes)
	}
}
