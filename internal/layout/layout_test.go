// Package layout checks the one rule of the project's shape that a compiler
// does not: imports point down. The table below is the one that
// docs/ARCHITECTURE.md prints; change both together, with a reason in
// docs/decisions.md.
package layout

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const module = "github.com/shoalstore/shoal/"

// rows go from the top down. A package may import packages of lower rows only,
// never its own row.
var rows = [][]string{
	{"cmd/shoal", "cmd/controller", "cmd/node"},
	{"internal/cli"}, // the operator's commands
	{"internal/up", "internal/cmdline", "internal/restore"}, // a whole cluster in one process; what the mains share; metadata that others have
	{"internal/bench"}, // measures the rows below; nobody imports it
	{"internal/controller", "internal/node", "internal/produce", "internal/telemetry"},
	{"internal/snapshots"}, // the metadata's snapshots, by the chunk path
	{"commit/commithttp", "stream", "zkmeta", "deepstore", "peerdl", "internal/api"},
	{"commit", "validation", "metalog"},
	{"meta"},
	{"segment"},
	{"internal/vfs", "internal/httpx", "internal/config", "internal/schedule"},
}

// beside are packages that belong to the tests of another: "x/y" stands in x's
// row but may import x.
var beside = map[string]string{
	"deepstore/deepstoretest":  "deepstore",
	"deepstore/s3test":         "deepstore",
	"internal/httpx/httpxtest": "internal/httpx",
	"meta/metatest":            "meta",
	"metalog/devicetest":       "metalog",
	"zkmeta/zktest":            "zkmeta",
}

// free packages import what they like and are imported by nothing but tests.
var free = []string{"internal/sim", "internal/sim/simulate", "internal/sim/mutants", "internal/layout", "internal/e2e"}

type pkg struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

func TestImportsPointDown(t *testing.T) {
	level := map[string]int{}
	for i, row := range rows {
		for _, name := range row {
			level[name] = i
		}
	}
	for name, of := range beside {
		level[name] = level[of]
	}
	isFree := map[string]bool{}
	for _, name := range free {
		isFree[name] = true
	}
	for _, p := range listPackages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		if isFree[name] {
			continue
		}
		from, known := level[name]
		if !known {
			t.Errorf("%s has no place in the table of imports: give it a row here and in docs/ARCHITECTURE.md", name)
			continue
		}
		for _, path := range p.Imports {
			to, ours := strings.CutPrefix(path, module)
			if !ours || beside[name] == to {
				continue
			}
			switch at, known := level[to]; {
			case isFree[to]:
				t.Errorf("%s imports %s, which nothing may import", name, to)
			case !known:
				t.Errorf("%s imports %s, which has no place in the table", name, to)
			case at <= from:
				t.Errorf("%s imports %s: imports point down, never to the same row or up", name, to)
			}
		}
	}
}

// TestMachinesArePure keeps clocks, chance and I/O out of the packages whose
// code must replay (STYLE c).
func TestMachinesArePure(t *testing.T) {
	pure := map[string]bool{"commit": true, "meta": true, "validation": true}
	banned := map[string]bool{"os": true, "net": true, "net/http": true, "math/rand": true, "math/rand/v2": true, "crypto/rand": true}
	for _, p := range listPackages(t) {
		if !pure[strings.TrimPrefix(p.ImportPath, module)] {
			continue
		}
		for _, path := range p.Imports {
			if banned[path] {
				t.Errorf("%s imports %s: decisions are pure", p.ImportPath, path)
			}
		}
	}
}

// pureFiles are the machines that live beside their shells.
var pureFiles = map[string][]string{
	"internal/controller": {
		"machine", "machine_io", "liveness", "completion", "locations", "checks", "checkqueue", "tables", "jobs", "look", "retention",
		"validation", "validation_io", "audits", "bulk", "deletions", "drains", "pauses",
	},
	"zkmeta":        {"election", "election_io", "election_state", "election_queue"},
	"internal/node": {"machine", "machine_io", "judge", "efforts", "reports", "downloads", "consumption", "consumption_io", "consumption_run", "consumption_feed"},
	"metalog":       {"fetch", "fetchquery", "follower_machine", "follower_snapshot", "group", "query", "snapshotclean", "snapshotdue", "snapshotquery", "writer_machine"},
	"peerdl":        {"plan", "window"},
}

// TestMachinesBesideTheirShellsArePure looks into files, because a shell in the
// same package may do what its machine must not. Of math/rand they may name the
// type: a *rand.Rand that is handed in replays.
func TestMachinesBesideTheirShellsArePure(t *testing.T) {
	banned := map[string]bool{
		"context": true, "os": true, "io": true, "net": true, "net/http": true, "sync": true, "sync/atomic": true,
		"math/rand/v2": true, "crypto/rand": true,
	}
	calls := map[string]bool{
		"time.Now": true, "time.Since": true, "time.Until": true, "time.Sleep": true, "time.After": true,
		"time.NewTimer": true, "time.NewTicker": true, "uuid.New": true, "uuid.NewString": true, "uuid.NewRandom": true,
	}
	for dir, names := range pureFiles {
		for _, name := range names {
			path := filepath.Join("../..", dir, name+".go")
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, spec := range file.Imports {
				if banned[strings.Trim(spec.Path.Value, `"`)] {
					t.Errorf("%s/%s.go imports %s: decisions are pure", dir, name, spec.Path.Value)
				}
			}
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.GoStmt, *ast.ChanType, *ast.SelectStmt:
					t.Errorf("%s/%s.go has a goroutine or a channel: decisions are pure", dir, name)
				case *ast.SelectorExpr:
					x, ok := n.X.(*ast.Ident)
					if ok && (calls[x.Name+"."+n.Sel.Name] || x.Name == "rand" && n.Sel.Name != "Rand") {
						t.Errorf("%s/%s.go uses %s.%s: decisions are pure", dir, name, x.Name, n.Sel.Name)
					}
				}
				return true
			})
		}
	}
}

func listPackages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Fatalf("go list: %v", err)
	}
	var pkgs []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("reading go list: %v", err)
		}
		pkgs = append(pkgs, p)
	}
	if len(pkgs) < 3 {
		t.Fatalf("go list found %d packages: the check would pass on nothing", len(pkgs))
	}
	return pkgs
}
