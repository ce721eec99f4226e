package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
)

// table prints aligned columns.
type table struct {
	w *tabwriter.Writer
}

// newTable begins a table; flush it.
func newTable(out io.Writer, columns ...string) table {
	t := table{tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)}
	row := make([]any, len(columns))
	for i, c := range columns {
		row[i] = c
	}
	t.row(row...)
	return t
}

func (t table) row(cells ...any) {
	for i, c := range cells {
		if i > 0 {
			fmt.Fprint(t.w, "\t")
		}
		if s, ok := c.(string); ok && s == "" {
			c = "-"
		}
		fmt.Fprint(t.w, c)
	}
	fmt.Fprintln(t.w)
}

func (t table) flush() error { return t.w.Flush() }

// writeJSON prints a value for machines.
func (a *app) writeJSON(v any) error {
	e := json.NewEncoder(a.Out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// size prints a number of bytes.
func size(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

func count(n int64) string { return humanize.Comma(n) }

// at prints a moment, milliseconds since 1970; 0 is none.
func at(ms int64) string {
	if ms == 0 {
		return ""
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02 15:04:05Z")
}

// ago prints how long ago t was.
func (a *app) ago(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return a.now().Sub(t).Round(time.Second).String() + " ago"
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
