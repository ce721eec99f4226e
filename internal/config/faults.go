package config

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Fault is one thing that is wrong in a configuration.
type Fault struct {
	// Field is the path of the setting ("segment.maxBytes",
	// "format.columns[2].type"), empty for the document as a whole.
	Field string
	// Value is what it was set to, shortened; empty if there is none to show.
	Value string
	// Problem says what is wrong with it.
	Problem string
	// Where is source:line, empty if not known.
	Where string
}

func (f Fault) String() string {
	var b strings.Builder
	for _, part := range []string{f.Where, f.Field} {
		if part != "" {
			b.WriteString(part + ": ")
		}
	}
	if f.Value != "" {
		b.WriteString(f.Value + ": ")
	}
	b.WriteString(f.Problem)
	return b.String()
}

// Faults is everything that is wrong, in the order found. It is an error with
// one line for each; return it through Err, so that none is nil.
type Faults []Fault

// maxFaults bounds a list of faults; whoever has more knows enough.
const maxFaults = 100

func (fs Faults) Error() string {
	lines := make([]string, 0, len(fs))
	for _, f := range fs {
		lines = append(lines, f.String())
	}
	return strings.Join(lines, "\n")
}

// Err is fs as an error, nil if there is no fault.
func (fs Faults) Err() error {
	if len(fs) == 0 {
		return nil
	}
	return fs
}

// Addf adds a fault of field; value is what it was set to, nil for none.
func (fs *Faults) Addf(field string, value any, format string, args ...any) {
	fs.add(Fault{Field: field, Value: show(value), Problem: fmt.Sprintf(format, args...)})
}

// add is the one place where the list grows.
func (fs *Faults) add(f Fault) {
	switch {
	case len(*fs) < maxFaults:
		*fs = append(*fs, f)
	case len(*fs) == maxFaults:
		*fs = append(*fs, Fault{Problem: "and more faults, which are not listed"})
	}
}

// Has reports whether field, something below it, or something above it is
// faulty already: what a check finds there then would only repeat that.
func (fs Faults) Has(field string) bool {
	for _, f := range fs {
		if within(f.Field, field) || within(field, f.Field) {
			return true
		}
	}
	return false
}

// within reports whether the setting inner is outer or a part of it.
func within(inner, outer string) bool {
	rest, ok := strings.CutPrefix(inner, outer)
	return ok && (outer == "" || rest == "" || rest[0] == '.' || rest[0] == '[')
}

// show is a value as a fault names it: text in quotes, short, on one line.
func show(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return strconv.Quote(clip(v))
	default:
		return clip(strings.ToValidUTF8(strings.ReplaceAll(fmt.Sprint(v), "\n", " "), "\uFFFD"))
	}
}

// clip shortens s to something that fits on a line.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	n := most
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
