package cmdline

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode"

	"github.com/alecthomas/kong"

	"github.com/shoalstore/shoal/internal/config"
)

// Parse fills settings in: defaults, then the file that --config names, then
// the environment, then args. --help and --version end the process.
func Parse(name, about string, settings any, args []string) error {
	parser, err := kong.New(settings,
		kong.Name(name), kong.Description(about),
		kong.Vars{"version": Version()},
		kong.Configuration(loadFile))
	if err != nil {
		return err
	}
	_, err = parser.Parse(args)
	return err
}

// file is a settings file: the flags of a program under their names in camel
// case.
type file struct {
	name   string
	values map[string]any
}

// loadFile is a kong.ConfigurationLoader.
func loadFile(r io.Reader) (kong.Resolver, error) {
	f := file{name: "settings"}
	if named, ok := r.(*os.File); ok {
		f.name = named.Name()
	}
	data, err := io.ReadAll(io.LimitReader(r, config.MaxSize+1))
	if err != nil {
		return nil, err
	}
	return f, config.Decode(f.name, data, &f.values)
}

// Validate finds the settings that no flag has.
func (f file) Validate(app *kong.Application) error {
	known := map[string]bool{}
	for _, flags := range app.AllFlags(false) {
		for _, flag := range flags {
			known[key(flag)] = true
		}
	}
	var faults config.Faults
	for k, v := range f.values {
		if !known[k] || k == "help" || k == "config" || k == "version" {
			faults = append(faults, config.Fault{Where: f.name, Field: k, Value: fmt.Sprint(v), Problem: "unknown setting"})
		}
	}
	slices.SortFunc(faults, func(a, b config.Fault) int { return strings.Compare(a.Field, b.Field) })
	return faults.Err()
}

// Resolve gives a flag's value. The environment comes after the file, which
// kong would have the other way round.
func (f file) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	for _, env := range flag.Envs {
		if _, ok := os.LookupEnv(env); ok {
			return nil, nil
		}
	}
	return f.values[key(flag)], nil
}

// key is a flag's name in a file: clusterTokenFile for --cluster-token-file.
func key(flag *kong.Flag) string {
	var b strings.Builder
	up := false
	for _, r := range flag.Name {
		switch {
		case r == '-':
			up = true
			continue
		case up:
			r, up = unicode.ToUpper(r), false
		}
		b.WriteRune(r)
	}
	return b.String()
}
